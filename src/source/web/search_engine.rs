//! The supported search engines.

use std::fmt;

use futures::future::BoxFuture;

use super::polite::{Contact, Pace};
use super::provider::{SearchClient, SearchProvider, WebError, WebHit, WebQuery};
use super::{arxiv, brave, crossref, europe_pmc, exa, open_alex, searxng, tavily, wikipedia};
use crate::base::http::{BaseUrl, HttpError, Secret};

/// A search engine.
///
/// Each engine's file defines its name, variable, address and pace, and how it is asked. Every match on this enum is
/// exhaustive, so the compiler lists what a new engine needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEngine {
    /// `SearXNG`, self-hosted.
    SearxNg,
    Tavily,
    Brave,
    Exa,
    Wikipedia,
    Arxiv,
    /// `OpenAlex`.
    OpenAlex,
    Crossref,
    EuropePmc,
}

impl SearchEngine {
    /// Returns every engine, in order of preference: without a setting, the first whose variable is set is used. Those
    /// that need none are used only if a setting names them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::SearxNg), |engine| match engine {
            Self::SearxNg => Some(Self::Tavily),
            Self::Tavily => Some(Self::Brave),
            Self::Brave => Some(Self::Exa),
            Self::Exa => Some(Self::Wikipedia),
            Self::Wikipedia => Some(Self::Arxiv),
            Self::Arxiv => Some(Self::OpenAlex),
            Self::OpenAlex => Some(Self::Crossref),
            Self::Crossref => Some(Self::EuropePmc),
            Self::EuropePmc => None,
        })
    }

    /// Returns the name in settings and journals.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SearxNg => searxng::NAME,
            Self::Tavily => tavily::NAME,
            Self::Brave => brave::NAME,
            Self::Exa => exa::NAME,
            Self::Wikipedia => wikipedia::NAME,
            Self::Arxiv => arxiv::NAME,
            Self::OpenAlex => open_alex::NAME,
            Self::Crossref => crossref::NAME,
            Self::EuropePmc => europe_pmc::NAME,
        }
    }

    /// Returns the variable that sets the engine up, if there is one: its key, or the address if it has no public one.
    pub(crate) fn variable(self) -> Option<&'static str> {
        match self {
            Self::SearxNg => Some(searxng::VARIABLE),
            Self::Tavily => Some(tavily::VARIABLE),
            Self::Brave => Some(brave::VARIABLE),
            Self::Exa => Some(exa::VARIABLE),
            Self::OpenAlex => Some(open_alex::VARIABLE),
            Self::Wikipedia | Self::Arxiv | Self::Crossref | Self::EuropePmc => None,
        }
    }

    /// Returns its public address, if there is one.
    pub(super) fn public_address(self) -> Option<BaseUrl> {
        let address = match self {
            Self::SearxNg => return None,
            Self::Tavily => tavily::ADDRESS,
            Self::Brave => brave::ADDRESS,
            Self::Exa => exa::ADDRESS,
            Self::Wikipedia => wikipedia::ADDRESS,
            Self::Arxiv => arxiv::ADDRESS,
            Self::OpenAlex => open_alex::ADDRESS,
            Self::Crossref => crossref::ADDRESS,
            Self::EuropePmc => europe_pmc::ADDRESS,
        };
        Some(address.parse().expect("the address is one"))
    }

    /// Returns how often requests may be sent to its public address, if it answers without a key.
    pub(super) fn pace(self) -> Option<&'static Pace> {
        match self {
            Self::Wikipedia => Some(&wikipedia::PACE),
            Self::Arxiv => Some(&arxiv::PACE),
            Self::OpenAlex => Some(&open_alex::PACE),
            Self::Crossref => Some(&crossref::PACE),
            Self::EuropePmc => Some(&europe_pmc::PACE),
            Self::SearxNg | Self::Tavily | Self::Brave | Self::Exa => None,
        }
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
        match self {
            Self::Tavily | Self::Brave | Self::Exa | Self::OpenAlex => true,
            Self::SearxNg | Self::Wikipedia | Self::Arxiv | Self::Crossref | Self::EuropePmc => false,
        }
    }
}

impl fmt::Display for SearchEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A search engine at an address.
#[derive(Clone, Debug)]
pub(crate) struct EngineClient {
    engine: SearchEngine,
    client: SearchClient,
}

impl EngineClient {
    /// Returns a client of `engine` at `address`.
    pub(crate) fn new(
        engine: SearchEngine,
        address: BaseUrl,
        key: Option<Secret>,
        contact: Option<&Contact>,
    ) -> Result<Self, HttpError> {
        let is_public = engine.public_address().as_ref() == Some(&address);
        let client = SearchClient::new(engine.name(), engine.refusal_hint(), address, key)?;
        let client = match engine.pace() {
            // A mirror is the user's, and has no pace.
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
        Some(self.client.address())
    }

    fn search<'a>(&'a self, query: &'a WebQuery) -> BoxFuture<'a, Result<Vec<WebHit>, WebError>> {
        Box::pin(self.engine.ask(&self.client, query))
    }
}
