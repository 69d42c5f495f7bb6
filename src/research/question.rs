//! The user's question, the aspects an answer must cover, and the brief made of both.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::id::{as_text, from_word};
use crate::base::line::one_line;

/// Longest question, in characters. A longer text is a pasted document: it would crowd out the evidence in every
/// prompt.
const MAX_CHARACTERS: usize = 4_000;

/// Longest task of a brief, in characters. It contains the question and the answer to a clarifying question.
pub(super) const MAX_TASK_CHARACTERS: usize = 8_000;

/// A validated question: one line, at least one letter or digit, at most [`MAX_CHARACTERS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Question(String);

/// The text is not a valid question.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QuestionError {
    /// The text has no letter and no digit.
    #[error("question has no words")]
    Empty,
    /// The text exceeds [`MAX_CHARACTERS`].
    #[error("question has {characters} characters (at most {MAX_CHARACTERS})")]
    TooLong {
        /// Length in characters.
        characters: usize,
    },
}

impl Question {
    /// Returns the question as one line of text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Question {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Control characters too: the question is printed on terminals, and is one line of a prompt.
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

as_text!(Question);

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Maximum number of requirements a caller may set. Each becomes an aspect that is searched, judged and reported by
/// itself.
const MAX_REQUIRED: usize = 20;

/// Longest requirement, in characters: requirements become aspects and must not be truncated.
const MAX_REQUIRED_CHARACTERS: usize = MAX_ASPECT_CHARACTERS;

/// A requirement for the answer (`--cover`) is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequiredError {
    /// A requirement has no letter and no digit.
    #[error("required topic has no words")]
    Empty,
    /// More than [`MAX_REQUIRED`] requirements.
    #[error("{count} required topics (at most {MAX_REQUIRED})")]
    TooMany {
        /// Number of requirements given.
        count: usize,
    },
    /// A requirement exceeds [`MAX_REQUIRED_CHARACTERS`].
    #[error("required topic has {characters} characters (at most {MAX_REQUIRED_CHARACTERS})")]
    TooLong {
        /// Length in characters.
        characters: usize,
    },
}

/// Validates requirements and returns each as one line.
///
/// # Errors
///
/// Returns an error if a requirement is empty or too long, or if there are too many.
pub(crate) fn required(texts: &[String]) -> Result<Vec<String>, RequiredError> {
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
///
/// A number, since prompts that face outward show it: an id of words could hold internal text. A plan or journal
/// written with other ids keeps its references: such an id becomes the number that a hash of it gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct AspectId(u32);

impl AspectId {
    /// Returns the id of aspect `number`, counted from 1.
    pub(crate) fn numbered(number: u32) -> Self {
        Self(number)
    }

    /// Reads an id as a model or a file wrote it. It may not exist: look it up with [`Brief::aspect`].
    pub fn named(id: &str) -> Self {
        let id = id.trim();
        let number = id.strip_prefix('a').and_then(|number| number.parse().ok());
        number.map(Self).filter(|parsed| parsed.to_string() == id).unwrap_or_else(|| {
            let [a, b, c, d, ..] = *blake3::hash(id.as_bytes()).as_bytes();
            Self(u32::from_le_bytes([a, b, c, d]))
        })
    }
}

impl From<String> for AspectId {
    fn from(id: String) -> Self {
        Self::named(&id)
    }
}

impl From<AspectId> for String {
    fn from(id: AspectId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for AspectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}", self.0)
    }
}

/// A topic the answer must cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aspect {
    /// Referred to by plan, findings and verdict.
    pub id: AspectId,
    /// The topic, worded so that it can be used as a search query.
    pub text: String,
}

/// Maximum number of aspects of a brief, unless the caller requires more. Each is searched, judged and reported by
/// itself.
pub(super) const MAX_ASPECTS: usize = 8;

/// Longest aspect, in characters: it serves as a search query.
const MAX_ASPECT_CHARACTERS: usize = 300;

impl Aspect {
    /// Numbers the required aspects and then the named ones, without duplicates. Requirements are never dropped; named
    /// aspects are, beyond [`MAX_ASPECTS`].
    pub(super) fn list(required: &[String], named: &[String]) -> Vec<Self> {
        let mut texts: Vec<String> = Vec::new();
        for (place, text) in required.iter().chain(named).enumerate() {
            let text = Self::text_of(text);
            // A model is shown the required aspects and may name one again, in another letter case.
            let is_new = !texts.iter().any(|known| known.to_lowercase() == text.to_lowercase());
            let has_words = text.chars().any(char::is_alphanumeric);
            if has_words && is_new && (place < required.len() || texts.len() < MAX_ASPECTS) {
                texts.push(text);
            }
        }
        texts.into_iter().zip(1..).map(|(text, number)| Self { id: AspectId::numbered(number), text }).collect()
    }

