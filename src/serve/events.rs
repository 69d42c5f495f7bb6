//! The events of a run as a stream (server-sent events).
//!
//! A `state` is sent when an event was appended to the journal. Its id is the number of the last event, from which an
//! interrupted stream continues: a browser sends it as `Last-Event-ID`, even to a restarted server. A `doing` reports
//! progress between two events and is not stored; a stream opened later begins with the latest ones.

use std::convert::Infallible;
use std::time::Duration;

use aide::NoApi;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use futures::stream::unfold;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::app::App;
use super::failure::FailureReply;
use super::form::{InPath, Parameters};
use super::metrics::OpenStream;
use super::runs::{OfRun, RunPath};
use crate::engine::{Doing, RunEvent, RunStatus, Standing, WatchedRun};

/// Poll interval for a run executed by another process.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only events after this number. The header `Last-Event-ID` takes precedence.
    #[serde(default)]
    since: u64,
}

pub(super) async fn events(
    (State(app), InPath(RunPath { run })): OfRun,
    Parameters(EventsQuery { since }): Parameters<EventsQuery>,
    NoApi(headers): NoApi<HeaderMap>,
) -> Result<NoApi<Sse<impl Stream<Item = Result<Event, Infallible>>>>, FailureReply> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let since = last.unwrap_or(since);
    let permit = std::sync::Arc::clone(&app.streams).try_acquire_owned();
    let permit =
        permit.map_err(|_| FailureReply::new(StatusCode::SERVICE_UNAVAILABLE, "too many event streams are open"))?;
    // The whole id, which `watch` compares.
    let run = app.engine.find_runs(&[run]).await?.remove(0).to_string();
    // Subscribed before the state is read, so that an event in between is received as well.
    let (live, doing) = match app.runs.watch(&run) {
        Some(WatchedRun { events, doing }) => (Some(events), doing),
        None => (None, Vec::new()),
    };
    // Read here, so that an error becomes the reply instead of a stream.
    let status = app.runs.status(&app.engine, &run, since).await?;
    let open = app.metrics.stream();
    let watching =
        Watching { run: status.run_id.clone(), since, live, first: Some(status), doing, app, _held: (permit, open) };
    let stream = unfold(Some(watching), |watching| async {
        let mut watching = watching?;
        let (event, goes_on) = watching.next().await?;
        Some((Ok(event), goes_on.then_some(watching)))
    });
    Ok(NoApi(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))))
}

/// An open stream.
struct Watching {
    app: App,
    run: String,
    /// Number of the last event sent.
    since: u64,
    /// The state to send first.
    first: Option<RunStatus>,
    /// The latest progress of the run, to send after that.
    doing: Vec<Doing>,
    /// Events of a run executed by this server.
    live: Option<Receiver<RunEvent>>,
    _held: (OwnedSemaphorePermit, OpenStream),
}

impl Watching {
    /// Returns the next event, and whether the stream continues. `None` ends it.
    async fn next(&mut self) -> Option<(Event, bool)> {
        if let Some(first) = self.first.take() {
            return self.told(first);
        }
        if let Some(doing) = self.doing.pop() {
            return Some((Event::default().event("doing").json_data(doing).ok()?, true));
        }
        let stop = self.app.stop.clone();
        loop {
            tokio::select! {
                // A graceful shutdown waits for open replies, and this one would not end.
                () = stop.cancelled() => return None,
                heard = heard(&mut self.live) => match heard {
                    LiveUpdate::Doing(doing) => return Some((Event::default().event("doing").json_data(doing).ok()?, true)),
                    LiveUpdate::Noted => {}
                    // From now on the journal is polled, because another process may resume the run.
                    LiveUpdate::End => self.live = None,
                },
            }
            // An error, after a deletion for example, ends the stream.
            let status = self.app.runs.status(&self.app.engine, &self.run, self.since).await.ok()?;
            if status.last_event != self.since || status.state != Standing::Running {
                return self.told(status);
            }
        }
    }

    fn told(&mut self, status: RunStatus) -> Option<(Event, bool)> {
        let goes_on = status.state == Standing::Running;
        self.since = status.last_event;
        let event = Event::default().event("state").id(status.last_event.to_string());
        Some((event.json_data(status).ok()?, goes_on))
    }
}

enum LiveUpdate {
    Doing(Doing),
    /// An event may have been appended to the journal.
    Noted,
    /// The run has ended or stopped.
    End,
}

async fn heard(live: &mut Option<Receiver<RunEvent>>) -> LiveUpdate {
    let Some(events) = live else {
        tokio::time::sleep(LOOK).await;
        return LiveUpdate::Noted;
    };
    loop {
        match events.recv().await {
            // Events missed by a lagging stream are read from the journal.
            Ok(RunEvent::Event { .. }) | Err(RecvError::Lagged(_)) => return LiveUpdate::Noted,
            Ok(event) => {
                if let Some(doing) = event.doing() {
                    return LiveUpdate::Doing(doing);
                }
            }
            Err(RecvError::Closed) => return LiveUpdate::End,
        }
    }
}
