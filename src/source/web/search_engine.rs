//! The search engines `dr` can ask, and what differs between them.

use std::fmt;

use super::{brave, exa, searxng, tavily};

/// A search engine.
///
/// Each says its own name and variable in its own file. A new one does not compile until every match knows it: the
/// setup that hands it a key, the order in which engines are tried, and the functions below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEngine {
    /// `SearXNG`, on a machine of the user.
    SearxNg,
    /// Tavily.
    Tavily,
    /// Brave Search.
    Brave,
    /// Exa.
    Exa,
}

impl SearchEngine {
    /// Returns every engine. If no setting names one, the first whose variable is set is asked.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::SearxNg), |engine| match engine {
            Self::SearxNg => Some(Self::Tavily),
            Self::Tavily => Some(Self::Brave),
            Self::Brave => Some(Self::Exa),
            Self::Exa => None,
        })
    }

    /// Returns the name settings and journals use.
    pub fn name(self) -> &'static str {
        match self {
            Self::SearxNg => searxng::NAME,
            Self::Tavily => tavily::NAME,
            Self::Brave => brave::NAME,
            Self::Exa => exa::NAME,
        }
    }

    /// Returns the variable that sets the engine up: its key, or the address if it has no public one.
    pub fn variable(self) -> &'static str {
        match self {
            Self::SearxNg => searxng::VARIABLE,
            Self::Tavily => tavily::VARIABLE,
            Self::Brave => brave::VARIABLE,
            Self::Exa => exa::VARIABLE,
        }
    }

    /// Tells whether the variable holds a key, which is never shown.
    pub fn has_key(self) -> bool {
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
