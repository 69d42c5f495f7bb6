//! Support: how well the hits of a search support an answer. Decides whether `dr` refuses or turns to the web.
//!
//! Two questions are asked of the [`Signals`] of a search, each by a logistic model: is the folder about this at all,
//! and do the hits contain the answer? The first is answered with hardly any errors. Features cannot answer the
//! second in every folder, so hits that fail it are shown as the closest passages instead of being refused. `fit`
//! fits the weights, `kb/concepts/support.md` has the figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::query::Query;
use super::signals::{COUNT, KeyWord, Measured, Signals};
use super::{Hit, JudgedHits, SearchError, SearchOptions, Searcher, Unknown};

/// How well the best hits support an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// No hit is relevant.
    #[default]
    None,
    /// Some hits are related to the question.
    Weak,
    /// Some hits are about the question.
    Strong,
}

/// Coverage from which hits without full text, such as those of a search engine, support an answer.
const STRONG_COVERAGE: f32 = 0.75;
const WEAK_COVERAGE: f32 = 0.50;

/// Relevance, as judged by a reranker, from which a hit answers.
const RELEVANT: f32 = 0.5;

/// A logistic model: the probability is above one half where the sum is above 0.
pub(super) struct LogisticModel {
    pub(super) bias: f32,
    /// One for each of [`Signals::values`].
    pub(super) weights: [f32; COUNT],
}

impl LogisticModel {
    fn odds(&self, signals: &Signals) -> f32 {
        let terms = self.weights.iter().zip(signals.values()).map(|(weight, (_, value))| weight * value);
        self.bias + terms.sum::<f32>()
    }

    fn agrees(&self, signals: &Signals) -> bool {
        self.odds(signals) >= 0.0
    }
}

/// Log odds that the hits of a search answer, without the term for the unit picked from them. They exist only for
/// hits that were compared with the question by token vectors, and that no reranker has judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Odds(pub(crate) f32);

/// `MaxSim` of the question in the unit that answers best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UnitMatch {
    /// In its text and headings.
    pub(crate) whole: f32,
    /// In its headings alone.
    pub(crate) headings: f32,
}

impl Odds {
    fn of(signals: &Signals) -> Option<Self> {
        let is_judged = signals.measured == Measured::Tokens && signals.relevance.is_none();
        is_judged.then(|| Self(SAYS_BY_UNIT.odds(signals)))
    }

    /// Judges hits that are on topic by the unit that answers best.
    pub(crate) fn judge(self, unit: UnitMatch) -> Support {
        let odds = self.with(unit);
        tracing::debug!(odds, "support judged by the best unit");
        if odds >= 0.0 { Support::Strong } else { Support::Weak }
    }

    /// Returns whether the best unit answers so clearly that a word missing from the folder does not matter.
    pub(crate) fn is_clear(self, unit: UnitMatch) -> bool {
        self.with(unit) >= CLEARLY
    }

    fn with(self, unit: UnitMatch) -> f32 {
        self.0 + WHOLE * unit.whole + HEADINGS * unit.headings
    }
}

// Fitted on 2026-11-22 by `just fit`, ten-fold cross-validated, on clapnq-dev, anthropic-docs-qa, hotpotqa-200 and the
// questions of `tests/answers` that are not held out; foreign are those of aws-docs-qa and of each other.

/// Whether the folder is about the question at all, fitted on its questions and on those about other things.
const ABOUT: LogisticModel =
    LogisticModel { bias: -8.047, weights: [0.0, 1.781, 0.0, -2.726, 0.0, 0.0, 7.675, 9.372, 0.0, 0.0, 0.0] };

/// Log odds of [`ABOUT`] from which the folder is about the question. Below even odds, because a wrong refusal hides
/// an answer, while a wrong acceptance only shows passages under a hedge. Of 242 answerable questions on 15 folders,
/// 8 are refused at even odds and 5 here; foreign questions are at −2.9 and below.
const LEAST_ABOUT: f32 = -1.0;

