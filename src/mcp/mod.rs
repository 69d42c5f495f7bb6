//! `dr` as a tool server of the Model Context Protocol, over stdio and HTTP.
//!
//! ```text
//! stdio ─┐                           ┌─▶ search, fetch, read, links, list_collections ─┐
//!        ├─▶ ToolHandler ─▶ McpTool ─┤                                                 ├─▶ Engine
//! http ──┘                           └─▶ ask, research_* ─▶ Background ────────────────┘
//! ```
//!
//! The work of a tool is a method of the engine; this module adds the protocol: schemas of arguments and results,
//! progress, cancellation, and a limit on the length of a result. A client is not trusted: its ids and paths are looked
//! up in the index and never become paths of the file system, no limit it sets exceeds that of the settings, and its
//! texts are not logged.
//!
//! # Where to look
//!
//! - [`tool::McpTool`] is the list of tools. A file per tool has its arguments and its result.
//! - [`server::ToolHandler`] answers the requests of the protocol. It is the same over stdio and HTTP.

mod cut;
mod failure;
mod search;
mod passage;
mod links;
mod answer;
mod ask;
mod research;
mod tool;
mod resource;
mod prompt;
mod server;
mod lines;
mod stdio;
mod http;
mod client;

pub(crate) use self::client::Client;
pub(crate) use self::failure::{ServeError, TOKEN_VARIABLE};
pub(crate) use self::http::{BearerCheck, LOOPBACK_NAMES, Listening, bearer, bind, routes, serve_until};
pub(crate) use self::server::ToolHandler;
pub(crate) use self::stdio::serve_stdio;
