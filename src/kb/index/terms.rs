//! The terms that a query is searched by in the text index.
//!
//! A text has the stems of its words, by the rules of its language, and *near forms*, which join words that a stemmer
//! keeps apart: the first letters of a word, all runs of as many letters in languages that join words, pairs of Chinese
//! characters, Vietnamese syllables and pairs of them without their tones. English has none: they gained nothing there.
//!
//! The terms of a query are its words stemmed by its own language, by the frequent languages of the index, and by
//! English if some document is English. Words in Latin letters are indexed by their English stems too, so that each can
//! be found whatever the language of the query.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use unicode_normalization::UnicodeNormalization;

use crate::base::language::Language;
use crate::base::script::Script;
use crate::base::word::{WordSplitter, folded, runs};

/// Letters of a near form. Four were as good as any other number in 17 languages, see `kb/decisions/languages.md`.
const NEAR_LETTERS: usize = 4;

/// Syllables of a near form in Korean, which appends particles to words of mostly two.
const NEAR_SYLLABLES: usize = 2;

/// Ends a near form, so that it is not taken for a word.
const NEAR: char = '*';

/// A query is also stemmed by each language with at least one in this many documents. A rarer one would do harm: its
/// terms occur in few chunks and so weigh more than those of the query's own language. Three notes in other languages
/// cost a folder of 1,500 English ones .11 of nDCG, see `kb/decisions/languages.md`.
const FREQUENT: u64 = 5;

/// Limit on the terms of a query, which a pasted text exceeds.
const MAX_TERMS: usize = 1_024;

/// How the words of a query become terms of an index.
#[derive(Clone)]
pub(crate) enum Terms {
    Stemmed {
        /// The language of the query, else the main one of the index. Near forms are by this one.
        own: &'static Language,
        /// Other languages that the words may have been stemmed by.
        others: Vec<&'static Language>,
        /// Every language of the index.
        all: Vec<&'static Language>,
    },
    /// As typed: an index of an earlier version, in which the storage engine stems.
    AsTyped,
}

/// Returns the language of the largest number of documents.
pub(super) fn main_language(documents: &BTreeMap<String, u32>) -> &'static Language {
    let main = documents.iter().max_by_key(|(_, count)| **count);
    main.and_then(|(code, _)| Language::with_code(code)).unwrap_or_else(Language::english)
}

