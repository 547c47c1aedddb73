//! The collector of the brokers' spans: takes them, counts them, forgets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use clap::ValueEnum;

/// How much is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tracing {
    /// No exporter.
    Off,
    /// One trace in a hundred.
    Sampled,
    /// Every trace.
    Full,
}

impl Tracing {
    /// As a row of the table names it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "traces off",
            Self::Sampled => "traces 1 %",
            Self::Full => "traces full",
        }
    }
}

/// A collector that answers at once. It shares the machine with what is measured, as the senders and
/// receivers do.
pub struct Collector {
    url: String,
    bytes: Arc<AtomicU64>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bytes = Arc::new(AtomicU64::new(0));
        let taken = Arc::clone(&bytes);
        let take = move |body: Bytes| async move {
            taken.fetch_add(body.len() as u64, Ordering::Relaxed);
        };
        let app = axum::Router::new().route("/v1/traces", axum::routing::post(take));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, bytes }
    }

    /// Settings of a broker that traces so much.
    pub fn settings(&self, tracing: Tracing) -> Vec<String> {
        let ratio = match tracing {
            Tracing::Off => return Vec::new(),
            Tracing::Sampled => "0.01",
            Tracing::Full => "1",
        };
        vec![
            format!("OTEL_EXPORTER_OTLP_ENDPOINT={}", self.url),
            "OTEL_TRACES_SAMPLER=traceidratio".to_owned(),
            format!("OTEL_TRACES_SAMPLER_ARG={ratio}"),
        ]
    }

    /// Bytes that came since this was asked last.
    pub fn took(&self) -> u64 {
        self.bytes.swap(0, Ordering::Relaxed)
    }
}
