//! The supported search engines.

use std::fmt;

use super::{arxiv, brave, crossref, europe_pmc, exa, open_alex, searxng, tavily, wikipedia};

/// A search engine.
///
/// Each engine's file defines its name and variable. Every match on this enum is exhaustive, so the compiler lists what
/// a new engine needs: its setup with its own key, its place in the order of engines, and the functions below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEngine {
    /// `SearXNG`, self-hosted.
    SearxNg,
    Tavily,
    /// Brave Search.
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
