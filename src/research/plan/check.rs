//! Validates plan drafts: the result is a plan or a list of all complaints.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::{NodeDraft, Plan, PlanDraft, TreeLimits, Update, UpdateDraft};
use crate::base::line::{cut, one_line, printable};
use crate::llm::schema::compile;
use crate::research::node::{Node, NodeId, NodeStatus, SourceHint, Tool, Tree};
use crate::research::question::{AspectId, Brief, Question, QuestionError};

/// Longest name of a node within a draft, in characters. Names are repeated in complaints and must stay on one line.
const MAX_NAME: usize = 32;

impl PlanDraft {
    /// Validates the draft against a tree and resolves it: numbers the new nodes after those of the tree and fills in
    /// defaults.
    ///
    /// New nodes are numbered in order of appearance, and names in `parent` and `depends_on` are replaced by their ids.
    /// `reworded_for` returns the source of a node on the web, or on both, whose task for the web is worded from its
    /// aspects instead of its question; a finished one must have asked it, and have been shown everything a new one would
    /// be shown.
    ///
    /// # Errors
    ///
    /// Returns all complaints rather than the first one: a model gets one round of repair.
    pub(crate) fn check(
        &self,
        tree: &Tree,
        brief: &Brief,
        limits: TreeLimits,
        round: u32,
        reworded_for: &dyn Fn(&NodeDraft) -> Option<SourceHint>,
    ) -> Result<Plan, Vec<String>> {
        let mut check = DraftCheck::new(self, tree, brief);
        check.names();
        check.size(limits);
        check.repeats();
        check.repeats_outside(reworded_for);
        let depths = check.parents(limits);
        check.dependencies();
        let nodes = self.new_nodes.iter().enumerate().map(|(at, node)| check.node(at, node, depths[at], round));
        let nodes = nodes.collect::<Vec<_>>().into_iter().flatten().collect();
        let updates = check.updates();
        if check.complaints.is_empty() {
            Ok(Plan { reasoning: printable(&self.reasoning), nodes, updates })
        } else {
            Err(check.complaints)
        }
    }

    /// Returns the plan of the nodes that pass `check`, each together with those before it. For nodes that do not refer
    /// to each other: a node that needs a refused one is refused, too.
    pub(crate) fn passing<E>(self, check: &dyn Fn(&Self) -> Result<Plan, E>) -> Plan {
        let Self { reasoning, new_nodes, updates } = self;
        let mut kept = Self { reasoning, new_nodes: Vec::new(), updates };
        for node in new_nodes {
            kept.new_nodes.push(node);
            if check(&kept).is_err() {
                kept.new_nodes.pop();
            }
        }
        check(&kept).unwrap_or_default()
    }
}

/// The node a name in a draft refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meant {
    /// A new node, by its index in the draft.
    New(usize),
    Old(NodeId),
}

struct DraftCheck<'a> {
    draft: &'a PlanDraft,
    tree: &'a Tree,
    brief: &'a Brief,
    /// Index of each new node by name; of duplicates, the first.
    new: HashMap<&'a str, usize>,
    dropped: HashSet<NodeId>,
    complaints: Vec<String>,
}

impl<'a> DraftCheck<'a> {
    fn new(draft: &'a PlanDraft, tree: &'a Tree, brief: &'a Brief) -> Self {
        let mut new = HashMap::new();
        for (at, node) in draft.new_nodes.iter().enumerate() {
            new.entry(node.id.as_str()).or_insert(at);
        }
        // An id that does not parse is refused with its update.
        let dropped = draft.updates.iter().filter(|update| update.drop).filter_map(|update| update.id.parse().ok());
        Self { draft, tree, brief, new, dropped: dropped.collect(), complaints: Vec::new() }
    }

    fn meant(&self, name: &str) -> Option<Meant> {
        let old = || name.parse().ok().filter(|id| self.tree.get(id).is_some()).map(Meant::Old);
        self.new.get(name).copied().map(Meant::New).or_else(old)
    }

    fn name(&self, at: usize) -> String {
        shown(&self.draft.new_nodes[at].id)
    }

    fn chain(&self, path: &[usize]) -> String {
        path.iter().map(|at| format!("`{}`", self.name(*at))).collect::<Vec<_>>().join(" → ")
    }

    fn names(&mut self) {
        for (at, node) in self.draft.new_nodes.iter().enumerate() {
            let id = shown(&node.id);
            let taken = node.id.parse().is_ok_and(|id| self.tree.get(&id).is_some());
            if !is_name(&node.id) {
                self.complaints
                    .push(format!("`{id}` is not a name for a node (1 to {MAX_NAME} letters, digits, `_` and `-`)"));
            } else if taken {
                self.complaints.push(format!("`{id}` already exists; give the new node another name"));
            } else if self.new[node.id.as_str()] != at {
                self.complaints.push(format!("`{id}` names more than one new node"));
            }
        }
    }

