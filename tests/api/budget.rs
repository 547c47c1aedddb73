//! The budget of a task: reserves of siblings, amounts that go back, spending by agent.

use serde_json::{Value, json};

use crate::harness::{Agent, Broker};
use crate::message::Message;

/// Sends a message, and has it claimed and accepted; the token to speak with.
async fn taken(from: &Agent, to: &Agent, message: &Message) -> i64 {
    from.submit(message).await.expect(202);
    let token = to.claim_one().await;
    to.say(message, "accept", token, json!({})).await.expect(200);
    token
}

async fn cost(broker: &Broker, message: &Message) -> Value {
    broker.admin.get(&format!("{}/cost", message.task_path())).await.expect(200).body
}

/// The figures of a task: spent, and left.
async fn shown(broker: &Broker, message: &Message) -> (f64, f64) {
    let task = broker.task(message).await;
    let figure = |name: &str| task[name].as_f64().unwrap();
    (figure("costSpentSoFarUSD"), figure("costBudgetRemainingUSD"))
}

/// The figures of a task: granted, spent, reserved, remaining, overdrawn.
fn sums(cost: &Value) -> Value {
    let names = ["grantedUSD", "spentUSD", "reservedUSD", "remainingUSD", "overdrawnUSD"];
    json!(names.map(|name| cost["sums"][name].as_f64().unwrap()))
}

