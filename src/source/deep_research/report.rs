//! What a job found, whichever provider it ran at.

use std::ops::Range;

use crate::llm::message::Usage;

/// What a job found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    /// Its words, of all messages in order.
    pub text: String,
    /// What it cites, in order.
    pub citations: Vec<JobCitation>,
    /// What it searched for, each once.
    pub searches: Vec<String>,
    /// Addresses of pages it opened, each once.
    pub opened: Vec<String>,
    /// Summaries of its reasoning.
    pub reasoning: Vec<String>,
    /// Tokens; none where the provider does not say.
    pub usage: Option<Usage>,
    /// Searches that cost something; none where the provider does not say.
    pub web_searches: Option<u64>,
    /// The limit at which the job stopped before it was done.
    pub incomplete: Option<String>,
    /// Its words where it would not answer.
    pub refusal: Option<String>,
    /// Times it ran code of its own.
    pub code_runs: usize,
    /// Parts of the reply of a kind nobody knows.
    pub unknown_items: usize,
}

/// A page a report cites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCitation {
    /// Its address, `http` or `https`.
    pub url: String,
    /// Its title, on one line.
    pub title: String,
    /// The marker in the text, in bytes, always between characters; none where it lies outside.
    pub span: Option<Range<usize>>,
}
