//! The decision, run over many random histories: whatever is said in whatever order, what is recorded
//! stays consistent.

use std::time::Duration;

use proptest::prelude::*;

use super::command::Call;
use super::commands::{
    AnyCommand, AnyReply, CancelTask, Expire, Outcome, PutCheckpoint, Queued, Resolve, Settle,
    Submit, Verdict, VerdictKind,
};
use super::context::{Context, DispatcherClaim, Rules, Spare};
use super::plan::{Decision, Plan};
use super::reply::{HandoffReply, LedgerError, Noted, SubmissionReply};
use handoffd_domain::escalation::Resolution;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::{
    Cost, DeliveryMode, HANDED_ON, HandoffDraft, HandoffStatus, Priority,
};
use handoffd_domain::ids::{ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::latency::{LatencyClock, LatencySample};
use handoffd_domain::money::Usd;
use handoffd_domain::policy::{EdgePolicy, Recovery};
use handoffd_domain::ruling::Ruling;
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_evidence::record::{Actor, RecordContent, RecordParty};
use handoffd_store::store::BatchState;

/// A command with its call.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) call: Call,
    pub(super) command: AnyCommand,
}

pub(super) fn decide(state: &BatchState, order: &Order, context: &Context) -> Decision<AnyReply> {
    super::decide::decide(state, (&order.call, &order.command), context)
}

pub(super) fn handoff_reply(reply: &Result<AnyReply, LedgerError>) -> Option<&HandoffReply> {
    reply.as_ref().ok()?.handoff()
}

pub(super) fn submission_reply(reply: &Result<AnyReply, LedgerError>) -> Option<&SubmissionReply> {
    reply.as_ref().ok()?.submission()
}

/// Whether the attempt was no longer the current one.
pub(super) fn is_superseded(reply: &AnyReply) -> bool {
    matches!(
        reply,
        AnyReply::Settle(None)
            | AnyReply::Lease(None)
            | AnyReply::Compress(Noted::Superseded)
            | AnyReply::RecordOpinion(Noted::Superseded)
    )
}

pub(super) fn tenant() -> TenantId {
    "t".parse().unwrap()
}

pub(super) fn uuid(n: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([n; 16])
}

pub(super) fn part(text: &str) -> PackedContent {
    PackedContent::new(CommitmentSubject::Message, [1; 16], text.as_bytes())
}

pub(super) fn party() -> RecordParty {
    RecordParty {
        agent_id: None,
        agent_type: None,
        agent_version: None,
        execution_id: None,
        registered_version: None,
    }
}

pub(super) fn handoff(id: u8, task: u8) -> HandoffDraft {
    HandoffDraft {
        tenant: tenant(),
        id: HandoffId(uuid(id)),
        task_id: TaskId(uuid(task)),
        parent_id: None,
        source: "a".parse().unwrap(),
        source_version: "1.0.0".to_owned(),
        source_execution: ExecutionId(uuid(9)),
        target: "b".parse().unwrap(),
        target_type: "b".to_owned(),
        target_version: "1.0.0".to_owned(),
        mode: DeliveryMode::Webhook,
        status: HandoffStatus::Pending,
        cost: Cost { spent: Usd(1), remaining: Usd(1), prompt_tokens: 0, completion_tokens: 0 },
        idempotent: true,
        ruling: None,
        context: None,
        conversation_id: None,
        user_ref: None,
        stream: None,
        digest_salt: vec![2; 16],
        digest: commit(CommitmentSubject::Submission, &[2; 16], &[id]).to_vec(),
        traceparent: String::new(),
        tracestate: String::new(),
        span: String::new(),
        created_at: Micros(0),
        clock: LatencyClock::starting(Micros(0)),
    }
}

pub(super) fn submit(id: u8, task: u8, at: i64) -> Order {
    command(
        at,
        Submit {
            handoff: handoff(id, task),
            from: party(),
            to: party(),
            content: RecordContent { id: ContentId(uuid(id)), part: part("m") },
            checkpoint: Some(part("c")),
            implied_checkpoint: part("i"),
            require_checkpoint: false,
            priority: Priority::Normal,
            policy: handoffd_domain::policy::EdgePolicy::default(),
            repeat: None,
            personal: Vec::new(),
            whole: vec![id],
            idempotency_key: None,
            fencing_token: None,
            has_part: true,
            subtasks: Vec::new(),
            declared_budget: None,
            refusal_salt: [0; 16],
            safety: None,
            residency: None,
        },
    )
}

