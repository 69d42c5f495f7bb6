//! A report as Markdown with numbered citations.
//!
//! Everything quoted is text of somebody else's: it is put on one line and its control characters are removed, so it
//! cannot change the form of the report or the state of a terminal.

use std::fmt::Write;

use crate::base::line::one_line;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::report::Report;
use crate::source::Place;

/// Returns the report as Markdown.
pub fn report(report: &Report) -> String {
    let mut text = format!("# {}\n\n", line(report.question.as_str()));
    if report.is_refusal() {
        refusal(&mut text, report)
    } else {
        answer(&mut text, report)
    }
    further(&mut text, report);
    if !report.limitations.is_empty() && !report.is_refusal() {
        text.push_str("\n## Limitations\n\n");
        list(&mut text, report.limitations.iter());
    }
    text
}

fn answer(text: &mut String, report: &Report) {
    for finding in &report.findings {
        let marks: Vec<_> =
            finding.evidence.iter().filter_map(|id| number(report, id)).map(|n| format!("[{n}]")).collect();
        let _ = writeln!(text, "- {} {}", claim(&finding.text), marks.join(""));
    }
    text.push_str("\n## Sources\n\n");
    for (evidence, number) in report.evidence.iter().zip(1..) {
        let _ = writeln!(text, "{number}. {}", source(evidence));
    }
    let stale = report.evidence.iter().any(|evidence| evidence.stale);
    let found = if stale { "in its file, or in what the index has of a file that has changed" } else { "in its file" };
    let _ = writeln!(text, "\nConfidence {:.2}. Code has found every quote, verbatim, {found}.", report.confidence);
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
    let heading = if report.is_refusal() { "Nearest passages" } else { "Read further" };
    let _ = writeln!(text, "\n## {heading}\n");
    for passage in &report.passages {
        let place = place(&passage.source);
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
    let stale = if evidence.stale { " (as indexed; the file has changed since)" } else { "" };
    format!("{}{stale}", place(&evidence.source))
}

fn place(place: &Place) -> String {
    let (at, title, heading_path) = (place.for_people(), place.title(), place.heading_path());
    let names =
        std::iter::once(title).chain(heading_path.iter().map(String::as_str).filter(|heading| *heading != title));
    format!("`{}` — {}", line(&at).replace('`', "'"), line(&names.collect::<Vec<_>>().join(" › ")))
}

/// Returns a text on one line in which nothing but code spans is Markdown: no link, no image, no HTML, no heading, and
/// no number in brackets that could pass for a citation.
fn line(text: &str) -> String {
    let line = one_line(text);
    // Code spans are kept where it is plain which backticks belong together.
    let has_spans = !line.contains("``") && line.matches('`').count().is_multiple_of(2);
    let mut shown = String::with_capacity(line.len() + 16);
    let (mut in_code, mut before) = (false, ' ');
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '`' if has_spans => in_code = !in_code,
            _ if in_code => {}
            // An underscore inside a word is no mark.
            '_' if before.is_alphanumeric() && letters.peek().is_some_and(|next| next.is_alphanumeric()) => {}
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '~' => shown.push('\\'),
            '#' | '>' | '-' | '+' | '|' | '=' if shown.is_empty() => shown.push('\\'),
            '.' | ')' if !shown.is_empty() && shown.chars().all(|shown| shown.is_ascii_digit()) => shown.push('\\'),
            _ => {}
        }
        shown.push(letter);
        before = letter;
    }
    shown
}

/// Returns a quoted claim, its own references in brackets turned into such in parentheses.
fn claim(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        shown.push_str(before);
        match after.split_once(']') {
            Some((inner, after)) if !inner.is_empty() && inner.chars().all(|letter| letter.is_ascii_digit()) => {
                shown.push_str(&format!("({inner})"));
                rest = after;
            }
            _ => {
                shown.push('[');
                rest = after;
            }
        }
    }
    shown.push_str(rest);
    line(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_change_the_form_of_the_report() {
        assert_eq!(line("# not\na heading\u{1b}[31m"), r"\# not a heading \[31m");
        assert_eq!(line("<script>x</script> *a* ~~b~~"), r"\<script>x\</script> \*a\* \~\~b\~\~");
        assert_eq!(
            line("![t](http://evil/t.png) [1](javascript:alert(1))"),
            r"!\[t\](http://evil/t.png) \[1\](javascript:alert(1))"
        );
        assert_eq!(line("1. an item, foo_bar and _this_"), r"1\. an item, foo_bar and \_this\_");
    }

    #[test]
    fn code_is_kept_only_where_its_ends_are_plain() {
        assert_eq!(line("a `Vec<T>` <b>"), r"a `Vec<T>` \<b>");
        assert_eq!(line("` <img onerror=x>"), r"\` \<img onerror=x>");
        assert_eq!(line("`` <b> `x`"), r"\`\` \<b> \`x\`");
        assert_eq!(line("``` rust"), r"\`\`\` rust");
    }

    #[test]
    fn number_in_brackets_of_a_source_does_not_pass_for_a_citation() {
        assert_eq!(claim("proven elsewhere [9], see [the note]."), r"proven elsewhere (9), see \[the note\].");
    }
}
