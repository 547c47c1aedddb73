//! Claims that came to an end: most as planned, some after a rejection, a retry, a question, or a person's help.

use serde_json::{Value, json};

use super::claim::Claim;
use super::fleet::{ARCHIVE, DAMAGE, FRAUD, INTAKE, LETTERS, Manner, PAYOUT, TRANSLATION, TRIAGE};
use super::{Outcome, Past, open};

/// Claims before the last hours.
const CLAIMS: u32 = 64;
/// Minutes between them, and how far they vary.
const APART: (u64, u32) = (44, 16);

/// The things that an operator sets up first: contracts, keys, caps, a subscription.
pub(super) async fn set_up(past: &Past) -> Outcome {
    let operator = &past.operator;
    let number = json!({ "type": "string", "pattern": "^C-[0-9]{4}-[0-9]{5}$" });
    let payload = json!({ "schema": {
        "type": "object", "properties": { "claimNumber": number }, "required": ["claimNumber"],
    } });
    let contracts = [
        json!({
            "id": "intake-to-triage", "version": "1.1.0", "source": INTAKE, "target": TRIAGE,
            "description": "A claim has a number of our form", "trigger": { "intent": "claim" },
            "payload": payload,
        }),
        json!({
            "id": "approval", "version": "1.0.0", "source": DAMAGE, "target": "claims-desk",
            "description": "A person approves a large claim", "trigger": { "intent": "claim" },
            "human_in_the_loop": {
                "human_target": true, "channel": "claims desk", "timeout_ms": 172_800_000,
            },
        }),
    ];
    for contract in &contracts {
        let path = format!("/contracts/{}", contract["id"].as_str().unwrap_or_default());
        let stored = operator.put(&path, contract).await?;
        if !matches!(stored.status, 200 | 201) {
            return Err(format!("a contract of the past: {}", stored.body));
        }
    }
    for (role, label) in
        [("operator", "on call"), ("auditor", "revision 2026"), ("operator", "former night shift")]
    {
        let body = json!({ "role": role, "label": label });
        let made = operator.post("/keys", &body).await?.expect(201, "a key")?;
        if label.starts_with("former") {
            let path = format!("/keys/{}", made["keyId"].as_str().unwrap_or_default());
            operator.delete(&path, &Value::Null).await?;
        }
    }
    let cap = |usd: &str| json!({ "usd": usd });
    operator.put("/caps/P1D", &cap("2000.00")).await?.expect(200, "a cap")?;
    let path = format!("/caps/PT1H?agentId={DAMAGE}");
    operator.put(&path, &cap("90.00")).await?.expect(200, "a cap")?;
    past.subscribe("Claims ledger", false).await
}

/// All claims up to the last hours.
pub(super) async fn claims(past: &mut Past) -> Outcome {
    for index in 0..CLAIMS {
        let later = APART.0 * u64::from(index) + u64::from(past.dice.below(APART.1));
        past.ago(2_870 - later);
        let mut claim = past.claim(index);
        match index {
            3 => asked(past, &mut claim).await?,
            5 | 27 | 44 => corrected(past, &mut claim).await?,
            8 | 22 => planted(past, &mut claim, index == 8).await?,
            10 | 19 | 41 => refusals(past, &mut claim).await?,
            14 | 35 | 50 => tried_again(past, &mut claim).await?,
            17 | 46 => in_a_group(past, &mut claim).await?,
            20 => in_pieces(past, &mut claim).await?,
            25 => unanswered(past, &mut claim).await?,
            30 | 52 => failed(past, &mut claim).await?,
            33 => canceled(past, &mut claim).await?,
            38 => erased(past, &mut claim).await?,
            55.. if open::leaves(past, &mut claim, index).await? => {}
            _ => ordinary(past, &mut claim, index).await?,
        }
    }
    Ok(())
}

/// One of four ways from the intake to the end.
pub(super) async fn ordinary(past: &mut Past, claim: &mut Claim, index: u32) -> Outcome {
    past.open(claim).await?;
    match index % 4 {
        0 => {
            past.assess(claim).await?;
            past.hand_on(claim, FRAUD, "Compare with earlier claims").await?;
            past.finish(claim, "Compared the claim", json!({ "suspicious": false })).await?;
            paid(past, claim).await
        }
        1 => {
            past.assess(claim).await?;
            past.hand_on(claim, PAYOUT, "Pay the claim out").await?;
            past.finish(claim, "Paid the claim out", json!({ "paid": true })).await?;
            written(past, claim).await
        }
        // The paused receiver would hold them.
        2 if index < 61 => {
            past.hand_on(claim, TRANSLATION, "Translate the report").await?;
            past.finish(claim, "Translated the report", json!({ "pages": 3 })).await?;
            past.assess(claim).await?;
            paid(past, claim).await
        }
        _ => {
            past.hand_on(claim, FRAUD, "Compare with earlier claims").await?;
            past.finish(claim, "Compared the claim", json!({ "suspicious": false })).await?;
            past.hand_on(claim, PAYOUT, "Pay the claim out").await?;
            past.finish(claim, "Paid the claim out", json!({ "paid": true })).await?;
            past.hand_on(claim, ARCHIVE, "Keep the documents").await?;
            past.finish(claim, "Kept the documents", json!({ "years": 10 })).await?;
            past.end(claim, &json!({ "outcome": "paid" })).await
        }
    }
}

