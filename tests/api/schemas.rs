//! The registry of payload schemas from outside: registered, compared, named by contracts, and held
//! against every message of their edge.

use serde_json::{Value, json};

use crate::harness::{Answer, Caller};
use crate::message::Message;

fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["order_id"],
        "properties": {
            "order_id": { "type": "string", "pattern": "^[0-9]+$" },
            "tone": { "type": "string" },
        },
    })
}

async fn put(caller: &Caller, version: &str, schema: &Value) -> Answer {
    let path = format!("/schemas/payloads/refund/{version}");
    caller.put(&path, &json!({ "schema": schema })).await
}

fn contract(version: &str, schema: &str) -> Value {
    json!({
        "id": "front-to-refund", "version": version, "source": "front", "target": "refund",
        "trigger": { "intent": "refund" },
        "payload": { "schema": schema },
    })
}

/// Sixty definitions, each of which names the next one twice.
fn doubling() -> Value {
    let mut schema = json!({ "properties": { "order_id": { "$ref": "#/$defs/d0" } }, "$defs": {} });
    for n in 0..60 {
        let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        schema["$defs"][format!("d{n}")] = json!({ "anyOf": [next, next] });
    }
    schema["$defs"]["d60"] = json!({ "type": "integer" });
    schema
}

both! {
    async fn a_schema_that_would_cost_too_much_is_refused_wherever_it_stands(broker: Broker) {
        let operator = broker.person("operator").await;
        let answer = put(&operator, "1.0.0", &doubling()).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/schema"]);
        assert!(answer.text.contains("#/$defs/d60"), "{}", answer.text);
        let mut inline = contract("1.0.0", "");
        inline["payload"]["schema"] = doubling();
        let answer = operator.put("/contracts/front-to-refund", &inline).await;
        let answer = answer.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/payload/schema"]);
        let mut beside = contract("1.0.0", "much");
        beside["schemas"] = json!({ "much": doubling() });
        let answer = operator.put("/contracts/front-to-refund", &beside).await;
        assert_eq!(answer.refused(422, "SCHEMA_INVALID").pointers(), ["/schemas/much"]);
    }

    async fn a115_a_version_is_registered_if_its_number_says_what_changes(broker: Broker) {
        let operator = broker.person("operator").await;
        let size = broker.log_size().await;
        let made = put(&operator, "1.0.0", &schema()).await.expect(201).body;
        assert_eq!((&made["schemaId"], &made["version"]), (&json!("refund"), &json!("1.0.0")));
        assert_eq!(made["schema"], schema());
        assert_eq!(made["comparison"]["against"], Value::Null);
        put(&operator, "1.0.0", &schema()).await.expect(200);
        // Another content under the same number, and numbers that say too little.
        let mut optional = schema();
        optional["properties"]["note"] = json!({ "type": "string" });
        put(&operator, "1.0.0", &optional).await.refused(409, "CONFLICT");
        let answer = put(&operator, "1.0.1", &optional).await.refused(409, "CONFLICT");
        assert_eq!(answer.pointers(), ["/version", "/schema/properties/note"], "{}", answer.text);
        assert_eq!(broker.log_size().await, size + 1, "what is refused leaves nothing");
        let made = put(&operator, "1.1.0", &optional).await.expect(201).body;
        assert_eq!(made["comparison"]["needs"], "minor");
        // More that must be there: a major, and words on how to get there.
        let mut required = optional.clone();
        required["required"] = json!(["order_id", "note"]);
        let answer = put(&operator, "2.0.0", &required).await.refused(409, "CONFLICT");
        assert_eq!(answer.pointers(), ["/migration"]);
        let words = json!({ "schema": required, "migration": "Send a note." });
        operator.put("/schemas/payloads/refund/2.0.0", &words).await.expect(201);
        // An earlier release announced each removal.
        let mut less = required.clone();
        less["properties"].as_object_mut().unwrap().remove("tone");
        let answer = put(&operator, "3.0.0", &less).await.refused(409, "CONFLICT");
        assert_eq!(answer.pointers(), ["/schema/properties/tone"]);
        required["properties"]["tone"]["deprecated"] = json!(true);
        put(&operator, "2.1.0", &required).await.expect(201);
        put(&operator, "3.0.0", &less).await.expect(201);
        let path = "/schemas/payloads/refund";
        let listed = operator.get(path).await.expect(200).body;
        assert_eq!(listed["version"], "3.0.0");
        let versions: Vec<_> = listed["items"].as_array().unwrap().iter().map(|one| one["version"].as_str().unwrap()).collect();
        assert_eq!(versions, ["1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0"]);
        let second = operator.get(&format!("{path}/2.0.0")).await.expect(200).body;
        assert_eq!(second["migration"], "Send a note.");
        assert!(second["createdBy"].is_string() && second["createdAt"].is_string());
        operator.get(&format!("{path}/9.0.0")).await.refused(404, "NOT_FOUND");
        operator.get("/schemas/payloads/other").await.refused(404, "NOT_FOUND");
        // It is in the log, with its author.
        let records = broker.admin.get("/audit/records?limit=500").await.expect(200).text;
        assert_eq!(records.matches("PAYLOAD_SCHEMA_PUT").count(), 5, "{records}");
    }

    async fn a_comparison_says_who_breaks_and_why_and_writes_nothing(broker: Broker) {
        let operator = broker.person("operator").await;
        put(&operator, "1.0.0", &schema()).await.expect(201);
        let auditor = broker.person("auditor").await;
        let size = broker.log_size().await;
        let mut changed = schema();
        changed["properties"]["order_id"]["type"] = json!("integer");
        let path = "/schemas/payloads/refund/compare";
        let said = auditor.post(path, &json!({ "schema": changed })).await.expect(200).body;
        assert_eq!(
            (&said["against"], &said["needs"], &said["nextVersion"]),
            (&json!("1.0.0"), &json!("major"), &json!("2.0.0"))
        );
        assert_eq!((&said["breaksSenders"], &said["breaksReceivers"]), (&json!(true), &json!(true)));
        let change = &said["changes"][0];
        assert_eq!(
            (&change["pointer"], &change["kind"]),
            (&json!("/properties/order_id/type"), &json!("type-changed"))
        );
        assert_eq!(change["reason"], "string becomes integer");
        assert_eq!(said["accepted"], false, "it was not announced");
        let same = json!({ "schema": schema(), "version": "1.0.0" });
        assert_eq!(auditor.post(path, &same).await.expect(200).body["accepted"], true);
        let other = json!({ "schema": changed, "version": "1.0.0" });
        let said = auditor.post(path, &other).await.expect(200).body;
        assert_eq!((&said["accepted"], &said["failures"][0]["pointer"]), (&json!(false), &json!("/version")));
        assert_eq!(broker.log_size().await, size);
    }

    async fn what_is_no_schema_is_refused_with_its_place(broker: Broker) {
        let admin = &broker.admin;
        let at = |path: &str| format!("/schemas/payloads/{path}");
        let cases = [
            ("refund/1.0.0", json!({ "schema": { "type": 7 } }), "/schema"),
            ("refund/1.0.0", json!({ "schema": { "$ref": "https://elsewhere.example/s.json" } }), "/schema"),
            ("refund/1.0.0", json!({ "schema": { "$schema": "http://json-schema.org/draft-07/schema#" } }), "/schema/$schema"),
            ("refund/1.0.0", json!({ "schema": {}, "migration": " " }), "/migration"),
            ("refund/1.0", json!({ "schema": {} }), ""),
            ("refund/1.0.0+x", json!({ "schema": {} }), ""),
            ("Refund/1.0.0", json!({ "schema": {} }), ""),
        ];
        for (path, body, pointer) in cases {
            let answer = admin.put(&at(path), &body).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(answer.pointers(), [pointer], "{path} {body}");
        }
        let agent = broker.pull("someone", &[]).await;
        put(&agent.api, "1.0.0", &schema()).await.refused(403, "FORBIDDEN");
        put(&broker.person("auditor").await, "1.0.0", &schema()).await.refused(403, "FORBIDDEN");
        agent.api.post(&at("refund/compare"), &json!({ "schema": {} })).await.refused(403, "FORBIDDEN");
    }

    async fn the_list_of_schemas_has_a_tenants_own_for_who_has_a_key(broker: Broker) {
        put(&broker.admin, "1.0.0", &schema()).await.expect(201);
        put(&broker.admin, "1.1.0-rc.1", &schema()).await.expect(201);
        let agent = broker.pull("someone", &[]).await;
        let items = agent.api.get("/schemas").await.expect(200).body["items"].clone();
        let own = items.as_array().unwrap().last().unwrap().clone();
        assert_eq!(own, json!({ "name": "payloads/refund", "version": "1.0.0", "href": "/schemas/payloads/refund/1.0.0" }));
        let read = agent.api.get(own["href"].as_str().unwrap()).await.expect(200).body;
        assert_eq!(read["schema"], schema());
        let listed = agent.api.get("/schemas/payloads").await.expect(200).body;
        assert_eq!((&listed["items"][0]["version"], &listed["items"][0]["versions"]), (&json!("1.0.0"), &json!(2)));
    }

    async fn c14_a_contract_names_a_registered_schema_and_the_gate_holds_it(broker: Broker) {
        let front = broker.pull("front", &["refund"]).await;
        broker.pull("refund", &[]).await;
        let name = "registry:refund@1.0.0";
        let path = "/contracts/front-to-refund";
        let answer = broker.admin.put(path, &contract("1.0.0", name)).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/payload/schema"]);
        assert!(answer.text.contains("not registered"));
        let lint = broker.admin.post("/contracts/lint", &contract("1.0.0", name)).await.expect(200);
        assert!(lint.text.contains("schema-drift"), "{}", lint.text);
        let vague = contract("1.0.0", "registry:refund");
        broker.admin.put(path, &vague).await.refused(422, "SCHEMA_INVALID");
        put(&broker.admin, "1.0.0", &schema()).await.expect(201);
        broker.admin.put(path, &contract("1.0.0", name)).await.expect(201);
        let message = |order: Value| {
            Message::review("front", "refund").set("/currentState", json!({ "order_id": order }))
        };
        front.submit(&message(json!("7"))).await.expect(202);
        let answer = front.submit(&message(json!("seven"))).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/currentState/order_id"]);
        // A later version of the schema rules once a contract names it.
        let mut looser = schema();
        looser["properties"]["order_id"].as_object_mut().unwrap().remove("pattern");
        put(&broker.admin, "1.1.0", &looser).await.expect(201);
        front.submit(&message(json!("seven"))).await.refused(422, "CONTRACT_VIOLATION");
        broker.admin.put(path, &contract("1.1.0", "registry:refund@1.1.0")).await.expect(201);
        front.submit(&message(json!("seven"))).await.expect(202);
    }

    async fn of_versions_registered_at_once_each_is_held_against_the_others(broker: Broker) {
        put(&broker.admin, "1.0.0", &schema()).await.expect(201);
        let with = |name: &str| {
            let mut schema = schema();
            schema["properties"][name] = json!({});
            schema
        };
        // Each adds another property: whichever comes later lacks the first one's, and is refused.
        let asked: Vec<_> = (1..=6).map(|n| (format!("1.{n}.0"), with(&format!("p{n}")))).collect();
        let answers = futures_util::future::join_all(
            asked.iter().map(|(version, schema)| put(&broker.admin, version, schema)),
        )
        .await;
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(made, 1, "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
        assert!(answers.iter().all(|answer| [201, 409].contains(&answer.status)));
    }
}
