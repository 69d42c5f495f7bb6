//! Citation numbers, and the notes printed with a quote and its source.

use std::collections::HashMap;

use crate::base::line::is_invisible;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::report::Report;
use crate::source::Place;

/// Citation numbers by evidence id: the position in the list of sources, from 1.
pub(super) struct Numbers<'a>(HashMap<&'a EvidenceId, usize>);

impl<'a> Numbers<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        Self(report.evidence.iter().zip(1..).map(|(evidence, number)| (&evidence.id, number)).collect())
    }

    /// Returns the number of a quote, or `None` if the report does not contain it.
    pub(super) fn get(&self, id: &EvidenceId) -> Option<usize> {
        self.0.get(id).copied()
    }
}

/// Returns a reservation about a quote, if there is one.
pub(super) fn note(evidence: &Evidence) -> Option<&'static str> {
    match (evidence.checked, evidence.stale) {
        (false, _) => Some("reported, unchecked"),
        (true, true) => Some("as indexed; the file has changed since"),
        (true, false) => None,
    }
}

/// Returns one sentence on how the quotes were checked.
pub(super) fn checks(report: &Report) -> String {
    let checked: Vec<_> = report.evidence.iter().filter(|evidence| evidence.checked).collect();
    let is_web = |evidence: &&Evidence| matches!(evidence.source, Place::Web { .. });
    let (source, sources) = if checked.iter().any(is_web) { ("source", "sources") } else { ("file", "files") };
    let copies = if checked.iter().any(|evidence| evidence.stale) {
        ", or in the indexed copy of a file that has changed"
    } else {
        ""
    };
    match (checked.len(), report.evidence.len()) {
        (0, _) => "The sources are as reported; none of the quotes was found in its source.".to_owned(),
        (found, all) if found == all => format!("Every quote was found verbatim in its {source}{copies}."),
        (found, all) => format!(
            "{found} of {all} quotes were found verbatim in their {sources}{copies}; the others are reported but unchecked."
        ),
    }
}

/// Heading of claims that a provider reported and that no fetched page confirms.
pub(super) const UNCHECKED: &str = "Reported by Deep Research, unchecked";

/// Returns the unconfirmed claims, each with the page it cites.
pub(super) fn reported(report: &Report) -> Vec<String> {
    report.reported.iter().map(|said| format!("{} ({}, {})", said.text, said.title, said.url)).collect()
}

/// Returns the address if it is safe as a link: HTTP or HTTPS, without characters that could end the link or hide part
/// of it.
pub(super) fn safe_url(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let is_odd = |letter: char| {
        letter.is_whitespace()
            || letter.is_control()
            || is_invisible(letter)
            || matches!(letter, '<' | '>' | '"' | '\'' | '`' | '\\')
    };
    (is_web && rest.starts_with(char::is_alphanumeric) && !url.contains(is_odd)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_of_the_web_become_links() {
        for url in ["https://example.org/a?b=c#d", "HTTP://example.org", "https://例え.jp/"] {
            assert_eq!(safe_url(url), Some(url));
        }
        for url in [
            "javascript:alert(1)",
            "javascript://example.org/%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "//example.org",
            "https://",
            "https:// example.org",
            "https://example.org/\"onmouseover=\"x",
            "https://example.org/><script>",
            "https://example.org/\u{202e}gro",
            " https://example.org",
        ] {
            assert_eq!(safe_url(url), None, "{url}");
        }
    }
}
