//! Webhooks: the whole answer table, retries, order, deadlines, the egress guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::harness::{Broker, shared, until};
use crate::message::Message;
use crate::receiver::{Delivery, Receiver, accepted, answer, bare};

const TWO_ATTEMPTS: (&str, &str) = ("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "2");
const QUICK_SWEEP: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");
const QUICK_VERDICT: (&str, &str) = ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "300");

fn with_header(status: u16, name: &str, value: &str) -> Response<Body> {
    Response::builder().status(status).header(name, value).body(Body::empty()).unwrap()
}

fn text(status: u16, body: &'static str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body)).unwrap()
}

/// Attempts of one handoff, in order.
fn attempts(receiver: &Receiver, message: &Message) -> Vec<Delivery> {
    receiver.all().into_iter().filter(|got| got.handoff() == message.id()).collect()
}

/// The task is with its sender again, its checkpoint restored.
async fn is_rolled_back(broker: &Broker, message: &Message, checkpoint: Value) {
    let task = broker.task(message).await;
    assert_eq!(task["status"], "PENDING_HANDOFF", "{task}");
    assert_eq!(task["holder"], message["fromAgent"]["agentId"], "{task}");
    assert_eq!(task["checkpointState"], checkpoint, "{task}");
    assert_eq!(task["undelivered"], 0, "{task}");
}

