//! Looks for words and phrases in a text, with those that several files look for.

/// Verbs that may follow a noun, as in "what statuses can …". They tell it from a verb, as in "what separates …".
pub(super) const AUXILIARIES: &str =
    "can|could|are|were|do|does|did|must|should|shall|have|has|had|may|might|will|would|am|is|was";

/// Words that open an embedded question, which is not a subject: "Tell me about how pumps are oiled".
pub(super) const CLAUSES: &str = "who|whom|whose|what|which|when|where|why|how|whether|if";

/// Words that ask for the difference between two things.
pub(super) const TELLS_APART: [&str; 13] = [
    "compare ", "compared with ", "compared to ", "difference between ", "differences between ", "vs ", "vs. ",
    "versus ", "different from ", "what separates ", "what distinguishes ", "distinguish between ", "tell apart ",
];

/// Returns the words of a text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter(|word| !word.is_empty())
}

/// Returns the words of a text, and empty texts between marks: words that follow each other have no mark between them.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
}

/// Returns whether a text in lower case has one of some words, which are divided by `|`.
pub(super) fn has_word(text: &str, wanted: &str) -> bool {
    words(text).any(|word| wanted.split('|').any(|wanted| wanted == word))
}

/// Returns whether a text has one of some phrases, each in lower case, at the start of a word.
pub(super) fn has_phrase(text: &str, phrases: &[&str]) -> bool {
    let text = text.to_lowercase();
    let is_start = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
    phrases.iter().any(|phrase| text.match_indices(phrase).any(|(at, _)| is_start(at)))
}
