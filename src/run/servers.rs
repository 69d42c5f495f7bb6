//! Tools of the user's own servers, as the workers of a run call them.
//!
//! The tools that a run offers are on record, so that its prompts stay the same when it is resumed, even if the server
//! has changed. A call on record is not made again on the day the run began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::egress::{Egress, OutgoingText};
use super::journal::{EgressKind, Lookup, LookupTerms, LookupTool};
use super::shared::Shared;
use crate::base::breaker::Breaker;
use crate::base::line::counted;
use crate::base::outbound::Outbound;
use crate::research::node::NodeId;
use crate::source::mcp::{ListedTool, Server, ToolList};
use crate::source::{OfferedTool, Passage, Place, SourceError, SourceFile};
use crate::traces::attach;

/// Maximum number of tools that a worker is offered. Their descriptions are in each of its prompts.
const MAX_OFFERED: usize = 30;

/// How often a call is made again because the stored copy of its result is missing.
const MAX_AGAIN: usize = 3;

pub(crate) struct RunServers<Q: ?Sized> {
    servers: Vec<RunServer<Q>>,
    shared: Shared,
    /// The day the run began.
    day: String,
    listing: OnceCell<Arc<ToolListing>>,
}

struct RunServer<Q: ?Sized> {
    server: Arc<Server<Q>>,
    breaker: Breaker,
    calls: AtomicU32,
}

/// The tools that a run offers, as it is recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ToolListing {
    tools: Vec<OfferedTool>,
    /// Why servers or tools are not offered.
    notes: Vec<String>,
}

pub(crate) struct NodeServers<Q: ?Sized> {
    of_run: Arc<RunServers<Q>>,
    listing: Arc<ToolListing>,
    node: NodeId,
}

/// Arguments that a run may send.
pub(crate) trait Arguments: AsRef<str> + Send + Sync {
    /// Checks and records the arguments before they leave, if they do.
    fn release(
        &self,
        egress: &Egress,
        node: &NodeId,
        target: &str,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;
}

impl Arguments for str {
    /// Internal text goes to internal servers only, which is no egress.
    async fn release(&self, _: &Egress, _: &NodeId, _: &str) -> Result<(), SourceError> {
        Ok(())
    }
}

impl Arguments for Outbound {
    async fn release(&self, egress: &Egress, node: &NodeId, target: &str) -> Result<(), SourceError> {
        egress.release(node, target, OutgoingText::all(EgressKind::Call, self)).await
    }
}

impl<Q: ?Sized + Arguments> RunServers<Q> {
    /// Returns the servers of a run; `None` if there are none.
    pub(crate) fn new(servers: &[Arc<Server<Q>>], shared: &Shared, day: &str) -> Option<Arc<Self>> {
        let of = |server: &Arc<Server<Q>>| RunServer {
            breaker: Breaker::of_run(format!("source `{}`", server.source_name())),
            server: Arc::clone(server),
            calls: AtomicU32::new(0),
        };
        let servers: Vec<_> = servers.iter().map(of).collect();
        let (shared, day) = (shared.clone(), day.to_owned());
        // `None` rather than an empty set: a run without servers has no way out through them.
        (!servers.is_empty()).then(|| Arc::new(Self { servers, shared, day, listing: OnceCell::new() }))
    }

    /// Returns the servers for a node. The first node starts them to list their tools, unless the list is on record.
    ///
    /// # Errors
    ///
    /// Returns an error if the run must stop. A server that fails is left out, with a note.
    pub(crate) async fn of_node(self: &Arc<Self>, node: &NodeId) -> Result<NodeServers<Q>, SourceError> {
        let listing = self.listing.get_or_try_init(|| async { self.list().await.map(Arc::new) }).await?;
        Ok(NodeServers { of_run: Arc::clone(self), listing: Arc::clone(listing), node: node.clone() })
    }

    async fn list(&self) -> Result<ToolListing, SourceError> {
        // Together: the first node waits for the slowest server, and not for all of them.
        let listings = try_join_all(self.servers.iter().map(|server| Box::pin(self.listing_on_record(server)))).await?;
        let mut all = ToolListing::default();
        for ToolListing { tools, notes } in listings {
            all.tools.extend(tools);
            all.notes.extend(notes);
        }
        if all.tools.len() > MAX_OFFERED {
            all.notes.push(format!("of {} only {MAX_OFFERED} are offered", counted(all.tools.len(), "tool")));
            all.tools.truncate(MAX_OFFERED);
        }
        Ok(all)
    }