pub(super) fn command(at: i64, command: impl Queued) -> Order {
    let call = Call { tenant: tenant(), at: Micros(at), actor: Actor::broker() };
    Order { call, command: command.into_any() }
}

pub(super) fn verdict(id: u8, task: u8, at: i64, token: i64, kind: VerdictKind) -> Order {
    command(
        at,
        Verdict {
            task_id: TaskId(uuid(task)),
            handoff_id: HandoffId(uuid(id)),
            kind,
            fencing_token: token,
            content: None,
            spent: None,
            said_at: Micros(at),
            interval_ms: None,
            lease_until: Micros(at).plus(Duration::from_secs(1)),
        },
    )
}

pub(super) fn settle(id: u8, task: u8, at: i64, attempt: i32, outcome: Outcome) -> Order {
    command(
        at,
        Settle {
            task_id: TaskId(uuid(task)),
            handoff_id: HandoffId(uuid(id)),
            attempt,
            begun_at: Some(Micros(at)),
            outcome,
            content: None,
            lease_until: Micros(at).plus(Duration::from_secs(1)),
            row: None,
        },
    )
}

pub(super) fn content_of(id: u8) -> RecordContent {
    RecordContent { id: ContentId(uuid(id)), part: part("words") }
}

pub(super) fn expire(id: u8, task: u8, at: i64) -> Order {
    let (task_id, handoff_id) = (TaskId(uuid(task)), HandoffId(uuid(id)));
    command(at, Expire { task_id, handoff_id })
}

/// The claim of a dispatcher that has a slot for a submission.
pub(super) fn claim_of(command: &Order) -> Option<DispatcherClaim> {
    let until = Micros(command.call.at.0 + 1_000);
    let claim = DispatcherClaim { broker: "broker".to_owned(), until };
    matches!(command.command, AnyCommand::Submit(_)).then_some(claim)
}

/// The default rules, fresh ids, and a slot for a submission.
pub(super) fn context(command: &Order) -> Context {
    Context {
        rules: Rules::default(),
        spare: Spare::new(Micros(0)),
        waited: Duration::from_micros(3),
        claim: claim_of(command),
    }
}

pub(super) fn apply(
    state: BatchState,
    command: &Order,
) -> (BatchState, Result<AnyReply, LedgerError>, usize) {
    apply_in(state, command, &context(command))
}

