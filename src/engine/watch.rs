//! Keeps the index up to date while its folders change.
//!
//! An [`IndexWatch`] indexes, waits until changes have settled, and indexes again: the operation of `dr index` each
//! time, with its refusals. A folder that is missing is left out, so the index keeps what it has of it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio_util::sync::CancellationToken;

use super::indexing::KeptEmbedder;
use super::{Engine, EngineError, IndexRequest};
use crate::base::line::with_causes;
use crate::kb::extract::Include;
use crate::kb::index::IndexError;
use crate::kb::ingest::{CollectionSource, IngestError, IngestSummary, Listener};
use crate::kb::watch::{FolderWatch, LOOK_INTERVAL, WatchError};

/// Pause before the writer lock is tried again.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Wait for a change after a failure, which may have another cause, such as a server that does not answer.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Options of [`Engine::watch`].
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchRequest {
    /// Folders to watch; if empty, all folders in the index.
    pub(crate) folders: Vec<PathBuf>,
    /// See [`IndexRequest::names`].
    pub(crate) names: Vec<String>,
    /// Whether to embed indexed text.
    pub(crate) embed: bool,
    /// How often to look for changes, instead of being told by the system.
    pub(crate) every: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum WatchEvent {
    /// The folders were indexed.
    Indexed(IngestSummary),
    /// They could not be. This is tried again after the next change, and now and then.
    Failed(EngineError),
    /// Another process, described by itself, writes the index. Indexing waits for it.
    Waiting { holder: String },
    /// A folder is missing.
    Gone(PathBuf),
    /// A folder that was missing exists again.
    Back(PathBuf),
    /// The system cannot tell of changes, so the folders are looked at.
    Looking { every: Duration, why: WatchError },
}

/// Folders that are watched, and indexed when they change.
pub(crate) struct IndexWatch {
    engine: Engine,
    watched: Vec<Watched>,
    embed: bool,
    changes: FolderWatch,
    next: Next,
    embedder: KeptEmbedder,
    /// Whether the folders were indexed at least once.
    has_indexed: bool,
    /// The latest failure, if nothing was indexed since.
    failure: Option<String>,
    events: VecDeque<WatchEvent>,
}

struct Watched {
    source: CollectionSource,
    is_gone: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Index,
    AwaitChange,
    /// Index after a change, or when this time has passed.
    Retry(Duration),
}

impl Engine {
    /// Prepares to watch folders.
    ///
    /// # Errors
    ///
    /// As [`Engine::index`] for folders that it refuses.
    pub(crate) async fn watch(&self, request: WatchRequest) -> Result<IndexWatch, EngineError> {
        let WatchRequest { folders, names, embed, every } = request;
        let sources = self.folders_of(&IndexRequest { folders, names, ..IndexRequest::default() }).await?;
        // `FolderWatch` needs paths without symbolic links, also to tell the index from the folders around it.
        let real = |root: PathBuf| dunce::canonicalize(&root).unwrap_or(root);
        let sources = sources.into_iter().map(|source| CollectionSource { root: real(source.root), ..source });
        let watched: Vec<_> = sources.map(|source| Watched { source, is_gone: false }).collect();
        let roots = watched.iter().map(|watched| watched.source.root.clone()).collect();
        let include = watched.iter().fold(Include::default(), |all, watched| all.and(&watched.source.include));
        let except = self.location.folder().map(|folder| real(folder.to_path_buf()));
        let changes = FolderWatch::new(roots, include, except, every);
        Ok(IndexWatch {
            engine: self.clone(),
            watched,
            embed,
            changes,
            next: Next::Index,
            embedder: None,
            has_indexed: false,
            failure: None,
            events: VecDeque::new(),
        })
    }
}

impl IndexWatch {
    pub(crate) fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.watched.iter().map(|watched| &watched.source.root)
    }

    /// Returns whether there is more to index, because a change has paused embedding.
    pub(crate) fn is_behind(&self) -> bool {
        self.has_indexed && self.next == Next::Index
    }

    /// Waits for the next event. Returns `None` when cancelled, after a batch that was being indexed is committed.
    ///
    /// # Errors
    ///
    /// Returns why the folders cannot be indexed at all, as [`Engine::index`]. Once they were indexed, a failure is an
    /// event.
    pub(crate) async fn next(
        &mut self,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Result<Option<WatchEvent>, EngineError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let has_come = match self.next {
                Next::Index => (!cancel.is_cancelled()).then_some(()),
                Next::AwaitChange => cancel.run_until_cancelled(self.changes.settled()).await,
                Next::Retry(after) => {
                    let settled = tokio::time::timeout(after, self.changes.settled());
                    cancel.run_until_cancelled(settled).await.map(drop)
                }
            };
            if has_come.is_none() {
                return Ok(None);
            }
            // Before `update`, which sets another step after a failure.
            self.next = Next::AwaitChange;
            self.update(listener, cancel).await?;
        }
    }

    /// Indexes the folders that exist.
    async fn update(&mut self, listener: Listener<'_>, cancel: &CancellationToken) -> Result<(), EngineError> {
        if let Some(why) = self.changes.begin().await {
            self.events.push_back(WatchEvent::Looking { every: LOOK_INTERVAL, why });
        }
        let Some(request) = self.request() else { return Ok(()) };
        // A folder that was made again may have brought a `.dr` along.
        let indexed = match self.engine.check_trusted() {
            Ok(()) => self.index(request, listener, cancel).await,
            Err(error) => Err(error),
        };
        let failure = indexed.as_ref().err().map(|error| with_causes(error));
        let is_told = failure.is_some() && failure == self.failure;
        match indexed {
            Ok(summary) => {
                self.has_indexed = true;
                self.events.push_back(WatchEvent::Indexed(summary));
            }
            Err(EngineError::Ingest(IngestError::Index(
                IndexError::Busy { holder } | IndexError::CollectionBusy { holder, .. },
            ))) => {
                self.next = Next::Retry(LOCK_INTERVAL);
                if !is_told {
                    self.events.push_back(WatchEvent::Waiting { holder });
                }
            }
            Err(error) if !self.has_indexed => return Err(error),
            Err(error) => {
                self.next = Next::Retry(RETRY_INTERVAL);
                if !is_told {
                    self.events.push_back(WatchEvent::Failed(error));
                }
            }
        }
        self.failure = failure;
        Ok(())
    }

    /// Indexes, and pauses embedding after further changes: their text is indexed within seconds, while embedding may
    /// take hours. The next step is then to index again.
    async fn index(
        &mut self,
        request: IndexRequest,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Result<IngestSummary, EngineError> {
        // Boxed, because the compiler gives up on whether the future of a watch, with all of this in it, is `Send`.
        let indexing = self.engine.index_again(&request, &mut self.embedder, listener, cancel).boxed();
        match select(indexing, pin!(self.changes.settled())).await {
            Either::Left((indexed, _)) => indexed,
            Either::Right(((), indexing)) => {
                request.pause.cancel();
                self.next = Next::Index;
                indexing.await
            }
        }
    }

    /// Returns the request for the folders that exist, if any do.
    fn request(&mut self) -> Option<IndexRequest> {
        let mut request = IndexRequest { embed: self.embed, ..IndexRequest::default() };
        for Watched { source, is_gone } in &mut self.watched {
            let was_gone = std::mem::replace(is_gone, !source.root.is_dir());
            match (was_gone, *is_gone) {
                (false, true) => self.events.push_back(WatchEvent::Gone(source.root.clone())),
                (true, false) => self.events.push_back(WatchEvent::Back(source.root.clone())),
                (false, false) | (true, true) => {}
            }
            if !*is_gone {
                request.folders.push(source.root.clone());
                // Named, because names go by position and a missing folder would shift them.
                request.names.push(source.name.clone());
            }
        }
        // Without a folder, all folders of the index are watched.
        (!request.folders.is_empty()).then_some(request)
    }
}
