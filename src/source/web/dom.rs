//! Parses a page into a tree with html5ever, within limits on time and memory: pages are untrusted.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{Attribute, ParseOpts, QualName, parse_document};

/// Limit on the number of nodes.
const MAX_NODES: usize = 300_000;

/// Limit on the nesting depth. The parser scans the stack of open elements repeatedly, so deep nesting takes quadratic
/// time.
const MAX_DEPTH: usize = 2_000;

/// Limit on formatting elements, including those that the parser reopens.
const MAX_FORMATTING: usize = 100_000;

/// Limit on operations of the parser on the tree.
const MAX_STEPS: u64 = 100_000_000;

/// Limit on the time. The parser compares each attribute of a tag with all before it, which no other limit counts.
const MAX_TIME: Duration = Duration::from_secs(8);

/// Bytes between two looks at the time.
const PIECE_BYTES: usize = 4_096;

/// Formatting elements, which the parser reopens in every following paragraph until they are closed.
const FORMATTING: [&str; 14] =
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];

/// A page as a tree of nodes. Node 0 is the document.
#[derive(Debug)]
pub(super) struct Dom {
    nodes: Vec<DomNode>,
}

#[derive(Debug)]
struct DomNode {
    parent: Option<usize>,
    /// Depth when the node was inserted; not updated if an ancestor moves.
    depth: usize,
    children: Vec<usize>,
    data: Data,
}

/// The content of a node. Comments and processing instructions are [`Self::Nothing`].
#[derive(Debug)]
enum Data {
    Element { name: Rc<QualName>, attributes: Vec<Attribute>, contents: Option<usize> },
    Text(String),
    Nothing,
}

/// The page exceeds a limit or crashes the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page exceeds the parsing limits")]
pub(super) struct Tangled;

impl Dom {
    /// Parses a page. Panics inside the parser are caught.
    pub(super) fn parse(html: &str) -> Result<Self, Tangled> {
        Self::parse_within(html, MAX_TIME)
    }

    fn parse_within(html: &str, max_time: Duration) -> Result<Self, Tangled> {
        let started = Instant::now();
        let parse = || {
            let mut parser = parse_document(Builder::default(), ParseOpts::default());
            let mut rest = html;
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
                parser.process(StrTendril::from_slice(piece));
                if started.elapsed() > max_time {
                    resume_unwind(Box::new(Tangled));
                }
                rest = behind;
            }
            parser.finish()
        };
        // Safe to unwind: parser and tree are inside the closure, and gone afterwards.
        catch_unwind(AssertUnwindSafe(parse)).map_err(|_| Tangled)
    }

    /// Returns the children of a node in order.
    pub(super) fn children(&self, node: usize) -> &[usize] {
        &self.nodes[node].children
    }

    /// Returns the name of an element, or `None` for other nodes.
    pub(super) fn name(&self, node: usize) -> Option<&str> {
        match &self.nodes[node].data {
            Data::Element { name, .. } => Some(&name.local),
            Data::Text(_) | Data::Nothing => None,
        }
    }

    /// Returns the content of a text node, or `None` for other nodes.
    pub(super) fn text(&self, node: usize) -> Option<&str> {
        match &self.nodes[node].data {
            Data::Text(text) => Some(text),
            Data::Element { .. } | Data::Nothing => None,
        }
    }

    pub(super) fn attribute(&self, node: usize, wanted: &str) -> Option<&str> {
        match &self.nodes[node].data {
            Data::Element { attributes, .. } => {
                attributes.iter().find(|attribute| &*attribute.name.local == wanted).map(|found| &*found.value)
            }
            Data::Text(_) | Data::Nothing => None,
        }
    }

    /// Returns a node and its descendants in document order.
    pub(super) fn inside(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let mut open = vec![node];
        std::iter::from_fn(move || {
            let node = open.pop()?;
            open.extend(self.children(node).iter().rev());
            Some(node)
        })
    }
}

/// The parser's handle of a node. Holds the name because the parser asks for it more often than for anything else, and
/// cannot borrow it from the tree.
#[derive(Clone)]
struct Handle {
    node: usize,
    name: Option<Rc<QualName>>,
}

