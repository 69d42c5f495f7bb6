//! A BERT tokenizer whose vocabulary loads in a millisecond or two.
//!
//! The tokens are the same that `tokenizer.json` yields; parsing that file takes as long as several searches.

use rustc_hash::{FxBuildHasher, FxHashMap};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Result};

/// Special tokens. As in `tokenizer.json`, text that spells one is encoded as that token.
const SPECIAL: [&str; 5] = ["[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]"];

/// Encodes a word that the vocabulary cannot spell.
const UNKNOWN: &str = "[UNK]";

/// Prefix of tokens that continue a word.
const CONTINUATION: &str = "##";

/// Longer words are encoded as [`UNKNOWN`], as in `tokenizer.json`. It also bounds the matching, which is quadratic.
const MAX_WORD_CHARS: usize = 100;

/// A vocabulary of whole words, and of pieces that other words consist of.
pub(super) struct WordPiece {
    // The vocabulary is part of the program, so a hash that resists crafted keys would only cost time.
    starts: FxHashMap<&'static [u8], u32>,
    continuations: FxHashMap<&'static [u8], u32>,
    unknown: u32,
}

impl WordPiece {
    /// Parses a vocabulary with one token per line; the line number is the token's id.
    pub(super) fn new(vocabulary: &'static str) -> Self {
        let map = |capacity| FxHashMap::with_capacity_and_hasher(capacity, FxBuildHasher);
        let (mut starts, mut continuations) = (map(vocabulary.len() / 8), map(vocabulary.len() / 32));
        // Bytes, since searching for a character is slow on short lines.
        let lines = vocabulary.trim_end().as_bytes().split(|byte| *byte == b'\n');
        for (token, id) in lines.zip(0..) {
            match token.strip_prefix(CONTINUATION.as_bytes()) {
                Some(piece) if !piece.is_empty() => continuations.insert(piece, id),
                _ => starts.insert(token, id),
            };
        }
        let unknown = starts.get(UNKNOWN.as_bytes()).copied().unwrap_or_default();
        Self { starts, continuations, unknown }
    }

    /// Returns the tokens of `text`, without `[CLS]` and `[SEP]`.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some((before, special)) = first_special(rest) {
            self.encode_plain(before, &mut ids)?;
            ids.push(self.starts.get(special.as_bytes()).copied().unwrap_or(self.unknown));
            rest = &rest[before.len() + special.len()..];
        }
        self.encode_plain(rest, &mut ids)?;
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut words = PreTokenizedString::from(text);
        words.normalize(|word| BertNormalizer::default().normalize(word))?;
        BertPreTokenizer.pre_tokenize(&mut words)?;
        for (word, _, _) in words.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            self.spell(word, ids);
        }
        Ok(())
    }

    /// Appends the tokens of one word: the longest match first, then the longest match of the rest, and so on.
    fn spell(&self, word: &str, ids: &mut Vec<u32>) {
        let before = ids.len();
        let mut rest = if word.chars().count() > MAX_WORD_CHARS { None } else { Some(word) };
        while let Some(left) = rest.filter(|left| !left.is_empty()) {
            let pieces = if ids.len() == before { &self.starts } else { &self.continuations };
            let ends = left.char_indices().rev().map(|(start, letter)| start + letter.len_utf8());
            let longest = ends.into_iter().find_map(|end| Some((end, *pieces.get(&left.as_bytes()[..end])?)));
            rest = longest.map(|(end, id)| {
                ids.push(id);
                &left[end..]
            });
        }
        // A word is spelled as a whole or not at all.
        if rest.is_none() {
            ids.truncate(before);
            ids.push(self.unknown);
        }
    }
}

/// Returns the first special token in `text` and the text before it.
fn first_special(text: &str) -> Option<(&str, &'static str)> {
    text.match_indices('[').find_map(|(at, _)| {
        let special = SPECIAL.into_iter().find(|special| text[at..].starts_with(special))?;
        Some((&text[..at], special))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use tokenizers::Tokenizer;

    use super::super::builtin::VOCABULARY;
    use super::*;

    static PUBLISHED: LazyLock<Tokenizer> = LazyLock::new(|| {
        let json = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/all-MiniLM-L6-v2-int8/tokenizer.json"));
        let mut tokenizer = Tokenizer::from_bytes(json).unwrap();
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).unwrap();
        tokenizer
    });

    static OURS: LazyLock<WordPiece> = LazyLock::new(|| WordPiece::new(VOCABULARY));

    fn published(text: &str) -> Vec<u32> {
        PUBLISHED.encode_fast(text, false).unwrap().get_ids().to_vec()
    }

    #[test]
    fn vocabulary_is_the_published_one() {
        let tokens: Vec<_> = VOCABULARY.lines().collect();
        assert_eq!(tokens.len(), PUBLISHED.get_vocab_size(true));
        for (token, id) in tokens.into_iter().zip(0..) {
            assert_eq!(PUBLISHED.token_to_id(token), Some(id), "{token}");
        }
    }

    #[test]
    fn ordinary_text_is_read_as_published() {
        for text in [
            "",
            "Hello, world!",
            "Set-ExecutionPolicy -Scope CurrentUser `RemoteSigned`; naïve café, “quoted”…",
            "漢字とかな混じりの文。한국어 문장도 있다.",
            "a text with [CLS] in it, [MASK][SEP] and [cls] [UNK",
            "🦀🦀 crab\u{301} e\u{301} \u{200b}zero \u{7f}del\u{1}eted",
            include_str!("word_piece.rs"),
        ] {
            assert_eq!(OURS.encode(text).unwrap(), published(text), "{text}");
        }
        let long = "x".repeat(500);
        assert_eq!(OURS.encode(&long).unwrap(), published(&long));
    }

    proptest! {
        #[test]
        fn tokens_are_the_published_ones(
            text in "\\PC{0,200}|[ -~\\n\\t]{0,300}|([a-zA-Z]{1,12}[ ,.\\n]){0,60}|(\\[|\\]|CLS|MASK|[a-c #]){0,30}",
        ) {
            prop_assert_eq!(OURS.encode(&text).unwrap(), published(&text));
        }

        #[test]
        fn tokens_of_any_characters_are_the_published_ones(text in proptest::collection::vec(any::<char>(), 0..80)) {
            let text: String = text.into_iter().collect();
            prop_assert_eq!(OURS.encode(&text).unwrap(), published(&text));
        }
    }
}
