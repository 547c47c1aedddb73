//! Findings 5.1 and 5.2: bodies that are too large, and content codings both ways.

use std::io::Write;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, Caller, within};
use crate::message::Message;
use crate::receiver::decoded;

/// Writes a request to its last byte and only then reads: what came, up to the connection's end or the answer's.
async fn written_first(caller: &Caller, head: &str, body: &[u8]) -> String {
    let address = caller.base.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let key = caller.key.as_deref().unwrap();
    let head = format!(
        "POST /handoffs HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n{head}\r\n"
    );
    let writing = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await
    };
    within("the whole body", writing).await.expect("the client writes its whole body");
    within("the answer", answer(&mut stream)).await
}

/// One answer, up to the `}` that ends a problem.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while !text.ends_with(b"}") {
        match stream.read(&mut piece).await.expect("the answer is there to read") {
            0 => break,
            count => text.extend_from_slice(&piece[..count]),
        }
    }
    String::from_utf8(text).unwrap()
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in body.chunks(60_000) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

async fn coded(caller: &Caller, coding: &str, body: Vec<u8>) -> Answer {
    let request = caller.request(Method::POST, "/handoffs").header("content-encoding", coding);
    let sent = request.header("content-type", "application/json").body(body).send().await;
    Answer::read(sent.unwrap()).await
}

/// An answer as it came over the wire, and without its coding.
async fn asked(
    caller: &Caller,
    path: &str,
    accept: &str,
) -> (reqwest::header::HeaderMap, Vec<u8>, Vec<u8>) {
    let request = caller.request(Method::GET, path).header("accept-encoding", accept);
    let response = request.send().await.unwrap();
    let headers = response.headers().clone();
    let wire = response.bytes().await.unwrap().to_vec();
    let plain = decoded(&headers, &wire).expect("it decodes");
    (headers, wire, plain)
}

const LARGE: usize = 12 << 20;

