//! Why a task does not go on: who it waits for, since when, what was tried, what comes next, and what ends the wait.
//!
//! A pure function over what is stored of a task at one time. The page, the API (`GET /tasks/{taskId}/why`) and the command
//! (`handoffd why`) show its result. It must not know how the state was read.

use std::time::Duration;

use crate::agent::AgentState;
use crate::escalation::Escalation;
use crate::handoff::{DeliveryMode, Handoff, HandoffStatus};
use crate::ids::{AgentId, HandoffId, Micros};
use crate::money::Usd;
use crate::task::Task;

/// A task and all that it may wait for, at one time.
#[derive(Debug)]
pub struct TaskSituation<'a> {
    pub now: Micros,
    pub task: &'a Task,
    /// Its open handoffs, in the order of their delivery.
    pub open: Vec<OpenHandoff<'a>>,
    /// Its newest handoff, open or ended.
    pub newest: Option<&'a Handoff>,
    /// Its open escalations.
    pub escalations: &'a [Escalation],
    /// Its open dead letters.
    pub dead_letters: Vec<OpenDeadLetter>,
}

/// An open handoff, where it is in its delivery, and its receiver.
#[derive(Debug)]
pub struct OpenHandoff<'a> {
    pub handoff: &'a Handoff,
    /// Its delivery while it waits for one; none once the receiver has the message.
    pub queued: Option<QueuedDelivery>,
    /// None where no agent has the receiver's id.
    pub receiver: Option<Receiver>,
}

/// A delivery that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedDelivery {
    /// The handoff of the same task that is delivered before it.
    pub behind: Option<HandoffId>,
    /// When it may be claimed; while it is claimed, until when.
    pub visible_at: Micros,
    /// Attempts begun.
    pub attempts: i32,
    /// Times that the receiver said that it is busy.
    pub busy: i32,
    /// Whether a broker or the receiver claimed it.
    pub claimed: bool,
}

/// A receiver as far as a wait may depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    pub state: AgentState,
    /// Whether its endpoint is disabled after failures.
    pub disabled: bool,
    /// Failures of its endpoint in a row.
    pub failures: u32,
    /// When one of its keys was last used.
    pub key_used_at: Option<Micros>,
}

/// A message that the gate refused and a person decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDeadLetter {
    pub handoff_id: HandoffId,
    pub source: AgentId,
    /// Code of the primary reason.
    pub reason: String,
    pub created_at: Micros,
}

/// Why a task waits, by how much it asks of a person: the first of a task's waits is the one to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WaitCause {
    /// A person decides on an escalation.
    Escalated,
    /// A person decides on a message that the gate refused.
    DeadLettered,
    /// No agent has the receiver's id any more.
    ReceiverDeleted,
    /// The receiver's endpoint is disabled after failures.
    EndpointDisabled,
    /// The receiver is paused, and the handoff is held for it.
    ReceiverPaused,
    /// Nothing is left of the budget, and no handoff is open.
    BudgetUsedUp,
    /// No handoff is open: the holder has neither handed the task on nor completed it.
    Idle,
    /// Attempts failed or the receiver was busy; another one is due later.
    Retrying,
    /// A receiver that pulls has not fetched it.
    NotFetched,
    /// The receiver asked its sender, who has not answered.
    QuestionOpen,
    /// The sender has not closed the stream.
    StreamOpen,
    /// The receiver has the message and has given no verdict.
    VerdictDue,
    /// The receiver accepted and works.
    ReceiverWorks,
    /// An attempt is due or under way.
    DeliveryDue,
    /// An earlier handoff of the task is delivered first.
    Behind,
    /// The task has ended.
    Ended,
}

/// Who ends a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    /// An agent, by its id.
    Agent(AgentId),
    /// An operator or another person.
    Person,
    /// The broker, by itself.
    Broker,
    /// The task has ended.
    Nobody,
}

/// One reason why a task does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub cause: WaitCause,
    /// The reason in one sentence, for people.
    pub sentence: String,
    pub awaited: Awaited,
    pub since: Micros,
    pub handoff: Option<HandoffId>,
    /// Attempts at delivery begun.
    pub attempts: i32,
    /// Code of the last failure.
    pub last_error: Option<String>,
    /// The next event that comes without a person.
    pub next: Option<NextEvent>,
    pub remedies: Vec<Remedy>,
}

