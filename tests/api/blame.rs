//! `GET /tasks/{taskId}/blame`: who wrote a value.

use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Caller};
use crate::message::Message;

/// `a` hands to `b`, `b` to `c`, `c` to `d`; the note is written by `a`, changed by `b`, carried over
/// by `c`.
async fn relay(broker: &Broker) -> (Vec<Agent>, Vec<Message>) {
    let mut agents = Vec::new();
    for (id, targets) in [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["d"]), ("d", vec![])] {
        agents.push(broker.pull(id, &targets).await);
    }
    let first = Message::review("a", "b").set("/currentState/note", json!("one")).cost(0.1, 0.9);
    let second = first.next("b", "c").set("/currentState/note", json!("two")).cost(0.2, 0.8);
    let third = second.next("c", "d").set("/currentState/note", json!("two")).cost(0.3, 0.7);
    let messages = vec![first, second, third];
    for (place, message) in messages.iter().enumerate() {
        agents[place].submit(message).await.expect(202);
        let token = agents[place + 1].claim_one().await;
        agents[place + 1].say(message, "accept", token, json!({})).await.expect(200);
    }
    (agents, messages)
}

async fn blame(caller: &Caller, message: &Message, query: &str) -> Value {
    caller.get(&format!("{}/blame?{query}", message.task_path())).await.expect(200).body
}

