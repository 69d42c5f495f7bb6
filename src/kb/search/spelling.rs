//! Corrects words that the folder does not have against those it has.

use std::borrow::Cow;
use std::collections::BTreeMap;

use strsim::damerau_levenshtein;

use super::{Hit, SearchError, Searcher};
use crate::base::everyday::is_everyday;
use crate::base::word::{Word, WordSplitter, language_of};
use crate::kb::embed::is_english;
use crate::kb::index::Filter;

/// Shortest word that is corrected, in letters: too many words are similar to a shorter one.
const SHORTEST: usize = 5;

/// Shortest word that others are derived from or composed of, in letters.
const SHORTEST_BASE: usize = 4;

/// Longest word that is corrected, in letters: the storage engine refuses to compare much longer ones.
const LONGEST: usize = 30;

/// Length in letters from which a word may have two errors.
const TWO_ERRORS: usize = 7;

/// Endings that derive one English word from another.
const ENDINGS: [&str; 9] = ["ers", "ors", "er", "or", "ing", "ings", "able", "ness", "ed"];

/// Maximum number of words of a question that are looked up; one with more unknown words is in another language, or
/// pasted.
const MOST: usize = 6;

/// Number of chunks with similar words that are read.
const READ: usize = 20;

/// A word that the folder does not have, and the most similar ones that it has: none, one, or several equally
/// similar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub(crate) word: String,
    /// Similar words of the folder.
    pub(crate) similar: Vec<String>,
}

impl Unknown {
    /// Returns whether no word of the folder can replace it.
    pub(crate) fn is_missing(&self) -> bool {
        self.correction().is_none()
    }

    /// Returns the word to substitute without asking; `None` for a possible name: `Paris` is not `pairs`. A name may be
    /// cut short: `Postgres` for `postgresql`.
    fn correction(&self) -> Option<&str> {
        let [one] = self.similar.as_slice() else { return None };
        let is_name = self.word.starts_with(char::is_uppercase);
        (!is_name || one.starts_with(&self.word.to_lowercase())).then_some(one)
    }
}

/// Returns notes on the words that the folder does not have: replaced, ambiguous or missing. If the hits answer, a
/// missing word need not be mentioned, and an everyday one never is.
pub(crate) fn said(unknown: &[Unknown], is_answered: bool) -> Vec<String> {
    let mut missing = Vec::new();
    let mut said = Vec::new();
    for own in unknown {
        let word = &own.word;
        match own.correction() {
            Some(one) => said.push(format!("not found here: `{word}`; `{one}` was searched for")),
            None if is_answered || is_everyday(word) => {}
            None if own.similar.is_empty() => missing.push(format!("`{word}`")),
            None => said.push(format!("not found here: `{word}`; did you mean `{}`?", own.similar.join("` or `"))),
        }
    }
    if !missing.is_empty() {
        said.push(format!("not found here: {}", missing.join(", ")));
    }
    said
}

/// Returns a question with its misspelt words replaced; `None` if there are none.
pub(crate) fn corrected(question: &str, unknown: &[Unknown], splitter: &WordSplitter) -> Option<String> {
    let mut text = question.to_owned();
    let words = splitter.words(question);
    // From the end, because a replacement moves the words after it.
    for word in words.into_iter().rev() {
        let is_own = |unknown: &&Unknown| unknown.word == question[word.range.clone()];
        if let Some(correction) = unknown.iter().find(is_own).and_then(Unknown::correction) {
            text.replace_range(word.range, correction);
        }
    }
    (text != question).then_some(text)
}

impl Searcher {
    /// Looks for words of the folder that are spelled like unknown ones, in chunks with similar words and in the hits
    /// of the search.
    pub(super) async fn spell(
        &self,
        unknown: &mut [Unknown],
        hits: &[Hit],
        filter: &Filter,
    ) -> Result<(), SearchError> {
        for Unknown { word, similar } in unknown.iter_mut().take(MOST) {
            let errors = errors_in(word);
            if errors == 0 {
                continue;
            }
            let terms = self.index.terms(language_of(word));
            // A failed comparison counts as no similar words, since the search itself succeeded.
            let legs = self.index.similar_leg(&terms, word, errors, filter, READ).await.unwrap_or_default();
            let rows = self.index.rows(&legs.iter().map(|hit| hit.row_id).collect::<Vec<_>>()).await?;
            let texts = rows.values().map(|row| Cow::from(super::searched_text(row)));
            *similar = self.nearest(word, errors, texts.chain(hits.iter().map(|hit| Cow::from(&hit.text))));
        }
        Ok(())
    }

