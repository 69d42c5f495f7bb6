//! Tools of the user's own servers, over the Model Context Protocol.
//!
//! ```text
//! [mcp.NAME] ─▶ ServerSettings ─▶ Server ──tools──▶ OfferedTool   allowed, read-only, described as when it was accepted
//!                                   │
//!                                   └──call──▶ Passage            its text is kept, sealed, so that quotes can be checked
//! ```
//!
//! A server is started with the first listing or call, and ended with its run. Its messages are data: descriptions and
//! results are limited in size and shown to a model as such, and arguments are checked against the tool's schema before
//! they are sent.
//!
//! The label of a server decides the type of its arguments: any text for an internal server, [`Outbound`] for a public
//! one:
//!
//! ```compile_fail,E0308
//! fn leak(server: &dyn dr::source::Source<dr::base::outbound::Outbound>) {
//!     drop(server.call("tickets.read", "Ferreira"));
//! }
//! ```

mod settings;
mod tool;
mod known;
mod answer;
mod connection;
mod server;

use std::sync::Arc;

use futures::future::{join, join_all};

pub(crate) use self::answer::Answers;
pub(crate) use self::connection::kill_programs;
pub(crate) use self::known::{KnownTools, SaidTool, ToolChange, ToolState};
pub(crate) use self::server::{ListedTool, Server, ServerError, ToolList};
pub(crate) use self::settings::{McpOptions, McpSettingsError, ServerNote, ServerSettings};
pub(crate) use self::tool::OfferedTool;
use crate::base::clock::Clock;
use crate::base::outbound::Outbound;
use crate::source::Label;

/// The servers of a run, by their label.
#[derive(Clone, Default)]
pub struct McpServers {
    /// Called by workers inside.
    pub(crate) internal: Vec<Arc<Server<str>>>,
    /// Called by workers that face outward.
    pub(crate) public: Vec<Arc<Server<Outbound>>>,
}

impl McpServers {
    /// Sets up servers, without starting them.
    pub(crate) fn new(
        settings: Vec<ServerSettings>,
        known: &KnownTools,
        answers: &Answers,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let mut servers = Self::default();
        for settings in settings {
            let (known, answers, clock) = (known.clone(), answers.clone(), Arc::clone(clock));
            match settings.label {
                Label::Internal => servers.internal.push(Arc::new(Server::new(settings, known, answers, clock))),
                Label::Public => servers.public.push(Arc::new(Server::new(settings, known, answers, clock))),
            }
        }
        servers
    }

    /// Ends every server that was started, all at once.
    pub(crate) async fn end(&self) {
        let internal = join_all(self.internal.iter().map(|server| server.end()));
        let public = join_all(self.public.iter().map(|server| server.end()));
        join(internal, public).await;
    }

    /// Returns the notes on them that a run records.
    pub(crate) fn notes(&self) -> Vec<ServerNote> {
        let internal = self.internal.iter().map(|server| server.settings().note());
        internal.chain(self.public.iter().map(|server| server.settings().note())).collect()
    }
}
