//! Branches and a draft become a Verdict: enough, or what is missing.

use serde::{Deserialize, Serialize};

use super::node::NodeId;
use super::question::AspectId;

/// What the judge says after a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the question is answered.
    pub is_complete: bool,
    /// Whether more research would help.
    pub recommend_more_iterations: bool,
    /// Aspects without an answer.
    pub missing_aspects: Vec<AspectId>,
    /// Where the evidence is thin, in words.
    pub weak_evidence_areas: Vec<String>,
    /// How far the answer can be relied on, from 0 to 1.
    pub overall_confidence: f32,
    /// Nodes the verdict rests on.
    pub relied_on: Vec<NodeId>,
    /// What code found wrong before anybody was asked.
    pub complaints: Vec<String>,
}

impl Verdict {
    /// Tells whether the run can end here.
    pub fn is_enough(&self) -> bool {
        self.is_complete && !self.recommend_more_iterations
    }
}
