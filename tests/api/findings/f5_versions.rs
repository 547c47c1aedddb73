//! Findings 5.3 to 5.7: trace contexts, who may validate, versions of the schema and of agents, types.

use serde_json::{Value, json};

use crate::harness::Broker;
use crate::message::Message;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The answer of this caller's dry run, which writes nothing.
async fn dry(
    broker: &Broker,
    caller: &crate::harness::Caller,
    path: &str,
    message: &Value,
) -> Value {
    let before = broker.log_size().await;
    let answer = caller.post(path, message).await.expect(200);
    assert_eq!(broker.log_size().await, before, "a dry run writes nothing");
    answer.body
}

/// A message of schema 2.1 that uses nothing of it that a receiver of 2.0 would miss.
fn plain(from: &str, to: &str) -> Message {
    [
        "conversationId",
        "reason",
        "historyStrategy",
        "taskSummary",
        "maxIterations",
        "metadata",
        "extensions",
    ]
    .into_iter()
    .fold(Message::initial(from, to), |message, name| message.without(&format!("/{name}")))
}

both! {
    async fn f5_3_a_message_goes_on_in_its_trace_by_w3cs_rules(broker: Broker) {
        let (a, _, hook) = broker.pair(vec![]).await;
        for version in ["00", "01", "cc"] {
            let more = if version == "cc" { "-what-comes-later" } else { "" };
            let text = format!("{version}-{TRACE}-{PARENT}-01{more}");
            let message = Message::initial("a", "b").set("/traceparent", json!(text));
            let answer = a.submit(&message).await.expect(202);
            assert!(answer.body.get("warnings").is_none(), "{}", answer.text);
            let sent = hook.next().await;
            assert_eq!(&sent.header("traceparent")[..36], &format!("00-{TRACE}-"));
        }
        for zeros in [format!("00-{}-{PARENT}-01", "0".repeat(32)), format!("00-{TRACE}-{}-01", "0".repeat(16))] {
            let message = Message::initial("a", "b").set("/traceparent", json!(zeros));
            let answer = a.submit(&message).await.expect(202);
            assert_eq!(answer.body["warnings"][0]["code"], "TRACE_RESTARTED");
            assert_eq!(answer.body["warnings"][0]["pointer"], "/traceparent");
            let sent = hook.next().await;
            let sent = sent.header("traceparent").to_owned();
            assert!(sent.len() == 55 && !sent.contains(TRACE) && !sent.contains(&"0".repeat(16)), "{sent}");
        }
        for invalid in [format!("ff-{TRACE}-{PARENT}-01"), format!("00-{TRACE}-{PARENT}-01-more")] {
            let message = Message::initial("a", "b").set("/traceparent", json!(invalid));
            let answer = a.submit(&message).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(answer.pointers(), ["/traceparent"]);
        }
    }

    async fn f5_3_a_header_is_read_by_the_same_rules(broker: Broker) {
        let (a, _, hook) = broker.pair(vec![]).await;
        let other = "1".repeat(32);
        for (header, goes_on) in [
            (format!("00-{other}-{PARENT}-01"), true),
            (format!("fe-{other}-{PARENT}-01-later"), true),
            (format!("ff-{other}-{PARENT}-01"), false),
            (format!("00-{}-{PARENT}-01", "0".repeat(32)), false),
            (format!("00-{other}-{}-01", "0".repeat(16)), false),
        ] {
            let message = Message::initial("a", "b").set("/traceparent", json!(format!("00-{TRACE}-{PARENT}-01")));
            a.api.submit_with(&message, &[("traceparent", &header)]).await.expect(202);
            let trace = if goes_on { other.as_str() } else { TRACE };
            assert_eq!(&hook.next().await.header("traceparent")[3..35], trace, "{header}");
        }
    }

    async fn f5_4_a_receiver_validates_what_is_addressed_to_it(broker: Broker) {
        let (_, b) = broker.pull_pair().await;
        let stranger = broker.pull("c", &["b"]).await;
        let good = Message::review("a", "b");
        let path = "/handoffs/validate";
        assert_eq!(dry(broker, &b.api, path, &good).await, json!({ "valid": true }));
        let by_type = good.again().set("/toAgent", json!({ "agentType": "b", "agentVersion": "*" }));
        assert_eq!(dry(broker, &b.api, path, &by_type).await["valid"], true);
        let bad = good.again().set("/completedSubtasks", json!([])).cost(0.0, 0.0);
        let said = dry(broker, &b.api, path, &bad).await;
        assert_eq!((&said["valid"], &said["reason"]), (&json!(false), &json!("BUDGET_EXHAUSTED")));
        let invalid = good.again().without("/constraints").0;
        assert_eq!(dry(broker, &b.api, path, &invalid).await["reason"], "SCHEMA_INVALID");
        assert_eq!(dry(broker, &stranger.api, path, &good).await["reason"], "FORBIDDEN");
        // The receiver's own requirements count, not those of another agent of its type.
        broker.admin.patch("/agents/b", &json!({ "requiredState": ["invoice.id"] })).await.expect(200);
        let said = dry(broker, &b.api, path, &good).await;
        assert_eq!(said["reason"], "INCOMPLETE_CONTEXT");
    }

    async fn f5_4_a_receiver_validates_what_it_was_sent(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        // Signed over a checkpoint that no receiver gets, and a first handoff that is in the books now.
        let message = Message::initial("a", "b").set("/checkpoint", json!({ "step": 1 })).signed(&a.signing_secret);
        a.submit(&message).await.expect(202);
        let got = b.claim(1).await[0]["message"].clone();
        assert!(got.get("checkpoint").is_none() && got.get("signature").is_some());
        let path = "/handoffs/validate";
        assert_eq!(dry(broker, &b.api, path, &got).await, json!({ "valid": true }));
        broker.admin.patch("/agents/b", &json!({ "state": "BUSY" })).await.expect(200);
        assert_eq!(dry(broker, &b.api, path, &got).await["valid"], true, "it has the handoff already");
        let mut changed = got.clone();
        changed["currentState"]["documentId"] = json!("another");
        let said = dry(broker, &b.api, path, &changed).await;
        assert_eq!((&said["valid"], &said["reason"]), (&json!(false), &json!("CONFLICT")));
        assert_eq!(dry(broker, &broker.admin, &format!("{path}?as=b"), &got).await["valid"], true);
    }

    async fn f5_4_an_operator_validates_for_any_agent(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let good = Message::review("a", "b").signed(&a.signing_secret);
        let operator = broker.person("operator").await;
        for caller in [&operator, &broker.admin] {
            for agent in ["a", "b"] {
                let path = format!("/handoffs/validate?as={agent}");
                assert_eq!(dry(broker, caller, &path, &good).await, json!({ "valid": true }), "{agent}");
            }
            assert_eq!(dry(broker, caller, "/handoffs/validate", &good).await["valid"], false);
        }
        let nobody = operator.post("/handoffs/validate?as=nobody", &good).await;
        nobody.refused(404, "NOT_FOUND");
        operator.post("/handoffs/validate?as=-", &good).await.refused(400, "INVALID_REQUEST");
        operator.post("/handoffs/validate?for=a", &good).await.refused(400, "INVALID_REQUEST");
        assert_eq!(dry(broker, &a.api, "/handoffs/validate?as=a", &good).await["valid"], true);
        b.api.post("/handoffs/validate?as=a", &good).await.refused(403, "FORBIDDEN");
        let auditor = broker.person("auditor").await;
        auditor.post("/handoffs/validate?as=a", &good).await.refused(403, "FORBIDDEN");
    }

    async fn f5_5_who_knows_an_older_minor_gets_the_older_form(broker: Broker) {
        let (a, _, hook) = broker.pair(vec![]).await;
        let pulls = broker.pull("p", &[]).await;
        broker.admin.patch("/agents/a", &json!({ "handoffTargets": ["b", "p"] })).await.expect(200);
        for agent in ["b", "p"] {
            let path = format!("/agents/{agent}");
            let said = broker.admin.patch(&path, &json!({ "schemaVersions": "2.0" })).await.expect(200);
            assert_eq!(said.body["schemaVersions"], "2.0");
        }
        let extras = |message: Message| message.set("/priority", json!("high")).set("/checkpoint", json!({ "step": 1 }));
        let message = extras(plain("a", "b"));
        let answer = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(answer.body["status"], "ACCEPTED");
        let warning = &answer.body["warnings"][0];
        assert_eq!((&warning["code"], &warning["pointer"]), (&json!("SCHEMA_DOWNGRADED"), &json!("/schemaVersion")));
        assert!(warning["message"].as_str().unwrap().contains("schema 2.0, without priority"), "{warning}");
        let sent = hook.next().await.body;
        assert_eq!(sent["schemaVersion"], "2.0");
        assert_eq!(sent["toAgent"], json!({ "agentId": "b", "agentType": "b", "agentVersion": "*" }));
        assert!(sent.get("priority").is_none() && sent.get("checkpoint").is_none());
        assert_eq!(sent["currentState"], message["currentState"]);
        let second = extras(plain("a", "p"));
        a.submit(&second).await.expect(202);
        let claimed = pulls.claim(1).await[0]["message"].clone();
        assert_eq!(claimed["schemaVersion"], "2.0");
        let shown = format!("{}?include=message", second.path());
        assert_eq!(pulls.api.get(&shown).await.expect(200).body["message"], claimed);
        // The books keep what was submitted.
        assert_eq!(a.api.get(&shown).await.expect(200).body["message"]["schemaVersion"], "2.1");
        assert_eq!(broker.admin.get(&shown).await.expect(200).body["message"]["priority"], "high");
        // As it got it, the receiver may have it judged.
        assert_eq!(pulls.api.post("/handoffs/validate", &claimed).await.expect(200).body, json!({ "valid": true }));
    }

    async fn f5_5_an_agent_that_cannot_read_a_message_does_not_get_it(broker: Broker) {
        let a = broker.pull("a", &["old", "type:reader"]).await;
        broker.agent(json!({ "agentId": "old", "agentType": "reader", "agentVersion": "9.0.0", "schemaVersions": "~2.0" })).await;
        broker.agent(json!({ "agentId": "new", "agentType": "reader", "schemaVersions": "2.x" })).await;
        let message = plain("a", "old").set("/toolState", json!({ "cursor": 7 }));
        let answer = a.submit(&message).await.refused(422, "NO_CAPABLE_AGENT");
        assert_eq!(answer.pointers(), ["/schemaVersion"]);
        let why = answer.body["failures"][0]["message"].as_str().unwrap();
        assert!(why.contains("~2.0") && why.contains("/toolState"), "{why}");
        let by_type = message.again().set("/toAgent", json!({ "agentType": "reader" }));
        a.submit(&by_type).await.expect(202);
        let taken = broker.admin.get(&by_type.path()).await.expect(200).body;
        assert_eq!(taken["toAgent"]["agentId"], "new");
        for (range, known) in [("2.0 || 2.1", true), ("^2", true), ("3.x", false), ("2.9", false), ("newest", false)] {
            let said = broker.admin.patch("/agents/old", &json!({ "schemaVersions": range })).await;
            assert_eq!(said.status == 200, known, "{range}: {}", said.text);
        }
        broker.admin.patch("/agents/old", &json!({ "schemaVersions": null })).await.expect(200);
        a.submit(&message.again()).await.expect(202);
    }

    async fn f5_5_who_stops_reading_a_version_before_it_is_delivered_fails_it(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = plain("a", "b").set("/toolState", json!({ "cursor": 7 }));
        a.submit(&message).await.expect(202);
        broker.admin.patch("/agents/b", &json!({ "schemaVersions": "2.0" })).await.expect(200);
        let items = b.api.get("/agents/b/inbox?max=1").await.expect(200).body["items"].clone();
        assert_eq!(items, json!([]));
        let failed = broker.handoff_becomes(&message, "FAILED").await;
        assert_eq!(failed["reason"], "SCHEMA_UNREADABLE");
        assert!(broker.kinds(&message).await.contains(&"ROLLED_BACK".to_owned()));
    }

    async fn f5_6_versions_are_ranges_as_npm_writes_them(broker: Broker) {
        let a = broker.pull("a", &["type:risk"]).await;
        for (id, version) in [("r1", "1.4.0"), ("r2", "1.6.2"), ("r3", "2.0.0"), ("r4", "3.0.0-rc.1")] {
            broker.agent(json!({ "agentId": id, "agentType": "risk", "agentVersion": version })).await;
        }
        for (range, id) in [
            (">=1.5.0", "r3"), ("^1.5", "r2"), ("^1.5 || ^2.0", "r3"), ("1.4.0", "r1"), ("1.x", "r2"),
            ("1.4.0 - 1.6", "r2"), ("*", "r3"), (">=3.0.0-rc.0", "r4"), (">=1.0.0, <2", "r2"),
        ] {
            let message = Message::initial("a", "x").set("/toAgent", json!({ "agentType": "risk", "agentVersion": range }));
            a.submit(&message).await.expect(202);
            let taken = broker.admin.get(&message.path()).await.expect(200).body;
            assert_eq!(taken["toAgent"]["agentId"], id, "{range}");
        }
        for range in ["1.5.0", ">3.0.0"] {
            let message = Message::initial("a", "x").set("/toAgent", json!({ "agentType": "risk", "agentVersion": range }));
            a.submit(&message).await.refused(422, "NO_CAPABLE_AGENT");
        }
        let message = Message::initial("a", "x").set("/toAgent", json!({ "agentType": "risk", "agentVersion": "1 |" }));
        a.submit(&message).await.refused(422, "SCHEMA_INVALID");
    }

    async fn f5_6_a_known_minors_patch_versions_are_that_minor(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        for version in ["2.1.5", "2.1.0", "2.9.3"] {
            a.submit(&Message::initial("a", "b").set("/schemaVersion", json!(version))).await.expect(202);
            let served = broker.caller(None).get(&format!("/schemas/handoff/{version}")).await;
            assert_eq!(served.status == 200, !version.starts_with("2.9"), "{version}");
        }
        let strict = Message::initial("a", "b").set("/schemaVersion", json!("2.1.5")).set("/somethingNew", json!(1));
        let answer = a.submit(&strict).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/somethingNew"]);
        a.submit(&strict.again().set("/schemaVersion", json!("2.9.3"))).await.expect(202);
    }

    async fn f5_7_types_are_the_seeds(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        for (pointer, value) in [
            ("/completedSubtasks/0/result", json!("done")),
            ("/toolCallHistory/0/inputHash", json!("banana")),
            ("/conversationHistoryVerbatim/0", json!({ "content": "who said that?" })),
        ] {
            let answer = a.submit(&Message::review("a", "b").set(pointer, value)).await.refused(422, "SCHEMA_INVALID");
            assert!(answer.pointers()[0].starts_with(pointer), "{}", answer.text);
        }
    }
}
