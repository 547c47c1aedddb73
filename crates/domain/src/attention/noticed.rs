//! Items about open breakers, tasks without movement, open questions and late tree heads.

use std::collections::BTreeMap;

use super::{
    AgentSituation, Attention, AttentionKind, LISTED_AFTER_US, LONG_AFTER_US, OpenBreaker,
    Severity, TRANSPORT_AWAY, TenantSituation, age, counted, is_older, verb,
};
use crate::agent::AgentState;
use crate::ids::{AgentId, Micros};
use crate::waits::{IdleTasks, LateHead, OpenQuestions, WaitingDeliveries};
use crate::why::NextEvent;

/// The open breakers of a receiver, and how its handoffs wait, in words.
pub(super) fn open_breaker(
    id: &AgentId,
    breaker: &OpenBreaker,
    waiting: &str,
    now: Micros,
) -> Attention {
    let OpenBreaker { brokers, since, reason } = breaker;
    let whose =
        if *brokers == 1 { "1 broker has".to_owned() } else { format!("{brokers} brokers have") };
    let reason_words = reason.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
    let sentence = format!(
        "{whose} sent {id} single probes alone for {}, after failures in a row{reason_words}; {waiting}.",
        age(*since, now)
    );
    let item = Attention {
        last_error: reason.clone(),
        ..Attention::new(AttentionKind::BreakerOpen, Severity::Warning, *since, sentence)
    };
    item.remedy(
        "Shows the breakers, the last failure and the latency of the receiver.",
        format!("handoffd receivers show {id}"),
        format!("GET /receivers/{id}"),
    )
    .remedy(
        "Holds the handoffs without a time limit until the agent is resumed.",
        format!("handoffd agents pause {id}"),
        format!("PATCH /agents/{id}"),
    )
}

/// An open breaker of a receiver that no handoff waits for.
pub(super) fn unused_breaker(
    id: &AgentId,
    agent: &AgentSituation,
    waiting: &[WaitingDeliveries],
    now: Micros,
) -> Option<Attention> {
    let breaker = agent.breaker.as_ref()?;
    let waits = waiting.iter().any(|one| one.target == *id);
    let paused = agent.state == AgentState::Paused;
    if waits || agent.pulls || agent.disabled || paused || agent.is_cut_off() {
        return None;
    }
    let item = open_breaker(id, breaker, "no handoff waits for it", now);
    Some(Attention { agent: Some(id.clone()), ..item })
}

/// Each transport that is away, with the receivers that get nothing by it and their handoffs.
pub(super) fn transports_away(
    waiting: &[WaitingDeliveries],
    at: &TenantSituation,
) -> Vec<Attention> {
    let mut away = BTreeMap::<&str, Vec<(&AgentId, &OpenBreaker)>>::new();
    for (id, agent) in &at.agents {
        if let Some(breaker) = agent.breaker.as_ref().filter(|_| agent.is_cut_off()) {
            away.entry(agent.transport).or_default().push((id, breaker));
        }
    }
    let item = |(transport, receivers): (&str, Vec<(&AgentId, &OpenBreaker)>)| {
        let agents: Vec<AgentId> = receivers.iter().map(|(id, _)| (*id).clone()).collect();
        let opened = receivers.iter().map(|(_, breaker)| breaker.since).min().unwrap_or(at.now);
        let of_these = waiting.iter().filter(|one| agents.contains(&one.target));
        let held = of_these.cloned().reduce(|all, one| all.with(&one));
        let since = held.as_ref().map_or(opened, |held| held.since.min(opened));
        let whose = match agents.as_slice() {
            [only] => format!("{only} gets nothing"),
            several => format!("{} receivers get nothing", several.len()),
        };
        let waits = held.as_ref().map_or_else(
            || "no handoff waits".to_owned(),
            |held| {
                let oldest = if held.count == 1 { "" } else { ", the oldest" };
                let (handoffs, verb) = (counted(held.count, "handoff"), verb(held.count));
                format!("{handoffs} {verb}{oldest} for {}", age(held.since, at.now))
            },
        );
        let sentence = format!(
            "The transport {transport} has been away for {}: its servers cannot be reached, do not answer in time, are full, or refuse the broker; {whose}; {waits}.",
            age(opened, at.now)
        );
        let item = Attention {
            count: held.as_ref().map_or(0, |held| held.count),
            attempts: held.as_ref().map_or(0, |held| held.attempts),
            last_error: Some(TRANSPORT_AWAY.to_owned()),
            agent: agents.first().filter(|_| agents.len() == 1).cloned(),
            task: held.as_ref().map(|held| held.task_id),
            handoff: held.as_ref().map(|held| held.first),
            ..Attention::new(AttentionKind::TransportAway, Severity::Warning, since, sentence)
        };
        let first = &agents[0];
        let item = item.remedy(
            "Shows the breakers and the last failure of the first receiver.",
            format!("handoffd receivers show {first}"),
            format!("GET /receivers/{first}"),
        );
        Attention { agents, ..item }
    };
    away.into_iter().map(item).collect()
}