both! {
    async fn siblings_at_the_same_moment_cannot_overspend_what_their_parent_has(broker: Broker) {
        let names: Vec<String> = (0..5).map(|n| format!("c{n}")).collect();
        let targets: Vec<&str> = names.iter().map(String::as_str).collect();
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &targets).await;
        for name in &targets {
            broker.pull(name, &[]).await;
        }
        let first = Message::review("a", "b").cost(1.0, 9.0);
        taken(&a, &b, &first).await;
        let children: Vec<Message> =
            targets.iter().map(|to| first.next("b", to).cost(1.0, 3.0)).collect();
        let asked = children.iter().map(|child| b.submit(child));
        let answers = futures_util::future::join_all(asked).await;
        let (well, refused): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 202);
        // A third refusal would ask a person.
        assert_eq!((well.len(), refused.len()), (3, 2));
        for answer in refused {
            let answer = answer.refused(422, "BUDGET_MISMATCH");
            assert_eq!(answer.pointers(), ["/costTracking/costBudgetRemainingUSD"]);
            for number in ["asks for 3.00 USD", "0.00 USD are left", "9.00 USD are reserved"] {
                assert!(answer.text.contains(number), "{}", answer.text);
            }
        }
        let cost = cost(broker, &first).await;
        assert_eq!(sums(&cost), json!([10.0, 1.0, 9.0, 0.0, 0.0]), "{cost}");
        let below = |hop: &&Value| hop["parentHandoffId"] == first["handoffId"];
        assert_eq!(cost["hops"].as_array().unwrap().iter().filter(below).count(), 3);
        let dry = b.api.post("/handoffs/validate", &first.next("b", "c0").cost(1.0, 3.0)).await;
        assert_eq!(dry.expect(200).body["reason"], "BUDGET_MISMATCH");
    }

    async fn what_was_not_spent_goes_back_and_the_hops_show_who_spent_it(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &["c", "d"]).await;
        let c = broker.pull("c", &[]).await;
        let d = broker.pull("d", &[]).await;
        let first = Message::review("a", "b").cost(0.5, 9.5);
        taken(&a, &b, &first).await;
        let second = first.next("b", "c").cost(1.0, 6.0);
        let token = taken(&b, &c, &second).await;
        let more = first.next("b", "d").cost(1.0, 3.5);
        b.submit(&more).await.refused(422, "BUDGET_MISMATCH");
        for (bad, pointer) in [
            (json!({ "costTracking": 3 }), "/costTracking"),
            (json!({ "costTracking": { "costSpentSoFarUSD": -1 } }), "/costTracking/costSpentSoFarUSD"),
            (
                json!({ "costTracking": { "costSpentSoFarUSD": 2, "tokenSpent": { "prompt": 1.5 } } }),
                "/costTracking/tokenSpent/prompt",
            ),
        ] {
            let answer = c.say(&second, "complete", token, bad).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(answer.pointers(), [pointer]);
        }
        let done = json!({ "result": "ok", "costTracking": { "costSpentSoFarUSD": 3.25 } });
        c.say(&second, "complete", token, done.clone()).await.expect(200);
        c.say(&second, "complete", token, done).await.expect(200);
        let now = cost(broker, &first).await;
        // b was done when c accepted: what it did not hand on is free, and it may still ask for it.
        assert_eq!(sums(&now), json!([10.0, 3.25, 0.0, 6.75, 0.0]), "{now}");
        let again = more.again();
        b.submit(&again).await.expect(202);
        let token = d.claim_one().await;
        d.say(&again, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        let now = cost(broker, &first).await;
        let hop = &now["hops"][0];
        assert_eq!((&hop["fromAgentId"], &hop["toAgentId"]), (&json!("a"), &json!("b")));
        let below: Vec<&Value> = now["hops"].as_array().unwrap().iter()
            .filter(|one| one["parentHandoffId"] == hop["handoffId"]).collect();
        assert_eq!((below.len(), &hop["parentHandoffId"]), (2, &Value::Null), "{now}");
        assert_eq!((&below[0]["senderSpentUSD"], &below[0]["receiverSpentUSD"]), (&json!(0.5), &json!(2.25)));
        let spent: Vec<_> = now["agents"].as_array().unwrap().iter()
            .map(|agent| (agent["agentId"].as_str().unwrap(), agent["spentUSD"].as_f64().unwrap()))
            .collect();
        assert_eq!(spent, [("a", 0.5), ("b", 0.5), ("c", 2.25), ("d", 0.0)]);
    }

    async fn after_a_failure_the_next_message_states_what_the_task_shows(broker: Broker) {
        // Finding G3 of 0.3.0: of the task's opener, then of a receiver that handed on.
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &["c"]).await;
        let c = broker.pull("c", &[]).await;
        let failed = |spent: f64| json!({ "error": "BROKEN", "costTracking": { "costSpentSoFarUSD": spent } });
        let first = Message::review("a", "b").cost(0.10, 0.90);
        let token = taken(&a, &b, &first).await;
        b.say(&first, "fail", token, failed(0.15)).await.expect(200);
        let (spent, left) = shown(broker, &first).await;
        assert_eq!((spent, left), (0.15, 0.85));
        let second = first.next("a", "b").cost(spent, left);
        taken(&a, &b, &second).await;
        assert_eq!(shown(broker, &first).await, (0.15, 0.85), "nothing counts twice");
        let third = second.next("b", "c").cost(0.25, 0.75);
        let token = taken(&b, &c, &third).await;
        c.say(&third, "fail", token, failed(0.45)).await.expect(200);
        let (spent, left) = shown(broker, &first).await;
        assert_eq!((spent, left), (0.45, 0.55));
        b.submit(&second.next("b", "c").cost(spent, left)).await.expect(202);
        assert_eq!(shown(broker, &first).await, (0.45, 0.55));
        let by_agent = cost(broker, &first).await;
        let spent: Vec<_> = by_agent["agents"].as_array().unwrap().iter()
            .map(|agent| agent["spentUSD"].as_f64().unwrap()).collect();
        assert_eq!(spent, [0.10, 0.15, 0.20], "{by_agent}");
    }

    async fn after_a_fan_out_its_opener_goes_on_with_what_the_task_shows(broker: Broker) {
        let a = broker.pull("a", &["b", "c", "d"]).await;
        let (b, c) = (broker.pull("b", &[]).await, broker.pull("c", &[]).await);
        broker.pull("d", &[]).await;
        let list = json!([{ "agentId": "b" }, { "agentId": "c" }]);
        let first = Message::initial("a", "b").set("/schemaVersion", json!("2.2")).set("/receiverList", list)
            .set("/join", json!("any")).cost(0.10, 0.40);
        a.submit(&first).await.expect(202);
        for (agent, verb, spent) in [(&b, "fail", 0.15), (&c, "complete", 0.17)] {
            let item = agent.claim(1).await.remove(0);
            let own = first.clone().set("/handoffId", item["handoffId"].clone());
            let token = item["fencingToken"].as_i64().unwrap();
            agent.say(&own, "accept", token, json!({})).await.expect(200);
            let said = json!({ "error": "BROKEN", "costTracking": { "costSpentSoFarUSD": spent } });
            let said = if verb == "complete" { json!({ "result": 1, "costTracking": said["costTracking"] }) } else { said };
            agent.say(&own, verb, token, said).await.expect(200);
        }
        let (spent, left) = shown(broker, &first).await;
        assert_eq!((spent, left), (0.22, 0.68));
        let next = Message::review("a", "d").set("/taskId", first["taskId"].clone()).cost(spent, left);
        a.submit(&next).await.expect(202);
        assert_eq!(shown(broker, &first).await, (0.22, 0.68));
    }

    async fn the_budget_of_a_whole_task_can_be_named_by_its_first_message(broker: Broker) {
        let a = broker.pull("a", &["b", "c", "d"]).await;
        for name in ["b", "c", "d"] {
            broker.pull(name, &[]).await;
        }
        let named = |message: Message| message.set("/constraints", json!(["budgetUSD:10.00"]));
        let bad = Message::review("a", "b").set("/constraints", json!(["budgetUSD:ten"]));
        let answer = a.submit(&bad).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/constraints/0"]);
        let too_much = named(Message::review("a", "b").cost(0.0, 10.5));
        a.submit(&too_much).await.refused(422, "BUDGET_MISMATCH");
        let first = named(Message::review("a", "b").cost(0.0, 4.0));
        a.submit(&first).await.expect(202);
        let beside = |to: &str, remaining: f64| {
            named(first.next("a", to).set("/parentHandoffId", Value::Null).cost(0.0, remaining))
        };
        a.submit(&beside("c", 6.5)).await.refused(422, "BUDGET_MISMATCH");
        a.submit(&beside("c", 6.0)).await.expect(202);
        a.submit(&beside("d", 0.1)).await.refused(422, "BUDGET_MISMATCH");
        assert_eq!(sums(&cost(broker, &first).await), json!([10.0, 0.0, 10.0, 0.0, 0.0]));
    }
}
