//! Code words in a question. A unit about a different code word does not answer it, even with the same other words.

use std::collections::HashSet;

use crate::base::word::{WordSplitter, find_words};

/// A code word in a question, such as `db.m5.large`, `max_tokens`, `401k` or `7.6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeWord {
    /// In lower case.
    text: String,
    stem: String,
    /// Whether it contains a sign, like `db.m5.large` and `max_tokens`: it has no other spelling.
    pub(super) has_sign: bool,
}

impl CodeWord {
    /// Returns the code words of a question.
    pub(super) fn all(question: &str, splitter: &WordSplitter) -> Vec<Self> {
        let is_edge = |letter: char| !letter.is_alphanumeric();
        let typed: Vec<_> = question.split_whitespace().collect();
        let words: Vec<_> = typed.iter().map(|word| word.trim_matches(is_edge)).collect();
        let found = |(at, word): (usize, &&str)| {
            let has_digit = word.contains(char::is_alphabetic) && word.contains(|letter: char| letter.is_ascii_digit());
            let option = typed[at].trim_matches(['`', '"', '\'', ',', '?', ';', '(', ')', '.']);
            let is_option = is_option(option);
            let has_sign = has_sign_within(word) || is_option;
            let own = if is_option { option } else { word };
            let text = hexadecimal(own).unwrap_or_else(|| own.to_lowercase());
            let is_release = || at > 0 && is_release(words[at - 1], word);
            let is_code = has_digit || has_sign || text.starts_with("0x") || is_release();
            is_code.then(|| Self { text, stem: splitter.stem(word), has_sign })
        };
        words.iter().enumerate().filter_map(found).collect()
    }

    /// Returns the name of a document as a code word with a single spelling.
    pub(super) fn of_name(name: &str, splitter: &WordSplitter) -> Self {
        Self { text: name.to_lowercase(), stem: splitter.stem(name), has_sign: true }
    }

    /// Returns whether a text in lower case has the word, given its stems.
    pub(super) fn is_in(&self, text: &str, words: &HashSet<String>) -> bool {
        words.contains(&self.stem) || find_words(text, &self.text).is_some()
    }
}

/// Returns a number without the leading zeros that debuggers print, as documentation writes it: `0x3470`.
fn hexadecimal(word: &str) -> Option<String> {
    let padded = word.strip_prefix("0x").unwrap_or(word);
    let digits = padded.trim_start_matches('0').to_lowercase();
    let is_padded =
        padded.len() >= 8 && padded.starts_with('0') && padded.chars().all(|digit| digit.is_ascii_hexdigit());
    (is_padded && !digits.is_empty()).then(|| format!("0x{digits}"))
}

/// Returns whether a word is an option of a command: `-Force`, `--force`, `/force`.
fn is_option(word: &str) -> bool {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix(['-', '/'])).unwrap_or_default();
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    name.len() > 1 && name.starts_with(char::is_alphabetic) && name.chars().all(is_letter)
}

/// Returns whether a word is the number of a release: one with dots, after a name or a word for releases. "PowerShell
/// 7.6", "version 2.0.1", but neither "2.5 kg" nor "on 12.05.2022".
fn is_release(before: &str, word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|digit| digit.is_ascii_digit());
    let is_named = before.starts_with(char::is_uppercase) || matches!(before, "version" | "release" | "since");
    is_named && word.contains('.') && word.split('.').all(is_number)
}

fn has_sign_within(word: &str) -> bool {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let mut parts = word.split('.');
    // `U.S` has single letters.
    let is_dotted = word.contains('.') && parts.all(|part| part.chars().count() > 1);
    // A model such as `pump-large-2`. With one hyphen it is also written otherwise: `ISO 8601`.
    let is_numbered =
        word.matches('-').count() > 1 && word.starts_with(char::is_alphabetic) && word.ends_with(is_digit);
    word.contains(char::is_alphabetic) && (is_dotted || is_numbered || word.contains('_') || word.contains("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_with_letters_and_digits_or_a_sign_within_is_code() {
        let splitter = WordSplitter::default();
        let names = |question: &str| -> Vec<_> {
            CodeWord::all(question, &splitter).into_iter().map(|name| (name.text, name.has_sign)).collect()
        };
        let code = |text: &str| (text.to_owned(), true);
        assert_eq!(names("What is the memory of db.m5.large, and of u_small?"), [code("db.m5.large"), code("u_small")]);
        assert_eq!(names("Does my 401k grow?"), [("401k".to_owned(), false)]);
        assert_eq!(names("Is pump-large-2 red?"), [code("pump-large-2")]);
        assert_eq!(names("What do `--turn`, -Stop and /reset do?"), [code("--turn"), code("-stop"), code("/reset")]);
        assert_eq!(names("Is it of ISO-8601?"), [("iso-8601".to_owned(), false)]);
        assert_eq!(names("When does Pump 7.6 end, and version 7.5.1?").len(), 2);
        assert_eq!(names("Who opened it on 12.05.2022, at 18.30, for 19.99?"), []);
        assert_eq!(names("what of the u.s. and read/write access?"), []);
        assert_eq!(
            names("What is 000000000000347A or 0x00003470?").into_iter().map(|name| name.0).collect::<Vec<_>>(),
            ["0x347a", "0x3470"]
        );
        assert_eq!(names("Where do the valves open at 7?"), []);
    }

    #[test]
    fn code_word_is_found_by_its_stem_or_as_it_is_written() {
        let splitter = WordSplitter::default();
        let name = &CodeWord::all("What of db.m5.large?", &splitter)[0];
        let is_in = |text: &str| name.is_in(text, &splitter.stems(text));
        assert!(is_in("| db.m5.large | 64 |") && !is_in("| db.m5.12xlarge | 64 |"));
    }
}
