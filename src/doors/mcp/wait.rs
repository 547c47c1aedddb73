//! Waits for the end of a handoff, with progress (specification §11.1).

use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::super::client::{ApiRefusal, PageQuery, PromptOf};
use super::super::state::Standing;
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

impl Standing {
    /// Whether the receiver, or one of several, waits for an answer.
    fn is_asking(&self) -> bool {
        self.status() == Some(HandoffStatus::InputRequired)
            || asking_branch(branches(self.last())).is_some()
    }

    /// Whether the caller's own question was answered.
    fn answered(&self, call: &ToolCall<'_>) -> bool {
        call.receives(&self.view)
            && self.view.asked.as_ref().is_some_and(|asked| asked.state == "ANSWERED")
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
) -> Result<Standing, ApiRefusal> {
    let until = Some(if turn == Turn::Sender { "asked" } else { "answered" });
    let query = PageQuery { include: None, wait: Some(seconds), until };
    Ok(call.client.succeeded(call.client.handoff(id, query).await?, None).await)
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
) -> Result<Standing, ApiRefusal> {
    let progress = Progress::new(call, seconds);
    loop {
        let step = progress.step();
        let next = Instant::now() + Duration::from_secs(step);
        let standing = tokio::select! {
            standing = read(call, id, turn, step) => standing?,
            () = call.context.ct.cancelled() => read(call, id, turn, 0).await?,
        };
        let reached = match turn {
            Turn::Sender => standing.has_ended() || standing.is_asking(),
            Turn::Receiver => !standing.is_asking(),
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
    let asks_sender = standing.is_asking() && !call.receives(standing.last());
    let refused =
        matches!(standing.status(), Some(HandoffStatus::Rejected | HandoffStatus::Failed));
    let page = if standing.status() == Some(HandoffStatus::Completed) || refused {
        Some(PromptOf::Result)
    } else {
        (asks_sender || standing.answered(call)).then_some(PromptOf::Question)
    };
    if let Some(page) = page {
        let last = standing.last();
        let branches = branches(last);
        let id = asking_branch(branches).map_or(&last.handoff_id, |branch| &branch.handoff_id);
        if let Ok(block) = call.client.prompt(id, page).await {
            text = if asks_sender || refused || !branches.is_empty() {
                format!("{block}\n{text}")
            } else {
                block
            };
        }
    }
    let mut structured = without_words(json!(standing.view));
    if let Some(successor) = standing.successor {
        structured["successor"] = json!({
            "handoffId": successor.handoff_id,
            "status": successor.status,
            "toAgent": successor.to_agent,
            "reason": code(successor.reason.as_deref()),
        });
    }
    ToolAnswer { is_error: as_error && ended_badly, ..ToolAnswer::done(text, structured) }
}
