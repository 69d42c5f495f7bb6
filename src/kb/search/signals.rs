//! Measures how well the hits of a search match the question, for [`Support`](super::support::Support).

use std::collections::HashSet;
use std::sync::Arc;

use super::query::Query;
use super::{Hit, SearchError, Searcher};
use crate::base::everyday::is_everyday;
use crate::base::word::count_words;
use crate::kb::embed::{EmbedError, Embedder, is_english, windows};
use crate::kb::index::Filter;

/// Number of hits whose texts are compared with the question.
const READ: usize = 3;

/// Number of words in one part of a passage, and of parts in one window: about two sentences.
const PART_WORDS: usize = 12;
const WINDOW_PARTS: usize = 3;

/// Maximum number of key words that are counted, each by a search of the index. A pasted text has more.
const MAX_KEY_WORDS: usize = 32;

/// A smaller folder counts as one of this many chunks: in a handful of notes no word is common, and every missing
/// word would outweigh those that occur.
const LEAST_CHUNKS: usize = 200;

/// Number of [`Signals::values`].
pub(super) const COUNT: usize = 11;

/// The data that [`Signals`] were measured with. Signals that need more are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Measured {
    /// The words of the question and of the hits.
    #[default]
    Words,
    /// The cosines of the search as well.
    Similarity,
    /// The token vectors of the question and of the hits as well. The embedder reads the hits again for that.
    Tokens,
}

/// Measurements of the best hits. A share of the question's words counts each key word by its rarity in the folder
/// (inverse document frequency) and is from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Signals {
    pub(super) measured: Measured,
    /// Share of the question's words within about two sentences of a hit.
    window: f32,
    /// Share within all compared hits, headings included.
    hits: f32,
    /// Weight of the rarest word in none of the hits, relative to the rarest word of the question.
    missing: f32,
    /// Share of words that the folder does not have.
    unknown: f32,
    /// Text score of the first hit, relative to the sum of the words' weights.
    text_score: f32,
    /// Logarithm of the number of words in the longest compared hit: the more there are, the more match by chance.
    length: f32,
    /// Largest cosine of the question and a hit.
    similarity: f32,
    /// Largest `MaxSim` of the question in a hit.
    passage: f32,
    /// Largest `MaxSim` of the question within about two sentences of a hit.
    sentence: f32,
    /// How poorly a rare word is matched: the largest of (1 − `MaxSim` of the word) × its relative weight, taken from
    /// the hit where it is smallest.
    worst: f32,
    /// Number of key words, as a logarithm.
    words: f32,
    /// Largest relevance of a hit, if hits were reranked.
    pub(super) relevance: Option<f32>,
}

impl Signals {
    /// Signals of a question of four words with these matches.
    #[cfg(test)]
    pub(super) fn sample(similarity: f32, found: f32) -> Self {
        Self {
            measured: Measured::Tokens,
            window: found,
            hits: found,
            missing: 1.0 - found,
            unknown: 0.0,
            text_score: found,
            length: 5.0,
            similarity,
            passage: f32::midpoint(similarity, found),
            sentence: f32::midpoint(similarity, found),
            worst: 1.0 - found,
            words: 1.6,
            relevance: None,
        }
    }

