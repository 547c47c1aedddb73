//! A collector that takes OTLP over HTTP and over gRPC on one port, decoded by OpenTelemetry's own
//! definitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;
use tokio::sync::Notify;

/// How long what is awaited may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// A span as it was exported.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: String,
    /// 2 is a server's, 3 a client's.
    pub kind: i32,
    pub trace: String,
    pub id: String,
    /// Empty for a root.
    pub parent: String,
    pub state: String,
    pub failed: bool,
    pub attributes: BTreeMap<String, String>,
    /// Traces and spans to which it is linked.
    pub links: Vec<(String, String)>,
    pub resource: BTreeMap<String, String>,
}

impl Span {
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// As a traceparent names it.
    pub fn place(&self) -> String {
        format!("{}-{}", self.trace, self.id)
    }
}

#[derive(Default)]
struct Taken {
    spans: Mutex<Vec<Span>>,
    by: Mutex<BTreeMap<&'static str, usize>>,
    news: Notify,
}

/// The collector; it lives as long as the case.
#[derive(Clone)]
pub struct Collector {
    pub url: String,
    taken: Arc<Taken>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Taken::default());
        let grpc = TraceServiceServer::new(Grpc(Arc::clone(&taken)));
        let app = axum::Router::new()
            .route("/v1/traces", axum::routing::post(http))
            .with_state(Arc::clone(&taken))
            .route_service("/opentelemetry.proto.collector.trace.v1.TraceService/Export", grpc);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, taken }
    }

    /// How many requests came by `protocol`: `http` or `grpc`.
    pub fn requests(&self, protocol: &str) -> usize {
        self.taken.by.lock().unwrap().get(protocol).copied().unwrap_or_default()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.taken.spans.lock().unwrap().clone()
    }

    /// Awaits what `find` looks for among the spans.
    pub async fn awaits<T>(&self, what: &str, find: impl Fn(&[Span]) -> Option<T>) -> T {
        let found = async {
            loop {
                let news = self.taken.news.notified();
                if let Some(found) = find(&self.spans()) {
                    return found;
                }
                news.await;
            }
        };
        let names = || self.spans().iter().map(|span| span.name.clone()).collect::<Vec<_>>();
        tokio::time::timeout(PATIENCE, found)
            .await
            .unwrap_or_else(|_| panic!("{what} did not come; there are {:?}", names()))
    }

    /// Awaits one span.
    pub async fn span(&self, what: &str, is: impl Fn(&Span) -> bool) -> Span {
        self.awaits(what, |all| all.iter().find(|span| is(span)).cloned()).await
    }
}

impl Taken {
    fn take(&self, by: &'static str, request: ExportTraceServiceRequest) {
        *self.by.lock().unwrap().entry(by).or_default() += 1;
        let mut spans = self.spans.lock().unwrap();
        for resource_spans in request.resource_spans {
            let resource = attributes(resource_spans.resource.unwrap_or_default().attributes);
            for span in resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                spans.push(Span {
                    name: span.name,
                    kind: span.kind,
                    trace: hex::encode(span.trace_id),
                    id: hex::encode(span.span_id),
                    parent: hex::encode(span.parent_span_id),
                    state: span.trace_state,
                    failed: span.status.is_some_and(|status| status.code == 2),
                    attributes: attributes(span.attributes),
                    links: span
                        .links
                        .into_iter()
                        .map(|link| (hex::encode(link.trace_id), hex::encode(link.span_id)))
                        .collect(),
                    resource: resource.clone(),
                });
            }
        }
        drop(spans);
        self.news.notify_waiters();
    }
}

fn attributes(from: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::BoolValue(is)) => is.to_string(),
        other => format!("{other:?}"),
    };
    from.into_iter().map(|one| (one.key, text(one.value))).collect()
}

async fn http(
    State(taken): State<Arc<Taken>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(header::HeaderName, &'static str); 1], Vec<u8>) {
    assert_eq!(headers[header::CONTENT_TYPE], "application/x-protobuf");
    taken.take("http", ExportTraceServiceRequest::decode(body).expect("a request as OTLP has it"));
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/x-protobuf")], answer)
}

struct Grpc(Arc<Taken>);

#[tonic::async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.take("grpc", request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}
