//! Sets the extent of a chosen unit: cut to its answer, or widened by its context.

use std::ops::Range;

use super::asked::AnswerKind;
use super::candidate::{UnitCandidate, common, lines_in, lines_of, overlap, screen_lines, units_in};
use super::features::{lists_links, points};
use super::remedy::{names_cause, names_remedy};
use super::sought::Sought;
use super::wording::has_phrase;
use super::{Kept, LONG_PARAGRAPH, MAX_LINES, MAX_PIECES, SAYS_MOST};
use crate::base::html::without_html;
use crate::base::line::is_field;
use crate::base::word::count_words;
use crate::research::lead_in::ends_open;
use crate::research::sentence::{Sentence, is_end, is_label, place_of};
use crate::research::unit::{Unit, UnitKind};

/// Maximum length, in lines, of a section that is shown whole if its steps are requested.
pub(super) const SHORT_SECTION: usize = 12;

/// Maximum length, in lines, of a procedure, which makes sense only as a whole.
pub(super) const MAX_STEP_LINES: usize = 32;

/// Lines up to which the best unit is extended below its heading. With 16 lines, 147 of 198 questions on nine folders get
/// their full answer; with 26, 148 do, with 7 % more text. If a unit with all words of the question is not extended, 144
/// do, with 4 % less.
pub(super) const READ_ON_TO: usize = 16;

/// Phrases of a text that limits the liability of its author.
const DISCLAIMERS: [&str; 3] = ["makes no warrant", "without warranty", "subject to change without notice"];

/// Number of words from which a paragraph is shown without the text above it.
const STANDS_ALONE: usize = 30;

/// Maximum number of words of a paragraph that names what the next one describes.
const LABEL: usize = 6;

/// Lines of a screen, up to which a report of a failure is extended, since messages are long and the remedy comes last, and
/// a list by its counterpart.
pub(super) const SCREEN: usize = 38;

/// Lines on a screen between two units of a section up to which they are shown as one text.
pub(super) const GAP: usize = 5;

/// Phrases of a sentence that announces the text after it.
const ANNOUNCEMENTS: [&str; 5] =
    ["the following command", "the following commands", "as follows", "the following example", "one of the following"];

/// Minimum number of words of a lead-in, and minimum share of the words of the shorter one that two lead-ins have in common,
/// for their lists to be counterparts.
const LEAST_LEAD_IN: usize = 5;
const SAME_LEAD_IN: f32 = 0.7;

/// Openings of a text that explains the code above it.
const EXPLAINING: [&str; 9] = [
    "In this ", "In the preceding ", "In the above ", "The preceding ", "The above ", "This command", "This query",
    "This example", "This code",
];

/// Maximum number of lines on a screen of the text that is shown above a step: prerequisites are short.
const TEXT_ABOVE_STEPS: usize = 10;

/// Openings of a later step of a procedure.
pub(super) const CONTINUING: [&str; 16] = [
    "Then", "Next", "Now ", "Once ", "After", "Finally", "Lastly", "In another ", "By adding ", "By passing ",
    "When done", "When you are done", "You can then ", "You can also ", "To undo ", "Also",
];

/// Cuts a paragraph of more than `long` lines to at most `most`: the sentences around the one that answers, or its
/// first.
pub(super) fn shorten(candidate: &mut UnitCandidate<'_>, long: usize, most: usize, answer: Option<&str>) {
    let Unit { kind: UnitKind::Paragraph, sentences, range, .. } = &candidate.unit else { return };
    let text = &candidate.reading.document.text;
    if lines_in(&text[range.clone()]) <= long || sentences.len() < 2 {
        return;
    }
    let (mut first, mut last) = answer.and_then(|answer| place_of(sentences, answer)).unwrap_or(0..=0).into_inner();
    let fits =
        |first: usize, last: usize| lines_in(&text[sentences[first].range.start..sentences[last].range.end]) <= most;
    loop {
        let (after, before) = (last + 1, first.checked_sub(1));
        let goes_on = after < sentences.len() && fits(first, after);
        last += usize::from(goes_on);
        let before = before.filter(|before| fits(*before, last));
        first = before.unwrap_or(first);
        if !goes_on && before.is_none() {
            break;
        }
    }
    let kept = sentences[first..=last].to_vec();
    candidate.unit.range = kept[0].range.start..kept[kept.len() - 1].range.end;
    candidate.unit.sentences = kept;
}