    /// Reduces a text to one line of at most [`MAX_ASPECT_CHARACTERS`].
    pub(super) fn text_of(text: &str) -> String {
        one_line(text).chars().take(MAX_ASPECT_CHARACTERS).collect()
    }
}

/// Depth of the research.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Chosen from the question.
    #[default]
    Auto,
    /// One node, one round.
    Quick,
    /// One node, searched again until its aspects are covered.
    Iterative,
    /// A tree of nodes.
    Deep,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        from_word(text).ok_or_else(|| format!("`{text}` is not a mode (auto, quick, iterative or deep)"))
    }
}

/// The task: question and aspects. Fixed before the first search, so that results cannot change the question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// The question as the user typed it.
    pub question: Question,
    /// The question in full, including the user's answer to a clarifying question.
    pub task: String,
    /// The topics the answer must cover; never empty.
    pub aspects: Vec<Aspect>,
    /// Depth of the research; never [`Mode::Auto`].
    pub mode: Mode,
}

/// A brief from a file exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the brief has {found} (at most {limit})")]
pub struct BriefError {
    what: &'static str,
    found: String,
    limit: usize,
}

impl Brief {
    /// Checks the sizes of a brief from a file: its text is part of every prompt.
    pub(crate) fn check(&self) -> Result<(), BriefError> {
        let length = |what, text: &str, limit| match text.chars().count() {
            found if found > limit => Err(BriefError { what, found: format!("{found} characters"), limit }),
            _ => Ok(()),
        };
        length("task", &self.task, MAX_TASK_CHARACTERS)?;
        let (found, limit) = (self.aspects.len(), MAX_REQUIRED + MAX_ASPECTS);
        if found > limit {
            return Err(BriefError { what: "list of aspects", found: format!("{found} entries"), limit });
        }
        self.aspects.iter().try_for_each(|aspect| length("aspect", &aspect.text, MAX_CHARACTERS))
    }

    /// Looks up an aspect by id.
    pub(crate) fn aspect(&self, id: &AspectId) -> Option<&Aspect> {
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
    fn task_of_a_brief_may_be_as_long_as_one_that_a_model_writes() {
        let brief = |characters| Brief {
            question: "why?".parse().unwrap(),
            task: "é".repeat(characters),
            aspects: Vec::new(),
            mode: Mode::Quick,
        };
        assert_eq!(brief(MAX_TASK_CHARACTERS).check(), Ok(()));
        let error = brief(MAX_TASK_CHARACTERS + 1).check().unwrap_err().to_string();
        assert_eq!(error, "task of the brief has 8001 characters (at most 8000)");
    }

    #[test]
    fn aspect_id_holds_no_words_and_is_the_same_when_read_back() {
        let read = |id: &str| serde_json::from_value::<AspectId>(id.into()).unwrap();
        assert_eq!(read("a12"), AspectId::numbered(12));
        for id in ["licence", "a Ferreira", "a07", "A1", "", "a99999999999"] {
            let (found, shown) = (read(id), read(id).to_string());
            assert!(shown.strip_prefix('a').unwrap().parse::<u32>().is_ok(), "{shown}");
            assert_eq!((read(&shown), read(id)), (found.clone(), found), "{id}");
        }
        assert_ne!(read("licence"), read("cost"));
    }

    #[test]
    fn requirements_are_limited_in_length_and_number() {
        let of = |text: &str, count: usize| required(&vec![text.to_owned(); count]);
        assert_eq!(of(" its\ncost ", 2).unwrap(), ["its cost", "its cost"]);
        assert_eq!(of(" ?! ", 1), Err(RequiredError::Empty));
        assert!(of("cost", MAX_REQUIRED).is_ok() && of(&"é".repeat(300), 1).is_ok());
        assert_eq!(of("cost", 21).unwrap_err().to_string(), "21 required topics (at most 20)");
        let error = of(&"é".repeat(301), 1).unwrap_err();
        assert_eq!(error.to_string(), "required topic has 301 characters (at most 300)");
    }

    #[test]
    fn empty_and_oversized_questions_are_refused() {
        assert_eq!(" ?! ".parse::<Question>(), Err(QuestionError::Empty));
        let error = "a ".repeat(4_000).parse::<Question>().unwrap_err();
        assert_eq!(error.to_string(), "question has 7999 characters (at most 4000)");
    }
}
