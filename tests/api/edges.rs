//! The edges that a message may take besides the first: each is judged under its own contract when the message is
//! submitted, and the handoff that follows is ruled by it and recorded under it (finding G1 of 0.3.0).

use serde_json::{Value, json};

use crate::harness::{Agent, Broker, until};
use crate::message::Message;

fn contract(target: &str, more: &Value) -> Value {
    let mut contract = json!({
        "id": format!("a-to-{target}"), "version": "1.0.0", "source": "a", "target": target,
        "trigger": { "intent": "a review is due" },
        "payload": { "schema": { "type": "object" }, "required": [] },
        "acceptance_criteria": { "required_fields": [], "domain_match": "true" },
        "recovery": { "on_reject": "source", "on_timeout": "source", "on_error": "source" },
    });
    for (pointer, value) in more.as_object().unwrap() {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        contract.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    contract
}

async fn put(broker: &Broker, target: &str, more: &Value) {
    let contract = contract(target, more);
    let path = format!("/contracts/{}", contract["id"].as_str().unwrap());
    broker.admin.put(&path, &contract).await.expect(201);
}

async fn parties(broker: &Broker) -> [Agent; 3] {
    let a = json!({ "agentId": "a", "handoffTargets": ["b", "c", "d"], "supervisorId": "boss" });
    let a = broker.agent(a).await;
    broker.pull("d", &[]).await;
    broker.pull("boss", &[]).await;
    [a, broker.pull("b", &[]).await, broker.pull("c", &[]).await]
}

fn preferring(id: &str) -> Message {
    Message::review("a", "b").set("/preferredAgents", json!([id]))
}

fn with_ticket(message: Message) -> Message {
    message.set("/currentState", json!({ "ticket": "t-1" }))
}

/// The receiver refuses, and the handoff that replaces this one is the task's next.
async fn rejected(broker: &Broker, b: &Agent, message: &Message) -> Value {
    let token = b.claim_one().await;
    b.say(message, "reject", token, json!({ "reason": "NO" })).await.expect(200);
    let shown = broker.admin.get(&message.path()).await.expect(200).body;
    let next = shown["successorId"].as_str().unwrap_or_else(|| panic!("{shown}"));
    broker.admin.get(&format!("/handoffs/{next}")).await.expect(200).body
}

/// The contract that the task's last handoff is recorded under.
async fn recorded(broker: &Broker, message: &Message) -> Value {
    let trace = broker.trace(message).await;
    let records = trace["records"].as_array().unwrap();
    let last = records.iter().rfind(|record| record["kind"] == "HANDOFF").unwrap();
    last["contract"]["id"].clone()
}

/// Refused by submission and dry run alike.
async fn refused(a: &Agent, message: &Message) -> crate::harness::Answer {
    let tried = a.api.post("/handoffs/validate", message).await.expect(200);
    assert_eq!(tried.body["valid"], false, "{}", tried.text);
    let answer = a.submit(message).await.refused(422, "CONTRACT_VIOLATION");
    let dry: Vec<&Value> =
        tried.body["failures"].as_array().unwrap().iter().map(|one| &one["pointer"]).collect();
    assert_eq!(json!(dry), json!(answer.pointers()));
    answer
}

both! {
    async fn a_preferred_agent_is_judged_under_the_contract_of_its_own_edge(broker: Broker) {
        let [a, b, c] = parties(broker).await;
        put(broker, "b", &json!({ "/recovery/on_error": "human" })).await;
        put(broker, "c", &json!({ "/payload/required": ["ticket"] })).await;
        let alone = Message::review("a", "c");
        assert_eq!(a.submit(&alone).await.refused(422, "CONTRACT_VIOLATION").pointers(), ["/ticket"]);
        let answer = refused(&a, &preferring("c")).await;
        assert_eq!(answer.pointers(), ["/preferredAgents/0"]);
        assert!(answer.text.contains("a-to-c") && answer.text.contains("ticket"), "{}", answer.text);
        // As the receiver that it prefers sees it.
        let seen = c.api.post("/handoffs/validate", &preferring("c")).await.expect(200);
        assert_eq!(seen.pointers(), ["/ticket"], "{}", seen.text);
        // That fits: the handoff in its place is ruled by that contract and recorded under it.
        let fits = with_ticket(preferring("c"));
        a.submit(&fits).await.expect(202);
        let next = rejected(broker, &b, &fits).await;
        assert_eq!(next["toAgent"]["agentId"], "c");
        assert_eq!(recorded(broker, &fits).await, "a-to-c");
        let said = broker.command(&["--output", "json", "conformance"]).await;
        let report: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(report["ok"], true, "{report}");
        // It fails: its own contract leads back to the source, and not to a person.
        let token = c.claim_one().await;
        let child = fits.clone().set("/handoffId", next["handoffId"].clone());
        c.say(&child, "accept", token, json!({})).await.expect(200);
        c.say(&child, "fail", token, json!({ "error": "BROKEN" })).await.expect(200);
        let task = broker.task(&fits).await;
        assert_eq!((&task["status"], &task["holder"]), (&json!("PENDING_HANDOFF"), &json!("a")));
    }

    async fn predicates_and_people_of_a_preferred_edge_refuse(broker: Broker) {
        let [a, _, _] = parties(broker).await;
        put(broker, "c", &json!({ "/trigger/predicate": "state.sure == true" })).await;
        put(broker, "d", &json!({ "/human_in_the_loop": true })).await;
        assert_eq!(refused(&a, &preferring("c")).await.pointers(), ["/preferredAgents/0"]);
        let answer = refused(&a, &preferring("d")).await;
        assert_eq!(answer.pointers(), ["/preferredAgents/0"]);
        assert!(answer.text.contains("human_in_the_loop"), "{}", answer.text);
        // An agent that replaces a busy receiver at once is named by its place, too.
        broker.admin.patch("/agents/b", &json!({ "state": "PAUSED" })).await.expect(200);
        let sent = preferring("c");
        assert_eq!(a.submit(&sent).await.refused(422, "CONTRACT_VIOLATION").pointers().len(), 1);
    }

    async fn recoveries_are_judged_where_a_contract_rules_their_edge(broker: Broker) {
        let [a, b, _] = parties(broker).await;
        put(broker, "b", &json!({ "/recovery/on_reject": "supervisor", "/recovery/on_error": "c" })).await;
        // No contract rules the edge to the supervisor: the failed handoff's goes on to rule.
        let first = Message::review("a", "b");
        a.submit(&first).await.expect(202);
        assert_eq!(rejected(broker, &b, &first).await["toAgent"]["agentId"], "boss");
        assert_eq!(recorded(broker, &first).await, "a-to-b");
        put(broker, "boss", &json!({ "/payload/required": ["ticket"] })).await;
        put(broker, "c", &json!({ "/payload/required": ["place"] })).await;
        let answer = refused(&a, &Message::review("a", "b")).await;
        assert_eq!(answer.pointers(), ["/toAgent", "/toAgent"]);
        for word in ["recovery.on_reject", "boss", "recovery.on_error", "a-to-c"] {
            assert!(answer.text.contains(word), "{word}: {}", answer.text);
        }
        let fits = Message::review("a", "b").set("/currentState", json!({ "ticket": 1, "place": 2 }));
        a.submit(&fits).await.expect(202);
        assert_eq!(rejected(broker, &b, &fits).await["toAgent"]["agentId"], "boss");
        assert_eq!(recorded(broker, &fits).await, "a-to-boss");
    }

    async fn a_person_gives_a_handoff_to_an_agent_whose_edge_takes_it(broker: Broker) {
        let [a, b, _] = parties(broker).await;
        put(broker, "b", &json!({ "/recovery/on_reject": "human" })).await;
        put(broker, "c", &json!({ "/payload/required": ["ticket"] })).await;
        put(broker, "d", &json!({})).await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        let open = broker.admin.get("/escalations?status=OPEN").await.expect(200).body;
        let path = format!("/escalations/{}/resolve", open["items"][0]["escalationId"].as_str().unwrap());
        let to = |id: &str| json!({ "action": "reassign", "agentId": id, "reason": "they know it" });
        let answer = broker.admin.post(&path, &to("c")).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/agentId"]);
        assert!(answer.text.contains("a-to-c"), "{}", answer.text);
        broker.admin.post(&path, &to("d")).await.expect(200);
        assert_eq!(recorded(broker, &message).await, "a-to-d");
    }

    async fn of_several_instances_the_best_that_the_contract_takes_gets_it(broker: Broker) {
        // Finding G6 of 0.3.0.
        let a = json!({ "agentId": "a", "handoffTargets": ["type:clerk", "d"] });
        let a = broker.agent(a).await;
        for (id, version, domains) in [("old", "1.0.0", json!(["billing"])), ("new", "2.0.0", json!([]))] {
            broker.agent(json!({ "agentId": id, "agentType": "clerk", "agentVersion": version, "domains": domains })).await;
        }
        broker.pull("d", &[]).await;
        let to_type = || Message::review("a", "x").set("/toAgent", json!({ "agentType": "clerk", "agentVersion": "*" }));
        let shown = async |message: &Message| {
            let row = broker.admin.get(&message.path()).await.expect(200).body;
            row["toAgent"]["agentId"].clone()
        };
        let message = to_type();
        a.submit(&message).await.expect(202);
        assert_eq!(shown(&message).await, "new");
        put(broker, "clerk", &json!({ "/acceptance_criteria/domain_match": "target.domains contains 'billing'" })).await;
        let message = to_type();
        a.submit(&message).await.expect(202);
        assert_eq!(shown(&message).await, "old");
        let list = json!([{ "agentType": "clerk", "agentVersion": "*" }, { "agentId": "d" }]);
        let sent = to_type().set("/schemaVersion", json!("2.2")).set("/receiverList", list);
        let answer = a.submit(&sent).await.expect(202).body;
        assert_eq!(answer["group"]["branches"][0]["agentId"], "old", "{answer}");
        // If the contract takes none, the best is refused.
        let none = json!({ "/version": "2.0.0", "/acceptance_criteria/domain_match": "target.domains contains 'law'" });
        put(broker, "clerk", &none).await;
        let answer = a.submit(&to_type()).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/toAgent"]);
    }

    async fn an_agent_that_was_unknown_at_submission_takes_nothing_over(broker: Broker) {
        let a = broker.pull("a", &["b", "late"]).await;
        let b = broker.pull("b", &[]).await;
        let message = preferring("late");
        let answer = a.submit(&message).await.expect(202).body;
        assert_eq!(answer["warnings"][0]["code"], "UNKNOWN_AGENT", "{answer}");
        assert_eq!(answer["warnings"][0]["pointer"], "/preferredAgents/0");
        broker.pull("late", &[]).await;
        let token = b.claim_one().await;
        b.say(&message, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        until("rolled back", async || {
            let task = broker.task(&message).await;
            if task["status"] == "PENDING_HANDOFF" { Ok(()) } else { Err(task.to_string()) }
        }).await;
    }
}

both! {
    with [("HANDOFFD_GATE__REQUIRE_CONTRACT", "true")]
    async fn an_edge_that_must_have_a_contract_must_have_one_for_preferred_agents_too(broker: Broker) {
        let [a, _, _] = parties(broker).await;
        put(broker, "b", &json!({})).await;
        a.submit(&Message::review("a", "b")).await.expect(202);
        assert_eq!(refused(&a, &preferring("c")).await.pointers(), ["/preferredAgents/0"]);
    }
}