async fn paid(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.hand_on(claim, PAYOUT, "Pay the claim out").await?;
    past.finish(claim, "Paid the claim out", json!({ "paid": true })).await?;
    past.end(claim, &json!({ "outcome": "paid" })).await
}

/// The letter to the customer, by an agent that polls its inbox.
async fn written(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.send(claim, LETTERS, "Write to the customer").await?;
    past.clock.pass(20);
    past.fetch(LETTERS).await?;
    claim.taken(LETTERS);
    past.finish(claim, "Wrote to the customer", json!({ "letter": "sent" })).await?;
    past.end(claim, &json!({ "outcome": "paid" })).await
}

/// The receiver asks its sender, which answers after a while.
async fn asked(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.hand_on(claim, DAMAGE, "Estimate the damage").await?;
    past.ask(claim, "Was the garage locked at night?").await?;
    past.clock.pass(2_700);
    let path = format!("/handoffs/{}/answer", claim.handoff);
    let answer = json!({ "answer": "Yes: the police report says so on page 2." });
    past.fleet.caller(TRIAGE)?.post(&path, &answer).await?.expect(200, "an answer")?;
    past.finish(claim, "Estimated the damage", json!({ "coveredPercent": 90 })).await?;
    paid(past, claim).await
}

/// The receiver rejects; the sender repairs, an hour later.
async fn corrected(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    let why = ("MISSING_PHOTOS", "Two photos of the damage are needed; there is one.");
    past.rejected(claim, DAMAGE, "Estimate the damage", why).await?;
    past.clock.pass(3_900);
    past.assess(claim).await?;
    paid(past, claim).await
}

/// A dead letter that a person releases, or discards.
async fn planted(past: &mut Past, claim: &mut Claim, release: bool) -> Outcome {
    past.plant(claim).await?;
    past.clock.pass(1_500);
    let (verb, body) = if release {
        let waive = ["/conversationHistoryVerbatim/0/content"];
        ("release", json!({ "reason": "The workshop quotes a training text", "waive": waive }))
    } else {
        ("discard", json!({ "reason": "The report is forged" }))
    };
    let path = format!("/dead-letters/{}/{verb}", claim.handoff);
    past.operator.post(&path, &body).await?.expect(200, verb)?;
    if release {
        past.becomes(claim, "ACCEPTED").await?;
        claim.taken(DAMAGE);
        past.finish(claim, "Estimated the damage", json!({ "coveredPercent": 80 })).await?;
        return paid(past, claim).await;
    }
    past.assess(claim).await?;
    paid(past, claim).await
}

/// Messages that the gate refuses, of a claim that then goes on.
async fn refusals(past: &mut Past, claim: &mut Claim) -> Outcome {
    let mut message = past.message(claim, TRIAGE, "Sort the claim");
    message["currentState"]["claimNumber"] = json!("41-7");
    past.submit(claim, &message, 422).await?;
    past.clock.pass(240);
    past.open(claim).await?;
    past.assess(claim).await?;
    claim.spend(&mut past.dice);
    let message = past.message(claim, INTAKE, "Take the claim back");
    past.submit(claim, &message, 403).await?;
    past.clock.pass(90);
    let mut message = past.message(claim, PAYOUT, "Pay the claim out");
    message["costTracking"]["costBudgetRemainingUSD"] = json!(9_000.0);
    past.submit(claim, &message, 422).await?;
    past.clock.pass(200);
    // Three refusals would call a person; a completed hop between them began a new count.
    paid(past, claim).await
}

/// The receiver is away for two attempts.
async fn tried_again(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.fleet.behave(FRAUD, Manner::Status(503))?;
    past.send(claim, FRAUD, "Compare with earlier claims").await?;
    past.tried(claim, 1).await?;
    past.clock.pass(2);
    past.tried(claim, 2).await?;
    past.fleet.behave(FRAUD, Manner::Accept)?;
    past.clock.pass(8);
    past.becomes(claim, "ACCEPTED").await?;
    claim.taken(FRAUD);
    past.finish(claim, "Compared the claim", json!({ "suspicious": false })).await?;
    paid(past, claim).await
}

