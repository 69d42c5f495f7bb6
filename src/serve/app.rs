//! State shared by the handlers of all requests.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::metrics::Metrics;
use crate::engine::Service;

/// Maximum number of event streams open at the same time. A page has one.
const MAX_STREAMS: usize = 256;

/// The service, and the state that the page adds. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(super) service: Arc<Service>,
    pub(super) metrics: Arc<Metrics>,
    /// One permit per event stream.
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
