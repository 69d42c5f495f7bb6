//! Parses what the user typed into a [`Query`]: words to rank by, phrases that must occur, identifiers that should.

use crate::base::language::Language;
use crate::base::thesaurus::Related;
use crate::base::word::{composed, is_whole, language_of, without_stop_words_of};

/// Limit on phrases and on identifiers, each of which costs a search; further ones are ranked by their words.
const MAX_EXACT: usize = 4;

/// Marks around phrases that must occur verbatim.
pub(crate) const QUOTATION_MARKS: [char; 3] = ['"', '“', '”'];

/// A parsed search query.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// The whole query without quotation marks. This text is embedded.
    pub(crate) text: String,
    /// Its language, if detected.
    pub(crate) language: Option<&'static Language>,
    /// The words to rank by, without stop words.
    pub(crate) words: String,
    /// Related words of the stems.
    pub(crate) related: Related,
    /// Quoted phrases. Every hit contains all of them, ignoring case and white space.
    pub(crate) phrases: Vec<String>,
    /// Words like `foo_bar`, `2026.4.10` or `--no-rerank`. Hits that contain them as written rank higher.
    pub(crate) identifiers: Vec<String>,
    /// Fraction of the words that are identifiers, from 0 to 1.
    pub(crate) identifier_share: f32,
}

impl Query {
    /// Parses a query. There are no syntax errors: an unpaired quotation mark is an ordinary character.
    ///
    /// `language_for` returns the language to search in, given that of the query if detected.
    pub(crate) fn parse(
        typed: &str,
        language_for: impl FnOnce(Option<&'static Language>) -> &'static Language,
    ) -> Self {
        let (rest, phrases) = split_quoted(typed);
        let words: Vec<_> = rest.split_whitespace().map(trim_punctuation).filter(|word| !word.is_empty()).collect();
        let identifiers: Vec<_> =
            words.iter().filter(|word| is_identifier(word)).map(|word| (*word).to_owned()).collect();
        let text = format!("{rest} {}", phrases.join(" ")).split_whitespace().collect::<Vec<_>>().join(" ");
        let language = language_of(&text);
        Self {
            language,
            related: Related::of(&text, language),
            words: without_stop_words_of(&text, language_for(language)),
            identifier_share: share(identifiers.len(), words.len() + phrases.len()),
            identifiers: identifiers.into_iter().take(MAX_EXACT).collect(),
            phrases: phrases.into_iter().take(MAX_EXACT).collect(),
            text,
        }
    }

    /// Returns whether `text` contains every quoted phrase.
    pub(crate) fn has_phrases(&self, text: &str) -> bool {
        let text = normalized(text);
        self.phrases.iter().all(|phrase| contains_whole(&text, &normalized(phrase)))
    }

    /// Returns the fraction of the identifiers that `text` contains, ignoring case, from 0 to 1.
    pub(crate) fn identifiers_in(&self, text: &str) -> f32 {
        let text = text.to_lowercase();
        let found = self.identifiers.iter().filter(|word| contains_whole(&text, &word.to_lowercase())).count();
        share(found, self.identifiers.len())
    }
}

/// Returns `part / whole`, or 0 if `whole` is 0.
#[expect(clippy::cast_precision_loss, reason = "counts of words in a query are small")]
pub(super) fn share(part: usize, whole: usize) -> f32 {
    if whole == 0 { 0.0 } else { part as f32 / whole as f32 }
}

/// Separates phrases in straight or curly double quotes from the rest.
fn split_quoted(typed: &str) -> (String, Vec<String>) {
    let (mut rest, mut phrases) = (String::new(), Vec::new());
    let mut remaining = typed;
    while let Some((before, after)) = remaining.split_once(QUOTATION_MARKS) {
        let Some((quoted, after)) = after.split_once(QUOTATION_MARKS) else { break };
        rest.push_str(before);
        rest.push(' ');
        if quoted.chars().any(char::is_alphanumeric) {
            phrases.push(quoted.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        remaining = after;
    }
    rest.push_str(remaining);
    (rest, phrases)
}

/// Trims sentence punctuation from a word and keeps characters that may be part of it, such as leading dashes.
fn trim_punctuation(word: &str) -> &str {
    // The exceptions keep `foo_`, `docs/`, `C++` and `C#` whole.
    let word =
        word.trim_end_matches(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | '/' | '+' | '#'));
    let is_part =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/' | '@' | '$' | '#' | ':');
    word.trim_start_matches(|letter: char| !is_part(letter))
}

/// Returns whether a word is an identifier, to be matched as written.
fn is_identifier(word: &str) -> bool {
    let letters: Vec<char> = word.chars().collect();
    let joins = |marks: &[char]| {
        // A second colon too, as in `std::fs`.
        letters.windows(3).any(|three| {
            three[0].is_alphanumeric() && marks.contains(&three[1]) && (three[2].is_alphanumeric() || three[2] == ':')
        })
    };
    let has_digit = letters.iter().any(char::is_ascii_digit);
    let is_flag = word.starts_with('-') && letters.iter().any(|letter| letter.is_alphabetic());
    // Hyphens and slashes join ordinary words, too; with a digit they are part of a name, such as `UTF-8`.
    is_flag || joins(&['_', '.', ':', '@']) || word.starts_with('_') || (has_digit && joins(&['-', '/']))
}

fn normalized(text: &str) -> String {
    composed(text).to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether `text` contains `part` at word boundaries.
fn contains_whole(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| is_whole(text, at..at + part.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> Query {
        Query::parse(typed, |asked| asked.unwrap_or_else(Language::english))
    }

    #[test]
    fn quoted_phrase_is_taken_out_and_still_ranks() {
        let query = parse("where is \"writer  lock\" kept");
        assert_eq!(query.phrases, ["writer lock"]);
        assert_eq!(query.text, "where is kept writer lock");
        assert!(query.has_phrases("The Writer\nLock."));
        assert!(!query.has_phrases("writer locks"));
    }

    #[test]
    fn odd_quote_is_a_character() {
        let query = parse("5\" disk");
        assert!(query.phrases.is_empty());
        assert_eq!(query.text, "5\" disk");
    }

    #[test]
    fn identifiers_are_names_that_are_matched_as_written() {
        let found = |typed: &str| parse(typed).identifiers;
        assert_eq!(found("what changed in 2026.4.10?"), ["2026.4.10"]);
        assert_eq!(found("(foo_bar), std::fs and --no-rerank."), ["foo_bar", "std::fs", "--no-rerank"]);
        assert_eq!(found("UTF-8 a well-known and/or e-mail thing."), ["UTF-8"]);
        assert!(found("plain words - with a dash").is_empty());
    }

    #[test]
    fn identifier_is_not_found_inside_a_longer_one() {
        let query = parse("2026.4.1");
        assert!(query.identifiers_in("as of 2026.4.1, …") > 0.99);
        assert!(query.identifiers_in("as of 2026.4.10, …") < 0.01);
        assert!(parse("--no-rerank").identifiers_in("use `--no-rerank`") > 0.99);
    }

    #[test]
    fn nothing_but_punctuation_is_an_empty_query() {
        for typed in ["", "  ", "\"\"", "?!", "--"] {
            assert!(parse(typed).identifiers.is_empty(), "{typed}");
            assert!(parse(typed).phrases.is_empty(), "{typed}");
        }
    }
}
