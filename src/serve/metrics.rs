//! Metrics of the server for Prometheus. They contain no question, path or text.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds of the buckets of search times, in seconds.
const SECONDS: [f64; 9] = [0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 5.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    status: u16,
}

/// The metrics, counted since the server started.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    searches: Histogram,
    streams: Gauge,
    runs: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let (requests, streams, runs) = (Family::<Answered, Counter>::default(), Gauge::default(), Gauge::default());
        let searches = Histogram::new(SECONDS);
        let mut registry = Registry::with_prefix("dr");
        registry.register("requests", "Requests by status", requests.clone());
        registry.register_with_unit("search", "Time of a search", Unit::Seconds, searches.clone());
        registry.register("event_streams", "Open event streams", streams.clone());
        registry.register("runs_active", "Runs that are worked on", runs.clone());
        Self { registry, requests, searches, streams, runs }
    }

    pub(super) fn answered(&self, status: u16) {
        self.requests.get_or_create(&Answered { status }).inc();
    }

    pub(super) fn searched(&self, elapsed: Duration) {
        self.searches.observe(elapsed.as_secs_f64());
    }

    /// Counts an event stream as open until the value is dropped.
    pub(super) fn stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    /// Returns the metrics in the text format of `OpenMetrics`.
    pub(super) fn text(&self, active_runs: usize) -> String {
        // Set when the metrics are read: the number of runs is kept elsewhere.
        self.runs.set(i64::try_from(active_runs).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all that is written to it");
        text
    }
}

#[derive(Debug)]
pub(super) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
