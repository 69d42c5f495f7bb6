//! The knowledge base: Markdown files in, ranked passages out.
//!
//! ```text
//! document ──▶ chunk ──▶ vector ──▶ index      (written by `ingest`)
//!                                     │
//!                            query ──▶ search ──▶ hits
//! ```
//!
//! Ingest is incremental: a file whose size, time, and content hash are already in the index is not embedded again.
//! Nothing here knows about chat models or research runs; with the built-in embedder everything works with the network
//! off.
//!
//! # Where to look
//!
//! - [`index::Index`] owns the LanceDB tables. [`index::schema`] is the only on-disk format in this module.
//! - Ids, hashes, and offsets are always in bytes of the file as stored on disk. Sizes meant for a model are in tokens
//!   and say so in their name.

pub mod document;

pub mod chunk;

pub mod embed;

pub mod index;

pub mod walk;

pub mod ingest;

pub mod search;

pub mod eval;
