//! Links from a printed report to the files and pages it names.

use std::ops::Range;

use super::citation::safe_url;
use crate::base::line::one_line;
use crate::research::report::Report;
use crate::source::Place;

/// A place as a report prints it, with its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPlace {
    pub(crate) text: String,
    pub(crate) target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file, relative to the root of its collection.
    File { collection: String, path: String },
    /// The address of a page, safe as a link.
    Page(String),
}

/// Returns the places that a report prints: files with and without lines, and pages.
pub(crate) fn places(report: &Report) -> Vec<NamedPlace> {
    let quoted = report.evidence.iter().map(|evidence| &evidence.source);
    let mut places = Vec::new();
    for place in quoted.chain(report.passages.iter().map(|passage| &passage.source)) {
        match place {
            Place::Kb { collection, path, .. } => {
                let target = Target::File { collection: collection.clone(), path: path.clone() };
                for text in [place.for_people(), path.clone()] {
                    places.push(NamedPlace { text: one_line(&text), target: target.clone() });
                }
            }
            Place::Web { url, .. } => {
                let page = |url: &str| NamedPlace { text: url.to_owned(), target: Target::Page(url.to_owned()) };
                places.extend(safe_url(url).map(page));
            }
            Place::Mcp { .. } => {}
        }
    }
    places
}

/// Replaces whole-word names in a text, the longest if several match, by the result of `link`.
pub(crate) fn with_links(text: &str, names: &[(String, String)], link: impl Fn(&str, &str) -> String) -> String {
    let mut found: Vec<(Range<usize>, &str)> = Vec::new();
    for (name, address) in names.iter().filter(|(name, _)| !name.is_empty()) {
        let ranges = text.match_indices(name.as_str()).map(|(at, _)| at..at + name.len());
        found.extend(ranges.filter(|range| is_alone(text, range)).map(|range| (range, address.as_str())));
    }
    // Longest first: a path is a prefix of the same path with lines, and would be linked instead.
    found.sort_by_key(|(range, _)| (range.start, usize::MAX - range.end));
    let (mut linked, mut from) = (String::with_capacity(text.len()), 0);
    for (range, address) in found {
        if range.start >= from {
            linked.push_str(&text[from..range.start]);
            linked.push_str(&link(address, &text[range.clone()]));
            from = range.end;
        }
    }
    linked + &text[from..]
}

/// Returns whether a range is not part of a longer path or address.
fn is_alone(text: &str, range: &Range<usize>) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '/' | '_' | '-');
    let (before, mut after) = (text[..range.start].chars().next_back(), text[range.end..].chars());
    let next = after.next();
    let goes_on = matches!(next, Some('.' | ':' | '?' | '#' | '&' | '=')) && after.next().is_some_and(is_part);
    // The letter before may be the end of an escape sequence that begins a style.
    let is_styled = before == Some('m')
        && text[..range.start].rfind('\u{1b}').is_some_and(|escape| {
            text[escape..range.start - 1].chars().skip(2).all(|letter| letter.is_ascii_digit() || letter == ';')
        });
    (is_styled || !before.is_some_and(|letter| is_part(letter) || letter == '.'))
        && !next.is_some_and(is_part)
        && !goes_on
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn names_that_stand_by_themselves_become_links_and_parts_of_others_do_not() {
        let names: Vec<_> = [("a.md", "A"), ("a.md:1", "1"), ("b/a.md:1-2", "B"), ("https://x.org/p", "P")]
            .map(|(name, address)| (name.to_owned(), address.to_owned()))
            .to_vec();
        let linked = |text: &str| with_links(text, &names, |address, text| format!("[{text}]({address})"));
        for (text, expected) in [
            ("1. a.md:1 — A", "1. [a.md:1](1) — A"),
            ("see a.md.", "see [a.md](A)."),
            ("b/a.md:1-2", "[b/a.md:1-2](B)"),
            ("\u{1b}[38;5;7ma.md\u{1b}[0m", "\u{1b}[38;5;7m[a.md](A)\u{1b}[0m"),
            ("<https://x.org/p>, read", "<[https://x.org/p](P)>, read"),
            (
                "ma.md c/a.md a.md:12 a.mdx https://x.org/p/q https://x.org/p?q",
                "ma.md c/a.md a.md:12 a.mdx https://x.org/p/q https://x.org/p?q",
            ),
        ] {
            assert_eq!(linked(text), expected);
        }
    }

    #[test]
    fn places_of_a_report_are_its_files_and_safe_pages() {
        let mut report = sample::run();
        report.evidence.truncate(1);
        report.passages.clear();
        report.evidence.push(sample::quote("n9e1", "x", sample::page("javascript:alert(1)", "Bad", None)));
        report.evidence.push(sample::quote("n9e2", "x", sample::page("https://example.org/a", "Good", None)));
        let texts: Vec<_> = places(&report).into_iter().map(|place| place.text).collect();
        assert_eq!(texts, ["battery.md:11-12", "battery.md", "https://example.org/a"]);
    }
}
