//! Events: told to subscriptions and callbacks, read by page and as a stream.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{Broker, Caller, until, within};
use crate::message::Message;
use crate::receiver::{Delivery, Receiver, answer, bare};

const QUICK: (&str, &str) = ("HANDOFFD_EVENTS__RETRY_BASE_MS", "20");
const QUICK_CAP: (&str, &str) = ("HANDOFFD_EVENTS__RETRY_CAP_MS", "50");
const QUICK_POLL: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");

/// Subscribes a receiver; returns the subscription.
async fn subscribe(broker: &Broker, receiver: &Receiver, mut spec: Value) -> Value {
    spec["url"] = json!(receiver.url);
    let made = broker.admin.post("/subscriptions", &spec).await.expect(201).body;
    receiver.trust(made["secret"].as_str().unwrap());
    made
}

fn path(subscription: &Value) -> String {
    format!("/subscriptions/{}", subscription["subscriptionId"].as_str().unwrap())
}

/// The next so many events' types, in the order in which they came.
async fn types(receiver: &Receiver, count: usize) -> Vec<String> {
    let mut types = Vec::new();
    for _ in 0..count {
        types.push(receiver.next().await.body["type"].as_str().unwrap().to_owned());
    }
    types
}

/// An event fits the schema that is served for it.
async fn fits(api: &Caller, event: &Value) {
    let kind = event["type"].as_str().unwrap();
    let schema = api.get(&format!("/schemas/events/{kind}")).await.expect(200).body;
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<_> = schema.iter_errors(event).map(|err| err.to_string()).collect();
    assert!(errors.is_empty(), "{event}: {errors:?}");
}

