//! Traces of runs, exported over OTLP. Off unless `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
//!
//! ```text
//! tracing spans ─▶ layer ─▶ batches on a thread of their own ─▶ gate ─▶ OTLP over HTTP ─▶ collector
//!                    │                                            │
//!                    identity: the trace of a run                 shape: the attributes that leave, by an allow-list
//! ```
//!
//! A span or field that [`shape`] does not list is not exported: data logged on this machine is not automatically fit
//! to leave it. Texts are exported only if the rule of their run says so ([`attach::rule`]).
//!
//! Export never fails a command: a collector that is down, slow or wrong costs a note at the end.

mod identity;
pub(crate) mod attach;
mod shape;
mod settings;
mod client;
mod exporter;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tracing::Metadata;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::layer::{Filter, Layer};
use tracing_subscriber::registry::LookupSpan;

use self::exporter::{ExportGate, GatedExporter};
use self::identity::{RunIds, RunTracer};
pub(crate) use self::settings::{NotExported, TraceOptions, TraceSettings};

/// Maximum number of spans per request, so that spans with texts fit the usual limit of a collector.
const BATCH: usize = 64;

/// Traces of this process, from its start to its end.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    gate: Arc<ExportGate>,
}

impl Traces {
    /// Begins to collect spans, if the environment names a collector. Nothing leaves before [`Self::open`].
    pub(crate) fn begin() -> Option<Self> {
        if !settings::is_requested() {
            return None;
        }
        let resource = resource();
        let gate = Arc::new(ExportGate::closed(resource.clone()));
        let batches = BatchSpanProcessor::builder(GatedExporter::at(Arc::clone(&gate)))
            .with_batch_config(BatchConfigBuilder::default().with_max_export_batch_size(BATCH).build())
            .build();
        let provider = SdkTracerProvider::builder()
            .with_id_generator(RunIds::default())
            .with_resource(resource)
            .with_span_processor(batches)
            .build();
        Some(Self { provider, gate })
    }

    /// Lets the spans leave according to the settings. Only the first call counts.
    pub(crate) fn open(&self, settings: Result<TraceSettings, NotExported>) {
        self.gate.open(settings);
    }

    /// Returns the layer that converts spans of `tracing`: only those in [`shape`], and no events.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        // Attributes that these would add are not in [`shape`], and nothing else here reads OpenTelemetry's context.
        let scope = InstrumentationScope::builder("dr").with_version(env!("CARGO_PKG_VERSION")).build();
        OpenTelemetryLayer::new(RunTracer::new(self.provider.tracer_with_scope(scope)))
            .with_location(false)
            .with_threads(false)
            .with_level(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(KnownSpans)
    }

    /// Exports the remaining spans, for at most `patience` and until `stop`. Returns the reason why spans were lost,
    /// if any were.
    pub(crate) fn finish(self, patience: Duration, runtime: &Runtime, stop: &CancellationToken) -> Option<String> {
        // The client of the exporter has its own runtime, which must not be dropped within another: hence not an
        // `async` function.
        let Self { provider, gate } = self;
        let flushed = runtime.spawn_blocking(move || provider.shutdown_with_timeout(patience).is_ok());
        let late = match runtime.block_on(stop.run_until_cancelled(flushed)) {
            Some(Ok(true)) => None,
            Some(_) => Some(format!("the collector took longer than {} ms", patience.as_millis())),
            None => Some("interrupted".to_owned()),
        };
        gate.lost(late)
    }
}

/// Drops spans that [`shape`] does not list.
struct KnownSpans;

impl<S> Filter<S> for KnownSpans {
    fn enabled(&self, span: &Metadata<'_>, _: &tracing_subscriber::layer::Context<'_, S>) -> bool {
        is_known(span)
    }

    fn callsite_enabled(&self, span: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // Decided once per callsite: the default would ask again for every span.
        if is_known(span) { tracing::subscriber::Interest::always() } else { tracing::subscriber::Interest::never() }
    }
}

fn is_known(span: &Metadata<'_>) -> bool {
    // Spans of libraries may have the same names.
    span.is_span() && span.target().starts_with(concat!(env!("CARGO_CRATE_NAME"), "::")) && shape::knows(span.name())
}

/// Describes this program: `service.name` from the environment, else `dr`, and what `OTEL_RESOURCE_ATTRIBUTES` has.
/// Omits host and process attributes.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let described = Resource::builder().with_attribute(version.clone()).build();
    let name = described.get(&opentelemetry::Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return described;
    }
    // Only now: a name set here replaces that of the environment.
    Resource::builder().with_attribute(version).with_service_name("dr").build()
}
