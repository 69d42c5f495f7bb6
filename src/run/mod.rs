//! A run in progress: its journal, its state, its scheduler, and what it may spend.
//!
//! ```text
//! orchestrator ─▶ event ─▶ journal (disk)
//!      ▲            └────▶ tree (the state, a fold)
//!      │
//! scheduler (what runs next) ── desk (calls of models) ── cache (answers of sources) ── budget (what may be spent)
//! ```
//!
//! The journal holds everything a run knows: the state is folded from events, and replies of models and answers of
//! sources are looked up before they are requested. A resumed run therefore executes the same code from the same state
//! and finds most of its calls on record.

pub mod budget;
pub mod event;
pub(crate) mod journal;
pub(crate) mod phase;
pub(crate) mod tree;
pub mod store;
pub(crate) mod outward;
pub(crate) mod usage;
mod spans;
pub(crate) mod ledger;
pub(crate) mod cache;
pub(crate) mod egress;
pub(crate) mod background;
pub(crate) mod reader;
pub(crate) mod ranker;
pub(crate) mod wait_limit;
mod shared;
pub(crate) mod servers;
mod node_source;
pub(crate) mod sources;
pub(crate) mod outlook;
pub(crate) mod desk;
mod outward_worker;
pub(crate) mod recall;
pub(crate) mod earlier;
pub mod scheduler;
pub(crate) mod steps;
mod work;
pub(crate) mod estimate;
pub mod orchestrator;

#[cfg(test)]
mod tests;
