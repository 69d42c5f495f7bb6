//! Finds the proper names in a question: names of documents, and of things that few documents mention. "What does
//! Apollo cost?" is about Apollo: a note about Zeus does not answer it, however well its other words match.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::query::Query;
use super::signals::{KeyWord, headings};
use super::{Hit, SearchError, Searcher};
use crate::base::id::DocumentId;
use crate::base::language::Language;
use crate::kb::embed::is_english;
use crate::kb::index::Filter;

/// Number of chunks examined for a word, best first. The names of a document are in the text index with each of its
/// chunks, so the chunks of the named document come first.
const LOOKED_AT: usize = 200;

/// Maximum number of documents that mention a name: one in this many, within these bounds. A word in more documents
/// is an ordinary one.
const ONE_IN: usize = 50;
const FEW: (usize, usize) = (2, 20);

/// Maximum number of documents that share a name, such as those of several versions.
const MOST_DOCUMENTS: usize = 4;

/// Longest name, in words. A longer one is a sentence.
const MOST_WORDS: usize = 3;

/// A rare word of a question that names documents or, written with a capital, something they mention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProperName {
    /// As written in the question.
    pub(crate) word: String,
    /// The documents with this name. Empty if it names something else.
    pub(crate) documents: BTreeSet<DocumentId>,
}

impl Searcher {
    /// Returns the rare words of a question that name documents: all words of their title, an alias or their file name
    /// are in the question. If there are none, those of an English question that are written with a capital.
    pub(super) async fn proper_names(
        &self,
        query: &Query,
        keys: &[KeyWord],
        filter: &Filter,
    ) -> Result<Vec<ProperName>, SearchError> {
        let (least, most) = FEW;
        let few = (self.index.count_documents(&filter.collections).await? / ONE_IN).clamp(least, most);
        let (terms, asked) = (&self.index.terms(query.language), &self.splitter.stems(&query.text));
        let rare = keys.iter().filter(|key| key.is_subject && key.is_known);
        let named = try_join_all(rare.map(async |key| {
            let found = self.index.names_leg(terms, &key.text, filter, LOOKED_AT).await?;
            let all = found.len();
            let mut documents: BTreeMap<DocumentId, bool> = BTreeMap::new();
            let mut of_named = 0;
            for (document, names) in found {
                let is_named = names.iter().any(|name| self.is_name(name, &key.stem, asked));
                of_named += usize::from(is_named);
                *documents.entry(document).or_default() |= is_named;
            }
            // A common word occurs in more chunks than were examined.
            let is_rare = documents.len() <= few && (all < LOOKED_AT || of_named == all);
            let named: BTreeSet<_> =
                documents.into_iter().filter_map(|(id, is_named)| is_named.then_some(id)).collect();
            let is_name = match named.len() {
                0 => query.language.is_none_or(Language::is_english) && is_capitalised(&query.text, &key.text),
                documents => documents <= MOST_DOCUMENTS,
            };
            Ok::<_, SearchError>((is_rare && is_name).then(|| ProperName { word: key.text.clone(), documents: named }))
        }));
        let mut names: Vec<_> = named.await?.into_iter().flatten().collect();
        if names.iter().any(|name| !name.documents.is_empty()) {
            names.retain(|name| !name.documents.is_empty());
        }
        Ok(names)
    }

    /// Returns whether a name has the stem of a word, and no other words than those of the question. Signs, single
    /// letters and numbers do not count: `apollo-1.2`.
    fn is_name(&self, name: &str, stem: &str, asked: &HashSet<String>) -> bool {
        let is_word = |word: &str| word.chars().nth(1).is_some() && word.chars().any(char::is_alphabetic);
        let words = self.splitter.words(name);
        let words: Vec<_> = words.into_iter().filter(|word| is_word(&name[word.range.clone()])).collect();
        (1..=MOST_WORDS).contains(&words.len())
            && words.iter().any(|word| word.stem == stem)
            && words.iter().all(|word| asked.contains(&word.stem))
    }

    /// Returns the hits by which support for an answer is judged: those that mention a document named in the
    /// question, or all of them if no hit does or it names no document.
    pub(super) fn to_judge<'a>(&self, hits: &'a [Hit], names: &[ProperName]) -> Cow<'a, [Hit]> {
        if names.is_empty() {
            return hits.into();
        }
        let stems: HashSet<_> = names.iter().map(|name| self.splitter.stem(&name.word)).collect();
        let mentions = |hit: &&Hit| {
            names.iter().any(|name| name.documents.contains(&hit.document_id))
                || !self.splitter.stems(&format!("{}\n{}", headings(hit), hit.text)).is_disjoint(&stems)
        };
        let mentioning: Vec<_> = hits.iter().filter(mentions).cloned().collect();
        if mentioning.is_empty() { hits.into() } else { mentioning.into() }
    }
}

/// Returns whether a word is capitalised within a sentence that is not capitalised as a whole, like a title.
pub(crate) fn is_capitalised(question: &str, word: &str) -> bool {
    let words: Vec<_> = question.split_whitespace().collect();
    let has_capital = |word: &&&str| word.starts_with(char::is_uppercase);
    let opens = |at: usize| at == 0 || words[at - 1].ends_with(['.', '?', '!', ':']);
    let is_own = |at: usize| words[at].trim_matches(|letter: char| !letter.is_alphanumeric()).starts_with(word);
    let is_title = words.iter().filter(has_capital).count() * 2 > words.len();
    // An ordinary word that happens to be capitalised: "can Workers park".
    let is_word = || !word.chars().skip(1).any(char::is_uppercase) && is_english(&word.to_lowercase());
    !is_title
        && word.starts_with(char::is_uppercase)
        && !is_word()
        && (0..words.len()).any(|at| !opens(at) && is_own(at))
}

#[cfg(test)]
mod tests {
    use super::is_capitalised;

    #[test]
    fn name_is_capitalised_within_a_sentence() {
        assert!(is_capitalised("What are the steps to move from Phabricator's server?", "Phabricator"));
        assert!(is_capitalised("May I post it on LinkedIn?", "LinkedIn"));
        for (question, word) in [
            ("Phabricator costs how much?", "Phabricator"),
            ("Moving From Zeus To Phabricator", "Phabricator"),
            ("is it red", "red"),
            ("Can Workers park for free?", "Workers"),
        ] {
            assert!(!is_capitalised(question, word), "{question}");
        }
    }
}
