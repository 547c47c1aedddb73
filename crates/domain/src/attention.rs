//! The list of all that waits for a person or another agent in a tenant: decisions, receivers that do not fetch or fail, idle tasks,
//! open questions, used-up budgets and caps, subscriptions that the broker disabled, and late tree heads.
//!
//! A pure function over counts that are read from the store at one time. Each item covers all handoffs or tasks with the
//! same cause, so that 10 000 handoffs for one agent are one line.

use std::collections::BTreeMap;

use crate::agent::AgentState;
use crate::cap::Window;
use crate::ids::{AgentId, EscalationId, HandoffId, Micros, SubscriptionId, TaskId};
use crate::money::Usd;
use crate::waits::{
    IdleTasks, LateHead, OpenDeadLetters, OpenEscalations, OpenQuestions, WaitingDeliveries,
};
use crate::why::{NextEvent, Remedy, in_words};
use noticed::{late_head, open_breaker, question, still, transports_away, unused_breaker};

mod noticed;

/// Age from which a wait for an agent is listed, in microseconds (a minute).
const LISTED_AFTER_US: i64 = 60_000_000;

/// Age from which a receiver that does not fetch is a warning, in microseconds (5 minutes).
const LATE_AFTER_US: i64 = 300_000_000;

/// Age from which a pause or an idle task is a warning, in microseconds (an hour).
const LONG_AFTER_US: i64 = 3_600_000_000;

/// All of a tenant that may need attention, at one time.
#[derive(Debug)]
pub struct TenantSituation {
    pub now: Micros,
    /// Open escalations by edge and reason.
    pub escalations: Vec<OpenEscalations>,
    /// Open dead letters by sender and reason.
    pub dead_letters: Vec<OpenDeadLetters>,
    /// Deliveries that wait, by receiver.
    pub queues: Vec<WaitingDeliveries>,
    /// Deliveries that an attempt or a claim holds, and that an earlier one held before, by receiver.
    pub again: Vec<WaitingDeliveries>,
    /// Tasks that went back to their holder and wait for its next handoff, by holder.
    pub idle: Vec<IdleTasks>,
    /// Tasks that run and have no open handoff, by holder.
    pub still: Vec<IdleTasks>,
    /// Questions of receivers without an answer, by the agent that is asked.
    pub questions: Vec<OpenQuestions>,
    /// The tenant's agents.
    pub agents: BTreeMap<AgentId, AgentSituation>,
    /// Caps without room.
    pub caps: Vec<UsedUpCap>,
    /// Subscriptions that the broker disabled.
    pub subscriptions: Vec<DisabledSubscription>,
    /// A tree head that is not published in time.
    pub late_head: Option<LateHead>,
}

/// An agent as far as an item may depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSituation {
    pub state: AgentState,
    /// Whether it fetches its handoffs.
    pub pulls: bool,
    /// Whether its endpoint is disabled after failures.
    pub disabled: bool,
    /// The way in which it gets its handoffs, as a word.
    pub transport: &'static str,
    /// When one of its keys was last used.
    pub key_used_at: Option<Micros>,
    /// Its breakers that let no delivery through, taken together.
    pub breaker: Option<OpenBreaker>,
    /// When its registration changed last.
    pub changed_at: Micros,
}

/// Reason of a breaker that opened because the transport was away.
pub const TRANSPORT_AWAY: &str = "TRANSPORT_AWAY";

impl AgentSituation {
    /// Whether brokers cannot reach the transport by which it gets its handoffs.
    fn is_cut_off(&self) -> bool {
        let pushed = !self.pulls && !self.disabled && self.state != AgentState::Paused;
        let breaker = self.breaker.as_ref().filter(|_| pushed);
        breaker.and_then(|breaker| breaker.reason.as_deref()) == Some(TRANSPORT_AWAY)
    }
}

/// The open breakers of one receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBreaker {
    /// Brokers that have one.
    pub brokers: usize,
    /// When the first of them opened.
    pub since: Micros,
    /// Code of a last failure.
    pub reason: Option<String>,
}

/// A cap that has no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedUpCap {
    /// None for the whole tenant's.
    pub agent: Option<AgentId>,
    pub window: Window,
    /// Money used, and its limit; none where tokens are used up.
    pub money: Option<(Usd, Usd)>,
    /// Time of its last change.
    pub since: Micros,
}

/// A subscription that the broker disabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisabledSubscription {
    pub id: SubscriptionId,
    /// Code of the reason.
    pub reason: String,
    pub since: Micros,
}

