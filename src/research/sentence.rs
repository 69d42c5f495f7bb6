//! Splits passages into sentences that can be quoted verbatim.

use std::ops::{Range, RangeInclusive};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::base::line::{has_fields, is_field};
use crate::base::word::count_words;

/// Shortest sentence worth quoting, in words. Fragments below it are labels and list stubs such as `See also`.
const MIN_WORDS: usize = 4;

/// Longest sentence that is quoted, in bytes. Text without a full stop for longer is a dump, not prose.
const MAX_BYTES: usize = 600;

/// Longest table row that is one sentence, in bytes. A longer one has cells of several sentences.
const MAX_ROW_BYTES: usize = 400;

/// Closing marks that belong to the sentence before them.
const CLOSING: [char; 6] = ['*', '_', '"', '”', ')', '~'];

/// The same in scripts without spaces between sentences.
const WIDE_CLOSING: [char; 8] = ['」', '』', '）', '”', '’', '》', '〉', '】'];

/// Abbreviations whose dot does not end a sentence.
const ABBREVIATIONS: [&str; 21] = [
    "e.g.", "i.e.", "etc.", "cf.", "vs.", "dr.", "mr.", "mrs.", "ms.", "fig.", "no.", "approx.", "al.", "st.", "avg.",
    "dept.", "est.", "incl.", "max.", "min.", "prof.",
];

/// A sentence and its position in a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Byte range in the passage.
    pub range: Range<usize>,
    /// The sentence without Markdown: links reduced to their text, emphasis removed.
    pub plain: String,
}

/// Returns the sentences in the paragraphs, list items and table rows of a Markdown passage. Headings, code and
/// struck-out text are skipped.
pub fn sentences(passage: &str) -> Vec<Sentence> {
    worth_quoting(every_sentence(passage))
}

/// Returns all sentences, labels and fragments among them.
pub(crate) fn every_sentence(passage: &str) -> Vec<Sentence> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut blocks = Blocks::default();
    for (event, range) in Parser::new_ext(passage, options).into_offset_iter() {
        blocks.take(passage, event, range);
    }
    blocks.sentences(passage)
}

/// Returns the sentences of a web page. Its text was extracted from HTML and is not Markdown, so `*`, `_` and `<` are
/// literal. Headings are skipped; each list item and table row is a sentence of its own.
pub(crate) fn sentences_of_page(page: &str) -> Vec<Sentence> {
    worth_quoting(every_sentence_of_page(page))
}

/// Returns all sentences of a page, labels and fragments among them.
pub(crate) fn every_sentence_of_page(page: &str) -> Vec<Sentence> {
    let mut blocks = Blocks::default();
    let mut at = 0;
    for line in page.split_inclusive('\n') {
        let (from, text) = (at + line.len() - line.trim_start().len(), line.trim());
        at += line.len();
        let item = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
        let is_row = text.contains(" | ");
        if text.is_empty() || text.starts_with('#') || item.is_some() || is_row {
            blocks.close();
        }
        if !text.is_empty() && !text.starts_with('#') {
            let item = item.unwrap_or(text);
            let from = from + text.len() - item.len();
            if !blocks.open.is_empty() {
                blocks.push(from..from, " ");
            }
            blocks.push(from..from + item.len(), item);
        }
        if is_row {
            blocks.is_row = true;
            blocks.close();
            blocks.is_row = false;
        }
    }
    blocks.sentences(page)
}

/// Returns the place of a sentence that reads as `claim`, or of two consecutive ones that do.
pub(crate) fn place_of(sentences: &[Sentence], claim: &str) -> Option<RangeInclusive<usize>> {
    let is_pair = |pair: &[Sentence]| {
        let rest = claim.strip_prefix(pair[0].plain.as_str()).and_then(|rest| rest.strip_prefix(' '));
        rest == Some(pair[1].plain.as_str())
    };
    let one = sentences.iter().position(|own| own.plain == claim).map(|at| at..=at);
    one.or_else(|| sentences.windows(2).position(is_pair).map(|at| at..=at + 1))
}

