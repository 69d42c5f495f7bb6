//! The report of a job, independent of its provider.

use std::ops::Range;

use crate::llm::message::Usage;

/// The parsed report of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    /// Text of all messages, in order.
    pub text: String,
    /// Citations, in order.
    pub citations: Vec<JobCitation>,
    /// Distinct search queries.
    pub searches: Vec<String>,
    /// Distinct URLs of opened pages.
    pub opened: Vec<String>,
    /// Summaries of its reasoning.
    pub reasoning: Vec<String>,
    /// Token counts; `None` if the provider does not report them.
    pub usage: Option<Usage>,
    /// Number of billed searches; `None` if the provider does not report it.
    pub web_searches: Option<u64>,
    /// The limit that stopped the job early.
    pub incomplete: Option<String>,
    /// The model's refusal to answer.
    pub refusal: Option<String>,
    /// Number of code executions.
    pub code_runs: usize,
    /// Number of items in the reply of a type this version does not know.
    pub unknown_items: usize,
}

/// A page cited by a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCitation {
    /// URL, `http` or `https`.
    pub url: String,
    /// Title on one line.
    pub title: String,
    /// Byte range of the citation mark in the text, at character boundaries. `None` if the provider's range is invalid.
    pub span: Option<Range<usize>>,
}
