//! Assembles a draft from branch reports without a model: findings in tree order, preceded by those that compare.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::branch::{Branch, Finding};
use super::evidence::{Evidence, EvidenceId};
use super::memory::cited;
use super::node::{Node, NodeId, Tree};
use super::question::{AspectId, Brief, Question};
use super::report::{Draft, Section};
use super::sentence::{every_sentence, is_end, place_of};
use super::unit::{MAX_LABEL_WORDS, compared_by, sentences_of};
use super::verdict::by_coverage;
use crate::base::html::{without_comments, without_html};
use crate::base::html_table::html_tables;
use crate::base::line::{CodeFence, below_title, bulleted_item, numbered_item, one_line};
use crate::base::readable::{after_callout_mark, after_task_box, readable};
use crate::base::word::{WordSplitter, count_words};
use crate::source::{Place, Support};

/// Maximum number of units for one part of a comparison or of a question with several parts, so that the answer fits
/// on one screen.
const UNITS_OF_PART: usize = 2;

/// Printed above the units of a part that the search does not support.
const DOUBTFUL: &str = "*These notes may not answer this part. Closest passages:*\n\n";
const DOUBTFUL_ABOVE: &str = "*These notes may not answer this part. The closest passage is the one above.*";

/// Printed for a part of the question whose best unit was shown for another part.
const ABOVE: &str = "*See the passage above.*";

/// Maximum length of a paragraph or list that is repeated for another part of the question, in bytes.
const MAX_AGAIN: usize = 500;

/// Number of headings printed above a unit after its title: the nearest ones.
const HEADINGS: usize = 2;

/// Assembles a draft from the branch reports.
///
/// A single node with findings gives an answer without sections. Several give one section each, titled by its aspect
/// or by the words that distinguish it. If a node depends on the others, its findings that compare form the answer
/// above the sections. Nothing is printed twice.
pub(crate) fn draft_by_rules(brief: &Brief, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Draft {
    let found = found(tree, branches);
    let verdict = by_coverage(brief, tree, branches);
    // If none is answered, that is said above the closest passages.
    let is_none_answered = verdict.missing_aspects.len() == brief.aspects.len();
    let is_shown = |id: &AspectId| is_none_answered && found.iter().any(|(node, _)| node.aspects.contains(id));
    let missing = verdict.missing_aspects.iter().filter(|id| !is_shown(id));
    let missing = missing.filter_map(|id| brief.aspect(id)).map(|aspect| aspect.text.clone());
    let missing: Vec<_> = missing.collect();
    let (closing, parts): (Vec<_>, Vec<_>) = found.iter().partition(|(node, _)| !node.depends_on.is_empty());
    let is_comparison = tree.workers().any(|node| !node.depends_on.is_empty());
    let mut writer =
        FindingsWriter { branches, is_comparison, said: Vec::new(), quoted: Vec::new(), findings: Vec::new() };
    let is_one = found.len() == 1;
    let names_of_parts = own_words(parts.iter().map(|(node, _)| node.question.as_str()));
    let names: Vec<_> = names_of_parts.iter().filter(|own| !own.is_empty()).cloned().collect();
    // A unit that names only one of the things compared belongs to the section on that one.
    let compares = |finding: &&Finding| {
        let quotes = writer.quotes(finding);
        let unit = joined(quotes.iter().map(|quote| quote.quote.as_str()));
        !is_from(&finding.text, &unit) || names_all(&unit, &names)
    };
    let closing: Vec<Vec<Finding>> =
        closing.iter().map(|(_, findings)| findings.iter().filter(compares).cloned().collect()).collect();
    // What names all of them answers for each.
    let compared: Vec<_> = closing.iter().flatten().flat_map(|finding| writer.quotes(finding)).collect();
    let said = stems_in(&compared);
    let missing = without_compared(missing, brief, &said);
    // The picker has limited the units of one node already.
    let (answer, sections) = if is_one {
        (writer.text(&found[0].1, usize::MAX), Vec::new())
    } else {
        // Rendered before the sections, which leave out what the answer has shown.
        let answer: Vec<_> = closing.iter().map(|findings| writer.text(findings, UNITS_OF_PART)).collect();
        // A unit that names all entities compares them; the best unit on each entity is then enough.
        let most = if answer.iter().all(String::is_empty) { UNITS_OF_PART } else { 1 };
        // If the best unit of each part is already shown, the rest is less relevant.
        let is_shown = |findings: &[Finding]| findings.first().is_some_and(|first| writer.is_shown(first));
        let is_done = is_comparison && parts.iter().all(|(_, findings)| is_shown(findings));
        let is_supported = found.iter().any(|(node, _)| writer.is_strong(node));
        let is_said = |(own, (node, findings)): (&BTreeSet<String>, &&(&Node, Vec<Finding>))| {
            let quotes = findings.first().map(|first| writer.quotes(first)).unwrap_or_default();
            // A unit below a heading that is the name of the thing says more of it.
            let is_own = || quotes.first().is_some_and(|quote| is_headed_by(&quote.source, own, &node.question));
            is_supported && is_named(own, &said) && !is_own()
        };
        let is_said: Vec<_> = names_of_parts.iter().zip(&parts).map(is_said).collect();
        let sections = if is_done { Vec::new() } else { sections(&parts, &is_said, brief, most, &mut writer) };
        (answer.join("\n\n"), sections)
    };
    Draft {
        answer,
        sections,
        findings: without_repeats(writer.findings.into_iter()),
        // Rules cannot tell whether two claims contradict each other.
        contradictions: Vec::new(),
        open_questions: distinct(missing.into_iter().chain(left_open(tree, branches))),
        limitations: Vec::new(),
        confidence: verdict.overall_confidence,
        is_makeshift: false,
        output: None,
    }
}

/// Returns the questions that the workers left open. A node without an answer has its own among them, which its aspect
/// stands for.
fn left_open<'a>(tree: &'a Tree, branches: &'a BTreeMap<NodeId, Branch>) -> impl Iterator<Item = String> + 'a {
    let answered = tree.workers().filter_map(|node| Some((node, branches.get(&node.id)?)));
    answered.flat_map(|(node, branch)| {
        let is_own = |question: &str| !node.aspects.is_empty() && question == node.question.as_str();
        branch.report.open_questions.iter().filter(move |question| !is_own(question)).cloned()
    })
}

fn stems_in(units: &[&Evidence]) -> BTreeSet<String> {
    let splitter = WordSplitter::default();
    units.iter().flat_map(|unit| splitter.stems(&unit.quote)).collect()
}

/// Returns whether units with the stems `said` contain all words of an aspect's [own](own_words).
fn is_named(own: &BTreeSet<String>, said: &BTreeSet<String>) -> bool {
    !own.is_empty() && own.is_subset(said)
}

/// Returns whether the title of a place or the heading above it has all words of a part's [own](own_words), and no others
/// than the question of that part.
fn is_headed_by(place: &Place, own: &BTreeSet<String>, question: &Question) -> bool {
    let splitter = WordSplitter::default();
    let stems = |text: &str| splitter.stems(text).into_iter().collect::<BTreeSet<_>>();
    let asked = stems(question.as_str());
    let names = place.heading_path().last().map(String::as_str).into_iter().chain([place.title()]);
    names.map(stems).any(|name| own.is_subset(&name) && name.is_subset(&asked))
}

/// Returns the aspects that the comparison units, whose stems are `said`, do not [name](is_named).
fn without_compared(mut aspects: Vec<String>, brief: &Brief, said: &BTreeSet<String>) -> Vec<String> {
    let texts = || brief.aspects.iter().map(|aspect| aspect.text.as_str());
    let compared = texts().zip(own_words(texts())).filter(|(_, own)| is_named(own, said));
    let compared: BTreeSet<_> = compared.map(|(text, _)| text).collect();
    aspects.retain(|aspect| !compared.contains(aspect.as_str()));
    aspects
}

/// Returns the key words of each text that the others do not all have.
fn own_words<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<BTreeSet<String>> {
    let splitter = WordSplitter::default();
    let words: Vec<BTreeSet<_>> = texts.map(|text| splitter.key_stems(text).into_iter().collect()).collect();
    let is_shared = |word: &String| words.iter().all(|own| own.contains(word));
    words.iter().map(|own| own.iter().filter(|word| !is_shared(word)).cloned().collect()).collect()
}

/// Returns whether a unit has a word of each of `names`, in the [part of it](compared_by) that compares.
fn names_all(unit: &str, names: &[BTreeSet<String>]) -> bool {
    let words = WordSplitter::default().stems(&compared_by(unit));
    names.iter().all(|own| own.iter().any(|word| words.contains(word)))
}

/// Returns the nodes with checked findings, in tree order.
fn found<'a>(tree: &'a Tree, branches: &BTreeMap<NodeId, Branch>) -> Vec<(&'a Node, Vec<Finding>)> {
    let checked: BTreeSet<_> = branches
        .values()
        .flat_map(|branch| branch.evidence.iter().filter(|quote| quote.checked).map(|quote| &quote.id))
        .collect();
    let with_evidence = |finding: &Finding| {
        let evidence: Vec<_> = finding.evidence.iter().filter(|id| checked.contains(id)).cloned().collect();
        (!evidence.is_empty()).then(|| Finding { evidence, ..finding.clone() })
    };
    let findings = |node: &'a Node| {
        let findings: Vec<_> = branches.get(&node.id)?.report.findings.iter().filter_map(with_evidence).collect();
        (!findings.is_empty()).then_some((node, findings))
    };
    tree.workers().filter_map(findings).collect()
}

