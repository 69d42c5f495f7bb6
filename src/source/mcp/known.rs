//! The tools of each server that the user has accepted: their descriptions and schemas.
//!
//! A server may change the description of a tool after the user has allowed it, and so instruct a model. The first
//! use of a tool accepts its description; later changes need `dr trust --mcp NAME`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool::OfferedTool;

use crate::base::folder::{create_private, write_private};
use crate::base::id::ContentHash;

/// Folder of the records in the user's data folder.
const FOLDER: &str = "mcp";

/// Records in the user's data folder, a file for each server.
#[derive(Clone, Debug)]
pub(crate) struct KnownTools {
    folder: PathBuf,
}

/// A record, by the name of the tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ToolRecord {
    tools: BTreeMap<String, ToolEntry>,
}

/// A tool as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum ToolEntry {
    /// As earlier versions recorded it.
    Hash(ContentHash),
    Said {
        hash: ContentHash,
        #[serde(flatten)]
        said: SaidTool,
    },
}

/// What workers are shown of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SaidTool {
    pub(crate) description: String,
    pub(crate) schema: Value,
}

/// How a tool differs from the accepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolChange {
    /// The accepted one, if it is on record.
    pub(crate) before: Option<SaidTool>,
    pub(crate) part: &'static str,
}

/// Whether a tool is offered to workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolState {
    /// Workers may call it.
    Offered,
    /// Not used yet. The first use accepts its description.
    New,
    /// The settings do not allow it.
    NotAllowed,
    /// The server does not mark it as read-only.
    NotReadOnly,
    /// It is not described as when it was accepted, or the record cannot be read.
    Changed(ToolChange),
    /// Its schema or its name cannot be used.
    Unusable { why: String },
}

impl ToolState {
    /// Returns why the tool is not offered, for people; `None` if it is.
    pub(crate) fn refusal(&self, server: &str) -> Option<String> {
        match self {
            Self::Offered | Self::New => None,
            Self::NotAllowed => Some("not in `tools`".to_owned()),
            Self::NotReadOnly => Some("not marked read-only by its server".to_owned()),
            Self::Changed(ToolChange { part, .. }) => {
                Some(format!("its {part} has changed; `dr trust --mcp {server}` accepts it"))
            }
            Self::Unusable { why } => Some(why.clone()),
        }
    }

    /// Returns whether the user can accept the tool.
    pub(crate) fn can_be_accepted(&self) -> bool {
        match self {
            Self::Offered | Self::New | Self::Changed(_) => true,
            Self::NotAllowed | Self::NotReadOnly | Self::Unusable { .. } => false,
        }
    }
}

/// The record of a server cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{path}`")]
pub struct KnownToolsError {
    action: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

impl KnownTools {
    /// Returns the records in the user's data folder, which is created with the first one.
    pub(crate) fn new(data: &Path) -> Self {
        Self { folder: data.join(FOLDER) }
    }

    /// Compares a tool of a server with its record.
    pub(super) fn compare(&self, server: &str, tool: &OfferedTool) -> ToolState {
        // Not `New` if the record cannot be read, which the first use would accept: the user decides.
        let unknown = ToolState::Changed(ToolChange { before: None, part: "description or schema" });
        let Ok(mut record) = self.read(server) else { return unknown };
        match record.tools.remove(tool.bare_name()) {
            None => ToolState::New,
            Some(ToolEntry::Hash(hash) | ToolEntry::Said { hash, .. }) if hash == tool.hash => ToolState::Offered,
            Some(ToolEntry::Hash(_)) => unknown,
            Some(ToolEntry::Said { said, .. }) => {
                let part = match (said.description == tool.description, said.schema == tool.schema) {
                    (false, false) => "description and schema",
                    (true, false) => "schema",
                    (false, true) => "description",
                    // In the title, in the order of the schema, or in a part that workers are not shown.
                    (true, true) => "description or schema",
                };
                ToolState::Changed(ToolChange { before: Some(said), part })
            }
        }
    }

