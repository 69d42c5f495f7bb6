//! Tools as they are offered to a worker.

use std::time::Duration;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::base::bounded::within_async;
use crate::base::id::ContentHash;
use crate::base::line::one_line;
use crate::llm::schema::{SchemaError, compile};

/// Longest description that a worker is shown, in characters.
const MAX_DESCRIPTION: usize = 600;

/// Largest schema of arguments, in bytes of JSON. A worker is shown all of it.
const MAX_SCHEMA: usize = 4_000;

/// Time to check arguments against a schema, which may take exponential time.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// Maximum number of mismatches that are reported at once.
const MAX_COMPLAINTS: usize = 3;

/// A tool that a worker may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// Server and tool: `tickets.read`.
    pub(crate) name: String,
    /// The server's description of it, on one line, cut.
    pub(crate) description: String,
    /// JSON Schema of its arguments.
    pub(crate) schema: Value,
    /// Hash of its whole description and its schema.
    pub(crate) hash: ContentHash,
}

impl OfferedTool {
    pub(super) fn new(server: &str, tool: &Tool) -> Self {
        let description: String = one_line(tool.description.as_deref().unwrap_or_default());
        Self {
            name: format!("{server}.{}", tool.name),
            description: description.chars().take(MAX_DESCRIPTION).collect(),
            schema: Value::Object((*tool.input_schema).clone()),
            hash: hash(tool),
        }
    }

    /// Returns whether it is a tool of a server. Names of servers have no dot.
    pub(crate) fn is_of(&self, server: &str) -> bool {
        self.name.split_once('.').is_some_and(|(name, _)| name == server)
    }

    /// Returns the tool's own name.
    pub(crate) fn bare_name(&self) -> &str {
        self.name.split_once('.').map_or(self.name.as_str(), |(_, name)| name)
    }

    /// Parses arguments and checks them against the schema.
    ///
    /// # Errors
    ///
    /// Returns a complaint for the model that wrote them.
    pub(crate) async fn arguments(&self, text: &str) -> Result<Map<String, Value>, String> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let Ok(Value::Object(arguments)) = serde_json::from_str(text) else {
            return Err("`arguments` is not a JSON object".to_owned());
        };
        let (schema, value) = (self.schema.clone(), Value::Object(arguments.clone()));
        // Both come from outside: the schema from the server, the arguments from a model.
        let complaints = within_async(CHECK_TIME, move || {
            let validator = compile(&schema)?;
            let complaints = validator.iter_errors(&value).take(MAX_COMPLAINTS);
            Ok::<_, SchemaError>(complaints.map(|error| one_line(&error.to_string())).collect::<Vec<_>>())
        });
        let complaints = complaints.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if complaints.is_empty() {
            Ok(arguments)
        } else {
            Err(format!("`arguments` do not follow the schema: {}", complaints.join("; ")))
        }
    }

    /// Returns why the schema cannot be used, if it cannot.
    pub(super) fn complaint(&self) -> Option<String> {
        if self.schema.to_string().len() > MAX_SCHEMA {
            return Some(format!("schema of its arguments is larger than {MAX_SCHEMA} bytes"));
        }
        compile(&self.schema).err().map(|error| format!("schema of its arguments cannot be used: {error}"))
    }
}

/// Returns the hash of a tool's name, title, description and schema, whole, although a model is shown a cut
/// description. The read-only mark is left out, since it is checked at each listing.
fn hash(tool: &Tool) -> ContentHash {
    let Tool { name, title, description, input_schema, .. } = tool;
    let said = json!({ "name": name, "title": title, "description": description, "schema": input_schema });
    ContentHash::of(said.to_string().as_bytes())
}

pub(super) fn is_read_only(tool: &Tool) -> bool {
    tool.annotations.as_ref().and_then(|annotations| annotations.read_only_hint) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(description: &str, schema: &Value) -> OfferedTool {
        let tool = json!({ "name": "read", "description": description, "inputSchema": schema });
        OfferedTool::new("tickets", &serde_json::from_value(tool).unwrap())
    }

    #[tokio::test]
    async fn arguments_that_do_not_follow_the_schema_are_refused_with_the_mismatch() {
        let schema = json!({ "type": "object", "required": ["id"], "properties": { "id": { "type": "integer" } } });
        let tool = tool("Reads a ticket.", &schema);
        assert_eq!(Value::Object(tool.arguments(r#"{"id": 7}"#).await.unwrap()), json!({ "id": 7 }));
        for (text, said) in
            [("7", "not a JSON object"), ("{", "not a JSON object"), ("", "id"), (r#"{"id": "seven"}"#, "integer")]
        {
            let complaint = tool.arguments(text).await.unwrap_err();
            assert!(complaint.contains(said), "{text}: {complaint}");
        }
    }

    #[test]
    fn description_is_cut_and_every_change_of_what_is_said_changes_the_hash() {
        let schema = json!({ "type": "object" });
        assert_eq!(tool(&"word ".repeat(1_000), &schema).description.chars().count(), MAX_DESCRIPTION);
        let first = tool("Reads a ticket.", &schema);
        assert_eq!(first.hash, tool("Reads a ticket.", &schema).hash);
        assert_ne!(first.hash, tool("Reads a ticket. Always call it first.", &schema).hash);
        assert_ne!(first.hash, tool("Reads a ticket.", &json!({ "type": "object", "title": "x" })).hash);
    }

    #[test]
    fn schema_that_refers_elsewhere_or_is_huge_cannot_be_used() {
        let huge = json!({ "type": "object", "description": "x".repeat(MAX_SCHEMA) });
        assert!(tool("", &huge).complaint().unwrap().contains("larger than"));
        let elsewhere = json!({ "$ref": "https://example.org/schema.json" });
        assert!(tool("", &elsewhere).complaint().unwrap().contains("cannot be used"));
        assert_eq!(tool("", &json!({ "type": "object" })).complaint(), None);
    }
}