/// Writes findings as Markdown, each once.
struct FindingsWriter<'a> {
    branches: &'a BTreeMap<NodeId, Branch>,
    is_comparison: bool,
    /// The model claims that have been shown: their quotes, with places, and their words.
    said: Vec<(String, BTreeSet<String>)>,
    /// The quotes of units that have been shown.
    quoted: Vec<&'a Evidence>,
    /// The findings that have been shown, in order.
    findings: Vec<Finding>,
}

impl<'a> FindingsWriter<'a> {
    /// Returns the findings that have not been shown yet, at most `most` whole units among them.
    fn text(&mut self, findings: &[Finding], most: usize) -> String {
        let (mut shown, mut units, mut above, mut has_headings, mut repeated) = (Vec::new(), 0, None, false, None);
        for finding in findings {
            let (quotes, is_unit) = (self.quotes(finding), self.is_unit(finding));
            let is_whole = |quote: &&Evidence| quote.quote.contains('\n') || every_sentence(&quote.quote).len() > 1;
            let is_long = is_unit && (quotes.len() > 1 || quotes.iter().any(is_whole));
            if is_long && units == most {
                continue;
            }
            let document = quotes.first().map(|quote| quote.source.document());
            if is_unit && document.is_some() && document == repeated {
                continue;
            }
            let again = if is_unit && shown.is_empty() { self.said_again(finding, &quotes) } else { None };
            let text = if let Some(again) = again {
                repeated = document;
                self.quoted.extend(quotes);
                again
            } else if is_unit {
                let unseen = self.unseen(&quotes);
                if unseen.is_none() && shown.is_empty() && !self.is_comparison {
                    repeated = document;
                    shown.push(with_marks(ABOVE, finding));
                    self.findings.push(finding.clone());
                }
                // An anchor is invisible to a reader.
                let Some(unit) = unseen.filter(|unit| !readable(unit).is_empty()) else { continue };
                let heading = quotes.first().and_then(|quote| new_heading(&mut above, &quote.source, &unit));
                has_headings |= heading.is_some();
                self.quoted.extend(quotes);
                let heading = heading.map(|heading| format!("### {heading}\n\n")).unwrap_or_default();
                format!("{heading}{}", of_unit(&unit, finding))
            } else if self.is_new(finding, &quotes) {
                cited(finding)
            } else {
                continue;
            };
            units += usize::from(is_long);
            shown.push(text);
            self.findings.push(finding.clone());
        }
        shown.join(if units > 0 || has_headings { "\n\n" } else { " " })
    }

    /// Returns whether a claim of a model has not been shown. Models word the same thing differently, so a claim with
    /// the same quotes and mostly the same words counts as shown.
    fn is_new(&mut self, finding: &Finding, quotes: &[&Evidence]) -> bool {
        let own = (key(quotes), WordSplitter::default().key_stems(&finding.text).into_iter().collect::<BTreeSet<_>>());
        let is_same = |(key, words): &(String, BTreeSet<String>)| {
            let fewer = words.len().min(own.1.len());
            *key == own.0 && words.intersection(&own.1).count() * 2 > fewer
        };
        let is_new = !self.said.iter().any(is_same);
        if is_new {
            self.said.push(own);
        }
        is_new
    }

    /// Returns the answering sentence if it was shown for another part of the question, or its paragraph or list if that
    /// is short and the sentence is not clearly the answer. Nothing else from its document is shown: less relevant text
    /// would read as the answer.
    fn said_again(&self, finding: &Finding, quotes: &[&Evidence]) -> Option<String> {
        let [own] = quotes else { return None };
        let has_it = |known: &&Evidence| place_of(&sentences_of(&known.quote), &finding.text).is_some();
        let is_known = |known: &&Evidence| known.source.is_same_document(&own.source) && has_it(known);
        // The row of a table says little by itself.
        if self.is_comparison || finding.text.contains(" — ") || !self.quoted.iter().any(is_known) {
            return None;
        }
        let sentences = sentences_of(&own.quote);
        let (first, last) = place_of(&sentences, &finding.text)?.into_inner();
        if finding.text.ends_with(':') {
            return with_items(&own.quote[sentences[first].range.start..])
                .map(|items| with_marks(&readable(&items), finding));
        }
        let sentence = own.quote[sentences[first].range.start..sentences[last].range.end].trim_end();
        // Its neighbours may answer instead.
        let block = blocks(&own.quote).into_iter().find(|block| block.contains(sentence));
        if let Some(block) = block.filter(|block| !finding.is_emphasised && block.len() <= MAX_AGAIN) {
            return Some(with_marks(&readable(block), finding));
        }
        // In bold, so that no mark at its beginning starts a block.
        let said = unquoted(within_quotes(past_mark(sentence)));
        let [_, plain, _] = without_bold(&said, 0..said.len());
        let shown = bold(&plain).map_or_else(|| escaped(&finding.text), |bold| readable(&bold));
        Some(with_marks(&shown, finding))
    }

    /// Returns whether a finding, or its answering sentence, was shown for another part of the question.
    fn has_said(&self, finding: &Finding) -> bool {
        self.said_again(finding, &self.quotes(finding)).is_some() || !self.is_comparison && self.is_shown(finding)
    }

    /// Returns whether a finding is a unit that has been shown.
    fn is_shown(&self, finding: &Finding) -> bool {
        self.is_unit(finding) && self.unseen(&self.quotes(finding)).is_none()
    }

