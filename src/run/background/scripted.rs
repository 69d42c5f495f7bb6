//! An in-process provider for tests. Every job completes at the first poll, unless the provider forgets jobs or is slow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use jiff::civil::Date;

use super::ProviderKind;
use super::job::{Job, JobState};
use super::openai;
use super::provider::{JobError, ModelChoice, Provider, ProviderFacts};
use super::report::JobReport;
use super::request::JobRequest;
use crate::base::id::JobId;
use crate::base::mutex::locked;

pub(super) static FACTS: ProviderFacts = ProviderFacts {
    models: &["scripted"],
    connect: |_| Ok(Arc::new(ScriptedJobs::default())),
    parse: |raw| JobReport { text: raw.trim_matches('"').to_owned(), web_searches: Some(0), ..JobReport::default() },
    ..openai::FACTS
};

/// Provider whose reports are one sentence each.
#[derive(Default)]
pub(crate) struct ScriptedJobs {
    started: Mutex<Vec<JobRequest>>,
    /// Whether it says that it knows no job.
    pub(crate) forgets: AtomicBool,
    /// Whether its jobs stay in progress until they are cancelled.
    pub(crate) is_slow: AtomicBool,
}

impl ScriptedJobs {
    /// Returns the requests that started a job, in order.
    pub(crate) fn started(&self) -> Vec<JobRequest> {
        locked(&self.started).clone()
    }
}

fn job(id: &JobId, state: JobState) -> BoxFuture<'static, Result<Job, JobError>> {
    let raw = if state.is_over() { format!("\"scripted report {id}\"") } else { String::new() };
    Box::pin(ready(Ok(Job { id: id.clone(), state, raw })))
}

impl Provider for ScriptedJobs {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Scripted
    }

    fn choose_model<'a>(
        &'a self,
        models: &'a [String],
        _: Date,
        _: Duration,
    ) -> BoxFuture<'a, Result<ModelChoice, JobError>> {
        Box::pin(ready(Ok(ModelChoice { model: models.first().cloned(), passed_over: Vec::new() })))
    }

    fn create<'a>(&'a self, request: &'a JobRequest, _: Duration) -> BoxFuture<'a, Result<Job, JobError>> {
        let mut started = locked(&self.started);
        started.push(request.clone());
        let id = format!("scripted_{}", started.len()).parse().unwrap();
        job(&id, JobState::Queued)
    }

    fn retrieve<'a>(&'a self, id: &'a JobId, _: Duration) -> BoxFuture<'a, Result<Job, JobError>> {
        let state = match () {
            () if self.forgets.load(Ordering::SeqCst) => JobState::Vanished,
            () if self.is_slow.load(Ordering::SeqCst) => JobState::InProgress,
            () => JobState::Completed,
        };
        job(id, state)
    }

    fn cancel<'a>(&'a self, id: &'a JobId, _: Duration) -> BoxFuture<'a, Result<Job, JobError>> {
        job(id, JobState::Cancelled)
    }
}
