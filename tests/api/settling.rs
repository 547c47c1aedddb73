//! Acceptances for which no caller waits share the transaction of the next command.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Broker, until};
use crate::message::Message;

/// Far longer than anything here takes: what is committed before was not left to the delay.
const DELAY: (&str, &str) = ("HANDOFFD_LEDGER__SETTLE_DELAY_MS", "10000");

/// Waits until so many attempts have their answers, whose settlements are then on their way to the ledger.
async fn answered(broker: &Broker, attempts: u64) {
    until("the receivers have answered", async || {
        match broker.metric("handoff_delivery_attempts_total").await {
            made if made >= attempts => Ok(()),
            made => Err(format!("{made} attempts")),
        }
    })
    .await;
}

async fn status(broker: &Broker, message: &Message) -> String {
    let page = broker.admin.get(&message.path()).await.expect(200).body;
    page["status"].as_str().unwrap().to_owned()
}

both! {
    with [DELAY]
    async fn an_acceptance_is_committed_with_the_next_command(broker: Broker) {
        let (a, _, _receiver) = broker.pair(Vec::new()).await;
        let (first, second) = (Message::initial("a", "b"), Message::initial("a", "b"));
        a.submit(&first).await.expect(202);
        answered(broker, 1).await;
        assert_eq!(status(broker, &first).await, "PENDING");
        a.submit(&second).await.expect(202);
        assert_eq!(status(broker, &first).await, "ACCEPTED");
    }

    with [DELAY]
    async fn a_sender_that_waits_is_answered_at_once(broker: Broker) {
        let (a, _, _receiver) = broker.pair(Vec::new()).await;
        let answer = a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!(answer.body["status"], "ACCEPTED", "{}", answer.body);
    }

    with [DELAY]
    async fn a_stop_commits_what_waits_and_delivers_nothing_again(broker: Broker) {
        let (a, _, receiver) = broker.pair(Vec::new()).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        answered(broker, 1).await;
        let admin = broker.restart().await;
        let page = admin.get(&message.path()).await.expect(200).body;
        assert_eq!((&page["status"], receiver.all().len()), (&json!("ACCEPTED"), 1), "{page}");
    }

    with [DELAY]
    async fn a_full_receiver_gets_its_next_handoff_at_once(broker: Broker) {
        let (a, b, receiver) = broker.pair(Vec::new()).await;
        let delivery = json!({ "mode": "webhook", "url": receiver.url, "maxInFlight": 1 });
        let one_at_once = json!({ "delivery": delivery });
        broker.admin.patch(&format!("/agents/{}", b.id), &one_at_once).await.expect(200);
        let messages: Vec<_> = (0..3).map(|_| Message::initial("a", "b")).collect();
        for message in &messages {
            a.submit(message).await.expect(202);
        }
        let all = async {
            for message in &messages {
                broker.handoff_becomes(message, "ACCEPTED").await;
            }
        };
        tokio::time::timeout(Duration::from_secs(8), all).await.expect("without the delay");
        assert_eq!(receiver.all().len(), 3);
    }
}
