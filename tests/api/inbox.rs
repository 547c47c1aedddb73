//! `GET /agents/{agentId}/inbox`: long polls, claims that run out, who may ask.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::until;
use crate::message::Message;

both! {
    async fn a_long_poll_is_woken_by_a_submission_at_once(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        // The fallback looks every 500 ms; the best of some tries must be far below.
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let message = Message::initial("a", "b");
            let waiting = tokio::spawn({
                let b = b.clone();
                async move { (b.claim(1).await, Instant::now()) }
            });
            // The poll is in once the broker counts its first, empty look.
            until("the poll waits", async || {
                if broker.metric("handoff_http_requests_total").await > 0 { Ok(()) } else { Err(String::new()) }
            })
            .await;
            tokio::time::sleep(Duration::from_millis(120)).await;
            a.submit(&message).await.expect(202);
            let answered = Instant::now();
            let (items, arrived) = waiting.await.unwrap();
            assert_eq!(items[0]["handoffId"], message["handoffId"]);
            best = best.min(arrived.saturating_duration_since(answered));
        }
        assert!(best < Duration::from_millis(150), "{best:?}");
    }

    async fn a_claim_has_the_message_and_a_token_of_its_own(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b")
            .set("/checkpoint", json!({ "secretStep": 1 }))
            .set("/personalDataPayload", json!({ "subjects": [{ "subjectId": "s", "data": {} }] }));
        a.submit(&message).await.expect(202);
        let items = b.claim(10).await;
        assert_eq!(items.len(), 1);
        let bare = message.clone().without("/checkpoint").without("/personalDataPayload");
        assert_eq!(items[0]["message"], bare.0);
        assert_eq!(items[0]["taskId"], message["taskId"]);
        assert_eq!(items[0]["attempt"], 1);
        assert_eq!(items[0]["traceparent"], message["traceparent"]);
        assert!(items[0]["claimedUntil"].is_string());
        let found = broker.admin.get(&message.path()).await.expect(200).body;
        assert_eq!(found["fencingToken"], items[0]["fencingToken"]);
        assert_eq!((&found["status"], &found["attempts"]), (&json!("PENDING"), &json!(1)));

        broker.admin.patch("/agents/b", &json!({ "permissions": ["personal-data:read"] })).await.expect(200);
        let entitled = message.again().set("/taskId", json!(handoffd::clock::random_id()));
        a.submit(&entitled).await.expect(202);
        assert_eq!(b.claim(10).await[0]["message"], entitled.without("/checkpoint").0);
    }

    async fn max_bounds_a_claim_and_the_oldest_come_first(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let sent: Vec<Message> = (0..7).map(|_| Message::initial("a", "b")).collect();
        for message in &sent {
            a.submit(message).await.expect(202);
        }
        let mut got = Vec::new();
        for (max, expected) in [(1, 1), (4, 4), (100, 2)] {
            let items = b.claim(max).await;
            assert_eq!(items.len(), expected);
            got.extend(items.iter().map(|item| item["handoffId"].as_str().unwrap().to_owned()));
        }
        assert_eq!(got, sent.iter().map(Message::id).collect::<Vec<_>>());
        for bad in ["max=-1", "max=101", "max=x", "wait=-1", "wait=x", "other=1"] {
            b.api.get(&format!("/agents/b/inbox?{bad}")).await.refused(400, "INVALID_REQUEST");
        }
        let empty = b.api.get("/agents/b/inbox?wait=1").await.expect(200);
        assert_eq!(empty.body["items"], json!([]));
    }

    async fn handoffs_of_one_task_come_one_after_the_other(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let first = Message::review("a", "b");
        let second = first.next("a", "b");
        a.submit(&first).await.expect(202);
        a.submit(&second).await.expect(202);
        let items = b.claim(10).await;
        assert_eq!(items.len(), 1);
        assert_eq!(items[0]["handoffId"], first["handoffId"]);
        b.say(&first, "complete", items[0]["fencingToken"].as_i64().unwrap(), json!({})).await.expect(200);
        assert_eq!(b.claim(10).await[0]["handoffId"], second["handoffId"]);
    }

    async fn claims_at_once_hand_nothing_out_twice(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for _ in 0..40 {
            a.submit(&Message::initial("a", "b")).await.expect(202);
        }
        let claims = futures_util::future::join_all((0..10).map(|_| b.claim(4))).await;
        let mut ids: Vec<String> = claims.iter().flatten().map(|item| item["handoffId"].to_string()).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "handed out twice");
        let mut rest = 0;
        while count + rest < 40 {
            rest += b.claim(40).await.len();
        }
        assert_eq!(count + rest, 40);
    }

    with [("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "400"), ("HANDOFFD_DELIVERY__POLL_MS", "100")]
    async fn a_claim_that_runs_out_returns_with_a_new_token(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let old = b.claim_one().await;
        let items = b.claim(1).await;
        assert_eq!((items.len(), &items[0]["attempt"]), (1, &json!(2)));
        let new = items[0]["fencingToken"].as_i64().unwrap();
        assert!(new > old);
        for verb in ["accept", "reject", "complete", "fail"] {
            b.say(&message, verb, old, json!({})).await.refused(409, "STALE_LEASE");
        }
        b.say(&message, "accept", new, json!({})).await.expect(200);
        let nothing = b.api.get("/agents/b/inbox?wait=1").await.expect(200);
        assert_eq!(nothing.body["items"], json!([]), "what is accepted does not return");
    }

    with [("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "9000"), ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "9000"), ("HANDOFFD_DELIVERY__POLL_MS", "100")]
    // Finding O4 of 0.3.0: with a claim as long as the verdict's time, the sweep and the return of the claim raced.
    async fn a_claim_whose_answer_was_lost_is_offered_once_more_before_the_handoff_expires(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let sent: Vec<Message> = (0..4).map(|_| Message::initial("a", "b")).collect();
        for message in &sent {
            a.submit(message).await.expect(202);
        }
        // Its answer is lost: the receiver never sees these tokens.
        assert_eq!(b.claim(10).await.len(), 4);
        let mut again = Vec::new();
        while again.len() < 4 {
            again.extend(b.claim(10).await);
        }
        for item in again {
            let id = item["handoffId"].as_str().unwrap();
            let message = sent.iter().find(|one| one.id() == id).unwrap();
            assert_eq!(item["attempt"], 2, "{item}");
            b.say(message, "accept", item["fencingToken"].as_i64().unwrap(), json!({})).await.expect(200);
            assert_eq!(broker.kinds(message).await, ["HANDOFF", "ACCEPTED"]);
        }
    }

    with [("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "600"), ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "600"), ("HANDOFFD_DELIVERY__POLL_MS", "50")]
    async fn a_claimed_handoff_whose_receiver_is_gone_expires(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        assert_eq!(b.claim(1).await.len(), 1);
        broker.handoff_becomes(&message, "EXPIRED").await;
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "EXPIRED", "ROLLED_BACK"]);
    }

    async fn an_inbox_is_its_agents_alone(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        a.submit(&Message::initial("a", "b")).await.expect(202);
        a.api.get("/agents/b/inbox").await.refused(403, "FORBIDDEN");
        broker.admin.get("/agents/b/inbox").await.refused(403, "FORBIDDEN");
        broker.caller(None).get("/agents/b/inbox").await.refused(401, "UNAUTHENTICATED");
        assert_eq!(b.claim(1).await.len(), 1);
    }

    async fn an_agent_with_a_webhook_has_no_inbox(broker: Broker) {
        let (_a, b, _receiver) = broker.pair(vec![]).await;
        b.api.get("/agents/b/inbox?wait=5").await.refused(409, "CONFLICT");
    }

    async fn a_stop_ends_long_polls(broker: Broker) {
        let (_a, b) = broker.pull_pair().await;
        let waiting = tokio::spawn(async move { b.api.get("/agents/b/inbox?wait=50").await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        let began = Instant::now();
        broker.restart().await;
        let answer = waiting.await.unwrap().expect(200);
        assert_eq!(answer.body["items"], json!([]));
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}
