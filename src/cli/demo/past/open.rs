//! The last hours: what waits for a person or an agent when the console opens.

use serde_json::json;

use super::claim::Claim;
use super::fleet::{ARCHIVE, DAMAGE, DESK, FRAUD, LETTERS, Manner, PAYOUT, TRANSLATION};
use super::{Outcome, Past};

/// Claims of the last day that stay open, by their number; false for any other.
pub(super) async fn leaves(past: &mut Past, claim: &mut Claim, index: u32) -> Outcome<bool> {
    match index {
        55 | 59 => idle(past, claim).await?,
        57 => three_failures(past, claim).await?,
        60 | 62 => for_a_person(past, claim).await?,
        61 => {
            let pause = json!({ "state": "PAUSED", "pause": "hold" });
            let path = format!("/agents/{TRANSLATION}");
            past.operator.patch(&path, &pause).await?.expect(200, "a pause")?;
            held(past, claim).await?;
        }
        63 => held(past, claim).await?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A rejection after which the sender did nothing.
async fn idle(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.assess(claim).await?;
    let why = ("MISSING_IBAN", "The account of the customer is missing.");
    past.rejected(claim, PAYOUT, "Pay the claim out", why).await
}

/// The third failure calls a person.
async fn three_failures(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    let why = ("PREDECESSOR_UNKNOWN", "The earlier claim of this policy cannot be read.");
    for _ in 0..3 {
        past.rejected(claim, FRAUD, "Compare with earlier claims", why).await?;
        past.clock.pass(260);
    }
    Ok(())
}

/// A large claim, which a person approves.
async fn for_a_person(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.assess(claim).await?;
    // It was received; the verdict comes when a person gives it.
    past.fleet.behave(DESK, Manner::Status(202))?;
    past.send(claim, DESK, "Approve the payment").await?;
    past.tried(claim, 1).await
}

async fn held(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.send(claim, TRANSLATION, "Translate the report").await?;
    Ok(())
}

/// The last hour and a half, in order.
pub(super) async fn leave(past: &mut Past) -> Outcome {
    past.ago(95);
    let mut claim = past.claim(70);
    to_a_gone_endpoint(past, &mut claim).await?;
    let mut unpaid = past.claim(80);
    past.open(&mut unpaid).await?;
    past.assess(&mut unpaid).await?;
    let mut unsure = past.claim(78);
    past.open(&mut unsure).await?;
    past.ago(76);
    let mut claim = past.claim(71);
    past.plant(&mut claim).await?;
    spent_up(past, 76).await?;
    past.ago(60);
    past.subscribe("Former reports", true).await?;
    for (index, ago) in [(72, 59), (73, 47), (74, 36)] {
        past.ago(ago);
        letter(past, index).await?;
    }
    past.ago(28);
    let mut claim = past.claim(75);
    past.plant(&mut claim).await?;
    past.ago(22);
    let mut claim = past.claim(77);
    held(past, &mut claim).await?;
    past.ago(14);
    refused_connection(past, &mut unpaid).await?;
    past.hand_on(&mut unsure, DAMAGE, "Estimate the damage").await?;
    past.ask(&unsure, "Is the terrace part of the insured building?").await?;
    let mut claim = past.claim(79);
    at_work(past, &mut claim).await?;
    near_the_cap(past).await
}

async fn to_a_gone_endpoint(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.fleet.behave(ARCHIVE, Manner::Status(410))?;
    past.send(claim, ARCHIVE, "Keep the documents").await?;
    past.becomes(claim, "FAILED").await?;
    past.end(claim, &json!({ "outcome": "refused" })).await
}

/// A letter to an agent that polls no more.
async fn letter(past: &mut Past, index: u32) -> Outcome {
    let mut claim = past.claim(index);
    past.open(&mut claim).await?;
    past.assess(&mut claim).await?;
    past.send(&mut claim, LETTERS, "Write to the customer").await?;
    Ok(())
}

/// An agent gives up after it has spent the budget of the task.
async fn spent_up(past: &mut Past, index: u32) -> Outcome {
    let mut claim = past.claim(index).with_budget(300);
    past.open(&mut claim).await?;
    past.hand_on(&mut claim, DAMAGE, "Estimate the damage").await?;
    past.clock.pass(200);
    let token = past.fleet.token(DAMAGE, &claim.handoff)?;
    let body = json!({
        "fencingToken": token,
        "error": { "code": "TOO_MANY_PHOTOS", "message": "212 photos; the budget is spent." },
        "costTracking": {
            "costSpentSoFarUSD": 3.0, "tokenSpent": { "prompt": 61_000, "completion": 9_800 },
        },
    });
    let path = format!("/handoffs/{}/fail", claim.handoff);
    past.fleet.caller(DAMAGE)?.post(&path, &body).await?.expect(200, "a failure")?;
    Ok(())
}

/// An agent that works at a claim right now.
async fn at_work(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.hand_on(claim, FRAUD, "Compare with earlier claims").await
}

/// US dollars that the cap of a day leaves: for the story, and for what a person releases.
const ROOM: f64 = 24.0;

/// A cap with little room left.
async fn near_the_cap(past: &Past) -> Outcome {
    let caps = past.operator.get("/caps").await?.expect(200, "the caps")?;
    let day = caps["items"].as_array().into_iter().flatten().find(|cap| cap["window"] == "P1D");
    let figure = |name: &str| day.and_then(|cap| cap[name].as_str()?.parse::<f64>().ok());
    let used = figure("usd").zip(figure("leftUSD")).map(|(cap, left)| cap - left);
    let used = used.ok_or_else(|| format!("the caps of the past: {caps}"))?;
    let cap = json!({ "usd": format!("{:.2}", used.ceil() + ROOM) });
    past.operator.put("/caps/P1D", &cap).await?.expect(200, "a cap")?;
    Ok(())
}

/// Nothing listens at the receiver's address.
async fn refused_connection(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.fleet.hang_up(PAYOUT);
    past.send(claim, PAYOUT, "Pay the claim out").await?;
    for times in 1..4 {
        past.tried(claim, times).await?;
        past.clock.pass(15);
    }
    Ok(())
}
