//! Resources that stay open between the operations of an engine: the index, its links, its embedder and the reranker.
//!
//! A server answers thousands of searches; opening the index and loading the model takes longer than the search itself.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::OnceCell;

use super::{Engine, EngineError};
use crate::base::mutex::locked;
use crate::kb::embed::{EmbedError, Embedder, EmbedderChoice};
use crate::kb::index::Index;
use crate::kb::index::stamp::Stamp;
use crate::kb::links::LinkMap;
use crate::kb::rerank::Reranker;

/// A value and its key. The first caller that needs the value makes it, and the others wait.
type KeyedCell<K, V> = Mutex<Option<(K, Arc<OnceCell<V>>)>>;

/// The index as of its latest known commit, the links of its documents once they were asked for, and the embedder used
/// last.
#[derive(Default)]
pub(super) struct Opened {
    index: KeyedCell<Stamp, Index>,
    links: KeyedCell<Stamp, Arc<LinkMap>>,
    embedder: KeyedCell<EmbedderChoice, Arc<dyn Embedder>>,
    /// The reranker, if one is configured. It knows how often it has failed.
    pub(super) reranker: OnceLock<Option<Arc<Reranker>>>,
}

impl Opened {
    /// Returns the choice of the embedder used last.
    pub(super) fn embedder_choice(&self) -> Option<EmbedderChoice> {
        let slot = locked(&self.embedder);
        slot.as_ref().map(|(choice, _)| choice.clone())
    }
}

impl Engine {
    /// Returns the index as of its latest commit. It is opened again only if another process has committed since.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no index, or it cannot be read. Neither is remembered.
    pub(super) async fn open_index(&self) -> Result<Index, EngineError> {
        // Taken before the index is opened: a commit in between then makes the next stamp differ.
        let Some(stamp) = Stamp::of(&self.location) else { return Ok(Index::open(&self.location).await?) };
        let index = kept(&self.opened.index, stamp);
        Ok(index.get_or_try_init(|| Index::open(&self.location)).await?.clone())
    }

    /// Returns the links between the documents as of the latest commit. They are read again only after another.
    ///
    /// # Errors
    ///
    /// As [`Self::open_index`]. Also returns [`EngineError::NoLinks`] for an index that was written before links were
    /// stored.
    pub(super) async fn link_map(&self) -> Result<Arc<LinkMap>, EngineError> {
        let read = async || {
            let index = self.open_index().await?;
            let rows = index.documents(None).await?;
            LinkMap::read(&index, rows).await?.map(Arc::new).ok_or(EngineError::NoLinks)
        };
        // Before the index is opened, as there.
        let Some(stamp) = Stamp::of(&self.location) else { return read().await };
        kept(&self.opened.links, stamp).get_or_try_init(read).await.map(Arc::clone)
    }

    /// Returns an embedder, which is warmed up on a background thread when it is loaded.
    pub(super) async fn warm_embedder(&self, choice: &EmbedderChoice) -> Result<Arc<dyn Embedder>, EmbedError> {
        let load = async || {
            let embedder = self.load_embedder(choice).await?;
            let warmed = Arc::clone(&embedder);
            // Not awaited: an early query waits inside the embedder.
            drop(tokio::task::spawn_blocking(move || warmed.warm_up()));
            Ok(embedder)
        };
        kept(&self.opened.embedder, choice.clone()).get_or_try_init(load).await.map(Arc::clone)
    }
}

/// Returns the cell for `key`, which replaces that for any other key.
// The lock is held only to get the cell, and never while the value is made, which takes an await.
fn kept<K: PartialEq, V>(slot: &KeyedCell<K, V>, key: K) -> Arc<OnceCell<V>> {
    let mut slot = locked(slot);
    match &*slot {
        Some((known, cell)) if *known == key => Arc::clone(cell),
        _ => {
            let cell = Arc::new(OnceCell::new());
            *slot = Some((key, Arc::clone(&cell)));
            cell
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}