/// How soon a person should look.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Work does not go on until a person acts.
    Critical,
    /// Work is late, and may go on by itself.
    Warning,
    /// Nothing is late yet.
    Notice,
}

/// The cause of an item.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AttentionKind {
    /// A person decides on escalations.
    Escalated,
    /// A person decides on messages that the gate refused.
    DeadLettered,
    /// Handoffs wait for an id that no agent has any more.
    ReceiverDeleted,
    /// An endpoint is disabled after failures.
    EndpointDisabled,
    /// Nothing is left of the budget of tasks that have no open handoff.
    BudgetUsedUp,
    /// A cap has no room.
    CapUsedUp,
    /// A receiver that pulls has not fetched its handoffs.
    NotFetched,
    /// Brokers let no delivery to a receiver through, after failures in a row.
    BreakerOpen,
    /// The servers of a transport, such as a queue, do not take what brokers send by it.
    TransportAway,
    /// Attempts at an endpoint fail or are put off.
    DeliveryFailing,
    /// A receiver is paused, and handoffs are held for it.
    ReceiverPaused,
    /// Tasks went back to an agent that has neither handed them on nor completed them.
    TasksIdle,
    /// Tasks run at an agent that has neither handed them on nor completed them, and no handoff is open.
    TasksUnmoved,
    /// Receivers asked an agent, which has not answered.
    QuestionOpen,
    /// A place outside the database has not got the tree head of the log in time.
    TreeHeadLate,
    /// The broker disabled a subscription after failures.
    SubscriptionDisabled,
}

/// One cause, with all that it holds up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    pub kind: AttentionKind,
    pub severity: Severity,
    /// The cause in one sentence, for people.
    pub sentence: String,
    /// When the oldest wait began.
    pub since: Micros,
    /// Handoffs, tasks or decisions that the item covers; 0 for an agent, cap or subscription by itself.
    pub count: i64,
    /// Most attempts that ended at one delivery.
    pub attempts: i32,
    /// Code of the last failure, or of the reason.
    pub last_error: Option<String>,
    /// The next event that comes without a person.
    pub next: Option<NextEvent>,
    /// The agent that is waited for, or whose messages wait.
    pub agent: Option<AgentId>,
    /// The oldest task.
    pub task: Option<TaskId>,
    /// The oldest handoff.
    pub handoff: Option<HandoffId>,
    /// The oldest dead letter.
    pub dead_letter: Option<HandoffId>,
    /// The oldest escalation.
    pub escalation: Option<EscalationId>,
    pub subscription: Option<SubscriptionId>,
    /// All agents that the item is about, where they are several.
    pub agents: Vec<AgentId>,
    pub remedies: Vec<Remedy>,
}

impl Attention {
    /// Whether the item is about this agent.
    #[must_use]
    pub fn is_about(&self, agent: &AgentId) -> bool {
        self.agent.as_ref() == Some(agent) || self.agents.contains(agent)
    }

    fn new(kind: AttentionKind, severity: Severity, since: Micros, sentence: String) -> Self {
        Self {
            kind,
            severity,
            sentence,
            since,
            count: 0,
            attempts: 0,
            last_error: None,
            next: None,
            agent: None,
            task: None,
            handoff: None,
            dead_letter: None,
            escalation: None,
            subscription: None,
            agents: Vec::new(),
            remedies: Vec::new(),
        }
    }

    fn remedy(mut self, effect: &'static str, command: String, request: String) -> Self {
        self.remedies.push(Remedy { effect, command, request });
        self
    }

    /// Its place in the list: by severity, then the oldest first, then by a text that no other item has.
    #[must_use]
    pub fn place(&self) -> Place {
        let names = [
            self.agent.as_ref().map(ToString::to_string),
            self.escalation.map(|id| id.to_string()),
            self.dead_letter.map(|id| id.to_string()),
            self.subscription.map(|id| id.to_string()),
            self.last_error.clone(),
        ];
        let several = self.agents.iter().map(ToString::to_string);
        let names: Vec<String> = names.into_iter().flatten().chain(several).collect();
        // Several caps of one agent differ in their windows, which the sentence has.
        let sentence = if self.kind == AttentionKind::CapUsedUp { &self.sentence } else { "" };
        let text = format!("{:?} {} {sentence}", self.kind, names.join(" "));
        Place { severity: self.severity, since: self.since, text }
    }
}

/// The place of an item in the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub severity: Severity,
    pub since: Micros,
    pub text: String,
}