/// One message to three receivers, of whom two are needed.
async fn in_a_group(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    claim.spend(&mut past.dice);
    let mut message = past.message(claim, DAMAGE, "Give an opinion");
    let receivers = [DAMAGE, FRAUD, ARCHIVE];
    message["receiverList"] = receivers.iter().map(|id| json!({ "agentId": id })).collect();
    message["join"] = json!("quorum:2");
    message["costTracking"]["costBudgetRemainingUSD"] = json!(1.5);
    let group = past.submit(claim, &message, 202).await?;
    let branches = group["group"]["branches"].as_array().cloned().unwrap_or_default();
    for (index, agent) in receivers.into_iter().enumerate().take(2) {
        let mut branch = claim.clone();
        branch.handoff = branches
            .get(index)
            .and_then(|one| one["handoffId"].as_str())
            .unwrap_or_default()
            .into();
        past.becomes(&branch, "ACCEPTED").await?;
        branch.taken(agent);
        past.finish(&mut branch, "Gave an opinion", json!({ "agrees": true })).await?;
    }
    past.becomes(claim, "COMPLETED").await?;
    past.end(claim, &json!({ "outcome": "paid after two opinions" })).await
}

/// A handoff whose message comes in pieces.
async fn in_pieces(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    claim.spend(&mut past.dice);
    let mut message = past.message(claim, DAMAGE, "Estimate the damage");
    message["stream"] = json!({ "open": true });
    past.submit(claim, &message, 202).await?;
    past.becomes(claim, "ACCEPTED").await?;
    let path = format!("/handoffs/{}/chunks", claim.handoff);
    for seq in 1..=4 {
        past.clock.pass(15);
        let page = format!("Page {seq} of the workshop's report: nothing beyond the estimate.");
        let mut chunk = json!({
            "seq": seq,
            "append": { "/conversationHistoryVerbatim": [{ "role": "assistant", "content": page }] },
        });
        if seq == 4 {
            chunk["close"] = json!(true);
        }
        let added = past.fleet.caller(TRIAGE)?.post(&path, &chunk).await?;
        if added.status > 202 {
            return Err(format!("a chunk of the past: {}", added.body));
        }
    }
    claim.taken(DAMAGE);
    past.finish(claim, "Estimated the damage", json!({ "coveredPercent": 85 })).await?;
    paid(past, claim).await
}

/// A receiver takes a handoff and stays silent; the sender tries again.
async fn unanswered(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.assess(claim).await?;
    past.send(claim, LETTERS, "Ask the customer for photos").await?;
    past.clock.pass(20);
    past.claimed(LETTERS).await?;
    past.clock.pass(45);
    past.becomes(claim, "EXPIRED").await?;
    past.clock.pass(1_200);
    written(past, claim).await
}

/// The receiver gives up; the task goes back, and another try succeeds.
async fn failed(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    let before = claim.clone();
    past.hand_on(claim, DAMAGE, "Estimate the damage").await?;
    past.clock.pass(130);
    let token = past.fleet.token(DAMAGE, &claim.handoff)?;
    let error = json!({ "code": "IMAGE_UNREADABLE", "message": "Photo 2 is not a picture." });
    let body = json!({ "fencingToken": token, "error": error });
    let path = format!("/handoffs/{}/fail", claim.handoff);
    past.fleet.caller(DAMAGE)?.post(&path, &body).await?.expect(200, "a failure")?;
    claim.back_to(&before);
    past.clock.pass(1_900);
    past.assess(claim).await?;
    paid(past, claim).await
}

async fn canceled(past: &mut Past, claim: &mut Claim) -> Outcome {
    past.open(claim).await?;
    past.clock.pass(800);
    let path = format!("/tasks/{}/cancel", claim.task);
    let body = json!({ "reason": "The customer withdrew the claim", "graceMs": 0 });
    past.operator.post(&path, &body).await?.expect(200, "a cancellation")?;
    Ok(())
}

/// A customer whose data are erased afterwards, and one whose data stay for a lawsuit.
async fn erased(past: &mut Past, claim: &mut Claim) -> Outcome {
    let stays = claim.customer;
    claim.customer = "former.customer@example.org";
    ordinary(past, claim, 0).await?;
    past.clock.pass(3_000);
    let hold = json!({ "subjectId": stays, "reason": "Lawsuit 2026-17" });
    let placed = past.operator.put("/legal-holds/lawsuit-17", &hold).await?;
    if placed.status > 201 {
        return Err(format!("a legal hold of the past: {}", placed.body));
    }
    let why = json!({ "reason": "DATA_SUBJECT_REQUEST", "requestedBy": "ticket-4711" });
    let path = "/data-subjects/former.customer@example.org?scope=messages";
    let begun = past.operator.delete(path, &why).await?;
    if begun.status > 202 {
        return Err(format!("an erasure of the past: {}", begun.body));
    }
    Ok(())
}