    /// Checks the number of nodes. Dropped nodes count, since they stay in the tree.
    fn size(&mut self, limits: TreeLimits) {
        let nodes = self.tree.nodes.len() + self.draft.new_nodes.len();
        // A plan that only changes nodes passes, even if a limit was lowered below the size of the tree.
        if nodes > limits.max_nodes as usize && !self.draft.new_nodes.is_empty() {
            self.complaints.push(format!("tree would have {nodes} nodes (at most {})", limits.max_nodes));
        }
    }

    /// Refuses new nodes that repeat the question of a finished one on the same sources: the answer would be the same.
    /// The same question on other sources is allowed.
    fn repeats(&mut self) {
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect()
        };
        // A root without a worker has looked nothing up.
        let done = |node: &&Node| node.status == NodeStatus::Done;
        let mut repeats = Vec::new();
        for node in &self.draft.new_nodes {
            let asks_the_same = |done: &&Node| {
                done.source_hint == node.source_hint && words(done.question.as_str()) == words(&node.question)
            };
            if let Some(done) = self.tree.workers().filter(done).find(asks_the_same) {
                let id = shown(&node.id);
                repeats.push(format!(
                    "`{id}` asks what `{}` has already answered; ask something else or leave it out",
                    done.id
                ));
            }
        }
        self.complaints.extend(repeats);
    }

    /// Refuses a node whose worker on the web would get the same task as that of another new node or a finished one on
    /// the same source, however the two are worded. Both would be paid for: the prompts of their later steps differ in
    /// the ids of evidence.
    fn repeats_outside(&mut self, reworded_for: &dyn Fn(&NodeDraft) -> Option<SourceHint>) {
        let id = |name: &String| self.id(name).map_or_else(|| name.clone(), |id| id.to_string());
        let told = |node: &NodeDraft| {
            let source = reworded_for(node)?;
            let aspects: BTreeSet<_> = node.aspects.iter().cloned().collect();
            let dependencies: BTreeSet<_> = node.depends_on.iter().map(id).collect();
            Some((source, aspects, dependencies, tools(&node.tools)))
        };
        let mut repeats = Vec::new();
        let done = self.tree.workers().filter(|node| node.status == NodeStatus::Done).map(NodeDraft::from);
        let mut known: Vec<_> = done.filter_map(|node| Some((told(&node)?, node.id))).collect();
        for (node, told) in self.draft.new_nodes.iter().filter_map(|node| Some((node, told(node)?))) {
            match known.iter().find(|(other, _)| *other == told) {
                Some((_, other)) => repeats.push(format!(
                    "`{}` would ask the web what `{}` asks, since both are worded from the same aspects; leave it out or change its source",
                    shown(&node.id),
                    shown(other)
                )),
                None => known.push((told, node.id.clone())),
            }
        }
        self.complaints.extend(repeats);
    }

    /// Checks the parents of new nodes and returns the depth of each.
    fn parents(&mut self, limits: TreeLimits) -> Vec<u32> {
        let mut above = Vec::with_capacity(self.draft.new_nodes.len());
        for node in &self.draft.new_nodes {
            let id = shown(&node.id);
            let parent =
                given(node.parent.as_ref()).map_or(Some(Meant::Old(self.tree.root.clone())), |name| self.meant(name));
            match &parent {
                None => {
                    let parent = shown(node.parent.as_deref().unwrap_or_default());
                    self.complaints.push(format!("parent `{parent}` of `{id}` does not exist"));
                }
                Some(Meant::Old(parent)) if self.dropped.contains(parent) => {
                    self.complaints.push(format!("parent `{parent}` of `{id}` is dropped by this plan"));
                }
                Some(_) => {}
            }
            above.push(parent);
        }
        let new_parent = |meant: &Option<Meant>| match meant {
            Some(Meant::New(at)) => vec![*at],
            _ => Vec::new(),
        };
        let edges: Vec<_> = above.iter().map(new_parent).collect();
        for path in cycles(&edges) {
            self.complaints.push(format!("parents form a cycle: {}", self.chain(&path)));
        }
        let depths = self.depths(&above);
        for (at, depth) in depths.iter().copied().enumerate().filter(|(_, depth)| *depth > limits.max_depth) {
            let (id, most) = (self.name(at), limits.max_depth);
            self.complaints.push(format!("`{id}` is {depth} levels below the root (at most {most})"));
        }
        depths
    }

    /// Returns the depth of each new node. Nodes without a valid parent count as children of the root.
    fn depths(&self, above: &[Option<Meant>]) -> Vec<u32> {
        let mut depths = vec![None; above.len()];
        for start in 0..above.len() {
            let mut chain = Vec::new();
            let mut at = start;
            let base = loop {
                if let Some(depth) = depths[at] {
                    break depth;
                }
                // Set before the depth is known, so that a cycle terminates.
                depths[at] = Some(0);
                chain.push(at);
                match &above[at] {
                    Some(Meant::New(parent)) => at = *parent,
                    Some(Meant::Old(parent)) => break self.tree.get(parent).map_or(0, |parent| parent.depth),
                    None => break 0,
                }
            };
            for (levels, at) in (1..).zip(chain.into_iter().rev()) {
                depths[at] = Some(base + levels);
            }
        }
        depths.into_iter().map(|depth| depth.unwrap_or(1)).collect()
    }

    fn dependencies(&mut self) {
        let mut edges = vec![Vec::new(); self.draft.new_nodes.len()];
        for (at, node) in self.draft.new_nodes.iter().enumerate() {
            for name in &node.depends_on {
                let id = shown(&node.id);
                match self.meant(name) {
                    None => {
                        self.complaints.push(format!("`{id}` depends on `{}`, which does not exist", shown(name)));
                    }
                    Some(Meant::New(other)) if other == at => {
                        self.complaints.push(format!("`{id}` depends on itself"));
                    }
                    Some(Meant::New(other)) => edges[at].push(other),
                    Some(Meant::Old(dependency)) => {
                        if let Some(why) = self.why_never(&dependency, node.optional_dependencies) {
                            self.complaints.push(format!("`{id}` can never run: its dependency `{dependency}` {why}"));
                        }
                    }
                }
            }
        }
        for path in cycles(&edges) {
            self.complaints.push(format!("dependencies form a cycle: {}", self.chain(&path)));
        }
    }

    /// Returns the reason that a dependency on an existing node can never be met.
    fn why_never(&self, dependency: &NodeId, optional: bool) -> Option<&'static str> {
        let node = self.tree.get(dependency)?;
        match node.status {
            _ if self.dropped.contains(dependency) => Some("is dropped by this plan"),
            NodeStatus::Pending if *dependency == self.tree.root => Some("is the root, which is answered last"),
            NodeStatus::Failed if !optional => Some("failed"),
            NodeStatus::Blocked if !optional => Some("is blocked"),
            NodeStatus::Pending | NodeStatus::Running | NodeStatus::Done | NodeStatus::Failed | NodeStatus::Blocked => {
                None
            }
        }
    }

    fn node(&mut self, at: usize, draft: &NodeDraft, depth: u32, round: u32) -> Option<Node> {
        // All parts are checked before a missing question ends the check, so that every complaint is reported.
        let question = self.question(&draft.id, &draft.question);
        let aspects = self.aspects(draft);
        let output_schema = self.output_schema(draft);
        let parent = given(draft.parent.as_ref()).and_then(|name| self.id(name));
        let mut node = Node::new(self.numbered(at), parent.or(Some(self.tree.root.clone())), question?, depth);
        node.aspects = aspects;
        node.depends_on = without_repeats(draft.depends_on.iter().filter_map(|name| self.id(name)));
        node.optional_dependencies = draft.optional_dependencies;
        node.parallelizable = draft.parallelizable;
        node.priority = draft.priority;
        node.source_hint = draft.source_hint;
        node.tools = tools(&draft.tools);
        if node.only_concludes() && node.depends_on.is_empty() {
            let id = shown(&draft.id);
            self.complaints.push(format!("`{id}` only concludes, but depends on no node to conclude from"));
        }
        node.output_schema = output_schema;
        node.group = draft.group.as_deref().map(one_line).filter(|group| !group.is_empty());
        node.why = one_line(&draft.why);
        node.round = round;
        Some(node)
    }

    /// Returns the id of the new node at index `at`.
    fn numbered(&self, at: usize) -> NodeId {
        NodeId::numbered(self.tree.next_number().saturating_add(u32::try_from(at).unwrap_or(u32::MAX)))
    }

    fn id(&self, name: &str) -> Option<NodeId> {
        Some(match self.meant(name)? {
            Meant::New(at) => self.numbered(at),
            Meant::Old(id) => id,
        })
    }

    fn question(&mut self, id: &str, text: &str) -> Option<Question> {
        let wrong = |error: QuestionError| {
            self.complaints.push(format!("`{}` has an invalid question: {error}", shown(id)));
        };
        text.parse().map_err(wrong).ok()
    }

    fn aspects(&mut self, draft: &NodeDraft) -> Vec<AspectId> {
        let mut known = Vec::new();
        for name in &draft.aspects {
            if let Some(aspect) = self.brief.aspect(&AspectId::named(name)) {
                known.push(aspect.id.clone());
            } else {
                let (id, name) = (shown(&draft.id), shown(name));
                self.complaints.push(format!("`{id}` names aspect `{name}`, which is not in the brief"));
            }
        }
        without_repeats(known)
    }

    fn output_schema(&mut self, draft: &NodeDraft) -> Option<Value> {
        match schema(given(draft.output_schema.as_ref())?) {
            Ok(schema) => Some(schema),
            Err(reason) => {
                let (id, reason) = (shown(&draft.id), shown(&reason));
                self.complaints.push(format!("`output_schema` of `{id}` is not a JSON Schema: {reason}"));
                None
            }
        }
    }

    fn updates(&mut self) -> Vec<Update> {
        let mut seen = HashSet::new();
        let mut updates = Vec::new();
        for draft in &self.draft.updates {
            let question = given(draft.question.as_ref()).and_then(|text| self.question(&draft.id, text));
            let id = shown(&draft.id);
            let Some(node) = draft.id.parse().ok().and_then(|id| self.tree.get(&id)) else {
                self.complaints.push(format!("`{id}` cannot be changed: it does not exist"));
                continue;
            };
            if !seen.insert(node.id.clone()) {
                self.complaints.push(format!("`{id}` is changed more than once"));
            } else if let Some(status) = settled_name(node.status) {
                self.complaints.push(format!("`{id}` cannot be changed: it is {status} (only pending nodes can)"));
            } else if node.id == self.tree.root && (draft.drop || question.is_some()) {
                self.complaints
                    .push(format!("`{id}` is the root: it can neither be dropped nor be given another question"));
            } else if let Some(by) = self.needed_by(draft, &node.id) {
                self.complaints.push(format!("`{id}` cannot be dropped: `{by}` needs it"));
            }
            // Added even after a complaint, which rejects the whole plan.
            let UpdateDraft { priority, source_hint, drop, .. } = *draft;
            updates.push(Update { id: node.id.clone(), question, priority, source_hint, drop });
        }
        updates
    }

    /// Returns a remaining node that depends on the one to be dropped or is its child.
    fn needed_by(&self, draft: &UpdateDraft, id: &NodeId) -> Option<&'a NodeId> {
        let needs = |node: &&Node| node.depends_on.contains(id) || node.parent.as_ref() == Some(id);
        let staying = self.tree.nodes.iter().filter(|node| draft.drop && !self.dropped.contains(&node.id));
        staying.filter(needs).map(|node| &node.id).next()
    }
}

