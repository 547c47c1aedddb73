//! One message to three reviewers, of whom two are needed (specification §10.4).

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::agents::Caller;
use super::report::DemoReport;

/// The reviewers: the third is never heard.
const REVIEWERS: [&str; 3] = ["legal-reviewer", "finance-reviewer", "security-reviewer"];

type Outcome<T = ()> = Result<T, String>;

/// Registers the reviewers, which look into their inboxes.
async fn reviewers(operator: &Caller, broker: SocketAddr) -> Outcome<Vec<Caller>> {
    let mut callers = Vec::new();
    for id in REVIEWERS {
        let spec = json!({ "agentId": id, "name": id });
        let made = operator.post("/agents", &spec).await?.expect(201, "registering a reviewer")?;
        let key = made["apiKey"].as_str().unwrap_or_default();
        callers.push(Caller::new(broker, key)?);
    }
    Ok(callers)
}

/// The message to all reviewers.
pub(super) fn addressed(mut message: Value) -> Value {
    message["schemaVersion"] = json!("2.2");
    message["toAgent"] = json!({ "agentId": REVIEWERS[0] });
    message["receiverList"] = REVIEWERS.iter().map(|id| json!({ "agentId": id })).collect();
    message["join"] = json!("quorum:2");
    message
}

/// Registers the reviewers and lets an agent hand off to them, beside another.
pub(super) async fn prepare(
    operator: &Caller,
    broker: SocketAddr,
    (sender, beside): (&str, &str),
) -> Outcome<Vec<Caller>> {
    let callers = reviewers(operator, broker).await?;
    let targets: Vec<&str> = REVIEWERS.into_iter().chain([beside]).collect();
    let path = format!("/agents/{sender}/handoff-targets");
    operator
        .put(&path, &json!({ "handoffTargets": targets }))
        .await?
        .expect(200, "setting an allowlist")?;
    Ok(callers)
}

/// Two of the three reviewers answer; the group is decided, and the third is not asked any more.
pub(super) async fn answered(
    report: &mut DemoReport,
    (operator, reviewers): (&Caller, &[Caller]),
    committed: &Value,
) -> Outcome {
    let group = committed["handoffId"].as_str().unwrap_or_default();
    let branches = committed["group"]["branches"].as_array().map_or(0, Vec::len);
    report.say(format!("one commit, {branches} handoffs, and two of them are needed"));
    report.check("the branches", REVIEWERS.len(), branches);
    for (id, reviewer) in REVIEWERS.iter().zip(reviewers).take(2) {
        let inbox = reviewer.get(&format!("/agents/{id}/inbox?wait=10")).await?;
        let inbox = inbox.expect(200, "a reviewer's inbox")?;
        let item = &inbox["items"][0];
        let path = format!("/handoffs/{}/complete", item["handoffId"].as_str().unwrap_or_default());
        let said = json!({
            "fencingToken": item["fencingToken"], "result": { "reviewer": id, "approves": true },
        });
        reviewer.post(&path, &said).await?.expect(200, "a reviewer's result")?;
        report.say(format!("{id} approves"));
    }
    let page = operator.get(&format!("/handoffs/{group}?wait=10&until=ended")).await?;
    let page = page.expect(200, "the group")?;
    let column = |name: &str| -> Value {
        let branches = page["group"]["branches"].as_array();
        branches.into_iter().flatten().map(|branch| branch[name].clone()).collect()
    };
    report.say(format!(
        "the group is {}, and {} is not asked any more",
        page["status"].as_str().unwrap_or_default(),
        REVIEWERS[2],
    ));
    report.check("the group", json!("COMPLETED"), page["status"].clone());
    report.check(
        "the branches at its end",
        json!(["COMPLETED", "COMPLETED", "CANCELED"]),
        column("status"),
    );
    let approved = page["result"]
        .as_array()
        .map_or(0, |results| results.iter().filter(|result| result["approves"] == true).count());
    report.check("approvals, gathered in the list's order", 2, approved);
    Ok(())
}
