//! Fast, exact WordPiece token counts for BERT tokenizers.
//!
//! A BERT tokenizer splits text at white space, at punctuation and around CJK ideographs, then encodes each word
//! separately. The count of a text is therefore the sum over its words, and the count of a word can be cached.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::base::token::CountTokens;

/// Capacity of the word cache: a few times the vocabulary of a large folder.
const MAX_REMEMBERED_WORDS: usize = 200_000;

/// Longer words are not cached: they rarely occur twice.
const MAX_REMEMBERED_BYTES: usize = 64;

/// WordPiece encodes longer words as a single `[UNK]`.
const MAX_WORD_CHARS: usize = 100;

/// Counts tokens for a lower-casing BERT tokenizer (normaliser, pre-tokeniser and WordPiece as in `bert-base-uncased`).
///
/// Text that spells a special token, such as `[CLS]`, is counted as ordinary text, which is an upper bound.
pub(crate) struct BertTokens {
    /// Counts the tokens of a word that is not cached.
    spell: Box<dyn Fn(&str) -> usize + Send + Sync>,
    words: RwLock<HashMap<Box<str>, u16>>,
}

impl BertTokens {
    /// Returns a counter that calls `spell` for the number of tokens of each new word.
    pub(crate) fn new(spell: impl Fn(&str) -> usize + Send + Sync + 'static) -> Self {
        Self { spell: Box::new(spell), words: RwLock::default() }
    }

    /// Counts and caches the given words.
    fn learn(&self, unknown: &[&str]) -> usize {
        let mut total = 0;
        for word in unknown {
            // A word that occurs several times in a text is cached at its first occurrence.
            let known = self.words.read().unwrap_or_else(PoisonError::into_inner).get(*word).copied();
            total += known.map_or_else(|| self.learn_word(word), usize::from);
        }
        total
    }

    fn learn_word(&self, word: &str) -> usize {
        let count = (self.spell)(word);
        let mut words = self.words.write().unwrap_or_else(PoisonError::into_inner);
        if word.len() <= MAX_REMEMBERED_BYTES && words.len() < MAX_REMEMBERED_WORDS {
            words.insert(word.into(), u16::try_from(count).unwrap_or(u16::MAX));
        }
        count
    }
}

impl CountTokens for BertTokens {
    fn count(&self, text: &str) -> usize {
        let mut unknown = Vec::new();
        let mut total = 0;
        {
            let words = self.words.read().unwrap_or_else(PoisonError::into_inner);
            for piece in Pieces(text) {
                match piece {
                    Piece::Single => total += 1,
                    Piece::Word(word) => match words.get(word) {
                        Some(count) => total += usize::from(*count),
                        None => unknown.push(word),
                    },
                }
            }
        }
        // Only now, because the read lock is released: a read lock cannot be upgraded to a write lock.
        total + self.learn(&unknown)
    }
}

/// A part of a text that the tokenizer encodes separately.
enum Piece<'a> {
    /// Exactly one token: a punctuation mark, an ideograph, or an over-long word.
    Single,
    /// A word, or a run of non-ASCII text that the tokenizer may split further.
    Word(&'a str),
}

/// Splits a text at positions where the tokenizer is certain to split it.
struct Pieces<'a>(&'a str);

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        self.0 = self.0.trim_start_matches(is_space);
        let first = self.0.chars().next()?;
        if stands_alone(first) {
            self.0 = &self.0[first.len_utf8()..];
            return Some(Piece::Single);
        }
        let plain = self.0.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(self.0.len());
        let end = if self.0.as_bytes().get(plain).is_none_or(|byte| byte.is_ascii() && !is_removed(*byte)) {
            plain
        } else {
            self.0.find(|next| is_space(next) || stands_alone(next)).unwrap_or(self.0.len())
        };
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        let too_long = end == plain && word.len() > MAX_WORD_CHARS;
        Some(if too_long { Piece::Single } else { Piece::Word(word) })
    }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// Returns whether the tokenizer removes the byte, joining the text around it.
fn is_removed(byte: u8) -> bool {
    byte.is_ascii_control() && !is_space(char::from(byte))
}

fn stands_alone(character: char) -> bool {
    character.is_ascii_punctuation()
        || matches!(u32::from(character),
            0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::Tokenizer;

    use super::*;

    const TOKENIZER: &[u8] =
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8/tokenizer.json"));

    fn tokens() -> &'static BertTokens {
        static TOKENS: std::sync::LazyLock<BertTokens> = std::sync::LazyLock::new(|| {
            let mut tokenizer = Tokenizer::from_bytes(TOKENIZER).unwrap();
            tokenizer.with_truncation(None).unwrap().with_padding(None);
            BertTokens::new(move |word| tokenizer.encode_fast(word, false).unwrap().len())
        });
        &TOKENS
    }

    #[test]
    fn ordinary_text_counts_as_the_tokenizer_counts_it() {
        for text in [
            "",
            "Hello, world!",
            "The `IOCTL_STORAGE_QUERY_PROPERTY` request (0x2D1400) – naïve café, “quoted”…",
            "漢字とかな混じりの文。한국어 문장도 있다.",
            "tab\tand\r\nline\u{a0}space \u{7f}del\u{1}eted \u{200b}zero",
            "🦀🦀 crab\u{301} e\u{301}",
        ] {
            assert_eq!(tokens().count(text), (tokens().spell)(text), "{text}");
        }
        assert_eq!(tokens().count(&"x".repeat(5000)), 1);
    }

    #[test]
    fn special_tokens_in_the_text_count_as_text() {
        assert!(tokens().count("[CLS] and [PAD]") >= (tokens().spell)("[CLS] and [PAD]"));
    }

    proptest! {
        #[test]
        fn count_is_the_tokenizers_own(text in "\\PC{0,200}|[ -~\\n\\t]{0,300}|([a-zA-Z]{1,12}[ ,.\\n]){0,60}") {
            let own = (tokens().spell)(&text);
            let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].iter().any(|token| text.contains(token));
            prop_assert!(tokens().count(&text) == own || special && tokens().count(&text) > own);
        }

        #[test]
        fn count_is_exact_on_any_characters(text in proptest::collection::vec(any::<char>(), 0..80)) {
            let text: String = text.into_iter().collect();
            prop_assert!(tokens().count(&text) == (tokens().spell)(&text), "{text:?}");
        }
    }
}
