//! What the sources of all nodes of a run share.

use std::sync::Arc;

use super::cache::Cache;
use super::egress::Egress;
use super::wait_limit::WaitLimit;
use crate::base::breaker::Breaker;

/// State shared by the sources of all nodes of a run.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Answers on record.
    pub(crate) cache: Cache,
    /// Checks and records outgoing texts.
    pub(crate) egress: Egress,
    /// Limits the wait for answers from outside.
    pub(crate) wait_limit: WaitLimit,
    /// Stops asking an engine that fails.
    pub(crate) breaker: Arc<Breaker>,
}