    /// Accepts tools of a server as they are. A record that cannot be read is replaced.
    pub(super) fn accept(&self, server: &str, tools: &[&OfferedTool]) -> Result<(), KnownToolsError> {
        let mut record = self.read(server).unwrap_or_default();
        let entry = |tool: &OfferedTool| {
            let said = SaidTool { description: tool.description.clone(), schema: tool.schema.clone() };
            ToolEntry::Said { hash: tool.hash.clone(), said }
        };
        record.tools.extend(tools.iter().map(|tool| (tool.bare_name().to_owned(), entry(tool))));
        let path = self.path(server);
        let write = || {
            create_private(&self.folder)?;
            write_private(&path, &serde_json::to_vec(&record)?)
        };
        write().map_err(|source| KnownToolsError { action: "write", path: path.clone(), source })
    }

    fn read(&self, server: &str) -> Result<ToolRecord, KnownToolsError> {
        let path = self.path(server);
        let failed = |source| KnownToolsError { action: "read", path: path.clone(), source };
        match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(ToolRecord::default()),
            read => serde_json::from_slice(&read.map_err(failed)?).map_err(|error| failed(error.into())),
        }
    }

    /// Returns the path of a record. Names of servers are checked: see `ServerSettings::resolve`.
    fn path(&self, server: &str) -> PathBuf {
        self.folder.join(format!("{server}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, description: &str, schema: &Value) -> OfferedTool {
        let tool = json!({ "name": name, "description": description, "inputSchema": schema });
        OfferedTool::new("tickets", &serde_json::from_value(tool).unwrap())
    }

    fn changed(known: &KnownTools, tool: &OfferedTool) -> &'static str {
        match known.compare("tickets", tool) {
            ToolState::Changed(ToolChange { part, .. }) => part,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tool_is_known_as_it_was_accepted_and_changed_until_it_is_accepted_again() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownTools::new(folder.path());
        let (schema, wider) = (json!({ "type": "object" }), json!({ "type": "object", "title": "x" }));
        let (one, other) = (tool("read", "Reads.", &schema), tool("read", "Reads all.", &schema));
        assert_eq!(known.compare("tickets", &one), ToolState::New);
        known.accept("tickets", &[&one]).unwrap();
        assert_eq!(known.compare("tickets", &one), ToolState::Offered);
        assert_eq!(known.compare("tickets", &tool("find", "Finds.", &schema)), ToolState::New);
        let before = Some(SaidTool { description: "Reads.".to_owned(), schema: schema.clone() });
        assert_eq!(known.compare("tickets", &other), ToolState::Changed(ToolChange { before, part: "description" }));
        assert_eq!(changed(&known, &tool("read", "Reads.", &wider)), "schema");
        assert_eq!(changed(&known, &tool("read", "Reads all.", &wider)), "description and schema");
        assert_eq!(known.compare("wiki", &other), ToolState::New, "each server has its own record");
        known.accept("tickets", &[&other]).unwrap();
        assert_eq!(known.compare("tickets", &other), ToolState::Offered);
    }

    #[test]
    fn record_of_hashes_alone_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownTools::new(folder.path());
        let one = tool("read", "Reads.", &json!({}));
        std::fs::create_dir(folder.path().join(FOLDER)).unwrap();
        let record = json!({ "tools": { "read": one.hash } }).to_string();
        std::fs::write(folder.path().join("mcp/tickets.json"), record).unwrap();
        assert_eq!(known.compare("tickets", &one), ToolState::Offered);
        assert_eq!(changed(&known, &tool("read", "Reads all.", &json!({}))), "description or schema");
    }

    #[test]
    fn record_that_cannot_be_read_accepts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownTools::new(folder.path());
        let one = tool("read", "Reads.", &json!({}));
        known.accept("tickets", &[&one]).unwrap();
        std::fs::write(folder.path().join("mcp/tickets.json"), "{").unwrap();
        assert_eq!(changed(&known, &one), "description or schema");
    }
}
