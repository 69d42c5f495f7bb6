//! `dr` answers research questions from a folder of Markdown and from the web, with citations that code has verified.
//!
//! This crate is the library behind the `dr` binary. Its entry point is [`engine::Engine`], which has every operation
//! as a method; [`cli`], `mcp` and `serve` are surfaces over it. The library follows the needs of the binary and of its
//! tests: its API is not stable between releases.
//!
//! # Example
//!
//! Index a folder as text and search it, without a network or a model:
//!
//! ```
//! use dr::engine::{Engine, Flags, IndexRequest, Scope};
//! use tokio_util::sync::CancellationToken;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let folder = tempfile::tempdir()?;
//! let notes = folder.path().join("notes");
//! std::fs::create_dir(&notes)?;
//! std::fs::write(notes.join("battery.md"), "# Batteries\n\nLithium cells do not leak in the cold.\n")?;
//!
//! let index = folder.path().join("index").display().to_string();
//! let flags = Flags::default().set("index", Some(index)).set("offline", Some(true)).set("mode", Some("lexical"));
//! let engine = Engine::new(&flags)?;
//! let request = IndexRequest { folders: vec![notes], embed: false, ..IndexRequest::default() };
//! let summary = engine.index(&request, &|_| {}, &CancellationToken::new()).await?;
//! assert_eq!(summary.added, 1);
//!
//! let found = engine.search("do lithium cells leak?", &Scope::default()).await?;
//! assert_eq!(found.hits[0].path, "battery.md");
//! assert!(found.hits[0].text.contains("do not leak"));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Where to look
//!
//! The modules declared here are layers: each uses only those above it.
//!
//! - [`base`]: ids, time, text, tokens, HTTP, locks.
//! - `traces`: OTLP export of a run's spans.
//! - [`kb`]: the knowledge base, from Markdown files to ranked passages.
//! - [`llm`]: language models behind one trait.
//! - [`source`]: where evidence comes from.
//! - [`research`]: the steps from a question to a report, without I/O of their own.
//! - [`run`]: a run in motion: journal, scheduler, budget.
//! - [`render`]: reports as Markdown, HTML and JSON.
//! - [`config`], [`engine`]: settings, operations.
//! - `mcp`, `serve`, [`cli`]: tools for other programs, a page and an API, commands for people.

pub mod base;

pub(crate) mod traces;

pub mod kb;

pub mod llm;

pub mod source;

pub mod research;

pub mod run;

pub mod render;

pub mod config;

pub mod engine;

pub(crate) mod mcp;

pub(crate) mod serve;

pub mod cli;

// Files shared by unit tests, integration tests and benchmarks refer to this crate as `dr`.
#[cfg(test)]
extern crate self as dr;

#[cfg(test)]
mod layer_tests;

#[cfg(test)]
mod fuzz;

#[cfg(test)]
#[path = "../tests/it/model_server.rs"]
mod model_server;

#[cfg(test)]
#[path = "../tests/it/researcher.rs"]
mod researcher;

#[cfg(test)]
#[path = "../tests/it/reader.rs"]
mod reader;

#[cfg(test)]
#[path = "../tests/it/web_server/mod.rs"]
mod web_server;