fn apply_in(
    state: BatchState,
    command: &Order,
    context: &Context,
) -> (BatchState, Result<AnyReply, LedgerError>, usize) {
    let mut plan = Plan::new(state);
    match decide(&plan.state, command, context) {
        Ok((changes, reply)) => {
            plan.apply(changes);
            let records = plan.writes.records.len();
            (plan.state, Ok(reply), records)
        }
        Err(err) => (plan.state, Err(err), 0),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Submit { id: u8, claimed: bool, completed: i64, recovery: Recovery },
    Say { id: u8, word: VerdictKind, stale: bool },
    Settle { id: u8, attempt: i32, outcome: Outcome },
    Expire { id: u8 },
    Cancel { task: u8, grace: i64 },
    Resolve { task: u8, resolution: Option<Resolution> },
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..6u8;
    let word = prop_oneof![
        Just(VerdictKind::Accept),
        Just(VerdictKind::Reject("NO".to_owned())),
        Just(VerdictKind::Complete),
        Just(VerdictKind::Fail("free text".to_owned())),
        Just(VerdictKind::Heartbeat),
    ];
    let recovery = prop_oneof![
        Just(Recovery::Source),
        Just(Recovery::Human),
        Just(Recovery::Agent("c".parse().unwrap())),
    ];
    let resolution = prop_oneof![
        Just(None),
        Just(Some(Resolution::Retry)),
        Just(Some(Resolution::RollBack)),
        Just(Some(Resolution::Reassign("c".parse().unwrap()))),
        Just(Some(Resolution::Complete)),
    ];
    let outcome = prop_oneof![
        Just(Outcome::Accepted),
        Just(Outcome::Rejected("NO".to_owned())),
        Just(Outcome::Received { verdict_by: Micros(50) }),
        Just(Outcome::Retry {
            at: Micros(5),
            why: "W".to_owned(),
            busy: true,
            verdict_by: Some(Micros(60)),
        }),
        Just(Outcome::GivenUp { why: "W".to_owned() }),
        Just(Outcome::Expired),
        Just(Outcome::Unclaimed),
    ];
    prop_oneof![
        (id.clone(), any::<bool>(), 0..6i64, recovery).prop_map(
            |(id, claimed, completed, recovery)| Step::Submit { id, claimed, completed, recovery }
        ),
        (0..2u8, 0..20i64).prop_map(|(task, grace)| Step::Cancel { task: 100 + task, grace }),
        (0..2u8, resolution)
            .prop_map(|(task, resolution)| Step::Resolve { task: 100 + task, resolution }),
        (id.clone(), word, any::<bool>()).prop_map(|(id, word, stale)| Step::Say {
            id,
            word,
            stale
        }),
        (id.clone(), 0..3i32, outcome).prop_map(|(id, attempt, outcome)| Step::Settle {
            id,
            attempt,
            outcome
        }),
        id.prop_map(|id| Step::Expire { id }),
    ]
}

/// Handoffs 0 to 2 are on one task, 3 to 5 on another.
const fn task_of(id: u8) -> u8 {
    100 + id / 3
}

fn check(before: &BatchState, after: &BatchState) {
    for (key, task) in &after.tasks {
        let asked = after.escalations.values().filter(|row| row.task_id == key.1 && row.is_open());
        let escalated = task.status == TaskStatus::Escalated;
        assert_eq!(asked.count(), usize::from(escalated), "one question while it waits");
        let waiting = after.outbox.values().filter(|row| row.task_id == key.1).count();
        assert_eq!(task.undelivered, i64::try_from(waiting).unwrap(), "undelivered is the outbox");
        if let Some(was) = before.tasks.get(key) {
            assert!(task.fence >= was.fence, "a fencing token never falls");
            if was.status.is_final() {
                assert_eq!(task.status, was.status, "an ended task stays ended");
            }
        }
    }
    for (key, handoff) in &after.handoffs {
        if let Some(was) = before.handoffs.get(key) {
            if was.status.is_final() && handoff.status != HandoffStatus::DeadLettered {
                assert_eq!(handoff.status, was.status, "an end is left by decision only");
            }
            assert_eq!(handoff.checkpoint, was.checkpoint, "its checkpoint is its own for good");
        }
        let waits = after.outbox.contains_key(key);
        assert!(!waits || handoff.status == HandoffStatus::Pending, "only the pending wait");
        if handoff.status.is_final() {
            assert!(handoff.ended_at.is_some() && handoff.deadline_at.is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_history_keeps_the_books_straight(steps in proptest::collection::vec(step(), 1..60)) {
        let mut state = BatchState::default();
        for name in ["a", "b", "c"] {
            let agent = handoffd_domain::agent::Agent::new(name.parse().unwrap());
            let row = handoffd_store::store::AgentRow {
                tenant: tenant(),
                secrets: String::new(),
                created_at: Micros(0),
                updated_at: Micros(0),
                agent: agent.clone(),
            };
            state.agents.insert((tenant(), agent.agent_id), row);
        }
        for (at, step) in steps.into_iter().enumerate() {
            let at = i64::try_from(at).unwrap();
            let full = matches!(step, Step::Submit { claimed: false, .. });
            let command = match step {
                Step::Submit { id, completed, recovery, .. } => {
                    let mut made = submit(id, task_of(id), at);
                    if let AnyCommand::Submit(submit) = &mut made.command {
                        submit.subtasks = (0..completed.unsigned_abs()).collect();
                        let edge = EdgePolicy { on_reject: recovery, ..EdgePolicy::default() };
                        submit.handoff.ruling =
                            Some(Box::new(Ruling { edge, ..Ruling::default() }));
                    }
                    made
                }
                Step::Cancel { task, grace } => command(at, CancelTask {
                    task_id: TaskId(uuid(task)),
                    by: None,
                    grace_until: Micros(at + grace),
                    content: content_of(9),
                }),
                Step::Resolve { task, resolution } => {
                    let open = state.escalations.values().find(|row| {
                        row.is_open() && row.task_id == TaskId(uuid(task))
                    });
                    let Some(row) = open else { continue };
                    let at = if resolution.is_none() { row.timeout_at.0 } else { at };
                    command(at, Resolve {
                        escalation_id: row.id,
                        task_id: row.task_id,
                        handoff_id: row.handoff_id,
                        agents: Vec::new(),
                        edge: None,
                            resolution,
                        content: None,
                    })
                }
                Step::Say { id, word, stale } => {
                    let token = state
                        .handoffs
                        .get(&(tenant(), HandoffId(uuid(id))))
                        .map_or(0, |handoff| handoff.fencing_token);
                    verdict(id, task_of(id), at, token - i64::from(stale), word)
                }
                Step::Settle { id, attempt, outcome } => settle(id, task_of(id), at, attempt, outcome),
                Step::Expire { id } => command(at, Expire {
                    task_id: TaskId(uuid(task_of(id))),
                    handoff_id: HandoffId(uuid(id)),
                }),
            };
            let before = state.clone();
            let mut context = context(&command);
            if full {
                context.claim = None;
            }
            let (after, reply, records) = apply_in(state, &command, &context);
            if reply.is_err() {
                prop_assert_eq!(records, 0, "who is refused leaves no trace");
            }
            let changed = after.handoffs.iter().any(|(key, handoff)| {
                before.handoffs.get(key).is_none_or(|was| was.status != handoff.status)
            });
            prop_assert!(!changed || records > 0, "no status changes without a record");
            check(&before, &after);
            state = after;
        }
    }
}

#[test]
fn a_stale_token_changes_nothing() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (after, reply, records) = apply(state.clone(), &verdict(0, 100, 1, 7, VerdictKind::Accept));
    assert!(matches!(reply, Err(LedgerError::StaleLease)));
    assert_eq!((records, &after.handoffs), (0, &state.handoffs));
}

#[test]
fn a_rejection_gives_the_task_back_to_its_checkpoint_in_one_step() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (after, reply, records) =
        apply(state, &settle(0, 100, 1, 1, Outcome::Rejected("free text of a person".to_owned())));
    assert!(reply.is_ok());
    let task = &after.tasks[&(tenant(), TaskId(uuid(100)))];
    assert_eq!((task.status, task.holder.as_str()), (TaskStatus::PendingHandoff, "a"));
    assert_eq!(task.checkpoint.unwrap().seq, 1);
    assert!(after.outbox.is_empty());
    assert_eq!(records, 2, "the rejection and the rollback");
}

#[test]
fn what_a_receiver_says_never_stands_in_a_record() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let mut plan = Plan::new(state);
    let said = settle(0, 100, 1, 1, Outcome::Rejected("Jane Roe, 12 Elm Street".to_owned()));
    let (changes, _) = decide(&plan.state, &said, &context(&said)).unwrap();
    plan.apply(changes);
    for record in &plan.writes.records {
        assert_eq!(record.reason.as_deref(), Some("REJECTED_BY_RECEIVER"));
    }
}

#[test]
fn books_are_written_where_they_changed_within_the_batch() {
    let same_budget = |state: BatchState, batch: &[Order]| {
        let mut plan = Plan::new(state);
        for command in batch {
            let (changes, _) = decide(&plan.state, command, &context(command)).unwrap();
            plan.apply(changes);
        }
        let key = (tenant(), TaskId(uuid(100)));
        assert!(plan.writes.tasks.contains_key(&key));
        (plan.writes.same_budget.contains(&key), plan.state)
    };
    let first = submit(0, 100, 0);
    let accepted = settle(0, 100, 1, 1, Outcome::Accepted);
    let (same, state) = same_budget(BatchState::default(), std::slice::from_ref(&first));
    assert!(!same, "a new task has none yet");
    assert!(!same_budget(BatchState::default(), &[first, accepted.clone()]).0);
    assert!(same_budget(state.clone(), std::slice::from_ref(&accepted)).0);
    let next = submit(1, 100, 2);
    assert!(!same_budget(state.clone(), std::slice::from_ref(&next)).0);
    assert!(!same_budget(state.clone(), &[accepted.clone(), next.clone()]).0);
    assert!(!same_budget(state, &[next, accepted]).0);
}

#[test]
fn the_second_handoff_of_a_task_waits_for_the_first() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (state, ..) = apply(state, &submit(1, 100, 1));
    let second = &state.outbox[&(tenant(), HandoffId(uuid(1)))];
    assert_eq!(
        (second.claimed_by.as_ref(), second.attempt),
        (None, 0),
        "not claimed, though offered"
    );
    let (_, reply, _) = apply(state, &settle(0, 100, 2, 1, Outcome::Accepted));
    assert!(
        matches!(handoff_reply(&reply), Some(HandoffReply { more: true, .. })),
        "the settling says so"
    );
}

