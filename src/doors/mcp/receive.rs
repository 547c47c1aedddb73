//! The receiver's tools: `take_next`, and its verdicts.

use axum::http::request::Parts;
use serde_json::{Map, Value, json};

use super::super::client::PromptOf;
use super::answer::ToolAnswer;
use super::call::ToolCall;
use super::hand_off::{meta_of, wait_of};
use super::wait::Progress;
use crate::http::inbox::{InboxItem, QuestionItem, ReturnItem};
use handoffd_domain::lenient::UnreadableParts;

/// Claims the next handoff, or a task that came back; waits for one where there is none.
pub(super) async fn take_next(call: &ToolCall<'_>) -> Result<ToolAnswer, ToolAnswer> {
    let agent = call.agent()?.to_owned();
    let progress = Progress::new(call, wait_of(&call.arguments));
    loop {
        // Not cut short: a handoff that the poll has claimed would have no holder until its claim runs out.
        let inbox = call.client.inbox(&agent, progress.step(), 1).await?;
        if let Some(item) = inbox.items.first() {
            return Ok(handoff(call, item).await);
        }
        if let Some(item) = inbox.returns.first() {
            return Ok(returned(call, item).await);
        }
        if let Some(item) = inbox.questions.first() {
            return Ok(question(call, item).await);
        }
        if progress.step() == 0 {
            let structured = json!({ "empty": true });
            return Ok(ToolAnswer::done(
                "Nothing waits for you. Call take_next again.",
                structured,
            ));
        }
        progress.tell("nothing waits yet".to_owned()).await;
    }
}

/// A claimed handoff: its context as a guarded block, its ids as structured content.
async fn handoff(call: &ToolCall<'_>, item: &InboxItem) -> ToolAnswer {
    let block = call.client.prompt(&item.handoff_id, PromptOf::Message).await;
    let message = &item.message;
    let mut structured = json!(item);
    if let Some(members) = structured.as_object_mut() {
        members.remove("message");
        members
            .insert("fromAgent".to_owned(), json!({ "agentId": message["fromAgent"]["agentId"] }));
        members.insert("costTracking".to_owned(), message["costTracking"].clone());
    }
    match block {
        Ok(block) => ToolAnswer { meta: meta_of(message), ..ToolAnswer::done(block, structured) },
        // It is claimed all the same: the ids are needed to reject it.
        Err(refused) => ToolAnswer::failed(ToolAnswer::refused(&refused).text, structured),
    }
}

/// A task that came back with its result.
async fn returned(call: &ToolCall<'_>, item: &ReturnItem) -> ToolAnswer {
    let block = call.client.prompt(&item.handoff_id, PromptOf::Result).await;
    let mut structured = json!(item);
    if let Some(members) = structured.as_object_mut() {
        members.remove("completion");
        members.insert("returned".to_owned(), true.into());
    }
    let bare = || "A task came back to you, without a result.".to_owned();
    ToolAnswer::done(block.ok().unwrap_or_else(bare), structured)
}

/// A question of a receiver to this agent.
async fn question(call: &ToolCall<'_>, item: &QuestionItem) -> ToolAnswer {
    let id = &item.handoff_id;
    let block = call.client.prompt(id, PromptOf::Question).await;
    let mut structured = json!(item);
    if let Some(members) = structured.as_object_mut() {
        members.remove("question");
        members.remove("schema");
        members.insert("asked".to_owned(), true.into());
    }
    let call_answer = format!("Call answer with handoffId {id}.");
    let text = match block {
        Ok(block) => format!("{block}\n{call_answer}"),
        Err(_) => call_answer,
    };
    ToolAnswer::done(text, structured)
}

/// A verdict by the receiver.
pub(super) async fn verdict(call: &ToolCall<'_>, verb: &str) -> Result<ToolAnswer, ToolAnswer> {
    let id = call.text("handoffId").unwrap_or_default().to_owned();
    let body = body(verb, &call.arguments);
    let view = call.client.say(&id, verb, &body, unreadable(call)).await?;
    let text = match verb {
        "accept" => {
            "You hold the task. Do it; call heartbeat while you work, then complete or fail."
        }
        "reject" => "Rejected: the task goes back to its sender.",
        "heartbeat" => "The lease runs anew.",
        "complete" => "Completed.",
        _ => "Given up: the task goes back to its sender.",
    };
    let mut structured = json!({
        "handoffId": view.handoff_id, "taskId": view.task_id, "status": view.status, "deadlineAt": view.deadline_at,
    });
    if !view.warnings.is_empty() {
        structured["warnings"] = json!(view.warnings);
    }
    Ok(ToolAnswer::done(text, structured))
}

/// The parts of the arguments that could not be kept as they came, by their places in the verdict's body.
fn unreadable(call: &ToolCall<'_>) -> UnreadableParts {
    let parts = call.context.extensions.get::<Parts>();
    let mut unreadable = parts
        .and_then(|parts| parts.extensions.get::<UnreadableParts>())
        .cloned()
        .unwrap_or_default();
    for part in &mut unreadable.named {
        for (argument, member) in
            [("/summary", "/conversationSummary"), ("/spentUsd", "/costTracking/costSpentSoFarUSD")]
        {
            let rest = part.pointer.strip_prefix(argument);
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                part.pointer = format!("{member}{rest}");
            }
        }
    }
    unreadable
}

/// The body of a verdict.
fn body(verb: &str, arguments: &Map<String, Value>) -> Value {
    let mut body = Map::new();
    let mut put = |argument: &str, member: &str| {
        if let Some(value) = arguments.get(argument) {
            body.insert(member.to_owned(), value.clone());
        }
    };
    put("fencingToken", "fencingToken");
    match verb {
        "reject" => {
            put("reason", "reason");
            put("details", "details");
        }
        "complete" => {
            put("result", "result");
            put("summary", "conversationSummary");
            put("iterations", "iterations");
        }
        "fail" => put("error", "error"),
        _ => {}
    }
    if let Some(spent) = arguments.get("spentUsd") {
        body.insert("costTracking".to_owned(), json!({ "costSpentSoFarUSD": spent }));
    }
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_what_the_tool_was_given() {
        let of = |verb: &str, value: Value| body(verb, value.as_object().unwrap());
        assert_eq!(
            of("accept", json!({ "handoffId": "x", "fencingToken": 3 })),
            json!({ "fencingToken": 3 })
        );
        let given = json!({ "fencingToken": 3, "result": [1], "summary": "s", "iterations": 2, "spentUsd": 0.5 });
        let expected = json!({
            "fencingToken": 3, "result": [1], "conversationSummary": "s", "iterations": 2, "costTracking": { "costSpentSoFarUSD": 0.5 },
        });
        assert_eq!(of("complete", given), expected);
        let given = json!({ "fencingToken": 3, "reason": "NO", "details": "d" });
        assert_eq!(of("reject", given.clone()), given);
        assert_eq!(
            of("fail", json!({ "fencingToken": 3, "error": "E" })),
            json!({ "fencingToken": 3, "error": "E" })
        );
    }
}
