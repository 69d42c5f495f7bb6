//! The trace of a run. Its ids are derived from the run's, so that a resumed run continues its trace.
//!
//! ```text
//! first process:  run (root)          ids made of the run's
//! resumed:        └─ run              an id of its own, its parent that root
//! ```

use std::cell::Cell;

use opentelemetry::trace::{Span, SpanBuilder, SpanContext, TraceContextExt, TraceState, Tracer, TracerProvider};
use opentelemetry::{Context, SpanId, TraceId, Value};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider};

use crate::base::id::RunId;

thread_local! {
    // The SDK requests new ids without stating the span they are for.
    /// Ids of the root that this thread is starting.
    static ROOT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

pub(super) fn trace_of(run: &RunId) -> TraceId {
    ids_of(run.as_str()).0
}

fn ids_of(run: &str) -> (TraceId, SpanId) {
    // With another text, a resumed run would not continue the trace begun by an earlier build.
    let hash = blake3::hash(format!("trace of run {run}").as_bytes());
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    trace.copy_from_slice(&hash.as_bytes()[..16]);
    span.copy_from_slice(&hash.as_bytes()[16..24]);
    (TraceId::from_bytes(trace), SpanId::from_bytes(span))
}

/// Starts spans; the span of a run always in the run's trace.
#[derive(Clone, Debug)]
pub(super) struct RunTracer {
    tracer: SdkTracer,
    /// Has the same sampler, but exports nothing.
    unexported: SdkTracer,
}

impl RunTracer {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        let unexported = SdkTracerProvider::builder().with_id_generator(RunIds::default()).build();
        Self { tracer, unexported: unexported.tracer("dr") }
    }
}

/// Starts a root with the ids of a run. Samplers decide by the id of the trace.
fn root_of(run: &str, tracer: &SdkTracer, span: SpanBuilder) -> <SdkTracer as Tracer>::Span {
    ROOT.set(Some(ids_of(run)));
    let started = tracer.build_with_context(span, &Context::new());
    ROOT.set(None);
    started
}

impl Tracer for RunTracer {
    type Span = <SdkTracer as Tracer>::Span;

    fn build_with_context(&self, span: SpanBuilder, parent: &Context) -> Self::Span {
        let Some(run) = attribute(&span, "id").filter(|_| span.name == "run") else {
            return self.tracer.build_with_context(span, parent);
        };
        if attribute(&span, "resumed").is_none() {
            return root_of(&run.as_str(), &self.tracer, span);
        }
        // An earlier process has exported the root, or its sampler has dropped it. Parent-based samplers are
        // told which, so that a trace is kept or dropped as a whole.
        let root = root_of(&run.as_str(), &self.unexported, SpanBuilder::from_name("run")).span_context().clone();
        let root = SpanContext::new(root.trace_id(), root.span_id(), root.trace_flags(), true, TraceState::default());
        self.tracer.build_with_context(span, &Context::new().with_remote_span_context(root))
    }
}

fn attribute(span: &SpanBuilder, key: &str) -> Option<Value> {
    let attributes = span.attributes.as_ref()?;
    attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| attribute.value.clone())
}

/// Makes random ids, and those of a run for its root.
#[derive(Debug, Default)]
pub(super) struct RunIds(RandomIdGenerator);

impl IdGenerator for RunIds {
    fn new_trace_id(&self) -> TraceId {
        ROOT.get().map_or_else(|| self.0.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        ROOT.get().map_or_else(|| self.0.new_span_id(), |(_, span)| span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change would start a new trace for a run begun by an earlier build.
    #[test]
    fn trace_of_a_run_is_the_same_in_every_build() {
        let (trace, root) = ids_of("15e4ee4ad64af079");
        assert_eq!(
            (trace.to_string(), root.to_string()),
            ("0293b631d859bb6ad6015487428dbb58".to_owned(), "03d9a9ff32e18e83".to_owned())
        );
        assert_eq!(trace_of(&RunId::random(0x15e4_ee4a_d64a_f079)), trace);
    }
}
