//! Splits a document into units: parts that its author wrote to be read together.
//!
//! A unit is a paragraph, a list with its lead-in, a table with its header, a code block with the sentence before it,
//! or a callout. Units of a section are in the order of the document and may overlap: a sentence before a code block
//! belongs to its paragraph as well.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::lead_in::ends_open;
use super::sentence::{Sentence, every_sentence, every_sentence_of_page, is_end};
use crate::base::html_table::{html_rows, html_tables, is_html_table};
use crate::base::line::is_directive;
use crate::base::word::count_words;
use crate::kb::document::HeadingText;

/// Longest paragraph that becomes the lead-in of a block as a whole, in bytes. A longer one contributes only its last
/// sentence.
const MAX_LEAD_IN: usize = 400;

/// Maximum number of words of a paragraph that serves as the heading of what follows, without a colon:
/// `**Requirements**`.
pub(super) const MAX_LABEL_WORDS: usize = 8;

/// Maximum length of an enumeration in paragraphs, in bytes: about a screen.
const MAX_COUNTED: usize = 2_000;

/// Openings of the paragraphs of an enumeration: of the first, of the second, and of the rest.
const COUNTING: [&[&str]; 3] = [
    &["first", "firstly"],
    &["second", "secondly"],
    &["third", "thirdly", "fourth", "fifth", "sixth", "seventh", "last", "lastly", "final", "finally"],
];

/// Words of a sentence that says how many points follow it.
const COUNTS: [&str; 7] = ["two", "three", "four", "five", "six", "seven", "several"];

/// Words of a sentence that announces the list or table after it.
const ANNOUNCING: [&str; 2] = ["following", "follows"];

/// Minimum number of words of a message in a paragraph of its own.
const LEAST_MESSAGE: usize = 3;

/// Maximum number of words of a cell that names the subject of its row. A longer one is a statement.
const MAX_NAME_WORDS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitKind {
    Paragraph,
    List { is_ordered: bool },
    Table,
    Code,
    Callout,
}

/// A unit of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) kind: UnitKind,
    /// Byte range in the document.
    pub(crate) range: Range<usize>,
    /// Items of a list or rows of a table.
    pub(crate) pieces: Vec<Range<usize>>,
    /// Headings above it, outermost first.
    pub(crate) headings: Vec<String>,
    /// Number of its section: units between the same two headings share one.
    pub(crate) section: usize,
    /// Its sentences, list items and table rows, with ranges in the document.
    pub(crate) sentences: Vec<Sentence>,
}

impl Unit {
    /// Returns the part that must be shown with any of the pieces: the lead-in of a list, or lead-in and header of a
    /// table. Without pieces it is the whole unit.
    pub(crate) fn head(&self) -> Range<usize> {
        self.range.start..self.pieces.first().map_or(self.range.end, |piece| piece.start)
    }

    /// Returns the last sentence before its pieces, which introduces them; without pieces, its last sentence.
    pub(crate) fn lead_in(&self) -> Option<&Sentence> {
        let end = self.head().end;
        self.sentences.iter().take_while(|own| own.range.start < end).last()
    }
}

/// Returns the units of a Markdown document in order. Headings, front matter, rules, and HTML other than tables are
/// not units.
pub(crate) fn units(document: &str) -> Vec<Unit> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    let mut collector = BlockCollector { document, html_tables: html_tables(document), ..BlockCollector::default() };
    for (event, range) in Parser::new_ext(document, options).into_offset_iter() {
        collector.take(&event, range);
    }
    for unit in collector.units.iter_mut().filter(|unit| unit.kind == UnitKind::Table) {
        let html = Some(&document[unit.range.clone()]).filter(|text| is_html_table(text));
        // The first is its header.
        let rows = html.map(html_rows).unwrap_or_default().into_iter().skip(1);
        unit.pieces.extend(rows.map(|row| unit.range.start + row.range.start..unit.range.start + row.range.end));
    }
    collector.units.retain(|unit| match unit.kind {
        UnitKind::Code => has_code(&document[unit.range.clone()]),
        UnitKind::Paragraph => !document[unit.range.clone()].lines().all(|line| is_directive(line.trim())),
        _ => true,
    });
    let units = below_bold_questions(document, collector.units);
    with_counted(document, &with_lead_ins(document, units))
        .into_iter()
        .map(|unit| Unit { sentences: sentences_in(document, &unit.range, sentences_of), ..unit })
        .collect()
}

