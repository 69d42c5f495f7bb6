//! State that the handlers of all requests share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::metrics::Metrics;
use crate::engine::Service;

/// Event streams that are open at the same time. A page has one.
const MAX_STREAMS: usize = 256;

/// The service, with what the page adds to it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(super) service: Arc<Service>,
    pub(super) metrics: Arc<Metrics>,
    /// One permit for each event stream that may be open.
    pub(super) streams: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service, metrics: Arc::new(Metrics::new()), streams: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }
}

impl std::ops::Deref for App {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
