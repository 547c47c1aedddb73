//! A place beyond the end: refused with the head, by each operation that takes one (finding D5 of 0.3.0).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::message::Message;

/// Names of parameters that are places: in lists, feeds, streams, logs and conversations.
const PLACES: [&str; 11] = [
    "from",
    "to",
    "after",
    "before",
    "since",
    "cursor",
    "seq",
    "Last-Event-ID",
    "leafIndex",
    "treeSize",
    "pageToken",
];

/// Those that name one thing, or bound a page, in place of a place to go on from: 404, or cut.
const OTHERS: [&str; 2] =
    ["GET /handoffs/{handoffId}/history to", "GET /tasks/{taskId}/checkpoints/{executionId} seq"];

/// Each operation that takes a place, by the API's own document, as `METHOD path parameter`.
fn operations() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                // A window of times filters a list: one in the future is empty.
                let window =
                    ["from", "to"].contains(&name) && parameter["schema"]["type"] == "string";
                if parameter["in"] != "path" && PLACES.contains(&name) && !window {
                    found.push(format!("{} {path} {name}", method.to_uppercase()));
                }
            }
        }
    }
    found.retain(|one| !OTHERS.contains(&one.as_str()));
    found.sort();
    found
}

/// A cursor of a time that has not come.
fn tomorrow() -> String {
    let at = i64::MAX / 4;
    URL_SAFE_NO_PAD.encode(format!("{at}:0193a6c8-5b1c-7c4e-8f00-0242ac120002"))
}

