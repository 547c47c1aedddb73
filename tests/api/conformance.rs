//! `handoffd conformance`: what happened, held against the contracts, from the database and from an
//! exported log.

use serde_json::{Value, json};

use crate::harness::Broker;
use crate::message::Message;

fn contract(version: &str, required: &Value) -> Value {
    json!({
        "id": "a-to-b", "version": version, "source": "a", "target": "b",
        "trigger": { "intent": "a review is due" },
        "payload": { "schema": { "type": "object" }, "required": required },
        "acceptance_criteria": { "required_fields": [], "domain_match": "true" },
        "recovery": { "on_reject": "source", "on_timeout": "source", "on_error": "source" },
    })
}

/// Runs the command; how it ended, what it said, and the rules with their handoffs.
async fn conformance(broker: &Broker, more: &[&str]) -> (Option<i32>, Value, Vec<(String, u64)>) {
    let all = [&["--output", "json", "conformance"], more].concat();
    let said = broker.command(&all).await;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let said_so = String::from_utf8_lossy(&said.stderr);
    let answer: Value =
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}{said_so}"));
    let findings = answer["report"]["findings"].as_array().unwrap().iter();
    let rules = findings
        .map(|one| (one["rule"].as_str().unwrap().to_owned(), one["handoffs"].as_u64().unwrap()))
        .collect();
    (said.status.code(), answer, rules)
}

both! {
    async fn c9_a_log_is_held_against_its_contracts_from_the_database_and_from_a_file(broker: Broker) {
        let folder = tempfile::tempdir().unwrap();
        let a = broker.pull("a", &["b", "c"]).await;
        broker.pull("b", &[]).await;
        broker.pull("c", &[]).await;
        broker.admin.put("/contracts/a-to-b", &contract("1.0.0", &json!([]))).await.expect(201);
        a.submit(&Message::review("a", "b")).await.expect(202);
        let (code, answer, rules) = conformance(broker, &[]).await;
        assert_eq!((code, rules), (Some(0), vec![]), "{answer}");
        assert_eq!((&answer["ok"], &answer["report"]["messages"]), (&json!(true), &json!(1)));

        a.submit(&Message::review("a", "c")).await.expect(202);
        let stricter = contract("2.0.0", &json!(["ticket_number"]));
        broker.admin.put("/contracts/a-to-b", &stricter).await.expect(201);
        let mut dead = contract("1.0.0", &json!([]));
        (dead["id"], dead["target"]) = (json!("a-to-d"), json!("d"));
        broker.admin.put("/contracts/a-to-d", &dead).await.expect(201);
        let expected: Vec<(String, u64)> = [
            ("undeclared-edge", 1),
            ("payload-outgrown", 1),
            ("version-drift", 1),
            ("dead-contract", 0),
        ]
        .map(|(rule, handoffs)| (rule.to_owned(), handoffs))
        .into();
        let (code, of_database, rules) = conformance(broker, &[]).await;
        assert_eq!((code, &rules), (Some(1), &expected), "{of_database}");
        assert_eq!(of_database["report"]["findings"][0]["edge"], json!(["a", "c"]));

        let log = folder.path().join("log.jsonl.zst");
        let log = log.to_str().unwrap();
        let said = broker.command(&["export", "--log", "--file", log]).await;
        assert!(said.status.success(), "{said:?}");
        let (code, of_file, _) = conformance(broker, &[log]).await;
        assert_eq!((code, &of_file["report"]), (Some(1), &of_database["report"]));

        // Files with the expected state replace the registered one.
        let file = folder.path().join("contract.json");
        let mut other = contract("2.0.0", &json!([]));
        other["target"] = json!("c");
        std::fs::write(&file, other.to_string()).unwrap();
        let (code, _, rules) =
            conformance(broker, &[log, "--contracts", file.to_str().unwrap()]).await;
        let expected = [("unknown-contract".to_owned(), 1), ("unruled-handoff".to_owned(), 1)];
        assert_eq!((code, &rules[..]), (Some(1), &expected[..]));

        std::fs::write(&file, "{\"format\":\"another\"}\n").unwrap();
        let said = broker.command(&["conformance", file.to_str().unwrap()]).await;
        assert_eq!(said.status.code(), Some(3), "{said:?}");
        let said = broker.command(&["conformance", "--tenant", "nobody"]).await;
        assert_eq!(said.status.code(), Some(3), "{said:?}");
    }
}
