//! The outline of a Markdown text: its headings, and where its blocks begin at any depth of nesting.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};

use crate::kb::document::{Document, HeadingText, markdown_events, one_line};

/// Headings are cut to this length.
const MAX_HEADING_CHARS: usize = 200;

/// Blocks nested deeper count as being at this depth, which bounds the recursion of the unit cutter.
const MAX_DEPTH: u8 = 3;

/// A block without blocks inside it: a paragraph, a fence, a table. Together the leaves cover the body.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Byte offset in the document's text. A leaf ends where the next one begins.
    pub(super) start: usize,
    /// Number of containers around the outermost block that begins here, up to [`MAX_DEPTH`].
    pub(super) depth: u8,
    pub(super) kind: LeafKind,
}

/// The kind of a leaf, which decides where a leaf too long for a chunk may be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeafKind {
    /// A heading that begins a section. Headings inside lists and quotes are [`Self::Text`].
    Heading {
        /// 1 to 6.
        level: u8,
        /// The text without markup.
        title: String,
    },
    Text,
    /// A block whose lines are significant: a fence, indented code, HTML.
    Lines {
        /// The opening line of a fence, repeated in every chunk of it because it names the language.
        context: Option<Range<usize>>,
    },
    Table {
        /// The header and delimiter rows, repeated in every chunk of the table.
        context: Option<Range<usize>>,
    },
}

/// Returns the leaves of the document's body in order.
pub(super) fn leaves(document: &Document) -> Vec<Leaf> {
    let body = &document.text[document.body.clone()];
    let mut outline = Outline::new(&document.text, document.body.clone());
    if document.is_plain_text() {
        outline.read_paragraphs();
    } else {
        for (event, range) in markdown_events(body) {
            outline.read(&event, range.start + document.body.start..range.end + document.body.start);
        }
    }
    outline.finish()
}

struct Outline<'a> {
    text: &'a str,
    leaves: Vec<Leaf>,
    line: LineCursor<'a>,
    depth: usize,
    heading: Option<HeadingText>,
    table: Option<usize>,
}

impl<'a> Outline<'a> {
    fn new(text: &'a str, body: Range<usize>) -> Self {
        let first = Leaf { start: body.start, depth: 0, kind: LeafKind::Text };
        let line = LineCursor { text: &text[..body.end], start: body.start, seen: body.start };
        Self { text, leaves: vec![first], line, depth: 0, heading: None, table: None }
    }

    fn read(&mut self, event: &Event<'_>, range: Range<usize>) {
        if let Some(heading) = &mut self.heading {
            heading.take(event);
        }
        match event {
            Event::Start(tag) => self.open(tag, range),
            Event::End(tag) => self.close(*tag, range),
            Event::Rule => self.begin(range.start, LeafKind::Text),
            _ => {}
        }
    }

