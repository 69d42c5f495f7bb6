//! The steps from a question to a report.
//!
//! ```text
//! question ─▶ brief ─▶ plan ─▶ node ─▶ evidence ─▶ branch ─▶ memory ─▶ verdict ─▶ report
//! ```
//!
//! A step is a function of its arguments: it spawns no task, reads no clock and writes no file. `run` supplies those,
//! so that a resumed or replayed run repeats a step with the same result. Steps that need a model take a
//! [`Caller`](crate::llm::call::Caller); their rule-based counterparts ([`rules`], [`extract`], [`assemble`]) quote
//! sentences of the sources verbatim.

pub mod question;

pub(crate) mod tripwire;

pub mod node;

pub mod plan;

pub mod rules;

pub(crate) mod route;

pub mod sentence;

mod lead_in;

pub(crate) mod unit;

pub mod evidence;

pub(crate) mod cut;

pub(crate) mod prompt;

pub(crate) mod folded;

pub mod pick;

pub mod branch;

pub(crate) mod brief;

pub mod extract;

pub(crate) mod claim;

pub mod report;

pub mod memory;

mod locate;

pub mod digest;

pub(crate) mod rerank;

pub(crate) mod skim;

mod said;

pub(crate) mod task;

pub(crate) mod outward;

mod abridged;

mod action;

pub(crate) mod worker;

pub(crate) mod compress;

pub(crate) mod verdict;

pub(crate) mod planner;

pub(crate) mod assemble;

pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod scripted;

#[cfg(test)]
mod forms;
