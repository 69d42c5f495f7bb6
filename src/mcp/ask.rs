//! `ask`: answers a question while the client waits.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::future::{Either, select};
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use tokio::sync::mpsc;

use super::answer::AnswerResult;
use super::failure::ToolError;
use crate::base::mutex::locked;
use crate::engine::{Observer, QuestionForm, RunEvent, Service};

/// Answers a question, with progress notifications if the client requests them. The run stops cleanly if the client
/// cancels the request or disconnects.
pub(super) async fn ask(
    service: &Service,
    question: QuestionForm,
    context: &RequestContext<RoleServer>,
) -> Result<AnswerResult, ToolError> {
    let (engine, request) = question.request(&service.engine, service.max_jobs)?;
    // Unbounded, because an observer must not block.
    let (sender, mut events) = mpsc::unbounded_channel();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&notes);
    let observer: Observer = Arc::new(move |event: RunEvent| {
        let Some(line) = event.line() else { return };
        if matches!(event, RunEvent::Note { .. } | RunEvent::Instead { .. }) {
            locked(&noted).push(line.clone());
        }
        // The receiver is dropped when the run has ended.
        let _ = sender.send(line);
    });
    let asked = Box::pin(service.runs.ask(&engine, request, observer, context.ct.clone()));
    let mut progress = ProgressNotices::of(context);
    // Side by side: a client that stops reading must not hold up the run.
    let telling = async {
        while let Some(line) = events.recv().await {
            progress.tell(context, line).await;
        }
    };
    let asked = match select(asked, pin!(telling)).await {
        Either::Left((asked, _)) => asked,
        Either::Right(((), asked)) => asked.await,
    }?;
    // The end of the run and its last events arrive at the same time.
    while let Ok(line) = events.try_recv() {
        progress.tell(context, line).await;
    }
    let notes = std::mem::take(&mut *locked(&notes));
    AnswerResult::of(service, asked, 1, notes).await
}

/// Sends progress notifications, if the client requests them.
struct ProgressNotices {
    token: Option<rmcp::model::ProgressToken>,
    steps: u32,
}

impl ProgressNotices {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        Self { token: context.meta.get_progress_token(), steps: 0 }
    }

    async fn tell(&mut self, context: &RequestContext<RoleServer>, line: String) {
        let Some(token) = &self.token else { return };
        self.steps += 1;
        let step = ProgressNotificationParam::new(token.clone(), self.steps.into()).with_message(line);
        // A disconnected client is detected elsewhere.
        let _ = context.peer.notify_progress(step).await;
    }
}