both! {
    async fn a_place_ahead_of_what_there_is_is_refused_with_the_head_by_each_operation(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let stored = Message::initial("a", "b");
        let run = stored["fromAgent"]["executionId"].as_str().unwrap().to_owned();
        a.api.put(&format!("{}/checkpoints/{run}", stored.task_path()), &json!({ "step": 1 })).await.expect(200);
        let opening = Message::initial("a", "b").set("/schemaVersion", json!("2.2")).set("/stream", json!({ "open": true }));
        a.submit(&opening).await.expect(202);
        let chunk = json!({ "seq": 1, "append": { "/conversationHistoryVerbatim": [{ "role": "tool", "content": "x" }] } });
        a.api.post(&format!("{}/chunks", opening.path()), &chunk).await.expect(200);
        let hook = broker.saying(vec![]).await;
        let made = broker.admin.post("/subscriptions", &json!({ "url": hook.url })).await.expect(201).body;
        hook.trust(made["secret"].as_str().unwrap());
        let subscription = made["subscriptionId"].as_str().unwrap().to_owned();
        let cursor = tomorrow();
        let checkpoint = URL_SAFE_NO_PAD.encode(format!("{}:{run}:1", i64::MAX / 4));
        let task = message.task_path();
        // The request, and whether the answer names a head: an id among ids has none.
        let asked = |operation: &str| -> (String, Option<(&str, String)>, bool) {
            let query = |path: String| (path, None, true);
            match operation {
                "GET /audit/proofs/consistency from" => query("/audit/proofs/consistency?from=9999".to_owned()),
                "GET /audit/proofs/consistency to" => query("/audit/proofs/consistency?from=1&to=9999".to_owned()),
                "GET /audit/proofs/inclusion leafIndex" => query("/audit/proofs/inclusion?leafIndex=9999".to_owned()),
                "GET /audit/proofs/inclusion treeSize" => query("/audit/proofs/inclusion?leafIndex=0&treeSize=9999".to_owned()),
                "GET /audit/records from" => query("/audit/records?from=9999".to_owned()),
                "GET /dead-letters cursor" => query(format!("/dead-letters?cursor={cursor}")),
                "GET /escalations cursor" => query(format!("/escalations?cursor={cursor}")),
                "GET /events since" => query("/events?since=9999.0&wait=60".to_owned()),
                "GET /handoffs cursor" => query(format!("/handoffs?cursor={cursor}")),
                "GET /handoffs/{handoffId}/chunks from" => query(format!("{}/chunks?from=99&wait=60", opening.path())),
                "GET /handoffs/{handoffId}/chunks Last-Event-ID" => (format!("{}/chunks", opening.path()), Some(("last-event-id", "99".to_owned())), true),
                "GET /handoffs/{handoffId}/history from" => query(format!("{}/history?from=9999", message.path())),
                "GET /attention cursor" => ("/attention?cursor=zzzz".to_owned(), None, false),
                "GET /receivers cursor" => ("/receivers?cursor=zzzz".to_owned(), None, false),
                "GET /erasures cursor" => ("/erasures?cursor=zzzz".to_owned(), None, false),
                "GET /legal-holds cursor" => ("/legal-holds?cursor=zzzz".to_owned(), None, false),
                "GET /subscriptions/{subscriptionId}/deliveries before" => query(format!("/subscriptions/{subscription}/deliveries?before=9999")),
                "GET /tasks cursor" => query(format!("/tasks?cursor={cursor}")),
                "GET /tasks/{taskId}/checkpoints cursor" => query(format!("{}/checkpoints?cursor={checkpoint}", stored.task_path())),
                "GET /tasks/{taskId}/trace cursor" => query(format!("{task}/trace?cursor={}", URL_SAFE_NO_PAD.encode("trace:9999"))),
                "GET /tasks/{taskId}/events Last-Event-ID" => (format!("{task}/events"), Some(("last-event-id", "9999.0".to_owned())), true),
                other => match other.strip_suffix(" cursor").and_then(|one| one.strip_prefix("GET ")) {
                    Some(path) if !path.contains('{') => query(format!("{path}?cursor={cursor}")),
                    _ => panic!("{other} takes a place: say here how it refuses one that is ahead"),
                },
            }
        };
        let operations = operations();
        assert!(operations.len() >= 17, "{operations:?}");
        for operation in &operations {
            let (path, header, has_head) = asked(operation);
            let headers: Vec<(&str, &str)> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut request = broker.admin.request(reqwest::Method::GET, &path);
            if operation.contains("/chunks Last-Event-ID") {
                request = request.header("accept", "text/event-stream");
            }
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let body: Value = if status == 400 { response.json().await.unwrap() } else { Value::Null };
            assert_eq!((status, &body["code"]), (400, &json!("INVALID_REQUEST")), "{operation}: {body}");
            assert_eq!(body["head"].is_string(), has_head, "{operation}: {body}");
        }
        let replay = broker.admin.post(&format!("/subscriptions/{subscription}/replay"), &json!({ "since": "9999.0" })).await;
        assert!(replay.refused(400, "INVALID_REQUEST").body["head"].is_string());
        let future = broker.admin.get("/events?since=2999-01-01T00:00:00Z").await.refused(400, "INVALID_REQUEST");
        assert!(future.body["head"].as_str().unwrap().starts_with("20"));
        // The places that the broker gives out, and the one right behind the last, are taken.
        let page = broker.admin.get("/handoffs?limit=1").await.expect(200).body;
        let next = page["nextCursor"].as_str().unwrap();
        broker.admin.get(&format!("/handoffs?cursor={next}")).await.expect(200);
        // The place of one list is none of another. One without a list's name, as 0.3.0 gave out, is taken.
        for list in ["/tasks", "/dead-letters", "/escalations", "/refusals", "/sessions", "/attention", "/legal-holds"] {
            let refused = broker.admin.get(&format!("{list}?cursor={next}")).await.refused(400, "INVALID_REQUEST");
            let detail = refused.body["detail"].as_str().unwrap().to_owned();
            let name = list.trim_start_matches('/');
            assert!(detail.contains("is one of handoffs") && detail.contains(name), "{list}: {detail}");
        }
        let checkpoints = format!("{}/checkpoints?cursor={next}", stored.task_path());
        broker.admin.get(&checkpoints).await.refused(400, "INVALID_REQUEST");
        let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(next).unwrap()).unwrap();
        let older = URL_SAFE_NO_PAD.encode(plain.strip_prefix("handoffs:").unwrap());
        for list in ["/tasks", "/handoffs"] {
            broker.admin.get(&format!("{list}?cursor={older}")).await.expect(200);
        }
        let feed = broker.admin.get("/events").await.expect(200).body;
        broker.admin.get(&format!("/events?since={}", feed["nextCursor"].as_str().unwrap())).await.expect(200);
        let size = broker.log_size().await;
        broker.admin.get(&format!("/audit/records?from={size}")).await.expect(200);
        let refused = broker.admin.get(&format!("{}/chunks?from=99", opening.path())).await.refused(400, "INVALID_REQUEST");
        let head = refused.body["head"].as_str().unwrap();
        assert_eq!(head, "2", "one chunk came");
        broker.admin.get(&format!("{}/chunks?from={head}", opening.path())).await.expect(200);
        b.claim(10).await;
    }
}