/// Returns the tools of a node whose draft names these.
fn tools(given: &[Tool]) -> Vec<Tool> {
    if given.is_empty() { vec![Tool::Search, Tool::Open] } else { without_repeats(given.iter().copied()) }
}

/// Returns the text unless it is blank. Models fill optional fields with empty strings.
fn given(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn is_name(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME).contains(&id.len()) && id.bytes().all(fits)
}

/// Shortens untrusted text to one printable line.
fn shown(text: &str) -> String {
    cut(text, 160)
}

fn settled_name(status: NodeStatus) -> Option<&'static str> {
    match status {
        NodeStatus::Pending => None,
        NodeStatus::Running => Some("running"),
        NodeStatus::Done => Some("done"),
        NodeStatus::Failed => Some("failed"),
        NodeStatus::Blocked => Some("blocked"),
    }
}

/// Parses and compiles a JSON Schema. References to other documents are refused, since resolving them would open files
/// or connections.
fn schema(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("it must be an object".to_owned());
    }
    // Compiled now, so that an unusable schema is rejected before any research is paid for.
    compile(&value).map_err(|error| error.to_string())?;
    Ok(value)
}

fn without_repeats<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// Returns one cycle for every edge that closes one, each with its first node repeated at the end.
fn cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut cycles = Vec::new();
    let mut is_seen = vec![false; edges.len()];
    let mut place = vec![None; edges.len()];
    for start in 0..edges.len() {
        // Path from `start` to the current node, each with the number of its edges followed. An explicit stack: a plan
        // file may hold a chain of any length, and recursion would overflow.
        let mut way: Vec<(usize, usize)> = Vec::new();
        let mut next = (!is_seen[start]).then_some(start);
        loop {
            if let Some(at) = next.take() {
                is_seen[at] = true;
                place[at] = Some(way.len());
                way.push((at, 0));
            }
            let Some((at, followed)) = way.last_mut() else { break };
            match edges[*at].get(*followed) {
                Some(&to) => {
                    *followed += 1;
                    if let Some(first) = place[to] {
                        cycles.push(way[first..].iter().map(|(at, _)| *at).chain([to]).collect());
                    } else if !is_seen[to] {
                        next = Some(to);
                    }
                }
                None => {
                    place[*at] = None;
                    way.pop();
                }
            }
        }
    }
    cycles
}
