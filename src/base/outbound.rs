//! Text that may leave this machine: search queries, addresses of pages, prompts of background jobs.
//!
//! ```text
//! user's words ────────────┐
//! plan before retrieval ───┤
//! public passages ─────────┼─▶ Outbound ─▶ search engine, page, background job
//! static text, dates ──────┤
//! words of a conversation ─┘
//!   that was shown Outbound text alone
//! ```
//!
//! The text of an [`Outbound`] is never inspected: its origin makes it safe. Evidence, summaries and conclusions of
//! the knowledge base, questions worded after retrieval, and answers of earlier runs cannot become one, so a mistake
//! is a compile error, not a leak.
//!
//! A string is not outbound text:
//!
//! ```compile_fail,E0277
//! let outbound: dr::base::outbound::Outbound = "Ferreira".into();
//! ```
//!
//! ```compile_fail,E0277
//! let outbound: dr::base::outbound::Outbound = String::from("Ferreira").into();
//! ```
//!
//! ```compile_fail,E0308
//! fn searched(query: &dr::base::outbound::Outbound) {}
//! searched("Ferreira");
//! ```
//!
//! Nor can one be forged or read back from a file:
//!
//! ```compile_fail,E0423
//! let outbound = dr::base::outbound::Outbound("Ferreira".to_owned());
//! ```
//!
//! ```compile_fail,E0277
//! let outbound: dr::base::outbound::Outbound = serde_json::from_str("\"Ferreira\"").unwrap();
//! ```
//!
//! ```compile_fail,E0599
//! let outbound = dr::base::outbound::Outbound::fixed("Ferreira");
//! ```
//!
//! [`Outbound::of`] takes the origins of such text, each a type of its own, and nothing else: neither a string, nor a
//! question, which a node of a later plan has, too, nor an address that any text may name.
//!
//! ```compile_fail,E0277
//! let outbound = dr::base::outbound::Outbound::of("Ferreira");
//! ```
//!
//! ```compile_fail,E0277
//! let outbound = dr::base::outbound::Outbound::of(String::from("Ferreira"));
//! ```
//!
//! ```compile_fail,E0277
//! use dr::base::outbound::Outbound;
//! fn leak(node: dr::research::node::Node) -> Outbound { Outbound::of(node.question) }
//! ```
//!
//! ```compile_fail,E0277
//! use dr::base::outbound::Outbound;
//! fn leak(place: dr::source::Place) -> Outbound { Outbound::of(place) }
//! ```
//!
//! Only a few files may declare an origin, see [`Voucher`]. In any other file this does not compile:
//!
//! ```compile_fail,E0080
//! const VOUCHER: dr::base::outbound::Voucher<String> = dr::base::outbound::Voucher::here();
//! ```
//!
//! ```compile_fail,E0080
//! use dr::base::outbound::{MayLeave, Outbound, Voucher};
//! struct Any(&'static str);
//! impl MayLeave for Any {
//!     const VOUCHER: Voucher<Self> = Voucher::here();
//!     fn into_text(self) -> String { self.0.to_owned() }
//! }
//! let outbound = Outbound::of(Any("Ferreira"));
//! ```
//!
//! Neither quotes, findings and summaries nor the words of a plan become one. Their words are strings that any code
//! may read,
//!
//! ```
//! use dr::base::outbound::{Outbound, Voucher};
//! use dr::{research, run, source::Source};
//! fn searched(_: Voucher<String>, web: &dyn Source<Outbound>, query: &Outbound) { drop(web.search(query, 5)); }
//! fn called(server: &dyn Source<Outbound>, arguments: &Outbound) { drop(server.call("tickets.read", arguments)); }
//! fn words(report: research::branch::BranchReport) -> String { report.summary }
//! fn question(node: research::node::Node) -> impl std::fmt::Display { node.question }
//! fn answer(earlier: run::event::Followed) -> String { earlier.answer }
//! fn briefed(brief: research::question::Brief) -> run::event::Event { run::event::Event::Briefed { outward: None, brief } }
//! type Others = (research::evidence::Evidence, research::branch::Finding, research::memory::Summary);
//! type Stored = (research::memory::Memory, research::memory::PublicSummary);
//! ```
//!
//! but no conversion leads from them to outbound text:
//!
//! ```compile_fail,E0277
//! fn leak(quote: dr::research::evidence::Evidence) -> dr::base::outbound::Outbound { quote.into() }
//! ```
//!
//! ```compile_fail,E0277
//! fn leak(finding: dr::research::branch::Finding) -> dr::base::outbound::Outbound { finding.into() }
//! ```
//!
//! ```compile_fail,E0308
//! fn leak(report: dr::research::branch::BranchReport) -> dr::base::outbound::Outbound { report.summary }
//! ```
//!
//! ```compile_fail,E0277
//! fn leak(summary: dr::research::memory::Summary) -> dr::base::outbound::Outbound { summary.into() }
//! ```
//!
//! ```compile_fail,E0277
//! fn leak(stored: dr::research::memory::PublicSummary) -> dr::base::outbound::Outbound { stored.into() }
//! ```
//!
//! ```compile_fail,E0277
//! fn leak(stored: dr::research::memory::Memory) -> dr::base::outbound::Outbound { stored.into() }
//! ```
//!
//! ```compile_fail,E0308
//! fn leak(node: dr::research::node::Node) -> dr::base::outbound::Outbound { node.question }
//! ```
//!
//! ```compile_fail,E0308
//! fn leak(earlier: dr::run::event::Followed) -> dr::base::outbound::Outbound { earlier.answer }
//! ```
//!
//! Nor can a brief that was made with an earlier answer in view be recorded as the one that may leave:
//!
//! ```compile_fail,E0308
//! fn swapped(brief: dr::research::question::Brief) -> dr::run::event::Event {
//!     dr::run::event::Event::Briefed { outward: Some(Box::new(brief.clone())), brief }
//! }
//! ```
//!
//! Addresses of pages do become one if a public result, a fetched page or a cited source names them: see
//! `run::node_source`.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use serde::Serialize;

