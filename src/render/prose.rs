//! Reduces untrusted text to the few forms a report may have: paragraphs, items, tables, code, and numbered citations.
//!
//! Renderers see only these forms. Links and images are reduced to their text, HTML is text, evidence marks
//! (`[n2e1]`) become numbers, and existing bracketed numbers are put in parentheses, so that they cannot be mistaken
//! for citations.

use std::borrow::Cow;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::Serialize;

use super::citation::Mark;
use crate::base::line::{is_invisible, one_line, printable};
use crate::research::branch::Finding;
use crate::research::evidence::{EvidenceId, marks};

/// Delimits a citation number until the text is split into spans. Like a bracket, it is punctuation to the Markdown
/// parser, so emphasis next to it is recognised.
const OPEN: char = '⸨';

/// Ends a citation number, see [`OPEN`].
const CLOSE: char = '⸩';

/// Text in one style.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "text", rename_all = "lowercase")]
pub(super) enum Span {
    Text(String),
    Strong(String),
    Emphasis(String),
    Code(String),
    /// Code inside a strong text.
    StrongCode(String),
    Citation(Mark),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Block {
    /// A heading of any level.
    Heading { spans: Vec<Span> },
    /// A paragraph outside of a list.
    Paragraph { spans: Vec<Span> },
    /// An item of a list.
    Item {
        /// Nesting level, from 0.
        depth: usize,
        /// `None` in an unordered list.
        number: Option<u64>,
        spans: Vec<Span>,
    },
    /// A further paragraph of an item.
    Continued {
        /// Nesting level of the item.
        depth: usize,
        spans: Vec<Span>,
    },
    /// The text of a code block.
    Code { text: String },
    /// A table of rows of cells; the first row is the header.
    Table { rows: Vec<Vec<Vec<Span>>> },
}

/// Returns the mark of a quote, or `None` if it may not be cited here.
pub(super) type Number<'a> = &'a dyn Fn(&EvidenceId) -> Option<Mark>;

/// A [`Number`] for text without citations.
pub(super) fn uncited(_: &EvidenceId) -> Option<Mark> {
    None
}

/// Returns a text on one line, in which only code spans are markup.
pub(super) fn line(text: &str, number: Number<'_>) -> Vec<Span> {
    let text = numbered(&one_line(text), number);
    // Backticks are markup only if it is clear how they pair.
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

/// Returns a claim on one line with the numbers of its quotes: in place if the text cites them, else at the end.
///
/// Only the claim's own quotes count as cited. Its text may be a sentence of a source, whose marks are not citations.
pub(super) fn finding(finding: &Finding, number: Number<'_>) -> Vec<Span> {
    let mut spans = line(&finding.text, &|id| number(id).filter(|_| finding.evidence.contains(id)));
    for number in finding.evidence.iter().filter_map(number) {
        if !spans.contains(&Span::Citation(number)) {
            spans.push(Span::Citation(number));
        }
    }
    spans
}

/// Returns an excerpt of a passage on one line, with its emphasis and code.
pub(super) fn snippet(text: &str) -> Vec<Span> {
    let mut text = one_line(text);
    // The excerpt may end inside a tag, and begin or end inside code or bold text.
    if let Some(at) = text.rfind('<').filter(|at| !text[*at..].contains('>'))
        && text[at + 1..].starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/')
    {
        text.replace_range(at.., "…");
    }
    if !text.matches("**").count().is_multiple_of(2)
        && let Some(at) = text.rfind("**")
    {
        text.replace_range(at..at + 2, "");
    }
    if !text.matches('`').count().is_multiple_of(2)
        && let Some(at) = text.rfind('`')
    {
        text.remove(at);
    }
    blocks(&text, &uncited).into_iter().flat_map(Block::into_spans).collect()
}

impl Block {
    /// Returns its text without its form.
    fn into_spans(self) -> Vec<Span> {
        match self {
            Self::Heading { spans }
            | Self::Paragraph { spans }
            | Self::Item { spans, .. }
            | Self::Continued { spans, .. } => spans,
            Self::Code { text } => vec![Span::Text(one_line(&text))],
            Self::Table { rows } => rows.into_iter().flatten().flatten().collect(),
        }
    }
}

/// Parses the writer's Markdown into blocks.
pub(super) fn blocks(text: &str, number: Number<'_>) -> Vec<Block> {
    let text = numbered(&printable(text), number);
    let mut builder = BlockBuilder::default();
    for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
        if event == Event::Start(Tag::Item) {
            builder.number_item(&text[range.clone()]);
        }
        builder.take(match event {
            // Decoded from a reference such as `&#27;`.
            Event::Text(decoded) if !builder.is_code && *decoded != text[range] => {
                Event::Text(harmless(&decoded).into())
            }
            event => event,
        });
    }
    builder.end_block();
    builder.blocks
}

/// Returns the text of a character reference in printable form: the reference may encode a character that
/// controls a terminal, ends a line or forges a citation.
fn harmless(decoded: &str) -> String {
    let is_shown = |letter: &char| !is_invisible(*letter) && ![OPEN, CLOSE].contains(letter);
    let on_one_line = |letter: char| if letter.is_control() { ' ' } else { letter };
    decoded.chars().filter(is_shown).map(on_one_line).collect()
}

/// Replaces evidence marks by numbers. A mark without a number is removed, with the spaces before it.
fn numbered(text: &str, number: Number<'_>) -> String {
    // With these characters, a text could forge a citation.
    let plain = |text: &str| text.replace([OPEN, CLOSE], "");
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    // Ids in the same brackets have the same range.
    for mark in marks(text).chunk_by(|a, b| a.0 == b.0) {
        let range = &mark[0].0;
        shown.push_str(&plain(&text[from..range.start]));
        from = range.end;
        let mut numbers: Vec<_> = mark.iter().filter_map(|(_, id)| number(id)).collect();
        numbers.sort_by_key(|mark| (mark.document, mark.letter));
        numbers.dedup();
        if numbers.is_empty() {
            shown.truncate(shown.trim_end_matches(' ').len());
        }
        shown.extend(numbers.iter().map(|mark| format!("{OPEN}{}{CLOSE}", mark.encode())));
    }
    shown.push_str(&plain(&text[from..]));
    shown
}

/// Splits text into styled spans and citations.
fn cut(spans: &mut Vec<Span>, text: &str, styled: fn(String) -> Span) {
    let mut rest = text;
    while let Some((before, number, after)) = next_citation(rest) {
        push(spans, styled(without_references(before)));
        spans.push(Span::Citation(number));
        rest = after;
    }
    push(spans, styled(without_references(rest)));
}

fn next_citation(text: &str) -> Option<(&str, Mark, &str)> {
    let (before, rest) = text.split_once(OPEN)?;
    let (number, after) = rest.split_once(CLOSE)?;
    Some((before, Mark::decode(number)?, after))
}

fn push(spans: &mut Vec<Span>, span: Span) {
    if !matches!(&span, Span::Text(text) | Span::Strong(text) | Span::Emphasis(text) if text.is_empty()) {
        spans.push(span);
    }
}

/// Returns code with citations in brackets; a code span cannot contain other spans.
fn code(text: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, mark, after)) = next_citation(rest) {
        shown.push_str(&format!("{before}[{mark}]"));
        rest = after;
    }
    shown + rest
}