/// Whether the hits contain the answer, fitted on answerable questions and near misses.
const SAYS: LogisticModel =
    LogisticModel { bias: 7.334, weights: [0.0, 0.463, 0.0, 0.0, -1.575, -2.426, 4.87, 7.95, 0.0, -4.447, 0.112] };

/// The log odds that the hits contain the answer, without the term for the match of their best unit.
///
/// Fitted on 2026-11-25 on the sets of [`SAYS`] and on questions about four more folders, so that four of five of
/// clapnq-dev are answered.
const SAYS_BY_UNIT: LogisticModel =
    LogisticModel { bias: 9.842, weights: [0.0, 0.0, 0.0, 0.0, 0.0, -3.27, 5.94, 0.0, 0.0, -3.87, 1.01] };

/// Log odds from which the best unit answers a yes-or-no question although a word of it occurs nowhere. Of 16 such
/// questions on three folders that have no answer, none reaches 0.3; five that are answered in other words are at 0.4 to
/// 0.8. A question for another product may be far above, so its name is looked for as well.
const CLEARLY: f32 = 0.4;

/// Weights of [`UnitMatch`] beside [`SAYS_BY_UNIT`]. Words that match only the headings are evidence against an
/// answer.
const WHOLE: f32 = 8.2;
const HEADINGS: f32 = -5.22;

/// The same as [`ABOUT`], without token vectors.
const ABOUT_BY_SIMILARITY: LogisticModel =
    LogisticModel { bias: -6.586, weights: [0.0, 2.911, 0.0, -2.989, 0.0, 0.0, 12.121, 0.0, 0.0, 0.0, 0.0] };

/// The same as [`SAYS`], without token vectors.
const SAYS_BY_SIMILARITY: LogisticModel =
    LogisticModel { bias: 4.774, weights: [3.0, 0.96, 0.0, 0.0, -1.31, -2.154, 8.943, 0.0, 0.0, 0.0, -0.119] };

/// The same as [`ABOUT`], without vectors.
const ABOUT_BY_WORDS: LogisticModel =
    LogisticModel { bias: -5.430, weights: [6.273, 2.001, 0.306, -2.864, 3.085, 0.0, 0.0, 0.0, 0.0, 0.0, 0.745] };

/// The same as [`SAYS`], without vectors.
const SAYS_BY_WORDS: LogisticModel =
    LogisticModel { bias: -4.890, weights: [4.721, 1.942, 0.226, 1.764, -0.642, 0.0, 0.0, 0.0, 0.0, 0.0, 0.789] };

impl Support {
    pub(crate) fn judge(signals: &Signals) -> Self {
        let (is_about, says) = match signals.measured {
            Measured::Tokens => (ABOUT.odds(signals) >= LEAST_ABOUT, &SAYS),
            Measured::Similarity => (ABOUT_BY_SIMILARITY.agrees(signals), &SAYS_BY_SIMILARITY),
            Measured::Words => (ABOUT_BY_WORDS.agrees(signals), &SAYS_BY_WORDS),
        };
        // A reranker reads the hits, which features cannot.
        let says = signals.relevance.map_or_else(|| says.agrees(signals), |relevance| relevance >= RELEVANT);
        match (is_about, says) {
            (false, _) => Self::None,
            (true, false) => Self::Weak,
            (true, true) => Self::Strong,
        }
    }

    /// Judges the largest share of a question's key words in one hit, from 0 to 1.
    pub(crate) fn of_coverage(coverage: f32) -> Self {
        match coverage {
            coverage if coverage >= STRONG_COVERAGE => Self::Strong,
            coverage if coverage >= WEAK_COVERAGE => Self::Weak,
            _ => Self::None,
        }
    }
}

