//! Text of others as the few forms a report may have: paragraphs, items, tables, code, and citations by number.
//!
//! A renderer sees nothing else of what a writer or a source said: links and images are their words alone, HTML is text,
//! marks of quotes (`[n2e1]`) are numbers, and a number in brackets that stood there already is put in parentheses, so
//! that it cannot pass for a citation.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::Serialize;

use crate::base::line::{one_line, printable};
use crate::research::branch::Finding;
use crate::research::evidence::EvidenceId;
use crate::research::report::marks;

/// What stands around the number of a citation until text is cut into spans. They are punctuation, as brackets are.
const OPEN: char = '⸨';
/// See [`OPEN`].
const CLOSE: char = '⸩';

/// A stretch of text in one style.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "text", rename_all = "lowercase")]
pub(super) enum Span {
    /// Words.
    Text(String),
    /// Words with weight.
    Strong(String),
    /// Words with stress.
    Emphasis(String),
    /// Code.
    Code(String),
    /// The number of a quote.
    Citation(usize),
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Block {
    /// A heading, whatever its level was.
    Heading {
        /// Its words.
        spans: Vec<Span>,
    },
    /// A paragraph.
    Paragraph {
        /// Its words.
        spans: Vec<Span>,
    },
    /// An item of a list.
    Item {
        /// Lists around its own.
        depth: usize,
        /// Its number, where items have numbers.
        number: Option<u64>,
        /// Its words.
        spans: Vec<Span>,
    },
    /// Lines of code.
    Code {
        /// The lines.
        text: String,
    },
    /// A table; the first row is its head.
    Table {
        /// Rows of cells.
        rows: Vec<Vec<Vec<Span>>>,
    },
}

/// Tells the number of a quote; none where it may not be cited here.
pub(super) type Number<'a> = &'a dyn Fn(&EvidenceId) -> Option<usize>;

/// The number of a quote where nothing may be cited.
pub(super) fn uncited(_: &EvidenceId) -> Option<usize> {
    None
}

/// Returns a text as one line, in which only code between backticks is a form.
pub(super) fn line(text: &str, number: Number<'_>) -> Vec<Span> {
    let text = numbered(&one_line(text), number);
    // Code is kept where it is plain which backticks belong together.
    let has_code = !text.contains("``") && text.matches('`').count().is_multiple_of(2);
    let mut spans = Vec::new();
    if !has_code {
        cut(&mut spans, &text, Span::Text);
        return spans;
    }
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            spans.push(Span::Code(code(part)));
        } else {
            cut(&mut spans, part, Span::Text);
        }
    }
    spans
}

/// Returns a claim as one line, with the numbers of its quotes: where its text cites one, else at its end.
///
/// A claim cites its own quotes only. What it says may be a sentence of a source, and a mark in that is the source's.
pub(super) fn finding(finding: &Finding, number: Number<'_>) -> Vec<Span> {
    let mut spans = line(&finding.text, &|id| number(id).filter(|_| finding.evidence.contains(id)));
    for number in finding.evidence.iter().filter_map(number) {
        if !spans.contains(&Span::Citation(number)) {
            spans.push(Span::Citation(number));
        }
    }
    spans
}

/// Returns a writer's Markdown as blocks.
pub(super) fn blocks(text: &str, number: Number<'_>) -> Vec<Block> {
    let text = numbered(&printable(text), number);
    let mut reader = Reader::default();
    for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
        reader.take(event);
    }
    reader.end_block();
    reader.blocks
}

/// Returns `text` with each mark of quotes as their numbers; a mark of none goes, and the spaces before it.
fn numbered(text: &str, number: Number<'_>) -> String {
    let plain = |text: &str| text.replace([OPEN, CLOSE], "");
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for mark in marks(text).chunk_by(|a, b| a.0 == b.0) {
        let range = &mark[0].0;
        shown.push_str(&plain(&text[from..range.start]));
        from = range.end;
        let mut numbers: Vec<_> = mark.iter().filter_map(|(_, id)| number(id)).collect();
        numbers.dedup();
        if numbers.is_empty() {
            shown.truncate(shown.trim_end_matches(' ').len());
        }
        shown.extend(numbers.iter().map(|number| format!("{OPEN}{number}{CLOSE}")));
    }
    shown.push_str(&plain(&text[from..]));
    shown
}

