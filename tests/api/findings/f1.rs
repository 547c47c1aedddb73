//! Findings of group 1: lineage and cost.

use std::io::{Cursor, Read};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Agent, Answer, Broker, command, until};
use crate::message::Message;

/// Pull agents with these names; each may hand off to all others.
async fn crowd(broker: &Broker, names: &[&str]) -> Vec<Agent> {
    let mut agents = Vec::new();
    for name in names {
        agents.push(broker.pull(name, names).await);
    }
    agents
}

/// Claims the message and accepts it; returns its token.
async fn take(agent: &Agent, message: &Message) -> i64 {
    let token = agent.claim_one().await;
    agent.say(message, "accept", token, json!({})).await.expect(200);
    token
}

/// The text of a refusal that names the parent.
fn expected(answer: Answer) -> String {
    let answer = answer.refused(422, "LINEAGE_MISMATCH");
    assert_eq!(answer.body["failures"][0]["stage"], "lineage");
    assert_eq!(answer.pointers(), ["/parentHandoffId"]);
    answer.body["failures"][0]["message"].as_str().unwrap().to_owned()
}

fn follows(message: &Message, parent: Value) -> Message {
    message.again().set("/parentHandoffId", parent)
}

async fn statuses(broker: &Broker, message: &Message) -> Vec<(String, Value)> {
    let trace = broker.trace(message).await;
    let hops = trace["handoffs"].as_array().unwrap().clone();
    hops.iter()
        .map(|hop| (hop["status"].as_str().unwrap().to_owned(), hop["reason"].clone()))
        .collect()
}

