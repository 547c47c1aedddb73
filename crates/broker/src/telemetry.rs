//! Logs and traces: JSON lines with the trace id, and spans over OTLP where an endpoint is set.
//!
//! Log lines name spans of level INFO; spans of level DEBUG are for traces only
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

/// How long a stop tries to export the last spans; if the collector does not answer, they are lost.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// Whether spans are exported; the standard environment variables name the collector.
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
    /// Sets up logging for the process; a second call changes nothing. Call it within the runtime
    /// that serves, because OTLP over gRPC runs there.
    ///
    /// # Errors
    /// A sentence: the filter is invalid, or the exporter cannot be built.
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
            // Colours only on a terminal: in a file their codes stay (https://no-color.org has the variable).
            let colours = std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr).boxed()
        };
        // These spans pass whatever the filter, so that each line that passes can name its span.
        let named = filter_fn(|meta| ours(meta) && *meta.level() <= Level::INFO)
            .with_max_level_hint(LevelFilter::INFO);
        // Inner spans are for traces only. Lines of libraries below INFO may contain payloads.
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
                // Source locations and threads do not help a reader of traces.
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

    /// Exports the remaining spans and ends. Blocks, so do not call it on a thread of the runtime.
    pub fn stop(self) {
        if let Some(provider) = self.provider {
            let _ = provider.shutdown_with_timeout(LAST_SPANS);
        }
    }
}

/// The MCP library's lines on each refused request, which quote the client's input at any length.
const QUOTES_CLIENTS: &str = "rmcp::service";

/// Whether it is a span of the broker and not of a library.
fn ours(meta: &Metadata<'_>) -> bool {
    meta.is_span() && meta.target().starts_with("handoffd")
}