/// Joins units that follow each other in a document, at most `gap` lines apart, which are read as one text. The sentence
/// of the better one stays.
pub(super) fn join(kept: &mut Vec<Kept<'_>>, gap: usize) {
    let mut at = 0;
    while at < kept.len() {
        let touches = |next: &usize| {
            let between = kept[at].candidate.between(&kept[*next].candidate);
            between.is_some_and(|between| screen_lines(between.trim()) <= gap)
        };
        let Some(next) = (at + 1..kept.len()).find(touches) else {
            at += 1;
            continue;
        };
        let joined = kept.remove(next).candidate.unit;
        let unit = &mut kept[at].candidate.unit;
        if joined.range.start > unit.range.start {
            // Those at the end, which may be cut off.
            unit.sentences = joined.sentences;
        }
        unit.range = unit.range.start.min(joined.range.start)..unit.range.end.max(joined.range.end);
        unit.pieces.clear();
    }
}

/// Maximum length, in lines, of a text added because the one before announces it.
const ANNOUNCED_LINES: usize = 12;

/// Adds the text that the last sentence of a unit announces without a colon: "Execute the following command."
pub(super) fn add_announced(candidate: &mut UnitCandidate<'_>) {
    let text = &candidate.reading.document.text;
    if !leads_on(candidate.text()) || candidate.unit.pieces.len() > MAX_PIECES {
        return;
    }
    let end = candidate.unit.range.end;
    // It may begin with the sentence that announces it.
    let next = units_in(&candidate.reading.document).into_iter().find(|unit| unit.range.end > end);
    let is_next = |next: &Unit| {
        next.section == candidate.unit.section
            && next.kind != UnitKind::Paragraph
            && text.get(end..next.range.start).is_none_or(|between| between.trim().is_empty())
            && lines_in(&text[end..next.range.end]) <= ANNOUNCED_LINES
    };
    if let Some(next) = next.filter(is_next) {
        candidate.unit.range.end = next.range.end;
        candidate.unit.pieces.clear();
    }
}

/// Returns whether a text ends by announcing another: with a colon, or with "Execute the following command."
fn leads_on(text: &str) -> bool {
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_lowercase();
    ANNOUNCEMENTS.iter().any(|phrase| last.contains(phrase)) || ends_open(text)
}

/// Removes the last sentence of a text if it only announces text that is not shown: "You will get an error like
/// this:"
pub(super) fn cut_loose_end(candidate: &mut UnitCandidate<'_>) {
    let text = candidate.reading.document.text.as_str();
    let is_prose = candidate.unit.kind == UnitKind::Paragraph;
    let Unit { sentences, range, .. } = &mut candidate.unit;
    // Only the closing tag of HTML around it may follow.
    let is_at_end = |last: &Sentence| {
        let rest = text.get(last.range.end..range.end).map(str::trim_start);
        rest.is_none_or(|rest| rest.is_empty() || rest.starts_with("</"))
    };
    let mut said = sentences.as_slice();
    // The caption of code that is not shown.
    if let [.., lead_in, caption] = said
        && ends_open(&lead_in.plain)
        && is_field(&caption.plain)
    {
        said = &said[..said.len() - 1];
    }
    if let [.., said, last] = said
        && is_prose
        && ends_open(&last.plain)
        && sentences.last().is_some_and(is_at_end)
    {
        range.end = said.range.end;
    }
}

/// Widens units to the procedure they are part of, and drops those that are then already shown. `units` are those of
/// the sections found, each with the rank of its document.
pub(super) fn widen(kept: &mut Vec<Kept<'_>>, units: &[(usize, Unit)], sought: &Sought<'_>) {
    let mut shown: Vec<(usize, Range<usize>)> = Vec::new();
    let (mut lines, mut is_whole) = (0, false);
    kept.retain_mut(|Kept { candidate, .. }| {
        let text = &candidate.reading.document.text;
        let section =
            units.iter().filter(|(rank, unit)| *rank == candidate.rank && unit.section == candidate.unit.section);
        let is_undone = |unit: &Unit| !unit.pieces.is_empty() && sought.is_undone_by(&text[unit.head()]);
        let (undone, mut section): (Vec<_>, Vec<_>) = section.map(|(_, unit)| unit).partition(|unit| is_undone(unit));
        // Text beyond such a list is left out, since the list between would be shown with it.
        let own = candidate.unit.range.start;
        section.retain(|unit| {
            let start = unit.range.start;
            !undone.iter().any(|other| (start.min(own)..start.max(own)).contains(&other.range.start))
        });
        let is_shown =
            |(rank, range): &(usize, Range<usize>)| *rank == candidate.rank && overlap(range, &candidate.unit.range);
        // The best-ranked procedure is the answer.
        if is_whole || shown.iter().any(is_shown) {
            return false;
        }
        let wide = procedure(candidate, section);
        let own = lines_in(&text[wide.clone()]);
        if wide != candidate.unit.range && (shown.is_empty() || lines + own <= MAX_LINES) {
            candidate.unit.pieces.clear();
            candidate.unit.range = wide;
            is_whole = shown.is_empty();
        }
        lines += lines_in(candidate.text());
        shown.push((candidate.rank, candidate.unit.range.clone()));
        true
    });
}

