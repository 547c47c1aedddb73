//! Differences between the versions of a contract, and between a message and the one before it.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::message::Message;

const EXAMPLE: &str = include_str!("../contracts/triage-to-refunds.yaml");

both! {
    async fn a_contract_shows_what_changed_since_the_version_before(broker: Broker) {
        let document = handoffd_gate::contract::document::Document::parse(EXAMPLE).unwrap();
        let mut contract = document.value().clone();
        contract["schemas"] = json!({ "schemas/refund-handoff@1.2.0.json": { "type": "object" } });
        let id = contract["id"].as_str().unwrap().to_owned();
        let first = contract["version"].as_str().unwrap().to_owned();
        let path = format!("/contracts/{id}");
        broker.admin.put(&path, &contract).await.expect(201);
        let auditor = Browser::of(broker, "auditor").await;
        let page = format!("/console{path}");
        assert_eq!(auditor.json(&page).await["changes"], Value::Null);
        contract["version"] = "1.9.0".into();
        contract["trigger"]["intent"] = "Refunds, by the new rules.".into();
        broker.admin.put(&path, &contract).await.expect(201);
        let shown = auditor.json(&page).await;
        let changes = shown["changes"]["items"].as_array().unwrap();
        let at = |place: &str| changes.iter().find(|one| one["place"] == place).unwrap();
        assert_eq!(at("/version")["before"], first.as_str());
        assert_eq!(at("/trigger/intent")["after"], "Refunds, by the new rules.");
        assert_eq!(changes.len(), 2, "{shown}");
        assert!(auditor.get(&page).await.expect(200).says(&format!("Changed since {first}")));
    }

    async fn a_handoff_shows_what_its_hop_changed(broker: Broker) {
        let (a, b, _) = (broker.pull("a", &["b"]).await, broker.pull("b", &["c"]).await, broker.pull("c", &[]).await);
        let first = Message::review("a", "b").set("/currentState/note", json!("one"));
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "accept", token, json!({})).await.expect(200);
        let second = first.next("b", "c").set("/currentState/note", json!("two"));
        b.submit(&second).await.expect(202);
        let auditor = Browser::of(broker, "auditor").await;
        assert_eq!(auditor.json(&format!("/console{}", first.path())).await["changes"], Value::Null);
        let shown = auditor.json(&format!("/console{}", second.path())).await;
        let changes = shown["changes"]["items"].as_array().unwrap();
        let note = changes.iter().find(|one| one["place"] == "/currentState/note").unwrap();
        assert_eq!((&note["change"], &note["before"], &note["after"]), (&json!("changed"), &json!("one"), &json!("two")));
        assert!(changes.iter().all(|one| one["place"] != "/handoffId"), "{shown}");
        let reader = Browser::of(broker, "operator-metadata").await;
        assert_eq!(reader.json(&format!("/console{}", second.path())).await["changes"], Value::Null);
    }
}