    /// Returns the words of texts with the fewest errors, one for each stem, the most frequent first.
    fn nearest<'a>(&self, word: &str, errors: usize, texts: impl Iterator<Item = Cow<'a, str>>) -> Vec<String> {
        let wanted = word.to_lowercase();
        let bases: Vec<_> = bases(&wanted).iter().map(|base| self.splitter.stem(base)).collect();
        // By errors and stem: how often each spelling occurs.
        let mut near: BTreeMap<(usize, String), BTreeMap<String, usize>> = BTreeMap::new();
        for text in texts {
            let words = self.splitter.words(&text);
            if let Some(spelled) = hyphenated(&wanted, &words, &text) {
                return vec![spelled];
            }
            for own in words {
                // It is derived from a word of the folder: a committer is not a committee.
                if bases.contains(&own.stem) {
                    return Vec::new();
                }
                let spelled = text[own.range].to_lowercase();
                if spelled.chars().count().abs_diff(wanted.chars().count()) <= errors {
                    let distance = damerau_levenshtein(&spelled, &wanted);
                    // The same first letter, as in `Index::similar_leg`: words of the hits follow the same rule.
                    if (1..=errors).contains(&distance) && spelled.chars().next() == wanted.chars().next() {
                        *near.entry((distance, own.stem)).or_default().entry(spelled).or_default() += 1;
                    }
                }
            }
        }
        let least = near.keys().next().map(|(distance, _)| *distance);
        // `autoscale` does not stand for `autoescape`, but `passward` for `password`.
        if least.is_some_and(|errors| errors > 1) && is_compound(&wanted) {
            return Vec::new();
        }
        let best = near.into_iter().filter(|((distance, _), _)| Some(*distance) == least);
        let commonest = |spellings: BTreeMap<String, usize>| spellings.into_iter().max_by_key(|(_, count)| *count);
        let found: Vec<_> =
            best.filter_map(|(_, spellings)| commonest(spellings)).map(|(spelled, _)| spelled).collect();
        likeliest(&wanted, found)
    }
}

/// Returns those of the most similar words that a word may stand for. A letter that was doubled, or not, is the commonest
/// error: `acount` is `account` rather than `amount`. In a word derived from an English one no other is likely:
/// `uploading` is not `unloading`.
fn likeliest(word: &str, similar: Vec<String>) -> Vec<String> {
    let single = |word: &str| {
        let mut letters: Vec<_> = word.chars().collect();
        letters.dedup();
        letters
    };
    let of_doubled: Vec<_> = similar.iter().filter(|own| single(own) == single(word)).collect();
    match of_doubled.as_slice() {
        [one] => vec![(*one).clone()],
        _ if is_derived(word) => Vec::new(),
        _ => similar,
    }
}

/// Returns a word as a text writes it with a hyphen: `co-founder` for `cofounder`.
fn hyphenated(word: &str, words: &[Word], text: &str) -> Option<String> {
    let spelled = words.windows(2).map(|pair| text[pair[0].range.start..pair[1].range.end].to_lowercase());
    spelled.into_iter().find(|spelled| spelled.contains('-') && spelled.replacen('-', "", 1) == word)
}

/// Returns the English words that a word may be derived from: commit for committer.
fn bases(word: &str) -> Vec<String> {
    let base = ENDINGS.iter().find_map(|ending| word.strip_suffix(ending));
    let Some(base) = base.filter(|base| base.chars().count() >= SHORTEST_BASE) else { return Vec::new() };
    let mut letters = base.chars();
    let last = letters.next_back();
    let is_doubled = letters.clone().next_back() == last;
    let single = is_doubled.then(|| letters.as_str().to_owned());
    [base.to_owned(), format!("{base}e")].into_iter().chain(single).collect()
}

/// Returns how many errors a word may have: 0 for a name in capitals, one with digits, and a correct English word,
/// since `wifi` does not stand for `wiki` in a folder that lacks it.
fn errors_in(word: &str) -> usize {
    let letters = word.chars().count();
    let is_code = word.chars().any(|letter| !letter.is_alphabetic()) || word.chars().skip(1).any(char::is_uppercase);
    match letters {
        _ if is_code || !(SHORTEST..=LONGEST).contains(&letters) || is_english(word) => 0,
        _ if letters < TWO_ERRORS => 1,
        _ => 2,
    }
}