impl Searcher {
    /// Searches, and judges how well the hits support an answer. Corrects nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::search`].
    pub(super) async fn find_and_judge(
        &self,
        query: &Query,
        options: &SearchOptions,
        most: Measured,
    ) -> Result<JudgedHits, SearchError> {
        // A separate task, since planning a count for each key word takes as long as the search. Dropping the set
        // ends it.
        let mut counting = JoinSet::new();
        let (searcher, asked, filter) = (self.clone(), query.clone(), options.filter.clone());
        counting.spawn(async move { searcher.key_words(&asked, &filter).await }.in_current_span());
        let found = self.find(query, options).await?;
        // The set has one task, so there is always a result.
        let mut keys = counting.join_next().await.transpose()?.transpose()?.unwrap_or_default();
        let parts = self.parts_of_compounds(keys.iter().filter(|key| !key.is_known), &found.hits);
        for key in keys.iter_mut().filter(|key| parts.contains(&key.stem)) {
            key.is_known = true;
        }
        // Only if an answer is picked, which reads the hits as well.
        let mut names = match most {
            Measured::Tokens => self.proper_names(query, &keys, &options.filter).await?,
            Measured::Similarity | Measured::Words => Vec::new(),
        };
        let judged = self.to_judge(&found.hits, &names);
        let (mut support, mut odds) = self.judged(query, &judged, &keys, most).await?;
        // The passages about the named document are off topic. Others are shown as the closest passages, since an
        // ordinary word may be the name of a note.
        let is_of_others = support == Support::None && judged.len() < found.hits.len();
        if is_of_others {
            names.clear();
            (support, odds) = self.judged(query, &found.hits, &keys, most).await?;
        }
        let unknown = keys.into_iter().filter(|key| !key.is_known);
        let unknown = unknown.map(|key| Unknown { word: key.text, similar: Vec::new() }).collect();
        let (corrected, asked) = (None, query.language);
        Ok(JudgedHits { found, support, odds, unknown, names, is_of_others, corrected, asked })
    }

    /// Returns how well hits support an answer.
    async fn judged(
        &self,
        query: &Query,
        hits: &[Hit],
        keys: &[KeyWord],
        most: Measured,
    ) -> Result<(Support, Option<Odds>), SearchError> {
        if hits.is_empty() {
            return Ok((Support::None, None));
        }
        let signals = self.signals(query, hits, keys, most).await?;
        tracing::debug!(about = ABOUT.odds(&signals), says = SAYS.odds(&signals), ?signals, "support judged");
        Ok((Support::judge(&signals), Odds::of(&signals)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_say_it_are_strong_and_those_about_something_else_none() {
        let signals = |similarity: f32, found: f32| Signals::sample(similarity, found);
        assert_eq!(Support::judge(&signals(0.75, 0.9)), Support::Strong);
        assert_eq!(Support::judge(&signals(0.45, 0.5)), Support::Weak);
        assert_eq!(Support::judge(&signals(0.15, 0.1)), Support::None);
    }

    #[test]
    fn relevance_of_a_reranker_decides_whether_hits_that_are_about_the_question_answer_it() {
        let judged = |similarity, relevance| {
            let mut signals = Signals::sample(similarity, 0.5);
            signals.relevance = Some(relevance);
            Support::judge(&signals)
        };
        assert_eq!(
            [judged(0.45, 0.9), judged(0.75, 0.1), judged(0.15, 0.9)],
            [Support::Strong, Support::Weak, Support::None]
        );
    }

    #[test]
    fn unit_that_matches_by_more_than_its_headings_answers() {
        let mut signals = Signals::sample(0.6, 0.6);
        let odds = Odds::of(&signals).unwrap();
        assert_eq!(odds.judge(UnitMatch { whole: 0.9, headings: 0.3 }), Support::Strong);
        assert_eq!(odds.judge(UnitMatch { whole: 0.5, headings: 0.5 }), Support::Weak);
        signals.relevance = Some(0.2);
        assert_eq!(Odds::of(&signals), None);
    }

    #[test]
    fn hits_without_a_text_are_judged_by_coverage() {
        let judged = [0.8, 0.6, 0.3].map(Support::of_coverage);
        assert_eq!(judged, [Support::Strong, Support::Weak, Support::None]);
    }
}