/// The tree sink of the parser.
struct Builder {
    nodes: RefCell<Vec<DomNode>>,
    steps: Cell<u64>,
    formatting: Cell<usize>,
    nameless: QualName,
}

impl Default for Builder {
    fn default() -> Self {
        let builder = Self {
            nodes: RefCell::default(),
            steps: Cell::default(),
            formatting: Cell::default(),
            nameless: QualName::new(None, html5ever::ns!(), html5ever::local_name!("")),
        };
        builder.add(Data::Nothing);
        builder
    }
}

impl Builder {
    /// Counts operations. The parser has no way to stop early, so exceeding the limit unwinds to [`Dom::parse`],
    /// without the message of a panic.
    fn step(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
        if self.steps.get() > MAX_STEPS {
            resume_unwind(Box::new(Tangled));
        }
    }

    fn add(&self, data: Data) -> usize {
        let mut nodes = self.nodes.borrow_mut();
        if nodes.len() >= MAX_NODES {
            drop(nodes);
            resume_unwind(Box::new(Tangled));
        }
        nodes.push(DomNode { parent: None, depth: 0, children: Vec::new(), data });
        nodes.len() - 1
    }

    /// Inserts a node or text into `parent` before the child at `at`, or at the end.
    fn insert(&self, parent: usize, at: Option<usize>, child: NodeOrText<Handle>) {
        let node = match child {
            NodeOrText::AppendNode(handle) => {
                self.detach(handle.node);
                handle.node
            }
            NodeOrText::AppendText(text) => {
                let mut nodes = self.nodes.borrow_mut();
                let before = at.unwrap_or(nodes[parent].children.len()).checked_sub(1);
                let before = before.and_then(|before| nodes[parent].children.get(before).copied());
                // The parser hands over text in pieces and expects adjacent ones to be joined.
                if let Some(Data::Text(known)) = before.map(|before| &mut nodes[before].data) {
                    known.push_str(&text);
                    return;
                }
                drop(nodes);
                self.add(Data::Text(text.into()))
            }
        };
        let mut nodes = self.nodes.borrow_mut();
        nodes[node].parent = Some(parent);
        nodes[node].depth = nodes[parent].depth + 1;
        if nodes[node].depth > MAX_DEPTH {
            drop(nodes);
            resume_unwind(Box::new(Tangled));
        }
        let children = &mut nodes[parent].children;
        children.insert(at.unwrap_or(children.len()).min(children.len()), node);
    }

    /// Returns the parent of a node and its index there. Searches from the end, where the parser mostly works.
    fn place(&self, node: usize) -> Option<(usize, usize)> {
        let nodes = self.nodes.borrow();
        let parent = nodes[node].parent?;
        let at = nodes[parent].children.iter().rposition(|child| *child == node)?;
        self.step(nodes[parent].children.len() - at);
        Some((parent, at))
    }

    fn detach(&self, node: usize) {
        if let Some((parent, at)) = self.place(node) {
            let mut nodes = self.nodes.borrow_mut();
            nodes[parent].children.remove(at);
            nodes[node].parent = None;
        }
    }
}

impl TreeSink for Builder {
    type Handle = Handle;
    type Output = Dom;
    type ElemName<'a> = &'a QualName;

    fn finish(self) -> Dom {
        Dom { nodes: self.nodes.into_inner() }
    }

    fn parse_error(&self, _message: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        Handle { node: 0, name: None }
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> &'a QualName {
        self.step(1);
        // The parser asks for names of elements only. If it does not, a page must not cause a panic.
        target.name.as_deref().unwrap_or(&self.nameless)
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, flags: ElementFlags) -> Handle {
        if FORMATTING.contains(&&*name.local) {
            self.formatting.set(self.formatting.get() + 1);
            if self.formatting.get() > MAX_FORMATTING {
                resume_unwind(Box::new(Tangled));
            }
        }
        let name = Rc::new(name);
        let contents = flags.template.then(|| self.add(Data::Nothing));
        let node = self.add(Data::Element { name: Rc::clone(&name), attributes, contents });
        Handle { node, name: Some(name) }
    }

