//! Language models behind one trait; nothing here knows a knowledge base, a run or a budget.
//!
//! ```text
//! prompt ─▶ Model::send (one request) ─▶ reply
//!              ▲
//!           Caller::call (a request that somebody pays for, retries and keeps on record)
//!              ▲
//!           structured (a reply of a given form, repaired where it can be)
//! ```
//!
//! A [`model::Model`] sends one request and says of a failure what can be done about it. Steps of research do not hold
//! models: they hold a [`call::Caller`], which reserves the worst case, writes the call down, sends it, and settles.
//!
//! # Where to look
//!
//! - [`openai`] speaks to endpoints, [`tape`] to recordings of them; [`roles`] says who speaks to which.
//! - [`openai::job`] follows research that a provider does in the background; [`deep_research`] says with which model
//!   and within which limits.
//! - [`retry`] and [`price`] are tables without a clock or a purse; whoever implements [`call::Caller`] uses them.

pub mod message;

pub mod model;

pub mod call;

pub mod retry;

pub mod price;

pub mod schema;

mod thinking;

mod lenient;

pub mod structured;

pub mod openai;

pub mod tape;

pub mod endpoint;

pub mod roles;

pub mod deep_research;

pub mod probe;
