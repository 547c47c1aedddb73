//! Group 5, 9 and 10: query parameters, typed agents, and Orbit's clients.

use reqwest::Method;
use serde_json::{Value, json};

use crate::message::Message;

both! {
    async fn f5_10_orbits_clients_find_agents_under_their_path_and_in_their_spelling(broker: Broker) {
        let made = broker.admin.post("/api/v1/agents", &json!({
            "name": "Triage Router", "description": "d", "model": "gpt-4o", "instructions": "i",
            "handoff_targets": ["agent_billing"],
        })).await.expect(201).body;
        let id = made["agentId"].as_str().unwrap().to_owned();
        for spelled in [&made["handoffTargets"], &made["handoff_targets"], &made["config"]["handoff_targets"]] {
            assert_eq!(spelled, &json!(["agent_billing"]), "{made}");
        }
        let path = format!("/api/v1/agents/{id}");
        for (change, targets) in [
            (json!({ "handoff_targets": ["x", "y"] }), json!(["x", "y"])),
            (json!({ "config": { "handoff_targets": ["z"] } }), json!(["z"])),
            (json!({ "handoffTargets": ["q"], "handoff_targets": ["q"], "config": { "handoff_targets": ["q"] } }), json!(["q"])),
            (json!({ "name": "other" }), json!(["q"])),
            (json!({ "handoff_targets": [] }), json!([])),
        ] {
            let now = broker.admin.patch(&path, &change).await.expect(200).body;
            assert_eq!(now["handoff_targets"], targets);
            let read = broker.admin.get(&format!("/agents/{id}")).await.expect(200).body;
            assert_eq!((&read["handoffTargets"], &read["config"]["handoff_targets"]), (&targets, &targets));
        }
        let differing = json!({ "handoffTargets": ["a"], "config": { "handoff_targets": ["b"] } });
        let said = broker.admin.patch(&path, &differing).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(said.pointers(), ["/config/handoff_targets"]);
        broker.admin.patch(&path, &json!({ "config": { "model": "x" } })).await.refused(422, "SCHEMA_INVALID");
        let listed = broker.admin.get("/api/v1/agents").await.expect(200).body;
        assert_eq!(listed["items"][0]["agentId"], json!(id));
        let own = broker.caller(made["apiKey"].as_str());
        let list = own.get(&format!("{path}/handoff-targets")).await.expect(200).body;
        assert_eq!(list["handoffTargets"], json!([]));
        broker.admin.delete(&path).await.expect(204);
        broker.admin.get(&path).await.refused(404, "NOT_FOUND");
    }

    async fn f5_10_a_listed_but_unknown_id_is_refused_with_orbits_words(broker: Broker) {
        let a = broker.pull("a", &["ghost"]).await;
        let said = a.submit(&Message::initial("a", "ghost")).await.refused(403, "FORBIDDEN");
        assert_eq!(
            said.body["error"],
            json!({
                "code": "FORBIDDEN", "status": 403,
                "message": "The target agent is not on the source agent's handoff_targets allowlist.",
            })
        );
    }

    async fn f5_9_unknown_query_parameters_are_refused_by_every_operation(broker: Broker) {
        let document: Value = broker.admin.get("/openapi.json").await.expect(200).body;
        let mut asked = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let mut filled = String::new();
                for part in path.split_inclusive(['{', '}']) {
                    match part.strip_suffix('}') {
                        Some(_) => filled.push_str("00000000-0000-4000-8000-000000000000"),
                        None => filled.push_str(part.trim_end_matches('{')),
                    }
                }
                let said = broker.admin.send(method.clone(), &format!("{filled}?no_such=1"), &[], &json!({})).await;
                let said = said.refused(400, "INVALID_REQUEST");
                assert!(said.body["detail"].as_str().unwrap().contains("no_such"), "{method} {path}: {}", said.text);
                asked += 1;
            }
        }
        assert!(asked > 80, "{asked}");
        broker.admin.get("/api/v1/agents?no_such=1").await.refused(400, "INVALID_REQUEST");
        broker.admin.get("/agents?").await.expect(200);
    }

    async fn f5_9_answers_about_agents_are_as_the_document_says(broker: Broker) {
        let document: Value = broker.admin.get("/openapi.json").await.expect(200).body;
        let fits = |operation: &str, status: &str, answer: &Value| {
            let (path, method) = operation.split_once(' ').map(|(method, path)| (path, method)).unwrap();
            let mut schema = document["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"].clone();
            assert!(schema.get("$ref").is_some(), "{operation} is typed");
            schema["components"] = document["components"].clone();
            let validator = jsonschema::draft202012::new(&schema).unwrap();
            let wrong: Vec<_> = validator.iter_errors(answer).map(|err| err.to_string()).collect();
            assert_eq!(wrong, Vec::<String>::new(), "{operation}: {answer}");
        };
        let spec = json!({
            "agentId": "w", "delivery": { "mode": "webhook", "url": "https://example.org/x" }, "metadata": { "a": 1 },
            "callbackUrl": "https://example.org/y", "supervisorId": "s", "contextWindowTokens": 9, "handoffTargets": ["w", "type:t"],
        });
        fits("post /agents", "201", &broker.admin.post("/agents", &spec).await.expect(201).body);
        let a = broker.pull("a", &["w"]).await;
        for caller in [&broker.admin, &a.api] {
            fits("get /agents", "200", &caller.get("/agents").await.expect(200).body);
            fits("get /agents/{agentId}", "200", &caller.get("/agents/w").await.expect(200).body);
            fits("get /allowlist", "200", &caller.get("/allowlist").await.expect(200).body);
        }
        let now = broker.admin.patch("/agents/w", &json!({ "state": "PAUSED" })).await.expect(200).body;
        fits("patch /agents/{agentId}", "200", &now);
        let rotated = broker.admin.post("/agents/w/secrets/signing/rotate", &json!({})).await.expect(200).body;
        fits("post /agents/{agentId}/secrets/{kind}/rotate", "200", &rotated);
    }
}
