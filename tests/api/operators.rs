//! Operators' requests about many objects at once (finding O10 of 0.3.0): costs by day, edge and agent, users by a
//! reference, tasks canceled and escalations resolved by a filter, cursors that say nothing.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Broker};
use crate::message::Message;

async fn taken(from: &Agent, to: &Agent, message: &Message) -> i64 {
    from.submit(message).await.expect(202);
    let token = to.claim_one().await;
    to.say(message, "accept", token, json!({})).await.expect(200);
    token
}

async fn costs(broker: &Broker, query: &str) -> Value {
    broker.admin.get(&format!("/costs?{query}")).await.expect(200).body
}

/// Who spent how much on which edge, and how many handoffs it sent there.
fn lines(costs: &Value) -> Vec<(String, String, String, f64, u64)> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let line = |row: &Value| {
        let (from, to) = (text(row, "fromAgentId"), text(row, "toAgentId"));
        let handoffs = row["handoffs"].as_u64().unwrap();
        (from, to, text(row, "agentId"), row["spentUSD"].as_f64().unwrap(), handoffs)
    };
    costs["items"].as_array().unwrap().iter().map(line).collect()
}

async fn reference(broker: &Broker, user: &str) -> String {
    let found =
        broker.admin.post("/users/search", &json!({ "userId": user })).await.expect(200).body;
    found["userRef"].as_str().unwrap().to_owned()
}

