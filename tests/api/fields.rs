//! Nothing is taken and then ignored: each member of a request has its effect, is refused with its place, or is named in
//! `warnings`.

use serde_json::{Value, json};

use crate::harness::Agent;
use crate::message::Message;

/// Pointers of the warnings that something has no effect.
fn idle(body: &Value) -> Vec<&str> {
    let all = body["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    let idle = all.iter().filter(|one| one["code"] == "WITHOUT_EFFECT");
    idle.map(|one| one["pointer"].as_str().unwrap()).collect()
}

/// Hands on from `a` to `b`, who takes it.
async fn taken(a: &Agent, b: &Agent) -> (Message, i64) {
    let message = Message::initial("a", "b");
    a.submit(&message).await.expect(202);
    let fencing = b.claim_one().await;
    b.say(&message, "accept", fencing, json!({})).await.expect(200);
    (message, fencing)
}

both! {
    async fn a_verdict_again_with_other_words_says_that_they_are_not_kept(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let (message, fencing) = taken(&a, &b).await;
        let done = json!({ "result": { "r": 1 }, "costTracking": { "costSpentSoFarUSD": 0.01 } });
        assert_eq!(idle(&b.say(&message, "complete", fencing, done.clone()).await.expect(200).body), [""; 0]);
        assert_eq!(idle(&b.say(&message, "complete", fencing, done).await.expect(200).body), [""; 0], "the same");
        let other = json!({ "result": { "r": 2 }, "costTracking": { "costSpentSoFarUSD": 0.02 } });
        assert_eq!(idle(&b.say(&message, "complete", fencing, other).await.expect(200).body), [""]);
        let kept = a.api.get(&message.path()).await.expect(200).body;
        assert_eq!(kept["result"], json!({ "r": 1 }));
        let refused = Message::initial("a", "b");
        a.submit(&refused).await.expect(202);
        let fencing = b.claim_one().await;
        for (reason, idles) in [("ONE", 0), ("ONE", 0), ("TWO", 1)] {
            let said = b.say(&refused, "reject", fencing, json!({ "reason": reason })).await.expect(200);
            assert_eq!((idle(&said.body).len(), &said.body["reason"]), (idles, &json!("ONE")));
        }
        let task = format!("{}/complete", message.task_path());
        a.api.post(&task, &json!({ "output": 1 })).await.expect(200);
        assert_eq!(idle(&a.api.post(&task, &json!({ "output": 2 })).await.expect(200).body), [""]);
    }

    async fn whole_numbers_are_taken_as_the_schema_takes_them(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let spent = |prompt: Value| Message::review("a", "b").set("/costTracking/tokenSpent", json!({ "prompt": prompt, "completion": 5 }));
        let message = spent(json!(7.0));
        a.submit(&message).await.expect(202);
        let kept = a.api.get(&message.path()).await.expect(200).body;
        assert_eq!(kept["costTracking"]["tokenSpent"]["prompt"], 7, "{kept}");
        let said = a.submit(&spent(json!(7.5))).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(said.pointers(), ["/costTracking/tokenSpent/prompt"]);
    }

    async fn an_unknown_member_of_a_body_is_refused_with_its_place(broker: Broker) {
        broker.pull_pair().await;
        let admin = &broker.admin;
        let targets = json!({ "handoffTargets": ["b"], "targets": ["b"] });
        let exception = json!({ "mode": "allow", "agents": ["a"] });
        let candidate = json!({ "candidate": { "safety": { "exceptions": [exception] } } });
        for (said, pointer) in [
            (admin.put("/agents/a/handoff-targets", &targets).await, "/targets"),
            (admin.post("/subscriptions", &json!({ "url": "http://x/", "filters": {} })).await, "/filters"),
            (admin.post("/what-if", &candidate).await, "/candidate/safety/exceptions/0/agents"),
        ] {
            assert_eq!(said.refused(422, "SCHEMA_INVALID").pointers(), [pointer]);
        }
    }

    async fn the_result_of_a_task_is_kept_with_all_its_members(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let (message, fencing) = taken(&a, &b).await;
        b.say(&message, "complete", fencing, json!({})).await.expect(200);
        let result = json!({ "output": null, "note": { "n": 1 } });
        a.api.post(&format!("{}/complete", message.task_path()), &result).await.expect(200);
        let trace = format!("{}/trace", message.task_path());
        let trace = broker.admin.get(&trace).await.expect(200).body;
        let records = trace["records"].as_array().unwrap();
        let completed = records.iter().find(|record| record["kind"] == "TASK_COMPLETED").unwrap();
        assert_eq!(completed["content"], result);
    }

    async fn a_nul_in_a_parameter_is_refused_with_its_name(broker: Broker) {
        for path in ["/dead-letters?reason=a%00b", "/handoffs?taskId=%00", "/events?types=%00"] {
            let said = broker.admin.get(path).await;
            assert_eq!(said.status, 400, "{path}: {}", said.text);
        }
    }

    async fn fencing_tokens_that_differ_are_refused(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let (message, fencing) = taken(&a, &b).await;
        let body = json!({ "fencingToken": fencing + 97, "result": 1 });
        let said = b.say(&message, "complete", fencing, body).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(said.pointers(), ["/fencingToken"]);
        let (path, token) = (format!("{}/complete", message.path()), fencing.to_string());
        let twice = [("Handoff-Fencing-Token", token.as_str()), ("Handoff-Fencing-Token", "99")];
        let said = b.api.send(reqwest::Method::POST, &path, &twice, &json!({})).await;
        assert_eq!(said.refused(422, "SCHEMA_INVALID").pointers(), ["/fencingToken"]);
        b.say(&message, "complete", fencing, json!({ "fencingToken": fencing })).await.expect(200);
    }

    async fn what_a_receiver_says_of_errors_and_costs_has_its_form(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let (message, fencing) = taken(&a, &b).await;
        for (verb, body, at) in [
            ("fail", json!({ "error": 5 }), "/error"),
            ("fail", json!({ "error": [] }), "/error"),
            ("fail", json!({ "error": "" }), "/error"),
            ("fail", json!({ "error": { "code": 5 } }), "/error"),
            ("complete", json!({ "costTracking": { "costSpentSoFarUSD": 0, "tokenSpent": 5 } }), "/costTracking/tokenSpent"),
            ("complete", json!({ "costTracking": { "costSpentSoFarUSD": 0, "tokenSpent": { "promt": 5 } } }), "/costTracking/tokenSpent/promt"),
        ] {
            let said = b.say(&message, verb, fencing, body.clone()).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(said.pointers(), [at], "{body}");
        }
        let beat = json!({ "costTracking": { "costSpentSoFarUSD": 1, "tokenSpent": { "prompt": 5 } } });
        let said = b.say(&message, "heartbeat", fencing, beat).await.expect(200).body;
        assert_eq!(idle(&said), ["/costTracking/costSpentSoFarUSD", "/costTracking/tokenSpent"]);
        let said = b.say(&message, "fail", fencing, json!({ "error": { "details": 1 } })).await.expect(200).body;
        assert_eq!(said["reason"], "FAILED");
    }

    async fn a_misspelt_member_of_an_address_is_named(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b").set("/toAgent/capabilty", json!("none")).set("/toAgent/x~y", json!(1));
        let said = a.submit(&message).await.expect(202).body;
        assert_eq!(idle(&said), ["/toAgent/capabilty", "/toAgent/x~0y"]);
    }

    async fn a_list_is_no_object_and_an_error_has_its_place(broker: Broker) {
        broker.pull("a", &["b"]).await;
        for (path, body, at) in [
            ("/dead-letters/discard", json!({ "filter": ["SAFETY_VIOLATION", "a"], "reason": "r" }), "/filter"),
            ("/agents", json!({ "agentId": "c", "agentType": "c", "config": [] }), "/config"),
            ("/agents", json!({ "agentId": "c", "agentType": "c", "capabilities": ["x", { "a": 1 }] }), "/capabilities/1"),
            ("/agents", json!({ "agentId": "c", "agentType": "c", "zz": 1 }), "/zz"),
            ("/agents", json!({ "agentId": "c", "agentType": "c", "delivery": { "timeoutMs": "x" } }), "/delivery/timeoutMs"),
        ] {
            let said = broker.admin.post(path, &body).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(said.pointers(), [at], "{}", said.text);
        }
        let said = broker.admin.patch("/agents/a", &json!({ "delivery": ["pull"] })).await;
        assert_eq!(said.refused(422, "SCHEMA_INVALID").pointers(), ["/delivery"]);
    }

    async fn a_null_in_a_patch_clears_or_is_refused(broker: Broker) {
        broker.pull("a", &["b"]).await;
        for name in ["handoffTargets", "capabilities", "delivery", "acceptsHandoffs", "name"] {
            let said = broker.admin.patch("/agents/a", &json!({ name: null })).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(said.pointers(), [format!("/{name}")]);
        }
        let orders = json!({ "orders": "refuse", "specialization": "tax" });
        assert_eq!(broker.admin.patch("/agents/a", &orders).await.expect(200).body["orders"], "refuse");
        let cleared = broker.admin.patch("/agents/a", &json!({ "orders": null, "specialization": null })).await.expect(200).body;
        assert_eq!((&cleared["orders"], &cleared["specialization"]), (&Value::Null, &Value::Null), "{cleared}");
        let made = json!({ "url": "https://example.com/x", "region": "zz", "transferBasis": "SCC_2021" });
        let made = broker.admin.post("/subscriptions", &made).await.expect(201).body;
        let path = format!("/subscriptions/{}", made["subscriptionId"].as_str().unwrap());
        let said = broker.admin.patch(&path, &json!({ "eventTypes": null })).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(said.pointers(), ["/eventTypes"]);
        let cleared = broker.admin.patch(&path, &json!({ "region": null, "transferBasis": null })).await.expect(200).body;
        assert_eq!((&cleared["region"], &cleared["transferBasis"]), (&Value::Null, &Value::Null), "{cleared}");
    }

    async fn no_place_of_the_feed_that_is_to_come_is_taken(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        a.submit(&Message::initial("a", "b")).await.expect(202);
        let made = broker.admin.post("/subscriptions", &json!({ "url": "https://example.com/x", "enabled": false })).await.expect(201).body;
        let replay = format!("/subscriptions/{}/replay", made["subscriptionId"].as_str().unwrap());
        broker.admin.post(&replay, &json!({ "since": "999999999.1" })).await.refused(400, "INVALID_REQUEST");
        broker.admin.get("/events?since=999999999.1").await.refused(400, "INVALID_REQUEST");
        a.submit(&Message::initial("a", "b")).await.expect(202);
        let ahead = broker.admin.post(&replay, &json!({ "since": "2130-01-01T00:00:00Z" })).await;
        ahead.refused(400, "INVALID_REQUEST");
        broker.admin.post(&replay, &json!({ "since": "0.0" })).await.expect(202);
    }

    async fn a_contract_with_a_name_twice_is_refused_in_every_form(broker: Broker) {
        let twice = r#"{"id":"d","id":"d","version":"1.0.0","source":"a","target":"b","x":"\ud83d\ude00"}"#;
        let escaped = twice.replacen("\"id\":\"d\",\"id\"", "\"id\":\"d\",\"i\\u0064\"", 1);
        for text in [twice, escaped.as_str()] {
            for kind in ["application/json", "application/yaml"] {
                let request = broker.admin.request(reqwest::Method::PUT, "/contracts/d");
                let sent = request.header("content-type", kind).body(text.to_owned()).send().await.unwrap();
                assert!([400, 422].contains(&sent.status().as_u16()), "{kind}: {}", sent.status());
            }
        }
        let lint = json!({ "contracts": [], "registri": {} });
        assert_eq!(broker.admin.post("/contracts/lint", &lint).await.refused(422, "SCHEMA_INVALID").pointers(), ["/registri"]);
    }

    async fn a_payload_schema_with_another_migration_is_another_content(broker: Broker) {
        let path = "/schemas/payloads/q/1.0.0";
        let mut schema = json!({ "schema": { "type": "object" } });
        broker.admin.put(path, &schema).await.expect(201);
        broker.admin.put(path, &schema).await.expect(200);
        schema["migration"] = json!("x");
        broker.admin.put(path, &schema).await.refused(409, "CONFLICT");
    }

    async fn a_budget_ends_where_an_amount_does(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let path = format!("{}/budget", message.task_path());
        let add = json!({ "addUSD": 1_000_000_000.0, "reason": "r" });
        for _ in 0..9 {
            broker.admin.post(&path, &add).await.expect(200);
        }
        let said = broker.admin.post(&path, &add).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(said.pointers(), ["/addUSD"]);
        let task = broker.task(&message).await;
        assert_eq!(task["toppedUpUSD"], 9_000_000_000.0, "{task}");
    }

    async fn a_preference_is_read_whole_and_an_overlap_is_bounded(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let began = tokio::time::Instant::now();
        a.api.submit_with(&Message::initial("a", "b"), &[("Prefer", "foo=\"a, wait=30\"")]).await.expect(202);
        assert!(began.elapsed().as_secs() < 20, "a quoted word is not a preference");
        a.api.submit_with(&Message::initial("a", "b"), &[("Prefer", "wait")]).await.refused(400, "INVALID_REQUEST");
        let rotate = json!({ "overlapSeconds": 31_536_001 });
        let said = broker.admin.post("/agents/a/secrets/signing/rotate", &rotate).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(said.pointers(), ["/overlapSeconds"]);
        let tried = broker.admin.post("/agents/a/delivery/test", &json!({})).await.expect(200).body;
        assert_eq!((&tried["delivered"], &tried["field"]), (&json!(false), &json!("/delivery/mode")), "{tried}");
    }
}
