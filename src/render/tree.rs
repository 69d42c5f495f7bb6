//! Draws the tree of a run as lines of text, with the state and the dependencies of each node.

use std::collections::{HashMap, HashSet};

use termimad::StrFit;

use crate::base::line::one_line;
use crate::research::node::{Node, NodeId, NodeStatus, SourceHint, Tree};

/// Options of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeStyle {
    /// Maximum width in columns.
    pub(crate) width: usize,
    /// Whether to draw lines and marks in ASCII. Does not affect the text of questions.
    pub(crate) ascii: bool,
}

impl Default for TreeStyle {
    fn default() -> Self {
        Self { width: 100, ascii: false }
    }
}

impl TreeStyle {
    /// Returns the mark of a state: ✓ done, ▸ running, · pending, ✗ failed, ⊘ blocked.
    pub(crate) fn mark(self, status: NodeStatus) -> &'static str {
        match (status, self.ascii) {
            (NodeStatus::Done, false) => "✓",
            (NodeStatus::Running, false) => "▸",
            (NodeStatus::Pending, false) => "·",
            (NodeStatus::Failed, false) => "✗",
            (NodeStatus::Blocked, false) => "⊘",
            (NodeStatus::Done, true) => "+",
            (NodeStatus::Running, true) => ">",
            (NodeStatus::Pending, true) => ".",
            (NodeStatus::Failed, true) => "x",
            (NodeStatus::Blocked, true) => "-",
        }
    }

    /// Returns the branches drawn in front of a node.
    fn branches(self, row: &Row<'_>) -> String {
        let [through, blank, fork, last] =
            if self.ascii { ["|  ", "   ", "|- ", "`- "] } else { ["│  ", "   ", "├─ ", "└─ "] };
        let mut drawn: String = row.trail.iter().map(|goes_on| if *goes_on { through } else { blank }).collect();
        if row.depth > 0 {
            drawn.push_str(if row.is_last { last } else { fork });
        }
        drawn
    }
}

/// Returns one line per node, parents above their children, at most `style.width` columns wide.
///
/// ```text
/// ▸ n1 Which of A and B is faster?
/// ├─ ✓ n2 How fast is A?
/// ├─ ✗ n3 How fast is B? (web)
/// └─ · n4 Which is faster?  ← n2, n3
/// ```
pub(crate) fn tree_lines(tree: &Tree, style: TreeStyle) -> Vec<String> {
    rows(tree).iter().map(|row| line(row, style)).collect()
}

fn line(row: &Row<'_>, style: TreeStyle) -> String {
    let node = row.node;
    let start = format!("{}{} {} ", style.branches(row), style.mark(node.status), node.id);
    let mut end = match node.source_hint {
        SourceHint::Internal => "",
        SourceHint::Web => " (web)",
        SourceHint::Mixed => " (mixed)",
    }
    .to_owned();
    if !node.depends_on.is_empty() {
        end.push_str(if style.ascii { "  <- " } else { "  ← " });
        end.push_str(&names(&node.depends_on));
    }
    // If the question has less than 12 columns, the dependencies are cut instead.
    let room = style.width.saturating_sub(columns(&start) + columns(&end)).max(12);
    let question = shortened(&one_line(node.question.as_str()), room, style);
    shortened(&format!("{start}{question}{end}"), style.width, style)
}

/// Joins ids: `n2, n3`.
pub(super) fn names(ids: &[NodeId]) -> String {
    ids.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

/// Cuts a line to `width` columns, with an ellipsis if anything was cut.
fn shortened(text: &str, width: usize, style: TreeStyle) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let ellipsis = if style.ascii { "..." } else { "…" };
    let Some(room) = width.checked_sub(columns(ellipsis)) else { return String::new() };
    let (bytes, _) = StrFit::count_fitting(text, room);
    format!("{}{ellipsis}", text[..bytes].trim_end())
}

// In columns, not letters: Chinese and Japanese letters take two.
fn columns(text: &str) -> usize {
    StrFit::count_fitting(text, usize::MAX).1
}

/// A node and its position in the drawing.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) node: &'a Node,
    /// Number of ancestors.
    pub(super) depth: usize,
    pub(super) is_last: bool,
    /// For each ancestor below the root, whether a sibling follows it.
    trail: Vec<bool>,
}

/// Returns the nodes in drawing order: each below its parent, siblings in the order of the plan.
///
/// Every node appears exactly once, even in a malformed tree: a node whose parent is missing is drawn next to the
/// root.
pub(super) fn rows(tree: &Tree) -> Vec<Row<'_>> {
    let mut children: HashMap<&NodeId, Vec<&Node>> = HashMap::new();
    for node in tree.nodes.iter().filter(|node| node.id != tree.root) {
        if let Some(parent) = &node.parent {
            children.entry(parent).or_default().push(node);
        }
    }
    let mut drawing = Drawing { children, seen: HashSet::new(), rows: Vec::with_capacity(tree.nodes.len()) };
    if let Some(root) = tree.get(&tree.root) {
        drawing.add(root);
    }
    let is_top = |node: &&Node| node.parent.as_ref().is_none_or(|parent| tree.get(parent).is_none());
    tree.nodes.iter().filter(is_top).for_each(|node| drawing.add(node));
    // The remaining nodes are in cycles of parents.
    tree.nodes.iter().for_each(|node| drawing.add(node));
    drawing.rows
}

