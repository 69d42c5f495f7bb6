//! The parts of a question that asks several things, each made complete in itself.

use super::shape::{ORDER_WORDS, QUESTION_WORDS, Span, VERBS, first_word, is_in, is_name_like};
use crate::base::word::{WordSplitter, find_words};

/// Words between a question word and what is asked about.
const LEADING_WORDS: &str = "how what why when where who which whose is are was were do does did can could should will \
    would has have explain describe list outline discuss exactly";

/// Words a subject does not reach beyond.
const PREPOSITIONS: &str = "in on for with when at from to by after before during if while as and or";

/// Splits a question into the things it asks, as they stand.
pub(super) fn parts<'a>(span: Span<'a>, splitter: &WordSplitter) -> Vec<Span<'a>> {
    let items = numbered_items(span);
    if items.len() >= 2 {
        return items;
    }
    let mut parts: Vec<Span<'a>> = Vec::new();
    let mut rest = span;
    while let Some(at) = rest.mask.find(['?', ';']) {
        parts.push(rest.slice(0, at + 1));
        rest = rest.after(at + 1);
    }
    parts.push(rest);
    parts.retain(|part| splitter.has_key_word(part.text));
    // With a remark among them, it is not clear what it belongs to.
    let asks = |part: &Span<'_>| {
        let part = opening(*part);
        part.text.contains('?') || part.starts_with_word(QUESTION_WORDS) || part.starts_with_word(ORDER_WORDS)
    };
    if !parts.iter().all(asks) {
        parts = vec![span];
    }
    parts.into_iter().flat_map(|part| clauses(part, splitter)).collect()
}

/// Drops what only joins a part to the one before.
fn opening(span: Span<'_>) -> Span<'_> {
    let mut span = span.trim();
    while let Some(rest) = span.strip_any("also |also, |and |then |plus |please |finally |finally, ") {
        span = rest.trim();
    }
    span
}

/// Splits “how does X work, and what are its limits” where one question ends and the next begins.
fn clauses<'a>(span: Span<'a>, splitter: &WordSplitter) -> Vec<Span<'a>> {
    let mut clauses = Vec::new();
    let mut start = 0;
    let mut from = 0;
    while let Some((at, length)) = joint(span.after(from)).map(|(at, length)| (from + at, length)) {
        from = at + length;
        let (left, right) = (opening(span.slice(start, at)), span.after(from).trim());
        let asks = left.starts_with_word(QUESTION_WORDS) || left.starts_with_word(ORDER_WORDS);
        let is_whole = |part: Span<'_>| {
            let last = part.words().last().unwrap_or_default();
            part.words().count() >= 2 && !is_in(last, QUESTION_WORDS) && splitter.has_key_word(part.text)
        };
        // A clause that says nothing by itself stays with its neighbour.
        if asks && is_whole(left) && is_whole(right) {
            clauses.push(span.slice(start, at));
            start = from;
        }
    }
    clauses.push(span.after(start));
    clauses
}

/// Finds the next place where a new question may begin: how much stands before it, and how long what joins it is.
fn joint(span: Span<'_>) -> Option<(usize, usize)> {
    let joints = [(", and ", true), (" and ", true), (", ", false)];
    let mut found: Option<(usize, usize)> = None;
    for (joint, is_and) in joints {
        let begins = |at: &usize| {
            let word = span.after(at + joint.len()).words().next().unwrap_or_default();
            // After a comma alone, “which” and “where” mostly go on with the same thought.
            let is_relative = is_in(word, "which where who whose when");
            is_in(word, QUESTION_WORDS) && (is_and || !is_relative)
                || is_and && is_in(word, ORDER_WORDS)
                || joint == ", and " && is_in(word, "is are does do can should")
        };
        if let Some(at) = span.mask.match_indices(joint).map(|(at, _)| at).find(begins) {
            let is_before = found.is_none_or(|(best, length)| (at, length) < (best, joint.len()));
            found = if is_before { Some((at, joint.len())) } else { found };
        }
    }
    found
}

