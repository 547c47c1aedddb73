//! Waits for the end of a handoff, with progress (specification §11.1).

use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::super::front::{ApiAnswer, ApiRequest};
use super::answer::{ToolAnswer, asking_branch, branches, code, state, without_words};
use super::call::ToolCall;
use handoffd_domain::handoff::HandoffStatus;

/// The longest wait of one call, in seconds: some clients give up at 60.
pub(super) const LONGEST: u64 = 50;
/// Seconds between two notes of progress.
const STEP: u64 = 10;

/// Tells the client that its call is alive, where it asked for that.
pub(super) struct Progress<'a> {
    call: &'a ToolCall<'a>,
    token: Option<ProgressToken>,
    began: Instant,
    deadline: Instant,
    seconds: u64,
}

impl<'a> Progress<'a> {
    /// A wait of so many seconds, from now on.
    pub(super) fn new(call: &'a ToolCall<'a>, seconds: u64) -> Self {
        let began = Instant::now();
        let seconds = seconds.min(LONGEST);
        let token = call.context.meta.get_progress_token();
        Self { call, token, began, deadline: began + Duration::from_secs(seconds), seconds }
    }

    /// Seconds of the next step; 0 once the time is over, the client is gone or the broker stops.
    pub(super) fn step(&self) -> u64 {
        if self.call.context.ct.is_cancelled() || self.call.api.stopping.is_cancelled() {
            return 0;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        (left.as_millis().div_ceil(1_000) as u64).min(STEP)
    }

    /// Reports the state.
    pub(super) async fn tell(&self, message: String) {
        let Some(token) = &self.token else { return };
        let note =
            ProgressNotificationParam::new(token.clone(), self.began.elapsed().as_secs_f64())
                .with_total(self.seconds as f64)
                .with_message(message);
        // A client that is gone needs no progress; its call ends by cancellation.
        let _ = self.call.context.peer.notify_progress(note).await;
    }
}

/// A handoff and its replacement.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// The handoff's own page.
    pub(super) view: Value,
    /// The page of its last successor.
    successor: Option<Value>,
}

impl Standing {
    /// The page that counts.
    fn last(&self) -> &Value {
        self.successor.as_ref().unwrap_or(&self.view)
    }

    /// The status that counts.
    pub(super) fn status(&self) -> Option<HandoffStatus> {
        HandoffStatus::parse(self.last()["status"].as_str()?)
    }

    /// Whether the receiver, or one of several, waits for an answer.
    fn asks(&self) -> bool {
        self.status() == Some(HandoffStatus::InputRequired) || asking_branch(self.last()).is_some()
    }

    /// Whether the caller's own question was answered.
    fn answered(&self, call: &ToolCall<'_>) -> bool {
        call.receives(&self.view)
            && self.view.pointer("/asked/state").and_then(Value::as_str) == Some("ANSWERED")
            && self.status() == Some(HandoffStatus::Accepted)
    }

    /// Whether the handoff has ended without an open replacement.
    pub(super) fn has_ended(&self) -> bool {
        self.status().is_none_or(HandoffStatus::is_final)
    }
}

/// The goal of a caller's wait: its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The sender's: the end, or a question.
    Sender,
    /// That of a receiver that asked: the answer.
    Receiver,
}

/// Reads a handoff, after a wait of so many seconds.
pub(super) async fn read(
    call: &ToolCall<'_>,
    id: &str,
    turn: Turn,
    seconds: u64,
) -> Result<Standing, ApiAnswer> {
    let seconds = seconds.to_string();
    let until = if turn == Turn::Sender { "asked" } else { "answered" };
    let query = [("wait", seconds.as_str()), ("until", until)];
    let view = call.ask(ApiRequest::get(&["handoffs", id]).with(&query)).await.success()?.json;
    let successor = match view["successorId"].as_str() {
        None => None,
        // Not the caller's to read, perhaps: then the handoff itself is all there is to tell.
        Some(id) => call.ask(ApiRequest::get(&["handoffs", id])).await.success().ok(),
    };
    Ok(Standing { view, successor: successor.map(|answer| answer.json) })
}

/// Waits for the caller's turn, and tells the client every ten seconds that it waits.
///
/// # Errors
/// The API's refusal.
pub(super) async fn for_turn(
    call: &ToolCall<'_>,
    id: &str,
    turn: Turn,
    seconds: u64,
) -> Result<Standing, ApiAnswer> {
    let progress = Progress::new(call, seconds);
    loop {
        let step = progress.step();
        let next = Instant::now() + Duration::from_secs(step);
        let standing = tokio::select! {
            standing = read(call, id, turn, step) => standing?,
            () = call.context.ct.cancelled() => read(call, id, turn, 0).await?,
        };
        let reached = match turn {
            Turn::Sender => standing.has_ended() || standing.asks(),
            Turn::Receiver => !standing.asks(),
        };
        if reached || progress.step() == 0 {
            return Ok(standing);
        }
        // A read that came back early and not for this turn would come back early again.
        tokio::select! {
            () = sleep_until(next) => {}
            () = call.context.ct.cancelled() => {}
            () = call.api.stopping.cancelled() => {}
        }
        progress.tell(state(standing.last())).await;
    }
}

/// The outcome of a handoff, for the model that waits: its result, its question or the answer as a guarded block, or its
/// state. `as_error`: an end without a result is an error of the tool.
pub(super) async fn outcome(call: &ToolCall<'_>, standing: Standing, as_error: bool) -> ToolAnswer {
    let ended_badly = match standing.status() {
        Some(HandoffStatus::Completed | HandoffStatus::NoOp) | None => false,
        Some(status) => status.is_final(),
    };
    let mut text = state(standing.last());
    let asks_sender = standing.asks() && !call.receives(standing.last());
    let refused =
        matches!(standing.status(), Some(HandoffStatus::Rejected | HandoffStatus::Failed));
    let page = if standing.status() == Some(HandoffStatus::Completed) || refused {
        Some("result")
    } else {
        (asks_sender || standing.answered(call)).then_some("question")
    };
    if let Some(page) = page {
        let last = standing.last();
        let shown = asking_branch(last).unwrap_or(last);
        let id = shown["handoffId"].as_str().unwrap_or_default();
        let block = call.ask(ApiRequest::get(&["handoffs", id, page, "prompt"])).await;
        if let Ok(block) = block.success() {
            text = if asks_sender || refused || branches(last).is_some() {
                format!("{}\n{text}", block.text)
            } else {
                block.text
            };
        }
    }
    let mut structured = without_words(standing.view);
    if let Some(successor) = standing.successor {
        structured["successor"] = json!({
            "handoffId": successor["handoffId"],
            "status": successor["status"],
            "toAgent": successor["toAgent"],
            "reason": code(successor.get("reason")),
        });
    }
    ToolAnswer { is_error: as_error && ended_badly, ..ToolAnswer::done(text, structured) }
}
