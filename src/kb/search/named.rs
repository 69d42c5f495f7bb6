//! Finds documents that a query names. "What is the licence of brotli?" is about the note called brotli, whatever other
//! notes say of licences, and a note about another project does not answer it.

use std::collections::{BTreeSet, HashSet};

use super::query::Query;
use super::signals::{KeyWord, headings};
use super::{Hit, Hits, SearchError, SearchOptions, Searcher};
use crate::base::id::DocumentId;
use crate::kb::index::Filter;

/// Chunks with a word, from which it is too common to be a name. Each is read.
const COMMON: usize = 200;

/// Documents that may mention a name: this many, or one in so many of the folder. The manual of `Join-Path` does not
/// make "join" a name.
const FEW: usize = 5;
const ONE_IN: usize = 50;

/// Documents that may share a name, such as those of several versions.
const MOST_DOCUMENTS: usize = 4;

/// Longest name of a document, in words. A longer one is a sentence.
const MOST_WORDS: usize = 3;

/// Hits of the named documents that are added.
const HITS: usize = 3;

/// A word of a query that is a name, or part of one.
pub(super) struct Name {
    pub(super) word: String,
    stem: String,
    documents: BTreeSet<DocumentId>,
}

impl Searcher {
    /// Returns the rare words of a query that name documents: all words of their title, alias or file name are in the
    /// query.
    pub(super) async fn names(
        &self,
        query: &Query,
        keys: &[KeyWord],
        filter: &Filter,
    ) -> Result<Vec<Name>, SearchError> {
        let rare: Vec<_> = keys.iter().filter(|key| key.is_subject && (1..COMMON).contains(&key.count)).collect();
        if rare.is_empty() {
            return Ok(Vec::new());
        }
        let few = FEW.max(self.index.count_documents().await? / ONE_IN);
        let (terms, asked) = (self.index.terms(query.language), self.splitter.stems(&query.text));
        let mut names = Vec::new();
        for key in rare {
            let found = self.index.text_leg(&terms, &key.text, filter, COMMON).await?;
            let mentioning: HashSet<_> = found.iter().map(|hit| &hit.document_id).collect();
            if mentioning.len() > few {
                continue;
            }
            let rows = self.index.rows(&found.iter().map(|hit| hit.row_id).collect::<Vec<_>>()).await?;
            let named =
                rows.into_values().filter(|row| row.names.iter().any(|name| self.is_name(name, &key.stem, &asked)));
            let documents: BTreeSet<_> = named.map(|row| row.document_id).collect();
            if (1..=MOST_DOCUMENTS).contains(&documents.len()) {
                names.push(Name { word: key.text.clone(), stem: key.stem.clone(), documents });
            }
        }
        Ok(names)
    }

    /// Returns whether a name has the stem of a word, and no other words than those of the query. Signs, single letters
    /// and numbers do not count: `brotli-8.0.4`.
    fn is_name(&self, name: &str, stem: &str, asked: &HashSet<String>) -> bool {
        let is_word = |word: &str| word.chars().nth(1).is_some() && word.chars().any(char::is_alphabetic);
        let words = self.splitter.words(name);
        let words: Vec<_> = words.into_iter().filter(|word| is_word(&name[word.range.clone()])).collect();
        (1..=MOST_WORDS).contains(&words.len())
            && words.iter().any(|word| word.stem == stem)
            && words.iter().all(|word| asked.contains(&word.stem))
    }

    /// Adds the best hits of the documents that a query names. Returns the hits to judge as well: those that mention a
    /// name, of the search alone if there are any, because the weights of the judgement were fitted to its hits.
    pub(super) async fn with_named(
        &self,
        mut found: Hits,
        query: &Query,
        options: &SearchOptions,
        names: &[Name],
    ) -> Result<(Vec<Hit>, Hits), SearchError> {
        let documents: BTreeSet<_> = names.iter().flat_map(|name| &name.documents).cloned().collect();
        if documents.is_empty() {
            return Ok((found.hits.clone(), found));
        }
        let mut judged = found.hits.clone();
        judged.retain(|hit| self.mentions(hit, names));
        let filter = Filter { documents: Some(documents.into_iter().collect()), ..options.filter.clone() };
        let options = SearchOptions { filter, limit: options.limit.min(HITS), ..options.clone() };
        let added = self.find(query, &options).await?.hits;
        if judged.is_empty() {
            judged.clone_from(&added);
        }
        found.hits.retain(|hit| added.iter().all(|added| added.id != hit.id));
        found.hits.extend(added);
        found.hits.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok((judged, found))
    }

    fn mentions(&self, hit: &Hit, names: &[Name]) -> bool {
        let words = self.splitter.stems(&format!("{}\n{}", headings(hit), hit.text));
        names.iter().any(|name| name.documents.contains(&hit.document_id) || words.contains(&name.stem))
    }
}
