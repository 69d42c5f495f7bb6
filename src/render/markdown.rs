//! A report as Markdown with numbered citations.
//!
//! Everything quoted is text of somebody else's: it is put on one line and its control characters are removed, so it
//! cannot change the form of the report or the state of a terminal.

use std::fmt::Write;

use crate::base::line::one_line;
use crate::research::evidence::{Evidence, EvidenceId, Source};
use crate::research::report::{Report, StopReason};

/// Returns the report as Markdown.
pub fn report(report: &Report) -> String {
    let mut text = format!("# {}\n\n", line(report.question.as_str()));
    match report.stop_reason {
        StopReason::Complete => answer(&mut text, report),
        StopReason::NoEvidence => refusal(&mut text, report),
    }
    further(&mut text, report);
    if !report.limitations.is_empty() && report.stop_reason == StopReason::Complete {
        text.push_str("\n## Limitations\n\n");
        list(&mut text, report.limitations.iter());
    }
    text
}

fn answer(text: &mut String, report: &Report) {
    for finding in &report.findings {
        let marks: Vec<_> =
            finding.evidence.iter().filter_map(|id| number(report, id)).map(|n| format!("[{n}]")).collect();
        let _ = writeln!(text, "- {} {}", line(&finding.text), marks.join(""));
    }
    text.push_str("\n## Sources\n\n");
    for (evidence, number) in report.evidence.iter().zip(1..) {
        let _ = writeln!(text, "{number}. {}", source(evidence));
    }
    let _ = writeln!(
        text,
        "\nConfidence {:.2}. Code has found every quote, verbatim, in its file as indexed.",
        report.confidence
    );
}

fn refusal(text: &mut String, report: &Report) {
    text.push_str("**No answer.** ");
    for limitation in &report.limitations {
        let _ = writeln!(text, "{}", line(limitation));
    }
}

fn further(text: &mut String, report: &Report) {
    if report.passages.is_empty() {
        return;
    }
    let heading = match report.stop_reason {
        StopReason::Complete => "Read further",
        StopReason::NoEvidence => "Nearest passages",
    };
    let _ = writeln!(text, "\n## {heading}\n");
    for passage in &report.passages {
        let place = place(&passage.place(), &passage.title, &passage.heading_path);
        let _ = writeln!(text, "- {place}  \n  {}", line(&passage.snippet));
    }
}

fn list<'a>(text: &mut String, items: impl Iterator<Item = &'a String>) {
    for item in items {
        let _ = writeln!(text, "- {}", line(item));
    }
}

/// Returns the number a citation is printed as.
fn number(report: &Report, id: &EvidenceId) -> Option<usize> {
    report.evidence.iter().position(|evidence| evidence.id == *id).map(|place| place + 1)
}

fn source(evidence: &Evidence) -> String {
    let Source::Kb { title, heading_path, .. } = &evidence.source;
    let stale = if evidence.stale { " (as indexed; the file has changed since)" } else { "" };
    format!("{}{stale}", place(&evidence.source.place(), title, heading_path))
}

fn place(at: &str, title: &str, heading_path: &[String]) -> String {
    let names =
        std::iter::once(title).chain(heading_path.iter().map(String::as_str).filter(|heading| *heading != title));
    format!("`{}` — {}", line(at).replace('`', "'"), line(&names.collect::<Vec<_>>().join(" › ")))
}

/// Returns a text on one line, without marks that start a block or, outside code, an HTML tag.
fn line(text: &str) -> String {
    let line = one_line(text);
    let parts = line.split('`').enumerate();
    let parts = parts.map(|(place, part)| if place % 2 == 0 { part.replace('<', "\\<") } else { part.to_owned() });
    let line = parts.collect::<Vec<_>>().join("`");
    match line.chars().next() {
        Some('#' | '>' | '-' | '+' | '|' | '=') => format!("\\{line}"),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_change_the_form_of_the_report() {
        assert_eq!(line("# not\na heading\u{1b}[31m"), "\\# not a heading [31m");
        assert_eq!(line("<script>x</script>"), "\\<script>x\\</script>");
        assert_eq!(line("a `Vec<T>` <b>"), "a `Vec<T>` \\<b>");
    }
}