/// Returns the sentences of a unit. Each row of a table in HTML is one.
pub(crate) fn sentences_of(unit: &str) -> Vec<Sentence> {
    let (mut sentences, mut from) = (Vec::new(), 0);
    let moved = |at: usize, own: Sentence| Sentence { range: at + own.range.start..at + own.range.end, ..own };
    for table in html_tables(unit) {
        sentences.extend(every_sentence(&unit[from..table.start]).into_iter().map(|own| moved(from, own)));
        let rows = html_rows(&unit[table.clone()]).into_iter();
        sentences.extend(rows.map(|row| moved(table.start, Sentence { plain: row.plain(), range: row.range })));
        from = table.end;
    }
    sentences.extend(every_sentence(&unit[from..]).into_iter().map(|own| moved(from, own)));
    sentences
}

/// Returns the part of a unit that says what it is about: for a table, its header, the names in its first cells and the
/// text around it. Other cells have little to do with each other.
pub(super) fn compared_by(unit: &str) -> Cow<'_, str> {
    let is_row = |line: &&str| line.trim_start().starts_with('|');
    let is_rule = |line: &str| line.contains("--") && line.chars().all(|letter| "|-: \t".contains(letter));
    let Some(header) = unit.lines().find(is_row).filter(|_| unit.lines().any(is_rule)) else { return unit.into() };
    let is_name = |cell: &&str| count_words(cell) <= MAX_NAME_WORDS;
    let part = |line| match line {
        row if is_row(&row) && row != header => row.split('|').nth(1).filter(is_name).unwrap_or_default(),
        line => line,
    };
    unit.lines().map(part).collect::<Vec<_>>().join("\n").into()
}

/// Returns whether a code block has lines other than its fence and directives, which include code from another file.
fn has_code(block: &str) -> bool {
    let is_fence = |line: &str| line.starts_with("```") || line.starts_with("~~~");
    block.lines().map(str::trim).any(|line| !line.is_empty() && !is_fence(line) && !is_directive(line))
}

/// Returns the units of a web page, whose text was extracted from HTML: blank lines end a unit.
pub(crate) fn units_of_page(page: &str) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let (mut headings, mut section, mut at, mut is_open) = (Vec::new(), 0, 0, false);
    for line in page.split_inclusive('\n') {
        let range = at..at + line.trim_end().len();
        at += line.len();
        let text = line.trim();
        if text.is_empty() {
            is_open = false;
            continue;
        }
        if let Some(title) = text.strip_prefix('#') {
            headings = vec![title.trim_start_matches('#').trim().to_owned()];
            (section, is_open) = (section + 1, false);
            continue;
        }
        let kind = match () {
            () if text.starts_with("- ") || text.starts_with("* ") => UnitKind::List { is_ordered: false },
            () if text.contains(" | ") => UnitKind::Table,
            () => UnitKind::Paragraph,
        };
        match units.last_mut().filter(|last| is_open && last.kind == kind) {
            Some(last) => {
                last.range.end = range.end;
                last.pieces.push(range);
            }
            None => units.push(Unit {
                kind,
                // The first row of a table is its header.
                pieces: if kind == UnitKind::Table { Vec::new() } else { vec![range.clone()] },
                range,
                headings: headings.clone(),
                section,
                sentences: Vec::new(),
            }),
        }
        is_open = true;
    }
    for unit in &mut units {
        // Lines of a paragraph are not items.
        if unit.kind == UnitKind::Paragraph {
            unit.pieces.clear();
        }
    }
    with_lead_ins(page, units)
        .into_iter()
        .map(|unit| Unit { sentences: sentences_in(page, &unit.range, every_sentence_of_page), ..unit })
        .collect()
}

fn sentences_in(document: &str, range: &Range<usize>, split: fn(&str) -> Vec<Sentence>) -> Vec<Sentence> {
    let moved = |Sentence { range: own, plain }: Sentence| Sentence {
        range: own.start + range.start..own.end + range.start,
        plain,
    };
    split(&document[range.clone()]).into_iter().map(moved).collect()
}