    /// Returns the signals with their names, in the order of the weights.
    pub(super) fn values(&self) -> [(&'static str, f32); COUNT] {
        [
            ("window", self.window),
            ("hits", self.hits),
            ("missing", self.missing),
            ("unknown", self.unknown),
            ("text_score", self.text_score),
            ("length", self.length),
            ("similarity", self.similarity),
            ("passage", self.passage),
            ("sentence", self.sentence),
            ("worst", self.worst),
            ("words", self.words),
        ]
    }
}

pub(super) struct KeyWord {
    pub(super) text: String,
    pub(super) stem: String,
    /// Inverse document frequency.
    weight: f32,
    pub(super) is_known: bool,
    /// Whether it names the subject. One that only phrases the question counts only in the text score.
    pub(super) is_subject: bool,
}

impl Searcher {
    pub(super) async fn signals(
        &self,
        query: &Query,
        hits: &[Hit],
        keys: &[KeyWord],
        most: Measured,
    ) -> Result<Signals, SearchError> {
        let mut signals = self.by_words(query, hits, keys);
        let words: Vec<_> = keys.iter().map(|key| key.text.as_str()).collect();
        // Near forms add terms to a word, and thereby to its score.
        signals.text_score /= self.index.terms(query.language).forms(&words);
        signals.relevance = hits.iter().filter_map(|hit| hit.explain.relevance).reduce(f32::max);
        let similarity = hits.iter().filter_map(|hit| hit.explain.vector_similarity).reduce(f32::max);
        // The weights are fitted to the cosines of the embedder that compares tokens.
        let embedder = self.embedder.as_ref().ok().filter(|embedder| embedder.compares_tokens());
        let (Some(similarity), Some(embedder)) = (similarity, embedder) else { return Ok(signals) };
        signals.measured = most;
        signals.similarity = similarity;
        if most == Measured::Tokens {
            let words = query.text.split_whitespace().map(|word| (word.to_owned(), self.weight(word, keys)));
            let words: Vec<_> = words.collect();
            let texts: Vec<_> = hits.iter().take(READ).map(|hit| (headings(hit), hit.text.clone())).collect();
            let embedder = Arc::clone(embedder);
            let compared = tokio::task::spawn_blocking(move || by_meaning(&words, &texts, embedder.as_ref()));
            (signals.passage, signals.sentence, signals.worst) = compared.await??;
        }
        Ok(signals)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
    fn by_words(&self, query: &Query, hits: &[Hit], keys: &[KeyWord]) -> Signals {
        let all_words = keys.iter().map(|key| key.weight).sum::<f32>().max(f32::EPSILON);
        let count = keys.len();
        let keys: Vec<_> = keys.iter().filter(|key| key.is_subject).collect();
        let total = keys.iter().map(|key| key.weight).sum::<f32>().max(f32::EPSILON);
        let sum = |is: &dyn Fn(&KeyWord) -> bool| keys.iter().filter(|key| is(key)).map(|key| key.weight).sum::<f32>();
        let share = |stems: &HashSet<String>| sum(&|key| stems.contains(&key.stem)) / total;
        let (mut all, mut window, mut longest) = (HashSet::new(), 0.0_f32, 0);
        for hit in hits.iter().take(READ) {
            let stems: Vec<_> = parts(&hit.text).into_iter().map(|part| self.splitter.stems(part)).collect();
            for own in windows(stems.len(), WINDOW_PARTS) {
                window = window.max(share(&stems[own].iter().flatten().cloned().collect()));
            }
            all.extend(self.splitter.stems(&headings(hit)));
            all.extend(stems.into_iter().flatten());
            longest = longest.max(count_words(&hit.text));
        }
        let read = hits.iter().take(READ).flat_map(|hit| [headings(hit), hit.text.clone()]);
        query.related.add_to(&mut all, &read.collect::<Vec<_>>().join("\n"));
        all.extend(self.parts_of_compounds(keys.iter().copied(), hits));
        let missing = keys.iter().filter(|key| !all.contains(&key.stem)).map(|key| key.weight);
        let score = hits.iter().filter_map(|hit| hit.explain.lexical_score).fold(0.0, f32::max);
        Signals {
            window,
            hits: share(&all),
            missing: missing.fold(0.0, f32::max) / rarest(keys.iter().copied()),
            unknown: sum(&|key| !key.is_known) / total,
            text_score: score / all_words,
            length: (longest as f32).ln_1p(),
            words: (count as f32).ln_1p(),
            ..Signals::default()
        }
    }

    /// Returns the stems of the key words that are parts of compounds in the hits.
    pub(super) fn parts_of_compounds<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a KeyWord, IntoIter: Clone>,
        hits: &[Hit],
    ) -> HashSet<String> {
        let stems = keys.into_iter().map(|key| &key.stem);
        hits.iter().take(READ).flat_map(|hit| self.splitter.parts_in(&hit.text, stems.clone())).collect()
    }

    /// Returns the weight of a word relative to the rarest key word; 0 for a stop word and for one that only phrases
    /// the question.
    fn weight(&self, word: &str, keys: &[KeyWord]) -> f32 {
        let stems = self.splitter.stems(word);
        let subject = || keys.iter().filter(|key| key.is_subject);
        let own = subject().filter(|key| stems.contains(&key.stem)).map(|key| key.weight);
        own.fold(0.0, f32::max) / rarest(subject())
    }