both! {
    async fn f1_1_a_parent_is_a_handoff_of_the_task_that_reached_the_sender(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c"]).await;
        let [a, b, _c] = &agents[..] else { panic!() };
        let stray = Message::initial("a", "b").set("/parentHandoffId", json!(Message::initial("a", "b").id()));
        assert!(expected(a.submit(&stray).await).starts_with("expected null"));
        let other = Message::initial("a", "b");
        a.submit(&other).await.expect(202);
        take(b, &other).await;
        let first = Message::initial("a", "b").cost(0.10, 0.90);
        a.submit(&first).await.expect(202);
        let next = first.next("b", "c").cost(0.35, 0.65);
        // A pending handoff has reached no agent.
        assert!(expected(b.submit(&next).await).starts_with("no handoff of this task reached b"));
        take(b, &first).await;
        for wrong in [Value::Null, json!(other.id()), json!(next.id()), json!(Message::initial("a", "b").id())] {
            // Each on a task of its own, because three refusals on one task escalate it.
            let first = Message::initial("a", "b").cost(0.10, 0.90);
            a.submit(&first).await.expect(202);
            take(b, &first).await;
            let wrong = follows(&first.next("b", "c").cost(0.35, 0.65), wrong);
            assert!(expected(b.submit(&wrong).await).contains(&format!("expected {}", first.id())));
            let dry = b.api.post("/handoffs/validate", &wrong).await.expect(200).body;
            assert_eq!((&dry["valid"], &dry["reason"]), (&json!(false), &json!("LINEAGE_MISMATCH")), "{dry}");
        }
        let own = next.clone().set("/parentHandoffId", json!(next.id()));
        expected(b.submit(&own).await);
        b.submit(&next.again()).await.expect(202);
        let refused = broker.kinds(&first).await.into_iter().filter(|kind| kind == "REFUSED").count();
        assert_eq!(refused, 2, "each refusal is a record");
    }

    async fn f1_1_another_try_follows_what_the_first_one_did(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c", "d"]).await;
        let [a, b, c, d] = &agents[..] else { panic!() };
        let first = Message::initial("a", "b").cost(0.0, 1.0);
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        // The opener's retry has no parent: its own first message is not the parent.
        let wrong = follows(&first, json!(first.id()));
        assert!(expected(a.submit(&wrong).await).starts_with("expected null"));
        let again = follows(&first, Value::Null);
        a.submit(&again).await.expect(202);
        take(b, &again).await;
        // Another task, because this one has two failures and the third would escalate it.
        let again = Message::initial("a", "b").cost(0.0, 1.0);
        let first = again.clone();
        a.submit(&again).await.expect(202);
        take(b, &again).await;
        let on = again.next("b", "c").cost(0.1, 0.9);
        b.submit(&on).await.expect(202);
        let token = c.claim_one().await;
        c.say(&on, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        // In the middle of a chain a retry, and a second handoff beside it, have the same parent as the first try.
        let more = again.next("b", "c").cost(0.2, 0.4);
        b.submit(&more).await.expect(202);
        let beside = again.next("b", "d").cost(0.2, 0.4);
        b.submit(&beside).await.expect(202);
        take(c, &more).await;
        take(d, &beside).await;
        // The task comes back to the opener, whose next message now has that handoff as its parent.
        let back = beside.next("d", "a").cost(0.25, 0.3);
        d.submit(&back).await.expect(202);
        take(a, &back).await;
        let null = follows(&first, Value::Null).cost(0.25, 0.3);
        assert!(expected(a.submit(&null).await).contains(&back.id()));
        a.submit(&back.next("a", "b").cost(0.25, 0.3)).await.expect(202);
    }

    async fn f1_1_an_agent_that_received_several_goes_on_from_any_of_them(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c"]).await;
        let [a, b, _c] = &agents[..] else { panic!() };
        let first = Message::initial("a", "b").cost(0.0, 0.5);
        let second = first.next("a", "b").cost(0.0, 0.5);
        for message in [&first, &second] {
            a.submit(message).await.expect(202);
            take(b, message).await;
        }
        let stray = follows(&first.next("b", "c"), json!(Message::initial("a", "b").id())).cost(0.1, 0.2);
        assert!(expected(b.submit(&stray).await).contains(&second.id()), "the last is named");
        b.submit(&first.next("b", "c").cost(0.1, 0.2)).await.expect(202);
        b.submit(&second.next("b", "c").cost(0.1, 0.2)).await.expect(202);
    }

    async fn f1_1_f1_4_who_takes_over_names_the_id_that_the_broker_made(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c", "d"]).await;
        let [a, b, c, _d] = &agents[..] else { panic!() };
        let first = Message::initial("a", "b").set("/preferredAgents", json!(["c"])).cost(0.0, 1.0);
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        let item = c.claim(1).await.remove(0);
        let id = item["handoffId"].as_str().unwrap().to_owned();
        assert_eq!(&id[14..15], "4", "the message's schema takes version 4 as a parent: {id}");
        let taken = first.clone().set("/handoffId", json!(id)).set("/fromAgent/agentId", json!("a"));
        c.say(&taken, "accept", item["fencingToken"].as_i64().unwrap(), json!({})).await.expect(200);
        let wrong = first.next("c", "d").cost(0.2, 0.8);
        assert!(expected(c.submit(&wrong).await).contains(&id), "not what the message itself says");
        c.submit(&taken.next("c", "d").cost(0.2, 0.8)).await.expect(202);
        let shown = a.api.get(&first.path()).await.expect(200).body;
        assert_eq!((&shown["status"], &shown["successorId"]), (&json!("REJECTED"), &json!(id)));
    }

    async fn f1_5_who_waits_hears_of_the_last_successor(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c"]).await;
        let [a, b, c] = &agents[..] else { panic!() };
        let first = Message::initial("a", "b").set("/preferredAgents", json!(["c"]));
        let (answer, child) = tokio::join!(a.submit_and_wait(&first), async {
            let token = b.claim_one().await;
            b.say(&first, "reject", token, json!({ "reason": "NO" })).await.expect(200);
            let item = c.claim(1).await.remove(0);
            let child = first.clone().set("/handoffId", item["handoffId"].clone());
            c.say(&child, "accept", item["fencingToken"].as_i64().unwrap(), json!({})).await.expect(200);
            child
        });
        let answer = answer.expect(200);
        assert_eq!(answer.header("preference-applied"), "wait=20");
        let body = &answer.body;
        assert_eq!((&body["status"], &body["successorId"]), (&json!("ACCEPTED"), &json!(child.id())), "{body}");
        assert_eq!(body["handoffId"], first.id());
        assert_eq!(a.api.get(&child.path()).await.expect(200).body["successorId"], Value::Null);
    }

    async fn f1_2_one_figure_everywhere_with_what_the_last_agent_stated(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c", "d"]).await;
        let [a, b, c, d] = &agents[..] else { panic!() };
        let tokens = |n: u64| json!({ "prompt": n * 10, "completion": n });
        let first = Message::initial("a", "b").cost(0.10, 0.90).set("/costTracking/tokenSpent", tokens(1));
        a.submit(&first).await.expect(202);
        take(b, &first).await;
        let second = first.next("b", "c").cost(0.25, 0.75).set("/costTracking/tokenSpent", tokens(2));
        b.submit(&second).await.expect(202);
        take(c, &second).await;
        let third = second.next("c", "d").cost(0.45, 0.55).set("/costTracking/tokenSpent", tokens(4));
        c.submit(&third).await.expect(202);
        let token = take(d, &third).await;
        let end = json!({ "result": {}, "costTracking": { "costSpentSoFarUSD": 0.60, "tokenSpent": tokens(7) } });
        d.say(&third, "complete", token, end).await.expect(200);
        d.api.post(&format!("{}/complete", first.task_path()), &json!({ "output": {} })).await.expect(200);

        let cost = broker.admin.get(&format!("{}/cost", first.task_path())).await.expect(200).body;
        let trace = broker.trace(&first).await;
        let task = broker.task(&first).await;
        assert_eq!(cost["sums"]["spentUSD"], 0.6);
        assert_eq!(trace["cost"]["totalUSD"], 0.6);
        assert_eq!((&task["costSpentSoFarUSD"], &task["costBudgetRemainingUSD"]), (&json!(0.6), &json!(0.4)));
        assert_eq!((&trace["cost"]["tokens"], &cost["sums"]["tokens"]), (&tokens(7), &tokens(7)));
        // Both pages have the same cost for each hop, and the hops add up to the total.
        let mut sum = 0.0;
        for (place, (before, after)) in [(0.10, 0.0), (0.15, 0.0), (0.20, 0.15)].into_iter().enumerate() {
            let traced = &trace["cost"]["perHop"][place];
            for seen in [&cost["hops"][place], traced, &trace["handoffs"][place]["cost"]] {
                let both = (&seen["senderSpentUSD"], &seen["receiverSpentUSD"]);
                assert_eq!(both, (&json!(before), &json!(after)), "{seen}");
            }
            sum += traced["usd"].as_f64().unwrap();
        }
        assert!((sum - 0.6).abs() < 1e-9, "{sum}");
        let agents = |view: &Value, usd: &str| -> Vec<(String, f64)> {
            let list = view.as_array().unwrap().iter();
            list.map(|one| (one["agentId"].as_str().unwrap().to_owned(), one[usd].as_f64().unwrap())).collect()
        };
        let spent = [("a", 0.1), ("b", 0.15), ("c", 0.2), ("d", 0.15)].map(|(id, usd)| (id.to_owned(), usd));
        assert_eq!(agents(&trace["cost"]["perAgent"], "usd"), spent);
        assert_eq!(agents(&cost["agents"], "spentUSD"), spent);
        // The command line, the bundle and the bundle's report have it, too.
        let shown = broker.command(&["trace", &first.task(), "--url", &broker.admin.base]).await;
        let shown = String::from_utf8(shown.stdout).unwrap();
        let total = shown.lines().find(|line| line.trim_start().starts_with("total")).unwrap();
        assert!(total.ends_with("$0.6"), "{shown}");
        let path = format!("{}/trace?format=bundle", first.task_path());
        let bundle = broker.admin.request(reqwest::Method::GET, &path).send().await.unwrap().bytes().await.unwrap();
        let mut zip = zip::ZipArchive::new(Cursor::new(bundle.to_vec())).unwrap();
        let mut page = String::new();
        zip.by_name("report.html").unwrap().read_to_string(&mut page).unwrap();
        assert!(page.contains("<dt>Total cost</dt><dd>0.6 US dollars, 70 tokens read, 7 tokens written</dd>"), "{page}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bundle.zip");
        std::fs::write(&file, &bundle).unwrap();
        let verified = command(&[], &["verify", file.to_str().unwrap()]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }

    async fn f1_2_who_hands_on_and_reports_afterwards_is_counted_once(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c"]).await;
        let [a, b, c] = &agents[..] else { panic!() };
        let first = Message::initial("a", "b").cost(0.10, 0.90);
        a.submit(&first).await.expect(202);
        let token = take(b, &first).await;
        let second = first.next("b", "c").cost(0.25, 0.50);
        b.submit(&second).await.expect(202);
        take(c, &second).await;
        let late = json!({ "result": { "note": "filed" }, "costTracking": { "costSpentSoFarUSD": 0.30 } });
        for _ in 0..2 {
            let said = b.say(&first, "complete", token, late.clone()).await.expect(200);
            assert_eq!((&said.body["status"], &said.body["reason"]), (&json!("COMPLETED"), &Value::Null));
        }
        let trace = broker.trace(&first).await;
        assert_eq!(trace["cost"]["totalUSD"], 0.3);
        let ends = trace["records"].as_array().unwrap().iter();
        let ends: Vec<_> = ends.filter(|one| one["kind"] == "COMPLETED").map(|one| &one["content"]).collect();
        assert_eq!(ends, [&Value::Null, &late], "handed on, and then what it says of its own part");
        assert_eq!(broker.task(&first).await["costSpentSoFarUSD"], 0.3);
    }
}

both! {
    async fn f2_11_who_gave_a_specialist_the_task_goes_on_with_it_when_that_is_done(broker: Broker) {
        let agents = crowd(broker, &["opener", "generalist", "specialist", "writer"]).await;
        let [opener, generalist, specialist, _writer] = &agents[..] else { panic!() };
        let first = Message::initial("opener", "generalist").cost(0.0, 1.0);
        opener.submit(&first).await.expect(202);
        take(generalist, &first).await;
        let asked = first.next("generalist", "specialist").cost(0.1, 0.9);
        generalist.submit(&asked).await.expect(202);
        let token = take(specialist, &asked).await;
        let done = format!("{}/complete", first.task_path());
        let output = json!({ "output": { "answer": 42 } });
        generalist.api.post(&done, &output).await.refused(403, "FORBIDDEN");
        let result = json!({ "result": { "limit": 7 }, "costTracking": { "costSpentSoFarUSD": 0.2 } });
        specialist.say(&asked, "complete", token, result.clone()).await.expect(200);
        opener.api.post(&done, &output).await.refused(403, "FORBIDDEN");
        // The generalist reads the result, and may hand on once more or complete the task.
        let seen = generalist.api.get(&format!("{}/trace", first.task_path())).await.expect(200).body;
        let records = seen["records"].as_array().unwrap().clone();
        assert!(records.iter().any(|one| one["kind"] == "COMPLETED" && one["content"] == result), "{seen}");
        // The generalist states the figures of its own path; the specialist's spending counts for the specialist.
        let more = first.next("generalist", "writer").cost(0.1, 0.8);
        let dry = generalist.api.post("/handoffs/validate", &more).await.expect(200).body;
        assert_eq!(dry["valid"], true, "{dry}");
        generalist.api.post(&done, &output).await.expect(200);
        assert_eq!(broker.task(&first).await["status"], "COMPLETED");
        assert_eq!(broker.task(&first).await["costSpentSoFarUSD"], 0.2);
    }
}

both! {
    async fn f1_7_the_record_has_the_registered_version_beside_the_claimed_one(broker: Broker) {
        let agents = crowd(broker, &["a", "b"]).await;
        let first = Message::initial("a", "b").set("/fromAgent/agentVersion", json!("99.0.0"));
        let answer = agents[0].submit(&first).await.expect(202);
        let warned = &answer.body["warnings"][0];
        assert_eq!((&warned["code"], &warned["pointer"]), (&json!("AGENT_VERSION_MISMATCH"), &json!("/fromAgent/agentVersion")));
        let from = broker.trace(&first).await["records"][0]["fromAgent"].clone();
        assert_eq!((&from["agentVersion"], &from["registeredVersion"]), (&json!("99.0.0"), &json!("1.0.0")));
        let right = Message::initial("a", "b");
        assert_eq!(agents[0].submit(&right).await.expect(202).body["warnings"], Value::Null);
    }

    async fn f1_8_tokens_are_spelled_as_in_the_message_and_a_defect_is_one_failure(broker: Broker) {
        let agents = crowd(broker, &["a", "b"]).await;
        let [a, b] = &agents[..] else { panic!() };
        let tokens = json!({ "prompt": 30, "completion": 4 });
        let first = Message::initial("a", "b").set("/costTracking/tokenSpent", tokens.clone());
        a.submit(&first).await.expect(202);
        let trace = broker.trace(&first).await;
        assert_eq!(trace["handoffs"][0]["costTracking"]["tokenSpent"], tokens);
        assert_eq!(trace["records"][0]["costAtHandoff"]["tokenSpent"], tokens);
        let number = Message::initial("a", "b").set("/schemaVersion", json!(2.0));
        let answer = a.submit(&number).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/schemaVersion"], "{}", answer.text);
        // Two rejections and an incomplete message are three failures, also on the task's page.
        let mut last = first.clone();
        for round in 0..2 {
            if round > 0 {
                last = first.again();
                a.submit(&last).await.expect(202);
            }
            let token = b.claim_one().await;
            b.say(&last, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        }
        let empty = first.next("a", "b").set("/completedSubtasks", json!([]));
        a.submit(&empty).await.refused(422, "INCOMPLETE_CONTEXT");
        let task = broker.task(&first).await;
        assert_eq!((&task["status"], &task["failures"]), (&json!("ESCALATED"), &json!(3)), "{task}");
    }
}

both! {
    with [("HANDOFFD_GATE__AGENT_VERSION", "enforce")]
    async fn f1_7_a_broker_may_refuse_another_version(broker: Broker) {
        let agents = crowd(broker, &["a", "b"]).await;
        let wrong = Message::initial("a", "b").set("/fromAgent/agentVersion", json!("99.0.0"));
        let answer = agents[0].submit(&wrong).await.refused(403, "FORBIDDEN");
        assert_eq!(answer.pointers(), ["/fromAgent/agentVersion"]);
        agents[0].submit(&Message::initial("a", "b")).await.expect(202);
        let built = Message::initial("a", "b").set("/fromAgent/agentVersion", json!("1.0.0+build.7"));
        agents[0].submit(&built).await.expect(202);
    }
}

/// The shortest lease that leaves time for a step of the chain.
const SHORT: (&str, &str) = ("HANDOFFD_DELIVERY__LEASE_MS", "1500");

both! {
    with [SHORT]
    async fn f1_3_a_faultless_chain_of_eight_never_expires(broker: Broker) {
        let names = ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"];
        let agents = crowd(broker, &names).await;
        let mut message = Message::initial("a1", "a2").cost(0.0, 0.4);
        let first = message.clone();
        let mut all = vec![first.clone()];
        let mut token = 0;
        for (at, pair) in agents.windows(2).enumerate() {
            if at > 0 {
                message = message.next(pair[0].id.as_str(), pair[1].id.as_str()).cost(0.0, 0.4);
                all.push(message.clone());
            }
            pair[0].submit(&message).await.expect(202);
            if at == 1 {
                // Longer than any lease: the parent has no deadline while it waits for the next verdict.
                tokio::time::sleep(Duration::from_millis(2_500)).await;
                let parent = pair[0].api.get(&first.path()).await.expect(200).body;
                assert_eq!((&parent["status"], &parent["deadlineAt"]), (&json!("ACCEPTED"), &Value::Null));
            }
            token = take(&pair[1], &message).await;
        }
        // Later than the end of any lease that the handed-on handoffs could have.
        agents[7].say(&message, "heartbeat", token, json!({})).await.expect(200);
        let done = until("every hop but the last is done", async || {
            let seen = statuses(broker, &first).await;
            let done = seen.iter().filter(|(status, _)| status == "COMPLETED").count();
            if done == 6 { Ok(seen) } else { Err(format!("{seen:?}")) }
        })
        .await;
        for (status, reason) in &done[..6] {
            assert_eq!((status.as_str(), reason), ("COMPLETED", &json!("HANDED_ON")));
        }
        agents[7].api.post(&format!("{}/complete", first.task_path()), &json!({ "output": {} })).await.expect(200);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(statuses(broker, &first).await.iter().all(|(status, _)| status == "COMPLETED"));
        let kinds = broker.kinds(&first).await;
        assert!(!kinds.iter().any(|kind| kind == "EXPIRED"), "{kinds:?}");
        let events = broker.admin.get("/events?limit=500").await.expect(200).body;
        assert!(!events.to_string().contains("handoff.expired"), "{events}");
        let metrics = broker.admin.metrics().await;
        let expired = metrics.lines().find(|line| line.starts_with("handoff_handoffs_total") && line.contains("EXPIRED"));
        assert!(expired.is_none_or(|line| line.ends_with(" 0")), "{expired:?}");
        let sums = broker.admin.get(&format!("{}/cost", first.task_path())).await.expect(200).body["sums"].clone();
        assert_eq!((&sums["reservedUSD"], &sums["remainingUSD"]), (&json!(0.0), &json!(0.4)));
    }

    with [SHORT]
    async fn f1_3_what_comes_back_is_leased_anew(broker: Broker) {
        let agents = crowd(broker, &["a", "b", "c"]).await;
        let [a, b, c] = &agents[..] else { panic!() };
        let first = Message::initial("a", "b").cost(0.0, 0.4);
        a.submit(&first).await.expect(202);
        take(b, &first).await;
        let on = first.next("b", "c").cost(0.1, 0.3);
        b.submit(&on).await.expect(202);
        let token = c.claim_one().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        c.say(&on, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        let held = b.api.get(&first.path()).await.expect(200).body;
        assert_eq!(held["status"], "ACCEPTED");
        assert!(held["deadlineAt"].is_string(), "its lease runs again: {held}");
        // b sends nothing more, so its lease runs out and the task goes back to a.
        until("the task is a's again", async || {
            let task = broker.task(&first).await;
            if task["holder"] == "a" { Ok(()) } else { Err(task.to_string()) }
        })
        .await;
        assert_eq!(broker.task(&first).await["status"], "PENDING_HANDOFF");
    }
}