/// All that waits in a tenant, the most urgent first, of equal urgency the oldest first.
#[must_use]
pub fn attention(at: &TenantSituation) -> Vec<Attention> {
    let escalations = at.escalations.iter().map(|one| escalated(one, at.now));
    let letters = at.dead_letters.iter().map(|one| dead_lettered(one, at.now));
    let waiting = waiting(at);
    let queues = waiting.iter().filter_map(|one| queue(one, at));
    let idle = at.idle.iter().filter_map(|one| idle(one, at.now));
    let endpoints = at.agents.iter().filter_map(|(id, agent)| unused_endpoint(id, agent, &waiting));
    let breakers =
        at.agents.iter().filter_map(|(id, agent)| unused_breaker(id, agent, &waiting, at.now));
    let caps = at.caps.iter().map(cap);
    let questions = at.questions.iter().filter_map(|one| question(one, at.now));
    let still = at.still.iter().filter_map(|one| still(one, at.now));
    let head = at.late_head.iter().map(|one| late_head(one, at.now));
    let subscriptions = at.subscriptions.iter().map(|one| subscription(one, at.now));
    let mut items: Vec<Attention> = escalations.chain(letters).chain(queues).collect();
    items.extend(idle.chain(endpoints).chain(caps).chain(subscriptions));
    items.extend(breakers.chain(questions).chain(still).chain(head));
    items.extend(transports_away(&waiting, at));
    items.sort_by_cached_key(Attention::place);
    items
}

/// Deliveries that wait, by receiver. One that an attempt at an endpoint holds waits still where an earlier attempt brought no
/// verdict: until an attempt succeeds, a failing receiver is listed.
fn waiting(at: &TenantSituation) -> Vec<WaitingDeliveries> {
    let mut waiting = at.queues.clone();
    let pushed = |one: &&WaitingDeliveries| at.agents.get(&one.target).is_some_and(|to| !to.pulls);
    for again in at.again.iter().filter(pushed) {
        // The attempt that is under way has not failed, and no time is set for another.
        let attempts = again.attempts.saturating_sub(1);
        let again = WaitingDeliveries { attempts, visible_at: at.now, ..again.clone() };
        match waiting.iter_mut().find(|one| one.target == again.target) {
            Some(one) => *one = one.with(&again),
            None => waiting.push(again),
        }
    }
    waiting
}

/// A number with its noun: `1 handoff`, `3 handoffs`.
fn counted(count: i64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// A verb's ending after a number: `1 handoff waits`, `3 handoffs wait`.
const fn verb(count: i64) -> &'static str {
    if count == 1 { "waits" } else { "wait" }
}

fn age(since: Micros, now: Micros) -> String {
    in_words(now.since(since))
}

const fn is_older(since: Micros, now: Micros, by_us: i64) -> bool {
    now.0.saturating_sub(since.0) >= by_us
}

fn escalated(one: &OpenEscalations, now: Micros) -> Attention {
    let OpenEscalations { source, target, reason, count, first, task_id, since, timeout_at } = one;
    let sentence = format!(
        "A person has to decide on {} from {source} to {target} ({reason}); {} for {}.",
        counted(*count, "handoff"),
        if *count == 1 { "it waits" } else { "the oldest waits" },
        age(*since, now),
    );
    let event = "The broker decides as the contract or its settings say.";
    let item = Attention {
        count: *count,
        last_error: Some(reason.clone()),
        next: Some(NextEvent { at: *timeout_at, event }),
        agent: Some(target.clone()),
        task: Some(*task_id),
        escalation: Some(*first),
        ..Attention::new(AttentionKind::Escalated, Severity::Critical, *since, sentence)
    };
    item.remedy(
        "Decides on the oldest: retry, reassign, rollback, complete or cancel.",
        format!("handoffd escalations resolve {first} --action retry --reason TEXT"),
        format!("POST /escalations/{first}/resolve"),
    )
}

fn dead_lettered(one: &OpenDeadLetters, now: Micros) -> Attention {
    let OpenDeadLetters { source, reason, count, first, task_id, since } = one;
    let sentence = format!(
        "The gate refused {} of {source} ({reason}); a person has had to decide for {}.",
        counted(*count, "message"),
        age(*since, now),
    );
    let item = Attention {
        count: *count,
        last_error: Some(reason.clone()),
        agent: Some(source.clone()),
        task: Some(*task_id),
        dead_letter: Some(*first),
        ..Attention::new(AttentionKind::DeadLettered, Severity::Critical, *since, sentence)
    };
    item.remedy(
        "Delivers the oldest message in spite of the finding.",
        format!("handoffd dead-letters release {first} --reason TEXT"),
        format!("POST /dead-letters/{first}/release"),
    )
    .remedy(
        "Ends the oldest message; its sender may submit another one.",
        format!("handoffd dead-letters discard {first} --reason TEXT"),
        format!("POST /dead-letters/{first}/discard"),
    )
}