fn worth_quoting(mut sentences: Vec<Sentence>) -> Vec<Sentence> {
    sentences.retain(|sentence| {
        sentence.range.len() <= MAX_BYTES
            && count_words(&sentence.plain) >= MIN_WORDS
            // `The options are:` says nothing without the list that follows.
            && !sentence.plain.ends_with(':')
    });
    sentences
}

/// Inline text of a block: plain text with the byte range it came from.
type InlineText = Vec<(Range<usize>, String)>;

/// A block of text.
struct TextBlock {
    text: InlineText,
    is_row: bool,
}

impl TextBlock {
    fn sentences(&self, passage: &str) -> Vec<Sentence> {
        let length: usize = self.text.iter().map(|(_, text)| text.len()).sum();
        // A date in the last cell says nothing without the others.
        split(passage, &self.text, self.is_row && length <= MAX_ROW_BYTES)
    }
}

#[derive(Default)]
struct Blocks {
    done: Vec<TextBlock>,
    open: InlineText,
    /// Whether the open text is a table row.
    is_row: bool,
    /// Nesting depth inside headings, code and other elements whose text is not quoted.
    muted: usize,
    /// Nesting depth inside bold text.
    strong: usize,
    /// Where the current line begins in the open text, and whether it has text that is not bold.
    line: usize,
    has_plain: bool,
    /// Whether the open text consists of fields. Each is a sentence.
    has_fields: bool,
}

impl Blocks {
    /// Splits all blocks.
    fn sentences(mut self, passage: &str) -> Vec<Sentence> {
        self.close();
        self.done.iter().flat_map(|block| block.sentences(passage)).collect()
    }

    fn take(&mut self, passage: &str, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(
                Tag::Heading { .. }
                | Tag::CodeBlock(_)
                | Tag::HtmlBlock
                | Tag::Image { .. }
                | Tag::Strikethrough
                | Tag::TableHead,
            ) => {
                // These two occur inside a paragraph, which continues after them.
                if !matches!(event, Event::Start(Tag::Image { .. } | Tag::Strikethrough)) {
                    self.close();
                }
                self.muted += 1;
            }
            Event::End(
                TagEnd::Heading(_)
                | TagEnd::CodeBlock
                | TagEnd::HtmlBlock
                | TagEnd::Image
                | TagEnd::Strikethrough
                | TagEnd::TableHead,
            ) => {
                self.muted = self.muted.saturating_sub(1);
            }
            Event::Start(Tag::Strong) => self.strong += 1,
            Event::End(TagEnd::Strong) => self.strong = self.strong.saturating_sub(1),
            Event::Start(Tag::Paragraph | Tag::Item | Tag::List(_) | Tag::TableRow)
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableRow) => {
                self.close();
                self.is_row = matches!(event, Event::Start(Tag::TableRow));
                self.has_fields = matches!(event, Event::Start(Tag::Paragraph)) && has_fields(&passage[range]);
            }
            Event::End(TagEnd::TableCell) => self.push(range.end..range.end, " — "),
            Event::Text(text) => self.push(range, &text),
            Event::Code(text) => self.push(range, &format!("`{text}`")),
            Event::HardBreak if self.ends_sentence() || !self.has_plain => self.close_line(),
            Event::SoftBreak | Event::HardBreak if self.has_fields && begins_field(&passage[range.end..]) => {
                self.close();
            }
            Event::SoftBreak | Event::HardBreak => {
                self.push(range, " ");
                (self.line, self.has_plain) = (self.open.len(), false);
            }
            _ => {}
        }
    }

    /// Ends the text at a hard line break. A label on the last line, `**Note**`, does not continue the text above it.
    fn close_line(&mut self) {
        let label = if self.has_plain { Vec::new() } else { self.open.split_off(self.line) };
        self.close();
        self.open = label;
        self.close();
    }

    fn ends_sentence(&self) -> bool {
        let last = self.open.last().map_or("", |(_, text)| text.trim_end());
        last.ends_with(|letter| is_end(letter) || letter == ':')
    }

    fn push(&mut self, range: Range<usize>, text: &str) {
        if self.muted == 0 {
            self.has_plain |= self.strong == 0;
            self.open.push((range, text.to_owned()));
        }
    }

    fn close(&mut self) {
        (self.line, self.has_plain) = (0, false);
        if !self.open.is_empty() {
            self.done.push(TextBlock { text: std::mem::take(&mut self.open), is_row: self.is_row });
        }
    }
}

