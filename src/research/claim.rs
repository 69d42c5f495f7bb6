//! Marks the claims of a written answer that cite no evidence.

use super::evidence::EvidenceId;
use super::report::marks;

/// Printed after a claim without evidence and in place of an unknown id.
pub(super) const UNSUPPORTED: &str = "[unsupported]";

/// Shortest claim, in words; anything shorter is a lead-in or a label.
const FEWEST_WORDS: usize = 4;

/// Marks unsupported claims in a text and returns how many there are.
///
/// A citation supports the text before it on the same line, since writers cite once for several sentences. Text after
/// the last citation, or on a line without one, is unsupported. Headings, table rows, questions and lead-ins are not
/// claims.
pub(super) fn mark_unsupported(text: &str) -> (String, usize) {
    let mut number = 0;
    let line = |line: &str| {
        let marked = marks(line).into_iter().map(|(range, _)| range.end);
        let from = marked.chain(line.rfind(UNSUPPORTED).map(|at| at + UNSUPPORTED.len())).max().unwrap_or(0);
        if is_claim(line, &line[from..]) {
            number += 1;
            format!("{} {UNSUPPORTED}", line.trim_end())
        } else {
            line.to_owned()
        }
    };
    let lines: Vec<_> = text.lines().map(line).collect();
    (lines.join("\n"), number)
}

fn is_claim(line: &str, rest: &str) -> bool {
    let words = rest.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    let is_form = line.trim_start().starts_with(['#', '|', '>']);
    words >= FEWEST_WORDS && !is_form && !rest.trim_end().ends_with([':', '?'])
}

/// Replaces text outside valid citations that a reader could mistake for an evidence id, and returns the number
/// replaced.
pub(super) fn without_lookalikes(text: &str) -> (String, usize) {
    let valid: Vec<_> = marks(text).into_iter().map(|(range, _)| range).collect();
    let (mut shown, mut from, mut number) = (String::with_capacity(text.len()), 0, 0);
    let mut start = None;
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        if letter.is_alphanumeric() {
            start.get_or_insert(at);
            continue;
        }
        let Some(begin) = start.take() else { continue };
        let is_inside = valid.iter().any(|range| range.start <= begin && at <= range.end);
        if !is_inside && looks_like_an_id(&text[begin..at]) {
            shown.push_str(&text[from..begin]);
            shown.push_str("unsupported");
            from = at;
            number += 1;
        }
    }
    shown.push_str(&text[from..]);
    (shown, number)
}

fn looks_like_an_id(word: &str) -> bool {
    let word = word.to_lowercase();
    let is_number = |text: &str| !text.is_empty() && text.chars().all(char::is_numeric);
    let parts = word.strip_prefix('n').and_then(|rest| rest.split_once('e'));
    word.parse::<EvidenceId>().is_ok() || parts.is_some_and(|(node, number)| is_number(node) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_after_the_last_citation_of_its_line_is_marked_unsupported() {
        let marked = |text: &str| mark_unsupported(text).0;
        assert_eq!(
            marked("Tea takes two minutes [n2e1]. Coffee is brewed at 500 degrees."),
            "Tea takes two minutes [n2e1]. Coffee is brewed at 500 degrees. [unsupported]"
        );
        assert_eq!(
            marked("Tea is green. It takes two minutes. [n2e1, n3e2]"),
            "Tea is green. It takes two minutes. [n2e1, n3e2]"
        );
        assert_eq!(marked("Nobody has ever said this."), "Nobody has ever said this. [unsupported]");
        assert_eq!(marked("Nobody said this. [unsupported]"), "Nobody said this. [unsupported]");
    }

    #[test]
    fn headings_questions_and_lead_ins_are_not_claims() {
        let text = "## How tea is brewed here\n\nThere are three ways to brew it:\n- in a pot for long [n2e1]\n\nWhat is left of it then?";
        assert_eq!(mark_unsupported(text), (text.to_owned(), 0));
    }

    #[test]
    fn lookalike_ids_are_replaced_and_counted() {
        let text = "A [n2e1]. B [n2e1 and n9e9], (N2E1), [n2e01] n02e1; none, seen, n2, e1, end.";
        let (shown, number) = without_lookalikes(text);
        assert_eq!(
            shown,
            "A [n2e1]. B [unsupported and unsupported], (unsupported), [unsupported] unsupported; none, seen, n2, e1, end."
        );
        assert_eq!(number, 5);
    }
}