/// Deliveries that wait for one receiver; `None` where they are on their way as they should be.
fn queue(one: &WaitingDeliveries, at: &TenantSituation) -> Option<Attention> {
    let now = at.now;
    let item = match at.agents.get(&one.target) {
        None => deleted(one, now),
        Some(agent) if agent.state == AgentState::Paused => paused(one, now),
        Some(agent) if agent.disabled && !agent.pulls => disabled(one, now),
        // In the item of the transport.
        Some(agent) if agent.is_cut_off() => return None,
        Some(AgentSituation { pulls: false, breaker: Some(breaker), .. }) => {
            let waiting = held_up(one, now);
            Attention {
                since: one.since.min(breaker.since),
                ..open_breaker(&one.target, breaker, &waiting, now)
            }
        }
        _ if !is_older(one.since, now, LISTED_AFTER_US) => return None,
        Some(agent) if agent.pulls => not_fetched(one, agent, now),
        Some(_) if one.attempts > 0 => failing(one, now),
        // An attempt is due: the broker makes it.
        Some(_) => return None,
    };
    Some(Attention {
        count: one.count,
        attempts: one.attempts,
        last_error: item.last_error.clone().or_else(|| one.last_error.clone()),
        agent: Some(one.target.clone()),
        task: Some(one.task_id),
        handoff: Some(one.first),
        ..item
    })
}

/// `3 handoffs wait for it, the oldest for 20 min`.
fn held_up(one: &WaitingDeliveries, now: Micros) -> String {
    let oldest = if one.count == 1 { "" } else { ", the oldest" };
    let waiting = counted(one.count, "handoff");
    format!("{waiting} {} for it{oldest} for {}", verb(one.count), age(one.since, now))
}

fn deleted(one: &WaitingDeliveries, now: Micros) -> Attention {
    let sentence = format!("No agent has the id {} any more; {}.", one.target, held_up(one, now));
    let task = one.task_id;
    Attention::new(AttentionKind::ReceiverDeleted, Severity::Critical, one.since, sentence).remedy(
        "Cancels the oldest task.",
        format!("handoffd tasks cancel {task} --reason TEXT"),
        format!("POST /tasks/{task}/cancel"),
    )
}

fn paused(one: &WaitingDeliveries, now: Micros) -> Attention {
    let target = &one.target;
    let long = is_older(one.since, now, LONG_AFTER_US);
    let severity = if long { Severity::Warning } else { Severity::Notice };
    let sentence = format!("{target} is paused; {}.", held_up(one, now));
    Attention::new(AttentionKind::ReceiverPaused, severity, one.since, sentence).remedy(
        "Lets the agent take handoffs again.",
        format!("handoffd agents resume {target}"),
        format!("PATCH /agents/{target}"),
    )
}

fn enabling(item: Attention, target: &AgentId) -> Attention {
    item.remedy(
        "Takes the endpoint into service again.",
        format!("handoffd agents change {target} --webhook URL"),
        format!("PATCH /agents/{target}"),
    )
}

fn disabled(one: &WaitingDeliveries, now: Micros) -> Attention {
    let target = &one.target;
    let sentence =
        format!("The endpoint of {target} is disabled after failures; {}.", held_up(one, now));
    let kind = AttentionKind::EndpointDisabled;
    enabling(Attention::new(kind, Severity::Critical, one.since, sentence), target)
}

/// A disabled endpoint for which nothing waits yet.
fn unused_endpoint(
    id: &AgentId,
    agent: &AgentSituation,
    waiting: &[WaitingDeliveries],
) -> Option<Attention> {
    let waits = waiting.iter().any(|one| one.target == *id);
    if !agent.disabled || agent.pulls || waits {
        return None;
    }
    let sentence =
        format!("The endpoint of {id} is disabled after failures; no handoff waits for it.");
    let kind = AttentionKind::EndpointDisabled;
    let item = Attention {
        agent: Some(id.clone()),
        ..Attention::new(kind, Severity::Warning, agent.changed_at, sentence)
    };
    Some(enabling(item, id))
}