both! {
    async fn costs_are_told_by_day_edge_and_agent_in_one_request(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &["c"]).await;
        let c = broker.pull("c", &[]).await;
        let first = Message::review("a", "b").cost(0.5, 9.5).set("/userId", json!("jana"));
        taken(&a, &b, &first).await;
        let second = first.next("b", "c").cost(1.0, 6.0);
        let token = taken(&b, &c, &second).await;
        let done = json!({ "result": "ok", "costTracking": { "costSpentSoFarUSD": 3.25 } });
        c.say(&second, "complete", token, done).await.expect(200);
        let other = Message::review("a", "b").cost(2.0, 8.0);
        taken(&a, &b, &other).await;

        let all = costs(broker, "").await;
        let line = |from: &str, to: &str, agent: &str, usd: f64, handoffs: u64| {
            (from.to_owned(), to.to_owned(), agent.to_owned(), usd, handoffs)
        };
        assert_eq!(
            lines(&all),
            [
                line("a", "b", "a", 2.5, 2),
                line("b", "c", "b", 0.5, 1),
                line("b", "c", "c", 2.25, 0),
            ],
            "{all}"
        );
        assert_eq!((&all["total"]["spentUSD"], &all["total"]["handoffs"]), (&json!(5.25), &json!(3)));
        let today = all["items"][0]["day"].as_str().unwrap();
        let created = broker.task(&first).await["createdAt"].as_str().unwrap().to_owned();
        assert!(today.len() == 10 && today >= &created[..10], "{today} {created}");
        // The same figures as the task's own.
        let own = broker.admin.get(&format!("{}/cost", first.task_path())).await.expect(200).body;
        let of_task = costs(broker, &format!("taskId={}", first.task())).await;
        assert_eq!(of_task["total"]["spentUSD"], own["sums"]["spentUSD"]);
        assert_eq!(lines(&costs(broker, "agentId=c").await), [line("b", "c", "c", 2.25, 0)]);
        assert_eq!(lines(&costs(broker, "toAgent=b").await), [line("a", "b", "a", 2.5, 2)]);
        assert_eq!(lines(&costs(broker, "fromAgent=b&agentId=b").await), [line("b", "c", "b", 0.5, 1)]);
        assert_eq!(lines(&costs(broker, "to=2020-01-01T00:00:00Z").await), []);
        let since = costs(broker, "from=2020-01-01T00:00:00Z&to=2999-01-01T00:00:00Z").await;
        assert_eq!(lines(&since), lines(&all));
        let user = reference(broker, "jana").await;
        let theirs = lines(&costs(broker, &format!("userRef={user}")).await);
        assert_eq!(theirs[0], line("a", "b", "a", 0.5, 1), "{theirs:?}");
        a.api.get("/costs").await.refused(403, "FORBIDDEN");
        broker.admin.get("/costs?userRef=jana").await.refused(400, "INVALID_REQUEST");
    }

    async fn a_user_is_found_by_a_reference_that_goes_with_its_erasure(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        broker.pull("b", &[]).await;
        let personal = json!({ "subjects": [{ "subjectId": "jana", "data": { "email": "j@example.com" } }] });
        let marked = Message::initial("a", "b").set("/userId", json!("jana")).set("/personalDataPayload", personal);
        let plain = Message::initial("a", "b").set("/userId", json!("jana"));
        let other = Message::initial("a", "b").set("/userId", json!("ole"));
        for message in [&marked, &plain, &other] {
            a.submit(message).await.expect(202);
        }
        let jana = reference(broker, "jana").await;
        assert_eq!(jana, reference(broker, "jana").await);
        assert_ne!(jana, reference(broker, "ole").await);
        assert!(jana.starts_with("u_") && !jana.contains("jana"));
        let found = async |path: &str| -> usize {
            let page = broker.admin.get(&format!("{path}?userRef={jana}")).await.expect(200).body;
            page["items"].as_array().unwrap().len()
        };
        assert_eq!((found("/tasks").await, found("/handoffs").await), (2, 2));
        let shown = broker.admin.get(&plain.path()).await.expect(200).body;
        assert_eq!(shown["userRef"], json!(jana));
        a.api.post("/users/search", &json!({ "userId": "jana" })).await.refused(403, "FORBIDDEN");
        broker.admin.post("/users/search", &json!({ "userId": "" })).await.refused(422, "SCHEMA_INVALID");
        broker.admin.get("/tasks?userRef=x").await.refused(400, "INVALID_REQUEST");

        broker.admin.send(Method::DELETE, "/data-subjects/jana", &[], &json!({})).await.expect(200);
        assert_eq!((found("/tasks").await, found("/handoffs").await), (0, 0));
        let gone = broker.admin.post("/users/search", &json!({ "userId": "jana" })).await.expect(200).body;
        assert!(gone["lastHandoffAt"].is_null(), "{gone}");
    }

    async fn tasks_are_canceled_by_a_filter_and_a_dry_run_changes_none(broker: Broker) {
        let a = broker.pull("a", &["b", "c"]).await;
        broker.pull("b", &[]).await;
        broker.pull("c", &[]).await;
        let mine: Vec<Message> = (0..3).map(|_| Message::initial("a", "b").set("/userId", json!("jana"))).collect();
        let other = Message::initial("a", "c");
        for message in mine.iter().chain([&other]) {
            a.submit(message).await.expect(202);
        }
        let user = reference(broker, "jana").await;
        let cancel = async |body: Value| broker.admin.post("/tasks/cancel", &body).await;
        let by_user = json!({ "filter": { "userRef": user }, "reason": "called off", "dryRun": true });
        let dry = cancel(by_user.clone()).await.expect(200).body;
        assert_eq!((&dry["dryRun"], &dry["matched"], &dry["done"]), (&json!(true), &json!(3), &json!(3)));
        assert_eq!(dry["items"][0]["result"], "would cancel");
        assert_eq!(broker.task(&mine[0]).await["status"], "HANDING_OFF");
        let mut body = by_user;
        body["dryRun"] = json!(false);
        body["ratePerSecond"] = json!(500);
        let done = cancel(body.clone()).await.expect(200).body;
        assert_eq!((&done["done"], &done["failed"], &done["items"][0]["result"]), (&json!(3), &json!(0), &json!("canceled")));
        for message in &mine {
            assert_eq!(broker.task(message).await["status"], "CANCELED");
        }
        assert_eq!(broker.task(&other).await["status"], "HANDING_OFF");
        assert_eq!(cancel(body).await.expect(200).body["matched"], 0);
        let named = json!({ "filter": { "ids": [mine[0].task(), other.task(), other.task()] }, "reason": "x" });
        assert_eq!(cancel(named).await.expect(200).body["matched"], 1);
        for (bad, pointer) in [
            (json!({ "filter": {}, "reason": "x" }), "/filter"),
            (json!({ "filter": { "status": "COMPLETED" }, "reason": "x" }), "/filter/status"),
            (json!({ "filter": { "holder": "a" }, "reason": " " }), "/reason"),
            (json!({ "filter": { "holder": "a" }, "reason": "x", "ratePerSecond": 0 }), "/ratePerSecond"),
            (json!({ "filter": { "userRef": "jana" }, "reason": "x" }), "/filter/userRef"),
        ] {
            assert_eq!(cancel(bad).await.refused(422, "SCHEMA_INVALID").pointers(), [pointer]);
        }
        a.api.post("/tasks/cancel", &json!({ "filter": { "holder": "a" }, "reason": "x" })).await.refused(403, "FORBIDDEN");
    }

    async fn escalations_are_resolved_by_a_filter(broker: Broker) {
        let mut messages = Vec::new();
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &[]).await;
        for _ in 0..2 {
            let mut message = Message::initial("a", "b");
            for _ in 0..3 {
                a.submit(&message).await.expect(202);
                let token = b.claim_one().await;
                b.say(&message, "reject", token, json!({ "reason": "NO" })).await.expect(200);
                messages.push(message.clone());
                message = message.again();
            }
        }
        let open = broker.admin.get("/escalations?status=OPEN").await.expect(200).body;
        assert_eq!(open["items"].as_array().unwrap().len(), 2, "{open}");
        let resolve = async |body: Value| broker.admin.post("/escalations/resolve", &body).await;
        // One goes to another receiver.
        let c = broker.pull("c", &[]).await;
        let ids = json!([open["items"][1]["escalationId"]]);
        let mut reassign = json!({ "filter": { "ids": ids }, "action": "reassign", "agentId": "nobody", "reason": "b is away" });
        let failed = resolve(reassign.clone()).await.expect(200).body;
        assert_eq!((&failed["failed"], &failed["done"]), (&json!(1), &json!(0)), "{failed}");
        reassign["agentId"] = json!("c");
        for (name, value) in [("agentId", Value::Null), ("action", json!("cancel"))] {
            let mut unfit = reassign.clone();
            unfit[name] = value;
            assert_eq!(resolve(unfit).await.refused(422, "SCHEMA_INVALID").pointers(), ["/agentId"]);
        }
        let done = resolve(reassign).await.expect(200).body;
        assert_eq!((&done["done"], &done["items"][0]["result"]), (&json!(1), &json!("resolved")), "{done}");
        assert_eq!(c.claim(5).await.len(), 1);
        let mut body = json!({ "filter": { "fromAgent": "a" }, "action": "cancel", "reason": "called off", "dryRun": true });
        let dry = resolve(body.clone()).await.expect(200).body;
        assert_eq!((&dry["matched"], &dry["items"][0]["result"]), (&json!(1), &json!("would resolve")));
        body["dryRun"] = json!(false);
        let done = resolve(body.clone()).await.expect(200).body;
        assert_eq!((&done["done"], &done["items"][0]["result"]), (&json!(1), &json!("resolved")), "{done}");
        assert_eq!(broker.task(messages.last().unwrap()).await["status"], "CANCELED");
        assert_eq!(resolve(body).await.expect(200).body["matched"], 0);
        resolve(json!({ "filter": {}, "action": "retry", "reason": "x" })).await.refused(422, "SCHEMA_INVALID");
    }

    async fn no_cursor_shows_what_it_is_made_of(broker: Broker) {
        let (a, _b) = broker.pull_pair().await;
        let empty = broker.admin.get("/events?types=task.completed").await.expect(200).body;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let feed = broker.admin.get("/events").await.expect(200).body;
        let next = feed["nextCursor"].as_str().unwrap();
        for cursor in [empty["nextCursor"].as_str().unwrap(), next] {
            assert!(cursor.len() == 16 && !cursor.contains(['.', ':']), "{cursor}");
        }
        // A form of versions up to 0.3.0 is taken: their subscribers hold it.
        let former = broker.admin.get("/events?since=-1.2147483647").await.expect(200).body;
        assert_eq!(former["items"], feed["items"]);
        assert_eq!(broker.admin.get(&format!("/events?since={next}")).await.expect(200).body["items"], json!([]));
        broker.admin.get("/events?since=neither").await.refused(400, "INVALID_REQUEST");
    }
}