/// An event that comes without a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextEvent {
    pub at: Micros,
    pub event: &'static str,
}

/// A request that ends a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// Its effect.
    pub effect: &'static str,
    /// The same by the command line.
    pub command: String,
    /// Method and path of the API.
    pub request: String,
}

/// Why a task does not go on, the most urgent reason first. There is at least one.
#[must_use]
pub fn waits(at: &TaskSituation<'_>) -> Vec<Wait> {
    let mut waits: Vec<Wait> = if at.task.status.is_final() {
        vec![ended(at)]
    } else {
        let escalated = at.escalations.iter().map(|one| escalated(one, at.now));
        let dead = at.dead_letters.iter().map(|one| dead_lettered(one, at.now));
        let open = at.open.iter().map(|one| open_handoff(one, at.now));
        escalated.chain(dead).chain(open).collect()
    };
    if waits.is_empty() {
        waits.push(idle(at));
    }
    // Stable: of equal causes the older delivery stays first.
    waits.sort_by_key(|wait| wait.cause);
    waits
}

impl Wait {
    fn new(cause: WaitCause, awaited: Awaited, since: Micros, sentence: String) -> Self {
        Self {
            cause,
            sentence,
            awaited,
            since,
            handoff: None,
            attempts: 0,
            last_error: None,
            next: None,
            remedies: Vec::new(),
        }
    }

    fn next(mut self, at: Option<Micros>, event: &'static str) -> Self {
        self.next = at.map(|at| NextEvent { at, event });
        self
    }

    fn remedy(mut self, effect: &'static str, command: String, request: String) -> Self {
        self.remedies.push(Remedy { effect, command, request });
        self
    }
}

fn ended(at: &TaskSituation<'_>) -> Wait {
    let task = at.task;
    let sentence = format!(
        "The task has been {} for {}; nothing waits.",
        task.status.as_str(),
        in_words(at.now.since(task.updated_at)),
    );
    Wait::new(WaitCause::Ended, Awaited::Nobody, task.updated_at, sentence)
}

fn escalated(one: &Escalation, now: Micros) -> Wait {
    let sentence = format!(
        "A person has to decide on the handoff from {} to {} ({}); it waits for {}.",
        one.source,
        one.target,
        one.reason,
        in_words(now.since(one.created_at)),
    );
    let id = one.id;
    Wait {
        handoff: one.handoff_id,
        last_error: Some(one.reason.clone()),
        ..Wait::new(WaitCause::Escalated, Awaited::Person, one.created_at, sentence)
    }
    .next(Some(one.timeout_at), "The broker decides as the contract or its settings say.")
    .remedy(
        "Decides: retry, reassign, rollback, complete or cancel.",
        format!("handoffd escalations resolve {id} --action retry --reason TEXT"),
        format!("POST /escalations/{id}/resolve"),
    )
}

fn dead_lettered(one: &OpenDeadLetter, now: Micros) -> Wait {
    let sentence = format!(
        "The gate refused a message of {} ({}); a person has had to release or discard it for {}.",
        one.source,
        one.reason,
        in_words(now.since(one.created_at)),
    );
    let id = one.handoff_id;
    Wait {
        handoff: Some(id),
        last_error: Some(one.reason.clone()),
        ..Wait::new(WaitCause::DeadLettered, Awaited::Person, one.created_at, sentence)
    }
    .remedy(
        "Delivers the message in spite of the finding.",
        format!("handoffd dead-letters release {id} --reason TEXT"),
        format!("POST /dead-letters/{id}/release"),
    )
    .remedy(
        "Ends the message; its sender may submit another one.",
        format!("handoffd dead-letters discard {id} --reason TEXT"),
        format!("POST /dead-letters/{id}/discard"),
    )
}

