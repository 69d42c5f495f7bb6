//! The steps of an answer, each from one noun to the next.
//!
//! ```text
//! question ─▶ brief ─▶ plan ─▶ node ─▶ evidence ─▶ branch ─▶ memory ─▶ verdict ─▶ report
//! ```
//!
//! A step is a function from values to a value: it starts no tasks, reads no clock, writes no file. Without a model a
//! report is made of sentences that stand in the sources; [`sentence`] finds them, [`evidence`] ties each to its place.

pub mod question;

pub mod node;

pub mod plan;

pub mod rules;

pub mod sentence;

pub mod evidence;

pub mod branch;

pub mod extract;

pub mod verdict;

pub mod report;
