//! Recovery, escalations, the loop guard, the budget relay, cancel and dead letters, decided.

use super::commands::{
    AnyCommand, AnyReply, CancelTask, CompleteTask, Counted, Discard, KeepDeadLetter, Outcome,
    Refuse, Release, Resolve, RestoreCheckpoint, TopUp, VerdictKind,
};
use super::decide_tests::{
    Order, apply as decided, command, content_of, expire, handoff, handoff_reply, party, settle,
    submission_reply, submit, tenant, uuid, verdict,
};
use super::reply::{DeadLetterReply, HandoffReply, LedgerError, SubmissionReply};
use handoffd_domain::agent::Agent;
use handoffd_domain::course::Returned;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::{Escalation, EscalationStatus, Resolution};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::handoff::{
    CheckpointRef, Handoff, HandoffCommit, HandoffDraft, HandoffStatus, Priority,
};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, Micros, TaskId};
use handoffd_domain::lineage::reached;
use handoffd_domain::money::Usd;
use handoffd_domain::policy::{EdgePolicy, HumanTarget, LoopGuard, Recovery};
use handoffd_domain::ruling::Ruling;
use handoffd_domain::stream::Stream;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_domain::window::{
    ContextAction, ContextFacts, ContextParts, ContextPolicy, Tokenizer,
};
use handoffd_store::store::{AgentRow, BatchState, DeadLetterRow, Needs};

mod endings;
mod escalations;
mod fallbacks;
mod loops;
mod relay;
mod releases;
mod totality;

const TASK: u8 = 100;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

/// Decides a command; a handoff without a parent follows what reached its sender last.
fn apply(state: BatchState, said: &Order) -> (BatchState, Result<AnyReply, LedgerError>, usize) {
    let mut said = said.clone();
    let last = |source: &AgentId| {
        let own = state.handoffs.values().filter(|one| reached(one, source));
        own.max_by_key(|one| (one.accepted_at, one.fencing_token)).map(|one| one.id)
    };
    match &mut said.command {
        AnyCommand::Submit(submit) if submit.handoff.parent_id.is_none() => {
            submit.handoff.parent_id = last(&submit.handoff.source);
        }
        AnyCommand::Release(release) => {
            let key = (tenant(), release.handoff_id);
            let parent = last(&release.source);
            let mut state = state;
            if let Some(kept) = state.handoffs.get_mut(&key) {
                kept.parent_id = parent;
            }
            return decided(state, &said);
        }
        _ => {}
    }
    decided(state, &said)
}

/// Agents that are there.
fn with_agents(mut state: BatchState, names: &[&str]) -> BatchState {
    for name in names {
        let row = AgentRow {
            tenant: tenant(),
            agent: Agent::new(agent(name)),
            secrets: String::new(),
            created_at: Micros(0),
            updated_at: Micros(0),
        };
        state.agents.insert((tenant(), agent(name)), row);
    }
    state
}

/// A submission under rules of its own.
fn ruled(id: u8, at: i64, ruling: Ruling) -> Order {
    between(id, at, "a", "b", |handoff| handoff.ruling = Some(Box::new(ruling)))
}

fn between(id: u8, at: i64, from: &str, to: &str, more: impl FnOnce(&mut HandoffDraft)) -> Order {
    let mut made = submit(id, TASK, at);
    if let AnyCommand::Submit(submit) = &mut made.command {
        submit.handoff.source = agent(from);
        submit.handoff.target = agent(to);
        submit.handoff.source_execution = ExecutionId(uuid(from.as_bytes()[0]));
        more(&mut submit.handoff);
    }
    made
}

fn completing(mut made: Order, completed: i64) -> Order {
    if let AnyCommand::Submit(submit) = &mut made.command {
        submit.subtasks = (0..completed.unsigned_abs()).collect();
    }
    made
}

fn task(state: &BatchState) -> &Task {
    &state.tasks[&(tenant(), TaskId(uuid(TASK)))]
}

fn of(state: &BatchState, id: u8) -> &Handoff {
    &state.handoffs[&(tenant(), HandoffId(uuid(id)))]
}

/// The handoff that replaces another.
fn child_of(state: &BatchState, id: HandoffId) -> &Handoff {
    state.handoffs.values().find(|one| one.parent_id == Some(id)).expect("no child")
}

fn escalations(state: &BatchState) -> Vec<&Escalation> {
    state.escalations.values().collect()
}

fn well(state: BatchState, command: &Order) -> BatchState {
    let (state, reply, _) = apply(state, command);
    assert!(reply.is_ok(), "{reply:?}");
    state
}

/// Accepts and hands on: from `from` to `to` and taken there.
fn hop(state: BatchState, id: u8, at: i64, from: &str, to: &str, completed: i64) -> BatchState {
    let state = well(state, &completing(between(id, at, from, to, |_| {}), completed));
    let attempt = of(&state, id).attempts;
    well(state, &settle(id, TASK, at, attempt, Outcome::Accepted))
}

