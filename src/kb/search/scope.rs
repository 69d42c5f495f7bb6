//! The scope of a search, as given on the command line and stored in the journal of a run.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::SearchOptions;
use crate::kb::index::Filter;

/// The documents to search. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Only these collections.
    #[serde(default)]
    pub collections: Vec<String>,
    /// Only paths that match one of these globs.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Only documents with all these tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Only documents dated on or after this day, `YYYY-MM-DD`.
    #[serde(default)]
    pub since: Option<String>,
    /// Only documents dated on or before this day.
    #[serde(default)]
    pub until: Option<String>,
}

impl Scope {
    /// Returns search options restricted to this scope.
    ///
    /// # Errors
    ///
    /// Returns an error for an invalid glob.
    pub(crate) fn options(&self) -> Result<SearchOptions, globset::Error> {
        let filter = Filter {
            collections: self.collections.clone(),
            tags: self.tags.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
            documents: None,
        };
        Ok(SearchOptions { filter, paths: self.globs()?, ..SearchOptions::default() })
    }

    fn globs(&self) -> Result<Option<GlobSet>, globset::Error> {
        let mut globs = GlobSetBuilder::new();
        for glob in &self.paths {
            globs.add(GlobBuilder::new(glob).literal_separator(true).build()?);
        }
        if self.paths.is_empty() { Ok(None) } else { globs.build().map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, path: &str) -> bool {
        let scope = Scope { paths: vec![glob.to_owned()], ..Scope::default() };
        scope.options().unwrap().paths.is_some_and(|globs| globs.is_match(path))
    }

    #[test]
    fn glob_matches_whole_paths() {
        assert!(matches("docs/**/*.md", "docs/a/b.md"));
        assert!(matches("docs/**/*.md", "docs/b.md"));
        assert!(!matches("*.md", "docs/b.md"));
        assert!(matches("**/é*.md", "x/éß.md"));
    }
}
