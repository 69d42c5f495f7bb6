//! `dr` answers research questions from a folder of Markdown, with citations that code has checked.
pub mod base;

pub mod kb;

pub mod llm;

pub mod source;

pub mod research;

pub mod run;

pub mod render;

pub mod config;

pub mod engine;

pub mod cli;

// Files shared by unit tests, integration tests and benchmarks refer to this crate as `dr`.
#[cfg(test)]
extern crate self as dr;

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
