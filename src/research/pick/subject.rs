//! Recognises questions for an overview, and their subject.

use super::wording::{CLAUSES, TELLS_APART, has_phrase, has_word, words};
use crate::base::word::has_key_word;

/// Openings that precede the subject of an overview.
const OVERVIEWS: [&str; 12] = [
    "tell me about ",
    "tell me all about ",
    "tell me everything about ",
    "everything about ",
    "everything we know about ",
    "overview of ",
    "what do we know about ",
    "what do i know about ",
    "what do you know about ",
    "what do my notes say about ",
    "what do our notes say about ",
    "what do the notes say about ",
];

/// Openings of a request, names for an overview, and words between such a name and its subject: "Write a short report
/// about …".
const COURTESIES: [&str; 4] = ["please ", "can you ", "could you ", "would you "];
const ORDERS: [&str; 18] = [
    "write a ", "write an ", "write me a ", "write me an ", "give a ", "give an ", "give me a ", "give me an ",
    "prepare a ", "prepare an ", "create a ", "create an ", "make me a ", "draft a ", "produce a ", "compile a ",
    "i need a ", "i need an ",
];
const OVERVIEW_NAMES: &str = "report|overview|summary|introduction|article|essay|briefing";
const OVERVIEW_LINKS: [&str; 7] = ["about", "about:", "on", "on:", "of", "of:", "to"];

/// Maximum number of words between a request and the name for an overview, and words that must not be among them:
/// "Write a letter to the author of the report on pumps" asks for a letter.
const ADJECTIVES: usize = 6;
const NO_ADJECTIVES: &str = "the|to|for|who|whom|whose|what|which|when|where|why|how|that|of|on|in|my|our|your|their";

/// Returns the subject of a requested overview: "Write a report about pumps". `None` for other questions.
pub(crate) fn overview_of(question: &str) -> Option<&str> {
    // ASCII, so that offsets are those of the question.
    let lower = question.to_ascii_lowercase();
    let mut asked = lower.trim_start();
    while let Some(rest) = COURTESIES.iter().find_map(|courtesy| asked.strip_prefix(courtesy)) {
        asked = rest.trim_start();
    }
    let opening = OVERVIEWS.iter().find_map(|opening| asked.strip_prefix(opening));
    let rest = opening.or_else(|| ORDERS.iter().find_map(|order| asked.strip_prefix(order)).and_then(after_name))?;
    let subject = question[question.len() - rest.len()..].trim().trim_end_matches(['.', '?', '!']).trim_end();
    let is_clause = words(rest).next().is_some_and(|word| has_word(word, CLAUSES));
    let is_subject = has_key_word(subject) && !is_clause && !has_phrase(subject, &TELLS_APART);
    is_subject.then_some(subject)
}

/// Returns the text after the name for an overview and the word that links it to its subject: "short report about …".
fn after_name(asked: &str) -> Option<&str> {
    let mut rest = asked;
    for _ in 0..=ADJECTIVES {
        let (word, after) = rest.trim_start().split_once(' ')?;
        if has_word(word, OVERVIEW_NAMES) {
            let (link, subject) = after.trim_start().split_once(' ')?;
            return OVERVIEW_LINKS.contains(&link).then_some(subject);
        }
        if has_word(word, NO_ADJECTIVES) {
            return None;
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overview_is_asked_for_by_an_order_and_a_subject() {
        for (question, subject) in [
            ("Write a comprehensive, well organised report about: the pumps of 2022", Some("the pumps of 2022")),
            ("Give me an overview of Brass Valves.", Some("Brass Valves")),
            ("Tell me about the mill?", Some("the mill")),
            ("What do we know about frost", Some("frost")),
            ("Can you please write me a short summary of the mill?", Some("the mill")),
            ("Who wrote the report on pumps?", None),
            ("Who may write the report on taxes?", None),
            ("What do I need to make the report on taxes?", None),
            ("I need a person who wrote a report on pumps", None),
            ("How long do I need to write a report about delays?", None),
            ("Give me the mass of the particle on the string", None),
            ("Does it say in the report on flights how long delays last?", None),
            ("Tell me about the difference between oak and elm", None),
            ("Tell me about how pumps are oiled", None),
            ("Tell me about it", None),
            ("Tell me about ?", None),
            ("How do I make a valve?", None),
        ] {
            assert_eq!(overview_of(question), subject, "{question}");
        }
    }
}
