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
//! Nothing inspects the text of an [`Outbound`]: where it came from is what makes it safe. Evidence, summaries and
//! conclusions of the knowledge base, questions that were worded after retrieval and answers of earlier runs have no
//! way in, so a mistake is a compile error and not a leak.
//!
//! A string is no outbound text:
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
//! ```compile_fail,E0624
//! let outbound = dr::base::outbound::Outbound::vouched("Ferreira");
//! ```
//!
//! Neither quotes, findings and summaries nor the words of a plan become one. Their words are strings that anyone may
//! read,
//!
//! ```
//! use dr::{research, run};
//! fn words(report: research::branch::BranchReport) -> String { report.summary }
//! fn question(node: research::node::Node) -> impl std::fmt::Display { node.question }
//! fn answer(earlier: run::event::Followed) -> String { earlier.answer }
//! type Others = (research::evidence::Evidence, research::branch::Finding, research::memory::Summary);
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
//! ```compile_fail,E0308
//! fn leak(node: dr::research::node::Node) -> dr::base::outbound::Outbound { node.question }
//! ```
//!
//! ```compile_fail,E0308
//! fn leak(earlier: dr::run::event::Followed) -> dr::base::outbound::Outbound { earlier.answer }
//! ```
//!
//! Addresses of pages do, where a public result, a fetched page or a cited source names them: see `run::node_source`.

use std::fmt;

use serde::Serialize;

/// Text that may leave this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Outbound(String);

impl Outbound {
    /// Returns text that is part of this program.
    pub fn fixed(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// Joins texts that may leave, skipping empty ones. The separator is part of this program, like [`Self::fixed`].
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a Self>, separator: &'static str) -> Self {
        let parts: Vec<_> = parts.into_iter().map(Self::as_str).filter(|part| !part.is_empty()).collect();
        Self(parts.join(separator))
    }

    /// Returns parts of the text.
    ///
    /// `find` is a function pointer for every lifetime, so it captures nothing: what it returns stood in the text.
    pub(crate) fn parts(&self, find: for<'a> fn(&'a str) -> Vec<&'a str>) -> Vec<Self> {
        find(&self.0).into_iter().map(|part| Self(part.to_owned())).collect()
    }

    /// Vouches for text whose origin the type system cannot see.
    ///
    /// `clippy.toml` forbids it. Each use carries an `#[expect]` with the reason why that text was made without
    /// internal text: where the user's words and the first plan are read off a run (`run::outward`), where a model
    /// replies to a prompt that is made of outbound text alone (`research::task`, `research::memory`) or a template
    /// is filled with such text (`research::outward`), where an answer from the web names an address
    /// (`run::node_source`), and where the user has the pages of a report fetched again (`engine::verify`).
    pub(crate) fn vouched(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Lets any text leave, because the user said so.
    pub fn allowed_by_user(_: EgressAllowed, text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
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

impl From<jiff::civil::Date> for Outbound {
    fn from(day: jiff::civil::Date) -> Self {
        Self(day.to_string())
    }
}

/// Shows that the user lets internal text leave: by `--allow-egress`, or by `allow_egress` of every collection
/// searched.
#[derive(Clone, Copy, Debug)]
pub struct EgressAllowed(());

impl EgressAllowed {
    /// Returns the token if the setting allows it. `clippy.toml` forbids the call outside the module that reads the
    /// setting.
    pub(crate) fn by_setting(allow_egress: bool) -> Option<Self> {
        allow_egress.then_some(Self(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_parts_leave_no_separator_behind() {
        let [empty, one, other] = ["", "one", "other"].map(Outbound::fixed);
        assert_eq!(Outbound::joined([&one, &empty, &other], "; ").as_str(), "one; other");
    }
}