struct Drawing<'a> {
    children: HashMap<&'a NodeId, Vec<&'a Node>>,
    seen: HashSet<&'a NodeId>,
    rows: Vec<Row<'a>>,
}

impl<'a> Drawing<'a> {
    /// Appends a node and its descendants, except those already drawn.
    fn add(&mut self, top: &'a Node) {
        let mut trail: Vec<bool> = Vec::new();
        let mut waiting = vec![(top, 0, true)];
        while let Some((node, depth, is_last)) = waiting.pop() {
            if !self.seen.insert(&node.id) {
                continue;
            }
            trail.truncate(depth);
            self.rows.push(Row { node, depth, is_last, trail: trail.iter().skip(1).copied().collect() });
            trail.push(!is_last);
            let children = self.children.get(&node.id).map(Vec::as_slice).unwrap_or_default();
            let last = children.len().saturating_sub(1);
            waiting.extend(children.iter().enumerate().rev().map(|(at, child)| (*child, depth + 1, at == last)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(number: u32, parent: Option<u32>, question: &str, status: NodeStatus) -> Node {
        let id = NodeId::numbered;
        Node { status, ..Node::new(id(number), parent.map(id), question.parse().unwrap(), 0) }
    }

    fn tree() -> Tree {
        let mut nodes = vec![
            node(1, None, "Which of A and B is faster on machines with little memory?", NodeStatus::Running),
            node(2, Some(1), "How fast is A?", NodeStatus::Done),
            node(3, Some(1), "How fast is B?", NodeStatus::Failed),
            node(4, Some(1), "Which is faster, and by how much?", NodeStatus::Blocked),
            node(5, Some(2), "How is A measured?", NodeStatus::Running),
            node(6, Some(2), "速度は何で決まりますか、そして何が一番大事ですか?", NodeStatus::Pending),
        ];
        nodes[2].source_hint = SourceHint::Web;
        nodes[3].depends_on = vec![NodeId::numbered(2), NodeId::numbered(3)];
        nodes[3].source_hint = SourceHint::Mixed;
        Tree { root: NodeId::numbered(1), nodes }
    }

    #[test]
    fn tree_is_drawn_with_states_and_dependencies() {
        insta::assert_snapshot!(tree_lines(&tree(), TreeStyle { width: 60, ascii: false }).join("\n"), @r"
        ▸ n1 Which of A and B is faster on machines with little mem…
        ├─ ✓ n2 How fast is A?
        │  ├─ ▸ n5 How is A measured?
        │  └─ · n6 速度は何で決まりますか、そして何が一番大事ですか?
        ├─ ✗ n3 How fast is B? (web)
        └─ ⊘ n4 Which is faster, and by how much? (mixed)  ← n2, n3
        ");
    }

    #[test]
    fn tree_is_drawn_in_plain_letters() {
        insta::assert_snapshot!(tree_lines(&tree(), TreeStyle { width: 40, ascii: true }).join("\n"), @r"
        > n1 Which of A and B is faster on ma...
        |- + n2 How fast is A?
        |  |- > n5 How is A measured?
        |  `- . n6 速度は何で決まりますか、そ...
        |- x n3 How fast is B? (web)
        `- - n4 Which is f... (mixed)  <- n2, n3
        ");
    }

    #[test]
    fn node_without_a_way_to_the_root_is_drawn_all_the_same() {
        let nodes = vec![
            node(1, None, "root", NodeStatus::Done),
            node(2, Some(9), "orphan", NodeStatus::Done),
            node(3, Some(4), "circle", NodeStatus::Done),
            node(4, Some(3), "circle", NodeStatus::Done),
        ];
        let tree = Tree { root: NodeId::numbered(1), nodes };
        assert_eq!(
            tree_lines(&tree, TreeStyle::default()),
            ["✓ n1 root", "✓ n2 orphan", "✓ n3 circle", "└─ ✓ n4 circle"]
        );
    }

    proptest! {
        #[test]
        fn every_node_has_one_line_and_no_line_is_too_wide(
            parents in prop::collection::vec(prop::option::of(1_u32..20), 1..20),
            width in 0_usize..80,
            ascii: bool,
        ) {
            let nodes: Vec<_> = parents
                .iter()
                .zip(1..)
                .map(|(parent, number)| node(number, *parent, "Is 高 the question, or is it not?", NodeStatus::Done))
                .collect();
            let tree = Tree { root: NodeId::numbered(1), nodes };
            let lines = tree_lines(&tree, TreeStyle { width, ascii });
            prop_assert_eq!(lines.len(), tree.nodes.len());
            prop_assert!(lines.iter().all(|line| columns(line) <= width), "{lines:#?}");
        }
    }
}
