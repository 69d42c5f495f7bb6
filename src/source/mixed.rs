//! Two sources as one: the knowledge base first, the web for what it does not answer.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Found, Passage, Place, Source, SourceError, SourceFile, Support};

/// Asks the knowledge base, and the web where that has not what is wanted.
pub struct MixedSource {
    internal: Arc<dyn Source>,
    web: Arc<dyn Source>,
}

impl MixedSource {
    /// Puts two sources behind each other.
    pub fn new(internal: Arc<dyn Source>, web: Arc<dyn Source>) -> Self {
        Self { internal, web }
    }
}

impl Source for MixedSource {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn scope(&self) -> String {
        format!("{} and {}", self.internal.scope(), self.web.scope())
    }

    fn version(&self) -> String {
        format!("{}+{}", self.internal.version(), self.web.version())
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let mut found = self.internal.search(query, limit).await?;
            if found.support == Support::Strong {
                return Ok(found);
            }
            // One source that fails takes nothing from what the other has.
            match self.web.search(query, limit).await {
                Ok(web) => {
                    found.passages.extend(web.passages);
                    found.support = found.support.max(web.support);
                    found.notes.extend(web.notes);
                }
                Err(error) if error.ends_run() => return Err(error),
                Err(error) => found.notes.push(error.to_string()),
            }
            Ok(found)
        })
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            match self.internal.open(id).await {
                Err(SourceError::NoSuchPassage { .. }) => self.web.open(id).await,
                other => other,
            }
        })
    }

    fn recognise(&self, found: &Found) {
        self.web.recognise(found);
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        match place {
            Place::Kb { .. } => self.internal.read(place),
            Place::Web { .. } => self.web.read(place),
        }
    }
}
