//! What a question asks for, told by its English wording, and whether a unit is of a kind that suits it.

use super::features::Weights;
use super::{has_phrase, has_value};
use crate::base::word::WordSplitter;
use crate::research::unit::{Unit, UnitKind};

/// What a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Number,
    Time,
    Steps,
    List,
    Definition,
    Other,
}

impl Asked {
    pub(super) fn of(question: &str) -> Self {
        let has = |phrases: &[&str]| has_phrase(question, phrases);
        match () {
            () if has(&[
                "how many ",
                "what version ",
                "which version ",
                "what percent",
                "how much ",
                "how long ",
                "how large ",
                "how big ",
                "what size ",
                "maximum ",
                "limit ",
            ]) =>
            {
                Self::Number
            }
            () if has(&["when ", "what year ", "what date ", "which year ", "how old "]) => Self::Time,
            () if has(&["how do ", "how to ", "how can ", "how should ", "steps ", "what command"]) => Self::Steps,
            () if has(&[
                "what are ",
                "which ",
                "list ",
                "name the ",
                "what kinds ",
                "what types ",
                "types of ",
                "what options ",
            ]) =>
            {
                Self::List
            }
            () if has(&["what is ", "what's ", "define ", "what does ", "explain ", "who is ", "who was "]) => {
                Self::Definition
            }
            () => Self::Other,
        }
    }

    /// Returns whether a unit is of a kind that the question asks for.
    pub(super) fn suits(self, unit: &Unit, text: &str, weights: &Weights, splitter: &WordSplitter) -> bool {
        let own = &text[unit.range.clone()];
        match self {
            Self::Number | Self::Time => has_value(own),
            Self::Steps => matches!(unit.kind, UnitKind::Code | UnitKind::List { is_ordered: true }),
            Self::List => matches!(unit.kind, UnitKind::List { .. } | UnitKind::Table),
            // The paragraph that begins with what is asked for.
            Self::Definition => {
                let opening: String = own.chars().take(80).collect();
                let words = splitter.stems(&opening);
                unit.kind == UnitKind::Paragraph && weights.keys().all(|stem| words.contains(stem))
            }
            Self::Other => false,
        }
    }
}