/// Collects the blocks of the top level.
#[derive(Default)]
struct BlockCollector<'a> {
    document: &'a str,
    html_tables: Vec<Range<usize>>,
    /// End of the last table in HTML. The blocks before it are inside its cells.
    table_end: usize,
    units: Vec<Unit>,
    depth: usize,
    headings: Vec<(HeadingLevel, HeadingText)>,
    section: usize,
    is_heading: bool,
}

impl BlockCollector<'_> {
    fn take(&mut self, event: &Event<'_>, range: Range<usize>) {
        // The end of a block has the range of its start, so the depth stays right.
        if range.start < self.table_end {
            self.take_below_table(range.end);
            return;
        }
        if self.depth == 0
            && matches!(event, Event::Start(Tag::HtmlBlock))
            && let Some(table) = self.html_table_at(&range)
        {
            self.table_end = table.end;
            let unit = self.unit(UnitKind::Table, table);
            self.units.push(unit);
            self.take_below_table(range.end);
            return;
        }
        if let Some((_, heading)) = self.headings.last_mut().filter(|_| self.is_heading) {
            heading.take(event);
        }
        match event {
            Event::Start(tag) => {
                match (self.depth, tag) {
                    (0, Tag::Heading { level, .. }) => {
                        self.headings.retain(|(above, _)| above < level);
                        self.headings.push((*level, HeadingText::default()));
                        self.section += 1;
                        self.is_heading = true;
                    }
                    (0, tag) => {
                        let unit = kind_of(tag).map(|kind| self.unit(kind, range));
                        self.units.extend(unit);
                    }
                    // Nested items belong to the piece they stand in.
                    (1, Tag::Item | Tag::TableRow) => {
                        if let Some(unit) = self.units.last_mut() {
                            unit.pieces.push(range);
                        }
                    }
                    _ => {}
                }
                self.depth += 1;
            }
            Event::End(tag) => {
                self.depth = self.depth.saturating_sub(1);
                self.is_heading &= !matches!(tag, TagEnd::Heading(_));
            }
            _ => {}
        }
    }

    /// Takes the text between the last table and the end of a block that began in it or with it: Markdown ends a block of
    /// HTML at a blank line.
    fn take_below_table(&mut self, end: usize) {
        let Some(below) = self.document.get(self.table_end..end).filter(|below| !below.is_empty()) else { return };
        let (text, start) = (below.trim(), self.table_end + below.len() - below.trim_start().len());
        self.table_end = end;
        if !text.is_empty() && !text.starts_with('<') {
            let unit = self.unit(UnitKind::Paragraph, start..start + text.len());
            self.units.push(unit);
        }
    }

    /// Returns the range of the table in HTML that begins with a block. In Markdown a blank line ends the block, and
    /// the table goes on.
    fn html_table_at(&self, block: &Range<usize>) -> Option<Range<usize>> {
        let begins_here = |table: &&Range<usize>| {
            table.contains(&block.start) && self.document[table.start..block.start].trim().is_empty()
        };
        let end = self.html_tables.iter().find(begins_here).map_or(block.end, |table| table.end);
        is_html_table(&self.document[block.start..end]).then_some(block.start..end)
    }

    fn unit(&mut self, kind: UnitKind, range: Range<usize>) -> Unit {
        Unit {
            kind,
            range,
            pieces: Vec::new(),
            headings: self.headings.iter().map(|(_, heading)| heading.as_str().to_owned()).collect(),
            section: self.section,
            sentences: Vec::new(),
        }
    }
}

fn kind_of(tag: &Tag<'_>) -> Option<UnitKind> {
    match tag {
        Tag::Paragraph => Some(UnitKind::Paragraph),
        Tag::List(first) => Some(UnitKind::List { is_ordered: first.is_some() }),
        Tag::Table(_) => Some(UnitKind::Table),
        Tag::CodeBlock(_) => Some(UnitKind::Code),
        Tag::BlockQuote(_) => Some(UnitKind::Callout),
        _ => None,
    }
}

