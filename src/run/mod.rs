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

pub(crate) mod journal;

pub(crate) mod phase;

pub(crate) mod tree;

pub mod store;

pub(crate) mod outward;

pub(crate) mod usage;

pub(crate) mod ledger;

pub(crate) mod job_log;

pub(crate) mod cache;

pub(crate) mod egress;

pub(crate) mod reader;

mod node_source;

pub(crate) mod sources;

mod outward_worker;

pub(crate) mod jobs;

pub(crate) mod desk;

pub(crate) mod recall;

pub mod scheduler;

pub(crate) mod steps;

mod work;

pub(crate) mod estimate;

pub mod orchestrator;

#[cfg(test)]
mod tests;
