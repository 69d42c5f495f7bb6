//! Time-outs that depend on the server alone: a request times out when the server withholds the reply to every request
//! in flight. A machine under load delays such a test and does not change it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::base::clock::{Clock, ManualClock, Moment};
use crate::web_server::Kind;

/// The requests of the four clients of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Hangs {
    pub(super) models: InFlight,
    pub(super) jobs: InFlight,
    pub(super) searches: InFlight,
    pub(super) pages: InFlight,
}

impl Hangs {
    /// Takes note that the server withholds a reply.
    pub(super) fn hang(&self, kind: Kind) {
        match kind {
            Kind::Reply => self.models.hang(1),
            Kind::StartJob | Kind::AskJob | Kind::CancelJob | Kind::AskModel => self.jobs.hang(1),
            Kind::SearxNg | Kind::Tavily => self.searches.hang(1),
            Kind::Page => self.pages.hang(1),
            // Every fetch waits for the rules of the one site there is.
            Kind::Robots => self.pages.hang(usize::MAX),
        }
    }
}

/// The requests of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(watch::Sender<Count>);

#[derive(Debug, Default)]
struct Count {
    /// How often all requests in flight timed out.
    rounds: usize,
    in_flight: usize,
    /// Of those, the requests whose reply is withheld.
    hung: usize,
}

impl Count {
    fn settle(&mut self) {
        if self.hung > 0 && self.hung >= self.in_flight {
            *self = Self { rounds: self.rounds + 1, ..Self::default() };
        }
    }
}

impl InFlight {
    fn hang(&self, requests: usize) {
        self.0.send_modify(|count| {
            count.hung = count.hung.saturating_add(requests);
            count.settle();
        });
    }

    /// Returns a clock whose deadlines are the time-outs of this client. Otherwise it is `clock`.
    pub(super) fn on(&self, clock: &Arc<ManualClock>) -> Arc<dyn Clock> {
        Arc::new(HangClock { requests: self.clone(), clock: Arc::clone(clock) })
    }
}

#[derive(Debug)]
struct HangClock {
    requests: InFlight,
    clock: Arc<ManualClock>,
}

/// A request in flight, from its start until it is dropped.
struct Request {
    requests: InFlight,
    round: usize,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.requests.0.send_modify(|count| {
            if count.rounds == self.round {
                count.in_flight -= 1;
                count.settle();
            }
        });
    }
}

impl Clock for HangClock {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn instant(&self) -> Instant {
        self.clock.instant()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    fn deadline(&self, _: Duration) -> BoxFuture<'static, ()> {
        let mut round = 0;
        self.requests.0.send_modify(|count| {
            count.in_flight += 1;
            round = count.rounds;
        });
        let request = Request { requests: self.requests.clone(), round };
        Box::pin(async move {
            let mut count = request.requests.0.subscribe();
            // The request holds a sender, so the channel stays open.
            let _ = count.wait_for(|count| count.rounds > request.round).await;
        })
    }
}
