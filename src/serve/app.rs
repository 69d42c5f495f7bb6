//! What all requests share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use crate::engine::{Background, Engine};

/// Event streams that are open at the same time. A page has one.
const MAX_STREAMS: usize = 256;

/// What all requests share. Clones share it too.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) engine: Engine,
    pub(super) runs: Background,
    /// Most Deep Research jobs of a run; `None` uses the settings.
    pub(super) max_jobs: Option<usize>,
    pub(super) metrics: Metrics,
    pub(super) streams: Arc<Semaphore>,
    /// Ends event streams.
    pub(super) stop: CancellationToken,
}

impl App {
    /// Returns what requests share. Runs stop when `stop` is cancelled, and start up to `max_jobs` Deep Research jobs each.
    pub(crate) fn new(engine: Engine, max_jobs: Option<usize>, stop: CancellationToken) -> Self {
        let runs = Background::new(stop.clone());
        let streams = Arc::new(Semaphore::new(MAX_STREAMS));
        Self(Arc::new(Shared { engine, runs, max_jobs, metrics: Metrics::new(), streams, stop }))
    }
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
