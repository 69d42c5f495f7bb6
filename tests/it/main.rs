//! Everything `dr` promises, tried from outside: the binary in a throwaway world, and the library where a test has to
//! look closer. One binary, because linking the storage engine once is slow enough.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "these are tests, helpers included")]

/// `World`: a home, a project and a copied knowledge base of a test's own; runs of `dr` as snapshots.
#[macro_use]
mod common;

/// An endpoint for language models that does as a test says.
mod model_server;

/// What a model says in each step of a run.
mod researcher;

/// What a model would say that has read its prompt and nothing else, whatever it is about.
mod reader;

/// Models, jobs, search engines and pages on loopback, and what goes wrong with them.
mod web_server;

/// The servers themselves: what they send is what they say they send.
mod servers;

/// The help of every command, its usage errors, and a reader that goes away.
mod help;

/// `dr index`: what changed, what was skipped, what is refused.
mod index;

/// `dr search`: what is found, in which form, under which filter.
mod search;

/// `dr get`: chunks, sections, documents, lines.
mod get;

/// `dr ask`: answers whose every quote stands in its file, and refusals.
mod ask;

/// Runs of research, on models behind a scripted endpoint.
mod run;

/// The world outside: jobs, the web, what may leave, and what comes in.
mod outside;

/// `dr eval`: figures against judgments.
mod eval;

/// `dr doctor`, and settings with their origins.
mod doctor;

/// Settings of language models, and `dr doctor --model`.
mod models;

/// P9: killed at any moment, the index answers and the next run finishes it.
#[cfg(unix)]
mod kill;

/// Ctrl-C keeps what was done.
#[cfg(unix)]
mod interrupt;

/// P4: no socket is opened, under a filter that kills who tries.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod offline;

/// What somebody else's folder, index or file name must not bring about.
mod hostile;
