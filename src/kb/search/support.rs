//! How well the knowledge base supports an answer: the signal that lets `dr` refuse, or go to the web.
//!
//! Two measures of the best hits decide: their cosine similarity to the question, and the share of the question's key
//! words they have. The thresholds were set on questions whose answers are known to be in a knowledge base, and the
//! same questions asked of knowledge bases about other things; `kb/concepts/support.md` has the figures.

use serde::{Deserialize, Serialize};

/// How well the best hits bear on the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// Nothing found bears on it.
    None,
    /// Something related was found.
    Weak,
    /// Passages about the question were found.
    Strong,
}

/// What is known of the best hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// Largest cosine similarity of a hit; `None` without vectors.
    pub similarity: Option<f32>,
    /// Largest share of the question's key words in one hit, from 0 to 1.
    pub coverage: f32,
}

const STRONG_SIMILARITY: f32 = 0.55;
const WEAK_SIMILARITY: f32 = 0.40;
const STRONG_COVERAGE: f32 = 0.75;
const WEAK_COVERAGE: f32 = 0.50;

impl Support {
    /// Judges the signals of a search that found something.
    pub fn judge(signals: Signals) -> Self {
        let Signals { similarity, coverage } = signals;
        let Some(similarity) = similarity else {
            return match coverage {
                coverage if coverage >= STRONG_COVERAGE => Self::Strong,
                coverage if coverage >= WEAK_COVERAGE => Self::Weak,
                _ => Self::None,
            };
        };
        // Each measure makes up for some of the other: rare names have no good vector, paraphrases no common words.
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
