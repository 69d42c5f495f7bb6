//! Which words are too common to tell where a text is from.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::RARE_LETTERS;
use crate::base::word::WordSplitter;
use crate::kb::embed::common_words;

/// Shortest number that tells something, in digits.
const RARE_DIGITS: usize = 4;

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let splitter = WordSplitter::default();
    let stems = common_words().flat_map(|word| splitter.words(word)).map(|word| word.stem).collect();
    Lexicon { splitter, stems }
});

/// The common words of English.
pub(super) struct Lexicon {
    /// Splits texts as the rest of the program does.
    pub(super) splitter: WordSplitter,
    stems: HashSet<String>,
}

impl Lexicon {
    /// Returns the one there is; it is made when it is first asked for, which takes some 10 ms.
    pub(super) fn get() -> &'static Self {
        &LEXICON
    }

    /// Tells whether a word, by its stem, is common.
    pub(super) fn is_common(&self, stem: &str) -> bool {
        if stem.chars().all(|letter| letter.is_ascii_digit()) {
            stem.len() < RARE_DIGITS
        } else {
            self.stems.contains(stem)
        }
    }

    /// Tells whether a lower-case word is rare.
    pub(super) fn is_rare(&self, word: &[char]) -> bool {
        let text: String = word.iter().collect();
        let is_common = || self.splitter.words(&text).iter().all(|word| self.is_common(&word.stem));
        word.len() >= RARE_LETTERS && !is_common()
    }
}