fn changes(body: &Value) -> Vec<(&str, &str)> {
    body["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["agentId"].as_str().unwrap(), entry["change"].as_str().unwrap()))
        .collect()
}

both! {
    async fn a_carried_over_value_is_blamed_on_who_wrote_it(broker: Broker) {
        let (_, messages) = relay(broker).await;
        let body = blame(&broker.admin, &messages[2], "pointer=/currentState/note").await;
        assert_eq!(body["handoffId"], messages[2]["handoffId"], "the task's last");
        assert_eq!((&body["present"], &body["value"]), (&json!(true), &json!("two")));
        assert_eq!(body["certain"], true);
        let writer = &body["writtenBy"];
        assert_eq!(writer["handoffId"], messages[1]["handoffId"]);
        assert_eq!(writer["fromAgent"]["agentId"], "b");
        assert_eq!(changes(&body), [("a", "set"), ("b", "changed")]);
        assert_eq!(body["history"][1]["valueHash"], body["valueHash"]);
        assert_eq!(body["verification"]["ok"], true);
        // The record is the one in the log.
        let trace = broker.trace(&messages[0]).await;
        let record = trace["records"].as_array().unwrap().iter().find(|record| record["leafIndex"] == writer["leafIndex"]).unwrap();
        assert_eq!((&record["recordHash"], &record["time"]), (&writer["recordHash"], &writer["time"]));
        assert_eq!(record["contract"], writer["contract"]);
        let earlier = format!("pointer=/currentState/note&handoff={}", messages[0].id());
        let body = blame(&broker.admin, &messages[2], &earlier).await;
        assert_eq!((&body["value"], &body["writtenBy"]["fromAgent"]["agentId"]), (&json!("one"), &json!("a")));
    }

    async fn a_value_that_is_gone_is_blamed_on_who_took_it_away(broker: Broker) {
        let (agents, messages) = relay(broker).await;
        let body = blame(&broker.admin, &messages[0], "pointer=/currentState/nobody").await;
        assert_eq!(body["present"], false);
        assert!(body["writtenBy"].is_null() && body["removedBy"].is_null() && changes(&body).is_empty(), "{body}");
        // Sent back and on again, without the note.
        broker.admin.patch("/agents/d", &json!({ "handoffTargets": ["a"] })).await.expect(200);
        let last = messages[2].next("d", "a").cost(0.4, 0.6);
        agents[3].submit(&last).await.expect(202);
        let body = blame(&broker.admin, &last, "pointer=/currentState/note").await;
        assert_eq!((&body["present"], &body["value"]), (&json!(false), &Value::Null));
        assert_eq!(body["removedBy"]["handoffId"], last["handoffId"]);
        assert_eq!(changes(&body), [("a", "set"), ("b", "changed"), ("d", "removed")]);
    }

    async fn the_branches_of_a_group_stand_side_by_side_in_blame_cost_and_report(broker: Broker) {
        let a = broker.pull("a", &["b", "c"]).await;
        let (b, c) = (broker.pull("b", &[]).await, broker.pull("c", &[]).await);
        let message = Message::initial("a", "b")
            .set("/schemaVersion", json!("2.2"))
            .set("/receiverList", json!(["b", "c"]))
            .set("/currentState/note", json!("one"))
            .cost(0.0, 1.0);
        a.submit(&message).await.expect(202);
        let mut branches = Vec::new();
        for (agent, spent) in [(&b, 0.25), (&c, 0.125)] {
            let item = agent.claim(1).await.remove(0);
            let path = format!("/handoffs/{}/complete", item["handoffId"].as_str().unwrap());
            let said = json!({ "fencingToken": item["fencingToken"], "result": 1, "costTracking": { "costSpentSoFarUSD": spent } });
            agent.api.post(&path, &said).await.expect(200);
            branches.push(item["handoffId"].as_str().unwrap().to_owned());
        }
        let on = message.next("a", "b").cost(0.375, 0.5).set("/currentState/note", json!("two"));
        a.submit(&on).await.expect(202);
        for branch in &branches {
            let query = format!("pointer=/currentState/note&handoff={branch}");
            let body = blame(&broker.admin, &message, &query).await;
            assert_eq!((&body["value"], &body["writtenBy"]["handoffId"]), (&json!("one"), &json!(branch)), "{body}");
            assert_eq!(changes(&body), [("a", "set")], "no branch is behind another: {body}");
            assert_eq!(body["verification"]["ok"], true);
        }
        let body = blame(&broker.admin, &message, "pointer=/currentState/note").await;
        assert_eq!((&body["handoffId"], &body["value"]), (&on["handoffId"], &json!("two")), "{body}");
        let cost = broker.admin.get(&format!("{}/cost", message.task_path())).await.expect(200).body;
        let hops = cost["hops"].as_array().unwrap();
        let own = |id: &str| hops.iter().find(|hop| hop["handoffId"] == id).unwrap().clone();
        assert_eq!(hops.len(), 3, "side by side: {cost}");
        assert!(branches.iter().all(|id| own(id)["parentHandoffId"].is_null()), "{cost}");
        assert!((cost["sums"]["spentUSD"].as_f64().unwrap() - 0.375).abs() < 1e-9, "{cost}");
        let trace = broker.trace(&message).await;
        let page = handoffd_evidence::report::html(&trace, &[], &handoffd_evidence::report::ReportFacts::default());
        for place in 1..=2 {
            let told = format!("Receiver {place} of 2 of the same message, all of them needed");
            assert!(page.contains(&told), "{told}");
        }
    }

    async fn an_agent_asks_about_its_own_messages_only(broker: Broker) {
        let (agents, messages) = relay(broker).await;
        let path = |query: &str| format!("{}/blame?{query}", messages[0].task_path());
        // `d` learns who wrote what it got, and no value that it never got.
        let body = blame(&agents[3].api, &messages[0], "pointer=/currentState/note").await;
        assert_eq!((&body["value"], &body["writtenBy"]["fromAgent"]["agentId"]), (&json!("two"), &json!("b")));
        assert!(body["history"][0]["valueHash"].is_null(), "a short value can be guessed from its hash: {body}");
        // `a` sees its own, though it is not the task's last.
        let body = blame(&agents[0].api, &messages[0], "pointer=/currentState/note").await;
        assert_eq!((&body["handoffId"], &body["value"]), (&messages[0]["handoffId"], &json!("one")));
        let other = path(&format!("pointer=/currentState/note&handoff={}", messages[2].id()));
        agents[0].api.get(&other).await.refused(404, "NOT_FOUND");
        let stranger = broker.pull("e", &[]).await;
        stranger.api.get(&path("pointer=/currentState/note")).await.refused(404, "NOT_FOUND");
    }

    async fn a_question_that_makes_no_sense_is_told_why(broker: Broker) {
        let (_, messages) = relay(broker).await;
        let ask = async |query: &str| {
            broker.admin.get(&format!("{}/blame{query}", messages[0].task_path())).await
        };
        for (query, why) in [
            ("?pointer=currentState", "begins with `/`"),
            ("?pointer=/a~2", "`~` is followed by"),
            ("?pointer=/checkpoint/step", "kept apart"),
            ("", "pointer"),
            ("?pointer=/x&handoff=7", "handoff is malformed"),
        ] {
            let answer = ask(query).await.refused(400, "INVALID_REQUEST");
            assert!(answer.text.contains(why), "{query}: {}", answer.text);
        }
        let unknown = Message::initial("a", "b");
        ask(&format!("?pointer=/x&handoff={}", unknown.id())).await.refused(404, "NOT_FOUND");
        let elsewhere = format!("{}/blame?pointer=/x", unknown.task_path());
        broker.admin.get(&elsewhere).await.refused(404, "NOT_FOUND");
        let whole = ask("?pointer=").await.expect(200);
        assert_eq!(whole.body["value"]["handoffId"], messages[2]["handoffId"]);
    }
}
