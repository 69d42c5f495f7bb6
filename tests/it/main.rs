//! Integration tests: the `dr` binary in a temporary environment, and the library where a test needs a closer look. One
//! test binary, because each additional one would link the storage engine again.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "these are tests, helpers included")]

/// `World`: an isolated home and project with a copied knowledge base, and snapshots of `dr` invocations.
#[macro_use]
mod common;

/// A model endpoint scripted by the test.
mod model_server;

/// Rerankers on loopback, and searches when one does not answer.
mod rerank;

/// Scripted replies for each step of a run.
mod researcher;

/// A model that answers any prompt from the text in it.
mod reader;

/// Models, jobs, search engines and pages on loopback, with injected faults.
mod web_server;

/// Tests of the test servers: what they send on the wire.
mod servers;

/// Help of every command, usage errors, and a closed stdout.
mod help;

/// `dr index`: changed, skipped and refused files.
mod index;

/// `dr watch`: changes, folders that disappear, other writers.
#[cfg(unix)]
mod watch;

/// `dr search`: hits, output formats, filters.
mod search;

/// Embedding servers: what they are sent, their failures, prices, `dr index --dry-run`.
mod embeddings;

/// `dr model`: what there is, downloads from a hub on loopback, the setting that is written.
mod catalogue;

/// `dr get`: chunks, sections, documents, lines.
mod get;

/// PDF and HTML files: what they say, and what their parser may do.
mod extract;

/// `dr links` and `--expand`: where links lead, which are broken.
mod links;

/// `dr ask`: answers whose quotes are found in their files, and refusals.
mod ask;

/// The samples of the README.
mod readme;

/// Questions over the folders of `tests/answers`, scored by their answers.
mod answers;

/// Research runs on a scripted model endpoint.
mod run;

/// The web: jobs, pages, egress, untrusted content.
mod outside;

/// `dr open`, completions, manual pages, links: what a shell and a terminal see.
mod shell;

/// `dr verify`: citations of saved reports against files and pages that change.
mod verify;

/// `dr eval`: metrics against known judgments.
mod eval;

/// `db://`: an index in LanceDB's service, which is a fake of its protocol.
#[cfg(feature = "remote")]
mod remote;

/// `dr doctor`, and the origins of settings.
mod doctor;

/// Settings of language models, and `dr doctor --model`.
mod models;

/// P9: after a kill at any point, the index answers and the next run completes it.
#[cfg(unix)]
mod kill;

/// Ctrl-C keeps finished work.
#[cfg(unix)]
mod interrupt;

/// P4: no socket is opened, enforced by a seccomp filter that kills the process.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod offline;

/// Hostile folders, indexes and file names.
mod hostile;

/// `dr mcp`: tools for other programs.
#[cfg(unix)]
mod mcp;

/// `dr serve`: the page and the HTTP API.
#[cfg(unix)]
mod serve;

/// Tools of the user's own servers.
#[cfg(unix)]
mod tools;

/// What a folder that came from elsewhere may do.
mod trust;

/// Damaged files in `.dr`: commands continue, and the advice works.
mod damage;

/// Hostile sizes.
mod bounded;

/// A signal ends every command within two seconds, whatever it computes.
#[cfg(unix)]
mod signals;

/// Journals of earlier formats: listed, shown, replayed, resumed.
mod journals;
mod languages;
