//! Finding 11 of group 2: a task comes back to the agent that asked for its return (specification §10.3), and the
//! schema that has the field.

use serde_json::{Value, json};

use crate::harness::{Agent, within};
use crate::message::Message;
use crate::receiver::{answer, bare};

const SHORT_CLAIMS: [(&str, &str); 2] =
    [("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "300"), ("HANDOFFD_DELIVERY__POLL_MS", "50")];

/// The same message in schema 2.2, and the task is to come back.
fn lent(message: Message) -> Message {
    message.set("/schemaVersion", json!("2.2")).set("/returnTo", json!("source"))
}

async fn take(agent: &Agent, message: &Message) -> i64 {
    let token = agent.claim_one().await;
    agent.say(message, "accept", token, json!({})).await.expect(200);
    token
}

async fn inbox(agent: &Agent, wait: u32) -> Value {
    agent.api.get(&format!("/agents/{}/inbox?wait={wait}", agent.id)).await.expect(200).body
}

both! {
    async fn f2_11_a_specialist_gives_the_task_back_with_its_result(broker: Broker) {
        let opener = broker.pull("opener", &["generalist"]).await;
        let generalist = broker.pull("generalist", &["specialist", "writer"]).await;
        let specialist = broker.pull("specialist", &[]).await;
        let writer = broker.pull("writer", &[]).await;
        let first = Message::initial("opener", "generalist").cost(0.0, 1.0);
        opener.submit(&first).await.expect(202);
        let own = take(&generalist, &first).await;
        let asked = lent(first.next("generalist", "specialist").cost(0.1, 0.9));
        generalist.submit(&asked).await.expect(202);
        let token = take(&specialist, &asked).await;
        // The asker's own handoff stays open, and waits without a lease.
        let held = generalist.api.get(&first.path()).await.expect(200).body;
        assert_eq!((&held["status"], &held["deadlineAt"]), (&json!("ACCEPTED"), &Value::Null), "{held}");
        let lent = specialist.api.get(&asked.path()).await.expect(200).body;
        assert_eq!(lent["returnsTo"], "generalist");
        let done = format!("{}/complete", first.task_path());
        specialist.api.post(&done, &json!({ "output": 1 })).await.refused(403, "FORBIDDEN");
        specialist.api.post(&format!("{}/cancel", first.task_path()), &json!({ "reason": "no" })).await.refused(403, "FORBIDDEN");
        // A poll that waits is woken by the return.
        let waiting = { let generalist = generalist.clone(); tokio::spawn(async move { inbox(&generalist, 20).await }) };
        let said = json!({
            "result": { "limit": 7 }, "iterations": 3, "conversationSummary": "Read it twice.",
            "costTracking": { "costSpentSoFarUSD": 0.2 },
        });
        specialist.say(&asked, "complete", token, said.clone()).await.expect(200);
        let came = within("the return", waiting).await.unwrap();
        assert_eq!(came["items"], json!([]));
        let item = &came["returns"][0];
        assert_eq!((&item["handoffId"], &item["completedBy"]), (&asked["handoffId"], &json!("specialist")), "{came}");
        assert_eq!(item["completion"], said);
        let seen = generalist.api.get(&asked.path()).await.expect(200).body;
        assert_eq!((&seen["result"], &seen["iterations"]), (&said["result"], &json!(3)), "{seen}");
        assert_eq!(seen["conversationSummary"], "Read it twice.");
        assert!(seen["durationMs"].is_u64(), "{seen}");
        let task = broker.task(&first).await;
        assert_eq!((&task["status"], &task["holder"]), (&json!("PENDING_HANDOFF"), &json!("generalist")), "{task}");
        let held = generalist.api.get(&first.path()).await.expect(200).body;
        assert!(held["deadlineAt"].is_string(), "its lease runs again: {held}");
        generalist.say(&first, "heartbeat", own, json!({})).await.expect(200);
        assert_eq!(broker.kinds(&first).await[4..], ["COMPLETED", "RETURNED"]);
        let feed = broker.admin.get("/events?types=handoff.returned").await.expect(200).body;
        assert_eq!(feed["items"][0]["data"]["returnedTo"], "generalist", "{feed}");
        // It goes on under its own handoff, and is asked no more.
        let more = first.next("generalist", "writer").cost(0.2, 0.7);
        generalist.submit(&more).await.expect(202);
        take(&writer, &more).await;
        assert_eq!(inbox(&generalist, 0).await, json!({ "items": [] }));
        assert_eq!(broker.task(&first).await["costSpentSoFarUSD"], 0.2);
        writer.api.post(&done, &json!({ "output": "done" })).await.expect(200);
    }

    async fn f2_11_the_agent_that_asked_reads_what_came_of_it_whoever_handed_it_on(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &["c"]).await;
        let c = broker.pull("c", &["b"]).await;
        let asked = lent(Message::initial("a", "b").cost(0.0, 1.0));
        a.submit(&asked).await.expect(202);
        let token = take(&b, &asked).await;
        let on = asked.next("b", "c").cost(0.1, 0.9);
        b.submit(&on).await.expect(202);
        b.say(&asked, "complete", token, json!({})).await.refused(409, "CONFLICT");
        let last = take(&c, &on).await;
        c.say(&on, "complete", last, json!({ "result": { "ok": true } })).await.expect(200);
        let came = inbox(&a, 20).await;
        assert_eq!(came["returns"][0]["handoffId"], on["handoffId"], "{came}");
        let seen = a.api.get(&on.path()).await.expect(200).body;
        assert_eq!((&seen["result"], &seen["reason"]), (&json!({ "ok": true }), &json!("RETURNED")));
        let seen = a.api.get(&format!("{}?include=message", on.path())).await.expect(200).body;
        assert_eq!(seen.get("message"), None, "the message is not the asker's");
        let late = on.next("c", "b").cost(0.2, 0.1);
        c.submit(&late).await.refused(422, "LINEAGE_MISMATCH");
    }

    with [SHORT_CLAIMS[0], SHORT_CLAIMS[1]]
    async fn f2_11_a_return_that_nobody_acts_on_comes_again(broker: Broker) {
        let opener = broker.pull("opener", &["helper"]).await;
        let helper = broker.pull("helper", &[]).await;
        let asked = lent(Message::initial("opener", "helper"));
        opener.submit(&asked).await.expect(202);
        let token = helper.claim_one().await;
        helper.say(&asked, "complete", token, json!({ "result": { "ok": true } })).await.expect(200);
        for _ in 0..3 {
            let came = inbox(&opener, 20).await;
            assert_eq!(came["returns"][0]["handoffId"], asked["handoffId"], "{came}");
        }
        // Its sender has the task, so it is the one that ends it.
        helper.api.post(&format!("{}/complete", asked.task_path()), &json!({})).await.refused(403, "FORBIDDEN");
        opener.api.post(&format!("{}/complete", asked.task_path()), &json!({})).await.expect(200);
        assert_eq!(inbox(&opener, 1).await, json!({ "items": [] }));
    }

    async fn f2_11_a_sender_by_webhook_is_told_of_the_return(broker: Broker) {
        let yes = answer(200, &json!({ "status": "ACCEPTED" }));
        let hook = broker.saying(vec![yes]).await;
        let b = broker.webhook("b", &[], &hook).await;
        let callback = broker.receiver(|_| async { bare(200) }).await;
        let spec = json!({ "agentId": "a", "handoffTargets": ["b"], "callbackUrl": callback.url });
        let a = broker.agent(spec).await;
        callback.trust(&a.webhook_secret);
        let asked = lent(Message::initial("a", "b"));
        let said = a.submit_and_wait(&asked).await.expect(200);
        assert_eq!(said.body["status"], "ACCEPTED");
        let token = b.api.get(&asked.path()).await.expect(200).body["fencingToken"].as_i64().unwrap();
        b.say(&asked, "complete", token, json!({ "result": { "ok": true } })).await.expect(200);
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != "handoff.returned") {
            kinds.push(callback.next().await.body["type"].as_str().unwrap().to_owned());
        }
        assert_eq!(kinds, ["handoff.accepted", "handoff.completed", "handoff.returned"]);
        assert_eq!(broker.task(&asked).await["holder"], "a");
    }

    async fn f2_11_the_field_is_of_schema_2_2_and_other_ids_too(broker: Broker) {
        let a = broker.pull("a", &["b", "old"]).await;
        let b = broker.pull("b", &[]).await;
        let spec = json!({ "agentId": "old", "delivery": { "mode": "pull" }, "schemaVersions": "~2.1" });
        let old = broker.agent(spec).await;
        let early = Message::initial("a", "b").set("/schemaVersion", json!("2.1")).set("/returnTo", json!("source"));
        let answer = a.submit(&early).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/returnTo"]);
        assert!(answer.text.contains("a field of schema 2.2"), "{}", answer.text);
        let wrong = lent(Message::initial("a", "b")).set("/returnTo", json!("b"));
        assert_eq!(a.submit(&wrong).await.refused(422, "SCHEMA_INVALID").pointers(), ["/returnTo"]);
        // A UUID of another version names a task in 2.2, and in no older schema.
        let derived = json!("2ed6657d-e927-568b-95e1-2665a8aea6a2");
        let early = Message::initial("a", "b").set("/taskId", derived.clone());
        assert_eq!(a.submit(&early).await.refused(422, "SCHEMA_INVALID").pointers(), ["/taskId"]);
        let message = lent(Message::initial("a", "b")).set("/taskId", derived.clone()).set("/handoffId", derived.clone());
        a.submit(&message).await.expect(202);
        let items = b.claim(1).await;
        assert_eq!((&items[0]["taskId"], &items[0]["message"]["returnTo"]), (&derived, &json!("source")));
        let nil = lent(Message::initial("a", "b")).set("/taskId", json!("00000000-0000-0000-0000-000000000000"));
        assert_eq!(a.submit(&nil).await.refused(422, "SCHEMA_INVALID").pointers(), ["/taskId"]);
        // A receiver of 2.1 gets the message without the field, and returns the task all the same.
        let message = lent(Message::initial("a", "old"));
        a.submit(&message).await.expect(202);
        let items = old.claim(1).await;
        assert_eq!((&items[0]["message"]["schemaVersion"], items[0]["message"].get("returnTo")), (&json!("2.1"), None));
        let token = items[0]["fencingToken"].as_i64().unwrap();
        old.say(&message, "complete", token, json!({})).await.expect(200);
        assert_eq!(broker.task(&message).await["holder"], "a");
        // An id that 2.1 does not have is none that such a receiver could read.
        let message = lent(Message::initial("a", "old")).set("/taskId", json!("2ed6657d-e927-568b-95e1-2665a8aea6a3"));
        let answer = a.submit(&message).await;
        let answer = answer.refused(422, "NO_CAPABLE_AGENT");
        assert_eq!(answer.pointers(), ["/schemaVersion"]);
        assert!(answer.text.contains("/taskId"), "{}", answer.text);
    }
}
