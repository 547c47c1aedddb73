//! Whom an agent may hand off to: seed 003's semantics, and the graph.

use serde_json::{Value, json};

use crate::message::Message;

both! {
    async fn d4_an_empty_list_names_nobody(broker: Broker) {
        let a = broker.pull("a", &[]).await;
        broker.pull("b", &[]).await;
        a.submit(&Message::initial("a", "b")).await.refused(403, "FORBIDDEN");
        let by_type = Message::initial("a", "b").set("/toAgent", json!({ "agentType": "b" }));
        a.submit(&by_type).await.refused(403, "FORBIDDEN");
        let able = Message::initial("a", "b").set("/toAgent", json!({ "capability": "x" }));
        a.submit(&able).await.refused(403, "FORBIDDEN");
    }

    async fn d1_a_target_counts_by_id_or_by_type_and_at_once(broker: Broker) {
        let a = broker.pull("a", &["type:worker"]).await;
        broker.agent(json!({ "agentId": "w", "agentType": "worker" })).await;
        broker.agent(json!({ "agentId": "o", "agentType": "other" })).await;
        a.submit(&Message::initial("a", "w")).await.expect(202);
        a.submit(&Message::initial("a", "o")).await.refused(403, "FORBIDDEN");
        broker.admin.post("/agents/a/handoff-targets/o", &json!({})).await.expect(200);
        a.submit(&Message::initial("a", "o")).await.expect(202);
        broker.admin.delete("/agents/a/handoff-targets/type:worker").await.expect(200);
        a.submit(&Message::initial("a", "w")).await.refused(403, "FORBIDDEN");
        // An edge has one direction.
        let o = broker.admin.post("/keys", &json!({ "role": "agent", "agentId": "o" })).await.expect(201);
        let o = broker.caller(o.body["apiKey"].as_str());
        o.post("/handoffs", &Message::initial("o", "a")).await.refused(403, "FORBIDDEN");
    }

    async fn targets_are_read_replaced_added_and_removed(broker: Broker) {
        broker.pull("a", &["b"]).await;
        broker.pull("b", &[]).await;
        let path = "/agents/a/handoff-targets";
        let read = broker.admin.get(path).await.expect(200).body;
        assert_eq!(read, json!({ "agentId": "a", "handoffTargets": ["b"], "unknownTargets": [] }));
        let put = broker.admin.put(path, &json!({ "handoffTargets": ["b", "x", "b"] })).await.expect(200).body;
        assert_eq!((&put["handoffTargets"], &put["unknownTargets"]), (&json!(["b", "x"]), &json!(["x"])));
        let bare = broker.admin.put(path, &json!(["type:t"])).await.expect(200).body;
        assert_eq!(bare["handoffTargets"], json!(["type:t"]));
        for _ in 0..2 {
            let added = broker.admin.post(&format!("{path}/b"), &Value::Null).await.expect(200).body;
            assert_eq!(added["handoffTargets"], json!(["type:t", "b"]));
        }
        let gone = broker.admin.delete(&format!("{path}/type:t")).await.expect(200).body;
        assert_eq!(gone["handoffTargets"], json!(["b"]));
        broker.admin.delete(&format!("{path}/type:t")).await.refused(404, "NOT_FOUND");
        let cleared = broker.admin.put(path, &json!({ "handoff_targets": [] })).await.expect(200).body;
        assert_eq!(cleared["handoffTargets"], json!([]));
        for bad in [json!({}), json!({ "handoffTargets": null }), json!({ "handoffTargets": [1] }), json!(["a b"])] {
            broker.admin.put(path, &bad).await.refused(422, "SCHEMA_INVALID");
        }
        broker.admin.put("/agents/nobody/handoff-targets", &json!([])).await.refused(404, "NOT_FOUND");
        broker.admin.get("/agents/nobody/handoff-targets").await.refused(404, "NOT_FOUND");
        broker.admin.post(&format!("{path}/a%20b"), &json!({})).await.refused(404, "NOT_FOUND");
    }

    async fn d13_unknown_targets_are_kept_ignored_and_named(broker: Broker) {
        let a = broker.pull("a", &["ghost"]).await;
        let read = broker.admin.get("/agents/a").await.expect(200).body;
        assert_eq!(read["unknownTargets"], json!(["ghost"]));
        a.submit(&Message::initial("a", "ghost")).await.refused(403, "FORBIDDEN");
        broker.pull("ghost", &[]).await;
        let read = broker.admin.get("/agents/a").await.expect(200).body;
        assert_eq!(read["unknownTargets"], json!([]));
        a.submit(&Message::initial("a", "ghost")).await.expect(202);
    }

    async fn the_allowlist_is_a_graph(broker: Broker) {
        broker.pull("a", &["b", "type:worker", "ghost"]).await;
        broker.pull("b", &["a"]).await;
        for id in ["w1", "w2"] {
            broker.agent(json!({ "agentId": id, "agentType": "worker" })).await;
        }
        let graph = broker.admin.get("/allowlist").await.expect(200).body;
        let nodes: Vec<&Value> = graph["nodes"].as_array().unwrap().iter().map(|node| &node["agentId"]).collect();
        assert_eq!(nodes, ["a", "b", "w1", "w2"]);
        let edge = |source: &str, target: &str, resolved: Value| {
            json!({ "source": source, "target": target, "unknown": resolved == json!([]), "resolved": resolved })
        };
        let expected = json!([
            edge("a", "b", json!(["b"])),
            edge("a", "type:worker", json!(["w1", "w2"])),
            edge("a", "ghost", json!([])),
            edge("b", "a", json!(["a"])),
        ]);
        assert_eq!(graph["edges"], expected);
    }
}
