//! Token counts: the trait every counter implements, and a counter for OpenAI's encodings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tiktoken_rs::tokenizer::{Tokenizer, get_tokenizer};
use tiktoken_rs::{CoreBPE, bpe_for_tokenizer};

use super::id::as_text;

/// Counts the tokens of a text for a particular model.
///
/// Special tokens that a model adds around an input (`[CLS]`, `[SEP]`) are not counted; a caller that fills the model's
/// window leaves room for them.
pub trait CountTokens: Send + Sync {
    /// Returns an upper bound on the number of tokens in `text`: exact or slightly more, never less.
    fn count(&self, text: &str) -> usize;
}

/// Longest piece handed to the tokenizer, in bytes. Its regular expressions backtrack and panic on very long runs of
/// one kind of character, which a document or a web page may contain.
const MAX_PIECE_BYTES: usize = 16 * 1_024;

/// A vocabulary of OpenAI. The tables are large: each is loaded on first use and shared from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Encoding {
    /// GPT-4o and later.
    #[default]
    O200k,
    /// The open-weight GPT models.
    O200kHarmony,
    /// GPT-4 and GPT-3.5.
    Cl100k,
}

/// The text does not name an encoding.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an encoding (expected o200k, o200k_harmony or cl100k)")]
pub struct ParseEncodingError(String);

impl Encoding {
    fn table(self) -> &'static CoreBPE {
        let tokenizer = match self {
            Self::O200k => Tokenizer::O200kBase,
            Self::O200kHarmony => Tokenizer::O200kHarmony,
            Self::Cl100k => Tokenizer::Cl100kBase,
        };
        bpe_for_tokenizer(tokenizer).expect("the tables of every tokenizer are part of the program")
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::O200k => "o200k",
            Self::O200kHarmony => "o200k_harmony",
            Self::Cl100k => "cl100k",
        })
    }
}

impl FromStr for Encoding {
    type Err = ParseEncodingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix("_base").unwrap_or(text) {
            "o200k" => Ok(Self::O200k),
            "o200k_harmony" => Ok(Self::O200kHarmony),
            "cl100k" => Ok(Self::Cl100k),
            _ => Err(ParseEncodingError(text.to_owned())),
        }
    }
}

as_text!(Encoding);

/// Counts tokens for one language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenCounter {
    encoding: Encoding,
    is_guess: bool,
}

impl TokenCounter {
    /// Returns the counter for a model. If the encoding is unknown, counts with `o200k` and adds a fifth, because other
    /// vocabularies are usually smaller and yield more tokens.
    pub(crate) fn for_model(model: &str) -> Self {
        match get_tokenizer(model) {
            Some(Tokenizer::O200kBase) => Self::of(Encoding::O200k),
            Some(Tokenizer::O200kHarmony) => Self::of(Encoding::O200kHarmony),
            Some(Tokenizer::Cl100kBase) => Self::of(Encoding::Cl100k),
            _ => Self { encoding: Encoding::O200k, is_guess: true },
        }
    }

    /// Returns the counter for an encoding named in the configuration; it adds no margin.
    pub(crate) fn of(encoding: Encoding) -> Self {
        Self { encoding, is_guess: false }
    }
}

impl CountTokens for TokenCounter {
    fn count(&self, text: &str) -> usize {
        let table = self.encoding.table();
        let tokens: usize = pieces(text).map(|piece| table.count_ordinary(piece)).sum();
        if self.is_guess { tokens + tokens.div_ceil(5) } else { tokens }
    }
}

/// Bytes of the longest token of `o200k`: 128 spaces.
const LONGEST_TOKEN: usize = 128;

/// Returns the longest beginning of `text` that has at most `most` tokens and ends with a line. If not even the first
/// line fits, it is cut.
pub(crate) fn lines_within(text: &str, most: usize) -> &str {
    // A token has at least one byte, so most texts need not be counted.
    if text.len() <= most {
        return text;
    }
    let counter = TokenCounter::of(Encoding::O200k);
    let (mut end, mut left) = (0, most);
    for line in text.split_inclusive('\n') {
        // Counting a line of megabytes takes long, and one of this length does not fit.
        let is_too_long = line.len() > most * LONGEST_TOKEN;
        let tokens = if is_too_long { usize::MAX } else { counter.count(line) };
        if tokens > left {
            break;
        }
        (end, left) = (end + line.len(), left - tokens);
    }
    // Cut to as many bytes as tokens are allowed, which cannot have more tokens.
    if end == 0 { &text[..text.floor_char_boundary(most)] } else { &text[..end] }
}

/// Splits a text into pieces of at most [`MAX_PIECE_BYTES`], before white space if the piece has any.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.floor_char_boundary(MAX_PIECE_BYTES);
        let cut = if end == rest.len() {
            end
        } else {
            // Tokens include the space in front of a word, so a split before the space changes no count.
            rest[..end].rfind(char::is_whitespace).filter(|cut| *cut > 0).unwrap_or(end)
        };
        let (piece, behind) = rest.split_at(cut);
        rest = behind;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_model_is_counted_exactly_and_an_unknown_one_with_a_margin() {
        let text = "The quick brown fox jumps over the lazy dog.";
        assert_eq!(TokenCounter::for_model("gpt-4o").count(text), 10);
        assert_eq!(TokenCounter::for_model("gpt-4").count(text), 10);
        assert_eq!(TokenCounter::for_model("qwen3:8b").count(text), 12);
        assert_eq!(TokenCounter::of(Encoding::O200k).count(text), 10);
        assert!(TokenCounter::for_model("gpt-6.1-sol").is_guess);
    }

    #[test]
    fn endless_runs_of_one_letter_are_counted_all_the_same() {
        let counter = TokenCounter::of(Encoding::O200k);
        for letter in [' ', 'A', '字', '.'] {
            let mut text: String = std::iter::repeat_n(letter, 50_000).collect();
            text.push('x');
            assert!(counter.count(&text) > 0, "{letter:?}");
        }
    }

    #[test]
    fn pieces_are_the_whole_text() {
        let text = "word ".repeat(10_000);
        assert_eq!(pieces(&text).collect::<String>(), text);
        assert!(pieces(&text).all(|piece| piece.len() <= MAX_PIECE_BYTES));
        let whole = Encoding::O200k.table().count_ordinary(&text);
        assert!(TokenCounter::of(Encoding::O200k).count(&text) >= whole);
    }

    #[test]
    fn encoding_is_read_by_either_of_its_names() {
        assert_eq!("o200k_base".parse::<Encoding>().unwrap(), Encoding::O200k);
        assert_eq!("cl100k".parse::<Encoding>().unwrap().to_string(), "cl100k");
        assert!("llama".parse::<Encoding>().is_err());
    }

    #[test]
    fn beginning_fits_and_ends_with_a_line() {
        let text = "one two three\n".repeat(1_000);
        let cut = lines_within(&text, 400);
        assert!(TokenCounter::of(Encoding::O200k).count(cut) <= 400);
        assert!(cut.len() > 1_000 && cut.ends_with("three\n"), "{}", cut.len());
        assert_eq!(lines_within("short", 400), "short");
        assert_eq!(lines_within(&text, 10_000), text, "it has more bytes than that, but fewer tokens");
    }

    #[test]
    fn endless_line_is_cut_between_letters() {
        let line = "é".repeat(5_000_000);
        assert_eq!(lines_within(&line, 401).len(), 400);
    }
}