/// Returns the language that the words of a query are searched in, given its own if that can be told.
pub(super) fn language_for(asked: Option<&'static Language>, documents: &BTreeMap<String, u32>) -> &'static Language {
    asked.filter(|asked| documents.contains_key(asked.code)).unwrap_or_else(|| main_language(documents))
}

impl Terms {
    /// Returns the terms for a query in the language `asked`, given how many documents are in each language, by code.
    pub(super) fn stemmed(asked: Option<&'static Language>, documents: &BTreeMap<String, u32>) -> Self {
        let own = language_for(asked, documents);
        let all: u64 = documents.values().copied().map(u64::from).sum();
        let frequent = documents.iter().filter(|(_, count)| u64::from(**count) * FREQUENT >= all);
        let frequent = frequent.filter_map(|(code, _)| Language::with_code(code));
        // Any text in Latin letters is found by its English stems as well. Where no text is English they only count its
        // words twice, which cost .01 to .02 in German, French and Hungarian.
        let english = documents.contains_key(Language::english().code).then(Language::english);
        let others = frequent.filter(|other| !other.is_english()).chain(english);
        let others = others.filter(|other| other.code != own.code).collect();
        let all = documents.keys().filter_map(|code| Language::with_code(code)).collect();
        Self::Stemmed { own, others, all }
    }

    /// Returns the terms of a query, without repetitions.
    pub(crate) fn of_query(&self, words: &str) -> String {
        let Self::Stemmed { own, others, .. } = self else { return words.to_owned() };
        // A word that was typed without its tones is spelled like another one of the text. Near forms find both.
        let is_toneless = own.has_tones() && words.is_ascii();
        let languages = std::iter::once(own).filter(|_| !is_toneless).chain(others);
        let stems = languages.flat_map(|language| in_order(words, language));
        let mut terms = distinct(stems.chain(near_forms(words, &runs(words), own)));
        terms.truncate(MAX_TERMS);
        terms.join(" ")
    }

    /// Returns the average number of terms for each of these words: 1 in English, more with near forms.
    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    pub(crate) fn forms(&self, words: &[&str]) -> f32 {
        let Self::Stemmed { own, .. } = self else { return 1.0 };
        let text = words.join(" ");
        let terms = in_order(&text, own).len() + near_forms(&text, &runs(&text), own).len();
        terms.max(words.len()).max(1) as f32 / words.len().max(1) as f32
    }

    /// Returns a phrase, or a word, stemmed by each language of the index, that of the query first, without
    /// repetitions.
    pub(crate) fn of_phrase(&self, phrase: &str) -> Vec<String> {
        let Self::Stemmed { own, others, all } = self else { return vec![phrase.to_owned()] };
        let languages = std::iter::once(own).chain(others).chain(all);
        let phrases = languages.map(|language| in_order(phrase, language).join(" "));
        distinct(phrases.filter(|phrase| !phrase.is_empty()))
    }
}

/// Returns the terms without repetitions, in their order.
fn distinct(terms: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    terms.filter(|term| seen.insert(term.clone())).collect()
}

/// Returns the words of a text in order: stems, or single characters where words have no spaces and few letters.
fn in_order(text: &str, language: &'static Language) -> Vec<String> {
    let splitter = WordSplitter::of(language);
    let terms = |range: Range<usize>| match characters_of(&text[range.clone()]) {
        Some(characters) => characters.map(String::from).collect(),
        None => vec![splitter.stem(&text[range])],
    };
    runs(text).into_iter().flat_map(terms).collect()
}

/// Returns the letters and digits of a word that is searched by its characters, each as one spelling of its forms.
pub(super) fn characters_of(word: &str) -> Option<impl Iterator<Item = char>> {
    Script::of_word(word).is_ideographic().then(|| word.nfkc().filter(|letter| letter.is_alphanumeric()))
}

/// Returns the near forms of the words of a text, whose places are `words`.
pub(super) fn near_forms(text: &str, words: &[Range<usize>], language: &'static Language) -> Vec<String> {
    let mut forms = Vec::new();
    let mut before: Option<(usize, char)> = None;
    let mut syllable: Option<(usize, String)> = None;
    for range in words {
        let word = &text[range.clone()];
        if let Some(characters) = characters_of(word) {
            // Pairs run across words: one word here may be two elsewhere.
            let joined = before.filter(|(end, _)| *end == range.start).map(|(_, letter)| letter);
            let letters: Vec<char> = joined.into_iter().chain(characters).collect();
            forms.extend(letters.windows(2).map(|pair| format!("{}{}{NEAR}", pair[0], pair[1])));
            before = letters.last().map(|letter| (range.end, *letter));
            continue;
        }
        let own = near_forms_of(word, Script::of_word(word), language);
        // Vietnamese puts a space after each syllable, and most of its words have two.
        if let ([form], true) = (own.as_slice(), language.has_tones()) {
            let joined = syllable.filter(|(end, _)| text[*end..range.start] == *" ");
            forms.extend([form.clone()].into_iter().chain(joined.map(|(_, first)| first + form)));
            syllable = Some((range.end, form.clone()));
        } else {
            forms.extend(own);
        }
    }
    forms
}

fn near_forms_of(word: &str, script: Script, language: &'static Language) -> Vec<String> {
    let letters = match script {
        Script::Latin if language.is_english() => return Vec::new(),
        Script::Latin if language.has_tones() => usize::MAX,
        Script::Han | Script::Kana | Script::SoutheastAsian => return Vec::new(),
        Script::Hangul => NEAR_SYLLABLES,
        _ => NEAR_LETTERS,
    };
    let word = word.to_lowercase();
    let plain: Vec<char> = folded(&word, script).chars().collect();
    // Numbers with the same first digits are different things.
    if plain.iter().all(char::is_ascii_digit) {
        return Vec::new();
    }
    let form = |letters: &[char]| letters.iter().chain(&[NEAR]).collect();
    if language.has_tones() && script == Script::Latin {
        return vec![form(&plain)];
    }
    // Near forms of longer words have more letters, so one of a shorter word would match the same word only.
    let runs = plain.windows(letters).map(form);
    runs.take(if language.joins_words() { usize::MAX } else { 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(code: &str) -> &'static Language {
        Language::with_code(code).unwrap()
    }

    #[test]
    fn syllables_typed_without_tones_are_looked_for_without_tones() {
        let terms = Terms::stemmed(Some(language("vi")), &BTreeMap::from([("vi".to_owned(), 9)]));
        assert_eq!(terms.of_query("sao lưu"), "sao lưu sao* luu* sao*luu*");
        assert_eq!(terms.of_query("sao luu"), "sao* luu* sao*luu*", "`luu` is another syllable than `lưu`");
    }

    #[test]
    fn a_query_looks_for_stems_by_its_language_and_by_frequent_ones() {
        let documents =
            |counts: &[(&str, u32)]| counts.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
        let of = |asked: Option<&str>, counts: &[(&str, u32)]| {
            Terms::stemmed(asked.map(language), &documents(counts)).of_query("Häuser indexes")
        };
        assert_eq!(of(None, &[]), "hauser index");
        assert_eq!(of(None, &[("en", 99), ("de", 1)]), "hauser index", "one note does not outweigh the others");
        assert_eq!(
            of(Some("de"), &[("en", 99), ("de", 1)]),
            "haus index hauser haus* ause* user* inde* ndex* dexe* exes*"
        );
        assert_eq!(of(None, &[("de", 99)]), "haus index haus* ause* user* inde* ndex* dexe* exes*");
        assert_eq!(of(None, &[("de", 99), ("en", 1)]), "haus index hauser haus* ause* user* inde* ndex* dexe* exes*");
        assert_eq!(of(Some("fr"), &[("en", 99), ("de", 1)]), "hauser index");
        assert_eq!(of(None, &[("en", 60), ("de", 40)]), "hauser index haus");
    }
}
