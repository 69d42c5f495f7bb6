//! Tools of the user's own servers: those that are offered, and those that the user accepts.

use serde::Serialize;

use super::doctor::Check;
use super::setup::PAGES;
use super::{Engine, EngineError};
use crate::base::line::{counted, with_causes};
use crate::source::mcp::{ListedTool, Server, ServerError, ServerSettings, ToolList, ToolState};

/// Subject of the checks.
const NAME: &str = "tool server";

/// The tools of a server that were accepted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AcceptedTools {
    pub(crate) server: String,
    pub(crate) tools: Vec<AcceptedTool>,
}

/// A tool with the description that its server gives.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AcceptedTool {
    pub(crate) name: String,
    pub(crate) description: String,
}

impl Engine {
    /// Accepts the current descriptions of the allowed tools of a server.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings have no such server, it cannot be reached, or `dr` is offline.
    pub(crate) async fn accept_tools(&self, name: &str) -> Result<AcceptedTools, EngineError> {
        let servers = self.settings.servers()?;
        let known = servers.iter().map(|server| server.name.clone()).collect();
        let Some(server) = servers.into_iter().find(|server| server.name == name) else {
            return Err(EngineError::NoServer { name: name.to_owned(), known });
        };
        if self.is_offline() {
            return Err(ServerError::Offline { name: server.name }.into());
        }
        let servers = self.settings.mcp_servers(vec![server], self.runs_folder().join(PAGES));
        // One server, in the list of its label.
        let accepted = match (servers.internal.first(), servers.public.first()) {
            (Some(server), _) => server.accept().await,
            (None, Some(server)) => server.accept().await,
            (None, None) => Ok(Vec::new()),
        };
        servers.end().await;
        // Only after the server, which is a process, has been ended.
        let accepted = accepted?.into_iter();
        let tools = accepted.map(|tool| AcceptedTool { name: tool.name, description: tool.description });
        Ok(AcceptedTools { server: name.to_owned(), tools: tools.collect() })
    }

    /// Starts each server and lists its tools. Offline, none is started.
    pub(super) async fn servers_checks(&self) -> Vec<Check> {
        if self.is_offline() {
            return Vec::new();
        }
        let settings = match self.settings.servers() {
            Ok(settings) => settings,
            Err(error) => return vec![Check::trouble(NAME, with_causes(&error), error.hint())],
        };
        let servers = self.settings.mcp_servers(settings, self.runs_folder().join(PAGES));
        let mut checks = Vec::new();
        for server in &servers.internal {
            checks.extend(checks_of(server).await);
        }
        for server in &servers.public {
            checks.extend(checks_of(server).await);
        }
        servers.end().await;
        checks
    }
}

async fn checks_of<Q: ?Sized>(server: &Server<Q>) -> Vec<Check> {
    let ServerSettings { name, label, tools: allowed, .. } = server.settings();
    let ToolList { tools: listed, note } = match server.tools().await {
        Ok(list) => list,
        Err(error) => {
            let mend = format!("check `[mcp.{name}]`; it is at `{}`", server.settings().place());
            return vec![Check::trouble(NAME, with_causes(&error), mend)];
        }
    };
    let names = |is_one: &dyn Fn(&ToolState) -> bool| {
        let named = listed.iter().filter(|listed| is_one(&listed.state));
        named.map(|ListedTool { tool, .. }| format!("`{}`", tool.bare_name())).collect::<Vec<_>>()
    };
    let offered = names(&|state| matches!(state, ToolState::Offered | ToolState::New));
    let (word, offers) = (label.word(), counted(offered.len(), "tool"));
    let said = format!("`{name}` ({word}) at {} offers {offers}: {}", server.settings().place(), offered.join(", "));
    let mut checks = vec![Check::ok(NAME, said.trim_end_matches(": ").to_owned())];
    checks.extend(note.map(|note| Check::note(NAME, note, None)));
    let other = names(&|state| *state == ToolState::NotAllowed);
    if !other.is_empty() {
        let mend = format!("name a tool in `tools` of `[mcp.{name}]` if workers may call it");
        checks.push(Check::note(NAME, format!("not allowed of `{name}`: {}", other.join(", ")), Some(mend)));
    }
    for allowed in allowed {
        let full = format!("{name}.{allowed}");
        match listed.iter().find(|listed| listed.tool.name == full) {
            None => checks.push(Check::note(NAME, format!("`{name}` has no tool `{allowed}`"), None)),
            Some(ListedTool { state, .. }) => {
                let refusal = state.refusal(name);
                checks.extend(refusal.map(|why| Check::note(NAME, format!("`{full}` is refused: {why}"), None)));
            }
        }
    }
    checks
}
