//! A conversation that is too long for its receiver is compressed on its way, and the answer comes back to the agent that
//! asked (specification §10.2, §10.3).

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::agents::{Caller, DemoAgent};
use super::report::DemoReport;

/// The receiver, its window in tokens, and the most that a message to it may have.
const READER: &str = "correspondence-reader";
const WINDOW: u64 = 2_000;
const LIMIT: u64 = 1_600;

/// A fact of the first turns that has to arrive.
const CAP: &str = "The liability cap is EUR 1,250,000 under clause 12.4, and it must not be raised without the board.";
const OPEN: &str = "The start date of the warranty is still open.";

/// Turns of the conversation, and how many of them stay as they were said.
const TURNS: usize = 60;
const KEPT: u64 = 5;

type Outcome<T = ()> = Result<T, String>;

/// Registers the reader, which looks into its inbox, and lets an agent hand off to it, beside another.
pub(super) async fn prepare(
    operator: &Caller,
    broker: SocketAddr,
    (sender, beside): (&str, &str),
) -> Outcome<Caller> {
    let spec = json!({
        "agentId": READER, "name": READER, "contextWindowTokens": WINDOW, "tokenizer": "o200k",
    });
    let made = operator.post("/agents", &spec).await?.expect(201, "registering the reader")?;
    let path = format!("/agents/{sender}/handoff-targets");
    let list = json!({ "handoffTargets": [READER, beside] });
    operator.put(&path, &list).await?.expect(200, "setting an allowlist")?;
    Caller::new(broker, made["apiKey"].as_str().unwrap_or_default())
}

/// The conversation: talk, with two facts near its beginning.
pub(super) fn conversation() -> Value {
    let talk = "I read the supplier's letter once more, and its tone is friendlier than that of the one before. "
        .repeat(4);
    let said = |turn: usize| match turn {
        3 => CAP.to_owned(),
        8 => OPEN.to_owned(),
        _ => format!("{talk}That was all of it."),
    };
    let role = |turn: usize| ["user", "assistant"][turn % 2];
    (0..TURNS).map(|turn| json!({ "role": role(turn), "content": said(turn) })).collect()
}

/// The message to the reader, who gives the task back.
pub(super) fn addressed(mut message: Value) -> Value {
    message["schemaVersion"] = json!("2.2");
    message["toAgent"] = json!({ "agentId": READER });
    message["returnTo"] = json!("source");
    message
}

/// The reader gets a message that fits, finds the rest at the broker, and its answer brings the task back.
pub(super) async fn answered(
    report: &mut DemoReport,
    (sender, reader): (&DemoAgent, &Caller),
    committed: &Value,
) -> Outcome {
    let id = committed["handoffId"].as_str().unwrap_or_default();
    let measured = &committed["context"];
    report.say(format!(
        "202 with the sizes: {} tokens, a window of {WINDOW}, at most {}: {}",
        measured["tokens"],
        measured["limit"],
        measured["action"].as_str().unwrap_or_default(),
    ));
    report.check(
        "the action on the message",
        json!([LIMIT, "compress"]),
        json!([measured["limit"], measured["action"]]),
    );
    let inbox = reader.get(&format!("/agents/{READER}/inbox?wait=10")).await?;
    let inbox = inbox.expect(200, "the reader's inbox")?;
    let item = &inbox["items"][0];
    let message = &item["message"];
    let context = &message["context"];
    report.say(format!(
        "delivered compressed: {} tokens; the last {} of {} turns as they were said, the others as a summary",
        context["tokens"], context["keptTurns"], context["originalTurns"],
    ));
    report.check(
        "the delivered message",
        json!(["compressed", TURNS, KEPT]),
        json!([message["historyStrategy"], context["originalTurns"], context["keptTurns"]]),
    );
    let fits = context["tokens"].as_u64().is_some_and(|tokens| tokens <= LIMIT);
    report.check("it fits", true, fits);
    let summary = message["conversationHistorySummary"].as_str().unwrap_or_default();
    report.check(
        "facts that the summary keeps",
        true,
        summary.contains(CAP) && summary.contains(OPEN),
    );
    let history = reader.get(&format!("/handoffs/{id}/history?from=0&to=4")).await?;
    let history = history.expect(200, "the turns as they were said")?;
    report.check(
        "a turn as it was said",
        CAP,
        history["turns"][3]["content"].as_str().unwrap_or_default(),
    );
    let said = json!({
        "fencingToken": item["fencingToken"],
        "result": { "liabilityCapEUR": 1_250_000, "open": ["start date of the warranty"] },
    });
    let path = format!("/handoffs/{id}/complete");
    reader.post(&path, &said).await?.expect(200, "the reader's answer")?;
    returned(report, sender, id, committed["taskId"].as_str().unwrap_or_default()).await
}

/// The agent that asked has the task again, reads the answer as its model may see it, and ends the task.
async fn returned(report: &mut DemoReport, sender: &DemoAgent, id: &str, task: &str) -> Outcome {
    let page = sender.broker().get(&format!("/tasks/{task}")).await?;
    let page = page.expect(200, "the task that came back")?;
    let text = |name: &str| page[name].as_str().unwrap_or_default().to_owned();
    report.say(format!(
        "returned to the asker: the task is {}, with {}",
        text("status"),
        text("holder")
    ));
    report.check(
        "the task after the answer",
        json!(["PENDING_HANDOFF", sender.id]),
        json!([page["status"], page["holder"]]),
    );
    let prompt =
        sender.broker().get(&format!("/handoffs/{id}/result/prompt?format=messages")).await?;
    let prompt = prompt.expect(200, "the answer as a guarded turn")?.to_string();
    report.check("the answer is in the guarded turn", true, prompt.contains("1250000"));
    let done = json!({ "output": { "liabilityCapEUR": 1_250_000 } });
    let ended = sender.broker().post(&format!("/tasks/{task}/complete"), &done).await?;
    let ended = ended.expect(200, "completing the task that came back")?;
    report.check("its end", "COMPLETED", ended["status"].as_str().unwrap_or_default());
    Ok(())
}
