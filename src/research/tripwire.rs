//! A tripwire behind the types: outgoing text that shares content with internal text is withheld.
//!
//! Conversations that face outward never see internal text, see [`crate::base::outbound`], so this should never trip.
//! It checks only what hardly occurs by chance: a run of eight words, or a rare token (a number of at least five
//! digits, a grouped one of four, a code such as `7f3a9c`, an e-mail address). Ports, years, round numbers and
//! numbers of standards occur in many texts. It is not a filter: it does not detect disguised or paraphrased text,
//! and ignores single names, since a product that appears on both sides is not a leak.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Length of a run of words that identifies its source. Unrelated texts share shorter ones, such as set phrases.
const RUN_WORDS: usize = 8;

/// Minimum number of digits of a rare number, of a grouped one, and of a rare token with letters, such as
/// `INV-20931`.
const NUMBER_DIGITS: usize = 5;
const GROUPED_DIGITS: usize = 4;
const MIXED_DIGITS: usize = 5;

/// Words before a common number, such as ISO 27001.
const NUMBERED: [&str; 6] = ["iso", "iec", "rfc", "din", "en", "port"];

/// Digits of a round number that are not 0 at its end: `10,000` and `250000` are round.
const ROUND_DIGITS: usize = 2;

/// Length of the shortest code, in letters and digits.
const CODE_LETTERS: usize = 6;

/// The internal text that was read, and the text that may leave, as hashes.
#[derive(Default)]
pub(crate) struct Tripwire {
    internal: SeenText,
    outbound: SeenText,
}

#[derive(Default)]
struct SeenText {
    runs: HashSet<u64>,
    /// Rare tokens of internal text, and all tokens of other text, which may write a number with or without
    /// separators.
    tokens: HashSet<u64>,
}

/// An outgoing text shares content with internal text. The error leaves the content out, so that it may be shown and
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Tripped {
    #[error("text shares {RUN_WORDS} words in a row with internal text")]
    Run,
    #[error("text contains a number, code or address from internal text")]
    Token,
}

impl Tripwire {
    /// Adds internal text that was read or derived.
    pub(crate) fn read(&mut self, text: &str) {
        self.internal.learn(text, is_rare);
    }

    /// Adds text that may leave: text of the user, of the first plan, or public text.
    pub(crate) fn may_leave(&mut self, text: &str) {
        self.outbound.learn(text, |_, _, _| true);
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
        let mut own = SeenText::default();
        // Outgoing text is composed of parts, such as aspects. A run of words across two parts is chance.
        text.split(['\n', ';']).for_each(|part| own.learn(part, |_, _, _| true));
        let Self { internal, outbound } = self;
        match () {
            () if is_internal(&own.runs, &internal.runs, &outbound.runs) => Err(Tripped::Run),
            () if is_internal(&own.tokens, &internal.tokens, &outbound.tokens) => Err(Tripped::Token),
            () => Ok(()),
        }
    }
}

impl SeenText {
    /// Adds a text with those of its tokens that `is_kept` takes: given the token before it, the token, and the token
    /// without its separators.
    fn learn(&mut self, text: &str, is_kept: fn(&str, &str, &[char]) -> bool) {
        let text = text.to_lowercase();
        let words: Vec<_> =
            text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        self.runs.extend(words.windows(RUN_WORDS).map(hash));
        // In addresses and tables, signs separate the tokens instead of spaces.
        let mut before = "";
        for token in text.split(|letter: char| letter.is_whitespace() || "/?&=#|<>".contains(letter)) {
            let token = token.trim_matches(|letter: char| !letter.is_alphanumeric());
            let plain: Vec<_> = token.chars().filter(|letter| letter.is_alphanumeric()).collect();
            if is_kept(before, token, &plain) {
                self.tokens.insert(hash(&plain));
            }
            before = token;
        }
    }
}

/// Returns whether a token does not occur by chance, see [`SeenText::learn`].
fn is_rare(before: &str, token: &str, plain: &[char]) -> bool {
    if NUMBERED.contains(&before) {
        return false;
    }
    let digits = plain.iter().filter(|letter| letter.is_ascii_digit()).count();
    let is_address = token.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    if is_address {
        return true;
    }
    if digits == plain.len() {
        let is_round = plain.iter().skip(ROUND_DIGITS).all(|digit| *digit == '0');
        let is_grouped = token.len() > plain.len();
        return !is_round && digits >= if is_grouped { GROUPED_DIGITS } else { NUMBER_DIGITS };
    }
    // `7f3a9c` alternates; `sha256` does not.
    let digit_runs =
        plain.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()).filter(|run| run[0].is_ascii_digit());
    digits >= MIXED_DIGITS || (plain.len() >= CODE_LETTERS && digit_runs.count() >= 2)
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
                        and sha256 sums are in docs/v2. Postgres listens on 5432, the gateway on 8443 (RFC 9110), \
                        for 10,000 users; we are certified to ISO 27001. Account 4417-0982-5536, order 880213.";

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
            ("441709825536", Tripped::Token),
            ("order 880213", Tripped::Token),
        ] {
            assert_eq!(wire().check(text), Err(tripped), "{text}");
        }
    }

    #[test]
    fn ordinary_words_years_names_ports_standards_and_round_numbers_pass() {
        for text in [
            "renewal at risk because of late deliveries",
            "suppliers in Leipzig in 2025",
            "sha256 or v2?",
            "how customers pay a year ahead",
            "ISO 27001 certification cost",
            "RFC 9110 on port 8443 and 5432",
            "databases for 10,000 users",
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
