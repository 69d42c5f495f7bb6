//! A Node becomes a Branch: what its worker found, and the report it wrote of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::evidence::{Evidence, EvidenceId};
use super::question::AspectId;
use crate::source::{Passage, Support};

/// A claim and the quotes that bear it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What is claimed.
    pub text: String,
    /// The quotes that bear it out.
    pub evidence: Vec<EvidenceId>,
    /// The aspect of the question it answers, where it is known.
    pub aspect: Option<AspectId>,
}

/// Why a worker stopped; whatever it had by then is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchStop {
    /// It had what it needed.
    Done,
    /// It took as many steps as it may.
    StepsExceeded,
    /// It used as many tokens as it may.
    TokensExceeded,
    /// It kept making calls it had made.
    Repeated,
    /// A limit of the run was reached.
    BudgetExceeded,
    /// Its model failed after something had been noted.
    ModelFailed,
    /// Nothing was found that bears on its question.
    NoEvidence,
}

/// What a worker says of its question when it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchReport {
    /// The answer in short.
    pub summary: String,
    /// The answer claim by claim; every id is of a quote this branch has.
    pub findings: Vec<Finding>,
    /// How far it can be relied on, from 0 to 1.
    pub confidence: f32,
    /// What is still open.
    pub open_questions: Vec<String>,
    /// The result in the form the plan wanted, where it wanted one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<Value>,
    /// Why the worker stopped.
    pub stop_reason: BranchStop,
}

/// Everything a node leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// What was found out.
    pub report: BranchReport,
    /// The quotes, checked.
    pub evidence: Vec<Evidence>,
    /// Passages worth reading beyond the quotes, best first, without their texts.
    pub further: Vec<Passage>,
    /// How well the sources bear on the question.
    pub support: Support,
    /// What people should know, for example of a file that has changed.
    pub notes: Vec<String>,
    /// What Deep Research says and no page was found to bear out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reported: Vec<Reported>,
}

/// A claim of a provider that no page was found to bear out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The claim.
    pub text: String,
    /// The page it cites.
    pub url: String,
    /// Its title.
    pub title: String,
}
