//! Language models behind one trait. This module depends on neither the knowledge base, nor runs, nor budgets.
//!
//! ```text
//! prompt ─▶ Model::send (one request) ─▶ reply
//!              ▲
//!           Caller::call (a request that is paid for, retried and recorded)
//!              ▲
//!           structured (a reply that follows a schema, repaired if necessary)
//! ```
//!
//! A [`model::Model`] sends one request, and its error says whether a retry can help. Research steps do not hold
//! models: they hold a [`call::Caller`], which reserves the worst case, records the call, sends it, and settles.
//!
//! # Where to look
//!
//! - [`openai`] is the client of endpoints; [`roles`] assigns models to roles.
//! - [`price`] is a pure table, used by implementations of [`call::Caller`].

pub mod message;
pub mod model;
pub(crate) mod call;
pub(crate) mod price;
pub(crate) mod schema;
mod thinking;
mod lenient;
pub(crate) mod structured;
pub(crate) mod openai;
pub(crate) mod endpoint;
pub mod roles;
pub(crate) mod probe;