    fn open(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Heading { .. } if self.depth == 0 => self.heading = Some(HeadingText::default()),
            Tag::Heading { .. } | Tag::Paragraph => self.begin(range.start, LeafKind::Text),
            // Indented code has no opening line.
            Tag::CodeBlock(kind) => {
                let context = kind.is_fenced().then(|| self.first_line(&range));
                self.begin(range.start, LeafKind::Lines { context });
            }
            Tag::HtmlBlock => self.begin(range.start, LeafKind::Lines { context: None }),
            Tag::Table(_) => {
                self.begin(range.start, LeafKind::Table { context: None });
                self.table = Some(range.start);
            }
            Tag::TableRow => self.end_table_header(range.start),
            Tag::BlockQuote(_) | Tag::List(_) | Tag::Item | Tag::FootnoteDefinition(_) => {
                self.begin(range.start, LeafKind::Text);
                self.depth += 1;
            }
            _ => {}
        }
    }

    fn close(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Heading(level) if self.depth == 0 => self.end_heading(level, range),
            TagEnd::CodeBlock | TagEnd::HtmlBlock | TagEnd::Table => self.end(range.end),
            TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item | TagEnd::FootnoteDefinition => {
                self.depth -= 1;
                // After an item the list goes on, so that the next text is not prose yet.
                if matches!(tag, TagEnd::List(_) | TagEnd::BlockQuote(_)) {
                    self.end(range.end);
                }
            }
            _ => {}
        }
    }

    fn end_heading(&mut self, level: HeadingLevel, range: Range<usize>) {
        let title = one_line(self.heading.take().unwrap_or_default().as_str(), MAX_HEADING_CHARS);
        self.begin(range.start, LeafKind::Heading { level: level as u8, title });
        self.end(range.end);
    }

    fn end_table_header(&mut self, first_row: usize) {
        let Some(start) = self.table.take() else { return };
        let header = start..self.line.start_of(first_row);
        if let Some(Leaf { kind: LeafKind::Table { context }, .. }) = self.leaves.last_mut() {
            *context = Some(header);
        }
    }

    fn first_line(&self, range: &Range<usize>) -> Range<usize> {
        let block = &self.text[range.clone()];
        range.start..range.start + block.find('\n').unwrap_or(block.len())
    }

    /// Records that a block begins at `offset`. The leaf begins with the line, so that list and quote markers before
    /// the block belong to it.
    fn begin(&mut self, offset: usize, kind: LeafKind) {
        let start = self.line.start_of(offset);
        self.push(start, kind);
    }

    /// Records that a block ended at `offset`. The text after it is prose until another block begins.
    fn end(&mut self, offset: usize) {
        if let Some(start) = self.line.next_after(offset) {
            self.push(start, LeafKind::Text);
        }
    }

    fn push(&mut self, start: usize, kind: LeafKind) {
        let depth = u8::try_from(self.depth).map_or(MAX_DEPTH, |depth| depth.min(MAX_DEPTH));
        let Some(last) = self.leaves.last_mut() else { return };
        // Nothing but white space in between: the last leaf was the start of a container or empty.
        if start <= last.start || self.text[last.start..start].trim().is_empty() {
            last.kind = kind;
            last.depth = last.depth.min(depth);
        } else {
            self.leaves.push(Leaf { start, depth, kind });
        }
    }

    /// Reads plain text, in which blank lines separate the blocks.
    fn read_paragraphs(&mut self) {
        let mut start = self.line.start;
        let mut after_blank = false;
        for line in self.line.text[start..].split_inclusive('\n') {
            let is_blank = line.trim().is_empty();
            if after_blank && !is_blank {
                self.begin(start, LeafKind::Text);
            }
            after_blank = is_blank;
            start += line.len();
        }
    }

    fn finish(mut self) -> Vec<Leaf> {
        if let [.., last] = &self.leaves[..]
            && self.leaves.len() > 1
            && self.line.text[last.start..].trim().is_empty()
        {
            self.leaves.pop();
        }
        self.leaves
    }
}

/// Finds the line starts of offsets that arrive nearly in order. Visits each byte once, which keeps the outline linear.
struct LineCursor<'a> {
    text: &'a str,
    start: usize,
    seen: usize,
}

impl LineCursor<'_> {
    /// Returns the start of the line that contains `offset`.
    fn start_of(&mut self, offset: usize) -> usize {
        if let Some(unseen) = self.text.get(self.seen..offset) {
            self.start = unseen.rfind('\n').map_or(self.start, |newline| self.seen + newline + 1);
            self.seen = offset;
        }
        self.start
    }

    /// Returns the first line start at or after `offset`, or `None` if the cursor is already past it.
    fn next_after(&mut self, offset: usize) -> Option<usize> {
        let rest = self.text.get(offset..).filter(|_| offset > self.start)?;
        self.start = match rest.find('\n') {
            _ if self.text[..offset].ends_with('\n') => offset,
            Some(newline) => offset + newline + 1,
            None => self.text.len(),
        };
        self.seen = self.start;
        Some(self.start)
    }
}
