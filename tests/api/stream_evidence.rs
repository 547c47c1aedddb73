//! Handoffs in pieces beside redaction, retention, blame, cost, and the size of their result.

use handoffd_evidence::bundle::{VerifyOptions, verify};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Answer, Broker};
use crate::message::Message;

const PLANTED: &str = "planted-in-a-chunk-7141";

/// Made here, so that no file holds what looks like one.
fn credential() -> String {
    format!("ghp_{}", "a1B2c3D4e5F6g7H8i9".repeat(2))
}

fn opening(message: Message) -> Message {
    message.set("/schemaVersion", json!("2.2")).set("/stream", json!({ "open": true }))
}

async fn add(agent: &Agent, message: &Message, chunk: &Value) -> Answer {
    agent.api.post(&format!("{}/chunks", message.path()), chunk).await
}

fn turn(seq: i64, content: &str) -> Value {
    let turns = json!([{ "role": "tool", "content": content }]);
    json!({ "seq": seq, "append": { "/conversationHistoryVerbatim": turns } })
}

fn closing(mut chunk: Value) -> Value {
    chunk["close"] = json!(true);
    chunk
}

/// A sender, a receiver that accepted before the close, and its token.
async fn taken(broker: &Broker, message: Message) -> (Agent, Agent, Message, i64) {
    let (a, b) = (broker.pull("a", &["b"]).await, broker.pull("b", &["c"]).await);
    let message = opening(message);
    a.submit(&message).await.expect(202);
    let token = b.claim_one().await;
    b.say(&message, "accept", token, json!({})).await.expect(200);
    (a, b, message, token)
}

async fn whole(broker: &Broker, message: &Message) -> Value {
    let path = format!("{}?include=message", message.path());
    broker.admin.get(&path).await.expect(200).body["message"].clone()
}

async fn bundled(broker: &Broker, message: &Message) -> handoffd_evidence::bundle::BundleReport {
    let path = format!("{}/trace?format=bundle", message.task_path());
    let zip = broker.admin.request(Method::GET, &path).send().await.unwrap().bytes().await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &zip).unwrap();
    verify(file.path(), &VerifyOptions::default()).unwrap()
}

