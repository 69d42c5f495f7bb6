//! What a writer says becomes Claims that are borne out, and those that are marked as not.

use super::evidence::EvidenceId;
use super::report::marks;

/// What stands after a claim without evidence, and in place of an id that is none.
pub(super) const UNSUPPORTED: &str = "[unsupported]";

/// Words that are no claim yet: a lead-in, a heading.
const FEWEST_WORDS: usize = 4;

/// Marks what a text claims without evidence, and returns how often that was.
///
/// A mark bears out what stands before it in its line; what follows the last one, or stands in a line that has none, is
/// unsupported. Headings, questions and lead-ins claim nothing.
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

/// Replaces what looks like an id of a quote and is none where a reader could take it for one, and returns how often.
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
    fn sentence_after_the_last_mark_of_its_line_is_marked_as_unsupported() {
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
    fn heading_question_and_lead_in_claim_nothing() {
        let text = "## How tea is brewed here\n\nThere are three ways to brew it:\n- in a pot for long [n2e1]\n\nWhat is left of it then?";
        assert_eq!(mark_unsupported(text), (text.to_owned(), 0));
    }

    #[test]
    fn id_that_only_looks_like_one_is_replaced_and_counted() {
        let text = "A [n2e1]. B [n2e1 and n9e9], (N2E1), [n2e01] n02e1; none, seen, n2, e1, end.";
        let (shown, number) = without_lookalikes(text);
        assert_eq!(
            shown,
            "A [n2e1]. B [unsupported and unsupported], (unsupported), [unsupported] unsupported; none, seen, n2, e1, end."
        );
        assert_eq!(number, 5);
    }
}