/// No handoff is open, and no person is asked.
fn idle(at: &TaskSituation<'_>) -> Wait {
    let task = at.task;
    let waited = in_words(at.now.since(task.updated_at));
    let before = at.newest.filter(|handoff| handoff.reason.is_some()).map(|handoff| {
        let reason = handoff.reason.as_deref().unwrap_or_default();
        format!(
            " The last handoff, to {}, is {} ({reason}).",
            handoff.target,
            handoff.status.as_str()
        )
    });
    let before = before.unwrap_or_default();
    let id = task.id;
    let used_up = task.funds.is_some() && task.left() <= Usd(0);
    let (cause, awaited, sentence) = if used_up {
        let sentence = format!(
            "Nothing is left of the task's budget, and no handoff is open for {waited}.{before}"
        );
        (WaitCause::BudgetUsedUp, Awaited::Person, sentence)
    } else {
        let sentence =
            format!("{} has the task and has not handed it on for {waited}.{before}", task.holder);
        (WaitCause::Idle, Awaited::Agent(task.holder.clone()), sentence)
    };
    let wait = Wait {
        handoff: at.newest.map(|handoff| handoff.id),
        last_error: at.newest.and_then(|handoff| handoff.reason.clone()),
        ..Wait::new(cause, awaited, task.updated_at, sentence)
    };
    let wait = if used_up {
        wait.remedy(
            "Adds to the task's budget.",
            format!("handoffd tasks top-up {id} --add-usd USD --reason TEXT"),
            format!("POST /tasks/{id}/budget"),
        )
    } else {
        wait
    };
    canceling(wait, at.task)
}

fn canceling(wait: Wait, task: &Task) -> Wait {
    let id = task.id;
    wait.remedy(
        "Cancels the task.",
        format!("handoffd tasks cancel {id} --reason TEXT"),
        format!("POST /tasks/{id}/cancel"),
    )
}

fn open_handoff(one: &OpenHandoff<'_>, now: Micros) -> Wait {
    let handoff = one.handoff;
    let wait = match (handoff.status, &one.receiver, &one.queued) {
        _ if handoff.is_streaming() => stream_open(handoff, now),
        (HandoffStatus::InputRequired, ..) => question_open(handoff, now),
        (HandoffStatus::Accepted, ..) => receiver_works(handoff, now),
        (_, None, _) => receiver_deleted(handoff, now),
        (_, Some(_), None) => verdict_due(handoff, now),
        (_, Some(receiver), Some(queued)) => undelivered(handoff, receiver, queued, now),
    };
    Wait {
        handoff: Some(handoff.id),
        attempts: one.queued.as_ref().map_or(handoff.attempts, |queued| queued.attempts),
        last_error: handoff.reason.clone(),
        ..wait
    }
}

fn stream_open(handoff: &Handoff, now: Micros) -> Wait {
    let due = handoff.stream.as_ref().and_then(|stream| stream.due_at);
    let sentence = format!(
        "{} has not closed the stream that it opened {} ago.",
        handoff.source,
        in_words(now.since(handoff.created_at)),
    );
    Wait::new(
        WaitCause::StreamOpen,
        Awaited::Agent(handoff.source.clone()),
        handoff.created_at,
        sentence,
    )
    .next(due, "The stream ends unless a chunk comes.")
}

fn question_open(handoff: &Handoff, now: Micros) -> Wait {
    let question = handoff.questions.last();
    let since = question.map_or(handoff.created_at, |question| question.asked_at);
    let sentence = format!(
        "{} asked {} a question {} ago and waits for the answer.",
        handoff.target,
        handoff.source,
        in_words(now.since(since)),
    );
    let id = handoff.id;
    Wait::new(WaitCause::QuestionOpen, Awaited::Agent(handoff.source.clone()), since, sentence)
        .next(question.map(|question| question.answer_by), "The handoff expires without an answer.")
        .remedy(
            "Shows the question.",
            format!("handoffd handoffs show {id}"),
            format!("GET /handoffs/{id}?include=questions"),
        )
}

fn receiver_works(handoff: &Handoff, now: Micros) -> Wait {
    let since = handoff.accepted_at.unwrap_or(handoff.created_at);
    let heard = handoff.pulse.as_ref().map(|pulse| {
        format!(" The broker last heard of it {} ago.", in_words(now.since(pulse.heard_at)))
    });
    let sentence = format!(
        "{} accepted the task {} ago and works on it.{}",
        handoff.target,
        in_words(now.since(since)),
        heard.unwrap_or_default(),
    );
    Wait::new(WaitCause::ReceiverWorks, Awaited::Agent(handoff.target.clone()), since, sentence)
        .next(
            handoff.deadline_at,
            "The lease ends, and the task goes back, unless a heartbeat comes.",
        )
}

