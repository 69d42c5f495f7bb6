//! The sources of a run and of each node.

use std::sync::Arc;

use super::background::Finished;
use super::node_source::{Inside, Outside, WebPages};
use super::outward::UserWords;
use super::ranker::HitRanker;
use super::reader::PageReader;
use super::servers::{NodeServers, RunServers};
use super::shared::Shared;
use crate::base::outbound::Outbound;
use crate::research::node::NodeId;
pub use crate::source::mcp::McpServers;
use crate::source::web::WebAccess;
use crate::source::{Source, SourceError};

#[derive(Clone)]
pub struct Sources {
    /// The knowledge base.
    pub internal: Arc<dyn Source>,
    /// The web, if anything outside may be asked.
    pub web: Option<WebAccess>,
    /// Whether `dr` is offline, which is then the reason for not searching the web.
    pub is_offline: bool,
    /// The user's own servers. A run without models calls none.
    pub servers: McpServers,
}

#[derive(Clone)]
pub(crate) struct RunSources {
    pub(crate) sources: Sources,
    /// State shared by all nodes.
    pub(crate) shared: Shared,
    /// See [`crate::run::event::RunSettings::source_version`].
    pub(crate) internal_version: String,
    pub(crate) reading: PageReader,
    /// Orders the hits of workers inside.
    pub(crate) ranker: Option<HitRanker>,
    /// The day the run began. Results from the web are reused on that day only.
    pub(crate) day: String,
    /// Servers for workers inside.
    pub(crate) internal_servers: Option<Arc<RunServers<str>>>,
    /// Servers for workers that face outward.
    pub(crate) public_servers: Option<Arc<RunServers<Outbound>>>,
}

impl RunSources {
    pub(crate) fn can_search(&self) -> bool {
        self.sources.web.as_ref().is_some_and(|web| web.can_search)
    }

    /// Returns whether a worker can look outside: with a search engine, or with the tools of public servers.
    pub(crate) fn has_outside(&self) -> bool {
        self.can_search() || self.sources.web.is_some() && self.public_servers.is_some()
    }

    /// Returns the knowledge base for a node.
    pub(crate) fn inside(&self, node: &NodeId) -> Inside {
        let Shared { cache, egress, .. } = self.shared.clone();
        let source = Arc::clone(&self.sources.internal);
        let version = self.internal_version.clone();
        // Tools of servers and ordered hits are for workers only, see `inside_for_worker`.
        Inside { source, cache, egress, node: node.clone(), version, servers: None, ranker: None }
    }

    /// Returns the knowledge base for the worker of a node, with the tools of internal servers and ordered hits.
    pub(crate) async fn inside_for_worker(&self, node: &NodeId) -> Result<Inside, SourceError> {
        let servers = match &self.internal_servers {
            Some(servers) => Some(servers.of_node(node).await?),
            None => None,
        };
        Ok(Inside { servers, ranker: self.ranker.clone(), ..self.inside(node) })
    }

    /// Returns the tools of public servers, for the worker of a node.
    pub(crate) async fn public_tools(&self, node: &NodeId) -> Result<Option<NodeServers<Outbound>>, SourceError> {
        match &self.public_servers {
            Some(servers) => servers.of_node(node).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the web for a node, if a worker can look outside; long pages are read for `question`.
    pub(crate) fn outside(&self, node: &NodeId, question: &Outbound, words: &UserWords) -> Option<Outside> {
        let WebAccess { source, can_search } = self.sources.web.clone().filter(|_| self.has_outside())?;
        let mut outside = Outside::new(source, &self.shared, node.clone(), self.day.clone());
        // Pages that the user named can be opened without an engine, and tools of servers called.
        outside.can_search = can_search;
        Some(outside.read_for(self.reading.clone(), question.clone()).naming(words.all()))
    }

    /// Returns the pages a job cites, for a node.
    pub(crate) fn cited(&self, node: &NodeId, job: &Finished) -> Option<WebPages> {
        let web = self.sources.web.clone()?.source;
        Some(WebPages::cited(web, &self.shared, node.clone(), self.day.clone(), job))
    }
}