    /// Returns whether the search of a node had strong support.
    fn is_strong(&self, node: &Node) -> bool {
        self.branches.get(&node.id).is_some_and(|branch| branch.support == Support::Strong)
    }

    /// Returns whether a finding was picked by rules, and is not a claim of a model.
    fn is_unit(&self, finding: &Finding) -> bool {
        is_from(&finding.text, &joined(self.quotes(finding).iter().map(|quote| quote.quote.as_str())))
    }

    fn quotes(&self, finding: &Finding) -> Vec<&'a Evidence> {
        let quote = |id: &EvidenceId| self.branches.get(id.node())?.evidence.iter().find(|quote| quote.id == *id);
        finding.evidence.iter().filter_map(quote).collect()
    }

    /// Returns the blocks of a unit that have not been shown yet; `None` if all have. Units of two nodes may overlap: a
    /// paragraph is also shown with one that refers to it.
    fn unseen(&self, quotes: &[&Evidence]) -> Option<String> {
        let left: Vec<_> = quotes.iter().map(|quote| self.unseen_blocks(quote)).collect();
        match left.as_slice() {
            left if left.iter().all(Vec::is_empty) => None,
            [blocks] if blocks.len() < self::blocks(&quotes[0].quote).len() => Some(blocks.join("\n\n")),
            // The rows of a cut table need its header again.
            _ => Some(joined(quotes.iter().map(|quote| quote.quote.as_str()))),
        }
    }

    fn unseen_blocks(&self, quote: &'a Evidence) -> Vec<&'a str> {
        let is_shown = |block: &&str| {
            let shown =
                |known: &&Evidence| known.source.is_same_document(&quote.source) && known.quote.contains(block.trim());
            self.quoted.iter().any(shown)
        };
        blocks(&quote.quote).into_iter().filter(|block| !is_shown(block)).collect()
    }
}

/// Splits a text at empty lines outside of code blocks and of tables in HTML.
fn blocks(text: &str) -> Vec<&str> {
    let (mut blocks, mut start, mut at, mut fence) = (Vec::new(), 0, 0, CodeFence::default());
    let tables = html_tables(text);
    for line in text.split_inclusive('\n') {
        let is_in_table = tables.iter().any(|table| table.contains(&at));
        if !fence.takes(line) && !is_in_table && line.trim().is_empty() {
            blocks.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    blocks.push(&text[start..]);
    blocks.retain(|block| !block.trim().is_empty());
    blocks.into_iter().map(str::trim_end).collect()
}

/// Returns the lead-in at the beginning of a text with the list below it; `None` if they are long.
fn with_items(text: &str) -> Option<String> {
    let blocks = blocks(text);
    let count = if blocks.first()?.ends_with(':') { 2 } else { 1 };
    let items = blocks[..blocks.len().min(count)].join("\n\n");
    (items.len() <= MAX_AGAIN).then_some(items)
}

/// Returns the heading to print above a unit: `None` if it has its own, or is below the same heading as the previous
/// unit, which `above` holds.
fn new_heading<'a>(above: &mut Option<([&'a str; 4], Option<String>)>, place: &'a Place, unit: &str) -> Option<String> {
    let own = heading(place).filter(|_| !unit.starts_with('#'));
    let before = above.replace((place.document(), own.clone()));
    if before == *above { None } else { own }
}

/// Returns the title and the nearest headings above a passage, for a heading in Markdown; `None` for the reply of a
/// tool. "Not yet." needs the heading it answers, "Introduction" the title it introduces.
fn heading(place: &Place) -> Option<String> {
    let title = one_line(&place.title_for_people());
    let headings: Vec<_> = match place {
        Place::Mcp { .. } => return None,
        _ if place.is_on_page() => Vec::new(),
        _ => below_title(&title, place.heading_path())
            .into_iter()
            .map(one_line)
            .filter(|heading| !heading.is_empty())
            .collect(),
    };
    let mut nearest = &headings[headings.len().saturating_sub(HEADINGS)..];
    // Of two questions, the lower one is not about the upper one.
    if nearest.iter().all(|heading| heading.ends_with('?')) {
        nearest = &nearest[nearest.len().saturating_sub(1)..];
    }
    let path: Vec<_> = std::iter::once(&title).filter(|title| !title.is_empty()).chain(nearest).cloned().collect();
    (!path.is_empty()).then(|| escaped(&path.join(" › ")))
}

/// Returns a text as Markdown without markup.
fn escaped(text: &str) -> String {
    let escaped = |letter: char| if "\\`*[]<>|#".contains(letter) { format!("\\{letter}") } else { letter.to_string() };
    one_line(text).chars().map(escaped).collect()
}

/// Returns the quotes of a unit as one text.
fn joined<'a>(quotes: impl Iterator<Item = &'a str>) -> String {
    let (mut text, mut is_in_list) = (String::new(), true);
    for quote in quotes {
        let is_item = numbered_item(quote).is_some();
        text.push_str(match () {
            () if text.is_empty() => "",
            // In Markdown, a number other than 1 does not end the paragraph above it.
            () if is_item && !is_in_list => "\n\n",
            () => "\n",
        });
        text.push_str(quote);
        is_in_list = quote.lines().any(|line| numbered_item(line).is_some());
    }
    text
}

fn key(quotes: &[&Evidence]) -> String {
    quotes.iter().map(|quote| format!("{} {}", quote.source.for_people(), quote.quote)).collect()
}

/// Returns a unit with its citation, and the answering sentence emphasised. One of several quotes was cut.
fn of_unit(unit: &str, finding: &Finding) -> String {
    let shown = emphasised(unit, Some(finding.text.as_str()).filter(|_| finding.is_emphasised));
    let readable = readable(&shown);
    let shown = with_marks(&readable, finding);
    match finding.evidence.len() {
        0 | 1 if ends_in_code(unit) => format!("{shown} *(the rest is left out)*"),
        0 | 1 => shown,
        _ if has_table(&readable) && !has_items(&readable) => format!("{shown} *(other rows are left out)*"),
        _ => format!("{shown} *(other items are left out)*"),
    }
}

/// Returns whether a text ends within a block of code: a long one was cut.
fn ends_in_code(text: &str) -> bool {
    let mut fence = CodeFence::default();
    for line in text.lines() {
        fence.takes(line);
    }
    fence.is_open()
}

fn with_marks(text: &str, finding: &Finding) -> String {
    let ids: Vec<_> = finding.evidence.iter().map(ToString::to_string).collect();
    let mark = format!("[{}]", ids.join(", "));
    // A mark at the end of a code block or a table would be part of it.
    let ends_table = text.lines().last().is_some_and(|line| line.contains('|')) && has_table(text);
    let is_block = text.contains('\n') && (text.trim_end().ends_with(['`', '~', '|']) || ends_table);
    if is_block { format!("{text}\n\n{mark}") } else { format!("{text} {mark}") }
}

/// Returns whether a Markdown text has items of a list, which may have tables in them.
fn has_items(text: &str) -> bool {
    text.lines().any(|line| bulleted_item(line.trim_start()).is_some())
}

/// Returns whether a Markdown text has a table: the line below its header has dashes and bars alone.
fn has_table(text: &str) -> bool {
    let is_rule = |line: &str| line.chars().all(|letter| matches!(letter, '|' | '-' | ':' | ' ' | '>'));
    text.lines().any(|line| line.contains('|') && line.contains('-') && is_rule(line))
}