/// Cuts text into words and citations.
fn cut(spans: &mut Vec<Span>, text: &str, styled: fn(String) -> Span) {
    let mut rest = text;
    while let Some((before, number, after)) = next_citation(rest) {
        push(spans, styled(without_references(before)));
        spans.push(Span::Citation(number));
        rest = after;
    }
    push(spans, styled(without_references(rest)));
}

fn next_citation(text: &str) -> Option<(&str, usize, &str)> {
    let (before, rest) = text.split_once(OPEN)?;
    let (number, after) = rest.split_once(CLOSE)?;
    Some((before, number.parse().ok()?, after))
}

fn push(spans: &mut Vec<Span>, span: Span) {
    if !matches!(&span, Span::Text(text) | Span::Strong(text) | Span::Emphasis(text) if text.is_empty()) {
        spans.push(span);
    }
}

/// Returns code with citations as they are printed.
fn code(text: &str) -> String {
    text.replace(OPEN, "[").replace(CLOSE, "]")
}

/// Returns a text with its own references in brackets turned into such in parentheses.
fn without_references(text: &str) -> String {
    // Brackets of other scripts look the same.
    let text = text.replace(['【', '［', '〔'], "[").replace(['】', '］', '〕'], "]");
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        shown.push_str(before);
        match after.split_once(']') {
            Some((inner, after)) if is_reference(inner) => {
                shown.push_str(&format!("({inner})"));
                rest = after;
            }
            _ => {
                shown.push('[');
                rest = after;
            }
        }
    }
    shown.push_str(rest);
    shown
}

/// Turns brackets around a number that has a style of its own into parentheses, as [`without_references`] does within one.
fn without_marked_references(words: &mut [(Style, String)]) {
    for at in 1..words.len().saturating_sub(1) {
        let is_in_brackets = words[at - 1].1.ends_with('[') && words[at + 1].1.starts_with(']');
        if is_in_brackets && is_reference(&words[at].1) {
            words[at - 1].1.pop();
            words[at - 1].1.push('(');
            words[at + 1].1.replace_range(..1, ")");
        }
    }
}

/// Tells whether what stands in brackets could be taken for the numbers of quotes: `1`, `1, 2`, `*1*`, `^1`, `ref. 1`.
fn is_reference(inner: &str) -> bool {
    let words = inner.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_of_references = |word: &str| {
        let word = word.to_lowercase();
        word.chars().all(char::is_numeric)
            || matches!(word.as_str(), "ref" | "refs" | "source" | "sources" | "cit" | "fn" | "note")
    };
    inner.chars().any(char::is_numeric) && words.into_iter().all(is_of_references)
}