/// Text that may leave this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Outbound(String);

impl Outbound {
    /// Joins texts as lines, skipping empty ones.
    pub(crate) fn lines<'a>(texts: impl IntoIterator<Item = &'a Self>) -> Self {
        Self(joined(texts, "\n"))
    }

    /// Restricts a question to topics.
    pub(crate) fn in_particular<'a>(&self, topics: impl IntoIterator<Item = &'a Self>) -> Self {
        Self(format!("{self} In particular: {}", joined(topics, "; ")))
    }

    /// Returns parts of the text. What `find` returns from elsewhere is dropped.
    pub(crate) fn parts(&self, find: impl for<'a> Fn(&'a str) -> Vec<&'a str>) -> Vec<Self> {
        let start = |part: &str| part.as_ptr().addr().checked_sub(self.0.as_ptr().addr());
        let own = |part: &str| start(part).and_then(|start| self.0.get(start..start.checked_add(part.len())?));
        find(&self.0).into_iter().filter_map(own).map(|part| Self(part.to_owned())).collect()
    }

    /// Returns the text of an origin.
    pub fn of<T: MayLeave>(origin: T) -> Self {
        Self::vouched(T::VOUCHER, origin)
    }

    // A function that takes the voucher, so that the constant of each origin is evaluated.
    fn vouched<T: MayLeave>(_: Voucher<T>, origin: T) -> Self {
        Self(origin.into_text())
    }

    /// Lets any text leave, because the user said so.
    pub(crate) fn allowed_by_user(_: EgressAllowed, text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn fixed(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

fn joined<'a>(texts: impl IntoIterator<Item = &'a Outbound>, separator: &str) -> String {
    let texts: Vec<_> = texts.into_iter().map(Outbound::as_str).filter(|text| !text.is_empty()).collect();
    texts.join(separator)
}

impl AsRef<str> for Outbound {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An origin of outbound text: words of the user, words from before any retrieval, public text, or what was made of
/// outbound text alone.
///
/// The compiler cannot see where every text is from: the user's words and the first plan are stored like any other
/// text, and a model replies in plain strings. So each origin is a type that only its file can make, from the part of a
/// run, the answer from the web, or the conversation that it is named after.
pub trait MayLeave: Sized {
    /// `Voucher::here()`, which compiles only in the files of [`VOUCHING`].
    const VOUCHER: Voucher<Self>;

    fn into_text(self) -> String;
}

/// The files that may declare an origin: they read the user's words and the first plan from a run, receive a model's
/// reply to a prompt made only of outbound text, fill a template with such text, take an address from a web result,
/// or fetch the pages of a report again on the user's request.
const VOUCHING: [&str; 5] = [
    "src/run/outward/origin.rs",
    "src/research/task.rs",
    "src/research/outward.rs",
    "src/run/node_source.rs",
    "src/engine/verify.rs",
];

/// Vouches for one origin of text, see [`MayLeave`]: that of another type does not fit.
///
/// A constant of this type compiles only in the files of [`VOUCHING`]. Keep the origins private to their file or folder,
/// and state at each of their constructors why its text contains no internal text: there, nothing but review keeps out
/// the wrong string.
#[derive(Debug)]
pub struct Voucher<T>(PhantomData<T>);

impl<T> Voucher<T> {
    /// Returns the voucher of the calling file. Panics in other files, which fails the compilation of a constant.
    #[track_caller]
    pub const fn here() -> Self {
        assert!(may_vouch(Location::caller().file()), "this file may not vouch for outbound text");
        Self(PhantomData)
    }
}

const fn may_vouch(file: &str) -> bool {
    let mut files = VOUCHING.as_slice();
    while let [path, rest @ ..] = files {
        if ends_with(file.as_bytes(), path.as_bytes()) {
            return true;
        }
        files = rest;
    }
    false
}

/// `Path::ends_with`, which is not const.
const fn ends_with(mut path: &[u8], mut end: &[u8]) -> bool {
    while let ([path_rest @ .., found], [end_rest @ .., wanted]) = (path, end) {
        // The compiler on Windows separates folders by `\`.
        if *found != *wanted && !(*found == b'\\' && *wanted == b'/') {
            return false;
        }
        (path, end) = (path_rest, end_rest);
    }
    end.is_empty()
}

/// Proof that the user lets internal text leave: by `--allow-egress`, or by `allow_egress` of every collection
/// searched if no internal server may be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EgressAllowed(());

impl EgressAllowed {
    /// Returns the token if the setting allows it.
    pub(crate) fn by_setting(_: Voucher<Self>, allow_egress: bool) -> Option<Self> {
        allow_egress.then_some(Self(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_texts_leave_no_separator_behind() {
        let [empty, one, other] = ["", "one", "other"].map(Outbound::fixed);
        assert_eq!(Outbound::lines([&one, &empty, &other]).as_str(), "one\nother");
        assert_eq!(one.in_particular([&empty, &other]).as_str(), "one In particular: other");
    }

    #[test]
    fn parts_are_from_the_text_itself() {
        let text = Outbound::fixed("lamp oil");
        let parts = text.parts(|text| text.split(' ').chain(["Ferreira", "lamp oil and wicks"]).collect());
        assert_eq!(parts, ["lamp", "oil"].map(Outbound::fixed));
        assert_eq!(Outbound::fixed("").parts(|_| vec!["Ferreira"]), []);
    }

    #[test]
    fn only_the_listed_files_may_vouch() {
        assert!(may_vouch("src/research/outward.rs") && may_vouch(r"C:\dr\src\run\outward\origin.rs"));
        for other in ["src/run/outward.rs", "src/engine/run/outward/origin.rs", "origin.rs", ""] {
            assert!(!may_vouch(other), "{other}");
        }
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(VOUCHING.iter().all(|file| source.join(file).is_file()));
    }
}
