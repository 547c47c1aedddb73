//! Agents that are paused, and agents that are gone (finding O8 of 0.3.0).

use serde_json::json;

use crate::harness::until;
use crate::message::Message;
use crate::receiver::accepted;

both! {
    with [("HANDOFFD_DELIVERY__POLL_MS", "50"), ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "1000"),
        ("HANDOFFD_DELIVERY__UNCLAIMED_MS", "1000")]
    async fn a_paused_agent_that_pulls_holds_and_no_clock_runs(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let before = Message::review("a", "b");
        a.submit(&before).await.expect(202);
        broker.admin.patch("/agents/b", &json!({ "state": "PAUSED" })).await.expect(200);
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        let polled = b.api.get("/agents/b/inbox?max=10").await.expect(200).body;
        assert_eq!(polled["items"], json!([]), "nothing is handed out");
        // Another handoff passes the times that would have ended these.
        broker.pull("c", &[]).await;
        broker.admin.post("/agents/a/handoff-targets/c", &json!(null)).await.expect(200);
        let probe = Message::review("a", "c");
        a.submit(&probe).await.expect(202);
        until("the end of a handoff that is not held back", async || {
            let status = broker.task(&probe).await["status"].clone();
            if status == "PENDING_HANDOFF" { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        for held in [&before, &message] {
            let row = broker.admin.get(&held.path()).await.expect(200).body;
            assert_eq!(row["status"], "PENDING", "{row}");
        }
        broker.admin.patch("/agents/b", &json!({ "state": "RUNNABLE" })).await.expect(200);
        let claimed = b.claim(10).await;
        let ids: Vec<_> = claimed.iter().map(|item| item["handoffId"].clone()).collect();
        assert_eq!(ids, [before["handoffId"].clone(), message["handoffId"].clone()], "in their order");
    }

    async fn a_paused_webhook_gets_nothing_until_it_runs_again(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![accepted()]).await;
        broker.admin.patch("/agents/b", &json!({ "state": "PAUSED" })).await.expect(200);
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        let probe = broker.saying(vec![accepted()]).await;
        broker.webhook("c", &[], &probe).await;
        broker.admin.post("/agents/a/handoff-targets/c", &json!(null)).await.expect(200);
        a.submit_and_wait(&Message::review("a", "c")).await.expect(200);
        let row = broker.admin.get(&message.path()).await.expect(200).body;
        assert_eq!(row["status"], "PENDING", "{row}");
        broker.admin.patch("/agents/b", &json!({ "state": "RUNNABLE" })).await.expect(200);
        let row = broker.handoff_becomes(&message, "ACCEPTED").await;
        assert_eq!(row["attempts"], 1, "{row}");
        drop(receiver);
    }

    async fn a_paused_agent_that_refuses_counts_against_nobody(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let paused = json!({ "state": "PAUSED", "pause": "refuse" });
        let shown = broker.admin.patch("/agents/b", &paused).await.expect(200).body;
        assert_eq!(shown["pause"], "refuse");
        let message = Message::review("a", "b");
        for _ in 0..4 {
            let refused = a.submit(&message.again()).await.refused(422, "NO_CAPABLE_AGENT");
            assert_eq!(refused.header("retry-after"), "30");
        }
        broker.admin.get(&message.task_path()).await.refused(404, "NOT_FOUND");
        broker.admin.patch("/agents/b", &json!({ "pause": "hold" })).await.expect(200);
        // A message by its type does not ask for this very agent, and a message that names others can do without it.
        let typed = Message::review("a", "b").set("/toAgent", json!({ "agentType": "b", "agentVersion": "*" }));
        a.submit(&typed).await.refused(422, "NO_CAPABLE_AGENT");
        let others = Message::review("a", "b").set("/preferredAgents", json!(["b"]));
        a.submit(&others).await.refused(422, "NO_CAPABLE_AGENT");
        a.submit(&message.again()).await.expect(202);
    }

    with [("HANDOFFD_DELIVERY__POLL_MS", "50")]
    async fn what_a_deleted_agent_holds_ends_at_once(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        broker.admin.delete("/agents/b").await.expect(204);
        // Its lease of a quarter of an hour is over.
        until("the task with its sender", async || {
            let task = broker.task(&message).await;
            if task["status"] == "PENDING_HANDOFF" { Ok(()) } else { Err(task.to_string()) }
        })
        .await;
    }
}
