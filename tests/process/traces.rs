//! Traces as a collector gets them: in, through and out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use handoffd::clock::random_id;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::collector::{Collector, Span};
use crate::site::Site;
use crate::world::{Takes, World, client, message, until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
/// As [`message`] has it.
const MESSAGE_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A receiver that keeps the headers of its requests, and answers as it is told.
struct Receiver {
    url: String,
    at: Arc<At>,
}

struct At {
    seen: Mutex<Vec<HeaderMap>>,
    answer: Mutex<(u16, Value)>,
    news: Notify,
}

impl Receiver {
    async fn start(status: u16, answer: Value) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/take?token=in-the-url", listener.local_addr().unwrap());
        let answer = Mutex::new((status, answer));
        let at = Arc::new(At { seen: Mutex::default(), answer, news: Notify::new() });
        let app = axum::Router::new()
            .route("/take", axum::routing::post(take))
            .with_state(Arc::clone(&at));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, at }
    }

    fn answers(&self, status: u16, answer: Value) {
        *self.at.answer.lock().unwrap() = (status, answer);
    }

    /// The delivery after `before` others.
    async fn delivery(&self, before: usize) -> HeaderMap {
        let coming = async {
            loop {
                let news = self.at.news.notified();
                if let Some(headers) = self.at.seen.lock().unwrap().get(before) {
                    return headers.clone();
                }
                news.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), coming).await.expect("a delivery")
    }
}

async fn take(State(at): State<Arc<At>>, headers: HeaderMap) -> impl IntoResponse {
    at.seen.lock().unwrap().push(headers);
    at.news.notify_waiters();
    let (status, answer) = at.answer.lock().unwrap().clone();
    (StatusCode::from_u16(status).unwrap(), axum::Json(answer))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

fn exporting<'a>(collector: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("OTEL_EXPORTER_OTLP_ENDPOINT", collector), ("OTEL_BSP_SCHEDULE_DELAY", "50")][..], more]
        .concat()
}

async fn submit(broker: &Broker, world: &World, body: &Value, headers: &[(&str, &str)]) -> u16 {
    let mut request = client()
        .post(format!("{}/handoffs", broker.base))
        .bearer_auth(&world.sender_key)
        .json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status().as_u16()
}

fn new(target: &str) -> Value {
    message(&random_id().to_string(), None, target)
}

/// The chain from a span to its root, by names.
fn chain(all: &[Span], leaf: &Span) -> Vec<String> {
    let mut names = vec![leaf.name.clone()];
    let mut at = leaf.clone();
    while let Some(parent) = all.iter().find(|span| span.id == at.parent && span.trace == at.trace)
    {
        names.push(parent.name.clone());
        at = parent.clone();
    }
    names
}