/// The text that is shown with the best unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOn {
    /// The rest of its section, if that is short.
    After,
    /// The whole section, if that is short.
    Around,
    /// The text up to the remedy for a failure.
    ToRemedy,
}

/// Extends the best unit by the text around it below its heading, and below the next heading if that announces a
/// remedy and one is requested. A user who reports a failure knows the message; the remedy comes after it.
pub(super) fn read_on(kept: &mut Vec<Kept<'_>>, sought: &Sought<'_>, how: ReadOn) {
    let Some(first) = kept.first_mut() else { return };
    let best = &mut first.candidate;
    let units = units_in(&best.reading.document);
    let start = if how == ReadOn::Around { read_from(best, &units, sought) } else { best.unit.range.start };
    let end = read_on_to(best, start, &units, sought, how == ReadOn::ToRemedy);
    if (start..end) != best.unit.range {
        extend_best(kept, start..end);
    }
}

/// Extends the best unit by the list in its section that has almost the same lead-in, and returns whether there is one:
/// "… is ideal for" and "… is not ideal for". Which of the two is requested may depend on a single word.
pub(super) fn add_counterpart(kept: &mut Vec<Kept<'_>>, sought: &Sought<'_>) -> bool {
    let Some(Kept { candidate: best, .. }) = kept.first() else { return false };
    let text = &best.reading.document.text;
    let is_list = |unit: &Unit| matches!(unit.kind, UnitKind::List { .. }) && !unit.pieces.is_empty();
    let lead_in = |unit: &Unit| sought.splitter.stems(&text[unit.head()]);
    let (own, range) = (lead_in(&best.unit), best.unit.range.clone());
    let is_counterpart = |other: &&Unit| {
        other.section == best.unit.section
            && !overlap(&other.range, &range)
            && is_list(other)
            && own.len() >= LEAST_LEAD_IN
            && common(&own, &lead_in(other)) >= SAME_LEAD_IN
    };
    let units = if is_list(&best.unit) { units_in(&best.reading.document) } else { Vec::new() };
    let union = |other: &Unit| range.start.min(other.range.start)..range.end.max(other.range.end);
    let both = units.iter().find(is_counterpart).map(union);
    let Some(both) = both.filter(|both| screen_lines(&text[both.clone()]) <= SCREEN) else {
        return false;
    };
    extend_best(kept, both);
    true
}

/// If a requested list is spread over numbered sections, extends the best unit to all of them, and returns whether it is:
/// "Goal 1: …" and "Goal 2: …" for "What are our goals?".
pub(super) fn add_series(kept: &mut Vec<Kept<'_>>, sought: &Sought<'_>) -> bool {
    let Some(Kept { candidate: best, .. }) = kept.first().filter(|_| sought.asked == AnswerKind::List) else {
        return false;
    };
    let Some((heading, above)) = best.unit.headings.split_last() else { return false };
    let Some(name) = numbered_name(heading).filter(|name| sought.has_all_of(name)) else { return false };
    let is_of_series = |unit: &&Unit| match unit.headings.strip_prefix(above) {
        Some([own, ..]) => numbered_name(own) == Some(name),
        _ => false,
    };
    let units = units_in(&best.reading.document);
    let series: Vec<_> = units.iter().filter(is_of_series).collect();
    let (Some(first), Some(last)) = (series.first(), series.last()) else { return false };
    let text = &best.reading.document.text;
    // From the line of its heading on, which the range of a unit leaves out.
    let line_of = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
    let start = first.range.start;
    let whole = text[..start].rfind(&first.headings[above.len()]).map_or(start, line_of)..last.range.end;
    if first.section == last.section || screen_lines(&text[whole.clone()]) > SCREEN {
        return false;
    }
    extend_best(kept, whole);
    true
}

/// Returns the words before the number of a heading: "Goal" of "Goal 2: …".
fn numbered_name(heading: &str) -> Option<&str> {
    let at = heading.find(|letter: char| letter.is_ascii_digit())?;
    Some(heading[..at].trim()).filter(|name| name.contains(char::is_alphabetic))
}

