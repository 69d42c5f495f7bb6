//! The supported search engines.

use std::fmt;

use super::{brave, exa, searxng, tavily};

/// A search engine.
///
/// Each engine's file defines its name and variable. Every match on this enum is exhaustive, so the compiler lists what
/// a new engine needs: its setup with its own key, its place in the order of engines, and the functions below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEngine {
    /// `SearXNG`, self-hosted.
    SearxNg,
    /// Tavily.
    Tavily,
    /// Brave Search.
    Brave,
    /// Exa.
    Exa,
}

impl SearchEngine {
    /// Returns every engine, in order of preference: without a setting, the first whose variable is set is used.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::SearxNg), |engine| match engine {
            Self::SearxNg => Some(Self::Tavily),
            Self::Tavily => Some(Self::Brave),
            Self::Brave => Some(Self::Exa),
            Self::Exa => None,
        })
    }

    /// Returns the name in settings and journals.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SearxNg => searxng::NAME,
            Self::Tavily => tavily::NAME,
            Self::Brave => brave::NAME,
            Self::Exa => exa::NAME,
        }
    }

    /// Returns the variable that sets the engine up: its key, or the address if it has no public one.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::SearxNg => searxng::VARIABLE,
            Self::Tavily => tavily::VARIABLE,
            Self::Brave => brave::VARIABLE,
            Self::Exa => exa::VARIABLE,
        }
    }

    /// Returns whether the variable holds a key, which is never shown.
    pub(crate) fn has_key(self) -> bool {
        match self {
            Self::SearxNg => false,
            Self::Tavily | Self::Brave | Self::Exa => true,
        }
    }
}

impl fmt::Display for SearchEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