    fn create_comment(&self, _text: StrTendril) -> Handle {
        Handle { node: self.add(Data::Nothing), name: None }
    }

    fn create_pi(&self, _target: StrTendril, _data: StrTendril) -> Handle {
        Handle { node: self.add(Data::Nothing), name: None }
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        self.insert(parent.node, None, child);
    }

    fn append_based_on_parent_node(&self, element: &Handle, before: &Handle, child: NodeOrText<Handle>) {
        let has_parent = self.nodes.borrow()[element.node].parent.is_some();
        if has_parent {
            self.append_before_sibling(element, child);
        } else {
            self.append(before, child);
        }
    }

    fn append_doctype_to_document(&self, _name: StrTendril, _public_id: StrTendril, _system_id: StrTendril) {}

    fn get_template_contents(&self, target: &Handle) -> Handle {
        let contents = match &self.nodes.borrow()[target.node].data {
            Data::Element { contents, .. } => *contents,
            Data::Text(_) | Data::Nothing => None,
        };
        Handle { node: contents.unwrap_or(target.node), name: None }
    }

    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        self.step(1);
        x.node == y.node
    }

    fn set_quirks_mode(&self, _mode: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Handle, child: NodeOrText<Handle>) {
        // Detached first: if it is a sibling, this changes the place.
        if let NodeOrText::AppendNode(node) = &child {
            self.detach(node.node);
        }
        if let Some((parent, at)) = self.place(sibling.node) {
            self.insert(parent, Some(at), child);
        }
    }

    fn add_attrs_if_missing(&self, target: &Handle, more: Vec<Attribute>) {
        self.step(more.len());
        if let Data::Element { attributes, .. } = &mut self.nodes.borrow_mut()[target.node].data {
            for attribute in more {
                if !attributes.iter().any(|known| known.name == attribute.name) {
                    attributes.push(attribute);
                }
            }
        }
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.detach(target.node);
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        let mut nodes = self.nodes.borrow_mut();
        let children = std::mem::take(&mut nodes[node.node].children);
        self.step(children.len());
        for child in &children {
            nodes[*child].parent = Some(new_parent.node);
        }
        nodes[new_parent.node].children.extend(children);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_with_half_a_million_attributes_is_given_up_in_time() {
        let attributes: String = (0..500_000).map(|number| format!(" a{number}")).collect();
        let page = format!("<p{attributes}>So much for that.</p>");
        let started = Instant::now();
        assert!(Dom::parse_within(&page, Duration::from_millis(100)).is_err());
        // Half of the limit of a page, on a machine that does other things as well.
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert!(Dom::parse("<p class=a id=b>So much for that.</p>").is_ok());
    }

    #[test]
    fn page_built_to_waste_memory_is_given_up() {
        let open = |count: usize| (0..count).map(|number| format!("<b a={number}>")).collect::<String>();
        assert_eq!(Dom::parse(&open(20_000)).unwrap_err(), Tangled, "deeper than real pages");
        // The parser opens each again in every paragraph.
        assert_eq!(Dom::parse(&format!("<p>{}{}", open(1_000), "<p>x".repeat(10_000))).unwrap_err(), Tangled);
    }

    #[test]
    fn page_built_to_waste_time_is_given_up() {
        assert_eq!(Dom::parse(&"<div>".repeat(200_000)).unwrap_err(), Tangled);
        let wide = format!("{}{}", "<div>".repeat(1_900), "<p></p>".repeat(100_000));
        assert_eq!(Dom::parse(&wide).unwrap_err(), Tangled);
    }

    #[test]
    fn large_page_without_tricks_is_read() {
        let dom = Dom::parse(&"<p>Valves <b>open</b> at <a href=x>six</a>.</p>".repeat(5_000)).unwrap();
        assert_eq!(dom.inside(0).filter(|node| dom.name(*node) == Some("p")).count(), 5_000);
    }
}
