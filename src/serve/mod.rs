//! `dr` as a page in a browser, and the HTTP API that the page uses.
//!
//! ```text
//!               ┌─▶ page      index.html, app.js, style.css
//! PageCheck ────┼─▶ /api/v1   search, passages, questions, runs, events ─▶ Service
//!               ├─▶ /mcp      the tools of `mcp` ─────────────────────────▶ Service
//!               └─▶ /healthz, /metrics
//! ```
//!
//! The work of a request is a method of the engine; this module adds HTTP: authentication, forms of requests and
//! replies, their description, and streams of events. A page of another site can send requests to this machine, so the
//! token, `Host` and `Origin` of each request are checked.
//!
//! # Where to look
//!
//! - [`gate`] lets requests in. [`api`] lists the routes; a file per subject has its handlers.
//! - `page/` has the page. It is compiled into the binary and loads nothing from elsewhere.

mod failure;
mod form;
mod gate;
mod metrics;
mod app;
mod search;
mod links;
mod question;
mod runs;
mod events;
mod api;
mod page;
mod listen;

pub(crate) use self::app::App;
pub(crate) use self::listen::{PageServer, PageServerError};