fn receiver_deleted(handoff: &Handoff, now: Micros) -> Wait {
    let sentence = format!(
        "No agent has the id {} any more; the handoff to it waits for {}.",
        handoff.target,
        in_words(now.since(handoff.created_at)),
    );
    let id = handoff.task_id;
    Wait::new(WaitCause::ReceiverDeleted, Awaited::Person, handoff.created_at, sentence)
        .next(handoff.deadline_at, "The handoff expires, and the task goes back to its sender.")
        .remedy(
            "Cancels the task.",
            format!("handoffd tasks cancel {id} --reason TEXT"),
            format!("POST /tasks/{id}/cancel"),
        )
}

fn verdict_due(handoff: &Handoff, now: Micros) -> Wait {
    let sentence = format!(
        "{} has the message and has given no verdict; the handoff was committed {} ago.",
        handoff.target,
        in_words(now.since(handoff.created_at)),
    );
    Wait::new(
        WaitCause::VerdictDue,
        Awaited::Agent(handoff.target.clone()),
        handoff.created_at,
        sentence,
    )
    .next(handoff.deadline_at, "The handoff expires, and the task goes back to its sender.")
}

/// A handoff that its receiver does not have.
fn undelivered(
    handoff: &Handoff,
    receiver: &Receiver,
    queued: &QueuedDelivery,
    now: Micros,
) -> Wait {
    let target = &handoff.target;
    let waited = in_words(now.since(handoff.created_at));
    let pulled = handoff.mode == DeliveryMode::Pull;
    let wait = |cause, awaited, sentence| Wait::new(cause, awaited, handoff.created_at, sentence);
    let expires = "The handoff expires, and the task goes back to its sender.";
    if let Some(before) = queued.behind {
        let sentence = format!("Handoff {before} of the same task is delivered first.");
        return wait(WaitCause::Behind, Awaited::Broker, sentence);
    }
    if receiver.state == AgentState::Paused {
        let sentence =
            format!("{target} is paused; the handoff has been held for it for {waited}.");
        return wait(WaitCause::ReceiverPaused, Awaited::Person, sentence).remedy(
            "Lets the agent take handoffs again.",
            format!("handoffd agents resume {target}"),
            format!("PATCH /agents/{target}"),
        );
    }
    if receiver.disabled && !pulled {
        let sentence = format!(
            "The endpoint of {target} is disabled after failures; the handoff has waited for {waited}."
        );
        return wait(WaitCause::EndpointDisabled, Awaited::Person, sentence)
            .next(handoff.deadline_at, expires)
            .remedy(
                "Takes the endpoint into service again.",
                format!("handoffd agents change {target} --webhook URL"),
                format!("PATCH /agents/{target}"),
            );
    }
    if queued.claimed && queued.visible_at > now {
        return if pulled {
            let sentence = format!("{target} fetched the handoff and has given no verdict.");
            wait(WaitCause::VerdictDue, Awaited::Agent(target.clone()), sentence)
                .next(Some(queued.visible_at), "The handoff returns to the inbox.")
        } else {
            let sentence = format!("Attempt {} at {target} is under way.", queued.attempts);
            wait(WaitCause::DeliveryDue, Awaited::Broker, sentence)
        };
    }
    if pulled {
        let used = receiver.key_used_at.map_or_else(
            || " None of its keys was ever used.".to_owned(),
            |at| format!(" Its key was last used {} ago.", in_words(now.since(at))),
        );
        let sentence = format!("{target} has not fetched the handoff for {waited}.{used}");
        return wait(WaitCause::NotFetched, Awaited::Agent(target.clone()), sentence)
            .next(handoff.deadline_at, expires);
    }
    if queued.visible_at > now {
        let due = in_words(queued.visible_at.since(now));
        let sentence = match &handoff.reason {
            Some(reason) => {
                format!(
                    "{} of {target} failed ({reason}); the next attempt is due in {due}.",
                    attempts(queued.attempts)
                )
            }
            None => format!("{target} said that it is busy; the next attempt is due in {due}."),
        };
        return wait(WaitCause::Retrying, Awaited::Broker, sentence)
            .next(Some(queued.visible_at), "The broker tries again.");
    }
    let sentence = format!(
        "An attempt at {target} is due; a broker makes it as soon as the receiver has room."
    );
    wait(WaitCause::DeliveryDue, Awaited::Broker, sentence)
}

fn attempts(count: i32) -> String {
    if count == 1 { "The first attempt".to_owned() } else { format!("{count} attempts") }
}

/// A duration to its largest unit, rounded down: `14 min`.
pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