    /// Returns the tools of one server as they are on record, else as it lists them now.
    async fn listing_on_record(
        &self,
        RunServer { server, calls, .. }: &RunServer<Q>,
    ) -> Result<ToolListing, SourceError> {
        let Shared { cache, wait_limit, .. } = &self.shared;
        let scope = server.source_name();
        let made = cache.made(LookupTool::McpCall, &scope).await?;
        // Calls of earlier processes count against the limit of the run, as far as they had a result: others are not on
        // record.
        calls.store(u32::try_from(made).unwrap_or(u32::MAX), Ordering::Relaxed);
        let lookup = Lookup {
            // The list is that of the run, so it is filed under the root and not under the node that comes first.
            node: NodeId::numbered(1),
            tool: LookupTool::McpTools,
            query: server.settings().name.clone(),
            scope,
            label: server.settings().label,
            version: String::new(),
            // A later run must see the tools that the server offers then.
            terms: LookupTerms { is_of_run: true, ..LookupTerms::default() },
        };
        Box::pin(cache.answer(lookup, wait_limit.wait(Box::pin(listing_of(server))))).await
    }
}

/// Lists the tools of a server. A failure is a result, too: otherwise a resumed run would offer other tools.
async fn listing_of<Q: ?Sized>(server: &Server<Q>) -> Result<ToolListing, SourceError> {
    let name = &server.settings().name;
    let ToolList { tools: listed, note } = match server.offered().await {
        Ok(list) => list,
        // A server that is down costs the run its tools and not the run.
        Err(error) => return Ok(ToolListing { tools: Vec::new(), notes: vec![format!("not asked: {error}")] }),
    };
    let mut listing = ToolListing { tools: Vec::new(), notes: note.into_iter().collect() };
    for allowed in &server.settings().tools {
        let full = format!("{name}.{allowed}");
        match listed.iter().find(|ListedTool { tool, .. }| tool.name == full) {
            None => listing.notes.push(format!("server `{name}` has no tool `{allowed}`")),
            Some(ListedTool { tool, state }) => match state.refusal(name) {
                None => listing.tools.push(tool.clone()),
                Some(why) => listing.notes.push(format!("tool `{full}` is not used: {why}")),
            },
        }
    }
    Ok(listing)
}

impl<Q: ?Sized + Arguments> NodeServers<Q> {
    /// Returns the tools that the node's worker may call.
    pub(crate) fn tools(&self) -> &[OfferedTool] {
        &self.listing.tools
    }

    /// Returns why servers or tools are not offered.
    pub(crate) fn notes(&self) -> &[String] {
        &self.listing.notes
    }

    /// Returns the stored text of a result of a server.
    pub(crate) async fn read(&self, server: &str, place: &Place) -> SourceFile {
        match self.of_run.servers.iter().find(|known| known.server.settings().name == server) {
            Some(known) => known.server.read(place).await,
            None => SourceFile::Gone,
        }
    }

    /// Calls a tool, or returns the result that is on record.
    pub(crate) async fn call(&self, tool: &str, arguments: &Q) -> Result<Passage, SourceError> {
        let refused = |reason: String| SourceError::Refused { reason };
        let offered = self.listing.tools.iter().find(|offered| offered.name == tool.trim());
        let offered = offered.ok_or_else(|| refused(format!("there is no tool `{tool}`")))?;
        let is_its = |known: &&RunServer<Q>| offered.is_of(&known.server.settings().name);
        let known = self.of_run.servers.iter().find(is_its);
        let known = known.ok_or_else(|| refused(format!("there is no server for `{tool}`")))?;
        // Parsed and serialised again, so that arguments that differ only in spacing are one call on record.
        let said = serde_json::Value::Object(offered.arguments(arguments.as_ref()).await.map_err(refused)?);
        // The offered name, which the user chose, and not the text that the model wrote.
        attach::word("name", offered.name.as_str());
        attach::text("arguments", || said.to_string());
        let RunServers { shared: Shared { cache, egress, .. }, day, .. } = &*self.of_run;
        let lookup = |attempt| Lookup {
            node: self.node.clone(),
            tool: LookupTool::McpCall,
            query: format!("{} {said}", offered.name),
            scope: known.server.source_name(),
            label: known.server.settings().label,
            // A changed server, a changed tool and another day make another call.
            version: format!("{} {}", known.server.settings().version(), offered.hash.as_str()),
            terms: LookupTerms { day: Some(day.clone()), attempt, ..LookupTerms::default() },
        };
        let answer = |lookup| Box::pin(cache.answer(lookup, Box::pin(self.ask(known, offered, arguments))));
        let mut passage: Passage = answer(lookup(0)).await?;
        for attempt in 1..=MAX_AGAIN {
            if known.server.read(&passage.place).await != SourceFile::Gone {
                break;
            }
            // The stored copy is missing, so no quote could be checked. A new call is another attempt, since the first
            // one stays on record.
            passage = answer(lookup(attempt)).await?;
        }
        egress.shown(std::slice::from_ref(&passage));
        Ok(passage)
    }

    async fn ask(&self, known: &RunServer<Q>, tool: &OfferedTool, arguments: &Q) -> Result<Passage, SourceError> {
        attach::flag("asked", true);
        let RunServer { server, breaker, calls } = known;
        let Shared { egress, wait_limit, .. } = &self.of_run.shared;
        breaker
            .ask(async {
                let most = server.settings().max_calls;
                // Counted before the call and in one step: workers in parallel share the limit.
                let is_left = |made: u32| (made < most).then_some(made + 1);
                if calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_err() {
                    let name = &server.settings().name;
                    let reason = format!("server `{name}` was called {most} times, which is the limit of a run");
                    return Err(SourceError::Refused { reason });
                }
                // Recorded only once the call is within its limit: a refused call sends nothing.
                arguments.release(egress, &self.node, &server.source_name()).await?;
                wait_limit.wait(Box::pin(server.call(tool, arguments))).await
            })
            .await
    }
}