    /// Returns the key words of a query with their weights.
    #[expect(clippy::cast_precision_loss, reason = "a folder has less than 16 million chunks")]
    pub(super) async fn key_words(&self, query: &Query, filter: &Filter) -> Result<Vec<KeyWord>, SearchError> {
        let all = self.index.count_chunks(filter).await?.max(LEAST_CHUNKS);
        let words = self.splitter.words(&query.text);
        let keys = self.splitter.key_stems(&query.text).into_iter().take(MAX_KEY_WORDS);
        let keys = keys.filter_map(|stem| {
            let word = words.iter().find(|word| word.stem == stem)?;
            Some((stem, query.text[word.range.clone()].to_owned()))
        });
        let terms = &self.index.terms(query.language);
        let counted = keys.map(async |(stem, text)| {
            let count = self.index.count_with(terms, &text, filter, all).await? as f32;
            let all = all as f32;
            // As in BM25, in the form that is never negative.
            let weight = (1.0 + (all - count + 0.5).max(0.5) / (count + 0.5)).ln();
            Ok::<_, SearchError>(KeyWord { is_known: count > 0.0, is_subject: true, weight, stem, text })
        });
        let mut keys: Vec<_> = futures::future::try_join_all(counted).await?;
        // "Why did we choose …?" is answered by a note that never says "choose".
        let subject = self.splitter.subject_stems(&query.text);
        let is_subject = |key: &KeyWord| subject.contains(&key.stem);
        let is_about = |key: &KeyWord| is_subject(key) && !is_wording(&key.text, &query.text);
        let has_subject = keys.iter().any(is_about);
        keys.retain(|key| key.is_known || is_about(key) || !has_subject && is_subject(key));
        for key in &mut keys {
            key.is_subject = is_subject(key);
        }
        Ok(keys)
    }
}

/// Pronouns before the verb of a clause, and after it.
const SUBJECTS: [&str; 7] = ["i", "we", "you", "they", "it", "he", "she"];
const OBJECTS: [&str; 6] = ["it", "them", "me", "us", "him", "her"];

/// Openings of a question that may end with its verb, and auxiliaries before that verb.
const FRONTED: [&str; 4] = ["how many ", "how much ", "what ", "which "];
const AUXILIARIES: [&str; 9] = ["can", "could", "do", "does", "did", "may", "must", "should", "will"];

/// Returns whether an English word says nothing of the subject of a question, so that a folder without it may answer: an
/// everyday word, the verb beside a pronoun, as in "Can I load …?" and "before a guest burns it", or the verb at the end
/// of "How many guests can a boat hold?".
fn is_wording(word: &str, question: &str) -> bool {
    let is_verb = || {
        let (lower, word) = (question.to_lowercase(), word.to_lowercase());
        let words: Vec<_> =
            lower.split(|letter: char| !letter.is_alphanumeric()).filter(|own| !own.is_empty()).collect();
        let is_fronted = || {
            FRONTED.iter().any(|opening| lower.trim_start().starts_with(opening))
                && words.iter().any(|own| AUXILIARIES.contains(own))
        };
        let is_beside = |pair: &[&str]| {
            SUBJECTS.contains(&pair[0]) && pair[1] == word || pair[0] == word && OBJECTS.contains(&pair[1])
        };
        words.windows(2).any(is_beside) || words.last().is_some_and(|last| *last == word) && is_fronted()
    };
    is_everyday(word) || is_verb() && is_english(word)
}

fn rarest<'a>(keys: impl Iterator<Item = &'a KeyWord>) -> f32 {
    keys.map(|key| key.weight).fold(f32::EPSILON, f32::max)
}

/// Returns the signals `passage`, `sentence` and `worst`, given the words of a question with their weights, and the
/// headings and the text of each hit.
fn by_meaning(
    words: &[(String, f32)],
    texts: &[(String, String)],
    embedder: &dyn Embedder,
) -> Result<(f32, f32, f32), EmbedError> {
    let question: Vec<_> = words.iter().map(|(word, _)| word.as_str()).collect();
    let with_headings =
        texts.iter().map(|(headings, text)| std::iter::once(headings.as_str()).chain(parts(text)).collect());
    let texts: Vec<Vec<&str>> = with_headings.collect();
    let (mut passage, mut sentence, mut worst) = (0.0_f32, 0.0_f32, 1.0_f32);
    for (found, parts) in embedder.compare(&question, &texts)?.iter().zip(&texts) {
        let whole = 0..parts.len();
        passage = passage.max(found.max_sim(whole.clone()));
        sentence = sentence.max(found.best_window(WINDOW_PARTS));
        let lacking = found.by_word(whole).into_iter().zip(words).map(|(found, (_, weight))| (1.0 - found) * weight);
        worst = worst.min(lacking.fold(0.0, f32::max));
    }
    Ok((passage, sentence, worst))
}

/// Returns the title and the headings above a hit.
pub(super) fn headings(hit: &Hit) -> String {
    let own = hit.heading_path.iter().filter(|heading| **heading != hit.title);
    std::iter::once(&hit.title).chain(own).map(String::as_str).collect::<Vec<_>>().join(". ")
}

/// Cuts a text into parts of some words.
fn parts(text: &str) -> Vec<&str> {
    let mut starts = Vec::new();
    let mut is_inside = false;
    for (at, letter) in text.char_indices() {
        if !letter.is_whitespace() && !is_inside {
            starts.push(at);
        }
        is_inside = !letter.is_whitespace();
    }
    let starts: Vec<_> = starts.into_iter().step_by(PART_WORDS).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_words_and_the_verb_of_a_question_are_not_its_subject() {
        let question = "Can I load big stuff before the container burns it?";
        assert!(["load", "big", "stuff", "burns"].iter().all(|word| is_wording(word, question)));
        assert!(!is_wording("container", question) && !is_wording("load", "Where is the load?"));
        assert!(!is_wording("instal", "How do I instal it?"), "it is misspelt");
        assert!(is_wording("hold", "How many guests can a boat hold?"));
        assert!(!is_wording("boat", "How many guests are on the boat?"));
    }

    #[test]
    fn text_is_cut_into_parts_of_some_words_and_no_letter_is_lost() {
        let words: Vec<_> = (0..30).map(|number| format!("é{number}")).collect();
        let text = words.join("  ");
        let cut = parts(&text);
        assert_eq!(cut.concat(), text);
        assert_eq!(cut.iter().map(|part| part.split_whitespace().count()).collect::<Vec<_>>(), [12, 12, 6]);
        assert!(parts(" \n").is_empty());
    }
}