fn implied(message: &Message) -> Value {
    let members = [
        "taskDescription",
        "completedSubtasks",
        "remainingSubtasks",
        "currentState",
        "constraints",
    ];
    members
        .iter()
        .map(|name| ((*name).to_owned(), message[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

both! {
    async fn every_form_of_yes_is_an_acceptance(broker: Broker) {
        let forms = [
            answer(200, &json!({ "status": "ACCEPTED" })),
            answer(200, &json!({ "accepted": true })),
            answer(201, &json!({ "status": "accepted", "details": { "queue": 3 } })),
            answer(202, &json!({ "status": "ACCEPTED" })),
            bare(200),
            bare(204),
            text(200, " \n"),
        ];
        let count = forms.len();
        let (a, _, receiver) = broker.pair(forms.into()).await;
        for _ in 0..count {
            let message = Message::initial("a", "b");
            let said = a.submit_and_wait(&message).await.expect(200);
            assert_eq!(said.body["status"], "ACCEPTED");
            assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED"]);
            let task = broker.task(&message).await;
            assert_eq!((&task["status"], &task["holder"]), (&json!("RUNNING"), &json!("b")));
        }
        assert_eq!(receiver.all().len(), count);
    }

    async fn every_form_of_no_is_a_rejection(broker: Broker) {
        let forms = [
            answer(200, &json!({ "status": "REJECTED", "reason": "MISSING_CAPABILITY" })),
            answer(200, &json!({ "accepted": false, "rejection_reason": "MISSING_CAPABILITY" })),
            answer(409, &json!({ "status": "REJECTED", "reason": "MISSING_CAPABILITY", "details": { "x": 1 } })),
            answer(422, &json!({ "accepted": false, "reason": "MISSING_CAPABILITY" })),
        ];
        let count = forms.len();
        let (a, _, receiver) = broker.pair(forms.into()).await;
        for _ in 0..count {
            let message = Message::initial("a", "b");
            let said = a.submit_and_wait(&message).await.expect(200);
            assert_eq!((&said.body["status"], &said.body["reason"]), (&json!("REJECTED"), &json!("MISSING_CAPABILITY")));
            assert_eq!(broker.kinds(&message).await, ["HANDOFF", "REJECTED", "ROLLED_BACK"]);
            is_rolled_back(broker, &message, implied(&message)).await;
        }
        assert_eq!(receiver.all().len(), count, "a no is not tried again");
    }

    async fn a_reason_in_free_text_stays_out_of_the_log(broker: Broker) {
        let no = answer(200, &json!({ "status": "REJECTED", "reason": "Jana asked us not to" }));
        let (a, _, _receiver) = broker.pair(vec![no]).await;
        let message = Message::initial("a", "b");
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(said.body["reason"], "Jana asked us not to");
        let trace = broker.trace(&message).await;
        assert_eq!(trace["records"][1]["reason"], "REJECTED_BY_RECEIVER");
        assert_eq!(trace["records"][1]["content"]["reason"], "Jana asked us not to");
    }

    async fn what_is_neither_yes_nor_no_is_tried_again(broker: Broker) {
        let script = vec![
            bare(500),
            text(200, "<html>It works!</html>"),
            answer(200, &json!({ "status": "MAYBE" })),
            bare(409),
            bare(404),
            with_header(302, "location", "/elsewhere"),
        ];
        let count = script.len() as u32;
        let (a, _, receiver) = broker.pair(script).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        // Six failures in a row open the breaker on the way: its probes get through.
        let found = broker.handoff_becomes(&message, "ACCEPTED").await;
        assert_eq!(found["attempts"], count + 1);
        let got = attempts(&receiver, &message);
        let numbers: Vec<u32> = got.iter().map(Delivery::attempt).collect();
        assert_eq!(numbers, (1..=count + 1).collect::<Vec<_>>());
        for delivery in &got {
            assert_eq!(delivery.header("webhook-id"), got[0].header("webhook-id"));
            assert_eq!(delivery.body, got[0].body);
            assert_eq!(delivery.token(), got[0].token());
        }
    }

    async fn work_that_is_not_idempotent_is_sent_once_whatever_the_answer(broker: Broker) {
        // Finding G7 of 0.3.0.
        let contract = json!({
            "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b", "idempotency": { "idempotent": false },
        });
        let script = vec![with_header(503, "retry-after", "0"), with_header(429, "retry-after", "0"), bare(429), bare(500)];
        let reasons = ["RECEIVER_BUSY", "RECEIVER_BUSY", "RECEIVER_BUSY", "DELIVERY_STATUS"];
        let (a, _, receiver) = broker.pair(script).await;
        broker.admin.put("/contracts/a-to-b", &contract).await.expect(201);
        for reason in reasons {
            let message = Message::review("a", "b");
            a.submit(&message).await.expect(202);
            assert_eq!(receiver.next().await.handoff(), message.id());
            let failed = broker.handoff_becomes(&message, "FAILED").await;
            assert_eq!((&failed["reason"], &failed["attempts"]), (&json!(reason), &json!(1)), "{failed}");
        }
    }

    async fn a_busy_receiver_is_asked_again_when_it_said(broker: Broker) {
        let script = vec![with_header(429, "retry-after", "1"), with_header(503, "retry-after", "0")];
        let (a, _, receiver) = broker.pair(script).await;
        let message = Message::initial("a", "b");
        let began = tokio::time::Instant::now();
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(said.body["status"], "ACCEPTED");
        assert!(began.elapsed() >= std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(attempts(&receiver, &message).len(), 3);
    }

    async fn an_endpoint_that_is_gone_is_disabled_and_the_task_rolled_back(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![bare(410)]).await;
        let message = Message::initial("a", "b");
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!((&said.body["status"], &said.body["reason"]), (&json!("FAILED"), &json!("ENDPOINT_GONE")));
        is_rolled_back(broker, &message, implied(&message)).await;
        let trace = broker.trace(&message).await;
        let failed = trace["records"].as_array().unwrap().iter().find(|one| one["kind"] == "FAILED").unwrap();
        assert_eq!(failed["actor"]["role"], "broker", "the broker gave up: {failed}");
        let agent = broker.admin.get("/agents/b").await.expect(200).body;
        assert_eq!(agent["delivery"]["disabled"], true);
        a.submit(&message.next("a", "b")).await.refused(422, "NO_CAPABLE_AGENT");
        // A delivery that is set anew is asked again.
        let delivery = json!({ "delivery": { "mode": "webhook", "url": receiver.url } });
        broker.admin.patch("/agents/b", &delivery).await.expect(200);
        a.submit_and_wait(&message.next("a", "b")).await.expect(200);
        assert_eq!(receiver.all().len(), 2);
    }

    async fn a_redirect_is_not_followed(broker: Broker) {
        let elsewhere = broker.saying(vec![]).await;
        let redirects = (0..8).map(|_| with_header(307, "location", &elsewhere.url)).collect();
        let (a, b, receiver) = broker.pair(redirects).await;
        elsewhere.trust(&b.webhook_secret);
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let found = broker.handoff_becomes(&message, "FAILED").await;
        assert_eq!(found["reason"], "DELIVERY_REDIRECT");
        assert_eq!((receiver.all().len(), elsewhere.all().len()), (8, 0));
    }

    async fn a_delivery_has_its_headers_and_no_checkpoint(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let personal = json!({ "subjects": [{ "subjectId": "customer-7", "data": { "name": "Jana" } }] });
        let message = Message::initial("a", "b")
            .set("/checkpoint", json!({ "secretStep": 1 }))
            .set("/personalDataPayload", personal.clone());
        a.submit_and_wait(&message).await.expect(200);
        let got = receiver.next().await;
        assert_eq!(got.header("content-type"), "application/json");
        assert_eq!(got.header("webhook-id"), message.id());
        assert_eq!(got.header("handoff-id"), message.id());
        assert_eq!(got.header("handoff-task-id"), message.task());
        assert_eq!(got.attempt(), 1);
        assert_eq!(got.header("traceparent"), message["traceparent"].as_str().unwrap());
        let bare = message.clone().without("/checkpoint").without("/personalDataPayload");
        assert_eq!(got.body, bare.0);
        let found = broker.admin.get(&message.path()).await.expect(200).body;
        assert_eq!(found["fencingToken"], got.token());

        broker.admin.patch("/agents/b", &json!({ "permissions": ["personal-data:read"] })).await.expect(200);
        let entitled = message.again();
        a.submit_and_wait(&entitled).await.expect(200);
        assert_eq!(receiver.next().await.body, entitled.without("/checkpoint").0);
    }

    async fn a_requests_own_trace_context_goes_before_the_messages(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let message = Message::initial("a", "b");
        let headers = [("traceparent", own), ("tracestate", "vendor=1")];
        a.api.submit_with(&message, &headers).await.expect(202);
        let got = receiver.next().await;
        assert_eq!((got.header("traceparent"), got.header("tracestate")), (own, "vendor=1"));
        let shown = a.api.get(&message.path()).await.expect(200).body;
        assert_eq!((&shown["traceparent"], &shown["tracestate"]), (&json!(own), &json!("vendor=1")));
        let bad = Message::initial("a", "b");
        let headers = [("traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01")];
        a.api.submit_with(&bad, &headers).await.expect(202);
        assert_eq!(receiver.next().await.header("traceparent"), bad["traceparent"].as_str().unwrap());
    }

    async fn a_webhook_secret_can_be_rotated_under_load(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let made = broker.admin.post("/agents/b/secrets/webhook/rotate", &json!({})).await.expect(200);
        // The old one still verifies: both signatures are sent.
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        receiver.trust_only(made.body["webhookSecret"].as_str().unwrap());
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        for delivery in receiver.all() {
            assert_eq!(delivery.header("webhook-signature").split(' ').count(), 2);
        }
    }

    async fn a_receiver_that_comes_up_late_gets_its_handoff(broker: Broker) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let a = broker.pull("a", &["b"]).await;
        let delivery = json!({ "mode": "webhook", "url": format!("http://{address}/hook") });
        let b = broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        until("a refused connection was noticed", async || {
            let found = broker.admin.get(&message.path()).await.expect(200).body;
            if found["reason"] == "DELIVERY_CONNECT" { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        let listener = TcpListener::bind(address).await.unwrap();
        let script = Arc::new(|_| Box::pin(async { accepted() }) as _);
        let receiver = Receiver::on(listener, broker.complaints.clone(), script);
        receiver.trust(&b.webhook_secret);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        assert!(receiver.next().await.attempt() > 1);
    }

    async fn a109_exhausted_attempts_fail_and_roll_back(broker: Broker) {
        let (a, _, receiver) = broker.pair((0..8).map(|_| bare(500)).collect()).await;
        let message = Message::initial("a", "b").set("/checkpoint", json!({ "step": 9 }));
        a.submit(&message).await.expect(202);
        let found = broker.handoff_becomes(&message, "FAILED").await;
        assert_eq!((&found["reason"], &found["attempts"]), (&json!("DELIVERY_STATUS"), &json!(8)));
        assert_eq!(attempts(&receiver, &message).len(), 8);
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "FAILED", "ROLLED_BACK"]);
        is_rolled_back(broker, &message, json!({ "step": 9 })).await;
    }

    async fn a_hanging_receiver_delays_nobody_else(broker: Broker) {
        let gate = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&gate);
        let slow = broker
            .receiver(move |_| {
                let held = Arc::clone(&held);
                async move {
                    held.acquire().await.unwrap().forget();
                    accepted()
                }
            })
            .await;
        let quick = broker.saying(vec![]).await;
        let a = broker.pull("a", &["slow", "quick"]).await;
        broker.webhook("slow", &[], &slow).await;
        broker.webhook("quick", &[], &quick).await;
        // More than the slow one may have in flight at once.
        let hanging: Vec<Message> = (0..20).map(|_| Message::initial("a", "slow")).collect();
        for message in &hanging {
            a.submit(message).await.expect(202);
        }
        slow.next().await;
        for _ in 0..5 {
            let said = a.submit_and_wait(&Message::initial("a", "quick")).await.expect(200);
            assert_eq!(said.body["status"], "ACCEPTED");
        }
        assert!(slow.all().len() <= 16, "{} in flight to one receiver", slow.all().len());
        gate.add_permits(hanging.len());
        for message in &hanging {
            broker.handoff_becomes(message, "ACCEPTED").await;
        }
        assert_eq!(slow.all().len(), hanging.len());
    }
}

both! {
    with [("HANDOFFD_GATE__MAX_EDGE_REPEATS", "1000"), ("HANDOFFD_GATE__MAX_HOPS", "1000")]
    async fn the_order_within_a_task_holds_through_a_retry(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![bare(500)]).await;
        let first = Message::review("a", "b");
        let task: Vec<Message> =
            std::iter::once(first.clone()).chain((0..4).map(|_| first.next("a", "b"))).collect();
        for message in &task {
            a.submit(message).await.expect(202);
        }
        for message in &task {
            broker.handoff_becomes(message, "ACCEPTED").await;
        }
        let got: Vec<(String, u32)> =
            receiver.all().iter().map(|got| (got.handoff(), got.attempt())).collect();
        let mut expected = vec![(first.id(), 1), (first.id(), 2)];
        expected.extend(task[1..].iter().map(|message| (message.id(), 1)));
        assert_eq!(got, expected);
        let tokens: Vec<i64> = receiver.all().iter().map(Delivery::token).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
    }
}

both! {
    with [("HANDOFFD_GATE__MAX_EDGE_REPEATS", "1000"), ("HANDOFFD_GATE__MAX_HOPS", "1000")]
    async fn the_order_within_a_task_holds_over_several_receivers(broker: Broker) {
        let order = shared(Vec::new());
        let mut receivers = Vec::new();
        let a = broker.pull("a", &["b", "c", "d"]).await;
        for id in ["b", "c", "d"] {
            let order = Arc::clone(&order);
            let receiver = broker
                .receiver(move |delivery| {
                    order.lock().unwrap().push(delivery.handoff());
                    async { accepted() }
                })
                .await;
            broker.webhook(id, &[], &receiver).await;
            receivers.push(receiver);
        }
        let first = Message::review("a", "b");
        let mut sent = vec![first.clone()];
        for place in 1..12 {
            sent.push(first.next("a", ["b", "c", "d"][place % 3]));
        }
        for message in &sent {
            a.submit(message).await.expect(202);
        }
        broker.handoff_becomes(sent.last().unwrap(), "ACCEPTED").await;
        let expected: Vec<String> = sent.iter().map(Message::id).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    }
}

both! {
    async fn many_tasks_at_once_each_arrive_once(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let sent: Vec<Message> = (0..120).map(|_| Message::initial("a", "b")).collect();
        for answer in futures_util::future::join_all(sent.iter().map(|one| a.submit(one))).await {
            answer.expect(202);
        }
        for message in &sent {
            broker.handoff_becomes(message, "ACCEPTED").await;
        }
        let mut got: Vec<String> = receiver.all().iter().map(Delivery::handoff).collect();
        got.sort();
        let mut expected: Vec<String> = sent.iter().map(Message::id).collect();
        expected.sort();
        assert_eq!(got, expected);
    }

    with [QUICK_SWEEP, QUICK_VERDICT]
    async fn a_verdict_that_does_not_come_expires_and_rolls_back(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![bare(202)]).await;
        let message = Message::initial("a", "b").set("/checkpoint", json!({ "step": 1 }));
        a.submit(&message).await.expect(202);
        let token = receiver.next().await.token();
        let found = broker.handoff_becomes(&message, "EXPIRED").await;
        assert_eq!(found["reason"], "VERDICT_TIMEOUT");
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "EXPIRED", "ROLLED_BACK"]);
        is_rolled_back(broker, &message, json!({ "step": 1 })).await;
        for verb in ["accept", "reject", "heartbeat", "complete", "fail"] {
            b.say(&message, verb, token, json!({})).await.refused(409, "STALE_LEASE");
        }
        assert_eq!(broker.kinds(&message).await.len(), 3);
        // The task can go on.
        let next = message.next("a", "b");
        a.submit_and_wait(&next).await.expect(200);
        b.say(&message, "complete", token, json!({})).await.refused(409, "STALE_LEASE");
    }

    with [QUICK_SWEEP, ("HANDOFFD_DELIVERY__LEASE_MS", "300")]
    async fn a_lease_that_runs_out_expires_and_rolls_back(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = receiver.next().await.token();
        let found = broker.handoff_becomes(&message, "EXPIRED").await;
        assert_eq!(found["reason"], "LEASE_EXPIRED");
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "EXPIRED", "ROLLED_BACK"]);
        is_rolled_back(broker, &message, implied(&message)).await;
        b.say(&message, "complete", token, json!({})).await.refused(409, "STALE_LEASE");
    }

    with [QUICK_SWEEP, ("HANDOFFD_DELIVERY__LEASE_MS", "1500")]
    async fn a_heartbeat_extends_the_lease(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        a.submit_and_wait(&message).await.expect(200);
        let token = receiver.next().await.token();
        let first = broker.admin.get(&message.path()).await.expect(200).body["deadlineAt"].clone();
        let began = tokio::time::Instant::now();
        // Past the first deadline, by heartbeats alone.
        let mut beats = 0;
        while began.elapsed() < std::time::Duration::from_millis(2_500) {
            let found = b.say(&message, "heartbeat", token, json!({})).await.expect(200).body;
            assert!(found["deadlineAt"].as_str() > first.as_str());
            assert_eq!(found["status"], "ACCEPTED");
            beats += 1;
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        }
        assert!(beats > 3);
        b.say(&message, "complete", token, json!({})).await.expect(200);
    }

    with [("HANDOFFD_EGRESS_ALLOW", "")]
    async fn the_egress_guard_refuses_loopback_unless_allowed(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!((&said.body["status"], &said.body["reason"]), (&json!("FAILED"), &json!("DELIVERY_EGRESS")));
        assert_eq!(receiver.all().len(), 0);
        is_rolled_back(broker, &message, implied(&message)).await;
        let port = receiver.url.rsplit_once(':').unwrap().1;
        for host in ["localhost", "0.0.0.0", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"] {
            let delivery = json!({ "delivery": { "mode": "webhook", "url": format!("http://{host}:{port}") } });
            broker.admin.patch("/agents/b", &delivery).await.expect(200);
            let said = a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
            assert_eq!(said.body["reason"], "DELIVERY_EGRESS", "{host}");
        }
        assert_eq!(receiver.all().len(), 0);
    }

    with [TWO_ATTEMPTS]
    async fn an_answer_that_does_not_come_in_time_is_a_failed_attempt(broker: Broker) {
        let seen = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&seen);
        let receiver = broker
            .receiver(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<Response<Body>>()
            })
            .await;
        let a = broker.pull("a", &["b"]).await;
        broker.webhook("b", &[], &receiver).await;
        let delivery = json!({ "mode": "webhook", "url": receiver.url, "timeoutMs": 200 });
        broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await.expect(200);
        let message = Message::initial("a", "b");
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!((&said.body["status"], &said.body["reason"]), (&json!("FAILED"), &json!("DELIVERY_TIMEOUT")));
        assert_eq!(seen.load(Ordering::Relaxed), 2);
    }

    async fn a_target_that_was_removed_fails_what_was_on_its_way(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![with_header(429, "retry-after", "1")]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        receiver.next().await;
        broker.admin.delete("/agents/b").await.expect(204);
        let found = broker.handoff_becomes(&message, "FAILED").await;
        assert_eq!(found["reason"], "AGENT_DELETED");
        is_rolled_back(broker, &message, implied(&message)).await;
    }

    async fn one_task_rolled_back_can_be_handed_off_again(broker: Broker) {
        let no = answer(200, &json!({ "status": "REJECTED", "reason": "NO" }));
        let (a, _, receiver) = broker.pair(vec![no]).await;
        let first = Message::initial("a", "b").cost(0.08, 0.32);
        a.submit_and_wait(&first).await.expect(200);
        let second = first.again().cost(0.1, 0.3);
        let said = a.submit_and_wait(&second).await.expect(200);
        assert_eq!(said.body["status"], "ACCEPTED");
        let tokens: Vec<i64> = receiver.all().iter().map(Delivery::token).collect();
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        let trace = broker.trace(&first).await;
        assert_eq!(trace["handoffs"].as_array().unwrap().len(), 2);
        assert_eq!(trace["cost"]["totalUSD"], 0.1, "what was spent before the rollback counts once");
    }
}
