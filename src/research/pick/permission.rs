//! Recognises questions about permission, and texts that give it.

use super::negation::negates;
use super::wording::has_word;

/// Openings of a question about permission, and words of a text that gives it. Not "can", which any manual has.
const ASKS_FOR_PERMISSION: [&str; 11] = [
    "can i ", "can we ", "can my ", "can our ", "may i ", "may we ", "may my ", "may our ", "am i allowed ",
    "are we allowed ", "is it ok ",
];
const PERMISSIONS: &str = "may|allow|allows|allowed|permit|permits|permitted";

/// Returns whether a question asks whether something is allowed.
pub(super) fn asks_for_permission(question: &str) -> bool {
    let lower = question.trim_start().to_lowercase();
    ASKS_FOR_PERMISSION.iter().any(|opening| lower.starts_with(opening))
}

/// Returns whether a text allows something. With a capital, "May" is a month.
pub(super) fn permits(text: &str) -> bool {
    has_word(text, PERMISSIONS) && !negates(text)
}