fn not_fetched(one: &WaitingDeliveries, agent: &AgentSituation, now: Micros) -> Attention {
    let target = &one.target;
    let held_up = held_up(one, now);
    let sentence = match agent.key_used_at {
        None => format!("{target} has never polled; {held_up}."),
        Some(at) if is_older(at, now, LISTED_AFTER_US) => {
            format!("{target} has not polled for {}; {held_up}.", age(at, now))
        }
        Some(_) => format!("{target} makes requests and does not fetch its handoffs; {held_up}."),
    };
    let late = is_older(one.since, now, LATE_AFTER_US);
    let severity = if late { Severity::Warning } else { Severity::Notice };
    Attention::new(AttentionKind::NotFetched, severity, one.since, sentence).remedy(
        "Holds the handoffs without a time limit until the agent is resumed.",
        format!("handoffd agents pause {target}"),
        format!("PATCH /agents/{target}"),
    )
}

fn failing(one: &WaitingDeliveries, now: Micros) -> Attention {
    let target = &one.target;
    let reason = one.last_error.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
    let tried = if one.attempts == 1 { "An attempt" } else { "Attempts" };
    let sentence = format!("{tried} at {target} failed{reason}; {}.", held_up(one, now));
    let next = NextEvent { at: one.visible_at, event: "The broker tries again." };
    let item = Attention {
        next: (one.visible_at > now).then_some(next),
        ..Attention::new(AttentionKind::DeliveryFailing, Severity::Warning, one.since, sentence)
    };
    item.remedy(
        "Holds the handoffs without a time limit until the agent is resumed.",
        format!("handoffd agents pause {target}"),
        format!("PATCH /agents/{target}"),
    )
}

/// Tasks that wait for their holder; `None` for young ones.
fn idle(one: &IdleTasks, now: Micros) -> Option<Attention> {
    let IdleTasks { holder, used_up, count, first, since } = one;
    let (tasks, waited) = (counted(*count, "task"), age(*since, now));
    let oldest = if *count == 1 { "" } else { "the oldest " };
    let item = if *used_up {
        let sentence = format!(
            "Nothing is left of the budget of {tasks} with {holder}; no handoff is open, {oldest}for {waited}."
        );
        Attention::new(AttentionKind::BudgetUsedUp, Severity::Critical, *since, sentence).remedy(
            "Adds to the oldest task's budget.",
            format!("handoffd tasks top-up {first} --add-usd USD --reason TEXT"),
            format!("POST /tasks/{first}/budget"),
        )
    } else if is_older(*since, now, LISTED_AFTER_US) {
        let long = is_older(*since, now, LONG_AFTER_US);
        let severity = if long { Severity::Warning } else { Severity::Notice };
        let sentence =
            format!("{holder} has {tasks} back and has not handed on, {oldest}for {waited}.");
        Attention::new(AttentionKind::TasksIdle, severity, *since, sentence)
    } else {
        return None;
    };
    let item = Attention { count: *count, agent: Some(holder.clone()), task: Some(*first), ..item };
    Some(item.remedy(
        "Cancels the oldest task.",
        format!("handoffd tasks cancel {first} --reason TEXT"),
        format!("POST /tasks/{first}/cancel"),
    ))
}

fn cap(one: &UsedUpCap) -> Attention {
    let UsedUpCap { agent, window, money, since } = one;
    let whose = match agent {
        Some(agent) => format!("The cap of {agent}"),
        None => "The tenant's cap".to_owned(),
    };
    let used = match money {
        Some((used, limit)) => format!("{used} of {limit} USD"),
        None => "all of its tokens".to_owned(),
    };
    let sentence = format!("{whose} for {window} has no room: {used} are used or reserved.");
    let option = agent.as_ref().map(|id| format!(" --agent {id}")).unwrap_or_default();
    let query = agent.as_ref().map(|id| format!("?agentId={id}")).unwrap_or_default();
    let item = Attention {
        agent: agent.clone(),
        ..Attention::new(AttentionKind::CapUsedUp, Severity::Warning, *since, sentence)
    };
    item.remedy(
        "Raises the cap.",
        format!("handoffd caps set {window}{option} --usd USD"),
        format!("PUT /caps/{window}{query}"),
    )
}

fn subscription(one: &DisabledSubscription, now: Micros) -> Attention {
    let DisabledSubscription { id, reason, since } = one;
    let sentence = format!(
        "The broker disabled the subscription {id} ({reason}); nothing has been sent to it for {}.",
        age(*since, now)
    );
    let item = Attention {
        last_error: Some(reason.clone()),
        subscription: Some(*id),
        ..Attention::new(AttentionKind::SubscriptionDisabled, Severity::Warning, *since, sentence)
    };
    item.remedy(
        "Switches it on again.",
        format!("handoffd subscriptions change {id} --enabled true"),
        format!("PATCH /subscriptions/{id}"),
    )
}

#[cfg(test)]
mod tests;
