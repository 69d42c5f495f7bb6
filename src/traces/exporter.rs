//! The gate before the exporter: shapes spans, and lets them through once the settings are known.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::attach::{ExportRule, rule_of};
use super::client::Collector;
use super::settings::{NotExported, TraceSettings};
use super::shape::shaped;
use crate::base::line::with_causes;

/// State shared by the thread that exports batches and the command.
pub(super) struct ExportGate {
    resource: Resource,
    /// Set once the settings are known.
    way: OnceLock<Result<opentelemetry_otlp::SpanExporter, NotExported>>,
    /// Reason of the first failed request.
    failure: Arc<OnceLock<String>>,
    sent: AtomicUsize,
    lost: AtomicUsize,
}

impl ExportGate {
    /// Returns a closed gate, which no span passes yet.
    pub(super) fn closed(resource: Resource) -> Self {
        let (sent, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { resource, way: OnceLock::new(), failure: Arc::default(), sent, lost }
    }

    /// Lets spans pass according to the settings. Only the first call counts.
    pub(super) fn open(&self, settings: Result<TraceSettings, NotExported>) {
        self.way.get_or_init(|| self.exporter(&settings?));
    }

    fn exporter(&self, settings: &TraceSettings) -> Result<opentelemetry_otlp::SpanExporter, NotExported> {
        let collector = Collector::new(settings, Arc::clone(&self.failure))?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(settings.address.to_string())
            .with_timeout(settings.timeout)
            // One more attempt: a collector that is down must not hold up a command.
            .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
            .build();
        let mut exporter = exporter.map_err(|error| NotExported::Exporter { reason: error.to_string() })?;
        exporter.set_resource(&self.resource);
        Ok(exporter)
    }

    async fn pass(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        let Some(Ok(exporter)) = self.way.get() else {
            self.lost.fetch_add(spans.len(), Ordering::Relaxed);
            return Ok(());
        };
        let shape = |span: SpanData| match rule_of(span.span_context.trace_id()) {
            Some(ExportRule::Nothing) => None,
            Some(ExportRule::Texts) => shaped(span, true),
            None => shaped(span, false),
        };
        let spans: Vec<_> = spans.into_iter().filter_map(shape).collect();
        let number = spans.len();
        if number > 0 {
            let counter = if exporter.export(spans).await.is_ok() { &self.sent } else { &self.lost };
            counter.fetch_add(number, Ordering::Relaxed);
        }
        // Never an error, which the SDK would log: lost spans are reported once, by [`Self::lost`].
        Ok(())
    }

    /// Returns the reason why spans were lost; `None` if none were, or the user wants no export. `late` is the reason
    /// why the last ones were abandoned.
    pub(super) fn lost(&self, late: Option<String>) -> Option<String> {
        let reason = match self.way.get() {
            // Without settings, the command has failed and reported the reason.
            None => return None,
            Some(Err(why)) => Some(why).filter(|why| !why.is_wanted()).map(|why| with_causes(why)),
            Some(Ok(_)) => self.failure.get().cloned(),
        };
        let is_lost = self.lost.load(Ordering::Relaxed) > 0 || late.is_some();
        let reason = reason.or(late).filter(|_| is_lost)?;
        let some = if self.sent.load(Ordering::Relaxed) > 0 { "some " } else { "" };
        Some(format!("{some}traces were not exported: {reason}"))
    }
}

/// Exports batches once the gate is open.
pub(super) struct GatedExporter(Arc<ExportGate>);

impl GatedExporter {
    pub(super) fn at(gate: Arc<ExportGate>) -> Self {
        Self(gate)
    }
}

impl SpanExporter for GatedExporter {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        self.0.pass(spans).await
    }
}

impl std::fmt::Debug for GatedExporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GatedExporter")
    }
}