fn begins_field(text: &str) -> bool {
    text.lines().next().is_some_and(is_field)
}

/// Returns whether a text is too short to say anything: `Note`.
pub(crate) fn is_label(text: &str) -> bool {
    count_words(text) < MIN_WORDS && !text.trim_end().ends_with(is_end)
}

/// Splits a block into sentences, unless it is to stay whole, and widens each range to include the markup around it.
fn split(passage: &str, block: &InlineText, is_whole: bool) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let (mut plain, mut start) = (String::new(), None);
    let block_end = block.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    for (range, text) in block {
        // A text with escapes or entities differs from the passage, so its offsets mean nothing there: it is not split.
        // Nor is code, in which a dot ends no sentence.
        let is_verbatim = passage.get(range.clone()) == Some(text.as_str()) && !text.starts_with('`');
        let mut done = 0;
        if is_verbatim && !is_whole {
            for (at, _) in text.match_indices(is_end) {
                let mut end = at + text[at..].chars().next().map_or(1, char::len_utf8);
                let is_wide = text[at..].starts_with(is_wide_end);
                if is_wide {
                    end += text[end..].len() - text[end..].trim_start_matches(WIDE_CLOSING).len();
                }
                // In the passage, since the marks that close emphasis are not part of the text.
                let after = passage[range.start + end..].trim_start_matches(CLOSING);
                let ends_word = after.chars().next().is_none_or(char::is_whitespace);
                // Only an escape cuts a word: `*B*.` ends a sentence.
                let is_cut = done == 0 && passage[..range.start].ends_with('\\');
                let before = if is_cut { plain.as_str() } else { "" };
                if is_wide || (ends_word && !is_abbreviated(before, &text[done..at], &text[at..end])) {
                    plain.push_str(&text[done..end]);
                    let from = start.take().unwrap_or(range.start + done);
                    push_sentence(&mut sentences, passage, from..range.start + end, &plain);
                    plain.clear();
                    // A closing quotation mark would otherwise open the next sentence.
                    let rest = text[end..].trim_start_matches(CLOSING).trim_start();
                    done = text.len() - rest.len();
                }
            }
        }
        if start.is_none() && !text[done..].trim().is_empty() {
            // Marks before white space close what comes before them.
            let space = text[done..].len() - text[done..].trim_start().len();
            start = Some(range.start + if is_verbatim { done + space } else { 0 });
        }
        plain.push_str(&text[done..]);
    }
    if let Some(from) = start {
        push_sentence(&mut sentences, passage, from..block_end, &plain);
    }
    sentences
}

fn push_sentence(sentences: &mut Vec<Sentence>, passage: &str, range: Range<usize>, plain: &str) {
    let range = balanced(passage, range);
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    // The separator after the last cell of a table row.
    let plain = plain.trim_end_matches([' ', '—']).to_owned();
    sentences.push(Sentence { range, plain });
}

/// Widens a range over adjacent emphasis and quotation marks, so that a quote does not start inside bold text.
fn balanced(passage: &str, range: Range<usize>) -> Range<usize> {
    let before =
        passage[..range.start].len() - passage[..range.start].trim_end_matches(['*', '_', '[', '"', '“']).len();
    let start = range.start - before;
    let text = &passage[start..range.end];
    let end = start + text.trim_end().len();
    let tail = &passage[end..];
    let closing = tail.len() - tail.trim_start_matches(CLOSING).len();
    start..end + closing
}

