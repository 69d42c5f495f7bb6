//! Support: how well the hits of a search support an answer. Decides whether `dr` refuses or turns to the web.
//!
//! Judged from two measurements of the best hits: cosine similarity to the question, and the share of the question's
//! key words in a hit. The thresholds were fitted on questions with known answers in a knowledge base, and on the same
//! questions asked of knowledge bases on other subjects; `kb/concepts/support.md` has the figures.

use serde::{Deserialize, Serialize};

/// How well the best hits support an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// No hit is relevant.
    None,
    /// Some hits are related to the question.
    Weak,
    /// Some hits are about the question.
    Strong,
}

/// Measurements of the best hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Signals {
    /// Largest cosine similarity of a hit; `None` without vectors.
    pub(crate) similarity: Option<f32>,
    /// Largest share of the question's key words in one hit, from 0 to 1.
    pub(crate) coverage: f32,
}

const STRONG_SIMILARITY: f32 = 0.55;
const WEAK_SIMILARITY: f32 = 0.40;
const STRONG_COVERAGE: f32 = 0.75;
const WEAK_COVERAGE: f32 = 0.50;

impl Support {
    /// Judges the signals of a search that has at least one hit.
    pub(crate) fn judge(signals: Signals) -> Self {
        let Signals { similarity, coverage } = signals;
        let Some(similarity) = similarity else {
            return match coverage {
                coverage if coverage >= STRONG_COVERAGE => Self::Strong,
                coverage if coverage >= WEAK_COVERAGE => Self::Weak,
                _ => Self::None,
            };
        };
        // Each measurement compensates for a weakness of the other: rare names embed badly, and paraphrases share no
        // words with the question.
        let evidence = similarity / STRONG_SIMILARITY + coverage / STRONG_COVERAGE;
        if similarity >= STRONG_SIMILARITY && coverage >= WEAK_COVERAGE || evidence >= 2.0 {
            Self::Strong
        } else if similarity >= WEAK_SIMILARITY && coverage >= WEAK_COVERAGE / 2.0 || coverage >= STRONG_COVERAGE {
            Self::Weak
        } else {
            Self::None
        }
    }
}
