//! Recognises questions for the remedy for a failure, and headings above a remedy.

use super::wording::{has_phrase, has_word};

/// Words for a failure, and words and phrases that ask for a remedy.
const FAILURES: &str = "error|errors|err|fail|fails|failed|failing|failure|exception|exceptions|warning|crash|crashes|crashed|\
    panics|panicked|breaks|broken|complains|unresolved|denied";
const REMEDIES: &str = "why|fix|solve|resolve|instead|wrong|missing|equivalent|workaround|means";
const ASKS_FOR_REMEDY: [&str; 5] = ["how do i ", "how can i ", "how to ", "does it mean", "what to do"];

/// Phrases that only a report of a failure has.
const REPORTS_FAILURE: [&str; 5] =
    ["what can i try", "what should i try", "what now", "keep getting ", "keeps failing"];

/// Words of headings above the remedy for a failure.
const REMEDY_HEADINGS: &str = "fix|fixes|fixing|solution|solutions|solve|workaround|workarounds|resolution|resolve|resolving|remedy|\
    remedies|cause|causes|do|mitigation|troubleshooting";

/// The way in which a question asks for the remedy for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The question is the message: "error: no such pump".
    OfMessage,
    /// "It fails with … How do I fix it?"
    OfFailure,
}

impl Remedy {
    pub(super) fn of(question: &str) -> Option<Self> {
        let lower = question.to_lowercase();
        let asks = || has_word(&lower, REMEDIES) || has_phrase(question, &ASKS_FOR_REMEDY);
        match () {
            () if lower.trim_start().starts_with("error") => Some(Self::OfMessage),
            () if has_phrase(question, &REPORTS_FAILURE) || has_word(&lower, FAILURES) && asks() => {
                Some(Self::OfFailure)
            }
            () => None,
        }
    }
}

/// Returns whether a heading stands above the symptoms of a failure, whose cause is in the next section.
pub(super) fn names_symptoms(heading: &str) -> bool {
    has_word(&heading.to_lowercase(), "symptom|symptoms|problem|issue")
}

/// Returns whether a heading names the cause of a failure, which may be followed by the remedy.
pub(super) fn names_cause(heading: &str) -> bool {
    has_word(&heading.to_lowercase(), "cause|causes|reason|reasons")
}

/// Returns whether a heading announces the remedy for a failure: "How to Fix".
pub(super) fn names_remedy(heading: &str) -> bool {
    has_word(&heading.to_lowercase(), REMEDY_HEADINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_is_asked_for_by_a_message_alone_or_by_a_failure_and_a_question_about_it() {
        assert_eq!(Remedy::of("error[E0432]: no pump"), Some(Remedy::OfMessage));
        for question in ["Why does the pump fail with 7?", "It crashes, how do I stop that?"] {
            assert_eq!(Remedy::of(question), Some(Remedy::OfFailure), "{question}");
        }
        for question in [
            "How do I open the valve?",
            "Which errors can the pump report?",
            "How many failed attempts lock the pump?",
            "How red is the warning lamp?",
        ] {
            assert_eq!(Remedy::of(question), None, "{question}");
        }
        assert!(names_remedy("How to Fix") && names_remedy("What to do") && !names_remedy("Dry tank"));
    }
}
