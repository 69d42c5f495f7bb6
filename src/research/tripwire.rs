//! A tripwire behind the types: outgoing text that shares content with internal text is withheld.
//!
//! Conversations that face outward never see internal text, see [`crate::base::outbound`], so this should never trip.
//! It checks only what raises no false alarm: a run of eight words, or a token that does not occur by chance (a number
//! of at least four digits that is not a year, a code such as `7f3a9c`, an e-mail address). It is not a filter: it does
//! not detect disguised or paraphrased text, and ignores single names, since a product that appears on both sides is
//! not a leak.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Length of a run of words that identifies its source.
const RUN_WORDS: usize = 8;

/// Fewest digits of a rare number, and of a rare token with letters, such as `INV-20931`.
const RARE_DIGITS: [usize; 2] = [4, 5];

/// Length of the shortest code, in letters and digits.
const CODE_LETTERS: usize = 6;

/// The internal text that was read, and the text that may leave, as hashes.
#[derive(Default)]
pub(crate) struct Tripwire {
    internal: Known,
    outbound: Known,
}

#[derive(Default)]
struct Known {
    runs: HashSet<u64>,
    tokens: HashSet<u64>,
}

/// An outgoing text shares content with internal text. The error leaves the content out, so that it may be shown and
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Tripped {
    /// A run of words.
    #[error("text shares {RUN_WORDS} words in a row with internal text")]
    Run,
    /// A number, code or address.
    #[error("text contains a number, code or address from internal text")]
    Token,
}

impl Tripwire {
    /// Adds internal text that was read or derived.
    pub(crate) fn read(&mut self, text: &str) {
        self.internal.learn(text);
    }

    /// Adds text that may leave: text of the user, of the first plan, or public text.
    pub(crate) fn may_leave(&mut self, text: &str) {
        self.outbound.learn(text);
    }

    /// Checks an outgoing text.
    ///
    /// # Errors
    ///
    /// Returns the kind of content that the text shares with internal text but not with outbound text.
    pub(crate) fn check(&self, text: &str) -> Result<(), Tripped> {
        let is_internal = |own: &HashSet<u64>, internal: &HashSet<u64>, outbound: &HashSet<u64>| {
            own.iter().any(|hash| internal.contains(hash) && !outbound.contains(hash))
        };
        let mut own = Known::default();
        // Outgoing text is composed of parts, such as aspects. A run of words across two parts is chance.
        text.split(['\n', ';']).for_each(|part| own.learn(part));
        let Self { internal, outbound } = self;
        match () {
            () if is_internal(&own.runs, &internal.runs, &outbound.runs) => Err(Tripped::Run),
            () if is_internal(&own.tokens, &internal.tokens, &outbound.tokens) => Err(Tripped::Token),
            () => Ok(()),
        }
    }
}

impl Known {
    fn learn(&mut self, text: &str) {
        let text = text.to_lowercase();
        let words: Vec<_> =
            text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        self.runs.extend(words.windows(RUN_WORDS).map(hash));
        self.tokens
            // In addresses and tables, signs separate the tokens instead of spaces.
            .extend(text.split(|letter: char| letter.is_whitespace() || "/?&=#|<>".contains(letter)).filter_map(rare));
    }
}

/// Returns the hash of a rare token without its separators; `None` for a token that may occur by chance.
fn rare(token: &str) -> Option<u64> {
    let token = token.trim_matches(|letter: char| !letter.is_alphanumeric());
    let plain: Vec<_> = token.chars().filter(|letter| letter.is_alphanumeric()).collect();
    let digits = plain.iter().filter(|letter| letter.is_ascii_digit()).count();
    let [number, with_letters] = RARE_DIGITS;
    let is_year = plain.len() == 4 && matches!(plain[..2], ['1', '9'] | ['2', '0']);
    let is_number = digits >= with_letters || (digits >= number && digits == plain.len() && !is_year);
    let is_address = token.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    // `7f3a9c` alternates; `sha256` does not.
    let digit_runs =
        plain.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()).filter(|run| run[0].is_ascii_digit());
    let is_code = plain.len() >= CODE_LETTERS && digits < plain.len() && digit_runs.count() >= 2;
    (is_number || is_address || is_code).then(|| hash(&plain))
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "The customer pays 48,731 euros a year, says Ottoline Vasquez-Ferreira (ottoline@acme.example). \
                        The renewal is at risk because of late deliveries from Leipzig. Ticket CANARY-7f3a9c of 2025 is open, \
                        and sha256 sums are in docs/v2.";

    fn wire() -> Tripwire {
        let mut wire = Tripwire::default();
        wire.read(NOTE);
        wire
    }

    #[test]
    fn run_of_words_and_rare_tokens_of_internal_text_are_withheld() {
        for (text, tripped) in [
            ("why the RENEWAL is at-risk because of late deliveries", Tripped::Run),
            ("contract 48,731 euros", Tripped::Token),
            ("48731", Tripped::Token),
            ("https://a.example/?q=48.731", Tripped::Token),
            ("write to ottoline@acme.example.", Tripped::Token),
            ("what is canary-7F3A9C?", Tripped::Token),
        ] {
            assert_eq!(wire().check(text), Err(tripped), "{text}");
        }
    }

    #[test]
    fn ordinary_words_years_and_product_names_pass() {
        for text in [
            "renewal at risk because of late deliveries",
            "suppliers in Leipzig in 2025",
            "sha256 or v2?",
            "how customers pay a year ahead",
        ] {
            assert_eq!(wire().check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_outbound_text_has_too_passes() {
        let mut wire = wire();
        wire.may_leave("Is 48,731 much? The renewal is at risk because of late deliveries, they say.");
        assert_eq!(wire.check("The renewal is at risk because of late deliveries: 48731"), Ok(()));
        assert_eq!(wire.check("canary-7f3a9c"), Err(Tripped::Token));
    }
}
