//! What a chunker has to know of a Markdown text: its headings, and where its blocks begin, however deeply they nest.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};

use crate::kb::document::{Document, markdown_events, one_line, push_plain};

/// Headings are kept up to this length.
const MAX_HEADING_CHARS: usize = 200;

/// Blocks nested deeper are told apart no further.
const MAX_DEPTH: u8 = 3;

/// A run of text with no other block inside: a paragraph, a fence, a table. Together the leaves cover the body.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Where it begins, in bytes of the document's text; it ends where the next one begins.
    pub(super) start: usize,
    /// How many containers lie around the outermost block that begins here, up to [`MAX_DEPTH`].
    pub(super) depth: u8,
    /// What it is.
    pub(super) kind: LeafKind,
}

/// What a leaf is, and so where it may be cut when it is too long for a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeafKind {
    /// A heading that begins a section; not one inside a list or quote.
    Heading {
        /// 1 to 6.
        level: u8,
        /// What a reader reads.
        title: String,
    },
    /// Prose.
    Text,
    /// Something whose lines matter: a fence, indented code, HTML.
    Lines {
        /// The opening line of a fence, needed to read what follows it.
        context: Option<Range<usize>>,
    },
    /// A table.
    Table {
        /// Its header and delimiter rows.
        context: Option<Range<usize>>,
    },
}

/// Returns the leaves of the document's body, in order.
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
    heading: Option<String>,
    table: Option<usize>,
}

impl<'a> Outline<'a> {
    fn new(text: &'a str, body: Range<usize>) -> Self {
        let first = Leaf { start: body.start, depth: 0, kind: LeafKind::Text };
        let line = LineCursor { text: &text[..body.end], start: body.start, seen: body.start };
        Self { text, leaves: vec![first], line, depth: 0, heading: None, table: None }
    }

    fn read(&mut self, event: &Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.open(tag, range),
            Event::End(tag) => self.close(*tag, range),
            Event::Rule => self.begin(range.start, LeafKind::Text),
            event => {
                if let Some(heading) = &mut self.heading {
                    push_plain(heading, event);
                }
            }
        }
    }

    fn open(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Heading { .. } if self.depth == 0 => self.heading = Some(String::new()),
            Tag::Heading { .. } | Tag::Paragraph => self.begin(range.start, LeafKind::Text),
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
                if matches!(tag, TagEnd::List(_) | TagEnd::BlockQuote(_)) {
                    self.end(range.end);
                }
            }
            _ => {}
        }
    }

    fn end_heading(&mut self, level: HeadingLevel, range: Range<usize>) {
        let title = one_line(&self.heading.take().unwrap_or_default(), MAX_HEADING_CHARS);
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

    /// Notes that a block begins at `offset`, after whatever marks its containers on the same line.
    fn begin(&mut self, offset: usize, kind: LeafKind) {
        let start = self.line.start_of(offset);
        self.push(start, kind);
    }

    /// Notes that a block ended at `offset`; what follows is prose until another block begins.
    fn end(&mut self, offset: usize) {
        if let Some(start) = self.line.next_after(offset) {
            self.push(start, LeafKind::Text);
        }
    }

    fn push(&mut self, start: usize, kind: LeafKind) {
        let depth = u8::try_from(self.depth).map_or(MAX_DEPTH, |depth| depth.min(MAX_DEPTH));
        let Some(last) = self.leaves.last_mut() else { return };
        // Where only white space lies between, the last block was a container, or nothing at all.
        if start <= last.start || self.text[last.start..start].trim().is_empty() {
            last.kind = kind;
            last.depth = last.depth.min(depth);
        } else {
            self.leaves.push(Leaf { start, depth, kind });
        }
    }

    /// Reads a text that is no Markdown: blocks are what blank lines part.
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

/// Finds starts of lines for offsets that come nearly in order, looking at each byte once.
struct LineCursor<'a> {
    text: &'a str,
    start: usize,
    seen: usize,
}

impl LineCursor<'_> {
    /// Returns where the line of `offset` begins.
    fn start_of(&mut self, offset: usize) -> usize {
        if let Some(unseen) = self.text.get(self.seen..offset) {
            self.start = unseen.rfind('\n').map_or(self.start, |newline| self.seen + newline + 1);
            self.seen = offset;
        }
        self.start
    }

    /// Returns where the first line that begins at or after `offset` begins, or `None` for what is passed already.
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
