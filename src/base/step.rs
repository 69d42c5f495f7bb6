//! The words in the keys of model calls: a key is stored as text, and its parts are read back here.

use serde::{Deserialize, Serialize};

use super::id::{as_word, from_word};

/// Digits of a hash in a key.
pub(crate) const HASH_DIGITS: usize = 12;

/// A step of a run or of a node, or a part of another step. The journal stores it as this word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    Clarify,
    Brief,
    /// Part of [`Self::Brief`]: the brief of what leaves the machine.
    Outward,
    Plan,
    Skim,
    /// One step of a worker, with its number.
    #[serde(rename = "step")]
    Work,
    /// The same request without the older results, for a model whose context is too short.
    Shorter,
    Report,
    /// The answer in the schema that the user or the planner wants.
    Output,
    Page,
    Rerank,
    /// Background research.
    Research,
    Fold,
    /// Part of [`Self::Fold`]: the summary of public text alone.
    Public,
    Group,
    Draft,
    /// Part of [`Self::Draft`], as are the next two.
    Outline,
    Section,
    Answer,
    Judge,
    /// The request again, with the complaint about an invalid reply.
    Repair,
    /// The request again, with a schema without annotations.
    Small,
    /// Precedes the steps of a worker that searches the web.
    Web,
}

as_word!(Step);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart<'a> {
    Step(Step),
    /// A number, a node or the start of a hash.
    Id(&'a str),
    /// Anything else: a step of another version, or the name of a group, which a planner chose. It may be displayed,
    /// but nothing else depends on it.
    Other(&'a str),
}

impl<'a> KeyPart<'a> {
    /// Parses the part between two `/`.
    pub(crate) fn of(text: &'a str) -> Self {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_hash = text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_node = text.strip_prefix('n').is_some_and(is_number);
        match from_word(text) {
            Some(step) => Self::Step(step),
            None if is_number(text) || is_hash || is_node => Self::Id(text),
            None => Self::Other(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As stored by every version so far. A changed word would make a resumed run pay for its calls again.
    const WORDS: [(Step, &str); 23] = [
        (Step::Clarify, "clarify"),
        (Step::Brief, "brief"),
        (Step::Outward, "outward"),
        (Step::Plan, "plan"),
        (Step::Skim, "skim"),
        (Step::Work, "step"),
        (Step::Shorter, "shorter"),
        (Step::Report, "report"),
        (Step::Output, "output"),
        (Step::Page, "page"),
        (Step::Rerank, "rerank"),
        (Step::Research, "research"),
        (Step::Fold, "fold"),
        (Step::Public, "public"),
        (Step::Group, "group"),
        (Step::Draft, "draft"),
        (Step::Outline, "outline"),
        (Step::Section, "section"),
        (Step::Answer, "answer"),
        (Step::Judge, "judge"),
        (Step::Repair, "repair"),
        (Step::Small, "small"),
        (Step::Web, "web"),
    ];

    #[test]
    fn every_step_is_written_as_the_word_it_is_read_from() {
        for (at, (step, word)) in WORDS.into_iter().enumerate() {
            assert_eq!(step as usize, at, "every variant is listed");
            assert_eq!(step.to_string(), word);
            assert_eq!(KeyPart::of(word), KeyPart::Step(step));
        }
        assert_eq!(WORDS.len(), Step::Web as usize + 1, "`Web` is the last variant");
    }

    #[test]
    fn part_that_is_no_step_is_an_id_or_other_text() {
        for id in ["0", "12", "n3", "0123456789ab"] {
            assert_eq!(KeyPart::of(id), KeyPart::Id(id));
        }
        for other in ["", "n", "notes", "Plan", "Reactor cooling", "0123456789abc", "write"] {
            assert_eq!(KeyPart::of(other), KeyPart::Other(other));
        }
    }
}
