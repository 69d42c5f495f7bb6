//! Tools of the user's own servers: those that are offered, and those that the user accepts.

use futures::future::{join, join_all};
use serde::Serialize;

use super::doctor::Check;
use super::setup::PAGES;
use super::{Engine, EngineError};
use crate::base::line::counted;
use crate::source::mcp::{ListedTool, SaidTool, Server, ServerError, ServerSettings, ToolChange, ToolList, ToolState};

/// Subject of the checks.
const NAME: &str = "tool server";

#[derive(Clone, Debug, Serialize)]
pub(crate) struct AcceptedTools {
    pub(crate) server: String,
    pub(crate) tools: Vec<AcceptedTool>,
}

/// A tool as its server describes it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AcceptedTool {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) said: SaidTool,
    /// The part that has changed since the tool was accepted, if one has.
    pub(crate) changed: Option<&'static str>,
    /// The tool as it was accepted before, if it has changed and that is on record.
    pub(crate) before: Option<SaidTool>,
}

impl Engine {
    /// Accepts the allowed tools of a server as they are described now, if the user agrees. `consent` is given them
    /// before. Returns `None` if it is refused.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings have no such server, it cannot be reached, or `dr` is offline.
    pub(crate) async fn accept_tools(
        &self,
        name: &str,
        consent: impl AsyncFnOnce(&AcceptedTools) -> bool,
    ) -> Result<Option<AcceptedTools>, EngineError> {
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
            (Some(server), _) => accepted(server, consent).await,
            (None, Some(server)) => accepted(server, consent).await,
            (None, None) => Err(EngineError::NoServer { name: name.to_owned(), known: Vec::new() }),
        };
        servers.end().await;
        // Only after the server, which is a process, has been ended.
        accepted
    }

    /// Starts each server and lists its tools. Offline, starts no server.
    pub(super) async fn servers_checks(&self) -> Vec<Check> {
        if self.is_offline() {
            return Vec::new();
        }
        let settings = match self.settings.servers() {
            Ok(settings) => settings,
            Err(error) => return vec![Check::failed(NAME, &error, error.hint())],
        };
        let servers = self.settings.mcp_servers(settings, self.runs_folder().join(PAGES));
        let internal = join_all(servers.internal.iter().map(|server| checks_of(server)));
        let public = join_all(servers.public.iter().map(|server| checks_of(server)));
        let (internal, public) = join(internal, public).await;
        servers.end().await;
        internal.into_iter().chain(public).flatten().collect()
    }
}

async fn accepted<Q: ?Sized>(
    server: &Server<Q>,
    consent: impl AsyncFnOnce(&AcceptedTools) -> bool,
) -> Result<Option<AcceptedTools>, EngineError> {
    let listed = server.tools().await?.tools.into_iter().filter(|listed| listed.state.can_be_accepted());
    let tool = |ListedTool { tool, state }| {
        let (before, changed) = match state {
            ToolState::Changed(ToolChange { before, part }) => (before, Some(part)),
            _ => (None, None),
        };
        let said = SaidTool { description: tool.description, schema: tool.schema };
        AcceptedTool { name: tool.name, said, changed, before }
    };
    let tools = AcceptedTools { server: server.settings().name.clone(), tools: listed.map(tool).collect() };
    if !consent(&tools).await {
        return Ok(None);
    }
    server.accept().await?;
    Ok(Some(tools))
}

async fn checks_of<Q: ?Sized>(server: &Server<Q>) -> Vec<Check> {
    let ServerSettings { name, label, tools: allowed, .. } = server.settings();
    let ToolList { tools: listed, note } = match server.tools().await {
        Ok(list) => list,
        Err(error) => {
            let mend = format!("check `[mcp.{name}]`; it is at `{}`", server.settings().place());
            return vec![Check::failed(NAME, &error, mend)];
        }
    };
    let names = |is_one: &dyn Fn(&ToolState) -> bool| {
        let named = listed.iter().filter(|listed| is_one(&listed.state));
        named.map(|ListedTool { tool, .. }| format!("`{}`", tool.bare_name())).collect::<Vec<_>>()
    };
    let offered = names(&|state| matches!(state, ToolState::Offered | ToolState::New));
    let offers = counted(offered.len(), "tool");
    let said = format!("`{name}` ({label}) at {} offers {offers}: {}", server.settings().place(), offered.join(", "));
    let mut checks = vec![Check::ok(NAME, said.trim_end_matches(": ").to_owned())];
    checks.extend(note.map(|note| Check::note(NAME, note)));
    let other = names(&|state| *state == ToolState::NotAllowed);
    if !other.is_empty() {
        let mend = format!("name a tool in `tools` of `[mcp.{name}]` if workers may call it");
        checks.push(Check::note(NAME, format!("not allowed of `{name}`: {}", other.join(", "))).mend(mend));
    }
    for allowed in allowed {
        let full = format!("{name}.{allowed}");
        match listed.iter().find(|listed| listed.tool.name == full) {
            None => checks.push(Check::note(NAME, format!("`{name}` has no tool `{allowed}`"))),
            Some(ListedTool { state, .. }) => {
                let refusal = state.refusal(name);
                checks.extend(refusal.map(|why| Check::note(NAME, format!("`{full}` is refused: {why}"))));
            }
        }
    }
    checks
}