fn no(id: u8, at: i64) -> Order {
    settle(id, TASK, at, 1, Outcome::Rejected("NO".to_owned()))
}

fn on(recovery: &Recovery) -> Ruling {
    let edge = EdgePolicy {
        on_reject: recovery.clone(),
        on_timeout: recovery.clone(),
        on_error: recovery.clone(),
        ..EdgePolicy::default()
    };
    Ruling { edge, ..Ruling::default() }
}

fn reject(state: &BatchState, id: HandoffId, at: i64) -> Order {
    let handoff = &state.handoffs[&(tenant(), id)];
    command(
        at,
        super::commands::Verdict {
            task_id: handoff.task_id,
            handoff_id: id,
            kind: VerdictKind::Reject("NO".to_owned()),
            fencing_token: handoff.fencing_token,
            content: None,
            spent: None,
            said_at: Micros(at),
            interval_ms: None,
            lease_until: Micros(9),
        },
    )
}

fn asked() -> BatchState {
    let mut ruling = on(&Recovery::Human);
    ruling.edge.human = Some(HumanTarget {
        target: false,
        channel: Some("desk".to_owned()),
        timeout_ms: Some(1),
        resume_as: Some(agent("night")),
    });
    let state = with_agents(BatchState::default(), &["a", "b", "c", "night"]);
    let state = well(state, &ruled(0, 0, ruling));
    well(state, &no(0, 1))
}

fn resolve(state: &BatchState, at: i64, resolution: Option<Resolution>) -> Order {
    let row = escalations(state)[0];
    command(
        at,
        Resolve {
            escalation_id: row.id,
            task_id: row.task_id,
            handoff_id: row.handoff_id,
            agents: Vec::new(),
            edge: None,
            resolution,
            content: None,
        },
    )
}

fn codes(reply: &Result<AnyReply, LedgerError>) -> Vec<Code> {
    match reply {
        Ok(
            AnyReply::Submit(SubmissionReply::Refused { failures, .. })
            | AnyReply::Refuse(SubmissionReply::Refused { failures, .. }),
        ) => failures.iter().map(|found| found.code).collect(),
        other => panic!("{other:?}"),
    }
}

fn cancel(at: i64, by: Option<&str>, grace: i64) -> Order {
    command(
        at,
        CancelTask {
            task_id: TaskId(uuid(TASK)),
            by: by.map(agent),
            grace_until: Micros(at + grace),
            content: content_of(8),
        },
    )
}

fn complete(at: i64) -> Order {
    command(at, CompleteTask { task_id: TaskId(uuid(TASK)), by: None, content: content_of(8) })
}

fn letter(state: BatchState) -> BatchState {
    let mut state = hop(state, 0, 0, "x", "a", 1);
    let draft = HandoffDraft { status: HandoffStatus::DeadLettered, ..handoff(5, TASK) };
    let content = content_of(5);
    let kept = draft.committed(HandoffCommit {
        content: (content.id, content.part.commitment),
        checkpoint: None,
        fencing_token: 0,
        topped_up: Usd(0),
    });
    // It was compressed for the receiver of before.
    let kept = Handoff { sent_id: Some(content_of(7).id), ..kept };
    state.handoffs.insert((tenant(), kept.id), kept.clone());
    state.dead_letters.insert(
        (tenant(), kept.id),
        DeadLetterRow {
            tenant: tenant(),
            handoff_id: kept.id,
            task_id: kept.task_id,
            source: kept.source,
            target: Some(kept.target),
            reason: "SAFETY_VIOLATION".to_owned(),
            failures: vec![found()],
            status: DeadLetterStatus::Open,
            created_at: Micros(0),
            resolved_at: None,
            resolved_by: None,
        },
    );
    state
}

fn found() -> Failure {
    Failure::new(Stage::Safety, Code::SafetyViolation, "/taskDescription", "Rule `x` fired")
}

fn release(id: u8, at: i64, waived: Vec<Failure>, refused: Vec<Failure>) -> Order {
    let (handoff_id, task_id, content) = (HandoffId(uuid(id)), TaskId(uuid(TASK)), content_of(6));
    if !refused.is_empty() {
        let keep = KeepDeadLetter { handoff_id, task_id, waived, refused, content };
        return command(at, keep);
    }
    let release = Release {
        handoff_id,
        task_id,
        source: agent("a"),
        parent_id: None,
        idempotent: true,
        declared_budget: None,
        target: Agent::new(agent("b")),
        ruling: None,
        priority: Priority::Normal,
        subtasks: vec![1, 2, 3, 4, 5],
        residency: None,
        context: None,
        safety: None,
        repeat: None,
        waived,
        content,
    };
    command(at, release)
}
