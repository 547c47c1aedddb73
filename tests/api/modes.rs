//! Receivers that change, go away, or never come: what waits for them follows or ends.

use std::time::Duration;

use serde_json::json;

use crate::message::Message;
use crate::receiver::bare;

/// Slow enough that nothing is tried twice while the case looks.
const PATIENT: (&str, &str) = ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "30000");
const QUICK_LOOK: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");

both! {
    async fn what_waits_in_an_inbox_goes_to_the_new_webhook(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let sent = [Message::initial("a", "b"), Message::initial("a", "b")];
        for message in &sent {
            a.submit(message).await.expect(202);
        }
        let receiver = broker.saying(vec![]).await;
        receiver.trust(&b.webhook_secret);
        let webhook = json!({ "delivery": { "mode": "webhook", "url": receiver.url } });
        broker.admin.patch("/agents/b", &webhook).await.expect(200);
        for message in &sent {
            broker.handoff_becomes(message, "ACCEPTED").await;
        }
        assert_eq!(receiver.all().len(), 2);
    }

    with [PATIENT, ("HANDOFFD_DELIVERY__RETRY_CAP_MS", "30000")]
    async fn what_a_webhook_did_not_take_waits_in_the_inbox(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![bare(500)]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        receiver.next().await;
        crate::harness::until("the attempt is settled", async || {
            let found = broker.admin.get(&message.path()).await.expect(200).body;
            if found["reason"].is_string() { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        broker.admin.patch("/agents/b", &json!({ "delivery": { "mode": "pull" } })).await.expect(200);
        // At once: the pause before its next attempt was the webhook's.
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        assert_eq!(receiver.all().len(), 1, "nothing more is posted");
    }

    with [QUICK_LOOK]
    async fn what_is_on_its_way_when_the_mode_changes_follows(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![bare(503), bare(503)]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        receiver.next().await;
        broker.admin.patch("/agents/b", &json!({ "delivery": { "mode": "pull" } })).await.expect(200);
        let token = b.claim_one().await;
        b.say(&message, "complete", token, json!({})).await.expect(200);
        broker.handoff_becomes(&message, "COMPLETED").await;
    }

    with [QUICK_LOOK]
    async fn what_waits_for_a_deleted_agent_fails_in_order(broker: Broker) {
        let (a, _b) = broker.pull_pair().await;
        let first = Message::review("a", "b");
        a.submit(&first).await.expect(202);
        let second = first.next("a", "b");
        a.submit(&second).await.expect(202);
        broker.admin.delete("/agents/b").await.expect(204);
        for message in [&first, &second] {
            let handoff = broker.handoff_becomes(message, "FAILED").await;
            assert_eq!(handoff["reason"], "AGENT_DELETED");
        }
        let task = broker.task(&first).await;
        assert_eq!((&task["status"], &task["undelivered"]), (&json!("PENDING_HANDOFF"), &json!(0)));
    }

    async fn what_waits_for_a_disabled_endpoint_fails(broker: Broker) {
        let (a, _b, _receiver) = broker.pair(vec![bare(410)]).await;
        // Behind each other on one task, so that the second waits while the first meets the 410.
        let first = Message::review("a", "b");
        let second = first.next("a", "b");
        a.submit(&first).await.expect(202);
        let queued = a.submit(&second).await;
        let handoff = broker.handoff_becomes(&first, "FAILED").await;
        assert_eq!(handoff["reason"], "ENDPOINT_GONE");
        if queued.status == 202 {
            let handoff = broker.handoff_becomes(&second, "FAILED").await;
            assert_eq!(handoff["reason"], "ENDPOINT_DISABLED");
        }
    }

    with [QUICK_LOOK, ("HANDOFFD_DELIVERY__UNCLAIMED_MS", "300")]
    async fn what_nobody_pulls_expires_and_what_is_pulled_does_not(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let held = Message::initial("a", "b");
        a.submit(&held).await.expect(202);
        let token = b.claim_one().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let handoff = broker.handoff_becomes(&message, "EXPIRED").await;
        assert_eq!(handoff["reason"], "INBOX_TIMEOUT");
        assert_eq!(broker.task(&message).await["status"], "PENDING_HANDOFF");
        b.say(&held, "accept", token, json!({})).await.expect(200);
    }

    async fn the_more_urgent_is_claimed_first(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let sent: Vec<Message> = ["low", "normal", "urgent", "high"]
            .iter()
            .map(|priority| Message::initial("a", "b").set("/priority", json!(priority)))
            .collect();
        for message in &sent {
            a.submit(message).await.expect(202);
        }
        let got: Vec<_> = b.claim(10).await.iter().map(|item| item["handoffId"].clone()).collect();
        let expected = [2, 3, 1, 0].map(|n: usize| sent[n]["handoffId"].clone());
        assert_eq!(got, expected);
    }

    // Polling is as good as off: only a notification can wake the other broker's long poll.
    with [("HANDOFFD_DELIVERY__POLL_MS", "600000")]
    async fn a_long_poll_is_woken_by_another_brokers_commit(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        if broker.url.starts_with("sqlite") {
            return;
        }
        let (there, running) = broker.second().await;
        // Once it listens; until then the first looks find it.
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let waiting = tokio::spawn({
                let mut b = b.clone();
                b.api.base.clone_from(&there.base);
                async move { (b.claim(1).await, tokio::time::Instant::now()) }
            });
            tokio::time::sleep(Duration::from_millis(300)).await;
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            let answered = tokio::time::Instant::now();
            let (items, arrived) = waiting.await.unwrap();
            assert_eq!(items[0]["handoffId"], message["handoffId"]);
            best = best.min(arrived.saturating_duration_since(answered));
        }
        eprintln!("woken across brokers in {best:?}");
        assert!(best < Duration::from_secs(1), "{best:?}");
        running.stop().await;
    }
}
