//! Logs and traces: JSON lines with the trace id, and spans over OTLP where an endpoint is set.
//!
//! Spans of level INFO are what log lines name; those of level DEBUG are for traces only
//! (docs/tracing.md). No span holds content, a secret or a personal datum.

use std::io::IsTerminal as _;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

mod export;
mod spans;

pub use spans::{exporting, gen_ai, link, own, root, under};

/// How long a stop waits for the last spans to leave; a collector that is away gets no more.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// Export of spans; the standard environment variables name the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanExport {
    /// Spans go to the configured collector, if one is set.
    Collector,
    /// Spans are not exported, as in a short-lived command.
    Disabled,
}

/// Handle of logging and tracing; its shutdown exports the last spans.
#[derive(Default)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sets up logging for the process; a second call changes nothing. To be called within the runtime
    /// that serves: OTLP over gRPC works on it.
    ///
    /// # Errors
    /// A sentence: the filter cannot be read, or the exporter cannot be built.
    pub fn start(filter: &str, json: bool, spans: SpanExport) -> Result<Self, String> {
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
            // A file keeps codes of colours for ever (https://no-color.org has the variable).
            let colours = std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr).boxed()
        };
        // A line that passes the filter names its span, whatever the filter says of spans.
        let named = filter_fn(|meta| ours(meta) && *meta.level() <= Level::INFO)
            .with_max_level_hint(LevelFilter::INFO);
        // Inner spans are for traces; and what libraries say below INFO may hold what they carry.
        let fit = filter_fn(|meta| {
            !meta.target().starts_with(QUOTES_CLIENTS)
                && (*meta.level() <= Level::INFO
                    || (meta.is_event() && meta.target().starts_with("handoffd")))
        })
        .with_max_level_hint(LevelFilter::TRACE);
        let lines = lines.with_filter(filter.or(named).and(fit));

        let settings = match spans {
            SpanExport::Collector => export::Settings::read(|name| std::env::var(name).ok())?,
            SpanExport::Disabled => None,
        };
        let provider = settings.as_ref().map(export::provider).transpose()?;
        let traced = provider.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("handoffd"))
                // Places in the source and threads say nothing to who reads a trace.
                .with_location(false)
                .with_threads(false)
                .with_target(false)
                .with_tracked_inactivity(false)
                .with_filter(filter_fn(ours).with_max_level_hint(LevelFilter::DEBUG))
        });
        let _ = tracing_subscriber::registry().with(lines).with(traced).try_init();
        spans::set_up(settings.as_ref());
        Ok(Self { provider })
    }

    /// Sends what is left and ends. Blocks for a moment: not for the async threads.
    pub fn stop(self) {
        if let Some(provider) = self.provider {
            let _ = provider.shutdown_with_timeout(LAST_SPANS);
        }
    }
}

/// The MCP library's lines on each refused request: they quote what the client sent, at any length.
const QUOTES_CLIENTS: &str = "rmcp::service";

/// A span of the broker, and not one of a library's.
fn ours(meta: &Metadata<'_>) -> bool {
    meta.is_span() && meta.target().starts_with("handoffd")
}
