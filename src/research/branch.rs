//! A branch: the findings of one node and the report its worker wrote.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::evidence::{Evidence, EvidenceId};
use super::question::AspectId;
use crate::source::{Passage, Support};

/// A claim and the quotes that support it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub(crate) text: String,
    /// Quotes that support it.
    pub(crate) evidence: Vec<EvidenceId>,
    /// The aspect it answers, if known.
    pub(crate) aspect: Option<AspectId>,
    /// Whether its text is a sentence of its quotes and clearly the one that answers, to be emphasised there.
    #[serde(default)]
    pub(crate) is_emphasised: bool,
}

/// Why a worker stopped; whatever it had by then is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BranchStop {
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
    /// No relevant evidence was found.
    NoEvidence,
}

/// A worker's report on its question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchReport {
    /// Short answer.
    pub summary: String,
    /// The answer claim by claim. Every id refers to a quote of this branch.
    pub(crate) findings: Vec<Finding>,
    /// From 0 to 1.
    pub(crate) confidence: f32,
    /// Questions the worker could not answer.
    pub(crate) open_questions: Vec<String>,
    /// The result in the node's output schema, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) output: Option<Value>,
    /// Why the worker stopped.
    pub(crate) stop_reason: BranchStop,
}

/// The result of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// The worker's report.
    pub(crate) report: BranchReport,
    /// Checked quotes.
    pub(crate) evidence: Vec<Evidence>,
    /// Further passages worth reading, best first, with `text` cleared.
    pub(crate) further: Vec<Passage>,
    /// How well the sources match the question.
    pub(crate) support: Support,
    /// Limitations to print in the report, for example that a file changed since it was indexed.
    pub(crate) notes: Vec<String>,
    /// Deep Research claims that no fetched page confirms.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) reported: Vec<Reported>,
    /// Whether its text may repeat internal text that it does not cite. Set for a job that could call the user's own
    /// server.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) saw_internal: bool,
}

impl BranchReport {
    /// Returns the report of a worker without evidence. Claims of its model without a source are dropped.
    pub(super) fn without_findings(question: &str, stop_reason: BranchStop) -> Self {
        Self {
            summary: String::new(),
            findings: Vec::new(),
            confidence: 0.0,
            open_questions: vec![question.to_owned()],
            output: None,
            stop_reason,
        }
    }
}

impl Branch {
    /// Returns the branch of a node without findings, whose question stays open.
    pub(crate) fn without_findings(question: &str) -> Self {
        Self {
            report: BranchReport::without_findings(question, BranchStop::NoEvidence),
            evidence: Vec::new(),
            further: Vec::new(),
            support: Support::None,
            notes: Vec::new(),
            reported: Vec::new(),
            saw_internal: false,
        }
    }
}

/// A Deep Research claim that no fetched page confirms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reported {
    /// The claim in the provider's words.
    pub(crate) text: String,
    /// URL of the page it cites.
    pub(crate) url: String,
    pub(crate) title: String,
}