/// Extends the best unit to a range of its document, and drops units that are then already shown or no longer fit on the
/// screen.
fn extend_best(kept: &mut Vec<Kept<'_>>, whole: Range<usize>) {
    let Some(first) = kept.first_mut() else { return };
    let best = &mut first.candidate;
    best.unit.range = whole.clone();
    best.unit.pieces.clear();
    let reading = best.reading;
    let mut lines = 0;
    kept.retain(|Kept { candidate, .. }| {
        let is_best = candidate.unit.range == whole;
        let is_shown = std::ptr::eq(reading, candidate.reading) && overlap(&whole, &candidate.unit.range);
        let own = if is_best { lines_in(candidate.text()) } else { lines_of(candidate, LONG_PARAGRAPH) };
        let is_kept = is_best || (!is_shown && lines + own <= MAX_LINES);
        lines += if is_kept { own } else { 0 };
        is_kept
    });
}

/// Returns the end of the text to read on to after a unit, if it is shown from `start`.
fn read_on_to(best: &UnitCandidate<'_>, start: usize, units: &[Unit], sought: &Sought<'_>, to_remedy: bool) -> usize {
    let (text, end) = (&best.reading.document.text, best.unit.range.end);
    let most = if to_remedy { SCREEN } else { READ_ON_TO };
    let (mut last, mut read_to) = (&best.unit, end);
    for next in units.iter().filter(|unit| unit.range.start >= end) {
        // Below one more heading, and below a second if the first names the cause.
        let names_remedy = || next.headings.last().is_some_and(|heading| names_remedy(heading));
        let names_cause = || last.headings.last().is_some_and(|heading| names_cause(heading));
        let is_remedy = || to_remedy && (last.section == best.unit.section || names_cause()) && names_remedy();
        let mut between = text.get(last.range.end..next.range.start).unwrap_or_default().lines();
        let is_joined = between.all(|line| line.trim().is_empty() || line.starts_with('#'));
        let lines = screen_lines(&text[start..next.range.end]);
        let is_other = next.section != last.section && !is_remedy();
        if !is_joined || is_other || lines > most || leads_away(next, text, sought) || is_sibling(best, next) {
            break;
        }
        let own = text[next.range.clone()].trim();
        if opens_part(own) {
            break;
        }
        // Included only with the text that it leads to.
        let is_loose = next.kind == UnitKind::Paragraph && (leads_on(own) || (is_label(own) && !is_field(own)));
        read_to = if is_loose { read_to } else { next.range.end };
        last = next;
    }
    read_to
}

/// Returns whether a text is a line in bold that its author used as a heading.
fn opens_part(text: &str) -> bool {
    let text = without_html(text);
    let bold = text.strip_prefix("**").and_then(|rest| rest.strip_suffix("**"));
    bold.is_some_and(|bold| !bold.contains("**") && !bold.contains([':', '\n']) && !bold.ends_with(is_end))
}

/// Returns the start of the unit's section if the whole section is short, otherwise the start of the unit before it if both
/// are short.
fn read_from(best: &UnitCandidate<'_>, units: &[Unit], sought: &Sought<'_>) -> usize {
    let (text, Range { start, end }) = (&best.reading.document.text, best.unit.range.clone());
    let section = || units.iter().filter(|unit| unit.section == best.unit.section);
    let above: Vec<_> = section().take_while(|unit| unit.range.start < start).collect();
    let before = above.rsplit(|unit| is_disclaimer(&text[unit.range.clone()])).next().unwrap_or_default();
    let last = section().map(|unit| unit.range.end).fold(end, usize::max);
    let first = before.first().map_or(start, |first| first.range.start);
    let leads_away = |unit: &&Unit| leads_away(unit, text, sought) || is_sibling(best, unit);
    // A paragraph of some length with the words of the question needs only its label.
    let stands_alone = best.unit.kind == UnitKind::Paragraph
        && best.features.says() >= SAYS_MOST
        && count_words(&text[start..end]) >= STANDS_ALONE;
    let is_label = |unit: &&Unit| count_words(&text[unit.range.clone()]) <= LABEL;
    if !stands_alone && screen_lines(&text[first..last]) <= READ_ON_TO {
        return if before.iter().any(leads_away) { start } else { first };
    }
    let is_near = |unit: &&Unit| {
        text.get(unit.range.end..start).is_some_and(|between| between.trim().is_empty())
            && screen_lines(&text[unit.range.start..end]) <= READ_ON_TO
    };
    let is_context = |unit: &&Unit| is_near(unit) && (!stands_alone || is_label(unit)) && !leads_away(unit);
    let near = before.last().copied().filter(is_context);
    near.map_or(start, |unit| unit.range.start)
}

