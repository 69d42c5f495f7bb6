//! An engine that serves clients of any protocol.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Engine;
use super::background::Background;

/// State that all clients of a server share. A server with several protocols has one: the bound on runs holds for all
/// of its clients together, and a run that was started over one protocol can be watched and stopped over another.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) engine: Engine,
    /// Runs that clients have started.
    pub(crate) runs: Background,
    /// Most Deep Research jobs of a run; `None` uses the settings.
    pub(crate) max_jobs: Option<usize>,
    /// Stops the runs, and ends the replies that clients still wait for.
    pub(crate) stop: CancellationToken,
}

impl Service {
    /// Returns a service whose runs stop when `stop` is cancelled, and start up to `max_jobs` Deep Research jobs each.
    pub(crate) fn new(engine: Engine, max_jobs: Option<usize>, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { engine, runs: Background::new(stop.clone()), max_jobs, stop })
    }
}
