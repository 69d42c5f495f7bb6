//! The knowledge base: Markdown files in, ranked passages out; PDF and HTML files by way of [`extract`].
//!
//! ```text
//! document ──▶ chunk ──▶ vector ──▶ index      (written by `ingest`)
//!                                     │
//!                            query ──▶ search ──▶ hits
//! ```
//!
//! Ingest is incremental: a file whose size, time, and content hash are already in the index is not embedded again.
//! This module depends on neither chat models nor research runs. With the built-in embedder it needs no network.
//!
//! # Where to look
//!
//! - [`index::Index`] owns the LanceDB tables. [`index::schema`] is the only on-disk format in this module.
//! - Ids and hashes are computed from, and offsets counted in, the bytes of the file as stored. Sizes meant for a model
//!   are in tokens and say so in their name.

pub mod extract;
pub(crate) mod document;
pub(crate) mod chunk;
pub(crate) mod structure;
pub mod embed;
pub mod index;
pub(crate) mod walk;
pub(crate) mod links;
pub mod ingest;
pub(crate) mod watch;
pub(crate) mod estimate;
pub(crate) mod rerank;
pub mod search;
pub(crate) mod about;
pub(crate) mod eval;