/// Returns whether a character ends sentences in any script.
pub(crate) fn is_end(letter: char) -> bool {
    matches!(letter, '.' | '!' | '?' | '؟' | '۔' | '।' | '॥' | '።' | '။' | '។') || is_wide_end(letter)
}

/// Returns whether a character ends a sentence although no space follows it.
pub(crate) fn is_wide_end(letter: char) -> bool {
    matches!(letter, '。' | '！' | '？' | '｡')
}

/// Returns whether the word before a mark is an initial or an abbreviation. An escape may have cut it into two parts:
/// `(N\. California)`.
fn is_abbreviated(first: &str, second: &str, mark: &str) -> bool {
    let end = |text: &str| text.rsplit(char::is_whitespace).next().unwrap_or_default().to_lowercase();
    let word = if second.contains(char::is_whitespace) { end(second) } else { end(first) + &end(second) };
    let word = word.trim_start_matches(['(', '[']);
    let is_initial = word.chars().count() == 1 && word.ends_with(char::is_alphabetic);
    is_initial || ABBREVIATIONS.contains(&format!("{word}{mark}").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hard_line_break_ends_a_sentence_or_a_label_and_an_initial_none() {
        let plain = |text: &str| every_sentence(text).into_iter().map(|own| own.plain).collect::<Vec<_>>();
        assert_eq!(plain("**Note**  \nIt is open\nat six."), ["Note", "It is open at six."]);
        assert_eq!(plain("Visitors  \nmay park by **hand**  \nhere."), ["Visitors may park by hand here."]);
        assert_eq!(plain("1. Open the *lid*\n   **Note**  \n   It is old."), ["Open the lid", "Note", "It is old."]);
        for text in ["It costs more (N. Virginia) than here.", "It costs more \\(N\\. Virginia\\) than here."] {
            assert_eq!(plain(text), ["It costs more (N. Virginia) than here."], "{text}");
        }
        let plans = "Guests get plan *B*. Members get plan *A*. Is it heated? **No**. It is cold.";
        assert_eq!(plain(plans).len(), 5);
        assert_eq!(plain("| a | b |\n|-|-|\n| It opens. See X. | May 3 |\n"), ["It opens. See X. — May 3"]);
    }

    #[test]
    fn each_field_of_a_note_is_a_sentence() {
        let note = "**Firm:** Mill & Co. It is old.\n**Last contact:** in May,\nby Ann  \nState: open\n\nIt is so.\nState: it is open\n";
        let plain: Vec<_> = every_sentence(note).into_iter().map(|own| own.plain).collect();
        assert_eq!(plain[..3], ["Firm: Mill & Co.", "It is old.", "Last contact: in May, by Ann"]);
        assert_eq!(plain[3..], ["State: open", "It is so.", "State: it is open"]);
    }

    #[test]
    fn markdown_signs_in_a_web_page_are_literal() {
        let page = "# Fairs and all that\n\nThe fair is <not held in July> in Quimby.\nIt costs *5* euros if a_b <b and c> d.\n\n\
                    - Bring your ~~old~~ boots with you.\n- Tickets are 10_000 lei each\n\n\
                    Metal | Euros a metre\nCopper gutters of Quimby | 12\nZinc gutters of Quimby | 15";
        let said: Vec<_> = sentences_of_page(page).into_iter().map(|sentence| sentence.plain).collect();
        assert_eq!(
            said,
            [
                "The fair is <not held in July> in Quimby.",
                "It costs *5* euros if a_b <b and c> d.",
                "Bring your ~~old~~ boots with you.",
                "Tickets are 10_000 lei each",
                "Metal | Euros a metre",
                "Copper gutters of Quimby | 12",
                "Zinc gutters of Quimby | 15"
            ]
        );
        for sentence in sentences_of_page(page) {
            assert_eq!(&page[sentence.range], sentence.plain);
        }
    }

    #[test]
    fn sentences_without_spaces_end_with_their_closing_quote() {
        let text = "他说：“今天是节日。”然后大家都回家了。「明日は休みの日だ。」と先生は言った。";
        let said: Vec<_> = every_sentence(text).into_iter().map(|sentence| text[sentence.range].to_owned()).collect();
        assert_eq!(said.concat(), text);
        assert_eq!(said[0], "他说：“今天是节日。”");
    }

    fn plain(passage: &str) -> Vec<String> {
        sentences(passage).into_iter().map(|sentence| sentence.plain).collect()
    }

    #[test]
    fn paragraphs_lists_and_rows_are_split_and_headings_and_code_are_not_quoted() {
        let passage = "# A heading of five words\n\nThe first one is here. The second, e.g. this one, too.\n\n\
            ```sh\ndr index is not a sentence here\n```\n\n- an item of the list\n\n| a | b |\n|---|---|\n| the cell says | more than that |\n";
        assert_eq!(
            plain(passage),
            [
                "The first one is here.",
                "The second, e.g. this one, too.",
                "an item of the list",
                "the cell says — more than that",
            ]
        );
    }

    #[test]
    fn sentence_is_read_plain_and_quoted_verbatim() {
        let passage = "Before that. **Money** has a [hard\nlimit](budget.md) in `dr`. After all of that.";
        let found = sentences(passage);
        assert_eq!(found[0].plain, "Money has a hard limit in `dr`.");
        assert_eq!(&passage[found[0].range.clone()], "**Money** has a [hard\nlimit](budget.md) in `dr`.");
    }

    #[test]
    fn sentence_ends_at_the_end_of_a_line_and_inside_emphasis_too() {
        assert_eq!(
            plain(
                "The first one ends here.\nThe second one goes\non. **The third one is bold.** And the last.  \nA hard break came."
            ),
            ["The first one ends here.", "The second one goes on.", "The third one is bold.", "A hard break came."]
        );
        assert!(plain("What follows is a list:\n\n- one\n").is_empty());
    }

    #[test]
    fn sentence_ends_with_its_closing_quotation_mark() {
        let text = "It says “keep the lock.” Be warned of that. (It is held.) The key is lost.";
        let said: Vec<_> = every_sentence(text).into_iter().map(|sentence| text[sentence.range].to_owned()).collect();
        assert_eq!(said, ["It says “keep the lock.”", "Be warned of that.", "(It is held.)", "The key is lost."]);
    }

    #[test]
    fn sentence_after_bold_text_begins_with_its_first_word() {
        let text = r"**One is here\.** Two is *there*. Three.";
        let said: Vec<_> = every_sentence(text).into_iter().map(|sentence| text[sentence.range].to_owned()).collect();
        assert_eq!(said, [r"**One is here\.**", "Two is *there*.", "Three."]);
    }

    #[test]
    fn code_is_not_split() {
        assert_eq!(
            plain("It says `no disk. Not set up. Stop.` and waits. So it is for now."),
            ["It says `no disk. Not set up. Stop.` and waits.", "So it is for now."]
        );
    }

    #[test]
    fn struck_out_text_is_not_quoted() {
        assert_eq!(plain("The warranty covers ~~is not~~ all of it."), ["The warranty covers all of it."]);
    }

    #[test]
    fn version_numbers_and_initials_end_no_sentence() {
        assert_eq!(plain("Since 2026.4.10 J. Doe keeps the lock."), ["Since 2026.4.10 J. Doe keeps the lock."]);
    }

    proptest! {
        #[test]
        fn sentences_of_any_passage_are_verbatim_stretches_of_it(passage in "([a-zA-Z*_`\\[\\]().!? \n|#>-]|é|。|\\PC){0,400}") {
            for sentence in sentences(&passage) {
                prop_assert!(passage.get(sentence.range.clone()).is_some());
            }
        }
    }
}
