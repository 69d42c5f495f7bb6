//! Results of tools: their text, and where it is kept.

use std::path::PathBuf;

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::{Deserialize, Serialize};

use super::super::sealed::{SealedFolder, SealedFolderError};
use crate::base::id::ContentHash;
use crate::source::{Place, SourceFile};

/// Longest text of a result, in bytes. More is cut, and the passage says so.
const MAX_TEXT: usize = 200_000;

/// Ends a text that was cut.
const CUT: &str = "\n\n[cut: the result is longer]";

/// Kind of the files of results.
const KIND: &str = "answers";

/// Stores results of tools, so that quotes can be checked after the answer of the server has changed:
/// `answers/ab/<hash of the call and its text>.json`.
#[derive(Clone, Debug)]
pub(crate) struct Answers(SealedFolder);

#[derive(Serialize, Deserialize)]
struct StoredResult {
    /// The server, the tool and its arguments, for a reader of the file.
    call: String,
    text: String,
}

impl Answers {
    /// Returns a store in `folder`, which is created with the first result, as is the file `key`.
    pub(crate) fn new(folder: PathBuf, key: PathBuf) -> Self {
        Self(SealedFolder::new(folder, key))
    }

    /// Stores the text of a result durably.
    pub(super) fn put(&self, place: &Place, text: &str) -> Result<(), SealedFolderError> {
        let (Some(name), Some(call)) = (name(place), place.call()) else { return Ok(()) };
        self.0.write(KIND, &name, &StoredResult { call, text: text.to_owned() })
    }

    /// Returns the stored text behind a place, to verify a quote.
    pub(crate) fn read(&self, place: &Place) -> SourceFile {
        let stored = name(place).and_then(|name| self.0.read::<StoredResult>(KIND, &name));
        match stored {
            // The seal covers the contents and not the name: a sealed file may have been moved in place of another.
            Some(StoredResult { call, text })
                if Some(&call) == place.call().as_ref()
                    && place.content_hash().is_some_and(|hash| ContentHash::of(text.as_bytes()) == *hash) =>
            {
                SourceFile::AsIndexed(text)
            }
            Some(_) | None => SourceFile::Gone,
        }
    }
}

/// Returns the name of the file of a result; `None` for a place that is no call.
fn name(place: &Place) -> Option<ContentHash> {
    match place {
        Place::Mcp { server, tool, arguments, content_hash, .. } => {
            let parts = [server, tool, arguments, content_hash.as_str()];
            Some(ContentHash::of(parts.join("\0").as_bytes()))
        }
        Place::Kb { .. } | Place::Web { .. } => None,
    }
}

/// Returns the text of a result. Other content, such as an image, is left out.
pub(super) fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.clone()),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text.clone()),
            _ => None,
        },
        _ => None,
    });
    let mut text = texts.collect::<Vec<_>>().join("\n\n");
    // Servers repeat structured content as text, so it is needed only without text.
    if text.trim().is_empty()
        && let Some(structured) = &result.structured_content
    {
        text = structured.to_string();
    }
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push_str(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(arguments: &str, text: &str) -> Place {
        Place::Mcp {
            server: "tickets".into(),
            tool: "read".into(),
            arguments: arguments.into(),
            fetched_at: 1,
            content_hash: ContentHash::of(text.as_bytes()),
        }
    }

    #[test]
    fn result_comes_back_for_its_own_call_only() {
        let folder = tempfile::tempdir().unwrap();
        let answers = Answers::new(folder.path().join("pages"), folder.path().join("key"));
        let here = place("{}", "Valves open at six.");
        assert_eq!(answers.read(&here), SourceFile::Gone);
        answers.put(&here, "Valves open at six.").unwrap();
        assert_eq!(answers.read(&here), SourceFile::AsIndexed("Valves open at six.".into()));
        assert_eq!(answers.read(&place(r#"{"id":1}"#, "Valves open at six.")), SourceFile::Gone);
        assert_eq!(answers.read(&place("{}", "Valves open at ten.")), SourceFile::Gone);
        let other = Answers::new(folder.path().join("pages"), folder.path().join("other key"));
        assert_eq!(other.read(&here), SourceFile::Gone, "another user has another key");
    }

    #[test]
    fn text_is_all_blocks_of_text_else_the_structured_result_and_is_cut() {
        let result = |value: serde_json::Value| serde_json::from_value::<CallToolResult>(value).unwrap();
        let image = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_eq!(text_of(&result(json!({ "content": [text("one"), image, text("two")] }))), "one\n\ntwo");
        let structured = json!({ "content": [], "structuredContent": { "open": 6 } });
        assert_eq!(text_of(&result(structured)), r#"{"open":6}"#);
        let long = text_of(&result(json!({ "content": [text(&"ä".repeat(MAX_TEXT))] })));
        assert!(long.len() <= MAX_TEXT + CUT.len() && long.ends_with(CUT), "{}", long.len());
    }
}