both! {
    async fn f5_1_a_client_that_writes_first_reads_its_413(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let body = vec![b'x'; LARGE];
        for (head, body) in [
            (format!("Content-Length: {LARGE}\r\n"), body.clone()),
            ("Transfer-Encoding: chunked\r\n".to_owned(), chunked(&body)),
            (format!("Content-Length: {LARGE}\r\nExpect: 100-continue\r\n"), body.clone()),
        ] {
            let text = written_first(&a.api, &head, &body).await;
            assert!(text.starts_with("HTTP/1.1 413 "), "{head}{text}");
            assert!(text.contains("PAYLOAD_TOO_LARGE"), "{text}");
        }
        // Any answer that comes before the body was read, not the 413 alone.
        let stranger = broker.caller(Some("no key of ours"));
        let text = written_first(&stranger, &format!("Content-Length: {LARGE}\r\n"), &body).await;
        assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    }

    async fn f5_1_who_asks_for_leave_is_refused_before_a_byte_was_sent(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let head = format!("Content-Length: {LARGE}\r\nExpect: 100-continue\r\n");
        let text = written_first(&a.api, &head, b"").await;
        assert!(text.starts_with("HTTP/1.1 413 "), "no 100 came before: {text}");
        assert!(text.to_ascii_lowercase().contains("connection: close"), "{text}");
        // Leave is given where there is nothing against it.
        let message = Message::initial("a", "b").0.to_string();
        let head = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", message.len());
        let text = written_first(&a.api, &head, message.as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 100 Continue") && text.contains("HTTP/1.1 202 "), "{text}");
    }

    async fn f5_1_the_connection_serves_on_once_the_rest_is_dropped(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let address = a.api.base.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /handoffs HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGE}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        within("the body", stream.write_all(&vec![b'x'; LARGE])).await.unwrap();
        let first = within("an answer", answer(&mut stream)).await;
        assert!(first.starts_with("HTTP/1.1 401 "), "{first}");
        stream.write_all(b"GET /agents HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let second = within("an answer", answer(&mut stream)).await;
        assert!(second.starts_with("HTTP/1.1 401 "), "{second}");
    }

    with [("HANDOFFD_SERVER__DRAIN_BYTES", "1048576")]
    async fn f5_1_what_is_dropped_is_bounded(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let address = a.api.base.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = "POST /handoffs HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b'x'; 1 << 20];
        let mut sent = 0_u32;
        while within("a piece", stream.write_all(&piece)).await.is_ok() {
            sent += 1;
            assert!(sent < 512, "{sent} MiB were taken");
        }
    }

    async fn f5_2_a_coded_message_is_that_message(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for coding in ["gzip", "zstd", "x-gzip"] {
            let message = Message::initial("a", "b");
            let text = message.0.to_string();
            let body = match coding {
                "zstd" => zstd::encode_all(text.as_bytes(), 3).unwrap(),
                _ => gzip(text.as_bytes()),
            };
            coded(&a.api, coding, body).await.expect(202);
            let token = b.claim_one().await;
            b.say(&message, "accept", token, json!({})).await.expect(200);
        }
        // A large one takes its share of the budget, and a thread of its own.
        let message = Message::initial("a", "b").set("/currentState/text", json!("clause ".repeat(40_000)));
        coded(&a.api, "gzip", gzip(message.0.to_string().as_bytes())).await.expect(202);
        let claimed = b.claim(1).await;
        assert_eq!(claimed[0]["message"]["currentState"], message["currentState"]);
        let plain = Message::initial("a", "b").0.to_string().into_bytes();
        coded(&a.api, "identity", plain.clone()).await.expect(202);
        coded(&a.api, "gzip", plain).await.refused(400, "INVALID_REQUEST");
    }

    async fn f5_2_a_bomb_is_too_large_and_an_unknown_coding_is_told_the_known_ones(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let bomb = gzip(&vec![b' '; 11 << 20]);
        assert!(bomb.len() < 20_000);
        coded(&a.api, "gzip", bomb).await.refused(413, "PAYLOAD_TOO_LARGE");
        let bomb = zstd::encode_all(&vec![b' '; 11 << 20][..], 3).unwrap();
        coded(&a.api, "zstd", bomb).await.refused(413, "PAYLOAD_TOO_LARGE");
        for coding in ["br", "deflate", "gzip, gzip"] {
            let answer = coded(&a.api, coding, b"{}".to_vec()).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
            assert_eq!(answer.header("accept-encoding"), "zstd, gzip");
        }
        let plain = a.api.request(Method::POST, "/handoffs").header("content-type", "text/plain");
        let answer = Answer::read(plain.body("{}").send().await.unwrap()).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
        assert_eq!(answer.header("accept-encoding"), "", "its coding was not what was wrong");
    }

    async fn f5_2_answers_are_coded_for_who_asks(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b").set("/currentState/text", json!("clause ".repeat(40_000)));
        a.submit(&message).await.expect(202);
        let path = format!("{}?include=message", message.path());
        let trace = format!("/tasks/{}/trace", message["taskId"].as_str().unwrap());
        for path in [path, trace] {
            let (headers, _, plain) = asked(&a.api, &path, "identity").await;
            assert!(!headers.contains_key("content-encoding"));
            assert_eq!(headers["vary"], "accept-encoding");
            for coding in ["gzip", "zstd"] {
                let (headers, wire, text) = asked(&a.api, &path, &format!("{coding}, br;q=0.1")).await;
                assert_eq!(headers["content-encoding"], coding);
                assert!(wire.len() * 2 < plain.len(), "{} of {}", wire.len(), plain.len());
                let (text, plain): (Value, Value) =
                    (serde_json::from_slice(&text).unwrap(), serde_json::from_slice(&plain).unwrap());
                assert_eq!(text["handoffId"], plain["handoffId"]);
                assert_eq!(text["message"], plain["message"]);
                assert_eq!(text["records"], plain["records"]);
            }
        }
        let (headers, ..) = asked(&a.api, "/livez", "gzip").await;
        assert!(!headers.contains_key("content-encoding"), "too small to be worth it");
        let (headers, ..) = asked(&broker.caller(None), "/openapi.json", "gzip").await;
        assert_eq!(headers["content-encoding"], "gzip");
    }

    async fn f5_2_events_are_told_as_they_happen_whatever_the_client_takes(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let path = format!("/tasks/{}/events", message["taskId"].as_str().unwrap());
        let request = broker.admin.request(Method::GET, &path).header("accept-encoding", "gzip, zstd");
        let mut response = request.send().await.unwrap();
        assert!(!response.headers().contains_key("content-encoding"));
        let first = within("an event", response.chunk()).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("event:"), "{first:?}");
    }

    async fn f5_2_a_large_message_goes_coded_to_who_takes_it(broker: Broker) {
        for (number, coding) in ["gzip", "zstd"].into_iter().enumerate() {
            let (from, to) = (format!("a{number}"), format!("b{number}"));
            let hook = broker.saying(vec![]).await;
            let a = broker.pull(&from, &[&to]).await;
            let other = if coding == "gzip" { "zstd" } else { "gzip" };
            let made = broker
                .agent(json!({
                    "agentId": to,
                    "delivery": { "mode": "webhook", "url": hook.url, "acceptEncoding": [coding, other] },
                }))
                .await;
            hook.trust(&made.webhook_secret);
            let shown = broker.admin.get(&format!("/agents/{to}")).await.expect(200).body;
            assert_eq!(shown["delivery"]["acceptEncoding"], json!([coding, other]));
            // The receiver decodes first and then holds the signature against the document, as real ones do.
            let large = Message::initial(&from, &to).set("/currentState/text", json!("clause ".repeat(40_000)));
            a.submit_and_wait(&large).await.expect(200);
            let delivery = hook.next().await;
            assert_eq!(delivery.header("content-encoding"), coding);
            assert_eq!(delivery.body["currentState"], large["currentState"]);
            let small = Message::initial(&from, &to);
            a.submit_and_wait(&small).await.expect(200);
            assert_eq!(hook.next().await.header("content-encoding"), "");
        }
    }

    async fn f5_2_who_does_not_say_so_gets_large_messages_plain(broker: Broker) {
        let (a, _, hook) = broker.pair(vec![]).await;
        let large = Message::initial("a", "b").set("/currentState/text", json!("clause ".repeat(40_000)));
        a.submit_and_wait(&large).await.expect(200);
        assert_eq!(hook.next().await.header("content-encoding"), "");
        for (delivery, pointer) in [
            (json!({ "mode": "webhook", "url": hook.url, "acceptEncoding": ["br"] }), "/delivery/acceptEncoding/0"),
            (json!({ "mode": "webhook", "url": hook.url, "acceptEncoding": ["gzip", "gzip"] }), "/delivery/acceptEncoding"),
            (json!({ "mode": "pull", "acceptEncoding": ["gzip"] }), "/delivery/acceptEncoding"),
        ] {
            let answer = broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await;
            let answer = answer.refused(422, "SCHEMA_INVALID");
            assert_eq!(answer.pointers(), [pointer]);
        }
    }
}

