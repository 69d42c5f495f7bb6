//! A run in motion: what happened, what is left, what goes next.
//!
//! ```text
//! orchestrator ─▶ event ─▶ journal (disk)
//!      ▲            └────▶ tree (the state, a fold)
//!      │
//! scheduler (what runs next) ── desk (calls of models) ── cache (answers of sources) ── budget (what may be spent)
//! ```
//!
//! Whatever a run knows is in its journal: the state is folded from events, a model's reply is looked up before it is
//! paid for, a source's answer before it is asked for. A resumed run therefore runs the same code from the same state,
//! and finds that most of its calls have been made.

pub mod budget;

pub mod event;

pub mod journal;

pub mod phase;

pub mod tree;

pub mod store;

pub mod outward;

pub mod usage;

pub mod ledger;

pub mod job_log;

pub mod cache;

pub mod egress;

pub mod reader;

mod node_source;

pub mod sources;

mod outward_worker;

pub mod jobs;

pub mod desk;

pub mod recall;

pub mod scheduler;

pub mod steps;

mod work;

pub mod estimate;

pub mod orchestrator;

#[cfg(test)]
mod tests;