/// Prefixes that make an English word of another. Not "pre": "premission" is a misspelt permission.
const PREFIXES: [&str; 8] = ["out", "over", "under", "un", "mis", "non", "inter", "sub"];

/// Returns whether a word is derived from an English one.
fn is_derived(word: &str) -> bool {
    let is_base = |base: &&str| base.chars().count() >= SHORTEST_BASE && is_english(base);
    PREFIXES.iter().filter_map(|prefix| word.strip_prefix(prefix)).any(|base| is_base(&base))
        || bases(word).iter().any(|base| is_english(base) || is_english(&format!("{base}ed")))
}

/// Returns whether a word consists of two longer English ones: `autoscale`.
fn is_compound(word: &str) -> bool {
    let is_word = |half: &str| half.chars().count() >= SHORTEST_BASE && is_english(half);
    word.char_indices().map(|(at, _)| word.split_at(at)).any(|(first, second)| is_word(first) && is_word(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_with_one_likely_spelling_is_replaced_and_others_are_left() {
        let unknown = |word: &str, similar: &[&str]| Unknown {
            word: word.into(),
            similar: similar.iter().map(|word| (*word).to_owned()).collect(),
        };
        let found = [unknown("anual", &["annual"]), unknown("leeve", &["leave", "sleeve"]), unknown("zorb", &[])];
        let corrected = |question, found| corrected(question, found, &WordSplitter::default());
        assert_eq!(corrected("anual leeve, biannual zorb?", &found).as_deref(), Some("annual leeve, biannual zorb?"));
        assert_eq!(corrected("zorb? banual", &found), None);
        // A name may be cut short.
        let names = [unknown("Paris", &["pairs"]), unknown("Postgres", &["postgresql"])];
        assert_eq!(corrected("Postgres in Paris?", &names).as_deref(), Some("postgresql in Paris?"));
        assert_eq!(said(&found, true), ["not found here: `anual`; `annual` was searched for"]);
        assert_eq!(
            said(&found[1..], false).join("\n"),
            "not found here: `leeve`; did you mean `leave` or `sleeve`?\n\
                                                                 not found here: `zorb`"
        );
        let missing = ["big", "Took", "took", "weather", "biggest"].map(|word| unknown(word, &[]));
        assert_eq!(said(&missing, false), ["not found here: `Took`, `weather`"], "everyday words name nothing");
        assert_eq!(said(&missing[..1], false), [""; 0]);
    }

    #[test]
    fn word_may_be_written_with_a_hyphen() {
        let text = "The founder and the co founder, or Co-founder";
        let found = |word| hyphenated(word, &WordSplitter::default().words(text), text);
        assert_eq!(found("cofounder").as_deref(), Some("co-founder"));
        assert_eq!(found("thefounder"), None);
    }

    #[test]
    fn word_that_is_derived_from_another_is_not_misspelt() {
        assert!(is_derived("outlives") && !is_derived("outlivs") && !is_derived("premission"));
        assert!(bases("committer").contains(&"commit".to_owned()) && bases("writing").contains(&"write".to_owned()));
        assert_eq!(bases("leeve"), [""; 0]);
        assert_eq!(bases("büööing").last().unwrap(), "büö");
    }

    #[test]
    fn doubled_letter_is_the_likeliest_error_and_the_only_one_in_a_word_derived_from_another() {
        let of = |word: &str, similar: &[&str]| likeliest(word, similar.iter().map(|own| (*own).to_owned()).collect());
        assert_eq!(of("acount", &["account", "amount"]), ["account"]);
        assert_eq!(of("scaner", &["scanner"]), ["scanner"]);
        assert_eq!(of("uploading", &["unloading"]), [""; 0]);
        assert_eq!(of("leeve", &["leave", "sleeve"]), ["leave", "sleeve"]);
    }

    #[test]
    fn short_words_and_codes_are_not_corrected() {
        let errors: Vec<_> = ["api", "coex", "CRDT", "e404x", "leeve", "signatre"].map(errors_in).into();
        assert_eq!(errors, [0, 0, 0, 0, 1, 2]);
        assert!(is_compound("autoscale") && !is_compound("signatre") && !is_compound("weekend"));
        assert_eq!(["compare", "weather", &"a".repeat(80)].map(errors_in), [0; 3]);
    }
}
