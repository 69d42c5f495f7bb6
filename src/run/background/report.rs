//! The report of a job, independent of its provider.

use std::ops::Range;

use crate::llm::message::Usage;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobReport {
    /// Text of all messages, in order.
    pub(crate) text: String,
    /// Citations, in order.
    pub(crate) citations: Vec<JobCitation>,
    /// Distinct search queries.
    pub(crate) searches: Vec<String>,
    /// Distinct URLs of opened pages.
    pub(crate) opened: Vec<String>,
    pub(crate) reasoning: Vec<String>,
    /// Token counts; `None` if the provider does not report them.
    pub(crate) usage: Option<Usage>,
    /// Number of billed searches; `None` if the provider does not report it.
    pub(crate) web_searches: Option<u64>,
    /// The limit that stopped the job early.
    pub(crate) incomplete: Option<String>,
    /// Whether the job could call one of the user's tool servers, so its claims may come from other sources than the web.
    pub(crate) had_server: bool,
    /// The model's refusal to answer.
    pub(crate) refusal: Option<String>,
    /// Number of code executions.
    pub(crate) code_runs: usize,
}

/// A page cited by a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobCitation {
    /// URL, `http` or `https`.
    pub(crate) url: String,
    pub(crate) title: String,
    /// Byte range of the citation mark in the text, at character boundaries. `None` if the provider's range is invalid.
    pub(crate) span: Option<Range<usize>>,
}