#[test]
fn f1_3_who_handed_on_is_done_and_has_no_lease_that_runs_out() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (state, ..) = apply(state, &settle(0, 100, 1, 1, Outcome::Accepted));
    let mut onward = submit(1, 100, 2);
    if let AnyCommand::Submit(submit) = &mut onward.command {
        submit.handoff.source = "b".parse().unwrap();
        submit.handoff.source_execution = ExecutionId(uuid(8));
        submit.handoff.target = "c".parse().unwrap();
        submit.handoff.parent_id = Some(HandoffId(uuid(0)));
    }
    let (state, ..) = apply(state, &onward);
    let held = |state: &BatchState| state.handoffs[&(tenant(), HandoffId(uuid(0)))].clone();
    assert_eq!((held(&state).status, held(&state).deadline_at), (HandoffStatus::Accepted, None));
    let late =
        command(10_000_000, Expire { task_id: TaskId(uuid(100)), handoff_id: HandoffId(uuid(0)) });
    assert_eq!(apply(state.clone(), &late).2, 0, "no lease runs while it waits");
    let beat = verdict(0, 100, 3, held(&state).fencing_token, VerdictKind::Heartbeat);
    assert_eq!(held(&apply(state.clone(), &beat).0).deadline_at, None, "a heartbeat starts none");
    // The handoff that it handed on comes back: it has the task again, under a fresh lease that can run out.
    let (back, ..) = apply(state.clone(), &settle(1, 100, 3, 1, Outcome::Rejected("NO".into())));
    let fresh = Micros(3).plus(Rules::default().lease);
    assert_eq!(held(&back).deadline_at, Some(fresh));
    let over =
        command(fresh.0, Expire { task_id: TaskId(uuid(100)), handoff_id: HandoffId(uuid(0)) });
    let (over, reply, _) = apply(back, &over);
    assert!(matches!(handoff_reply(&reply), Some(HandoffReply { rolled_back: true, .. })));
    assert_eq!(over.tasks[&(tenant(), TaskId(uuid(100)))].holder.as_str(), "a");
    let (state, ..) = apply(state, &settle(1, 100, 3, 1, Outcome::Accepted));
    let done = held(&state);
    assert_eq!((done.status, done.reason.as_deref()), (HandoffStatus::Completed, Some(HANDED_ON)));
    let (after, _, records) = apply(state.clone(), &late);
    assert_eq!(records, 0, "nothing expires");
    // Its last word comes afterwards, and counts once.
    let mut last = verdict(0, 100, 9, done.fencing_token, VerdictKind::Complete);
    if let AnyCommand::Verdict(verdict) = &mut last.command {
        verdict.content = Some(content_of(7));
    }
    let (said, reply, records) = apply(state, &last);
    assert!(matches!(handoff_reply(&reply), Some(HandoffReply { repeated: true, .. })));
    assert_eq!((records, held(&said).reason), (1, None));
    assert_eq!(apply(said, &last).2, 0);
    let task = &after.tasks[&(tenant(), TaskId(uuid(100)))];
    assert_eq!((task.status, task.holder.as_str()), (TaskStatus::Running, "c"));
}

