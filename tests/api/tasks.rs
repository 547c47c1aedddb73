//! Reading handoffs and tasks; completing a task.

use serde_json::{Value, json};

use crate::message::Message;

both! {
    async fn a112_a_pipeline_of_four_agents_has_three_boundaries_and_its_cost_both_ways(broker: Broker) {
        let ids = ["intake", "legal", "risk", "report"];
        let mut agents = Vec::new();
        let mut receivers = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            let receiver = broker.saying(vec![]).await;
            let targets: Vec<&str> = ids.get(place + 1).copied().into_iter().collect();
            agents.push(broker.webhook(id, &targets, &receiver).await);
            receivers.push(receiver);
        }
        let tokens = |prompt: u64, completion: u64| json!({ "prompt": prompt, "completion": completion });
        let first = Message::initial("intake", "legal")
            .cost(0.05, 0.45)
            .set("/costTracking/tokenSpent", tokens(100, 10));
        let second = first.next("legal", "risk").cost(0.17, 0.33).set("/costTracking/tokenSpent", tokens(300, 40));
        let third = second.next("risk", "report").cost(0.2, 0.3).set("/costTracking/tokenSpent", tokens(350, 50));
        for (place, message) in [&first, &second, &third].into_iter().enumerate() {
            let said = agents[place].submit_and_wait(message).await.expect(200);
            assert_eq!(said.body["status"], "ACCEPTED");
            let token = receivers[place + 1].next().await.token();
            agents[place + 1].say(message, "complete", token, json!({ "place": place })).await.expect(200);
        }
        agents[3].api.post(&format!("{}/complete", first.task_path()), &json!({ "output": "done" })).await.expect(200);
        let trace = broker.trace(&first).await;
        assert_eq!(trace["taskId"], first["taskId"]);
        assert_eq!(trace["status"], "COMPLETED");
        let handoffs = trace["handoffs"].as_array().unwrap();
        assert_eq!(handoffs.len(), 3);
        for (place, handoff) in handoffs.iter().enumerate() {
            assert_eq!(handoff["taskId"], first["taskId"]);
            assert_eq!(handoff["fromAgent"]["agentId"], ids[place]);
            assert_eq!(handoff["toAgent"]["agentId"], ids[place + 1]);
            assert_eq!(handoff["status"], "COMPLETED");
        }
        assert_eq!(handoffs[1]["parentHandoffId"], first["handoffId"]);
        let cost = &trace["cost"];
        assert_eq!(cost["totalUSD"], 0.2, "the sum of the hops");
        assert_eq!(cost["reportedSumUSD"], 0.42, "the plain sum that A112 asserts");
        assert_eq!(cost["tokens"], json!({ "prompt": 350, "completion": 50 }));
        let hops: Vec<&Value> = cost["perHop"].as_array().unwrap().iter().map(|hop| &hop["usd"]).collect();
        assert_eq!(hops, [&json!(0.05), &json!(0.12), &json!(0.03)]);
        let per_agent: Vec<(&Value, &Value)> =
            cost["perAgent"].as_array().unwrap().iter().map(|agent| (&agent["agentId"], &agent["usd"])).collect();
        assert_eq!(
            per_agent,
            [(&json!("intake"), &json!(0.05)), (&json!("legal"), &json!(0.12)), (&json!("risk"), &json!(0.03))]
        );
        let roles: Vec<&Value> = trace["agents"].as_array().unwrap().iter().map(|agent| &agent["agentId"]).collect();
        assert_eq!(roles, ["intake", "legal", "report", "risk"]);
        assert_eq!(
            broker.kinds(&first).await,
            [
                "HANDOFF", "ACCEPTED", "COMPLETED", "HANDOFF", "ACCEPTED", "COMPLETED", "HANDOFF", "ACCEPTED",
                "COMPLETED", "TASK_COMPLETED"
            ]
        );
        // Each of them sees every boundary, and reads the words of its own.
        for agent in &agents {
            let seen = agent.api.get(&format!("{}/trace", first.task_path())).await.expect(200).body;
            let all = trace["handoffs"].as_array().unwrap();
            for (mine, whole) in seen["handoffs"].as_array().unwrap().iter().zip(all) {
                assert_eq!(mine["handoffId"], whole["handoffId"]);
                let party = [&whole["fromAgent"]["agentId"], &whole["toAgent"]["agentId"]]
                    .contains(&&json!(agent.id));
                let words = if party { &whole["taskDescription"] } else { &Value::Null };
                assert_eq!(&mine["taskDescription"], words, "{}: {whole}", agent.id);
            }
            assert_eq!(seen["cost"], trace["cost"]);
        }
    }

    async fn pages_have_no_gaps(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let c = broker.pull("c", &["b"]).await;
        let mut sent = Vec::new();
        for place in 0..23 {
            let (agent, id) = if place % 3 == 0 { (&c, "c") } else { (&a, "a") };
            let message = Message::initial(id, "b");
            agent.submit(&message).await.expect(202);
            sent.push(message);
        }
        for limit in [1, 4, 23, 500] {
            let rows = broker.admin.pages("/handoffs", limit, "handoffId").await;
            let ids: Vec<String> = rows.iter().map(|row| row["handoffId"].as_str().unwrap().to_owned()).collect();
            let mut newest_first: Vec<String> = sent.iter().map(Message::id).collect();
            newest_first.reverse();
            assert_eq!(ids, newest_first, "limit {limit}");
            assert_eq!(broker.admin.pages("/tasks", limit, "taskId").await.len(), 23);
        }
        // A handoff that comes meanwhile does not shift the pages.
        let first = broker.admin.get("/handoffs?limit=10").await.expect(200).body;
        a.submit(&Message::initial("a", "b")).await.expect(202);
        let cursor = first["nextCursor"].as_str().unwrap();
        let second = broker.admin.get(&format!("/handoffs?limit=10&cursor={cursor}")).await.expect(200).body;
        assert_eq!(second["items"][0]["handoffId"], sent[12]["handoffId"]);

        // Agents see their own.
        assert_eq!(a.api.pages("/handoffs", 5, "handoffId").await.len(), 16);
        assert_eq!(c.api.pages("/handoffs", 5, "handoffId").await.len(), 8);
        assert_eq!(b.api.pages("/handoffs", 5, "handoffId").await.len(), 24);
        assert_eq!(c.api.pages("/tasks", 3, "taskId").await.len(), 8);
        assert_eq!(a.api.pages("/handoffs?fromAgent=c", 5, "handoffId").await.len(), 0);
        a.api.get(&sent[0].path()).await.refused(404, "NOT_FOUND");
        a.api.get(&sent[0].task_path()).await.refused(404, "NOT_FOUND");
        a.api.get(&format!("{}/trace", sent[0].task_path())).await.refused(404, "NOT_FOUND");
        for (filter, count) in [
            ("fromAgent=c", 8),
            ("toAgent=b", 24),
            ("toAgent=a", 0),
            ("status=PENDING", 24),
            ("status=ACCEPTED", 0),
        ] {
            let rows = broker.admin.pages(&format!("/handoffs?{filter}"), 7, "handoffId").await;
            assert_eq!(rows.len(), count, "{filter}");
        }
        let of_task = format!("/handoffs?taskId={}", sent[3].task());
        assert_eq!(broker.admin.get(&of_task).await.expect(200).body["items"].as_array().unwrap().len(), 1);
    }

    async fn malformed_parameters_are_named(broker: Broker) {
        for path in [
            "/handoffs?limit=0", "/handoffs?limit=501", "/handoffs?limit=x", "/handoffs?cursor=x",
            "/handoffs?cursor=%00", "/handoffs?status=x", "/handoffs?taskId=x", "/handoffs?fromAgent=a%20b",
            "/handoffs?fromAgent=%00", "/handoffs?unheard=1", "/tasks?status=x", "/tasks?limit=-1",
            "/dead-letters?status=x", "/dead-letters?cursor=MTp4",
        ] {
            broker.admin.get(path).await.refused(400, "INVALID_REQUEST");
        }
    }

    // FINDINGS G3
    async fn a_handoff_that_the_end_of_its_task_ends_is_counted_by_its_status(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let withdrawn = Message::initial("a", "b");
        a.submit(&withdrawn).await.expect(202);
        a.api.post(&format!("{}/cancel", withdrawn.task_path()), &json!({ "reason": "enough" })).await.expect(200);
        let held = Message::initial("a", "b");
        a.submit(&held).await.expect(202);
        let token = b.claim_one().await;
        b.say(&held, "accept", token, json!({})).await.expect(200);
        b.api.post(&format!("{}/complete", held.task_path()), &json!({ "output": 1 })).await.expect(200);
        let said = Message::initial("a", "b");
        a.submit(&said).await.expect(202);
        let token = b.claim_one().await;
        for _ in 0..2 {
            b.say(&said, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        }
        let metrics = broker.admin.metrics().await;
        for status in ["CANCELED", "ACCEPTED", "COMPLETED", "REJECTED"] {
            let line = format!("handoff_handoffs_total{{status=\"{status}\"}} 1");
            assert!(metrics.lines().any(|one| one == line), "no `{line}`");
        }
    }

    async fn a_task_is_completed_by_its_holder_or_an_operator(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let path = format!("{}/complete", message.task_path());
        b.api.post(&path, &json!({})).await.refused(403, "FORBIDDEN");
        a.api.post(&path, &json!({})).await.refused(409, "CONFLICT");
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        a.api.post(&path, &json!({})).await.refused(403, "FORBIDDEN");
        let done = b.api.post(&path, &json!({ "output": { "n": 1 } })).await.expect(200).body;
        assert_eq!((&done["status"], &done["holder"]), (&json!("COMPLETED"), &json!("b")));
        b.api.post(&path, &json!({ "output": 2 })).await.expect(200);
        assert_eq!(
            broker.kinds(&message).await,
            ["HANDOFF", "ACCEPTED", "COMPLETED", "TASK_COMPLETED"]
        );
        // A later verdict on its last handoff leaves it ended.
        b.say(&message, "fail", token, json!({})).await.refused(409, "CONFLICT");
        b.say(&message, "complete", token, json!({})).await.expect(200);
        assert_eq!(broker.task(&message).await["status"], "COMPLETED");
        let run = message["fromAgent"]["executionId"].as_str().unwrap();
        let checkpoint = format!("{}/checkpoints/{run}", message.task_path());
        a.api.put(&checkpoint, &json!({})).await.refused(409, "CONFLICT");
        let other = Message::initial("a", "b");
        a.submit(&other).await.expect(202);
        let token = b.claim_one().await;
        b.say(&other, "accept", token, json!({})).await.expect(200);
        let by_admin = broker.admin.post(&format!("{}/complete", other.task_path()), &json!({})).await;
        assert_eq!(by_admin.expect(200).body["status"], "COMPLETED");
    }
}
