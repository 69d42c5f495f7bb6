//! The steps of an answer, each from one noun to the next.
//!
//! ```text
//! question ─▶ brief ─▶ plan ─▶ node ─▶ evidence ─▶ branch ─▶ memory ─▶ verdict ─▶ report
//! ```
//!
//! A step is a function from values to a value: it starts no tasks, reads no clock, writes no file. Without a model a
//! report is made of sentences that stand in the sources; [`sentence`] finds them, [`evidence`] ties each to its place.

pub mod question;

pub mod egress;

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

mod compress;

pub mod digest;

pub mod outward;

pub mod reported;

pub mod worker;

pub mod assemble;

mod claim;

pub mod writer;

#[cfg(test)]
pub(crate) mod scripted;