/// Returns the items of a list at any depth, each without its nested items and with the index of its parent.
pub(crate) fn items(document: &str, list: &Unit) -> Vec<(Option<usize>, Range<usize>)> {
    let mut items: Vec<(Option<usize>, Range<usize>)> = Vec::new();
    let mut open = Vec::new();
    let start = list.head().end;
    for (event, range) in
        Parser::new_ext(&document[start..list.range.end], Options::ENABLE_TASKLISTS).into_offset_iter()
    {
        match event {
            Event::Start(Tag::Item) => {
                // With its indentation, which shows a reader the nesting.
                let indent = document[..start + range.start].len()
                    - document[..start + range.start].trim_end_matches([' ', '\t']).len();
                items.push((open.last().copied(), start + range.start - indent..start + range.end));
                open.push(items.len() - 1);
            }
            Event::End(TagEnd::Item) => drop(open.pop()),
            _ => {}
        }
    }
    for at in 0..items.len() {
        let nested = items.get(at + 1).filter(|next| next.0 == Some(at)).map(|next| next.1.start);
        let own = &mut items[at].1;
        own.end = nested.unwrap_or(own.end);
        own.end = own.start + document[own.clone()].trim_end().len();
    }
    items
}

/// Turns the paragraphs that are a question in bold into headings of the units below them: "**Q: May I ask?**". One
/// without an answer stays a unit.
fn below_bold_questions(document: &str, units: Vec<Unit>) -> Vec<Unit> {
    let question = |unit: &Unit| {
        let is_paragraph = unit.kind == UnitKind::Paragraph;
        bold_question(&document[unit.range.clone()]).filter(|_| is_paragraph).map(str::to_owned)
    };
    let (mut asked, mut last, mut section) = (None, None, 0);
    let mut answers = Vec::with_capacity(units.len());
    let mut units = units.into_iter().peekable();
    while let Some(mut unit) = units.next() {
        if last.replace(unit.section) != Some(unit.section) {
            (asked, section) = (None, section + 1);
        }
        if let Some(own) = question(&unit) {
            let is_answered = units.peek().is_some_and(|next| next.section == unit.section && question(next).is_none());
            (asked, section) = (Some(own).filter(|_| is_answered), section + 1);
            if is_answered {
                continue;
            }
        }
        unit.headings.extend(asked.clone());
        unit.section = section;
        answers.push(unit);
    }
    answers
}

/// Returns the question in bold that a position of a Markdown document is below.
pub(crate) fn bold_question_above(document: &str, at: usize) -> Option<String> {
    // Few documents have one, and finding the units takes a parse of the whole text.
    let above = document.get(..at).filter(|above| above.contains("?**"))?;
    let unit = units(document).into_iter().find(|unit| unit.range.contains(&at))?;
    unit.headings.into_iter().next_back().filter(|heading| above.contains(&format!("{heading}**")))
}

/// Returns the question that a text in bold consists of.
fn bold_question(text: &str) -> Option<&str> {
    let question = text.trim().strip_prefix("**")?.strip_suffix("**")?.trim();
    let question = question.strip_prefix("Q:").unwrap_or(question).trim();
    Some(question).filter(|question| question.ends_with('?') && !question.contains("**"))
}

/// Extends lists, tables, callouts and code to the paragraph that introduces them, which is then not a separate unit
/// unless it is long, and lists to the code that their last item announces: authors forget to indent it.
fn with_lead_ins(document: &str, blocks: Vec<Unit>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for mut unit in blocks {
        // The parser counts the line break after a block as part of it.
        unit.range.end = unit.range.start + document[unit.range.clone()].trim_end().len();
        if let Some(list) = units.last_mut().filter(|last| announces_code(document, last, &unit)) {
            list.range.end = unit.range.end;
            if let Some(last) = list.pieces.last_mut() {
                last.end = unit.range.end;
            }
            continue;
        }
        let lead = units.last().filter(|last| last.kind == UnitKind::Paragraph && last.section == unit.section);
        match lead.and_then(|lead| lead_in(document, lead, &unit)) {
            Some((from, true)) => {
                units.pop();
                unit.range.start = from;
            }
            Some((from, false)) => unit.range.start = from,
            None => {}
        }
        units.push(unit);
    }
    units
}

/// Returns whether the last item of a list announces the code after it.
fn announces_code(document: &str, list: &Unit, code: &Unit) -> bool {
    let is_list = matches!(list.kind, UnitKind::List { .. }) && code.kind == UnitKind::Code;
    is_list && list.section == code.section && ends_open(&document[list.range.clone()])
}