fn put(agent: &str, has_part: bool) -> Order {
    let kind = PutCheckpoint {
        task_id: TaskId(uuid(100)),
        execution_id: ExecutionId(uuid(9)),
        agent: agent.parse().unwrap(),
        has_part,
        fence: None,
        part: part(agent),
    };
    command(0, kind)
}

#[test]
fn a_run_is_its_agents_own_whatever_others_store_under_its_id() {
    let (planted, reply, _) = apply(BatchState::default(), &put("x", false));
    assert!(matches!(reply, Ok(AnyReply::PutCheckpoint(row)) if row.at.seq == 1));
    let (own, reply, _) = apply(planted, &put("a", false));
    assert!(matches!(reply, Ok(AnyReply::PutCheckpoint(row)) if row.at.seq == 2));
    let (own, ..) = apply(own, &put("x", false));
    let mut first = submit(0, 100, 0);
    if let AnyCommand::Submit(submit) = &mut first.command {
        submit.checkpoint = None;
        submit.require_checkpoint = true;
    }
    let (after, reply, _) = apply(own, &first);
    let Some(SubmissionReply::Handoff { handoff, .. }) = submission_reply(&reply) else {
        panic!("{reply:?}")
    };
    assert_eq!(handoff.checkpoint.unwrap().seq, 2, "its sender's own last one");
    assert_eq!(handoff.checkpoint_commitment, Some(part("a").commitment));

    let (_, reply, records) = apply(after.clone(), &put("x", false));
    assert!(
        matches!(reply, Err(LedgerError::NotFound(_))),
        "the task is there, and not the stranger's"
    );
    assert_eq!(records, 0);
    let (after, reply, _) = apply(after, &put("b", true));
    assert!(matches!(reply, Ok(AnyReply::PutCheckpoint(row)) if row.at.seq == 4));
    let (_, reply, _) = apply(after, &put("a", false));
    assert!(
        matches!(reply, Ok(AnyReply::PutCheckpoint(row)) if row.at.seq == 5),
        "it holds the task"
    );
}

