//! Splits text into words as the full-text index does: lower-cased, stemmed, with positions.

use std::collections::HashSet;
use std::ops::Range;

use rust_stemmers::{Algorithm, Stemmer};

use super::language::Language;

/// A word of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Lower-cased and stemmed.
    pub(crate) stem: String,
    /// Position in the text, in bytes.
    pub(crate) range: Range<usize>,
}

/// Splits text into words with the English stemmer that the full-text index uses.
pub struct WordSplitter {
    stemmer: Stemmer,
}

impl Default for WordSplitter {
    fn default() -> Self {
        Self { stemmer: Stemmer::create(Algorithm::English) }
    }
}

impl WordSplitter {
    /// Returns all words of `text`: runs of letters and digits; each ideograph is a word.
    pub fn words(&self, text: &str) -> Vec<Word> {
        let place = |range: Range<usize>| Word { stem: self.stem(&text[range.clone()]), range };
        runs(text).into_iter().map(place).collect()
    }

    /// Returns the distinct stems of `text`.
    pub(crate) fn stems(&self, text: &str) -> HashSet<String> {
        self.words(text).into_iter().map(|word| word.stem).collect()
    }

    /// Returns the distinct stems of `text` that are not stop words of its language, in order of appearance.
    ///
    /// Returns the stop words themselves if there is nothing else (`to be or not to be`).
    pub fn key_stems(&self, text: &str) -> Vec<String> {
        let words = lower_cased(text);
        let language = language(&words);
        let mut key = Vec::new();
        let mut all = Vec::new();
        for (_, word) in &words {
            let stem = self.stemmer.stem(word).into_owned();
            let stems = if language.is_stop_word(word) { &mut all } else { &mut key };
            if !stems.contains(&stem) {
                stems.push(stem);
            }
        }
        if key.is_empty() { all } else { key }
    }

    /// Returns `text` without its stop words, or unchanged if nothing else remains.
    pub fn without_stop_words(&self, text: &str) -> String {
        let words = lower_cased(text);
        let language = language(&words);
        let kept: Vec<_> = words
            .iter()
            .filter(|(_, word)| !language.is_stop_word(word))
            .map(|(range, _)| &text[range.clone()])
            .collect();
        if kept.is_empty() { text.to_owned() } else { kept.join(" ") }
    }

    /// Returns whether `text` has a word that is not a stop word.
    pub fn has_key_word(&self, text: &str) -> bool {
        let words = lower_cased(text);
        let language = language(&words);
        words.iter().any(|(_, word)| !language.is_stop_word(word))
    }

    fn stem(&self, word: &str) -> String {
        self.stemmer.stem(&word.to_lowercase()).into_owned()
    }
}

/// Returns the language of a text, if it has enough function words to tell.
pub(crate) fn language_of(text: &str) -> Option<&'static Language> {
    Language::of(lower_cased(text).iter().map(|(_, word)| word.as_str()))
}

fn language(words: &[(Range<usize>, String)]) -> &'static Language {
    Language::of(words.iter().map(|(_, word)| word.as_str())).unwrap_or_else(Language::english)
}

fn lower_cased(text: &str) -> Vec<(Range<usize>, String)> {
    runs(text).into_iter().map(|range| (range.clone(), text[range].to_lowercase())).collect()
}

/// Returns the byte ranges of the words of `text`.
fn runs(text: &str) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = None;
    for (at, letter) in text.char_indices() {
        let is_ideograph = is_ideograph(letter);
        if letter.is_alphanumeric() && !is_ideograph {
            start.get_or_insert(at);
            continue;
        }
        runs.extend(start.take().map(|start| start..at));
        if is_ideograph {
            runs.push(at..at + letter.len_utf8());
        }
    }
    runs.extend(start.map(|start| start..text.len()));
    runs
}

/// Returns whether a character belongs to a script written without spaces between words (Thai, Lao, Japanese, Chinese).
fn is_ideograph(letter: char) -> bool {
    matches!(u32::from(letter), 0x0E00..=0x0EFF | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// Returns the first position of `words` in `text` at word boundaries, in bytes.
pub(crate) fn find_words(text: &str, words: &str) -> Option<usize> {
    let is_edge = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    let is_whole =
        |at: &usize| is_edge(text[..*at].chars().next_back()) && is_edge(text[at + words.len()..].chars().next());
    text.match_indices(words).map(|(at, _)| at).find(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_know_where_they_stand() {
        let words = WordSplitter::default().words("Don’t re-run: indexes!");
        let shown: Vec<_> = words.iter().map(|word| (word.stem.as_str(), word.range.start)).collect();
        assert_eq!(shown, [("don", 0), ("t", 6), ("re", 8), ("run", 11), ("index", 16)]);
    }

    #[test]
    fn ideographs_are_words_by_themselves() {
        let words = WordSplitter::default().words("知识 base");
        let shown: Vec<_> = words.iter().map(|word| word.stem.as_str()).collect();
        assert_eq!(shown, ["知", "识", "base"]);
    }

    #[test]
    fn key_stems_leave_out_stop_words_unless_there_is_nothing_else() {
        let splitter = WordSplitter::default();
        assert_eq!(splitter.key_stems("How are the budgets enforced, and budget what?"), ["budget", "enforc"]);
        assert_eq!(splitter.key_stems("to be or not to be"), ["to", "be", "or", "not"]);
        assert_eq!(splitter.without_stop_words("what is the writer lock"), "writer lock");
        assert_eq!(splitter.key_stems("Wie viele Urlaubstage habe ich?"), ["urlaubstag"]);
        assert!(splitter.has_key_word("what is a lock") && !splitter.has_key_word("what is it for"));
    }
}
