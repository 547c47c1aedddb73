//! Delivery: once, again where it failed, signed, fenced.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{by_handoff, ensure};
use crate::Bench;
use crate::broker::{Agent, REACHED, SETTLED};
use crate::message::Message;
use crate::receiver::Say;

/// Submits many at once, to a receiver that accepts, and counts.
pub(crate) async fn delivered(bench: &Bench) -> Result<String, String> {
    let (a, b, receiver) = bench.accepting().await?;
    let messages = bench.submit_all(&a, &b, bench.handoffs).await?;
    for message in &messages {
        bench.broker.becomes(&bench.broker.handoff_path(message), &SETTLED).await?;
    }
    let arrived = by_handoff(&receiver.log());
    let lost = bench.lost(&arrived, &messages);
    let doubled = arrived.values().filter(|ids| ids.len() > 1).count();
    let strangers = arrived.len() + lost - messages.len();
    let counted =
        format!("{} acknowledged, {lost} lost, {doubled} delivered twice", messages.len());
    ensure(lost == 0 && doubled == 0 && strangers == 0, || counted.clone())?;
    Ok(counted)
}

/// Submits the same message three times, and another under its id.
pub(crate) async fn repeat(bench: &Bench) -> Result<String, String> {
    let (a, b, receiver) = bench.accepting().await?;
    let message = Message::first(&a, &b);
    bench.broker.submit_and_wait(&a, &message).await?.expect(200, "the first submission")?;
    for _ in 0..2 {
        let again = bench.broker.submit(&a, &message).await?;
        let taken = again.status.is_success() && again.replayed;
        ensure(taken, || format!("a repeat was answered {} and not as a repeat", again.status))?;
    }
    let other = message.clone().set("/taskDescription", json!("Check the payment terms"));
    bench.broker.submit(&a, &other).await?.refused(
        409,
        "CONFLICT",
        "other content under the same id",
    )?;
    let sentinel = Message::first(&a, &b);
    bench.broker.submit_and_wait(&a, &sentinel).await?.expect(200, "a later submission")?;
    let came = bench.came(&by_handoff(&receiver.log()), &message).map_or(0, Vec::len);
    ensure(came == 1, || format!("one handoff, submitted three times, came {came} times"))?;
    Ok("3 submissions, 1 delivery; other content under the id: 409".to_owned())
}

/// A receiver that is busy, then fails, then accepts.
pub(crate) async fn retried(bench: &Bench) -> Result<String, String> {
    let script = [Say::Busy, Say::Fail];
    let receiver = bench
        .scripted(move |_, earlier| script.get(earlier).cloned().unwrap_or(Say::Accept))
        .await?;
    let (a, b) = bench.broker.pair(&receiver).await?;
    let message = Message::first(&a, &b);
    bench.broker.submit(&a, &message).await?.expect(202, "a submission")?;
    bench.broker.becomes(&bench.broker.handoff_path(&message), &SETTLED).await?;
    let ids = [message.id().to_owned(), bench.broker.id_of(&message)];
    let mut log = receiver.log();
    log.retain(|delivery| ids.contains(&delivery.handoff));
    ensure(log.len() == 3, || format!("{} deliveries instead of 3", log.len()))?;
    let same = log.iter().all(|delivery| delivery.id == log[0].id && !delivery.id.is_empty());
    ensure(same, || "the attempts have different webhook ids".to_owned())?;
    Ok("503, 500, 200: three attempts under one webhook id, accepted".to_owned())
}

/// Checks the signature of a delivery under the receiver's secret and under another's.
pub(crate) async fn signed(bench: &Bench) -> Result<String, String> {
    let (a, b, receiver) = bench.accepting().await?;
    bench.broker.submit_and_wait(&a, &Message::first(&a, &b)).await?.expect(200, "a submission")?;
    let log = receiver.log();
    let delivery = log.first().ok_or("nothing was delivered")?;
    ensure(delivery.signed_by(&b.webhook_secret), || {
        "the receiver's secret did not sign the delivery".to_owned()
    })?;
    ensure(!delivery.signed_by(&a.webhook_secret), || {
        "another agent's secret fits the signature".to_owned()
    })?;
    Ok("HMAC-SHA256 over id, time and body fits the receiver's secret alone".to_owned())
}

/// Looks for a sender's checkpoint in the delivery.
pub(crate) async fn private_checkpoint(bench: &Bench) -> Result<String, String> {
    const MARK: &str = "a-word-of-the-sender-alone-7f3a";
    let (a, b, receiver) = bench.accepting().await?;
    let message = Message::first(&a, &b).set("/checkpoint", json!({ "note": MARK }));
    bench.broker.submit_and_wait(&a, &message).await?.expect(200, "a submission")?;
    let log = receiver.log();
    let delivered = log.first().ok_or("nothing was delivered")?.message();
    ensure(delivered["taskId"] == message.task(), || "the delivery is not the message".to_owned())?;
    ensure(!delivered.to_string().contains(MARK), || {
        "the delivery has the sender's checkpoint".to_owned()
    })?;
    Ok("the message came without the checkpoint".to_owned())
}

/// Claims a handoff from the inbox; `None` while it has none.
async fn claim(bench: &Bench, agent: &Agent) -> Result<Option<i64>, String> {
    let path = format!("/agents/{}/inbox?wait=5&max=1", agent.id);
    let answer = bench.broker.request(Method::GET, &path, Some(&agent.key), &[], None).await?;
    let items = answer.expect(200, "a look into the inbox")?.body["items"].clone();
    Ok(items.pointer("/0/fencingToken").and_then(Value::as_i64))
}

/// Lets a claim lapse, claims again, and settles under the old token.
pub(crate) async fn fenced(bench: &Bench) -> Result<String, String> {
    let (a, b) = bench.broker.pull_pair().await?;
    let message = Message::first(&a, &b);
    bench.broker.submit(&a, &message).await?.expect(202, "a submission")?;
    let began = Instant::now();
    let mut tokens = Vec::new();
    while tokens.len() < 2 {
        tokens.extend(claim(bench, &b).await?);
        ensure(began.elapsed() < REACHED, || {
            "a claim without a verdict never came back".to_owned()
        })?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (old, new) = (tokens[0], tokens[1]);
    ensure(new > old, || format!("the second claim's token {new} is not above the first's {old}"))?;
    let accept = format!("{}/accept", bench.broker.handoff_path(&message));
    let stale =
        bench.broker.as_agent(&b, Method::POST, &accept, &json!({ "fencingToken": old })).await?;
    stale.refused(409, "STALE_LEASE", "accepting under the lapsed token")?;
    let good =
        bench.broker.as_agent(&b, Method::POST, &accept, &json!({ "fencingToken": new })).await?;
    good.expect(200, "accepting under the newer token")?;
    Ok(format!(
        "claimed again after {:.0} s; token {old}: 409, token {new}: accepted",
        began.elapsed().as_secs_f64()
    ))
}
