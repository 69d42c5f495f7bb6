//! The supported search engines.

use std::fmt;

use futures::future::BoxFuture;

use super::polite::{Contact, Pace};
use super::provider::{EngineFacts, SearchClient, SearchProvider, WebError, WebHit, WebQuery};
use super::{arxiv, brave, crossref, europe_pmc, exa, open_alex, searxng, tavily, wikipedia};
use crate::base::http::{BaseUrl, HttpError, Secret};

/// A search engine.
///
/// Each engine's file has its facts and how it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEngine {
    SearxNg,
    Tavily,
    Brave,
    Exa,
    Wikipedia,
    Arxiv,
    OpenAlex,
    Crossref,
    EuropePmc,
}

impl SearchEngine {
    /// Returns every engine, in order of preference: without a setting, the first whose variable is set is used.
    /// Engines without a variable are used only if a setting names them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::SearxNg), |engine| engine.following())
    }

    /// Returns the engine after this one. A match, so that a new engine does not compile before it has an arm here.
    fn following(self) -> Option<Self> {
        Some(match self {
            Self::SearxNg => Self::Tavily,
            Self::Tavily => Self::Brave,
            Self::Brave => Self::Exa,
            Self::Exa => Self::Wikipedia,
            Self::Wikipedia => Self::Arxiv,
            Self::Arxiv => Self::OpenAlex,
            Self::OpenAlex => Self::Crossref,
            Self::Crossref => Self::EuropePmc,
            Self::EuropePmc => return None,
        })
    }

    fn facts(self) -> &'static EngineFacts {
        match self {
            Self::SearxNg => &searxng::FACTS,
            Self::Tavily => &tavily::FACTS,
            Self::Brave => &brave::FACTS,
            Self::Exa => &exa::FACTS,
            Self::Wikipedia => &wikipedia::FACTS,
            Self::Arxiv => &arxiv::FACTS,
            Self::OpenAlex => &open_alex::FACTS,
            Self::Crossref => &crossref::FACTS,
            Self::EuropePmc => &europe_pmc::FACTS,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) fn variable(self) -> Option<&'static str> {
        self.facts().variable
    }

    pub(super) fn public_address(self) -> Option<BaseUrl> {
        self.facts().address.map(|address| address.parse().expect("the address is one"))
    }

    pub(super) fn pace(self) -> Option<&'static Pace> {
        self.facts().pace.as_ref()
    }

    /// Returns the remedy shown when it rejects a search.
    fn refusal_hint(self) -> Option<&'static str> {
        (self == Self::SearxNg).then_some(searxng::REFUSAL_HINT)
    }

    /// Sends the query once, without retries.
    async fn ask(self, client: &SearchClient, query: &WebQuery) -> Result<Vec<WebHit>, WebError> {
        match self {
            Self::SearxNg => searxng::ask(client, query).await,
            Self::Tavily => tavily::ask(client, query).await,
            Self::Brave => brave::ask(client, query).await,
            Self::Exa => exa::ask(client, query).await,
            Self::Wikipedia => wikipedia::ask(client, query).await,
            Self::Arxiv => arxiv::ask(client, query).await,
            Self::OpenAlex => open_alex::ask(client, query).await,
            Self::Crossref => crossref::ask(client, query).await,
            Self::EuropePmc => europe_pmc::ask(client, query).await,
        }
    }

    /// Returns whether the variable holds a key, which is never shown.
    pub(crate) fn has_key(self) -> bool {
        let EngineFacts { variable, address, .. } = self.facts();
        variable.is_some() && address.is_some()
    }
}

impl fmt::Display for SearchEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EngineClient {
    engine: SearchEngine,
    client: SearchClient,
}

impl EngineClient {
    pub(crate) fn new(
        engine: SearchEngine,
        address: BaseUrl,
        key: Option<Secret>,
        contact: Option<&Contact>,
    ) -> Result<Self, HttpError> {
        let is_public = engine.public_address().as_ref() == Some(&address);
        let client = SearchClient::new(engine.name(), engine.refusal_hint(), address, key)?;
        let client = match engine.pace() {
            // A mirror belongs to the user, who sets no pace for it.
            Some(pace) => client.politely(contact, is_public.then_some(pace)),
            None => client,
        };
        Ok(Self { engine, client })
    }

    /// Returns a client whose searches time out by another clock.
    #[cfg(test)]
    pub(crate) fn on(self, clock: std::sync::Arc<dyn crate::base::clock::Clock>) -> Self {
        Self { client: self.client.on(clock), ..self }
    }
}

impl SearchProvider for EngineClient {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn address(&self) -> Option<&BaseUrl> {
        Some(&self.client.address)
    }

    fn search<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<Vec<WebHit>, WebError>> {
        Box::pin(self.engine.ask(&self.client, query))
    }
}
