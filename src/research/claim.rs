//! Marks the claims of a written answer that cite no evidence.

use std::collections::BTreeSet;

use super::cut::pieces;
use super::evidence::{EvidenceId, marks};
use super::sentence::is_end;
use crate::base::word::{WordSplitter, has_digit};

/// Printed after a claim without evidence and in place of an unknown id.
pub(super) const UNSUPPORTED: &str = "[unsupported]";

/// Shortest claim, in words; anything shorter is a lead-in or a label.
const FEWEST_WORDS: usize = 4;

/// Longest end of a sentence, in words, that counts as part of the claim cited in it.
const MOST_END_WORDS: usize = 6;

/// Words that begin another claim in the same sentence.
const CONJUNCTIONS: [&str; 10] =
    ["and", "or", "but", "while", "which", "so", "because", "although", "whereas", "since"];

/// Signs before and after an aside.
const ASIDES: [(&str, &str); 4] = [(", ", ","), (" — ", " —"), (" – ", " –"), (" (", ")")];

/// First words of an apposition.
const ARTICLES: [&str; 6] = ["a", "an", "the", "its", "their", "both"];

/// Verbs that make a clause, besides [`BEING`].
const AUXILIARIES: [&str; 13] =
    ["has", "have", "had", "do", "does", "did", "can", "could", "may", "must", "should", "will", "would"];

/// A text after [`mark_unsupported`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) text: String,
    /// Claims marked as unsupported.
    pub(super) number: usize,
    /// Sentences about the findings themselves. They are open questions and are removed from the text.
    pub(super) open: Vec<String>,
}

/// A text without citations that other citations may support.
#[derive(Clone, Copy, Debug)]
pub(super) enum Uncited<'a> {
    /// The first line.
    Opening(&'a str),
    /// The end of a sentence with citations, which is the last of its line.
    End { end: &'a str, of: &'a str },
}