both! {
    with [("HANDOFFD_SERVER__MAX_LARGE_BYTES", "10485760")]
    // Finding S5 of 0.3.0: half-sent bodies kept everybody else's out for as long as a body may take.
    async fn a_large_body_that_stalls_gives_its_place_to_another(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        broker.admin.put("/agents/b/handoff-targets", &json!(["a"])).await.expect(200);
        let address = broker.admin.base.strip_prefix("http://").unwrap();
        let mut stalled = TcpStream::connect(address).await.unwrap();
        let key = a.api.key.as_deref().unwrap();
        let head = format!(
            "POST /handoffs HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: 10485760\r\n\r\n"
        );
        stalled.write_all(head.as_bytes()).await.unwrap();
        stalled.write_all(&vec![b' '; 100 * 1024]).await.unwrap();
        crate::harness::until("the stalled body has all the room", async || {
            let held = broker.metric("handoff_pool_held").await;
            if held > 10_000 { Ok(()) } else { Err(held.to_string()) }
        })
        .await;
        let large = Message::initial("b", "a").set("/currentState/text", json!("clause ".repeat(40_000)));
        b.submit(&large).await.expect(202);
        let told = within("the answer to the stalled body", answer(&mut stalled)).await;
        assert!(told.starts_with("HTTP/1.1 408") && told.contains("stalled"), "{told}");
    }
}