/// Returns whether a unit is a table of contents, a paragraph that points elsewhere, or a list of steps that undo the task
/// in question.
fn leads_away(unit: &Unit, text: &str, sought: &Sought<'_>) -> bool {
    let is_pointer = unit.kind == UnitKind::Paragraph && unit.sentences.iter().all(|own| points(&own.plain));
    is_pointer
        || lists_links(text[unit.range.clone()].trim())
        || (!unit.pieces.is_empty() && sought.is_undone_by(&text[unit.head()]))
}

/// Returns whether a text limits the liability of its author.
fn is_disclaimer(text: &str) -> bool {
    has_phrase(text, &DISCLAIMERS)
}

/// Returns whether two units are entries of a glossary: a term on a line of its own, and its meaning after a hard break.
fn is_sibling(best: &UnitCandidate<'_>, other: &Unit) -> bool {
    let text = &best.reading.document.text;
    let is_entry = |unit: &Unit| {
        let term = text[unit.range.clone()].split_once('\n').map(|(term, _)| term);
        term.is_some_and(|term| {
            // An anchor may stand before it.
            let name = without_html(term.trim_end_matches(['\\', ' ']));
            (term.ends_with("  ") || term.ends_with('\\')) && is_label(&name)
        })
    };
    is_entry(&best.unit) && is_entry(other)
}

/// Returns whether a text begins with the number of a step other than the first.
fn is_later_step(text: &str) -> bool {
    let Some((number, rest)) = text.split_once(['.', ')']) else { return false };
    rest.starts_with(char::is_whitespace) && number.parse::<u8>().is_ok_and(|number| number > 1)
}

/// Returns the range of the procedure that a unit is part of: its whole section if that fits, otherwise the steps
/// before it if it continues them, and those after it. A section may have the same procedure for two cases, so a unit
/// that covers the question is only completed.
pub(super) fn procedure(candidate: &UnitCandidate<'_>, mut section: Vec<&Unit>) -> Range<usize> {
    section.sort_by_key(|unit| (unit.range.start, unit.range.end));
    let (own, text) = (&candidate.unit.range, candidate.reading.document.text.as_str());
    // A list of links is a table of contents.
    section.retain(|unit| !lists_links(&text[unit.range.clone()]));
    let continues =
        |at: usize| CONTINUING.iter().any(|opening| text[at..].starts_with(opening)) || is_later_step(&text[at..]);
    let is_step = |unit: &Unit| matches!(unit.kind, UnitKind::Code | UnitKind::List { is_ordered: true });
    let lines = |range: &Range<usize>| lines_in(&text[range.clone()]);
    let whole = section.first().map_or(own.start, |unit| unit.range.start.min(own.start))
        ..section.iter().map(|unit| unit.range.end).fold(own.end, usize::max);
    let most = if section.iter().filter(|unit| is_step(unit)).count() > 1 { MAX_STEP_LINES } else { SHORT_SECTION };
    if candidate.features.says() < SAYS_MOST && lines(&whole) <= most {
        return whole;
    }
    let mut range = own.clone();
    if continues(range.start) {
        for before in section.iter().rev().filter(|unit| unit.range.start < own.start) {
            let wider = before.range.start.min(range.start)..range.end;
            if lines(&wider) > MAX_STEP_LINES {
                break;
            }
            range = wider;
        }
    }
    // A step is shown with the text above it, back to the previous step. The sentence that introduces code may be the
    // last of a paragraph.
    let above = section.iter().rev().filter(|unit| unit.range.start < range.start);
    let is_text = |unit: &&&Unit| matches!(unit.kind, UnitKind::Paragraph | UnitKind::Callout);
    let fits = |unit: &&&Unit| screen_lines(&text[unit.range.start..own.start]) <= TEXT_ABOVE_STEPS;
    if is_step(&candidate.unit) && range.start == own.start {
        let explains = |unit: &&&Unit| EXPLAINING.iter().any(|opening| text[unit.range.start..].starts_with(opening));
        let first = above.take_while(is_text).take_while(fits).take_while(|unit| !explains(unit)).last();
        range.start = first.map_or(range.start, |first| first.range.start);
    }
    let mut is_after_step = is_step(&candidate.unit);
    for after in section.iter().filter(|unit| unit.range.end > own.end) {
        let explains = EXPLAINING.iter().any(|opening| text[after.range.start..].starts_with(opening));
        let is_next = continues(after.range.start) || (is_step(after) != is_after_step && (is_step(after) || explains));
        let wider = range.start..after.range.end;
        if !is_next || lines(&wider) > MAX_STEP_LINES {
            break;
        }
        is_after_step = is_step(after) || explains;
        range = wider;
    }
    range
}