async fn feed(api: &Caller, query: &str) -> (Vec<Value>, String) {
    let page = api.get(&format!("/events?{query}")).await.expect(200).body;
    (page["items"].as_array().unwrap().clone(), page["nextCursor"].as_str().unwrap().to_owned())
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

both! {
    async fn a_subscription_is_told_of_a_handoffs_life_in_order(broker: Broker) {
        let (a, b, hook) = broker.pair(vec![]).await;
        let receiver = broker.receiver(|_| async { bare(204) }).await;
        let made = subscribe(broker, &receiver, json!({ "description": "all" })).await;
        let message = Message::initial("a", "b")
            .set("/taskSummary", json!("Review the lease"))
            .set("/reason", json!("needs a lawyer"))
            .set("/conversationId", json!("c-7"));
        a.submit_and_wait(&message).await.expect(200);
        b.say(&message, "complete", hook.next().await.token(), json!({ "result": 1 })).await.expect(200);
        broker.admin.post(&format!("{}/complete", message.task_path()), &json!({ "output": 1 })).await.expect(200);
        let mut events = Vec::new();
        for _ in 0..4 {
            let delivery = receiver.next().await;
            assert_eq!(delivery.header("webhook-id"), delivery.body["id"].as_str().unwrap());
            fits(&broker.admin, &delivery.body).await;
            events.push(delivery.body);
        }
        assert_eq!(
            kinds(&events),
            ["agent.handoff.occurred", "handoff.accepted", "handoff.completed", "task.completed"]
        );
        assert_eq!(
            events[0]["data"],
            json!({
                "handoff_id": message.id(), "task_id": message.task(), "source_agent_id": "a",
                "target_agent_id": "b", "conversation_id": "c-7", "reason": "needs a lawyer",
                "summary": "Review the lease", "status": "PENDING",
                "traceparent": message["traceparent"],
            })
        );
        let after = until("the cursor is written", async || {
            let found = broker.admin.get(&path(&made)).await.expect(200).body;
            let at = &found["progress"];
            if at["cursor"] == events[3]["cursor"] { Ok(found) } else { Err(found.to_string()) }
        });
        let after = after.await;
        assert_eq!(after["progress"]["attempts"], 4);
        assert!(after.get("secret").is_none());
        let log = broker.admin.get(&format!("{}/deliveries", path(&made))).await.expect(200).body;
        let log = log["items"].as_array().unwrap();
        assert_eq!(log.len(), 4);
        assert_eq!((&log[0]["outcome"], &log[0]["status"]), (&json!("delivered"), &json!(204)));
        assert_eq!(log[0]["type"], "task.completed", "newest first");
        assert!(broker.metric("handoff_events_total").await >= 4);
        assert_eq!(broker.metric("handoff_event_deliveries_total").await, 4);
    }

    async fn a_subscription_is_told_of_what_it_asked_for(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let c = broker.pull("c", &["b"]).await;
        let receiver = broker.receiver(|_| async { bare(200) }).await;
        let filter = json!({ "eventTypes": ["handoff.accepted"], "filter": { "agentId": "c" }, "format": "cloudevents" });
        let made = subscribe(broker, &receiver, filter).await;
        assert_eq!(made["eventTypes"], json!(["handoff.accepted"]));
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        let message = Message::initial("c", "b");
        c.submit_and_wait(&message).await.expect(200);
        let told = receiver.next().await;
        assert_eq!(told.header("content-type"), "application/cloudevents+json; charset=utf-8");
        let event = &told.body;
        assert_eq!((&event["specversion"], &event["type"]), (&json!("1.0"), &json!("handoff.accepted")));
        assert_eq!(event["data"]["handoffId"], message.id());
        assert_eq!(event["subject"], format!("tasks/{}/handoffs/{}", message.task(), message.id()));
        assert!(event["source"].is_string() && event["time"].is_string());
        let came = &message["traceparent"];
        assert_eq!((&event["traceparent"], &event["data"]["traceparent"]), (came, came));
        broker.admin.send(Method::PATCH, &path(&made), &[], &json!({ "eventTypes": [], "filter": {}, "format": "standard" })).await.expect(200);
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!(types(&receiver, 2).await, ["agent.handoff.occurred", "handoff.accepted"]);
        assert_eq!(receiver.all().len(), 3, "and of nothing else");
    }

    with [QUICK, QUICK_CAP]
    async fn an_endpoint_that_fails_holds_its_line_and_loses_nothing(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let script = vec![bare(500), bare(503), bare(404), bare(200), bare(500)];
        let receiver = Receiver::saying(broker.complaints.clone(), script).await;
        let made = subscribe(broker, &receiver, json!({})).await;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!(
            types(&receiver, 6).await,
            [&["agent.handoff.occurred"; 4][..], &["handoff.accepted"; 2]].concat()
        );
        let ids: Vec<_> = receiver.all().iter().map(|got| got.header("webhook-id").to_owned()).collect();
        assert!(ids[..4].iter().all(|id| *id == ids[0]), "the same at every attempt: {ids:?}");
        assert_eq!(receiver.all()[3].attempt(), 4);
        until("all attempts are remembered", async || {
            let log = broker.admin.get(&format!("{}/deliveries", path(&made))).await.expect(200).body;
            let outcomes: Vec<_> = log["items"].as_array().unwrap().iter().map(|one| one["outcome"].clone()).collect();
            let wanted = ["delivered", "retry", "delivered", "retry", "retry", "retry"];
            if outcomes == wanted { Ok(()) } else { Err(log.to_string()) }
        })
        .await;
    }

    with [QUICK, QUICK_CAP, ("HANDOFFD_EVENTS__SET_ASIDE_AFTER", "2")]
    async fn an_event_that_is_refused_is_set_aside(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let receiver = broker
            .receiver(|got: Delivery| async move {
                bare(if got.body["type"] == "agent.handoff.occurred" { 422 } else { 200 })
            })
            .await;
        subscribe(broker, &receiver, json!({})).await;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!(
            types(&receiver, 3).await,
            ["agent.handoff.occurred", "agent.handoff.occurred", "handoff.accepted"]
        );
    }

    with [QUICK]
    async fn a_slow_subscriber_delays_nobody(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let gate = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&gate);
        let slow = broker
            .receiver(move |_| {
                let held = Arc::clone(&held);
                async move {
                    held.acquire().await.unwrap().forget();
                    bare(200)
                }
            })
            .await;
        let quick = broker.receiver(|_| async { bare(200) }).await;
        subscribe(broker, &slow, json!({})).await;
        subscribe(broker, &quick, json!({})).await;
        for _ in 0..3 {
            a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        }
        assert_eq!(types(&quick, 6).await.len(), 6);
        assert_eq!(slow.all().len(), 1, "one at a time");
        gate.add_permits(6);
        assert_eq!(types(&slow, 6).await.len(), 6);
    }

    with [QUICK, QUICK_CAP]
    async fn an_endpoint_that_is_gone_is_told_no_more_until_it_is_switched_on(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let gone = Receiver::saying(broker.complaints.clone(), vec![bare(410)]).await;
        let other = broker.receiver(|_| async { bare(200) }).await;
        let made = subscribe(broker, &gone, json!({})).await;
        subscribe(broker, &other, json!({ "eventTypes": ["alert.raised"] })).await;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        let alert = other.next().await.body;
        fits(&broker.admin, &alert).await;
        assert_eq!(alert["data"]["alert"], "SUBSCRIPTION_DISABLED");
        assert_eq!(alert["data"]["subscriptionId"], made["subscriptionId"]);
        let off = broker.admin.get(&path(&made)).await.expect(200).body;
        assert_eq!((&off["enabled"], &off["disabledReason"]), (&json!(false), &json!("ENDPOINT_GONE")));
        assert_eq!(gone.all().len(), 1);
        let on = broker.admin.send(Method::PATCH, &path(&made), &[], &json!({ "enabled": true })).await.expect(200).body;
        assert!(on.get("disabledReason").is_none());
        // It goes on where it stood.
        gone.next().await;
        // The subscription may end before the handoff is accepted, or after it.
        let mut rest = types(&gone, 3).await;
        rest.sort();
        assert_eq!(rest, ["agent.handoff.occurred", "alert.raised", "handoff.accepted"]);
    }

    async fn a_replay_tells_again_from_a_cursor_or_a_time(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let receiver = broker.receiver(|_| async { bare(200) }).await;
        let made = subscribe(broker, &receiver, json!({})).await;
        let began = made["createdAt"].as_str().unwrap();
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        let first = receiver.next().await.body;
        receiver.next().await;
        let replay = format!("{}/replay", path(&made));
        broker.admin.post(&replay, &json!({ "since": first["cursor"] })).await.expect(202);
        assert_eq!(types(&receiver, 1).await, ["handoff.accepted"]);
        broker.admin.post(&replay, &json!({ "since": began })).await.expect(202);
        let again = receiver.next().await.body;
        assert_eq!(again, first, "the same to the letter");
        assert_eq!(types(&receiver, 1).await, ["handoff.accepted"]);
        broker.admin.post(&replay, &json!({ "since": "yesterday" })).await.refused(400, "INVALID_REQUEST");
    }

    async fn a_replay_from_what_was_just_heard_waits_for_what_is_under_way(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let (heard, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let receiver = {
            let (heard, go) = (heard.clone(), go.clone());
            let held = move |delivery: Delivery| {
                let (heard, go) = (heard.clone(), go.clone());
                async move {
                    if delivery.body["type"] == "handoff.accepted" {
                        heard.add_permits(1);
                        go.acquire().await.unwrap().forget();
                    }
                    bare(200)
                }
            };
            broker.receiver(held).await
        };
        let made = subscribe(broker, &receiver, json!({})).await;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        let first = receiver.next().await.body;
        // The second event is held by the endpoint: what the first one was answered with is not written yet.
        heard.acquire().await.unwrap().forget();
        let replay = {
            let (admin, path) = (broker.admin.clone(), format!("{}/replay", path(&made)));
            tokio::spawn(async move { admin.post(&path, &json!({ "since": first["cursor"] })).await })
        };
        go.add_permits(2);
        replay.await.unwrap().expect(202);
        assert_eq!(types(&receiver, 2).await, ["handoff.accepted"; 2]);
    }

    with [QUICK, QUICK_CAP]
    async fn a_sender_is_told_at_its_callback_what_it_goes_on_from(broker: Broker) {
        let no = answer(200, &json!({ "status": "REJECTED", "reason": "the lease is not signed" }));
        let hook = Receiver::saying(broker.complaints.clone(), vec![no]).await;
        broker.webhook("b", &[], &hook).await;
        let callback = broker.receiver(|_| async { bare(200) }).await;
        let spec = json!({ "agentId": "a", "handoffTargets": ["b"], "callbackUrl": callback.url });
        let a = broker.agent(spec).await;
        callback.trust(&a.webhook_secret);
        let message = Message::initial("a", "b").set("/checkpoint", json!({ "step": 7 }));
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(said.body["status"], "REJECTED");
        let rejected = callback.next().await.body;
        fits(&broker.admin, &rejected).await;
        assert_eq!(rejected["type"], "handoff.rejected");
        assert_eq!(rejected["data"]["reason"], "REJECTED_BY_RECEIVER");
        assert_eq!(rejected["data"]["detail"], "the lease is not signed");
        let back = callback.next().await.body;
        fits(&broker.admin, &back).await;
        assert_eq!(back["type"], "handoff.rolled_back");
        assert_eq!(back["data"]["checkpoint"]["state"], json!({ "step": 7 }));
        assert_eq!(back["data"]["checkpoint"]["executionId"], message["fromAgent"]["executionId"]);
        assert_eq!(back["data"]["taskStatus"], "PENDING_HANDOFF");
        let (feed, _) = feed(&broker.admin, "types=handoff.rolled_back").await;
        assert!(feed[0]["data"]["checkpoint"].get("state").is_none(), "only its owner gets it");
        // The alert is the operators', and nothing more comes to the sender.
        assert_eq!(callback.all().len(), 2);
    }

    async fn the_feed_is_read_by_page_and_waited_for(broker: Broker) {
        let (a, b, _hook) = broker.pair(vec![]).await;
        let c = broker.pull("c", &["b"]).await;
        let message = Message::initial("a", "b");
        a.submit_and_wait(&message).await.expect(200);
        c.submit_and_wait(&Message::initial("c", "b")).await.expect(200);
        let (first, next) = feed(&broker.admin, "limit=3").await;
        assert_eq!(first.len(), 3);
        assert_eq!(next, first[2]["cursor"]);
        let (rest, end) = feed(&broker.admin, &format!("since={next}&limit=3")).await;
        assert_eq!(kinds(&rest), ["handoff.accepted"]);
        let (some, _) = feed(&broker.admin, "types=handoff.accepted,handoff.rejected").await;
        assert_eq!(kinds(&some), ["handoff.accepted"; 2]);
        let (of_task, _) = feed(&broker.admin, &format!("taskId={}", message.task())).await;
        assert_eq!(of_task.len(), 2);
        let (own, _) = feed(&c.api, "").await;
        assert_eq!(own.len(), 2, "an agent sees what it has a part in");
        assert_eq!(feed(&b.api, "").await.0.len(), 4);
        c.api.get("/events?agentId=a").await.refused(403, "FORBIDDEN");
        broker.admin.get("/events?types=handoff.exploded").await.refused(400, "INVALID_REQUEST");
        broker.admin.get("/events?since=x").await.refused(400, "INVALID_REQUEST");
        let waiting = {
            let (admin, end) = (broker.admin.clone(), end.clone());
            tokio::spawn(async move { feed(&admin, &format!("since={end}&wait=20")).await })
        };
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let (found, _) = within("the feed's next", waiting).await.unwrap();
        assert_eq!(found[0]["data"]["handoff_id"], message.id());
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let (_, end) = feed(&broker.admin, "").await;
        assert_eq!(feed(&broker.admin, &format!("since={end}&wait=1")).await.0, [Value::Null; 0]);
    }

    async fn a_task_is_watched_live_and_again_from_where_it_broke_off(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let stranger = broker.pull("c", &[]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let watch = format!("{}/events", message.task_path());
        stranger.api.get(&watch).await.refused(404, "NOT_FOUND");
        let open = async |id: Option<&str>| {
            let mut request = a.api.request(Method::GET, &watch);
            if let Some(id) = id {
                request = request.header("last-event-id", id);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            response
        };
        let mut stream = open(None).await;
        let mut text = String::new();
        see(&mut stream, &mut text, "event: agent.handoff.occurred").await;
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        see(&mut stream, &mut text, "event: handoff.accepted").await;
        drop(stream);
        let first = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
        b.say(&message, "complete", token, json!({})).await.expect(200);
        let (mut stream, mut text) = (open(Some(&first)).await, String::new());
        see(&mut stream, &mut text, "event: handoff.completed").await;
        assert!(text.contains("event: handoff.accepted") && !text.contains("occurred"), "{text}");
        // Left open: the broker stops in order all the same, which the harness checks.
        std::mem::forget(stream);
    }

    async fn a_rotated_secret_signs_beside_the_old_one(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let receiver = broker.receiver(|_| async { bare(200) }).await;
        let made = subscribe(broker, &receiver, json!({ "eventTypes": ["handoff.accepted"] })).await;
        let rotate = format!("{}/secret/rotate", path(&made));
        let new = broker.admin.post(&rotate, &json!({ "overlapSeconds": 60 })).await.expect(200).body;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        let told = receiver.next().await;
        assert_eq!(told.header("webhook-signature").split(' ').count(), 2);
        receiver.trust_only(new["secret"].as_str().unwrap());
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        receiver.next().await;
    }

    async fn subscriptions_are_the_operators_and_changes_are_records(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let operator = broker.person("operator").await;
        let before = broker.log_size().await;
        let spec = json!({ "url": "https://example.com/hook", "filter": { "taskId": "7a000000-0000-4000-8000-000000000001" } });
        let made = operator.post("/subscriptions", &spec).await.expect(201).body;
        let one = path(&made);
        operator.send(Method::PATCH, &one, &[], &json!({ "description": "x" })).await.expect(200);
        operator.send(Method::PATCH, &one, &[], &json!({ "description": "x" })).await.expect(200);
        assert_eq!(operator.get("/subscriptions").await.expect(200).body["items"][0]["description"], "x");
        let auditor = broker.person("auditor").await;
        for stranger in [&a.api, &auditor] {
            stranger.post("/subscriptions", &spec).await.refused(403, "FORBIDDEN");
        }
        auditor.get(&one).await.refused(403, "FORBIDDEN");
        a.api.get(&one).await.refused(404, "NOT_FOUND");
        a.api.delete(&one).await.refused(404, "NOT_FOUND");
        assert_eq!(a.api.get("/subscriptions").await.expect(200).body["items"], json!([]));
        for (bad, pointer) in [
            (json!({}), "/url"),
            (json!({ "url": "ftp://x/" }), "/url"),
            (json!({ "url": "http://x/", "description": "d".repeat(201) }), "/description"),
            (json!({ "url": "http://x/", "authorization": "a\nb" }), "/authorization"),
            (json!({ "url": "http://x/", "token": 7 }), "/token"),
            (json!({ "url": "http://x/", "format": "a2a", "eventTypes": ["task.completed"] }), "/eventTypes"),
        ] {
            let refused = operator.post("/subscriptions", &bad).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(refused.pointers(), [pointer]);
        }
        operator.post("/subscriptions", &json!({ "url": "http://x/", "eventTypes": ["x"] })).await.refused(422, "SCHEMA_INVALID");
        operator.delete(&one).await.expect(204);
        operator.delete(&one).await.refused(404, "NOT_FOUND");
        operator.get(&one).await.refused(404, "NOT_FOUND");
        // Two more for the auditor's key and the operator's: made, changed once, deleted.
        assert_eq!(broker.log_size().await - before, 3 + 1);
    }

    async fn the_sender_of_a_group_is_told_of_its_end(broker: Broker) {
        let a = broker.pull("a", &["b", "c"]).await;
        let (b, c) = (broker.pull("b", &[]).await, broker.pull("c", &[]).await);
        let receiver = broker.receiver(|_| async { bare(204) }).await;
        let group = Message::review("a", "b")
            .set("/schemaVersion", json!("2.2"))
            .set("/receiverList", json!([{ "agentId": "b" }, { "agentId": "c" }]));
        a.submit(&group).await.expect(202);
        let spec = json!({
            "url": receiver.url, "eventTypes": ["handoff.group_ended"], "filter": { "handoffId": group.id() },
        });
        b.api.post("/subscriptions", &spec).await.refused(404, "NOT_FOUND");
        let made = a.api.post("/subscriptions", &spec).await.expect(201).body;
        receiver.trust(made["secret"].as_str().unwrap());
        for one in [&b, &c] {
            let item = one.claim(1).await[0].clone();
            let path = format!("/handoffs/{}/complete", item["handoffId"].as_str().unwrap());
            one.api.post(&path, &json!({ "fencingToken": item["fencingToken"] })).await.expect(200);
        }
        let told = receiver.next().await.body;
        assert_eq!((&told["type"], &told["data"]["handoffId"]), (&json!("handoff.group_ended"), &json!(group.id())));
    }

    async fn a_filter_by_an_agent_that_is_not_registered_is_named(broker: Broker) {
        broker.pull_pair().await;
        let spec = |agent: &str| json!({ "url": "https://example.com/hook", "filter": { "agentId": agent } });
        let made = broker.admin.post("/subscriptions", &spec("a")).await.expect(201).body;
        assert_eq!(made["warnings"], Value::Null);
        let change = |agent: &str| json!({ "filter": { "agentId": agent } });
        let changed = broker.admin.send(Method::PATCH, &path(&made), &[], &change("aa")).await.expect(200).body;
        let created = broker.admin.post("/subscriptions", &spec("aa")).await.expect(201).body;
        for one in [changed, created] {
            let warned = &one["warnings"][0];
            assert_eq!((&warned["code"], &warned["pointer"]), (&json!("UNKNOWN_AGENT"), &json!("/filter/agentId")));
            assert_eq!(one["filter"]["agentId"], "aa", "it is kept");
        }
    }

    with [QUICK_POLL]
    async fn two_brokers_tell_a_subscription_once_and_go_on_for_each_other(broker: Broker) {
        if !broker.url.starts_with("postgres") {
            return;
        }
        let (a, _, _hook) = broker.pair(vec![]).await;
        let receiver = broker.receiver(|_| async { bare(200) }).await;
        subscribe(broker, &receiver, json!({})).await;
        let (other, running) = broker.second().await;
        let there = Caller { base: other.base.clone(), ..a.api.clone() };
        for round in 0..10 {
            let api = if round % 2 == 0 { &a.api } else { &there };
            api.submit_with(&Message::initial("a", "b"), &[("Prefer", "wait=20")]).await.expect(200);
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            assert!(seen.insert(receiver.next().await.header("webhook-id").to_owned()), "told twice");
        }
        within("an orderly stop", running.stop()).await;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!(types(&receiver, 2).await, ["agent.handoff.occurred", "handoff.accepted"]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(receiver.all().len(), 22);
    }
}

both! {
    async fn a_restart_goes_on_where_the_last_broker_stopped(broker: Broker) {
        let (a, _, _hook) = broker.pair(vec![]).await;
        let receiver = broker.receiver(|_| async { bare(200) }).await;
        subscribe(broker, &receiver, json!({})).await;
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        types(&receiver, 2).await;
        let admin = broker.restart().await;
        let a = Caller { base: admin.base.clone(), ..a.api.clone() };
        a.submit_with(&Message::initial("a", "b"), &[("Prefer", "wait=20")]).await.expect(200);
        assert_eq!(types(&receiver, 2).await, ["agent.handoff.occurred", "handoff.accepted"]);
        assert_eq!(receiver.all().len(), 4, "an orderly stop tells nothing twice");
    }
}

/// Reads a stream until it holds a text.
async fn see(stream: &mut reqwest::Response, text: &mut String, wanted: &str) {
    while !text.contains(wanted) {
        let chunk = within("more of the stream", stream.chunk()).await.unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect(wanted)).unwrap());
    }
}
