//! What the user asked, checked and bounded.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Longest question, in characters.
const MAX_CHARACTERS: usize = 4_000;

/// A question: has words, and is short enough to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Question(String);

/// The text cannot be asked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QuestionError {
    /// There is no word in it.
    #[error("question has no words")]
    Empty,
    /// It is more than a question.
    #[error("question has {characters} characters (at most {MAX_CHARACTERS})")]
    TooLong {
        /// Its length.
        characters: usize,
    },
}

impl Question {
    /// Returns the question on one line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Question {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
        let text = text.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let characters = text.chars().count();
        if !text.chars().any(char::is_alphanumeric) {
            Err(QuestionError::Empty)
        } else if characters > MAX_CHARACTERS {
            Err(QuestionError::TooLong { characters })
        } else {
            Ok(Self(text))
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_is_one_line_without_control_characters() {
        let question: Question = " what\n is\u{1b}[2J it? ".parse().unwrap();
        assert_eq!(question.as_str(), "what is [2J it?");
    }

    #[test]
    fn question_without_words_or_without_end_is_refused() {
        assert_eq!(" ?! ".parse::<Question>(), Err(QuestionError::Empty));
        let error = "a ".repeat(4_000).parse::<Question>().unwrap_err();
        assert_eq!(error.to_string(), "question has 7999 characters (at most 4000)");
    }
}
