//! A clear verdict beside what cannot be read: the verdict holds on each channel, and the record says what was not kept
//! (finding D1 of 0.3.0).

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

use handoffd_domain::canonical::CanonicalObject;
use handoffd_gate::signature;

use crate::harness::{Broker, until};
use crate::message::Message;
use crate::receiver::bare;
use crate::transport_redis::{AGENTS_STREAM, REPLIES, Server, entries, pair, reply, send, series};

/// Members beside a verdict, and the note about each.
fn beside() -> Vec<(Vec<u8>, &'static str)> {
    let deep = format!(r#""details":{}{}"#, "[".repeat(2_000), "]".repeat(2_000));
    vec![
        (br#""details":"half \ud83d""#.to_vec(), "LONE_SURROGATE"),
        (br#""details":NaN"#.to_vec(), "NO_VALUE"),
        (b"\"details\":\"caf\xe9\"".to_vec(), "NOT_UTF8"),
        (deep.into_bytes(), "NESTING"),
        (br#""details":1,"details":2"#.to_vec(), "REPEATED"),
    ]
}

fn body(verdict: &str, beside: &[u8]) -> Vec<u8> {
    let comma: &[u8] = if verdict.is_empty() { b"" } else { b"," };
    [b"\xef\xbb\xbf{", verdict.as_bytes(), comma, beside, b"}"].concat()
}

/// The first note in the content of the handoff's record of a kind.
async fn noted(broker: &Broker, message: &Message, kind: &str) -> Value {
    let trace = broker.trace(message).await;
    let records = trace["records"].as_array().unwrap();
    let record = records.iter().find(|record| record["kind"] == kind).unwrap();
    record["content"]["handoffd"]["unreadable"][0]["why"].clone()
}

both! {
    async fn a_webhooks_clear_answer_holds_and_its_record_says_what_was_not_kept(broker: Broker) {
        let answers = |verdict: &str| {
            let verdict = verdict.to_owned();
            beside().into_iter().map(move |(beside, _)| {
                Response::builder().status(200).body(Body::from(body(&verdict, &beside))).unwrap()
            })
        };
        let script: Vec<_> =
            answers(r#""status":"REJECTED","reason":"NO""#).chain(answers(r#""status":"ACCEPTED""#)).collect();
        let (a, _, receiver) = broker.pair(script).await;
        for (status, kind) in [("REJECTED", "REJECTED"), ("ACCEPTED", "ACCEPTED")] {
            for (_, why) in beside() {
                let message = Message::initial("a", "b");
                let said = a.submit_and_wait(&message).await.expect(200);
                assert_eq!(said.body["status"], status, "{why}");
                assert_eq!(noted(broker, &message, kind).await, why);
                let page = a.api.get(&format!("{}?include=verdict", message.path())).await.expect(200);
                assert_eq!(page.body["verdict"]["handoffd"]["unreadable"][0]["why"], why);
            }
        }
        assert_eq!(receiver.all().len(), 10, "one attempt each");
    }

    async fn a_clear_callback_holds_and_is_warned_of_what_was_not_kept(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for (beside, why) in beside() {
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            let mut whole = body(&format!(r#""fencingToken":{token}"#), &beside);
            let said = b.api.raw(&format!("{}/reject", message.path()), whole.clone()).await.expect(200);
            assert_eq!(said.body["status"], "REJECTED", "{why}");
            let warning = &said.body["warnings"][0];
            assert_eq!(warning["code"], "UNREADABLE", "{why}");
            assert!(warning["pointer"].as_str().unwrap().starts_with("/details"), "{why}: {warning}");
            assert_eq!(noted(broker, &message, "REJECTED").await, why);
            // The same again says nothing new.
            let again = b.api.raw(&format!("{}/reject", message.path()), whole.clone()).await.expect(200);
            assert_eq!(again.body["warnings"].as_array().map(Vec::len), Some(1), "{again:?}");
            // Broken structure is refused with its place.
            whole.pop();
            b.api.raw(&format!("{}/reject", message.path()), whole).await.refused(400, "SCHEMA_INVALID");
        }
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        let path = |verb: &str| format!("{}/{verb}", message.path());
        let two = format!(r#"{{"fencingToken":{token},"fencingToken":{}}}"#, token + 1);
        assert_eq!(b.api.raw(&path("accept"), two).await.expect(422).pointers(), ["/fencingToken"]);
        let own = json!({ "fencingToken": token, "handoffd": { "unreadable": "forged" } });
        let said = b.api.post(&path("accept"), &own).await.expect(200);
        assert_eq!((&said.body["warnings"][0]["code"], &said.body["warnings"][0]["pointer"]), (&json!("WITHOUT_EFFECT"), &json!("/handoffd")));
        let cost = format!(r#"{{"fencingToken":{token},"result":"x\udc00","costTracking":{{"costSpentSoFarUSD":Infinity}}}}"#);
        let said = b.api.raw(&path("complete"), cost).await.expect(200);
        assert_eq!(said.body["status"], "COMPLETED");
        let page = broker.handoff_becomes(&message, "COMPLETED").await;
        assert_eq!(page["result"], "x\u{fffd}");
    }

    async fn a_clear_verdict_at_the_sw4rm_door_holds_and_its_record_says_what_was_not_kept(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for (beside, why) in beside() {
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            let path = format!("/adapters/sw4rm{}/reject", message.path());
            let whole = body(&format!(r#""fencing_token":{token},"rejection_reason":"NO""#), &beside);
            let said = b.api.raw(&path, whole).await.expect(200).body;
            assert_eq!((&said["status"], &said["rejection_reason"]), (&json!("REJECTED"), &json!("NO")), "{why}: {said}");
            assert_eq!(noted(broker, &message, "REJECTED").await, why);
        }
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        let twice = format!(r#"{{"fencing_token":{token},"fencing_token":7}}"#);
        let path = format!("/adapters/sw4rm{}/accept", message.path());
        b.api.raw(&path, twice).await.refused(422, "SCHEMA_INVALID");
    }

    async fn a_clear_signed_reply_holds_whatever_stands_beside_it(broker: Broker) {
        let server = Server::start("").await;
        let (a, b) = pair(broker, &server, json!({ "replyTo": REPLIES })).await;
        let mut redis = server.connect().await;
        let hand_off = async |sent: usize| {
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            let entry = entries(&mut server.connect().await, AGENTS_STREAM, sent).await.remove(sent - 1);
            (message, entry)
        };
        // As JavaScript signs half a character: its escape.
        let (message, entry) = hand_off(1).await;
        let plain = reply(&b, &entry, "reject", json!({ "reason": "HALF" }));
        let text = CanonicalObject::from_value(&plain).unwrap().without(&["signature"]);
        let text = String::from_utf8(text).unwrap().replace("HALF", r"half \ud83d");
        let tag = tag(text.as_bytes(), &b.signing_secret);
        let whole = text.replacen('{', &format!("\u{feff}{{\"signature\":\"{tag}\","), 1);
        send(&mut redis, REPLIES, &whole).await;
        let page = broker.handoff_becomes(&message, "REJECTED").await;
        assert_eq!(page["reason"], "half \u{fffd}");
        assert_eq!(noted(broker, &message, "REJECTED").await, "LONE_SURROGATE");
        // A value of another form than its member's undoes nothing either: a queue's sender would not see a refusal.
        let (message, entry) = hand_off(2).await;
        let odd = json!({ "reason": { "code": 7 } });
        send(&mut redis, REPLIES, &reply(&b, &entry, "reject", odd).to_string()).await;
        assert_eq!(broker.handoff_becomes(&message, "REJECTED").await["reason"], r#"{"code":7}"#);
        let (message, entry) = hand_off(3).await;
        let odd = json!({ "result": 7, "iterations": "three", "costTracking": { "costSpentSoFarUSD": "0.5" } });
        send(&mut redis, REPLIES, &reply(&b, &entry, "complete", odd).to_string()).await;
        assert_eq!(broker.handoff_becomes(&message, "COMPLETED").await["result"], 7);
        assert_eq!(noted(broker, &message, "COMPLETED").await, "FORM");
        let taken = "handoff_replies_total{result=\"taken\",transport=\"redis\"}";
        until("all are counted", async || match series(broker, taken).await {
            3 => Ok(()),
            count => Err(format!("{count} taken")),
        })
        .await;
    }

    async fn an_answer_that_is_compressed_though_none_asked_for_it_is_read(broker: Broker) {
        let coded = |name: &str, bytes: Vec<u8>| {
            Response::builder().status(200).header("content-encoding", name).body(Body::from(bytes)).unwrap()
        };
        let plain = json!({ "status": "REJECTED", "reason": "NO" }).to_string();
        let gzip = {
            use std::io::Write as _;
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(plain.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = zstd::encode_all(plain.as_bytes(), 3).unwrap();
        let script = vec![coded("gzip", gzip.clone()), coded("zstd", zstd), coded("x-gzip", gzip), bare(200)];
        let (a, _, receiver) = broker.pair(script).await;
        for status in ["REJECTED", "REJECTED", "REJECTED", "ACCEPTED"] {
            let said = a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
            assert_eq!(said.body["status"], status);
        }
        assert!(receiver.all().iter().all(|got| got.header("accept-encoding") == "identity"));
    }
}

/// A signature over bytes that no value canonicalises to.
fn tag(canonical: &[u8], secret: &str) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(canonical);
    format!("{}{}", signature::PREFIX, hex::encode(mac.finalize().into_bytes()))
}