/// Returns whether a claim is a sentence or line of a unit.
fn is_from(claim: &str, unit: &str) -> bool {
    // A claim picked by rules is plain text, while its unit is Markdown.
    unit.contains(claim) || place_of(&sentences_of(unit), claim).is_some()
}

/// Emphasises a sentence of a unit, unless the unit is that sentence or contains marks that the emphasis would break.
/// Nothing else stays bold within a line, so that bold always means the answer.
fn emphasised(unit: &str, sentence: Option<&str>) -> String {
    let shown = sentence.and_then(|sentence| with_emphasis(unit, sentence));
    shown.unwrap_or_else(|| without_bold(unit, 0..0).concat())
}

fn with_emphasis(unit: &str, sentence: &str) -> Option<String> {
    let sentences = sentences_of(unit);
    let found = place_of(&sentences, sentence).map(RangeInclusive::into_inner);
    let is_part = |(first, last): &(usize, usize)| last - first + 1 < sentences.len();
    let (first, last) = found.filter(is_part)?;
    let range = sentences[first].range.start..sentences[last].range.end;
    let text = within_quotes(past_mark(unit[range.clone()].trim_end()));
    let start = range.start + unit[range.clone()].find(text).unwrap_or_default();
    let [before, text, after] = without_bold(unit, start..start + text.len());
    let is_inside = before.ends_with(['*', '_']) || after.starts_with(['*', '_']);
    bold(&text).filter(|_| !is_inside).map(|bold| format!("{before}{bold}{after}"))
}

/// Removes the author's bold marks from a unit, except around labels in lines of their own: a reader would take them
/// for the emphasis of the answer. Returns the rest of the text before the sentence, of the sentence, and of the text
/// after it.
fn without_bold(unit: &str, sentence: Range<usize>) -> [String; 3] {
    let is_heading = |bold: &Range<usize>| {
        let before = unit[..bold.start].rsplit('\n').next().unwrap_or_default();
        let after = without_html(unit[bold.end..].split('\n').next().unwrap_or_default());
        let is_line = before.trim().is_empty() && after.trim_matches([':', ' ', '\r']).is_empty();
        is_line && (after.contains(':') || is_label(&unit[bold.clone()]))
    };
    let strong = Parser::new_ext(unit, Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS).into_offset_iter();
    let strong = strong.filter_map(|(event, range)| matches!(event, Event::Start(Tag::Strong)).then_some(range));
    let is_inside = |bold: &Range<usize>| sentence.start <= bold.start && bold.end <= sentence.end;
    let marks = strong.filter(|bold| is_inside(bold) || !is_heading(bold));
    let marks: BTreeSet<_> = marks.flat_map(|bold| [bold.start, bold.start + 1, bold.end - 2, bold.end - 1]).collect();
    let kept = |range: Range<usize>| {
        let own = unit[range.clone()].char_indices().filter(|(at, _)| !marks.contains(&(range.start + at)));
        own.map(|(_, letter)| letter).collect()
    };
    [kept(0..sentence.start), kept(sentence.clone()), kept(sentence.end..unit.len())]
}

/// Returns whether a line in bold is a label of the text after it, and not a sentence that its author stressed.
fn is_label(line: &str) -> bool {
    let own = line.trim_matches(['*', '_', ' ']);
    own.ends_with([':', '：', '?', '？']) || (count_words(own) <= MAX_LABEL_WORDS && !own.ends_with(is_end))
}

/// Longest mark of a footnote, as in `[nb 3]`, in bytes.
const MAX_NOTE_MARK: usize = 8;

/// Removes the mark of a callout, as in `[!NOTE]`, or the box of a task: in bold it would no longer be parsed and
/// would be printed. Footnote marks are removed too; they belong to the previous sentence.
fn past_mark(sentence: &str) -> &str {
    let note = sentence.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    if let Some((_, rest)) = note.filter(|(mark, _)| mark.len() <= MAX_NOTE_MARK && mark.ends_with(char::is_numeric)) {
        return past_mark(rest.trim_start());
    }
    if let Some(task) = after_task_box(sentence) {
        return task;
    }
    let is_frame = |letter: char| letter.is_whitespace() || letter == '>';
    after_callout_mark(sentence).map_or(sentence, |rest| rest.trim_start_matches(is_frame))
}

/// Removes a quotation mark at one end of a sentence if its partner is in another sentence.
fn within_quotes(sentence: &str) -> &str {
    let opens = sentence.strip_prefix('“').filter(|rest| !rest.contains('”'));
    let closes = sentence.strip_suffix('”').filter(|rest| !rest.contains('“'));
    opens.or(closes).unwrap_or(sentence)
}