/// Marks unsupported claims in a text.
///
/// A citation supports the text before it on the same line, since writers cite once for several sentences, and the end
/// of its own sentence, which may begin with an aside: `Leaks [n1e1], the oldest fault, are not ruled out.` Text after
/// that, or on a line without a citation, is unsupported.
/// Headings, table rows, questions and lead-ins are not claims. A first line without citations may summarise the text
/// below it, and the end of a sentence may be supported by the citations in it: `is_borne_out` decides.
pub(super) fn mark_unsupported(text: &str, is_borne_out: &dyn Fn(Uncited<'_>) -> bool) -> Marked {
    let mut marked = Marked::default();
    let mut lines = Vec::new();
    let mut is_first = true;
    for line in text.lines() {
        let cited = marks(line).into_iter().map(|(range, _)| range.end);
        // A mark stands where an unknown id was removed; the text before it is not marked twice.
        let from = cited.chain(line.rfind(UNSUPPORTED).map(|at| at + UNSUPPORTED.len())).max().unwrap_or(0);
        let from = if from == 0 { 0 } else { from + end_of_sentence(&line[from..]) };
        let (supported, rest) = line.split_at(from);
        let (about, claims): (Vec<_>, Vec<_>) = pieces(rest).into_iter().partition(|piece| is_about_findings(piece));
        let kept = if about.is_empty() { rest.to_owned() } else { joined(supported, &claims) };
        let mut line = format!("{supported}{kept}");
        // The removed part may have ended the sentence: `… at once [n1e1]; no source says when.`
        if !about.is_empty() && kept.is_empty() && !is_ended(&line) {
            line = format!("{}.", line.trim_end());
        }
        // Only the bullet of a list item may be left.
        let is_emptied = !about.is_empty() && !line.contains(char::is_alphanumeric);
        // "Their dates were not found" means nothing by itself.
        marked.open.extend(about.into_iter().map(as_sentence).filter(|sentence| !refers_back(sentence)));
        if is_emptied {
            continue;
        }
        let uncited = match from {
            0 if is_first => Some(Uncited::Opening(&line)),
            0 => None,
            _ if pieces(&kept).len() == 1 && !is_ended(supported) => Some(Uncited::End { end: &kept, of: &line }),
            _ => None,
        };
        if is_claim(&line, &kept) && !uncited.is_some_and(is_borne_out) {
            marked.number += 1;
            lines.push(format!("{} {UNSUPPORTED}", line.trim_end()));
        } else {
            lines.push(line.clone());
        }
        is_first &= line.trim().is_empty();
    }
    lines.join("\n").trim_end().clone_into(&mut marked.text);
    marked
}

fn refers_back(sentence: &str) -> bool {
    let first = sentence.split(' ').next().unwrap_or_default();
    ["It", "Its", "They", "Their", "This", "That", "These", "Those"].contains(&first)
}

/// Returns whether a line ends with a sentence, which may be followed by citations.
fn is_ended(line: &str) -> bool {
    let mut said = line.trim_end();
    while let Some(before) = said.strip_suffix(']').and_then(|said| said.rfind('[').map(|at| said[..at].trim_end())) {
        said = before;
    }
    said.is_empty() || said.ends_with(is_end) || said.ends_with(':')
}

/// Returns the rest of a line as a separate sentence, without the bullet or the semicolon before it.
fn as_sentence(piece: &str) -> String {
    let Some(rest) = piece.strip_prefix(['-', '*', '+', ';', ',']) else { return piece.to_owned() };
    let mut letters = rest.trim_start().chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Returns the stems of a question or a remark, without words that only refer to the findings.
pub(super) fn subject_of(text: &str) -> BTreeSet<String> {
    let is_frame = |stem: &String| {
        FINDINGS.contains(&stem.as_str())
            || DENIALS.contains(&stem.as_str())
            || SAYING.iter().any(|saying| stem.starts_with(saying))
    };
    WordSplitter::default().key_stems(text).into_iter().filter(|stem| !is_frame(stem)).collect()
}

/// Minimum share of a remark's words that another one has if it says the same.
const SAME_REMARK: f32 = 0.75;

/// Returns whether a known remark has most words of this one and all of its figures. A remark of one word is never
/// repeated: that word says too little.
pub(crate) fn is_repeated(remark: &str, known: &[String]) -> bool {
    let own = subject_of(remark);
    let says = |known: &String| {
        let known = subject_of(known);
        #[expect(clippy::cast_precision_loss, reason = "a remark is short")]
        let share = own.intersection(&known).count() as f32 / own.len() as f32;
        share >= SAME_REMARK && own.iter().all(|stem| known.contains(stem) || !has_digit(stem))
    };
    own.len() > 1 && known.iter().any(says)
}

/// Returns the length of the text after a citation that ends the cited sentence; 0 if something else follows.
fn end_of_sentence(rest: &str) -> usize {
    let Some(end) = pieces(rest).first().and_then(|end| Some(rest.find(end)? + end.len())) else { return 0 };
    let said = &rest[aside(&rest[..end])..end];
    let mut words = said.split_whitespace();
    let first = words.next().unwrap_or_default();
    // `Tea takes two minutes [n1e1], coffee four` and `… [n1e1] and coffee four` begin another claim.
    let goes_on = said.starts_with(' ') && first.starts_with(char::is_lowercase) && !CONJUNCTIONS.contains(&first);
    if goes_on && words.count() < MOST_END_WORDS { end } else { 0 }
}

/// Returns the length of an aside right after a citation, 0 if there is none: `On-demand [n1e1], the default mode,
/// costs …`. It only describes what the cited claim is about. One that ends its sentence may be a claim of its own: "…
/// [n1e1], the coffee there takes four hours".
fn aside(rest: &str) -> usize {
    let aside = |(open, close): &(&str, &str)| {
        let (inner, _) = rest.strip_prefix(open)?.split_once(close)?;
        let is_apposed = *open != ", " || is_apposed(inner);
        let length = open.len() + inner.len() + close.len();
        (is_apposed && is_phrase(inner) && !is_about_findings(inner)).then_some(length)
    };
    ASIDES.iter().find_map(aside).unwrap_or(0)
}

/// Returns whether a text is too short and has no verb or figure to be a claim of its own, as far as is known.
fn is_phrase(text: &str) -> bool {
    let words = || text.split_whitespace().map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()));
    words().filter(|word| !word.is_empty()).count() <= MOST_END_WORDS
        && words().all(|word| !BEING.contains(&word) && !AUXILIARIES.contains(&word) && !has_digit(word))
}

/// Returns whether a text begins like a second name for what stands before it. `coffee four` does not.
fn is_apposed(text: &str) -> bool {
    text.split(' ').next().is_some_and(|first| ARTICLES.contains(&first))
}

/// Joins the sentences that are left after a supported text.
fn joined(supported: &str, claims: &[&str]) -> String {
    let text = claims.join(" ");
    // The dot after a citation belongs to the sentence before.
    let space = if !supported.is_empty() && text.starts_with(char::is_alphanumeric) { " " } else { "" };
    format!("{space}{text}")
}

/// Nouns for the findings in a sentence about them.
const FINDINGS: [&str; 16] = [
    "note", "notes", "finding", "findings", "source", "sources", "evidence", "passage", "passages", "document",
    "documents", "documentation", "page", "pages", "material", "quotes",
];

/// Words of negation.
const DENIALS: [&str; 12] =
    ["not", "no", "nothing", "none", "neither", "nor", "never", "without", "silent", "unclear", "cannot", "fail"];