async fn verified(broker: &Broker) -> String {
    let done = broker.command(&["verify"]).await;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

both! {
    with [("HANDOFFD_REDACTION__POINTERS", "/**/ssn, /currentState/secret, /taskSummary, /conversationHistoryVerbatim/7/content"), ("HANDOFFD_REDACTION__SECRETS", "redact")]
    async fn what_a_policy_names_is_in_no_chunk_and_the_close_changes_nothing(broker: Broker) {
        let gone = json!("[REDACTED:policy]");
        let first = Message::initial("a", "b")
            .set("/currentState/secret", json!({ "x": PLANTED }))
            .set("/taskSummary", json!(PLANTED));
        let (a, b, message, token) = taken(broker, first).await;
        let chunk = json!({ "seq": 1,
            "set": { "/currentState/people": [{ "ssn": PLANTED, "n": 1 }], "/currentState/more": { "ssn": PLANTED } },
            "append": { "/taskSummary": [PLANTED, PLANTED], "/relevantContext": [] } });
        add(&a, &message, &chunk).await.expect(200);
        // A place in the whole list is not a place in a chunk: each appended turn is taken for it.
        add(&a, &message, &turn(2, PLANTED)).await.expect(200);
        let secret = json!({ "seq": 3, "set": { "/currentState/note": format!("Clone with {} and review", credential()) } });
        let warned = add(&a, &message, &secret).await.expect(200).body;
        assert!(!warned.to_string().contains(&credential()), "{warned}");
        // A replaced value takes no members: they would stay as they are.
        for chunk in [
            json!({ "seq": 4, "set": { "/currentState/secret/y": PLANTED } }),
            json!({ "seq": 4, "append": { "/currentState/secret/list": [PLANTED] } }),
        ] {
            let refused = add(&a, &message, &chunk).await.refused(422, "SCHEMA_INVALID");
            assert!(refused.text.contains("redaction replaces"), "{}", refused.text);
            assert!(!refused.text.contains(PLANTED));
        }
        // The same chunk again is answered as before, though its values are not kept.
        let again = add(&a, &message, &chunk).await.expect(200).body;
        assert_eq!(again["replayed"], 1, "{again}");
        add(&a, &message, &json!({ "seq": 4, "close": true })).await.expect(200);
        let whole = whole(broker, &message).await;
        assert_eq!(whole["currentState"]["people"], json!([{ "ssn": gone, "n": 1 }]));
        assert_eq!((&whole["currentState"]["more"]["ssn"], &whole["taskSummary"]), (&gone, &gone));
        assert_eq!(whole["currentState"]["secret"], json!({ "$redacted": "policy" }));
        assert_eq!(whole["currentState"]["note"], "Clone with [REDACTED:github-token] and review");
        assert_eq!(whole["conversationHistoryVerbatim"].as_array().unwrap().last().unwrap()["content"], gone);
        let page = b.api.get(&format!("{}/chunks", message.path())).await.expect(200).text;
        for text in [&page, &whole.to_string(), &broker.trace(&message).await.to_string()] {
            assert!(!text.contains(PLANTED) && !text.contains(&credential()), "{text}");
        }
        b.say(&message, "complete", token, json!({ "result": 1 })).await.expect(200);
        verified(broker).await;
        assert_eq!(bundled(broker, &message).await.first_fault, None);
        assert_eq!(broker.trace(&message).await["verification"]["ok"], true);
    }

    async fn what_is_past_its_time_takes_the_chunks_and_the_log_still_verifies(broker: Broker) {
        let (a, b, message, token) = taken(broker, Message::initial("a", "b")).await;
        add(&a, &message, &turn(1, PLANTED)).await.expect(200);
        let purge = async || {
            let done = broker.command(&["--output", "json", "purge", "--before", "2999-01-01T00:00:00Z"]).await;
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let said: Value = serde_json::from_slice(&done.stdout).unwrap();
            said["tenants"][0]["taken"].clone()
        };
        assert_eq!(purge().await["contents"], 0, "an open stream is kept");
        add(&a, &message, &closing(turn(2, "the last"))).await.expect(200);
        assert_eq!(purge().await["contents"], 0, "a handoff that is not at its end too");
        b.say(&message, "complete", token, json!({ "result": PLANTED })).await.expect(200);
        let read = b.api.get(&format!("{}/chunks", message.path())).await.expect(200);
        assert!(read.text.contains(PLANTED));
        assert_eq!(purge().await["contents"], 5, "opening, two chunks, the whole message, the result");
        let page = b.api.get(&format!("{}/chunks", message.path())).await.expect(200);
        assert!(!page.text.contains(PLANTED), "{}", page.text);
        assert_eq!(page.body["items"].as_array().unwrap().len(), 2, "its numbers stay: {}", page.text);
        assert!(whole(broker, &message).await.is_null());
        let trace = broker.trace(&message).await;
        assert!(!trace.to_string().contains(PLANTED), "{trace}");
        assert_eq!((&trace["verification"]["ok"], &trace["verification"]["purged"]), (&json!(true), &json!(5)), "{trace}");
        assert!(verified(broker).await.contains("(5 erased)"));
        assert_eq!(bundled(broker, &message).await.first_fault, None);
        if let Some(path) = broker.url.strip_prefix("sqlite:") {
            for file in [path.to_owned(), format!("{path}-wal")] {
                let bytes = std::fs::read(&file).unwrap_or_default();
                let found = bytes.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes());
                assert!(!found, "{file}");
            }
        }
    }

    async fn a_value_of_a_chunk_is_blamed_on_the_sender_of_the_stream(broker: Broker) {
        let (a, b, message, _) = taken(broker, Message::initial("a", "b").cost(0.0, 5.0)).await;
        broker.pull("c", &[]).await;
        let ask = async |query: &str| {
            broker.admin.get(&format!("{}/blame?{query}", message.task_path())).await.expect(200).body
        };
        let verdict = json!({ "seq": 1, "set": { "/currentState/verdict": "sound" } });
        add(&a, &message, &verdict).await.expect(200);
        let open = ask("pointer=/currentState/verdict").await;
        assert_eq!(open["present"], false, "nothing counts as whole before the close: {open}");
        add(&a, &message, &json!({ "seq": 2, "close": true })).await.expect(200);
        let closed = ask("pointer=/currentState/verdict").await;
        assert_eq!((&closed["value"], &closed["writtenBy"]["fromAgent"]["agentId"]), (&json!("sound"), &json!("a")), "{closed}");
        let trace = broker.trace(&message).await;
        let record = trace["records"].as_array().unwrap().iter().find(|one| one["kind"] == "STREAM_CLOSED").unwrap();
        let writer = &closed["writtenBy"];
        assert_eq!((&record["leafIndex"], &record["recordHash"]), (&writer["leafIndex"], &writer["recordHash"]));
        // The next hop carries it over.
        let on = message.next("b", "c").cost(0.1, 4.0).set("/currentState/verdict", json!("sound"));
        b.submit(&on).await.expect(202);
        let later = ask("pointer=/currentState/verdict").await;
        assert_eq!((&later["handoffId"], &later["writtenBy"]["handoffId"]), (&on["handoffId"], &message["handoffId"]), "{later}");
        assert_eq!(later["verification"]["ok"], true);
        let stranger = ask(&format!("pointer=/currentState/verdict&handoff={}", message.id())).await;
        assert_eq!(stranger["value"], "sound");
    }

    async fn a_stream_costs_what_its_receiver_says_and_has_the_size_of_its_whole_message(broker: Broker) {
        let (a, b, message, token) = taken(broker, Message::initial("a", "b").cost(0.5, 2.0)).await;
        broker.pull("c", &[]).await;
        let small = a.api.get(&message.path()).await.expect(200).body["context"]["tokens"].as_u64().unwrap();
        for seq in 1..=10 {
            add(&a, &message, &turn(seq, &"one more page of what was found ".repeat(20))).await.expect(200);
        }
        // A chunk states no figures: what it cost is said by the sender's next message.
        let priced = json!({ "seq": 11, "set": { "/costTracking/costSpentSoFarUSD": 9 } });
        add(&a, &message, &priced).await.refused(422, "SCHEMA_INVALID");
        let cost = async || broker.admin.get(&format!("{}/cost", message.task_path())).await.expect(200).body;
        let before = cost().await;
        assert_eq!((&before["sums"]["spentUSD"], &before["sums"]["reservedUSD"]), (&json!(0.5), &json!(2.0)), "{before}");
        add(&a, &message, &json!({ "seq": 11, "close": true })).await.expect(200);
        let large = a.api.get(&message.path()).await.expect(200).body["context"]["tokens"].as_u64().unwrap();
        assert!(large > 3 * small, "{large} after {small}");
        let on = message.next("b", "c").cost(0.75, 1.0);
        b.submit(&on).await.expect(202);
        let trace = broker.trace(&message).await;
        let hops = trace["handoffs"].as_array().unwrap();
        assert_eq!(hops[0]["context"]["tokens"], large, "the trace has what it came to: {}", hops[0]);
        let growth = hops[1]["context"]["tokens"].as_i64().unwrap() - i64::try_from(large).unwrap();
        assert_eq!(hops[1]["context"]["growth"], growth);
        let said = json!({ "result": 1, "costTracking": { "costSpentSoFarUSD": 0.75 } });
        b.say(&message, "complete", token, said).await;
        let after = cost().await;
        assert_eq!(after["hops"].as_array().unwrap().len(), 2, "chunks are no hops: {after}");
        assert!((after["sums"]["spentUSD"].as_f64().unwrap() - 0.75).abs() < 1e-9, "{after}");
        assert_eq!(bundled(broker, &message).await.first_fault, None);
    }
}