#[test]
fn a_stranger_must_be_looked_up_before_it_hands_on_a_task() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let mut foreign = submit(1, 100, 1);
    if let AnyCommand::Submit(submit) = &mut foreign.command {
        submit.handoff.source = "x".parse().unwrap();
        submit.handoff.source_execution = ExecutionId(uuid(8));
        submit.has_part = false;
    }
    let (_, reply, records) = apply(state.clone(), &foreign);
    assert!(matches!(reply, Err(LedgerError::NotHolder)));
    assert_eq!(records, 0);
    if let AnyCommand::Submit(submit) = &mut foreign.command {
        submit.has_part = true;
    }
    let (_, reply, _) = apply(state, &foreign);
    let Some(SubmissionReply::Refused { failures, .. }) = submission_reply(&reply) else {
        panic!("{reply:?}")
    };
    assert_eq!(failures[0].code, Code::LineageMismatch, "it has a part, and nothing to hand on");
}

#[test]
fn an_attempt_that_was_superseded_settles_nothing() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (after, reply, records) = apply(state.clone(), &settle(0, 100, 1, 2, Outcome::Accepted));
    assert!(is_superseded(reply.as_ref().unwrap()));
    assert_eq!((records, &after.outbox), (0, &state.outbox));
}

#[test]
fn a_completion_that_overtakes_the_answer_counts_as_both() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (state, reply, records) = apply(state, &verdict(0, 100, 1, 1, VerdictKind::Complete));
    assert_eq!(records, 2, "ACCEPTED and COMPLETED");
    let Some(&HandoffReply { latency, .. }) = handoff_reply(&reply) else { panic!("{reply:?}") };
    let micros = Duration::from_micros;
    assert_eq!(latency, LatencySample { whole: Some(micros(1)), shares: None });
    // The late answer still tells when the attempt began, once.
    let late = settle(0, 100, 2, 1, Outcome::Accepted);
    let (after, reply, records) = apply(state, &late);
    let Some(&HandoffReply { latency, repeated: true, .. }) = handoff_reply(&reply) else {
        panic!("{reply:?}")
    };
    assert_eq!(latency, LatencySample { whole: None, shares: Some((micros(1), micros(0))) });
    assert_eq!(records, 0);
    let (after, reply, _) = apply(after, &late);
    assert!(is_superseded(reply.as_ref().unwrap()));
    assert_eq!(after.handoffs[&(tenant(), HandoffId(uuid(0)))].status, HandoffStatus::Completed);
}

