//! A question for a report on a subject becomes the sides a reader expects of one.

use super::comparison::without_courtesy;
use super::shape::{QUESTION_WORDS, Span};

/// Words of a subject, at most; more are a question of their own.
const MAX_SUBJECT_WORDS: usize = 12;

/// What a text on a subject is called.
const TEXTS: &str =
    "report|overview|summary|survey|introduction|briefing|brief|article|essay|profile|study|write-up|page";

/// The sides of a subject, in the order a reader meets them, in words that headings and sentences about them use.
const SIDES: [&str; 6] = [
    "background, origin and history",
    "structure, parts and how it works",
    "course of events, timeline and results",
    "people and organisations involved",
    "effects, consequences and aftermath",
    "reactions, criticism and open problems",
];

/// Returns the subject of “write a report about X”, “an overview of X”, “everything about X”.
pub(super) fn subject(span: Span<'_>) -> Option<&str> {
    let span = without_courtesy(span.trim());
    let opening =
        span.strip_any("tell me |give us |prepare |draft |produce |create |compile |i need |show me ").unwrap_or(span);
    let rest = everything(opening).or_else(|| text_on(opening))?;
    let subject = rest.strip_any(": |the subject of |the topic of ").unwrap_or(rest).trim();
    let words = subject.words().count();
    (1..=MAX_SUBJECT_WORDS).contains(&words).then_some(subject.text)
}

fn everything(span: Span<'_>) -> Option<Span<'_>> {
    span.strip_any("all about |everything about |everything there is to know about |everything we know about ")
}

/// Reads “a comprehensive, well organised report about”, up to the subject.
fn text_on(span: Span<'_>) -> Option<Span<'_>> {
    let (at, joint) = span.first_of(" about:| about | on:| on | of:| of ")?;
    let (text, rest) = (span.slice(0, at), span.after(at + joint.len()));
    let is_text = text.words().last().is_some_and(|word| TEXTS.split('|').any(|known| known == word));
    // “The summary of X” and “what does the report on X say” are about a text there is.
    (is_text && !text.mask.starts_with("the ") && !text.starts_with_word(QUESTION_WORDS)).then_some(rest)
}

/// Returns what is asked of each side of a subject.
pub(super) fn sides(subject: &str) -> Vec<String> {
    SIDES.iter().map(|side| format!("{subject}: {side}")).collect()
}
