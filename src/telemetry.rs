//! Logs and traces: JSON lines with the trace id, and spans over OTLP where an endpoint is set.

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// What must be shut down at the end, so that the last spans leave.
#[derive(Default)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sets up logging for the process; a second call changes nothing.
    ///
    /// # Errors
    /// A sentence: the filter cannot be read, or the exporter cannot be built.
    pub fn start(filter: &str, json: bool) -> Result<Self, String> {
        let filter =
            EnvFilter::try_new(filter).map_err(|err| format!("log.filter is malformed: {err}"))?;
        let lines = if json {
            tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false)
                .with_writer(std::io::stderr)
                .boxed()
        } else {
            tracing_subscriber::fmt::layer().with_writer(std::io::stderr).boxed()
        };
        let wanted = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()));
        let provider = wanted.then(exporter).transpose()?;
        let spans = provider.as_ref().map(|provider| {
            tracing_opentelemetry::layer().with_tracer(provider.tracer("handoffd"))
        });
        let _ = tracing_subscriber::registry().with(filter).with(spans).with(lines).try_init();
        Ok(Self { provider })
    }

    /// Sends what is left and ends. Blocks for a moment: not for the async threads.
    pub fn stop(self) {
        if let Some(provider) = self.provider {
            let _ = provider.shutdown();
        }
    }
}

fn exporter() -> Result<SdkTracerProvider, String> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .build()
        .map_err(|err| format!("the OTLP exporter cannot be built: {err}"))?;
    let resource = opentelemetry_sdk::Resource::builder()
        .with_service_name(
            std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "handoffd".to_owned()),
        )
        .build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

struct One<'a>(&'a str);

impl Extractor for One<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }
    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

/// Makes a span a child of a W3C trace context, and notes the trace's id in its field `trace_id`, so
/// that log lines carry it with and without an exporter.
pub fn continue_trace(span: &Span, traceparent: Option<&str>) {
    if let Some(traceparent) = traceparent {
        if let Some(trace_id) = traceparent.get(3..35) {
            span.record("trace_id", trace_id);
        }
        let context = TraceContextPropagator::new().extract(&One(traceparent));
        // Without an exporter there is nothing to attach to.
        let _ = span.set_parent(context);
    }
}