/// Tasks that run and have no open handoff; `None` for young ones.
pub(super) fn still(one: &IdleTasks, now: Micros) -> Option<Attention> {
    let IdleTasks { holder, count, first, since, .. } = one;
    let severity = severity(*since, now)?;
    let (tasks, waited) = (counted(*count, "task"), age(*since, now));
    let oldest = if *count == 1 { "" } else { "the oldest " };
    let sentence = format!(
        "{holder} runs {tasks} and has neither handed on nor completed; no handoff is open, {oldest}for {waited}."
    );
    let item = Attention::new(AttentionKind::TasksUnmoved, severity, *since, sentence);
    let item = Attention { count: *count, agent: Some(holder.clone()), task: Some(*first), ..item };
    let item = item.remedy(
        "Completes the oldest task.",
        format!("handoffd tasks complete {first}"),
        format!("POST /tasks/{first}/complete"),
    );
    Some(item.remedy(
        "Cancels the oldest task.",
        format!("handoffd tasks cancel {first} --reason TEXT"),
        format!("POST /tasks/{first}/cancel"),
    ))
}

/// Questions that one agent has not answered; `None` for young ones.
pub(super) fn question(one: &OpenQuestions, now: Micros) -> Option<Attention> {
    let OpenQuestions { sender, count, first, task_id, asked_by, since, due_at } = one;
    let severity = severity(*since, now)?;
    let waited = age(*since, now);
    let sentence = if *count == 1 {
        format!("{sender} has not answered a question of {asked_by} for {waited}.")
    } else {
        format!(
            "{sender} has not answered {count} questions; {asked_by} has waited longest, for {waited}."
        )
    };
    let event = "The handoff expires without an answer.";
    let item = Attention {
        count: *count,
        next: due_at.map(|at| NextEvent { at, event }),
        agent: Some(sender.clone()),
        task: Some(*task_id),
        handoff: Some(*first),
        ..Attention::new(AttentionKind::QuestionOpen, severity, *since, sentence)
    };
    let item = item.remedy(
        "Shows the oldest question.",
        format!("handoffd handoffs show {first}"),
        format!("GET /handoffs/{first}?include=questions"),
    );
    Some(item.remedy(
        "Cancels the task of the oldest question.",
        format!("handoffd tasks cancel {task_id} --reason TEXT"),
        format!("POST /tasks/{task_id}/cancel"),
    ))
}

/// How soon to look at what waits for an agent; `None` where it is too early.
const fn severity(since: Micros, now: Micros) -> Option<Severity> {
    if is_older(since, now, LONG_AFTER_US) {
        Some(Severity::Warning)
    } else if is_older(since, now, LISTED_AFTER_US) {
        Some(Severity::Notice)
    } else {
        None
    }
}

pub(super) fn late_head(one: &LateHead, now: Micros) -> Attention {
    let LateHead { place, published, size, since } = one;
    let sentence = format!(
        "A place outside the database ({place}) lacks records of the log for {}: its last tree head covers {published} of {size}.",
        age(*since, now)
    );
    let item = Attention {
        last_error: Some((*place).to_owned()),
        ..Attention::new(AttentionKind::TreeHeadLate, Severity::Warning, *since, sentence)
    };
    item.remedy(
        "Shows the present tree head, to be kept in another place.",
        "curl BROKER/audit/checkpoint".to_owned(),
        "GET /audit/checkpoint".to_owned(),
    )
}
