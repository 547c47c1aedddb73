//! Spans and W3C trace contexts: the parent of a span, and the spans below it.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::export::Settings;
use handoffd_domain::trace_context::{TraceContext, TraceParent};

static EXPORTING: AtomicBool = AtomicBool::new(false);
static GEN_AI: AtomicBool = AtomicBool::new(false);

pub(super) fn set_up(settings: Option<&Settings>) {
    EXPORTING.store(settings.is_some(), Ordering::Relaxed);
    GEN_AI.store(settings.is_some_and(|settings| settings.gen_ai), Ordering::Relaxed);
}

/// Whether spans leave this process. If not, the broker takes no part in a trace and hands on the
/// context that it got, for a span of its own could not be found.
pub fn exporting() -> bool {
    EXPORTING.load(Ordering::Relaxed)
}

/// Whether spans are to follow the GenAI conventions, which are not stable
/// (`OTEL_SEMCONV_STABILITY_OPT_IN`).
pub fn gen_ai() -> bool {
    GEN_AI.load(Ordering::Relaxed)
}

/// Makes a span a child of a trace context, and notes the trace's id in its field `trace_id`, so that
/// log lines carry it with and without an exporter. Before the span is entered.
pub fn under(span: &Span, context: &TraceContext) {
    span.record("trace_id", context.parent.trace_id_hex());
    if exporting() {
        let parent = Context::new().with_remote_span_context(remote(context));
        let _ = span.set_parent(parent);
    }
}

/// Notes in its field `trace_id` the trace that a span without a parent begins.
pub fn root(span: &Span) {
    if let Some(own) = own(span) {
        span.record("trace_id", own.trace_id_hex());
    }
}

/// Links a span to another.
pub fn link(span: &Span, other: &TraceParent) {
    if exporting() {
        span.add_link(remote(&TraceContext { parent: *other, state: String::new() }));
    }
}

/// The context of a span itself; none if nothing is exported. The span has its place in the trace from then on.
#[must_use]
pub fn own(span: &Span) -> Option<TraceParent> {
    if !exporting() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let own = span.span_context();
    TraceParent::new(own.trace_id().to_bytes(), own.span_id().to_bytes(), own.trace_flags().to_u8())
}

fn remote(context: &TraceContext) -> SpanContext {
    let TraceContext { parent, state } = context;
    // Its reader is stricter than level 2; what it does not know is missing in the export alone.
    let state = state.parse::<TraceState>().unwrap_or_default();
    SpanContext::new(
        TraceId::from_bytes(parent.trace_id),
        SpanId::from_bytes(parent.parent_id),
        TraceFlags::new(parent.flags),
        true,
        state,
    )
}