/// Verbs of stating, as stems.
const SAYING: [&str; 30] = [
    "say", "said", "state", "mention", "specif", "cover", "give", "given", "describ", "contain", "address", "answer",
    "explain", "discuss", "report", "record", "establish", "defin", "settle", "found", "show", "silent", "name",
    "list", "tell", "identif", "indicat", "quantif", "provid", "detail",
];

/// Participles that deny a statement by themselves, without a noun for the findings.
const PASSIVE: [&str; 7] = ["explained", "stated", "described", "specified", "mentioned", "documented", "found"];

const BEING: [&str; 6] = ["is", "are", "was", "were", "be", "been"];

/// Returns whether a sentence is about a gap in the findings: `The notes do not say when.` Only English is recognised.
pub(super) fn is_about_findings(sentence: &str) -> bool {
    // Kept, because the lead-in of a list may contain a reservation.
    if sentence.trim_end().ends_with(':') {
        return false;
    }
    let sentence = sentence.to_lowercase().replace("n't", " not").replace("n’t", " not");
    let words: Vec<_> =
        sentence.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let place = |known: &[&str]| words.iter().position(|word| known.contains(word));
    let says = |word: &&str| SAYING.iter().any(|stem| word.starts_with(stem));
    // `How this fits is not explained`, `no step was found that tells them`.
    let is_passive = |at: usize| {
        let verb = words[at..].iter().take(5).position(|word| PASSIVE.contains(word)).map(|verb| at + verb);
        verb.is_some_and(|verb| BEING.contains(&words[verb - 1]) || verb >= 2 && BEING.contains(&words[verb - 2]))
    };
    if place(&DENIALS).is_some_and(is_passive) {
        return true;
    }
    let (Some(findings), Some(denial)) = (place(&FINDINGS), place(&DENIALS)) else { return false };
    // `Nothing in the notes says`, `no source gives`, `the notes do not say`, `it is not stated in the notes`.
    let said = words.iter().skip(findings.min(denial)).position(says).map(|at| at + findings.min(denial));
    said.is_some_and(|said| denial <= said && said.abs_diff(denial) <= 6 && said.abs_diff(findings) <= 8)
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
    // Spellings that no id has count as well: a reader would take `N2E1` and `n02e1` for ids.
    let word = word.to_lowercase();
    let is_number = |text: &str| !text.is_empty() && text.chars().all(char::is_numeric);
    let parts = word.strip_prefix('n').and_then(|rest| rest.split_once('e'));
    word.parse::<EvidenceId>().is_ok() || parts.is_some_and(|(node, number)| is_number(node) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remark_with_the_words_of_another_is_repeated() {
        let known = ["The sources do not say what a red lamp costs.".to_owned(), "Lamps are old.".to_owned()];
        assert!(is_repeated("cost of red lamps", &known));
        for other in ["cost of oil for lamps", "lamps", "cost of red lamp 12"] {
            assert!(!is_repeated(other, &known), "{other}");
        }
    }

    #[test]
    fn sentence_after_the_last_citation_of_its_line_is_marked_unsupported() {
        let marked = |text: &str| mark_unsupported(text, &|_| false).text;
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
    fn short_end_of_a_cited_sentence_is_supported_and_another_clause_is_not() {
        let number = |text: &str| mark_unsupported(text, &|_| false).number;
        assert_eq!(number("Memory leaks [n2e1] and errors in unsafe code [n2e2] are not ruled out."), 0);
        assert_eq!(number("Memory leaks [n2e1] are not ruled out. Coffee is brewed at 500 degrees."), 1);
        assert_eq!(number("Tea takes two minutes [n2e1] and coffee is brewed at 500 degrees."), 1);
        assert_eq!(number("Tea takes two minutes [n2e1], coffee is brewed at 500 degrees."), 1);
        assert_eq!(number("Tea [n2e1] is the drink that most people in England have at five."), 1);
    }

    #[test]
    fn aside_after_a_citation_is_supported_and_a_clause_or_figure_after_the_same_sign_is_not() {
        let number = |text: &str| mark_unsupported(text, &|_| false).number;
        for supported in [
            "On-demand, the mode by default, is billed by the request [n2e1].",
            "On-demand [n2e1], the mode by default, is billed by the request.",
            "On-demand [n2e1] — the mode by default — is billed by the request.",
            "On-demand [n2e1] (the mode by default) is billed by the request.",
        ] {
            assert_eq!(number(supported), 0, "{supported}");
        }
        for claim in [
            "Tea takes two minutes [n2e1], the coffee is brewed at once.",
            "Tea takes two minutes [n2e1], coffee on the stove takes four.",
            "Tea takes two minutes [n2e1]: boil it at 500 degrees.",
            "Tea takes two minutes [n2e1] — coffee can take a day.",
            "Tea takes two minutes [n2e1] (coffee has to stand for four).",
            "On-demand [n2e1], the mode by default, and coffee is brewed at once.",
            "On-demand [n2e1], the mode by default, is what most people in England have at five.",
            "It has two modes [n2e1]: provisioned. Coffee is brewed at once.",
            "Tea takes two minutes [n2e1] (the coffee of the house takes four",
            "The pump runs at noon [n2e1] — the valve opens at midnight.",
            "Tea takes two minutes [n2e1], the coffee there takes four hours.",
            "It has one flaw [n2e1]: backups lose all data silently.",
        ] {
            assert_eq!(number(claim), 1, "{claim}");
        }
    }

    #[test]
    fn phrase_that_ends_a_cited_sentence_is_supported_if_the_quotes_bear_it_out() {
        for text in [
            "It has two modes [n2e1]: provisioned and on-demand capacity.",
            "It is billed on demand [n2e1], the mode that new tables get.",
        ] {
            assert_eq!(mark_unsupported(text, &|uncited| matches!(uncited, Uncited::End { .. })).number, 0, "{text}");
            assert_eq!(mark_unsupported(text, &|_| false).number, 1, "{text}");
        }
    }

    #[test]
    fn aside_about_the_findings_is_an_open_question() {
        let marked = mark_unsupported("It has two modes [n2e1]: no source says which.", &|_| false);
        assert_eq!(marked.open.len(), 1, "{marked:?}");
    }

    #[test]
    fn headings_questions_and_lead_ins_are_not_claims() {
        let text = "## How tea is brewed here\n\nThere are three ways to brew it:\n- in a pot for long [n2e1]\n\nWhat is left of it then?";
        assert_eq!(mark_unsupported(text, &|_| false), Marked { text: text.to_owned(), ..Marked::default() });
    }

    #[test]
    fn sentence_about_the_findings_is_an_open_question_and_no_claim() {
        for sentence in [
            "The notes do not say how long backups are kept.",
            "Nothing in the sources states a price for the second tier.",
            "No document mentions what happens after that.",
            "How it is restored is not described in the notes.",
            "The findings don't give any figures for 2024.",
            "The documentation is silent on retries.",
            "The findings do not name who is on call now.",
            "How the two plans fit together is not explained.",
            "No step was found that tells each customer.",
        ] {
            let text = format!("Backups are made at two [n2e1]. {sentence}\n- {sentence}\n\nThey are kept [n2e2].");
            let marked = mark_unsupported(&text, &|_| false);
            assert_eq!(marked.text, "Backups are made at two [n2e1].\n\nThey are kept [n2e2].", "{sentence}");
            assert_eq!((marked.number, marked.open), (0, vec![sentence.to_owned(), sentence.to_owned()]));
        }
        for claim in ["Release notes are never sent on Fridays to anybody.", "The backup does not say when it is done."]
        {
            assert_eq!(mark_unsupported(claim, &|_| false).number, 1, "{claim}");
        }
    }

    #[test]
    fn clause_about_the_findings_becomes_a_sentence_and_ends_the_one_before() {
        let text = "Oil is changed at once [n2e1]; no source found says in which month.";
        let marked = mark_unsupported(text, &|_| false);
        assert_eq!(marked.text, "Oil is changed at once [n2e1].");
        assert_eq!(marked.open, ["No source found says in which month."]);
        let text = "Oil is changed at once. [n1e1] No source found says in which month.";
        assert_eq!(mark_unsupported(text, &|_| false).text, "Oil is changed at once. [n1e1]");
    }

    #[test]
    fn first_line_is_held_against_the_cited_claims_together() {
        let text = "There are two ways to restore it.\n\n- from the disk [n2e1]\n\nIt takes all day long.";
        let sums_up = |uncited: Uncited<'_>| matches!(uncited, Uncited::Opening(line) if line.contains("two ways"));
        let marked = mark_unsupported(text, &sums_up);
        assert_eq!(marked.text, format!("{text} [unsupported]"), "and no other line");
        assert_eq!(mark_unsupported(text, &|_| false).number, 2);
    }

    #[test]
    fn end_of_a_cited_sentence_is_supported_if_what_is_cited_bears_it_out() {
        let text = "The first zone is the base [n2e1], and the other zones are fractions of it.";
        let number = |is_borne_out: bool| {
            mark_unsupported(text, &|uncited| {
                assert!(
                    matches!(uncited, Uncited::End { end, of } if end.starts_with(", and the other") && of == text)
                );
                is_borne_out
            })
            .number
        };
        assert_eq!((number(true), number(false)), (0, 1));
        let other = "The first zone is the base [n2e1]. The other zones are fractions of it.";
        assert_eq!(mark_unsupported(other, &|_| true).number, 1, "a sentence of its own");
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