/// Puts bracketed references in a text into parentheses.
fn without_references(text: &str) -> String {
    // Full-width and CJK brackets look the same.
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

/// Like [`without_references`], for brackets around a number in another style, such as `[**1**]`.
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

/// Returns whether bracketed text could be mistaken for a citation: `1`, `1, 2`, `*1*`, `^1`, `ref. 1`.
fn is_reference(inner: &str) -> bool {
    let words = inner.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_of_references = |word: &str| {
        let word = word.to_lowercase();
        let letters = word.trim_start_matches(char::is_numeric);
        // `1a` is the form in which one of several quotes of a document is cited.
        letters.len() < word.len() && letters.len() <= 2 && letters.chars().all(|letter| letter.is_ascii_lowercase())
            || matches!(word.as_str(), "ref" | "refs" | "source" | "sources" | "cit" | "fn" | "note")
    };
    inner.chars().any(char::is_numeric) && words.into_iter().all(is_of_references)
}

/// Builds blocks from Markdown events.
#[derive(Default)]
struct BlockBuilder {
    blocks: Vec<Block>,
    /// Text of the current block by style, split into spans at its end.
    words: Vec<(Style, String)>,
    /// Next number in each enclosing list; `None` for an unordered one.
    lists: Vec<Option<u64>>,
    /// Depth and number of the current item until its first block ends.
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
    StrongCode,
}

impl BlockBuilder {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.word(self.style(), &text),
            Event::Html(text) | Event::InlineHtml(text) => self.word(self.style(), &text.replace('\n', " ")),
            Event::Code(text) if self.strong > 0 => self.word(Style::StrongCode, &text),
            Event::Code(text) => self.word(Style::Code, &text),
            Event::HardBreak if self.is_plain() => self.end_block(),
            Event::SoftBreak | Event::HardBreak => self.word(self.style(), " "),
            Event::Rule => self.end_block(),
            // The options that produce these are off.
            Event::FootnoteReference(_) | Event::TaskListMarker(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    /// Returns whether the current text is outside of tables and emphasis.
    fn is_plain(&self) -> bool {
        self.rows.is_empty() && self.strong == 0 && self.emphasis == 0
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

    /// Uses the number written in the text unless that would go backwards: a list shown in part skips numbers, and
    /// authors may number each item with 1.
    fn number_item(&mut self, item: &str) {
        let digits = item.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
        if let (Some(Some(next)), Ok(written)) = (self.lists.last_mut(), digits.parse::<u64>()) {
            *next = written.max(*next);
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

    /// Appends text, with one space for several. Adjacent text of one style is merged, because the parser emits
    /// brackets as separate events.
    fn word(&mut self, style: Style, text: &str) {
        let mut text = Cow::Borrowed(text);
        if !matches!(style, Style::Code | Style::StrongCode) && !self.is_code {
            let mut before = self.words.last().and_then(|(_, words)| words.chars().next_back());
            let is_kept = |letter: &char| before.replace(*letter) != Some(' ') || *letter != ' ';
            text = Cow::Owned(text.chars().filter(is_kept).collect());
        }
        match self.words.last_mut() {
            Some((last, words)) if *last == style => words.push_str(&text),
            _ => self.words.push((style, text.into_owned())),
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
                Style::StrongCode => spans.push(Span::StrongCode(one_line(&code(&text)))),
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
        let depth = self.lists.len().checked_sub(1);
        self.blocks.push(match (item, depth) {
            (Some((depth, number)), _) => Block::Item { depth, number, spans },
            (None, Some(depth)) => Block::Continued { depth, spans },
            (None, None) => Block::Paragraph { spans },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::line::is_printable;
    use proptest::prelude::*;

    fn known(id: &EvidenceId) -> Option<Mark> {
        let at = ["n1e1", "n2e1", "n2e2"].iter().position(|known| *known == id.to_string());
        at.map(|at| Mark { quote: at + 1, document: at + 1, letter: 0 })
    }

    /// Formats spans for readable tests.
    fn shown(spans: &[Span]) -> String {
        let show = |span: &Span| match span {
            Span::Text(text) => text.clone(),
            Span::Strong(text) => format!("<b {text}>"),
            Span::Emphasis(text) => format!("<i {text}>"),
            Span::Code(text) => format!("<code {text}>"),
            Span::StrongCode(text) => format!("<b <code {text}>>"),
            Span::Citation(number) => format!("<{number}>"),
        };
        spans.iter().map(show).collect()
    }

    #[test]
    fn items_keep_the_numbers_of_a_list_shown_in_part() {
        let numbers = |text: &str| {
            let number = |block: Block| if let Block::Item { number, .. } = block { number } else { None };
            blocks(text, &known).into_iter().map(number).collect::<Vec<_>>()
        };
        assert_eq!(numbers("2. Oil it.\n5. Ring.\n\n9. Rest."), [Some(2), Some(5), Some(9)]);
        assert_eq!(numbers("1. Oil it.\n1. Ring.\n1. Rest."), [Some(1), Some(2), Some(3)]);
        assert_eq!(numbers("- Oil it.\n- 7 times"), [None, None]);
    }

    #[test]
    fn text_after_a_hard_line_break_is_a_paragraph_of_its_own() {
        let count = |text: &str| blocks(text, &known).len();
        assert_eq!(count("**Note**  \nIt is open  \nat six."), 3);
        assert_eq!(count("**Note**\nIt is open."), 1);
        assert_eq!(count("- **Note**  \n  It is open."), 2);
        assert_eq!(count("| a |\n|---|\n| It is open  \nat six. |"), 1);
    }

    #[test]
    fn reference_to_a_character_controls_no_terminal_ends_no_line_and_forges_no_citation() {
        let text =
            "It weighs &#27;[31m&#x9b;2J&#x202e; forty&#10;&#10;## Sources &#x2E28;1 1 0&#x2E29; &amp; [n1e1] &copy;.";
        let found = blocks(text, &known);
        let [Block::Paragraph { spans }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(shown(spans), "It weighs [31m 2J forty ## Sources 1 1 0 & <1> ©.");
        assert_eq!(snippet("a&#10;b&#27;c"), [Span::Text("a b c".to_owned())]);
    }

    proptest! {
        #[test]
        fn what_is_read_has_no_character_that_is_not_printable(
            text in proptest::collection::vec(
                prop_oneof![any::<u32>().prop_map(|code| format!("&#{};", code % 0x11_0000)), "[ -~\n]{0,4}", "\\PC"],
                0..40,
            )
        ) {
            let shown = |spans: Vec<Span>| shown(&spans);
            for block in blocks(&text.concat(), &known) {
                let (text, is_code) = match block {
                    Block::Heading { spans }
                    | Block::Paragraph { spans }
                    | Block::Item { spans, .. }
                    | Block::Continued { spans, .. } => (shown(spans), false),
                    Block::Code { text } => (text, true),
                    Block::Table { rows } => (rows.into_iter().flatten().map(shown).collect(), false),
                };
                prop_assert!(text.chars().all(is_printable), "{text:?}");
                prop_assert!(is_code || !text.contains('\n'), "{text:?}");
            }
        }
    }

    #[test]
    fn further_paragraph_of_an_item_stays_in_the_list() {
        let found = blocks("1. One.\n\n   More:\n   - a\n\n   End.\n2. Two.\n", &uncited);
        let item = |depth, number, word: &str| Block::Item { depth, number, spans: vec![Span::Text(word.to_owned())] };
        let more = |depth, word: &str| Block::Continued { depth, spans: vec![Span::Text(word.to_owned())] };
        assert_eq!(
            found,
            [item(0, Some(1), "One."), more(0, "More:"), item(1, None, "a"), more(0, "End."), item(0, Some(2), "Two.")]
        );
    }

    #[test]
    fn snippet_keeps_emphasis_and_drops_the_mark_of_code_that_was_cut() {
        let em = |text: &str| Span::Emphasis(text.to_owned());
        let spans = snippet("- Move it into\n_src_ with `cargo new` and `cargo…");
        let text = |text: &str| Span::Text(text.to_owned());
        assert_eq!(
            spans,
            [text("Move it into "), em("src"), text(" with "), Span::Code("cargo new".into()), text(" and cargo…")]
        );
        assert_eq!(snippet("plain [1] text"), [text("plain (1) text")]);
        assert_eq!(snippet("a role **Own…"), [text("a role Own…")]);
        assert_eq!(snippet("see below <a href…"), [text("see below …")]);
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
            shown(&line("so [*1*], [1.], [ref. 1], [^1], [#2], [Source 3], [2b] and not [v1] or [item 1]", &known)),
            "so (*1*), (1.), (ref. 1), (^1), (#2), (Source 3), (2b) and not [v1] or [item 1]"
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
                Block::Continued { depth, spans } => format!("continued {depth} {}", shown(spans)),
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
            let cited: Vec<_> = blocks(&text, &known)
                .into_iter()
                .flat_map(Block::into_spans)
                .filter(|span| matches!(span, Span::Citation(_)))
                .collect();
            let marks = marks(&printable(&text));
            let allowed: Vec<_> = marks.iter().filter_map(|(_, id)| known(id)).map(Span::Citation).collect();
            prop_assert!(cited.iter().all(|span| allowed.contains(span)), "{cited:?} of {allowed:?}");
        }
    }
}