#[test]
fn the_same_again_is_a_replay_and_another_body_a_conflict() {
    let (state, ..) = apply(BatchState::default(), &submit(0, 100, 0));
    let (state, reply, records) = apply(state, &submit(0, 100, 1));
    assert!(matches!(
        submission_reply(&reply),
        Some(SubmissionReply::Handoff { replayed: true, .. })
    ));
    assert_eq!(records, 0);
    let mut other = submit(0, 100, 1);
    if let AnyCommand::Submit(submit) = &mut other.command {
        submit.whole = vec![77];
    }
    let (_, reply, _) = apply(state, &other);
    assert!(matches!(reply, Err(LedgerError::Exists(_))));
}

/// The types of the events that a command made, in order, each standing behind a record.
fn told(state: &BatchState, command: &Order) -> (BatchState, Vec<&'static str>) {
    let mut plan = Plan::new(state.clone());
    let (changes, _) = decide(&plan.state, command, &context(command)).unwrap();
    plan.apply(changes);
    for (record, _) in &plan.writes.events {
        assert!(*record < plan.writes.records.len());
    }
    let kinds = plan.writes.events.iter().map(|(_, event)| event.kind.as_str()).collect();
    (plan.state, kinds)
}

#[test]
fn each_transition_tells_of_itself() {
    let (state, kinds) = told(&BatchState::default(), &submit(1, 1, 1));
    assert_eq!(kinds, ["agent.handoff.occurred"]);
    assert_eq!(told(&state, &submit(1, 1, 2)).1, [""; 0], "a replay tells nothing");
    let token = state.handoffs.values().next().unwrap().fencing_token;
    let (accepted, kinds) = told(&state, &verdict(1, 1, 2, token, VerdictKind::Accept));
    assert_eq!(kinds, ["handoff.accepted"]);
    let (_, kinds) = told(&accepted, &verdict(1, 1, 3, token, VerdictKind::Complete));
    assert_eq!(kinds, ["handoff.completed"]);
    let (_, kinds) = told(&state, &verdict(1, 1, 3, token, VerdictKind::Complete));
    assert_eq!(kinds, ["handoff.accepted", "handoff.completed"]);
    let back = ["handoff.rolled_back", "alert.raised"];
    let (_, kinds) =
        told(&state, &verdict(1, 1, 3, token, VerdictKind::Reject("no, and why".into())));
    assert_eq!(kinds, [&["handoff.rejected"][..], &back].concat());
    let (_, kinds) = told(&accepted, &verdict(1, 1, 3, token, VerdictKind::Fail("BROKE".into())));
    assert_eq!(kinds, [&["handoff.failed"][..], &back].concat());
    let expire = Expire { task_id: TaskId(uuid(1)), handoff_id: HandoffId(uuid(1)) };
    let (_, kinds) = told(&accepted, &command(9_000_000, expire));
    assert_eq!(kinds, [&["handoff.expired"][..], &back].concat());
}

#[test]
fn what_a_receiver_says_does_not_enter_an_event() {
    let (state, _) = told(&BatchState::default(), &submit(1, 1, 1));
    let token = state.handoffs.values().next().unwrap().fencing_token;
    let mut plan = Plan::new(state);
    let said = verdict(1, 1, 3, token, VerdictKind::Reject("Mrs Doe's file is incomplete".into()));
    let (changes, _) = decide(&plan.state, &said, &context(&said)).unwrap();
    plan.apply(changes);
    for (_, event) in &plan.writes.events {
        assert!(!format!("{event:?}").contains("Doe"), "{event:?}");
    }
    let back = plan
        .writes
        .events
        .iter()
        .find(|(_, event)| event.kind == handoffd_domain::event::EventType::HandoffRolledBack);
    let (_, back) = back.unwrap();
    assert_eq!(back.data["reason"], "REJECTED_BY_RECEIVER");
    assert_eq!(back.data["checkpoint"]["seq"], 1);
    assert_eq!(back.audience, back.source, "the sender is told");
}
