//! What one question asks for, worked out once for all units and sentences.

use super::asked::{AnswerKind, Wanted, counted, counts};
use super::code_word::CodeWord;
use crate::base::word::WordSplitter;
use crate::research::sentence::Sentence;

/// Whether a sentence has the value that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Value {
    No,
    /// A value of that kind.
    Any,
    /// A number right before what is counted.
    Counted,
}

/// What a question asks for, worked out once for all units and sentences.
pub(super) struct Sought<'a> {
    pub(super) question: &'a str,
    pub(super) splitter: &'a WordSplitter,
    pub(super) asked: AnswerKind,
    wanted: Option<Wanted>,
    /// The stem of the noun after "how many".
    counted: Option<String>,
    pub(super) code_words: Vec<CodeWord>,
}

impl<'a> Sought<'a> {
    pub(super) fn of(question: &'a str, splitter: &'a WordSplitter) -> Self {
        let counted = counted(question).map(|noun| splitter.stem(&noun));
        let code_words = CodeWord::all(question, splitter);
        Self { question, splitter, asked: AnswerKind::of(question), wanted: Wanted::of(question), counted, code_words }
    }

    pub(super) fn value_in(&self, sentence: &Sentence) -> Value {
        match (self.wanted, &self.counted) {
            (Some(wanted), _) if !wanted.is_in(&sentence.plain) => Value::No,
            (Some(_), Some(noun)) if counts(&sentence.plain, noun, self.splitter) => Value::Counted,
            (Some(_), _) => Value::Any,
            (None, _) => Value::No,
        }
    }
}