/// Joins the paragraphs of an enumeration ("The first rule is …", "The second rule is …") with the paragraph that
/// introduces them: the author meant them as a list.
fn with_counted(document: &str, units: &[Unit]) -> Vec<Unit> {
    let mut joined: Vec<Unit> = Vec::with_capacity(units.len());
    let mut rest = units;
    while let [first, after @ ..] = rest {
        let others = counted_after(document, rest);
        let mut unit = first.clone();
        if let Some(last) = after[..others].last() {
            unit.kind = UnitKind::List { is_ordered: true };
            unit.pieces = rest[..=others].iter().map(|own| own.range.clone()).collect();
            unit.range.end = last.range.end;
            let introduces = |before: &mut Unit| {
                let text = &document[before.range.clone()];
                let says_count = text.split(|letter: char| !letter.is_alphabetic()).any(|word| COUNTS.contains(&word));
                follows(document, before, first)
                    && last.range.end - before.range.start <= MAX_COUNTED
                    && (says_count || ends_open(text))
            };
            if let Some(before) = joined.pop_if(introduces) {
                unit.range.start = before.range.start;
            }
        }
        joined.push(unit);
        rest = &after[others..];
    }
    joined
}

/// Returns how many paragraphs continue an enumeration after the first unit: 0 if that does not begin one, or if
/// together they are longer than a screen.
fn counted_after(document: &str, units: &[Unit]) -> usize {
    let Some(first) = units.first().filter(|first| opens(document, first, COUNTING[0])) else { return 0 };
    let counts_on = |(at, pair): &(usize, &[Unit])| {
        follows(document, &pair[0], &pair[1]) && opens(document, &pair[1], COUNTING[(at + 1).min(2)])
    };
    let others = units.windows(2).enumerate().take_while(counts_on).count();
    if units[others].range.end - first.range.start <= MAX_COUNTED { others } else { 0 }
}

/// Returns whether a unit follows a paragraph of the same section, with nothing between them.
fn follows(document: &str, before: &Unit, next: &Unit) -> bool {
    let between = document.get(before.range.end..next.range.start).unwrap_or_default();
    before.kind == UnitKind::Paragraph && before.section == next.section && between.trim().is_empty()
}

/// Returns whether a unit is a paragraph that begins with one of some words after "The", or before a comma or colon.
fn opens(document: &str, unit: &Unit, words: &[&str]) -> bool {
    let bare = |word: &str| word.trim_matches(['*', '_', ',', ':']).to_lowercase();
    let mut own = document[unit.range.clone()].split_whitespace();
    let first = own.next().unwrap_or_default();
    let word = match bare(first).as_str() {
        "the" => bare(own.next().unwrap_or_default()),
        word if first.ends_with([',', ':']) => word.to_owned(),
        _ => return false,
    };
    unit.kind == UnitKind::Paragraph && words.contains(&word.as_str())
}

/// Returns whether a sentence announces a list or table, without a colon: "The framework has the following parts."
fn announces(sentence: &str) -> bool {
    sentence.split(|letter: char| !letter.is_alphabetic()).any(|word| ANNOUNCING.contains(&word))
}

/// Returns whether a text is one code span and nothing else.
pub(crate) fn is_code(text: &str) -> bool {
    let text = text.trim().trim_end_matches(is_end);
    text.len() > 2 && text.starts_with('`') && text.ends_with('`') && text.matches('`').count() == 2
}

