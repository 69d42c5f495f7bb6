//! Looks for words and phrases in a text.

/// Returns the words of a text, and empty texts between marks.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
}

pub(super) fn has_digit(word: &str) -> bool {
    word.contains(|letter: char| letter.is_ascii_digit())
}

/// Returns whether a text in lower case has one of some words, which are divided by `|`.
pub(super) fn has_word(text: &str, wanted: &str) -> bool {
    words(text).any(|word| !word.is_empty() && wanted.split('|').any(|wanted| wanted == word))
}

/// Returns whether a text has one of some phrases, each in lower case, at the start of a word.
pub(super) fn has_phrase(text: &str, phrases: &[&str]) -> bool {
    let text = text.to_lowercase();
    let is_start = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
    phrases.iter().any(|phrase| text.match_indices(phrase).any(|(at, _)| is_start(at)))
}
