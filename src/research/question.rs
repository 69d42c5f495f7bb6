//! What the user asked, checked and bounded.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::line::one_line;

/// Longest question, in characters.
const MAX_CHARACTERS: usize = 4_000;

/// A question: has words, and is short enough to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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

impl TryFrom<String> for Question {
    type Error = QuestionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Question> for String {
    fn from(question: Question) -> Self {
        question.0
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Things an answer may be required to cover.
const MAX_REQUIRED: usize = 20;

/// Longest of them, in characters.
const MAX_REQUIRED_CHARACTERS: usize = MAX_ASPECT_CHARACTERS;

/// What an answer is required to cover cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequiredError {
    /// One says nothing.
    #[error("what the answer must cover has no words")]
    Empty,
    /// There are too many.
    #[error("answer must cover {count} things (at most {MAX_REQUIRED})")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// One is too long to be kept whole.
    #[error("what the answer must cover has {characters} characters (at most {MAX_REQUIRED_CHARACTERS})")]
    TooLong {
        /// Its length.
        characters: usize,
    },
}

/// Returns what an answer is required to cover, each on one line.
///
/// # Errors
///
/// Returns an error where one says nothing, and where there are more, or longer ones, than an answer can keep in view.
pub fn required(texts: &[String]) -> Result<Vec<String>, RequiredError> {
    if texts.len() > MAX_REQUIRED {
        return Err(RequiredError::TooMany { count: texts.len() });
    }
    let checked = |text: &String| {
        let text = one_line(text);
        let characters = text.chars().count();
        if !text.chars().any(char::is_alphanumeric) {
            Err(RequiredError::Empty)
        } else if characters > MAX_REQUIRED_CHARACTERS {
            Err(RequiredError::TooLong { characters })
        } else {
            Ok(text)
        }
    };
    texts.iter().map(checked).collect()
}

/// Names an aspect of a question, for example `a1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AspectId(String);

impl AspectId {
    /// Returns the id of the aspect that comes as `number`, from 1.
    pub fn numbered(number: usize) -> Self {
        Self(format!("a{number}"))
    }

    /// Takes an id as a model or file wrote it; whoever uses it looks it up in the brief.
    pub fn named(id: impl Into<String>) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for AspectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something an answer must cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aspect {
    /// Its name.
    pub id: AspectId,
    /// What must be covered, in words that may be searched for.
    pub text: String,
}

/// Aspects a brief may have beside what the caller requires.
pub(super) const MAX_ASPECTS: usize = 8;

/// Longest aspect, in characters.
const MAX_ASPECT_CHARACTERS: usize = 300;

impl Aspect {
    /// Returns what is required, then what else was named, none twice, numbered.
    pub(super) fn list(required: &[String], named: &[String]) -> Vec<Self> {
        let mut texts: Vec<String> = Vec::new();
        for (place, text) in required.iter().chain(named).enumerate() {
            let text = Self::text_of(text);
            let is_new = !texts.iter().any(|known| known.to_lowercase() == text.to_lowercase());
            let has_words = text.chars().any(char::is_alphanumeric);
            if has_words && is_new && (place < required.len() || texts.len() < MAX_ASPECTS) {
                texts.push(text);
            }
        }
        texts.into_iter().zip(1..).map(|(text, number)| Self { id: AspectId::numbered(number), text }).collect()
    }

    /// Returns a text as an aspect has it: one line that does not go on for ever.
    pub(super) fn text_of(text: &str) -> String {
        one_line(text).chars().take(MAX_ASPECT_CHARACTERS).collect()
    }
}

/// How much is done for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By the question.
    #[default]
    Auto,
    /// One node, one round.
    Quick,
    /// One node, looked into again until its aspects are covered.
    Iterative,
    /// A tree of nodes.
    Deep,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "quick" => Ok(Self::Quick),
            "iterative" => Ok(Self::Iterative),
            "deep" => Ok(Self::Deep),
            _ => Err(format!("`{text}` is not a mode (auto, quick, iterative or deep)")),
        }
    }
}

/// What is to be found out, fixed before anything is searched for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// What the user asked.
    pub question: Question,
    /// The question in full, with what the user added when asked.
    pub task: String,
    /// What the answer must cover; at least one.
    pub aspects: Vec<Aspect>,
    /// How much is done; never [`Mode::Auto`].
    pub mode: Mode,
}

impl Brief {
    /// Returns an aspect.
    pub fn aspect(&self, id: &AspectId) -> Option<&Aspect> {
        self.aspects.iter().find(|aspect| aspect.id == *id)
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
    fn what_must_be_covered_is_short_and_little() {
        let of = |text: &str, count: usize| required(&vec![text.to_owned(); count]);
        assert_eq!(of(" its\ncost ", 2).unwrap(), ["its cost", "its cost"]);
        assert_eq!(of(" ?! ", 1), Err(RequiredError::Empty));
        assert!(of("cost", MAX_REQUIRED).is_ok() && of(&"é".repeat(300), 1).is_ok());
        assert_eq!(of("cost", 21).unwrap_err().to_string(), "answer must cover 21 things (at most 20)");
        let error = of(&"é".repeat(301), 1).unwrap_err();
        assert_eq!(error.to_string(), "what the answer must cover has 301 characters (at most 300)");
    }

    #[test]
    fn question_without_words_or_without_end_is_refused() {
        assert_eq!(" ?! ".parse::<Question>(), Err(QuestionError::Empty));
        let error = "a ".repeat(4_000).parse::<Question>().unwrap_err();
        assert_eq!(error.to_string(), "question has 7999 characters (at most 4000)");
    }
}