/// Returns where the lead-in of a block begins in the paragraph before it, and whether that is the whole paragraph.
fn lead_in(document: &str, paragraph: &Unit, unit: &Unit) -> Option<(usize, bool)> {
    let text = &document[paragraph.range.clone()];
    // A line in bold is a heading, however long, unless it is a sentence.
    let is_bold = text
        .strip_prefix("**")
        .and_then(|text| text.strip_suffix("**"))
        .is_some_and(|own| !own.contains("**") && !own.ends_with(is_end));
    let is_label = (is_bold || count_words(text) <= MAX_LABEL_WORDS) && !text.ends_with(is_end);
    let last = || {
        let mut sentences = sentences_in(document, &paragraph.range, every_sentence);
        // The sentence that announces a list may be followed by another about it.
        if let [.., before, last] = &sentences[..]
            && announces(&before.plain)
            && !announces(&last.plain)
        {
            sentences.pop();
        }
        sentences.pop()
    };
    let announces = || last().is_some_and(|last| announces(&last.plain));
    let asks = || last().is_some_and(|last| last.plain.ends_with('?'));
    let leads = match unit.kind {
        // A message above its explanation: not a bare name, nor a message above another one. Or the text that a sentence
        // with a colon announces.
        UnitKind::Paragraph => {
            let own = &document[unit.range.clone()];
            let is_message = is_code(text) && count_words(text) >= LEAST_MESSAGE && !is_code(own);
            let is_near = || document[paragraph.range.end..unit.range.start].trim().is_empty();
            is_message || (ends_open(text) && own.len() <= MAX_LEAD_IN && !ends_open(own) && is_near())
        }
        UnitKind::Code => true,
        UnitKind::Callout => is_label || ends_open(text),
        // "Which valves are not sold?" above those.
        UnitKind::List { .. } | UnitKind::Table => is_label || ends_open(text) || announces() || asks(),
    };
    match () {
        () if !leads => None,
        () if text.len() <= MAX_LEAD_IN => Some((paragraph.range.start, true)),
        () => Some((last()?.range.start, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(document: &str) -> Vec<String> {
        units(document).iter().map(|unit| format!("{:?}: {}", unit.kind, &document[unit.range.clone()])).collect()
    }

    #[test]
    fn lists_tables_and_code_keep_what_introduces_them() {
        let document = "---\ntitle: x\n---\n# Setup\n\nIntro paragraph of the page.\n\nSupported formats:\n\n- png\n- jpg\n\n\
            Run this. ```x```\n\n```sh\nmake\n```\n\n**Limits**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> Note: be careful.\n\nIt has the following. Ask for more.\n- bed\n\nIt is old. What is not sold?\n- lead\n\n`No bed is here.`\n\nMake one.\n";
        assert_eq!(
            shown(document),
            [
                "Paragraph: Intro paragraph of the page.",
                "List { is_ordered: false }: Supported formats:\n\n- png\n- jpg",
                "Code: Run this. ```x```\n\n```sh\nmake\n```",
                "Table: **Limits**\n\n| a | b |\n|---|---|\n| 1 | 2 |",
                "Callout: > Note: be careful.",
                "List { is_ordered: false }: It has the following. Ask for more.\n- bed",
                "List { is_ordered: false }: It is old. What is not sold?\n- lead",
                "Paragraph: `No bed is here.`\n\nMake one.",
            ]
        );
        let units = units(document);
        assert_eq!(units[1].pieces.len(), 2);
        assert_eq!(&document[units[3].head()], "**Limits**\n\n| a | b |\n|---|---|\n");
        assert!(units.iter().all(|unit| unit.headings == ["Setup"]));
    }

    #[test]
    fn paragraph_keeps_the_one_that_announces_it_and_is_none_if_it_only_includes_a_file() {
        let document = "# Order\n\n[!include[Mills](mills.md)]\n\nThe format is:\n\n*Order: 1*\n\nIt is new.\n";
        assert_eq!(shown(document), ["Paragraph: The format is:\n\n*Order: 1*", "Paragraph: It is new."]);
    }

    #[test]
    fn list_keeps_the_code_that_its_last_item_announces() {
        let document = "# Pump\n\n1. List the valves:\n\n```\nvalves\n```\n\n2. Close one.\n\n```\nclose\n```\n";
        let first = "List { is_ordered: true }: 1. List the valves:\n\n```\nvalves\n```";
        assert_eq!(shown(document), [first, "List { is_ordered: true }: 2. Close one.", "Code: ```\nclose\n```"]);
        let found = units(document);
        assert_eq!(&document[found[0].pieces[0].clone()], "1. List the valves:\n\n```\nvalves\n```");
    }

    #[test]
    fn list_that_is_announced_without_a_colon_keeps_what_announces_it() {
        let document =
            "# Pump\n\nVersion 2 has the following features.\n\n- a valve\n- a lamp\n\nIt is old.\n\n- a tank\n";
        let list = "List { is_ordered: false }: Version 2 has the following features.\n\n- a valve\n- a lamp";
        assert_eq!(shown(document), [list, "Paragraph: It is old.", "List { is_ordered: false }: - a tank"]);
    }

    #[test]
    fn paragraphs_that_count_what_they_say_are_one_unit_with_what_introduces_them() {
        let counted = "A pump has two rules.\n\nThe first rule is to open it.\n\nThe _second_ rule is to close it.";
        let document = format!("# Pump\n\nIt is old.\n\n{counted}\n\nIt is red.\n\n# Lamp\n\nSecond, light it.\n");
        let alone = ["Paragraph: It is old.", "Paragraph: It is red.", "Paragraph: Second, light it."];
        assert_eq!(
            shown(&document),
            [alone[0], &format!("List {{ is_ordered: true }}: {counted}"), alone[1], alone[2]]
        );
        let long = "and on ".repeat(300);
        let document = format!("First, open it.\n\nSecond, go on {long}.\n");
        assert_eq!(units(&document).len(), 2, "a text of more than a screen is not joined");
    }

    #[test]
    fn code_that_is_included_from_another_file_is_no_unit() {
        let included = "Run it:\n\n```console\n{{#include ../out.txt}}\n```\n\nIt ran.\n";
        assert_eq!(shown(included), ["Paragraph: Run it:", "Paragraph: It ran."]);
    }

    #[test]
    fn table_in_html_is_a_unit_whose_rows_are_sentences() {
        let document = "Points:\n\n<table>\n <tr><td>Work</td><td>A week</td></tr>\n <tr><td>Points</td><td>8</td></tr>\n\
                        </table>\n\n<p>No table.</p>\n";
        let [unit] = &units(document)[..] else { panic!() };
        assert_eq!((unit.kind, unit.pieces.len()), (UnitKind::Table, 1), "the first is the header");
        assert!(
            document[unit.range.clone()].starts_with("Points:") && document[unit.range.clone()].ends_with("</table>")
        );
    }

    #[test]
    fn table_in_html_with_blank_lines_is_one_unit() {
        let table = "<table>\n<tr><th>Part</th><th>Use</th></tr>\n\n<tr><td>\n\n# Lamp\n\n- red\n\n</td><td>Light</td></tr>\n\n\
                     <tr><td>Bell</td><td>\n\nIt rings.\n\n</td></tr>\n</table>";
        let document = format!("# Parts\n\nIt has parts.\n\n{table}\n\nIt is old.\n\n- a tank\n");
        let found = units(&document);
        let kinds: Vec<_> = found.iter().map(|unit| &document[unit.range.clone()]).collect();
        assert_eq!(kinds, ["It has parts.", table, "It is old.", "- a tank"]);
        assert_eq!((found[1].kind, found[1].pieces.len()), (UnitKind::Table, 2));
        assert!(found[1].sentences.iter().any(|row| row.plain == "Bell – It rings."), "{:?}", found[1].sentences);
        assert!(found.iter().all(|unit| unit.headings == ["Parts"] && unit.section == 1), "no heading is in a cell");
        assert_eq!(found[3].pieces.len(), 1, "blocks after the table are at the top level again");
        for table in ["<table><tr><th>Part</th></tr>\n<tr><td>Lamp</td></tr></table>", table] {
            let below = format!("{table}\nIt is changed every 9 days.\n");
            assert_eq!(
                units(&below).last().map(|unit| &below[unit.range.clone()]),
                Some("It is changed every 9 days.")
            );
        }
        let open = document.replace("</table>", "");
        assert!(units(&open).iter().all(|unit| unit.kind != UnitKind::Table), "a table that is not closed is none");
    }

    #[test]
    fn units_of_two_sections_do_not_join() {
        let document = "# A\n\nThe formats are:\n\n# B\n\n- one\n";
        assert_eq!(shown(document), ["Paragraph: The formats are:", "List { is_ordered: false }: - one"]);
    }

    #[test]
    fn page_is_split_at_blank_lines() {
        let page = "# Fair\n\nOpen in July.\nAnd in May.\n\nBring:\n\n- boots\n- a hat\n\nMetal | Euros\nZinc | 3\n";
        let kinds: Vec<_> = units_of_page(page).iter().map(|unit| &page[unit.range.clone()]).collect();
        assert_eq!(kinds, ["Open in July.\nAnd in May.", "Bring:\n\n- boots\n- a hat", "Metal | Euros\nZinc | 3"]);
    }

    #[test]
    fn items_of_a_list_are_found_at_any_depth() {
        let document = "Rules:\n\n- one\n    - two\n      more\n    - three\n- four\n";
        let list = units(document).remove(0);
        let found: Vec<_> = items(document, &list).into_iter().map(|(above, own)| (above, &document[own])).collect();
        assert_eq!(
            found,
            [(None, "- one"), (Some(0), "    - two\n      more"), (Some(0), "    - three"), (None, "- four")]
        );
    }
}