/// Returns the items of a list “1. … 2. …”, where there is one.
fn numbered_items(span: Span<'_>) -> Vec<Span<'_>> {
    let mut items = Vec::new();
    let mut rest = span;
    let mut is_open = false;
    for number in 1.. {
        let marks = [format!("{number}. "), format!("{number}) "), format!("({number}) ")];
        let starts = |mark: &String| {
            let is_start = |at: &usize| rest.mask[..*at].is_empty() || rest.mask[..*at].ends_with([' ', '(']);
            rest.mask.match_indices(mark.as_str()).map(|(at, _)| at).find(is_start).map(|at| (at, mark.len()))
        };
        let Some((at, length)) = marks.iter().filter_map(starts).min() else { break };
        if is_open {
            items.push(rest.slice(0, at));
        }
        is_open = true;
        rest = rest.after(at + length);
    }
    if is_open {
        items.push(rest);
    }
    items.retain(|item| item.trim().text.chars().any(char::is_alphanumeric));
    items
}

/// Makes each part complete in itself: the subject of the first stands for “it” in the others.
pub(super) fn complete(parts: &[Span<'_>]) -> Vec<String> {
    let first = opening(parts[0]);
    let subject = subject(first);
    let mut complete = vec![sentence(first, first.text)];
    for part in &parts[1..] {
        let part = opening(*part);
        let text = match (pronoun(part), &subject) {
            (Some((at, word)), Some(subject)) => {
                let name = if matches!(word, "its" | "their") { format!("{subject}'s") } else { subject.clone() };
                format!("{}{name}{}", &part.text[..at], &part.text[at + word.len()..])
            }
            (Some(_), None) => format!("{} (as to: {})", part.text, first.text),
            (None, _) => part.text.to_owned(),
        };
        complete.push(sentence(part, &text));
    }
    complete
}

/// Writes a part as a sentence of its own.
fn sentence(part: Span<'_>, text: &str) -> String {
    let mut letters = text.chars();
    let start = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let starts_question =
        part.starts_with_word(QUESTION_WORDS) || part.starts_with_word("is are does do did can should");
    format!("{start}{}{}", letters.as_str(), if starts_question { "?" } else { "" })
}

/// Finds a word that stands for something an earlier part named.
fn pronoun(part: Span<'_>) -> Option<(usize, &'static str)> {
    const EXPLETIVES: &str = "that possible necessary advisable true important worth";
    let found = ["its", "it", "they", "their", "them"].into_iter().filter_map(|word| {
        let at = find_words(part.mask, word)?;
        let next = part.after(at + word.len());
        let is_expletive = word == "it" && next.starts_with_word(EXPLETIVES);
        (!is_expletive).then_some((at, word))
    });
    let (at, word) = found.min()?;
    // Another name before it is what it stands for.
    let names_other = part.text[..at].split_whitespace().skip(1).any(is_name_like);
    (!names_other).then_some((at, word))
}

/// Returns what a question is about, where that can be told.
fn subject(first: Span<'_>) -> Option<String> {
    let mut rest = first;
    while rest.starts_with_word(LEADING_WORDS) {
        let word = rest.words().next().unwrap_or_default();
        rest = rest.after(rest.mask.find(word)? + word.len()).trim();
    }
    let end = [first_word(rest, VERBS), first_word(rest, PREPOSITIONS)].into_iter().flatten().map(|(at, _)| at).min();
    let subject = end.map_or(rest, |end| rest.slice(0, end)).trim();
    let is_subject = (1..=5).contains(&subject.text.split_whitespace().count());
    let is_pronoun = subject.words().all(|word| is_in(word, "it its they them we i you this that there"));
    (is_subject && !is_pronoun && subject.text.chars().any(char::is_alphanumeric)).then(|| subject.text.to_owned())
}
