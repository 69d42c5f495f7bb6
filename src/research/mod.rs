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

pub mod tripwire;

pub mod node;

pub mod plan;

pub mod rules;

pub mod route;

pub mod sentence;

pub mod evidence;

pub mod branch;

pub mod cut;

pub mod prompt;

pub mod brief;

pub mod extract;

pub mod report;

pub mod memory;

pub mod verdict;

pub mod planner;

mod locate;

mod action;

pub mod digest;

pub mod outward;

pub mod reported;

pub mod worker;

pub mod compress;

pub mod assemble;

mod claim;

pub mod writer;

#[cfg(test)]
pub(crate) mod scripted;
