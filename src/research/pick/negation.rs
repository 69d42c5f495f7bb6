//! Recognises negative questions, and texts that deny something.

use super::wording::{AUXILIARIES, CLAUSES, has_word, words};

/// Words that deny something, and words for an exception.
const NEGATIONS: &str = "not|cannot|no|none|never|unsupported|unavailable|unable|excluded|excludes|banned|prohibited|\
    forbidden|refused|rejected|exempt|lack|lacks";
const EXCEPTIONS: &str = "without|except";

/// Number of words at the start of a question among which the negated verb is looked for.
const OPENING_WORDS: usize = 7;

/// Returns whether a question asks which things are not so: "which services can't be logged", "what can't I edit". What
/// happens if something is not done is asked for otherwise.
pub(super) fn asks_for_what_is_not(question: &str) -> bool {
    let lower = question.to_lowercase();
    let all: Vec<_> = words(&lower).collect();
    let words = &all[..all.len().min(OPENING_WORDS)];
    // "Can't" is two words here. A noun stands before the verb.
    let denies = |pair: &[&str]| match pair {
        ["cannot", _] | [_, "cannot"] => true,
        [verb, "not" | "t"] => {
            has_word(verb, AUXILIARIES) || has_word(verb, "don|doesn|isn|aren|can|won|couldn|shouldn")
        }
        _ => false,
    };
    let asks = matches!(words.first(), Some(&"which" | &"what"));
    // "What is a pump not good for?", "What kinds of work is a pump not good for?"
    let is_clause = |word: &&&str| has_word(word, CLAUSES) || **word == "happens";
    let rest: Vec<_> = all.iter().skip(1).take_while(|word| !is_clause(word)).collect();
    // "What is a pump not good for?", "Which countries am I not allowed to enter?"
    let is_be = |word: &&&str| matches!(**word, "is" | "are");
    let after_be = rest.iter().skip_while(|word| !is_be(word)).any(|word| **word == "not");
    let is_denied = |three: &[&&str]| has_word(three[0], AUXILIARIES) && *three[2] == "not";
    let is_apart = asks && (after_be || rest.windows(3).any(is_denied));
    let has_noun = words.get(1).is_some_and(|word| !has_word(word, AUXILIARIES) && *word != "happens");
    let pairs = words.get(1..).unwrap_or_default().windows(2);
    is_apart || asks && pairs.take(if has_noun { words.len() } else { 1 }).any(denies)
}

/// Returns whether a question asks why something is not so: "why can't I", "why does the pump not start".
pub(super) fn asks_why_not(question: &str) -> bool {
    let opening: Vec<_> = question.split_whitespace().take(OPENING_WORDS).collect();
    opening.first().is_some_and(|first| first.eq_ignore_ascii_case("why")) && negates(&opening.join(" "))
}

/// Returns whether a text denies something, or makes an exception.
pub(super) fn is_negative(text: &str) -> bool {
    negates(text) || has_word(&text.to_lowercase(), EXCEPTIONS)
}

/// Returns whether a text denies something.
pub(super) fn negates(text: &str) -> bool {
    let lower = text.to_lowercase().replace("not limited to", "");
    has_word(&lower, NEGATIONS) || ["n't", "n’t", "is an error"].iter().any(|part| lower.contains(part))
}
