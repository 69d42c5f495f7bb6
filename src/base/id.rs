//! Ids of documents, chunks, runs, nodes and background jobs, and the hash of a file's bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};

/// Makes a type with `FromStr` and `Display` one that serde stores as its text, by
/// `#[serde(try_from = "String", into = "String")]`.
macro_rules! as_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = <Self as std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

pub(crate) use as_text;

/// Displays an enum by the word that serde writes for it, so that both are always the same.
macro_rules! as_word {
    ($type:ident) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        }
    };
}

pub(crate) use as_word;

/// Returns the variant of an enum for which serde writes `word`.
pub(crate) fn from_word<'a, T: Deserialize<'a>>(word: &'a str) -> Option<T> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(word)).ok()
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an id (expected 16 hex digits, for example `4f1c09a2b7de5533`)")]
pub struct ParseIdError(String);

/// Returns the first eight bytes of a hash over `parts`, as 16 hex digits.
///
/// Each part is preceded by its length, so that `["ab", "c"]` and `["a", "bc"]` differ. Eight bytes are enough: the
/// probability that any two of ten million ids are equal is 3 in a million.
fn short_hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Sixteen lowercase hex digits. Parsing rejects anything else, so an id can be put into a query or a path as
        /// it is.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Returns the sixteen hex digits.
            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                // No capitals, so that an id has one spelling, also as a file name.
                let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                if text.len() == 16 && text.bytes().all(is_hex) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(ParseIdError(text.to_owned()))
                }
            }
        }

        as_text!($name);
    };
}

id_type! {
    /// Identifies a document: a collection and a path in it. Moving the collection does not change the id.
    DocumentId
}

id_type! {
    /// Identifies a chunk. Stable as long as the document, the headings above the passage and its text are unchanged.
    ChunkId
}

id_type! {
    /// Identifies a run: one question and the work done to answer it.
    RunId
}

impl RunId {
    /// Returns an id made of 64 random bits.
    pub fn random(bits: u64) -> Self {
        Self(format!("{bits:016x}"))
    }
}

impl DocumentId {
    /// Returns the id of the file at `path` (relative to the collection's root, `/` between parts).
    pub(crate) fn new(collection: &str, path: &str) -> Self {
        Self(short_hash(&["document", collection, path]))
    }
}

impl ChunkId {
    /// Returns the id of a passage; `ordinal` counts equal passages under equal headings within the document.
    pub(crate) fn new(document: &DocumentId, heading_path: &str, text: &str, ordinal: usize) -> Self {
        Self(short_hash(&["chunk", document.as_str(), heading_path, text, &ordinal.to_string()]))
    }
}

/// Id of a node within its tree, for example `n3`. The root is always `n1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(u32);

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a node id (expected `n` and a number, for example `n3`)")]
pub struct ParseNodeIdError(String);

impl NodeId {
    /// Returns the id of node `number`, counted from 1 in the order of planning.
    pub(crate) fn numbered(number: u32) -> Self {
        Self(number)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = ParseNodeIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `u32` also parses `+3` and `03`, which would be other spellings of the same id.
        let digits = text.strip_prefix('n').filter(|digits| !digits.starts_with(['0', '+']));
        digits.and_then(|digits| digits.parse().ok()).map(Self).ok_or_else(|| ParseNodeIdError(text.to_owned()))
    }
}

as_text!(NodeId);

/// Longest job id, in bytes.
const MAX_JOB_ID: usize = 200;

/// Id of a job at its provider.
///
/// Letters, digits, `_` and `-` only. The id comes from a server and is joined onto a URL path, so anything that could
/// lead elsewhere, such as `../models`, is refused when it is parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct JobId(String);

/// The text is not a valid job id. The error leaves the text out, since it is untrusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid job id (expected up to 200 letters, digits, `_` and `-`)")]
pub(crate) struct ParseJobIdError;

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_id = (1..=MAX_JOB_ID).contains(&text.len()) && text.bytes().all(is_part);
        if is_id { Ok(Self(text.to_owned())) } else { Err(ParseJobIdError) }
    }
}

as_text!(JobId);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The BLAKE3 hash of a file's bytes, as 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// Hashes the bytes of a file as stored.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex().to_string())
    }

    /// Wraps a stored hash without checking it: a damaged one equals no hash, so its file counts as changed.
    pub(crate) fn from_stored(hex: impl Into<String>) -> Self {
        Self(hex.into())
    }

    /// Returns the 64 hex digits, or the stored text as it was.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_id_depends_on_collection_and_path_and_not_on_where_they_meet() {
        assert_eq!(DocumentId::new("notes", "a.md"), DocumentId::new("notes", "a.md"));
        assert_ne!(DocumentId::new("notes", "a.md"), DocumentId::new("note", "sa.md"));
    }

    #[test]
    fn job_id_that_is_unsafe_in_a_url_is_refused() {
        assert_eq!("resp_06a-B".parse::<JobId>().unwrap().to_string(), "resp_06a-B");
        for text in ["", "../models", "resp_1/cancel", "resp_1?x", "a b", "é", "resp_1\n", &"a".repeat(201)] {
            assert_eq!(text.parse::<JobId>(), Err(ParseJobIdError), "{text}");
            assert!(serde_json::from_str::<JobId>(&format!("{text:?}")).is_err());
        }
    }

    #[test]
    fn id_refuses_anything_but_sixteen_lowercase_hex_digits() {
        assert!("4f1c09a2b7de5533".parse::<ChunkId>().is_ok());
        for text in ["", "4F1C09A2B7DE5533", "4f1c09a2b7de553", "4f1c09a2b7de55330", "../../etc/passwd"] {
            assert!(text.parse::<ChunkId>().is_err(), "{text}");
        }
    }
}
