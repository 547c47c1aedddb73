//! `/agents`: registering, reading, changing, removing.

use serde_json::{Value, json};

use crate::message::Message;

const SECRETS: [&str; 3] = ["apiKey", "signingSecret", "webhookSecret"];

both! {
    async fn an_agent_is_registered_and_its_secrets_are_shown_once(broker: Broker) {
        let spec = json!({
            "agentId": "legal", "agentType": "legal-analysis", "agentVersion": "2.1.0", "name": "Legal",
            "description": "Reads contracts", "specialization": "liability", "capabilities": ["read"],
            "domains": ["law"], "examples": ["clause 4.2"], "permissions": ["personal-data:read"],
            "acceptsHandoffs": true, "state": "RUNNABLE", "contextWindowTokens": 200_000,
            "requiredState": ["clauses"], "supervisorId": "boss", "requireSignature": false,
            "requireCheckpoint": true, "handoffTargets": ["risk", "type:writer"],
            "delivery": { "mode": "webhook", "url": "https://legal.example/hook", "timeoutMs": 5_000, "maxInFlight": 3 },
            "callbackUrl": "https://legal.example/events", "metadata": { "team": "x" }
        });
        let made = broker.admin.post("/agents", &spec).await.expect(201).body;
        for (name, value) in spec.as_object().unwrap() {
            assert_eq!(made[name], *value, "{name}");
        }
        assert_eq!(made["unknownTargets"], json!(["risk", "type:writer"]));
        assert!(made["webhookSecret"].as_str().unwrap().starts_with("whsec_"));
        let read = broker.admin.get("/agents/legal").await.expect(200);
        let list = broker.admin.get("/agents").await.expect(200);
        let patched = broker.admin.patch("/agents/legal", &json!({ "name": "L" })).await.expect(200);
        for name in SECRETS {
            let secret = made[name].as_str().unwrap();
            assert!(secret.len() > 30);
            for answer in [&read, &list, &patched] {
                assert!(!answer.text.contains(secret), "{name} is shown again");
                assert!(!answer.text.contains(name), "{name} is named again");
            }
        }
        let mut without = made.clone();
        // The warnings about a change are not part of the agent.
        for name in SECRETS.iter().copied().chain(["warnings"]) {
            without.as_object_mut().unwrap().remove(name);
        }
        assert_eq!(read.body, without);
        assert_eq!(list.body["items"], json!([without]));
        broker.admin.post("/agents", &spec).await.refused(409, "CONFLICT");
    }

    async fn an_agent_without_an_id_gets_one_and_every_default(broker: Broker) {
        let made = broker.admin.post("/agents", &json!({ "name": "Nameless" })).await.expect(201).body;
        let id = made["agentId"].as_str().unwrap();
        assert_eq!(made["agentType"], id);
        assert_eq!(made["agentVersion"], "1.0.0");
        assert_eq!((&made["acceptsHandoffs"], &made["state"]), (&json!(true), &json!("RUNNABLE")));
        assert_eq!(made["handoffTargets"], json!([]));
        assert_eq!(made["delivery"]["mode"], "pull");
        broker.admin.get(&format!("/agents/{id}")).await.expect(200);
    }

    async fn snake_case_is_understood(broker: Broker) {
        let spec = json!({
            "agent_id": "s", "agent_type": "t", "agent_version": "1.2.3", "accepts_handoffs": false,
            "handoff_targets": ["x"], "required_state": ["y"], "require_signature": true,
            "require_checkpoint": true, "supervisor_id": "z", "context_window_tokens": 5,
            "callback_url": "https://x.example/", "model": "m", "instructions": "i",
            "delivery": { "mode": "pull", "timeout_ms": 500, "max_in_flight": 2 }
        });
        let made = broker.admin.post("/agents", &spec).await.expect(201).body;
        for (name, value) in [
            ("agentId", json!("s")), ("agentType", json!("t")), ("acceptsHandoffs", json!(false)),
            ("handoffTargets", json!(["x"])), ("requiredState", json!(["y"])), ("requireSignature", json!(true)),
            ("requireCheckpoint", json!(true)), ("supervisorId", json!("z")), ("contextWindowTokens", json!(5)),
            ("metadata", json!({ "instructions": "i", "model": "m" })),
        ] {
            assert_eq!(made[name], value, "{name}");
        }
        assert_eq!(made["delivery"]["timeoutMs"], 500);
        let twice = json!({ "agentId": "d", "handoffTargets": ["x"], "handoff_targets": [] });
        broker.admin.post("/agents", &twice).await.refused(422, "SCHEMA_INVALID");
    }

    async fn a_patch_replaces_lists_clears_empty_ones_and_leaves_alone_what_is_absent(broker: Broker) {
        broker
            .agent(json!({
                "agentId": "a", "handoffTargets": ["b", "c"], "capabilities": ["x"],
                "supervisorId": "s", "specialization": "old", "description": "kept"
            }))
            .await;
        let patch = async |change: Value| broker.admin.patch("/agents/a", &change).await.expect(200).body;
        let now = patch(json!({ "name": "A" })).await;
        assert_eq!((&now["handoffTargets"], &now["capabilities"]), (&json!(["b", "c"]), &json!(["x"])));
        let now = patch(json!({ "handoffTargets": ["d"] })).await;
        assert_eq!((&now["handoffTargets"], &now["capabilities"]), (&json!(["d"]), &json!(["x"])));
        let now = patch(json!({ "handoff_targets": [] })).await;
        assert_eq!(now["handoffTargets"], json!([]));
        let now = patch(json!({ "supervisorId": null, "specialization": null })).await;
        assert_eq!((&now["supervisorId"], &now["specialization"]), (&Value::Null, &Value::Null));
        assert_eq!((&now["description"], &now["name"]), (&json!("kept"), &json!("A")));
        let same = broker.log_size().await;
        patch(json!({})).await;
        assert_eq!(broker.log_size().await, same, "no change, no record");
        broker.admin.patch("/agents/a", &json!({ "agentId": "b" })).await.refused(422, "SCHEMA_INVALID");
        broker.admin.patch("/agents/nobody", &json!({ "name": "x" })).await.refused(404, "NOT_FOUND");
    }

    async fn what_the_broker_sets_itself_is_named_where_a_request_states_it(broker: Broker) {
        broker.pull("a", &[]).await;
        let stated = json!({ "delivery": { "mode": "pull", "disabled": true } });
        let now = broker.admin.patch("/agents/a", &stated).await.expect(200).body;
        assert_eq!(now["delivery"].get("disabled"), None, "{now}");
        let warning = &now["warnings"][0];
        assert_eq!((&warning["code"], &warning["pointer"]), (&json!("WITHOUT_EFFECT"), &json!("/delivery/disabled")));
        let shown = broker.admin.get("/agents/a").await.expect(200).body["delivery"].clone();
        let now = broker.admin.patch("/agents/a", &json!({ "delivery": shown })).await.expect(200).body;
        assert!(now.get("warnings").is_none(), "what was shown can be sent back: {now}");
        let failing = json!({ "delivery": { "mode": "pull", "failing": { "failures": 3, "percent": 50 } } });
        let now = broker.admin.patch("/agents/a", &failing).await.expect(200).body;
        assert_eq!((now["delivery"].get("failing"), &now["warnings"][0]["pointer"]), (None, &json!("/delivery/failing")), "{now}");
    }

    // Finding O7 of 0.3.0.
    async fn a_change_of_a_delivery_changes_what_it_names(broker: Broker) {
        broker.pull("a", &[]).await;
        let whole = json!({ "delivery": { "mode": "webhook", "url": "https://x.example/1", "timeoutMs": 500, "maxInFlight": 3,
            "format": "sw4rm", "acceptEncoding": ["zstd"] } });
        let first = broker.admin.patch("/agents/a", &whole).await.expect(200).body;
        let other = json!({ "delivery": { "mode": "webhook", "url": "https://x.example/2" } });
        let now = broker.admin.patch("/agents/a", &other).await.expect(200).body;
        let mut wanted = first["delivery"].clone();
        wanted["url"] = json!("https://x.example/2");
        assert_eq!(now["delivery"], wanted);
        let now = broker.admin.patch("/agents/a", &json!({ "delivery": { "maxInFlight": 4 } })).await.expect(200).body;
        wanted["maxInFlight"] = json!(4);
        assert_eq!(now["delivery"], wanted);
        // Settings that the new mode does not use are dropped.
        let pulled = json!({ "delivery": { "mode": "pull" } });
        let now = broker.admin.patch("/agents/a", &pulled).await.expect(200).body["delivery"].clone();
        assert_eq!((&now["timeoutMs"], &now["maxInFlight"]), (&json!(500), &json!(4)), "{now}");
        assert!(now.get("acceptEncoding").is_none(), "{now}");
        let config = |config| json!({ "delivery": { "config": config } });
        let redis = json!({ "delivery": { "mode": "redis", "config": { "server": "redis://127.0.0.1:6379", "stream": "one" } } });
        broker.admin.patch("/agents/a", &redis).await.expect(200);
        let now = broker.admin.patch("/agents/a", &config(json!({ "stream": "two" }))).await.expect(200).body;
        assert_eq!(now["delivery"]["config"], json!({ "server": "redis://127.0.0.1:6379", "stream": "two" }));
        let none = broker.admin.patch("/agents/a", &config(json!({ "stream": null }))).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(none.pointers(), ["/delivery/config/stream"]);
        for name in ["timeoutMs", "maxInFlight", "format", "acceptEncoding", "credentials", "mode", "disabled"] {
            let none = broker.admin.patch("/agents/a", &json!({ "delivery": { name: null } })).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(none.pointers(), [format!("/delivery/{name}")]);
        }
        broker.admin.post("/agents", &json!({ "delivery": { "timeoutMs": 500 } })).await.refused(422, "SCHEMA_INVALID");
    }

    async fn what_cannot_work_is_refused_with_its_pointer(broker: Broker) {
        broker.pull("a", &[]).await;
        let webhook = |url: &str| json!({ "delivery": { "mode": "webhook", "url": url } });
        for (spec, pointer) in [
            (json!({ "delivery": { "mode": "webhook" } }), "/delivery/url"),
            (webhook("ftp://x.example/"), "/delivery/url"),
            (webhook("nowhere"), "/delivery/url"),
            (webhook("https://u:p@x.example/"), "/delivery/url"),
            (json!({ "delivery": { "mode": "pull", "timeoutMs": 5 } }), "/delivery/timeoutMs"),
            (json!({ "delivery": { "mode": "pull", "maxInFlight": 0 } }), "/delivery/maxInFlight"),
            (json!({ "callbackUrl": "javascript:alert(1)" }), "/callbackUrl"),
            (json!({ "agentType": "a b" }), "/agentType"),
        ] {
            let made = broker.admin.post("/agents", &spec).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(made.pointers(), [pointer]);
            let patched = broker.admin.patch("/agents/a", &spec).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(patched.pointers(), [pointer]);
        }
        for spec in [
            json!({ "agentId": "type:x" }), json!({ "agentId": "" }), json!({ "agentId": "a/b" }),
            json!({ "agentId": "x".repeat(129) }), json!({ "agentVersion": "one" }),
            json!({ "state": "ASLEEP" }), json!({ "handoffTargets": "b" }), json!({ "handoffTargets": ["type:"] }),
            json!({ "unheardOf": 1 }), json!({ "apiKey": "mine" }), json!({ "contextWindowTokens": -1 }),
        ] {
            broker.admin.post("/agents", &spec).await.refused(422, "SCHEMA_INVALID");
        }
    }

    async fn a_removed_agents_key_is_dead_and_stays_so(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let extra = json!({ "role": "agent", "agentId": "b" });
        let extra = broker.admin.post("/keys", &extra).await.expect(201).body;
        let extra = broker.caller(extra["apiKey"].as_str());
        extra.get("/agents/b").await.expect(200);
        broker.admin.delete("/agents/b").await.expect(204);
        for caller in [&b.api, &extra] {
            caller.get("/agents").await.refused(401, "UNAUTHENTICATED");
        }
        broker.admin.delete("/agents/b").await.refused(404, "NOT_FOUND");
        broker.admin.get("/agents/b").await.refused(404, "NOT_FOUND");
        a.submit(&Message::initial("a", "b")).await.refused(403, "FORBIDDEN");
        // Another agent of that name is another agent.
        let again = broker.pull("b", &[]).await;
        again.api.get("/agents").await.expect(200);
        for caller in [&b.api, &extra] {
            caller.get("/agents").await.refused(401, "UNAUTHENTICATED");
        }
        a.submit(&Message::initial("a", "b")).await.expect(202);
    }

    async fn an_agent_changes_its_own_state_and_nothing_else(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        b.api.patch("/agents/b", &json!({ "state": "BUSY" })).await.expect(200);
        let refused = a.submit(&Message::initial("a", "b")).await.refused(422, "NO_CAPABLE_AGENT");
        assert!(refused.text.contains("Agent busy: b"), "{}", refused.text);
        b.api.patch("/agents/b", &json!({ "state": "RUNNABLE" })).await.expect(200);
        a.submit(&Message::initial("a", "b")).await.expect(202);
        for change in [
            json!({ "name": "x" }), json!({ "handoffTargets": ["a"] }), json!({ "permissions": ["personal-data:read"] }),
            json!({ "state": "BUSY", "requireSignature": false }),
            json!({ "delivery": { "mode": "webhook", "url": "https://x.example/" } }),
        ] {
            b.api.patch("/agents/b", &change).await.refused(403, "FORBIDDEN");
        }
        b.api.patch("/agents/a", &json!({ "state": "PAUSED" })).await.refused(403, "FORBIDDEN");
        b.api.delete("/agents/b").await.refused(403, "FORBIDDEN");
    }
}