/// Returns a sentence without the marks of a quotation at the beginning of its further lines.
fn unquoted(sentence: &str) -> String {
    let lines = sentence.split('\n').map(|line| line.trim_start().strip_prefix('>').map_or(line, str::trim_start));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a sentence in bold, or a table row with each cell in bold; `None` if that would break its own marks.
fn bold(sentence: &str) -> Option<String> {
    let sentence = without_comments(sentence);
    let outside_code: String = sentence.split('`').step_by(2).collect();
    if outside_code.contains("\n\n") || outside_code.contains("[[") || sentence.contains("\\|") {
        return None;
    }
    if outside_code.contains('|') {
        let cell = |cell: &str| {
            let own = cell.trim();
            // A cell that contains only images has no visible text.
            let marked = if readable(own).trim().is_empty() { Some(own.to_owned()) } else { bold(own) };
            marked.map(|marked| cell.replacen(own, &marked, 1))
        };
        let is_row = !sentence.contains('\n') && !sentence.split('`').skip(1).step_by(2).any(|code| code.contains('|'));
        let cells = sentence.split('|').map(cell).collect::<Option<Vec<_>>>()?;
        return is_row.then(|| cells.join("|"));
    }
    // A mark between spaces means nothing: `2 ** 3`.
    let outside_code = outside_code.replace(" ** ", " ").replace(" * ", " ");
    let count = |mark: &str| outside_code.matches(mark).count();
    let opens_tag = |rest: &str| rest.starts_with(|letter: char| letter.is_alphabetic() || "/!".contains(letter));
    let has_tag = outside_code.split('<').skip(1).any(opens_tag);
    // Unpaired marks extend beyond the sentence, and others would end the emphasis.
    let pairs = count("**") == 0 && count("*").is_multiple_of(2) && count("__") == 0 && !has_tag;
    pairs.then(|| format!("**{sentence}**"))
}

/// Returns a section for each part of the question with findings, except for a part that the comparison above names
/// (`is_said`) and whose search has no strong support.
fn sections(
    parts: &[&(&Node, Vec<Finding>)],
    is_said: &[bool],
    brief: &Brief,
    most: usize,
    writer: &mut FindingsWriter<'_>,
) -> Vec<Section> {
    let of_aspects = parts.iter().map(|(node, _)| aspect_of(node, brief));
    let titles = titles(parts).into_iter().zip(of_aspects).map(|(title, aspect)| aspect.unwrap_or(title));
    // If no part is supported, the whole answer is preceded by a line that says so.
    let is_supported = parts.iter().any(|(node, _)| writer.is_strong(node));
    let mut sections: Vec<Section> = Vec::new();
    for (((node, findings), title), is_said) in parts.iter().zip(titles).zip(is_said) {
        let is_weak = !writer.is_strong(node) && findings.iter().all(|own| writer.is_unit(own));
        // A node of a later round may serve the same aspect, and find the same sentence.
        let known = sections.iter_mut().find(|section| section.title == title);
        let has_said = findings.first().is_some_and(|first| writer.has_said(first));
        if is_weak && *is_said || known.is_some() && (is_weak || has_said) {
            continue;
        }
        let is_doubtful = is_supported && is_weak;
        let is_above = is_doubtful && has_said;
        let most = if is_weak { 1 } else { most };
        let mut text = if is_above { DOUBTFUL_ABOVE.to_owned() } else { writer.text(findings, most) };
        // A note with the same title as the section.
        let own_title = format!("### {}\n\n", escaped(&title));
        if text.starts_with(&own_title) {
            text.drain(..own_title.len());
        }
        if is_doubtful && !is_above && !text.is_empty() {
            text.insert_str(0, DOUBTFUL);
        }
        match known {
            _ if text.is_empty() => {}
            Some(section) => section.text = format!("{}\n\n{text}", section.text),
            None => sections.push(Section { title, text, ..Section::default() }),
        }
    }
    sections
}

/// Returns the text of the one aspect a node serves, unless that aspect is the whole question.
fn aspect_of(node: &Node, brief: &Brief) -> Option<String> {
    let [aspect] = node.aspects.as_slice() else { return None };
    let text = &brief.aspect(aspect)?.text;
    (brief.aspects.len() > 1 && node.depends_on.is_empty()).then(|| text.clone())
}

/// Returns section titles. Nodes that ask the same of different things (`How does A scale?`, `How does B scale?`) are
/// titled by the words that differ, others by their question.
fn titles(found: &[&(&Node, Vec<Finding>)]) -> Vec<String> {
    let words: Vec<Vec<&str>> =
        found.iter().map(|(node, _)| node.question.as_str().split_whitespace().collect()).collect();
    let title = |(place, own): (usize, &Vec<&str>)| {
        let (node, _) = &found[place];
        let siblings: Vec<_> = (0..words.len())
            .filter(|other| *other != place && found[*other].0.depends_on.is_empty())
            .map(|other| &words[other])
            .filter(|other| asks_the_same(own, other))
            .collect();
        if siblings.is_empty() || !node.depends_on.is_empty() {
            return node.question.to_string();
        }
        let is_own = |word: &&&str| !siblings.iter().all(|other| other.iter().any(|known| bare(known) == bare(word)));
        let title = own.iter().filter(is_own).map(|word| trimmed(word)).collect::<Vec<_>>().join(" ");
        if title.is_empty() { node.question.to_string() } else { title }
    };
    words.iter().enumerate().map(title).collect()
}

/// Returns whether two questions share more than half of their words.
fn asks_the_same(own: &[&str], other: &[&str]) -> bool {
    let shared = own.iter().filter(|word| other.iter().any(|known| bare(known) == bare(word))).count();
    shared * 2 > own.len()
}

fn bare(word: &str) -> String {
    trimmed(word).to_lowercase()
}

fn trimmed(word: &str) -> &str {
    word.trim_matches(|letter: char| matches!(letter, '?' | '!' | ',' | ';' | ':' | '.' | '"' | '(' | ')'))
}

fn without_repeats(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        match kept.iter_mut().find(|known| known.text == finding.text) {
            Some(known) => {
                let new: Vec<_> = finding.evidence.into_iter().filter(|id| !known.evidence.contains(id)).collect();
                known.evidence.extend(new);
            }
            None => kept.push(finding),
        }
    }
    kept
}

fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(bare(text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::question::AspectId;
    use crate::research::scripted::{add_node, branch, brief};
    use crate::source::Label;

    #[test]
    fn one_node_gives_an_answer_without_sections() {
        let mut tree = Tree::of("What does it cost?".parse().unwrap());
        tree.nodes[0].status = crate::research::node::NodeStatus::Done;
        let found = branch(&tree.root, &["It costs nine.", "It is cheap."], Label::Internal);
        let draft =
            draft_by_rules(&brief("What does it cost?", &["cost"]), &tree, &[(tree.root.clone(), found)].into());
        assert_eq!(draft.answer, "### a\n\nIt costs nine. [n1e1]\n\nIt is cheap. [n1e2]");
        assert!(draft.sections.is_empty() && draft.findings.len() == 2);
    }

    #[test]
    fn numbered_item_of_a_cut_list_is_an_item_below_its_lead_in() {
        let quotes = ["These come in order.", "4. Send it.\n\n    It must *wait*.", "6. Close it."];
        let shown = readable(&joined(quotes.into_iter()));
        assert_eq!(shown, "These come in order.\n\n4. Send it.\n\n    It must *wait*.\n6. Close it.");
        assert_eq!(joined(["| a | b |\n|---|---|", "| 1 | 2 |"].into_iter()), "| a | b |\n|---|---|\n| 1 | 2 |");
    }

    #[test]
    fn part_that_the_search_does_not_support_says_so_if_another_is_supported() {
        let mut tree = Tree::of("How old is it, and by when must it go?".parse().unwrap());
        let ids = ["How old is it?", "By when must it go?"].map(|part| add_node(&mut tree, part, &[]));
        let said = |supports: [Support; 2]| {
            let quoted = |(id, support): (&NodeId, Support)| {
                let mut own = branch(id, &[&format!("It is {id}.")], Label::Internal);
                own.support = support;
                own.evidence[0].quote.clone_from(&own.report.findings[0].text);
                (id.clone(), own)
            };
            let branches = ids.iter().zip(supports).map(quoted).collect();
            let draft = draft_by_rules(&brief("How old?", &["a", "b"]), &tree, &branches);
            draft.sections.iter().map(|section| section.text.contains("may not answer")).collect::<Vec<_>>()
        };
        assert_eq!(said([Support::Strong, Support::Weak]), [false, true]);
        assert_eq!(said([Support::Weak, Support::Weak]), [false, false], "it is said above the answer");
    }

    #[test]
    fn units_are_shown_below_their_headings_which_stand_once() {
        let mut tree = Tree::of("Is it open?".parse().unwrap());
        tree.nodes[0].status = crate::research::node::NodeStatus::Done;
        let mut found = branch(&tree.root, &["Not yet.", "In May.", "Ask Ann."], Label::Internal);
        let places =
            [["Mill", "Tours", "Is the *mill* open?"], ["Mill", "Tours", "Is the *mill* open?"], ["Mill", "", ""]];
        for (quote, headings) in found.evidence.iter_mut().zip(places) {
            let headings = headings.into_iter().filter(|heading| !heading.is_empty()).map(str::to_owned).collect();
            let Place::Kb { title, heading_path, .. } = &mut quote.source else { panic!() };
            (*title, *heading_path) = ("Mill".into(), headings);
        }
        for (finding, quote) in found.report.findings.iter_mut().zip(&mut found.evidence) {
            quote.quote.clone_from(&finding.text);
        }
        let draft = draft_by_rules(&brief("Is it open?", &["open"]), &tree, &[(tree.root.clone(), found)].into());
        let (above, below) = draft.answer.split_once("Not yet. [n1e1]").unwrap();
        assert_eq!(above, "### Mill › Tours › Is the \\*mill\\* open?\n\n");
        assert!(below.contains("In May.") && below.ends_with("\n\n### Mill\n\nAsk Ann. [n1e3]"), "{below}");
        assert_eq!(below.matches('#').count(), 3, "{below}");
    }

    #[test]
    fn comparison_has_a_section_per_item_below_what_names_both() {
        let mut tree = Tree::of("Compare LanceDB and Qdrant".parse().unwrap());
        let ids =
            ["LanceDB", "Qdrant"].map(|name| add_node(&mut tree, &format!("How does {name} store its vectors?"), &[]));
        let mut branches: BTreeMap<_, _> = [
            (
                ids[0].clone(),
                branch(&ids[0], &["LanceDB keeps them in columns.", "It needs no server."], Label::Internal),
            ),
            (ids[1].clone(), branch(&ids[1], &["Qdrant keeps them in segments."], Label::Internal)),
        ]
        .into();
        branches.get_mut(&ids[1]).unwrap().report.open_questions = vec!["How large is a segment?".into()];
        let brief = brief("Compare LanceDB and Qdrant", &["columns", "elephants"]);
        let shown = |draft: &Draft| {
            let sections = draft.sections.iter().map(|section| format!("## {}\n{}", section.title, section.text));
            sections.collect::<Vec<_>>().join("\n")
        };
        let draft = draft_by_rules(&brief, &tree, &branches);
        insta::assert_snapshot!(shown(&draft), @r"
        ## LanceDB
        ### a

        LanceDB keeps them in columns. [n2e1]

        It needs no server. [n2e2]
        ## Qdrant
        ### a

        Qdrant keeps them in segments. [n3e1]
        ");
        assert_eq!(draft.open_questions, ["elephants", "How large is a segment?"]);

        let last = add_node(&mut tree, "How do LanceDB and Qdrant differ?", &[&ids[0], &ids[1]]);
        let said = ["LanceDB has columns, Qdrant segments.", "Qdrant is a server."];
        branches.insert(last.clone(), branch(&last, &said, Label::Internal));
        let draft = draft_by_rules(&brief, &tree, &branches);
        assert_eq!(
            draft.answer, "### a\n\nLanceDB has columns, Qdrant segments. [n4e1]",
            "and not what names one alone"
        );
        assert_eq!(draft.sections.len(), 2);
    }

    #[test]
    fn table_compares_by_its_header_or_its_first_cells() {
        let names = [["horn".to_owned()].into(), ["bell".to_owned()].into()];
        for unit in [
            "| | Horn | Bell |\n|---|---|---|\n| loud | yes | no |",
            "| Name | Loud |\n|---|---|\n| Horn | yes |\n| Bell | no |",
            "A horn is no bell.",
        ] {
            assert!(names_all(unit, &names), "{unit}");
        }
        assert!(!names_all("| Year | What |\n|---|---|\n| 2019 | A new horn and a new bell. |", &names));
    }

    #[test]
    fn part_that_a_sentence_shown_before_answers_has_that_sentence_alone() {
        let mut tree = Tree::of("How often and how long?".parse().unwrap());
        let ids = ["How often does it ring?", "How long does it wait?"].map(|part| add_node(&mut tree, part, &[]));
        let unit = "It hangs in the tower. # It rings [twice](a.md) \\*and* waits a minute. It is old.";
        let answers = ["# It rings twice *and* waits a minute.", "Wait for the smith."];
        let mut branches = BTreeMap::new();
        for (id, answers) in ids.iter().zip([&answers[..1], &answers[..]]) {
            let mut found = branch(id, answers, Label::Internal);
            found.evidence[0].quote = unit.into();
            found.report.findings[0].is_emphasised = true;
            branches.insert(id.clone(), found);
        }
        let draft = draft_by_rules(&brief("How often and how long?", &["a", "b"]), &tree, &branches);
        assert_eq!(
            draft.sections[1].text, "**# It rings twice \\*and* waits a minute.** [n3e1]",
            "in its own Markdown"
        );
        for found in branches.values_mut() {
            found.evidence[0].quote = "It is old.\n\n- It rings twice.\n- It waits a minute.".into();
            found.report.findings[0].text = "It rings twice.".into();
            found.report.findings[0].is_emphasised = false;
        }
        let draft = draft_by_rules(&brief("How often and how long?", &["a", "b"]), &tree, &branches);
        assert_eq!(draft.sections[1].text, "- It rings twice.\n- It waits a minute. [n3e1]", "with its neighbours");
    }

    #[test]
    fn part_whose_best_unit_was_shown_points_to_it() {
        let mut tree = Tree::of("How often and what then?".parse().unwrap());
        let ids = ["How often does it ring?", "What does it cost?"].map(|part| add_node(&mut tree, part, &[]));
        let with_support = |unit: &str, answer: &str, support: Support| {
            let mut branches = BTreeMap::new();
            for (id, support) in ids.iter().zip([Support::Strong, support]) {
                let mut found = branch(id, &[answer, "The bell is old."], Label::Internal);
                found.evidence[0].quote = unit.into();
                found.report.findings[0].is_emphasised = true;
                found.support = support;
                branches.insert(id.clone(), found);
            }
            draft_by_rules(&brief("How often?", &["a", "b"]), &tree, &branches).sections[1].text.clone()
        };
        let shown = |unit: &str, answer: &str| with_support(unit, answer, Support::Strong);
        let table = "| bell | cost |\n|---|---|\n| old | 3 |\n| new | 5 |";
        assert_eq!(shown(table, "new — 5"), format!("{ABOVE} [n3e1]"), "and not to what fits less");
        assert_eq!(with_support(table, "new — 5", Support::Weak), DOUBTFUL_ABOVE);
        let list = "It is old. When it breaks, the smith has to:\n\n- cast it\n- hang it\n\nSo.";
        let items = "When it breaks, the smith has to:\n\n- cast it\n- hang it [n3e1]";
        assert_eq!(shown(list, "When it breaks, the smith has to:"), items);
        let quotation = "> [!NOTE] It rings at noon and\n> at night.\n>\n> Ask.";
        let said = sentences_of(quotation)[0].plain.clone();
        assert_eq!(shown(quotation, &said), "**It rings at noon and\nat night.** [n3e1]");
        let comment = "It is old. It rings <!-- ignore --> at noon. Ask.";
        let said = sentences_of(comment)[1].plain.clone();
        assert_eq!(shown(comment, &said), "**It rings  at noon.** [n3e1]");
    }

    #[test]
    fn part_asked_again_in_other_words_repeats_no_sentence() {
        let mut tree = Tree::of("How often and how long?".parse().unwrap());
        let parts = ["How often does it ring?", "How long does it wait?", "ring often"];
        let ids = parts.map(|part| add_node(&mut tree, part, &[]));
        for (id, aspect) in ids.iter().zip([1, 2, 1]) {
            let own = tree.nodes.iter_mut().find(|node| node.id == *id).unwrap();
            own.aspects = vec![AspectId::numbered(aspect)];
        }
        let mut branches = BTreeMap::new();
        for (id, answer) in ids.iter().zip(["It rings twice.", "It waits.", "It rings twice."]) {
            let mut found = branch(id, &[answer], Label::Internal);
            found.evidence[0].quote = format!("It is old. {answer}");
            found.support = Support::Strong;
            branches.insert(id.clone(), found);
        }
        let draft = draft_by_rules(&brief("How often and how long?", &["How often", "How long"]), &tree, &branches);
        assert_eq!(draft.sections[0].text.matches("rings twice").count(), 1, "{draft:#?}");
    }

    #[test]
    fn part_that_the_comparison_names_and_the_search_does_not_support_has_no_section() {
        let mut tree = Tree::of("Compare the bell and the horn".parse().unwrap());
        let ids = ["What is the bell?", "What is the horn?"].map(|part| add_node(&mut tree, part, &[]));
        let last = add_node(&mut tree, "How do the bell and the horn differ?", &[&ids[0], &ids[1]]);
        let titles = |said: &str| {
            let mut branches: BTreeMap<_, _> = [
                (ids[0].clone(), branch(&ids[0], &["The bell is loud."], Label::Internal)),
                (ids[1].clone(), branch(&ids[1], &["A horn was lost."], Label::Internal)),
                (last.clone(), branch(&last, &[said], Label::Internal)),
            ]
            .into();
            for (id, support) in [(&ids[0], Support::Strong), (&ids[1], Support::Weak)] {
                branches.get_mut(id).unwrap().support = support;
            }
            let draft = draft_by_rules(&brief("Compare the bell and the horn", &["bell", "horn"]), &tree, &branches);
            draft.sections.into_iter().map(|section| section.title).collect::<Vec<_>>()
        };
        assert_eq!(titles("A bell is heard further than a horn."), ["bell"]);
        assert_eq!(titles("A bell is loud."), ["bell", "horn"], "nothing else is said of it");
    }

    #[test]
    fn of_two_headings_that_ask_the_lower_one_is_shown() {
        let mut place = branch(&NodeId::numbered(1), &["x"], Label::Internal).evidence.remove(0).source;
        let Place::Kb { title, heading_path, .. } = &mut place else { panic!() };
        (*title, *heading_path) = ("Leave".into(), ["FAQ", "May I ring?", "May I sing?"].map(str::to_owned).into());
        assert_eq!(heading(&place).unwrap(), "Leave › May I sing?");
        let Place::Kb { title, heading_path, .. } = &mut place else { panic!() };
        (*title, *heading_path) = (r"LEAVE\_Days".into(), vec!["LEAVE_Days".into()]);
        assert_eq!((heading(&place).unwrap(), place.names()), ("LEAVE_Days".into(), "LEAVE_Days".into()), "unescaped");
    }

    #[test]
    fn aspect_that_a_unit_on_all_of_them_names_is_answered() {
        let brief = brief("Compare the horn and the bell", &["loudness of the horn", "loudness of the bell"]);
        let unit = |text: &str| Evidence {
            quote: text.into(),
            ..branch(&NodeId::numbered(1), &["x"], Label::Internal).evidence.remove(0)
        };
        let left =
            |text: &str| without_compared(vec!["loudness of the bell".to_owned()], &brief, &stems_in(&[&unit(text)]));
        assert_eq!(left("A horn is heard further than a bell."), [""; 0]);
        assert_eq!(left("A horn is heard in the mill.").len(), 1);
    }

    #[test]
    fn mark_of_a_callout_is_not_emphasised_with_its_first_sentence() {
        let unit = "> [!NOTE]\n> Valves are closed at night. Ask first.";
        let first = sentences_of(unit).into_iter().next().unwrap().plain;
        assert_eq!(emphasised(unit, Some(&first)), "> [!NOTE]\n> **Valves are closed at night.** Ask first.");
    }

    #[test]
    fn unit_is_shown_whole_and_once_with_the_sentence_that_answers_emphasised() {
        let mut tree = Tree::of("When does it ring?".parse().unwrap());
        let ids = ["When does it ring?", "How is it silenced?"].map(|question| add_node(&mut tree, question, &[]));
        let mut branches = BTreeMap::new();
        for id in &ids {
            let mut found = branch(id, &["It rings at [noon](bell.md)."], Label::Internal);
            found.evidence[0].quote = "It rings at [noon](bell.md).\nPress the red button. <!-- todo -->".into();
            found.report.findings[0].text = "It rings at noon.".into();
            found.report.findings[0].is_emphasised = true;
            branches.insert(id.clone(), found);
        }
        let draft = draft_by_rules(&brief("When does it ring?", &["ring"]), &tree, &branches);
        assert_eq!(
            draft.sections[1].text, "**It rings at noon.** [n3e1]",
            "what answers this part as well, and no more"
        );
        assert_eq!(draft.sections[0].text, "### a\n\n**It rings at noon.**\nPress the red button. [n2e1]");
        assert_eq!(draft.findings.len(), 1, "one claim with two quotes");
    }

    #[test]
    fn sentence_with_marks_of_its_own_and_a_row_of_a_table_are_emphasised() {
        for (unit, sentence, shown) in [
            (
                "- **Brass**: lasts *long*.\n- Zinc: rusts.",
                "Brass: lasts long.",
                "- **Brass: lasts *long*.**\n- Zinc: rusts.",
            ),
            (
                "It is. Use `Vec<T>` or `a * b`. So.",
                "Use `Vec<T>` or `a * b`.",
                "It is. **Use `Vec<T>` or `a * b`.** So.",
            ),
            ("It is. [nb 3] [12] So it was. Now.", "[nb 3] [12] So it was.", "It is. [nb 3] [12] **So it was.** Now."),
            ("One is. Two are. Three.", "One is. Two are.", "**One is. Two are.** Three."),
            (
                "It is `a **b`. Take 2 ** 3 or **/tmp** and **4** of `c\n**d`. So.",
                "It is `a **b`.",
                "**It is `a **b`.** Take 2 ** 3 or /tmp and 4 of `c\n**d`. So.",
            ),
            ("It takes 2 ** 3 ** 4. So.", "It takes 2 ** 3 ** 4.", "**It takes 2 ** 3 ** 4.** So."),
            ("Leave out **/tmp/ here. So.", "Leave out **/tmp/ here.", "Leave out **/tmp/ here. So."),
            // The bold of its author is not taken for the answer.
            (
                "**Metals:**\n- **Zinc**: rusts, `a**b`.\n- **Brass**: lasts.",
                "Brass: lasts.",
                "**Metals:**\n- Zinc: rusts, `a**b`.\n- **Brass: lasts.**",
            ),
            ("He said: “It is. It was.” So.", "It was.", "He said: “It is. **It was.**” So."),
            (
                "| a | b |\n|---|---|\n| c | d |\n| e | `f` |",
                "e — `f`",
                "| a | b |\n|---|---|\n| c | d |\n| **e** | **`f`** |",
            ),
            (
                "| a | b |\n|---|---|\n| c | d |\n| e | ![](f.png) |",
                "e",
                "| a | b |\n|---|---|\n| c | d |\n| **e** | ![](f.png) |",
            ),
            ("One <b>is. Two.", "One is.", "One <b>is. Two."),
            ("It waits < 4 hrs. So.", "It waits < 4 hrs.", "**It waits < 4 hrs.** So."),
        ] {
            assert_eq!(emphasised(unit, Some(sentence)), shown);
        }
        assert_eq!(emphasised("**Close**<a name=\"c\"></a>  \nIt.", None), "**Close**<a name=\"c\"></a>  \nIt.");
        let steps = "**To close it**\n\n1. Choose **Close**. It is **not** lost.";
        assert_eq!(emphasised(steps, None), "**To close it**\n\n1. Choose Close. It is not lost.");
    }

    #[test]
    fn line_that_its_author_wrote_in_bold_stays_bold_only_if_it_is_a_label() {
        for label in ["**Metals**", "**All of the metals that this mill can take:**", "**Which metals?**", "__Note__:"]
        {
            let unit = format!("{label}\n\nZinc rusts. Brass lasts.");
            let shown = format!("{label}\n\nZinc rusts. **Brass lasts.**");
            assert_eq!(emphasised(&unit, Some("Brass lasts.")), shown);
        }
        for stressed in ["Zinc rusts.", "Never take any metal that has been\nin the rain before noon", "Stop!"] {
            let unit = format!("**{stressed}**\n\nBrass lasts. It is old.");
            let shown = format!("{stressed}\n\n**Brass lasts.** It is old.");
            assert_eq!(emphasised(&unit, Some("Brass lasts.")), shown);
        }
    }

    #[test]
    fn two_claims_of_a_model_with_the_same_quote_are_both_shown_and_one_in_other_words_once() {
        let mut tree = Tree::of("What of the bell?".parse().unwrap());
        tree.nodes[0].status = crate::research::node::NodeStatus::Done;
        let mut found = branch(&tree.root, &["x", "x", "x"], Label::Internal);
        let texts = ["The bell rings at noon.", "Two smiths cast it.", "At noon the bell rings."];
        for (at, text) in texts.into_iter().enumerate() {
            found.evidence[at].quote = "Cast by two smiths, the bell is rung at 12.".into();
            found.report.findings[at].text = text.into();
        }
        let draft = draft_by_rules(&brief("What of the bell?", &["bell"]), &tree, &[(tree.root.clone(), found)].into());
        assert_eq!(draft.answer, "The bell rings at noon. [n1e1] Two smiths cast it. [n1e2]");
    }

    #[test]
    fn lines_of_units_that_overlap_are_shown_once() {
        let mut tree = Tree::of("Compare bells and horns".parse().unwrap());
        let code = "```sh\nring\n\nring\n```";
        let units = [
            "It rings at noon. Two bells do.",
            &format!("It rings at noon. Two bells do.\n\nSo, horns wait.\n\n{code}"),
            "So, horns wait.",
        ];
        let ids = ["bells", "horns", "waits"].map(|question| add_node(&mut tree, question, &[]));
        add_node(&mut tree, "Compare bells and horns", &[&ids[0], &ids[1]]);
        let mut branches = BTreeMap::new();
        let answers = ["It rings at noon. Two bells do.", "Two bells do.", "So, horns wait."];
        for ((id, unit), answer) in ids.iter().zip(units).zip(answers) {
            let mut found = branch(id, &[answer], Label::Internal);
            found.evidence[0].quote = unit.into();
            branches.insert(id.clone(), found);
        }
        let draft = draft_by_rules(&brief("Compare bells and horns", &["bells", "horns"]), &tree, &branches);
        let shown: Vec<_> = draft.sections.iter().map(|section| section.text.clone()).collect();
        assert_eq!(
            shown,
            [
                "### a\n\nIt rings at noon. Two bells do. [n2e1]".to_owned(),
                format!("### a\n\nSo, horns wait.\n\n{code}\n\n[n3e1]")
            ]
        );
        assert_eq!(draft.findings.len(), 2);
    }

    #[test]
    fn table_in_html_is_one_block() {
        let table = "<table>\n<tr><td>Bell</td></tr>\n\n<tr><td>Horn</td></tr>\n</table>";
        assert_eq!(blocks(&format!("It is.\n\n{table}\n\nSo.")), ["It is.", table, "So."]);
    }

    #[test]
    fn part_without_an_answer_is_told_unless_its_closest_passages_are_shown_as_such() {
        let mut tree = Tree::of("How old is it, and by when must it go?".parse().unwrap());
        let ids = ["How old is it?", "By when must it go?"].map(|part| add_node(&mut tree, part, &[]));
        let brief = brief("How old is it, and by when must it go?", &["the age", "the deadline"]);
        for (id, aspect) in ids.iter().zip(&brief.aspects) {
            tree.nodes.iter_mut().find(|node| node.id == *id).unwrap().aspects = vec![aspect.id.clone()];
        }
        let open = |texts: [&[&str]; 2]| {
            let said = |(id, texts): (&NodeId, &[&str])| {
                let mut own = branch(id, texts, Label::Internal);
                own.support = Support::Weak;
                if texts.is_empty() {
                    own.report.open_questions = vec![tree.get(id).unwrap().question.to_string()];
                }
                (id.clone(), own)
            };
            draft_by_rules(&brief, &tree, &ids.iter().zip(texts).map(said).collect()).open_questions
        };
        assert_eq!(open([&["It is old."], &["It must go."]]), [""; 0], "it is said above them");
        assert_eq!(open([&["It is old."], &[]]), ["the deadline"], "and not in the words that were searched");
    }

    #[test]
    fn thing_that_a_comparison_names_keeps_a_section_only_if_its_unit_is_headed_by_it() {
        let mut tree = Tree::of("Compare bells and horns".parse().unwrap());
        let ids = ["bells", "horns"].map(|name| add_node(&mut tree, name, &[]));
        let both = add_node(&mut tree, "Compare bells and horns", &[&ids[0], &ids[1]]);
        let shown = |title: &str| {
            let said = ["Bells ring.", "They blow.", "Bells weigh nine, horns two."];
            let own = |(id, (said, support)): (&NodeId, (&str, Support))| {
                let mut own = branch(id, &[said], Label::Internal);
                own.support = support;
                if let Place::Kb { title: own, .. } = &mut own.evidence[0].source {
                    title.clone_into(own);
                }
                (id.clone(), own)
            };
            let supports = [Support::Strong, Support::Weak, Support::Strong];
            let branches = [&ids[0], &ids[1], &both].into_iter().zip(said.into_iter().zip(supports)).map(own).collect();
            let draft = draft_by_rules(&brief("Compare bells and horns", &["bells", "horns"]), &tree, &branches);
            draft.sections.iter().map(|section| section.title.clone()).collect::<Vec<_>>()
        };
        assert_eq!(shown("Horns"), ["bells", "horns"]);
        for title in ["Prices", "Repair of horns"] {
            assert_eq!(shown(title), ["bells"], "{title}: it may be about anything");
        }
    }

    #[test]
    fn long_paragraph_is_repeated_only_by_its_sentence() {
        let mut tree = Tree::of("How often and how long?".parse().unwrap());
        let ids = ["How often does it ring?", "How long does it wait?"].map(|part| add_node(&mut tree, part, &[]));
        let again = |rest: &str| {
            let unit = format!("It rings twice. It waits a minute. {rest}");
            let own = |(id, answer): (&NodeId, &str)| {
                let mut own = branch(id, &[answer], Label::Internal);
                own.evidence[0].quote.clone_from(&unit);
                (id.clone(), own)
            };
            let answers = ["It rings twice.", "It waits a minute."];
            let branches = ids.iter().zip(answers).map(own).collect();
            draft_by_rules(&brief("How often?", &["a"]), &tree, &branches).sections.pop().unwrap().text
        };
        assert_eq!(again("It is old."), "It rings twice. It waits a minute. It is old. [n3e1]");
        assert_eq!(again(&"It is old. ".repeat(50)), "**It waits a minute.** [n3e1]");
    }

    #[test]
    fn finding_without_a_checked_quote_is_not_in_the_draft() {
        let mut tree = Tree::of("What is A?".parse().unwrap());
        let id = add_node(&mut tree, "What is A?", &[]);
        let mut found = branch(&id, &["A is one.", "A is two."], Label::Internal);
        found.evidence[0].checked = false;
        let draft = draft_by_rules(&brief("What is A?", &["A"]), &tree, &[(id, found)].into());
        assert_eq!(draft.answer, "### a\n\nA is two. [n2e2]");
        assert_eq!(draft.findings.len(), 1);
    }
}