/// Puts blocks together from events of Markdown.
#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    /// Words of the block that is being read, by style; cut into spans when it ends.
    words: Vec<(Style, String)>,
    /// Next number of each list around; none where items have no numbers.
    lists: Vec<Option<u64>>,
    /// The item whose first words are being read.
    item: Option<(usize, Option<u64>)>,
    strong: usize,
    emphasis: usize,
    is_code: bool,
    rows: Vec<Vec<Vec<Span>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Strong,
    Emphasis,
    Code,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.word(self.style(), &text),
            Event::Html(text) | Event::InlineHtml(text) => self.word(self.style(), &text.replace('\n', " ")),
            Event::Code(text) => self.word(Style::Code, &text),
            Event::SoftBreak | Event::HardBreak => self.word(self.style(), " "),
            Event::Rule => self.end_block(),
            // Options that would make these are off.
            Event::FootnoteReference(_) | Event::TaskListMarker(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Strong => self.strong += 1,
            Tag::Emphasis => self.emphasis += 1,
            Tag::List(first) => {
                self.end_block();
                self.lists.push(*first);
            }
            Tag::Item => {
                self.end_block();
                self.item = self.next_item();
            }
            Tag::CodeBlock(_) => {
                self.end_block();
                self.is_code = true;
            }
            Tag::Table(_) => self.end_block(),
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong => self.strong = self.strong.saturating_sub(1),
            TagEnd::Emphasis => self.emphasis = self.emphasis.saturating_sub(1),
            TagEnd::Heading(_) => {
                let spans = self.spans();
                self.blocks.push(Block::Heading { spans });
            }
            TagEnd::CodeBlock => {
                let text = self.words.drain(..).map(|(_, text)| code(&text)).collect();
                self.blocks.push(Block::Code { text });
                self.is_code = false;
            }
            TagEnd::TableCell => {
                let cell = self.spans();
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.blocks.push(Block::Table { rows: std::mem::take(&mut self.rows) }),
            TagEnd::List(_) => {
                self.end_block();
                self.lists.pop();
            }
            TagEnd::Paragraph | TagEnd::Item | TagEnd::HtmlBlock => self.end_block(),
            _ => {}
        }
    }

    fn next_item(&mut self) -> Option<(usize, Option<u64>)> {
        let depth = self.lists.len().checked_sub(1)?;
        let next = self.lists.last_mut()?;
        let number = *next;
        *next = number.map(|number| number.saturating_add(1));
        Some((depth, number))
    }

    fn style(&self) -> Style {
        match (self.is_code, self.strong, self.emphasis) {
            (true, ..) => Style::Code,
            (false, 0, 0) => Style::Plain,
            (false, 0, _) => Style::Emphasis,
            (false, ..) => Style::Strong,
        }
    }

    /// Adds words; those in one style belong together, or a bracket would be a span by itself.
    fn word(&mut self, style: Style, text: &str) {
        match self.words.last_mut() {
            Some((last, words)) if *last == style => words.push_str(text),
            _ => self.words.push((style, text.to_owned())),
        }
    }

    fn spans(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        if let Some((_, last)) = self.words.last_mut() {
            last.truncate(last.trim_end().len());
        }
        without_marked_references(&mut self.words);
        for (style, text) in self.words.drain(..) {
            match style {
                Style::Plain => cut(&mut spans, &text, Span::Text),
                Style::Strong => cut(&mut spans, &text, Span::Strong),
                Style::Emphasis => cut(&mut spans, &text, Span::Emphasis),
                Style::Code => spans.push(Span::Code(one_line(&code(&text)))),
            }
        }
        spans
    }

    fn end_block(&mut self) {
        let item = self.item.take();
        if self.words.iter().all(|(_, text)| text.trim().is_empty()) {
            self.words.clear();
            return;
        }
        let spans = self.spans();
        self.blocks.push(match item {
            Some((depth, number)) => Block::Item { depth, number, spans },
            None => Block::Paragraph { spans },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(id: &EvidenceId) -> Option<usize> {
        ["n1e1", "n2e1", "n2e2"].iter().position(|known| *known == id.to_string()).map(|at| at + 1)
    }

    /// Writes spans so that a test can be read.
    fn shown(spans: &[Span]) -> String {
        let show = |span: &Span| match span {
            Span::Text(text) => text.clone(),
            Span::Strong(text) => format!("<b {text}>"),
            Span::Emphasis(text) => format!("<i {text}>"),
            Span::Code(text) => format!("<code {text}>"),
            Span::Citation(number) => format!("<{number}>"),
        };
        spans.iter().map(show).collect()
    }

    #[test]
    fn mark_becomes_the_numbers_of_its_quotes_and_an_unknown_one_goes() {
        assert_eq!(shown(&line("So it is [n2e1], or not [n1e1; n2e2].", &known)), "So it is <2>, or not <1><3>.");
        assert_eq!(shown(&line("Made up [n9e9]. Half [n9e9, n1e1] so.", &known)), "Made up. Half <1> so.");
        assert_eq!(shown(&line("Nothing [n1e1] here.", &uncited)), "Nothing here.");
    }

    #[test]
    fn number_in_brackets_of_a_source_does_not_pass_for_a_citation() {
        assert_eq!(
            shown(&line("proven elsewhere [9], [1, 2] and [3–5].", &known)),
            "proven elsewhere (9), (1, 2) and (3–5)."
        );
        assert_eq!(
            shown(&line("so [*1*], [1.], [ref. 1], [^1], [#2], [Source 3] and not [v1] or [item 1]", &known)),
            "so (*1*), (1.), (ref. 1), (^1), (#2), (Source 3) and not [v1] or [item 1]"
        );
        assert_eq!(shown(&line("see [the note] ⸨1⸩ and `a[0]`", &known)), "see [the note] 1 and <code a[0]>");
        assert_eq!(shown(&line("code `[n2e1]`, odd `", &known)), "code `<2>`, odd `");
    }

    #[test]
    fn writer_has_paragraphs_items_tables_and_code_and_no_links_images_or_html() {
        let text = "# A *heading*\n\nOne **bold [n1e1] word** and\n`code`.\n\n- an item\n  1. inner [n2e1](http://evil)\n\
                    \n| a | b |\n|---|---|\n| ![x](http://evil/x.png) | [y](javascript:1) |\n\n```sh\nls [n2e2]\n```\n\n\
                    <script>x</script>\n\n[n1e1]: http://evil\n";
        let shown: Vec<_> = blocks(text, &known)
            .iter()
            .map(|block| match block {
                Block::Heading { spans } => format!("heading {}", shown(spans)),
                Block::Paragraph { spans } => format!("paragraph {}", shown(spans)),
                Block::Item { depth, number, spans } => format!("item {depth} {number:?} {}", shown(spans)),
                Block::Code { text } => format!("code {text}"),
                Block::Table { rows } => {
                    let row = |row: &Vec<Vec<Span>>| row.iter().map(|cell| shown(cell)).collect::<Vec<_>>().join("/");
                    format!("table {}", rows.iter().map(row).collect::<Vec<_>>().join(" - "))
                }
            })
            .collect();
        assert_eq!(
            shown,
            [
                "heading A <i heading>",
                "paragraph One <b bold ><1><b  word> and <code code>.",
                "item 0 None an item",
                "item 1 Some(1) inner <2>(http://evil)",
                "table a/b - x/y",
                "code ls [3]\n",
                "paragraph <script>x</script>",
                "paragraph <1>: http://evil",
            ]
        );
    }

    #[test]
    fn number_in_brackets_with_a_style_of_its_own_does_not_pass_for_a_citation() {
        let text = "proven [*1*], [`2`] and [**3**], see [*the* note]";
        assert_eq!(
            blocks(text, &known)
                .iter()
                .map(|block| if let Block::Paragraph { spans } = block { shown(spans) } else { String::new() })
                .collect::<String>(),
            "proven (<i 1>), (<code 2>) and (<b 3>), see [<i the> note]"
        );
    }

    proptest! {
        #[test]
        fn citations_of_any_text_are_those_of_its_marks(text in r"(\[n[0-3]e[0-3](, n1e1)?\]|[-*`\[\]()<>|#!a ⸨⸩1\n:]){0,30}") {
            let mut cited = Vec::new();
            let collect = |spans: &[Span], cited: &mut Vec<usize>| {
                cited.extend(spans.iter().filter_map(|span| match span {
                    Span::Citation(number) => Some(*number),
                    _ => None,
                }));
            };
            for block in blocks(&text, &known) {
                match &block {
                    Block::Heading { spans } | Block::Paragraph { spans } | Block::Item { spans, .. } => collect(spans, &mut cited),
                    Block::Table { rows } => rows.iter().flatten().for_each(|cell| collect(cell, &mut cited)),
                    Block::Code { .. } => {}
                }
            }
            let allowed: Vec<_> = marks(&printable(&text)).iter().filter_map(|(_, id)| known(id)).collect();
            prop_assert!(cited.iter().all(|number| allowed.contains(number)), "{cited:?} of {allowed:?}");
        }
    }
}
