//! Seed 003 from outside, as its page tells it: a router and its specialists, by Orbit's paths, header and spellings (specification
//! §11.5).

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Broker, Caller, until};
use crate::message::Message;

const REFUSED: &str = "The target agent is not on the source agent's handoff_targets allowlist.";

/// A request with the key in Orbit's header.
async fn orbit(caller: &Caller, method: Method, path: &str, body: &Value) -> Answer {
    let bare = Caller { key: None, ..caller.clone() };
    let key = caller.key.clone().unwrap();
    let request =
        bare.request(method, &format!("/api/v1{path}")).header("x-api-key", key).json(body);
    Answer::read(request.send().await.unwrap()).await
}

/// The events of a type that a tenant has seen.
async fn events(broker: &Broker, kind: &str) -> Vec<Value> {
    let page = broker.admin.get("/events?limit=500").await.expect(200).body;
    let items = page["items"].as_array().unwrap().iter();
    items.filter(|event| event["type"] == kind).cloned().collect()
}

both! {
    async fn d5_to_d11_a_router_hands_off_to_its_specialists_alone(broker: Broker) {
        // D5: created by Orbit's path and header, with its body.
        let made = orbit(&broker.admin, Method::POST, "/agents", &json!({
            "name": "Triage Router",
            "description": "Classifies inbound messages and routes to a specialist.",
            "model": "gpt-4o",
            "instructions": "Classify the message and hand it to the right specialist.",
            "handoff_targets": ["agent_billing_specialist", "agent_support_specialist", "agent_returns_specialist"],
        })).await.expect(201).body;
        let id = made["agentId"].as_str().unwrap();
        let router = broker.caller(made["apiKey"].as_str());
        let billing = broker.pull("agent_billing_specialist", &[]).await;
        broker.pull("agent_sales", &[]).await;

        // D8: the tool is offered with the list as its choice, and not without one.
        let tool = orbit(&router, Method::GET, &format!("/agents/{id}/handoff-tool?style=openai"), &Value::Null).await.expect(200).body;
        let choice = tool.pointer("/tools/0/function/parameters/properties/target_agent_id/enum").unwrap();
        assert_eq!(choice, &json!(["agent_billing_specialist"]), "those that exist: {tool}");
        let none = orbit(&broker.admin, Method::GET, "/agents/agent_billing_specialist/handoff-tool?style=openai", &Value::Null).await.expect(200).body;
        assert_eq!(none, json!({ "tools": [] }));

        // D9: committed, told, and the target goes on with the history.
        let message = Message::review(id, "agent_billing_specialist")
            .set("/conversationId", json!("conv-1")).set("/reason", json!("A billing question"));
        router.post("/handoffs", &message).await.expect(202);
        let told = until("it is told", async || events(broker, "agent.handoff.occurred").await.pop().ok_or_else(|| "not yet".to_owned())).await;
        let data = &told["data"];
        assert_eq!(
            (&data["source_agent_id"], &data["target_agent_id"], &data["conversation_id"], &data["reason"]),
            (&json!(id), &json!("agent_billing_specialist"), &json!("conv-1"), &json!("A billing question")), "{told}"
        );
        assert!(data.get("summary").is_some(), "{told}");
        let got = billing.claim(1).await;
        assert_eq!(got[0]["message"]["conversationHistoryVerbatim"], message["conversationHistoryVerbatim"]);

        // D1, D3, D10: another agent is 403 in Orbit's words, whatever the key; no event tells of it.
        let stray = Message::review(id, "agent_sales");
        let refused = router.post("/handoffs", &stray).await.refused(403, "FORBIDDEN");
        assert_eq!(refused.body["error"], json!({ "code": "FORBIDDEN", "message": REFUSED, "status": 403 }));
        broker.admin.post("/handoffs", &stray).await.refused(403, "FORBIDDEN");
        assert_eq!(events(broker, "agent.handoff.occurred").await.len(), 1, "D2: no agent forges one");
        assert_eq!(broker.metric("handoff_allowlist_violations_total").await, 2, "D11: each is counted");

        // D6, D7: a list replaces, an absent one leaves alone, an empty one clears.
        let path = format!("/agents/{id}");
        for (change, expected) in [
            (json!({ "handoff_targets": ["agent_billing_specialist", "agent_sales"] }), json!(["agent_billing_specialist", "agent_sales"])),
            (json!({ "description": "other" }), json!(["agent_billing_specialist", "agent_sales"])),
            (json!({ "handoff_targets": [] }), json!([])),
        ] {
            let now = orbit(&broker.admin, Method::PATCH, &path, &change).await.expect(200).body;
            assert_eq!((&now["handoff_targets"], &now["config"]["handoff_targets"]), (&expected, &expected));
        }
        // D4: an empty list allows no agent.
        router.post("/handoffs", &Message::review(id, "agent_billing_specialist")).await.refused(403, "FORBIDDEN");
        // D13: a handoff to oneself is a no-op, and another tenant's agent does not exist.
        let own = router.post("/handoffs", &Message::review(id, id)).await.expect(200).body;
        assert_eq!(own["status"], "NO_OP");
        let key = broker.command(&["key", "create", "--tenant", "other", "--role", "operator"]).await;
        let other = broker.caller(Some(String::from_utf8(key.stdout).unwrap().trim()));
        other.post("/agents", &json!({ "agentId": "theirs" })).await.expect(201);
        orbit(&broker.admin, Method::PATCH, &path, &json!({ "handoff_targets": ["theirs"] })).await.expect(200);
        router.post("/handoffs", &Message::review(id, "theirs")).await.refused(403, "FORBIDDEN");
        orbit(&other, Method::GET, &path, &Value::Null).await.refused(404, "NOT_FOUND");
    }

    async fn d12_the_topologies_of_the_page_hold(broker: Broker) {
        // Two-way between router and billing, a mesh of billing and support, and no way from support to the router.
        let router = broker.pull("router", &["billing", "support"]).await;
        let billing = broker.pull("billing", &["router", "support"]).await;
        let support = broker.pull("support", &["billing"]).await;
        for (from, to, taken) in [
            (&router, "billing", true), (&router, "support", true), (&billing, "router", true), (&billing, "support", true), (&support, "billing", true),
            (&support, "router", false),
        ] {
            let message = Message::initial(&from.id, to);
            let answer = from.submit(&message).await;
            if taken { answer.expect(202); } else { answer.refused(403, "FORBIDDEN"); }
        }
    }
}
