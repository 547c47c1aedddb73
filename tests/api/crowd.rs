//! Many at once: the same thing said by a hundred, and more than the broker takes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::message::Message;

const COPIES: usize = 100;

/// The parts of an answer that must be the same for everyone.
fn told(body: &Value) -> (String, String, String) {
    let text = |pointer: &str| body.pointer(pointer).map(Value::to_string).unwrap_or_default();
    (text("/handoffId"), text("/status"), text("/receipt/leafIndex"))
}

async fn hundred_copies(broker: &crate::harness::Broker, key: Option<&str>) {
    let (a, b) = broker.pull_pair().await;
    let message = Message::initial("a", "b");
    let headers: Vec<(&str, &str)> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
    let asked = (0..COPIES).map(|_| a.api.submit_with(&message, &headers));
    let answers = futures_util::future::join_all(asked).await;
    let mut first = 0;
    let mut said = BTreeSet::new();
    for answer in answers {
        let answer = answer.expect(202);
        first += usize::from(answer.header("idempotency-replayed") != "true");
        said.insert(told(&answer.body));
    }
    assert_eq!(first, 1, "one of them made it");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(broker.kinds(&message).await, ["HANDOFF"], "one record");
    assert_eq!(b.claim(100).await.len(), 1, "one delivery");
    if let Some(key) = key {
        let other = Message::initial("a", "b");
        let refused = a.api.submit_with(&other, &[("Idempotency-Key", key)]).await;
        assert_eq!(refused.status, 422, "another payload");
    }
}

both! {
    async fn a_hundred_copies_make_one_handoff_and_equal_answers(broker: Broker) {
        hundred_copies(broker, None).await;
    }

    async fn a_hundred_copies_under_one_key_make_one_handoff(broker: Broker) {
        hundred_copies(broker, Some("a-key-of-its-own")).await;
    }
}