async fn one_trace(site: Arc<Site>, protocol: &'static str) {
    let collector = Collector::start().await;
    let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    let named = ("OTEL_SERVICE_NAME", "the-broker");
    let broker = Broker::start(&site, &exporting(&collector.url, &[protocol, named])).await;
    let receiver = Receiver::start(202, json!({})).await;
    let world = World::new(&broker, vec![("b", Takes::Webhook(receiver.url.clone(), 8))]).await;
    let body = new("b");
    let came = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", came.as_str()), ("tracestate", STATE)];
    assert_eq!(submit(&broker, &world, &body, &headers).await, 202);
    let got = receiver.delivery(0).await;

    // The receiver goes on in the trace, as its own tracing would.
    let verdict = client()
        .post(format!("{}/handoffs/{}/accept", broker.base, body["handoffId"].as_str().unwrap()))
        .bearer_auth(&world.receivers["b"])
        .header("handoff-fencing-token", text(&got, "handoff-fencing-token"))
        .header("traceparent", text(&got, "traceparent"))
        .json(&json!({}))
        .send()
        .await
        .unwrap();
    assert_eq!(verdict.status(), 200);

    let ours = |span: &Span| span.trace == TRACE;
    let server =
        collector.span("the request", |span| ours(span) && span.name == "POST /handoffs").await;
    assert_eq!((server.kind, server.parent.as_str(), server.state.as_str()), (2, PARENT, STATE));
    assert_eq!(server.resource["service.name"], "the-broker");
    assert_eq!(server.attribute("http.response.status_code"), "202");
    let heard = collector
        .span("the verdict's request", |span| {
            ours(span) && span.name == "POST /handoffs/{handoffId}/accept"
        })
        .await;
    let post =
        collector.span("the delivery's request", |span| ours(span) && span.name == "POST").await;
    assert_eq!(text(&got, "traceparent"), format!("00-{}-01", post.place()));
    assert_eq!(text(&got, "tracestate"), STATE);
    assert_eq!((post.kind, post.attribute("http.response.status_code")), (3, "202"));
    assert_eq!(post.attribute("server.address"), "127.0.0.1");
    assert_eq!(heard.parent, post.id);
    let submitted =
        collector.span("the submission", |span| ours(span) && span.name == "handoff.submit").await;
    assert!(heard.links.contains(&(submitted.trace.clone(), submitted.id.clone())), "{heard:?}");
    assert_eq!(submitted.attribute("handoff.id"), body["handoffId"]);
    let deliver =
        collector.span("the delivery", |span| ours(span) && span.name == "deliver b").await;
    assert_eq!(
        (deliver.parent.as_str(), deliver.attribute("handoff.outcome")),
        (submitted.id.as_str(), "received")
    );

    let all = collector.spans();
    for name in [
        "gate.json",
        "gate.signature",
        "gate.schema",
        "gate.address",
        "gate.contract",
        "gate.completeness",
        "gate.budget",
        "gate.safety",
    ] {
        let found: Vec<_> = all.iter().filter(|span| ours(span) && span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(chain(&all, found[0]), [name, "handoff.submit", "POST /handoffs"]);
        assert_eq!(found[0].attribute("error.type"), "");
    }
    let chains: Vec<_> = all
        .iter()
        .filter(|span| {
            ours(span)
                && ["gate.key", "ledger.commit", "ledger.batch"].contains(&span.name.as_str())
        })
        .map(|span| (span.attribute("handoff.command").to_owned(), chain(&all, span)))
        .collect();
    let verdict = "POST /handoffs/{handoffId}/accept";
    let deliver = ["POST", "deliver b", "handoff.submit", "POST /handoffs"];
    for (command, expected) in [
        ("", vec!["gate.key", "POST /handoffs"]),
        ("submit", vec!["ledger.commit", "handoff.submit", "POST /handoffs"]),
        ("", vec!["ledger.batch", "ledger.commit", "handoff.submit", "POST /handoffs"]),
        ("settle", [&["ledger.commit"][..], &deliver[1..]].concat()),
        ("", [&["gate.key", verdict][..], &deliver[..]].concat()),
        ("verdict", [&["ledger.commit", verdict][..], &deliver[..]].concat()),
    ] {
        let is = |one: &&(String, Vec<String>)| one.0 == command && one.1 == expected;
        assert_eq!(chains.iter().filter(is).count(), 1, "{command} {expected:?} in {chains:#?}");
    }
    for span in &all {
        let shown = format!("{span:?}");
        for secret in ["in-the-url", "Read the contract", "contract-7", &world.sender_key] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    let (by, not_by) = if protocol.1 == "grpc" { ("grpc", "http") } else { ("http", "grpc") };
    assert!(collector.requests(by) > 0 && collector.requests(not_by) == 0);
    broker.stop().await;
    site.verify().await;
}

pub async fn a_handoff_is_one_trace_over_http(site: Arc<Site>) {
    one_trace(site, "http/protobuf").await;
}

pub async fn a_handoff_is_one_trace_over_grpc(site: Arc<Site>) {
    one_trace(site, "grpc").await;
}

pub async fn without_a_header_the_message_says_the_trace(site: Arc<Site>) {
    let collector = Collector::start().await;
    let gen_ai = ("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental");
    let broker = Broker::start(&site, &exporting(&collector.url, &[gen_ai])).await;
    let receiver =
        Receiver::start(200, json!({ "status": "REJECTED", "reason": "NOT_MINE" })).await;
    let world = World::new(&broker, vec![("b", Takes::Webhook(receiver.url.clone(), 8))]).await;
    let mut body = new("b");
    body["tracestate"] = json!(" vendor=1 ,");
    body["conversationId"] = json!("conversation-9");
    // Neither of these is a trace context: a state counts for nothing without its parent.
    let headers = [("traceparent", "00-zz"), ("tracestate", STATE)];
    assert_eq!(submit(&broker, &world, &body, &headers).await, 202);
    let got = receiver.delivery(0).await;
    assert_eq!(text(&got, "tracestate"), "vendor=1");
    assert!(text(&got, "traceparent").contains(MESSAGE_TRACE), "{got:?}");

    let invoked = collector.span("the delivery", |span| span.name == "invoke_agent b").await;
    assert_eq!((invoked.kind, invoked.attribute("handoff.outcome")), (3, "rejected"));
    for (name, value) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.id", "b"),
        ("gen_ai.provider.name", "handoffd"),
        ("gen_ai.conversation.id", "conversation-9"),
    ] {
        assert_eq!(invoked.attribute(name), value, "{name}");
    }
    let submitted = collector.span("the submission", |span| span.name == "handoff.submit").await;
    assert_eq!(
        (submitted.trace.as_str(), submitted.parent.as_str()),
        (MESSAGE_TRACE, "00f067aa0ba902b7")
    );
    assert_eq!(invoked.parent, submitted.id);
    // The request is a trace of its own, and the submission says which.
    let (trace, id) = submitted.links[0].clone();
    let request = collector.span("the request", |span| span.name == "POST /handoffs").await;
    assert_eq!((trace.as_str(), id.as_str()), (request.trace.as_str(), request.id.as_str()));
    assert_ne!(request.trace, MESSAGE_TRACE);

    // All zero: the schema lets it pass, and it is not a trace context. A new trace begins.
    let mut body = new("b");
    body["traceparent"] = json!(format!("00-{}-{PARENT}-01", "0".repeat(32)));
    body["tracestate"] = json!(STATE);
    assert_eq!(submit(&broker, &world, &body, &[]).await, 202);
    let got = receiver.delivery(1).await;
    assert_eq!(text(&got, "tracestate"), "");
    let begun = text(&got, "traceparent").split('-').nth(1).unwrap().to_owned();
    assert!(begun != "0".repeat(32) && begun != MESSAGE_TRACE, "{begun}");

    // A refusal names its stage by a code.
    let mut body = new("b");
    body["toAgent"] = json!({ "agentId": "nobody" });
    assert_eq!(submit(&broker, &world, &body, &[]).await, 403);
    let refused = collector
        .span("the refusal", |span| {
            span.name == "handoff.submit" && span.attribute("error.type") == "FORBIDDEN"
        })
        .await;
    let stage = collector
        .span("its stage", |span| span.name == "gate.address" && span.parent == refused.id)
        .await;
    assert_eq!(stage.attribute("error.type"), "FORBIDDEN");
    broker.stop().await;
    site.verify().await;
}

pub async fn a_trace_goes_on_after_a_restart(site: Arc<Site>) {
    let collector = Collector::start().await;
    let settings = exporting(&collector.url, &[("HANDOFFD_DELIVERY__RETRY_CAP_MS", "100")]);
    let broker = Broker::start(&site, &settings).await;
    let receiver = Receiver::start(503, json!({})).await;
    let world = World::new(&broker, vec![("b", Takes::Webhook(receiver.url.clone(), 8))]).await;
    let body = new("b");
    let came = format!("00-{TRACE}-{PARENT}-03");
    assert_eq!(
        submit(&broker, &world, &body, &[("traceparent", came.as_str()), ("tracestate", STATE)])
            .await,
        202
    );
    receiver.delivery(0).await;
    let submitted = collector.span("the submission", |span| span.name == "handoff.submit").await;
    let busy = collector.span("its first request", |span| span.name == "POST").await;
    assert!(busy.failed && busy.attribute("http.response.status_code") == "503", "{busy:?}");
    broker.kill().await;

    receiver.answers(200, json!({ "status": "ACCEPTED" }));
    let before = receiver.at.seen.lock().unwrap().len();
    let broker = Broker::start(&site, &settings).await;
    let got = receiver.delivery(before).await;
    let deliver = collector
        .span("the delivery", |span| {
            span.name == "deliver b" && span.attribute("handoff.outcome") == "accepted"
        })
        .await;
    assert_eq!((deliver.trace.as_str(), deliver.parent.as_str()), (TRACE, submitted.id.as_str()));
    let post = collector
        .span("its request", |span| span.parent == deliver.id && span.name == "POST")
        .await;
    // The random flag goes on with it.
    assert_eq!(text(&got, "traceparent"), format!("00-{}-03", post.place()));
    assert_eq!(text(&got, "tracestate"), STATE);
    assert_ne!(post.attribute("http.request.resend_count"), "");
    broker.stop().await;
    site.verify().await;
}

pub async fn what_is_not_sampled_is_not_exported_and_goes_on(site: Arc<Site>) {
    let collector = Collector::start().await;
    let sampler = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let broker = Broker::start(&site, &exporting(&collector.url, &sampler)).await;
    let receiver = Receiver::start(200, json!({ "status": "ACCEPTED" })).await;
    let world = World::new(&broker, vec![("b", Takes::Webhook(receiver.url.clone(), 8))]).await;
    let came = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", came.as_str()), ("tracestate", STATE)];
    assert_eq!(submit(&broker, &world, &new("b"), &headers).await, 202);
    let got = receiver.delivery(0).await;
    let sent: Vec<_> = text(&got, "traceparent").split('-').collect();
    assert_eq!((sent[1], sent[3], text(&got, "tracestate")), (TRACE, "00", STATE));
    assert_ne!(sent[2], PARENT);
    // All that it would have exported leaves when it stops.
    broker.stop().await;
    assert_eq!(collector.spans().len(), 0);
    site.verify().await;
}

/// A queue of 16 spans and a collector that takes the connection and never says a word.
pub async fn a_collector_that_hangs_holds_nothing_up(site: Arc<Site>) {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hangs = format!("http://{}", silent.local_addr().unwrap());
    let receiver = Receiver::start(200, json!({ "status": "ACCEPTED" })).await;
    let mut world = None;
    let mut due = 0;
    for (protocol, at) in [
        ("http/protobuf", hangs.as_str()),
        ("grpc", hangs.as_str()),
        ("grpc", "http://127.0.0.1:9"),
    ] {
        let small = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "16"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "120000"),
        ];
        let broker = Broker::start(&site, &exporting(at, &small)).await;
        if world.is_none() {
            let takes = Takes::Webhook(receiver.url.clone(), 8);
            world = Some(World::new(&broker, vec![("b", takes)]).await);
        }
        let world = world.as_ref().unwrap();
        let began = tokio::time::Instant::now();
        for _ in 0..50 {
            assert_eq!(submit(&broker, world, &new("b"), &[]).await, 202);
        }
        due += 50;
        until(Duration::from_secs(90), "all are delivered", async || {
            usize::saturating_sub(due, receiver.at.seen.lock().unwrap().len())
        })
        .await;
        // An export waits two minutes for its answer; no request waits for the export.
        assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
        eprintln!("{:?} {protocol}: 50 handoffs in {:?}", site.side, began.elapsed());
        let stopping = tokio::time::Instant::now();
        broker.stop().await;
        assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
    }
    site.verify().await;
}
