//! Streams, decided: numbers, ends, what waits for the close; and over many random histories what the log says of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::commands::{
    AnyCommand, AnyReply, AppendChunk, Chunked, ClosedStream, Outcome, RefuseChunk, StreamEnd,
    VerdictKind,
};
use super::context::{Context, Rules, Spare};
use super::decide_tests::{
    Order, apply, claim_of, command, content_of, decide, expire, settle, submit, tenant, uuid,
    verdict,
};
use super::plan::Plan;
use super::reply::LedgerError;
use handoffd_domain::agent::Agent;
use handoffd_domain::event::EventType;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::policy::{EdgePolicy, Recovery};
use handoffd_domain::ruling::Ruling;
use handoffd_domain::stream::{Stream, StreamStatus};
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_domain::window::{ContextAction, ContextFacts};
use handoffd_evidence::merkle::Frontier;
use handoffd_evidence::record::{LogHead, seal};
use handoffd_evidence::verify::streams::StreamCheck;
use handoffd_store::store::{AgentRow, BatchState};

const HANDOFF: u8 = 1;
const TASK: u8 = 100;
const IDLE: i64 = 100;

/// A submission that opens a stream; where it ends badly its contract names an agent to go on.
fn opening() -> Order {
    let mut made = submit(HANDOFF, TASK, 0);
    if let AnyCommand::Submit(submit) = &mut made.command {
        submit.handoff.stream = Some(Stream::opened(Micros(IDLE)));
        let edge = EdgePolicy {
            on_reject: Recovery::Agent("c".parse().unwrap()),
            ..EdgePolicy::default()
        };
        submit.handoff.ruling = Some(Box::new(Ruling { edge, ..Ruling::default() }));
    }
    made
}

fn chunk(at: i64, seq: i64, end: Option<StreamEnd>) -> Order {
    command(
        at,
        AppendChunk {
            task_id: TaskId(uuid(TASK)),
            handoff_id: HandoffId(uuid(HANDOFF)),
            seq,
            bytes: 10,
            content: content_of(60),
            safety: None,
            due_at: Micros(at + IDLE),
            end,
        },
    )
}

fn closed(context: Option<ContextFacts>) -> StreamEnd {
    StreamEnd::Closed(Box::new(ClosedStream {
        content: content_of(61),
        context,
        subtasks: vec![1],
        safety: None,
    }))
}

fn refused() -> StreamEnd {
    let reason = "INCOMPLETE_CONTEXT".to_owned();
    StreamEnd::Refused { reason, content: content_of(62) }
}

/// A task with one handoff in pieces, and its log.
struct Streaming {
    state: BatchState,
    log: LogHead,
    check: StreamCheck,
    kinds: Vec<String>,
    events: Vec<EventType>,
    /// The numbers of the stream as readers see them, with how each ends it.
    numbers: BTreeMap<i64, Option<StreamStatus>>,
}

impl Streaming {
    fn new() -> Self {
        let log = LogHead {
            tenant: tenant(),
            log_id: "l".to_owned(),
            size: 0,
            hash: Vec::new(),
            tree: Frontier::default(),
        };
        let mut state = BatchState::default();
        for name in ["a", "b", "c"] {
            let row = AgentRow {
                tenant: tenant(),
                secrets: String::new(),
                created_at: Micros(0),
                updated_at: Micros(0),
                agent: Agent::new(name.parse().unwrap()),
            };
            state.agents.insert((tenant(), row.agent.agent_id.clone()), row);
        }
        let mut new = Self {
            state,
            log,
            check: StreamCheck::default(),
            kinds: Vec::new(),
            events: Vec::new(),
            numbers: BTreeMap::new(),
        };
        new.say(&opening()).unwrap();
        new
    }

    fn taken() -> Self {
        let mut new = Self::new();
        new.say(&settle(HANDOFF, TASK, 1, 1, Outcome::Accepted)).unwrap();
        new
    }

    fn say(&mut self, said: &Order) -> Result<AnyReply, LedgerError> {
        let context = Context {
            rules: Rules::default(),
            spare: Spare::new(Micros(0)),
            waited: std::time::Duration::ZERO,
            claim: claim_of(said),
        };
        let mut plan = Plan::new(std::mem::take(&mut self.state));
        let decided = decide(&plan.state, said, &context);
        let reply = decided.map(|(changes, reply)| {
            plan.apply(changes);
            reply
        });
        for draft in &plan.writes.records {
            let sealed = seal(&mut self.log, draft);
            let body = serde_json::from_slice(&sealed.body).unwrap();
            self.check.take(&body, || None).unwrap();
            self.kinds.push(draft.kind.as_str().to_owned());
        }
        for row in &plan.writes.chunks {
            let before = self.numbers.insert(row.seq, row.ends);
            assert_eq!(before, None, "a number is taken once");
        }
        self.events.extend(plan.writes.events.iter().map(|(_, event)| event.kind));
        self.state = plan.state;
        self.stands();
        reply
    }

    fn handoff(&self) -> &Handoff {
        &self.state.handoffs[&(tenant(), HandoffId(uuid(HANDOFF)))]
    }

    fn task(&self) -> &Task {
        &self.state.tasks[&(tenant(), TaskId(uuid(TASK)))]
    }

    fn stream(&self) -> &Stream {
        self.handoff().stream.as_ref().unwrap()
    }

    /// The laws after each command.
    fn stands(&self) {
        let stream = self.stream();
        let count = i64::try_from(self.numbers.len()).unwrap();
        assert_eq!((count, stream.seq), (stream.seq, stream.seq), "numbers are dense");
        let ends: Vec<_> = self.numbers.iter().filter(|(_, ends)| ends.is_some()).collect();
        match stream.status {
            StreamStatus::Open => assert!(ends.is_empty() && stream.due_at.is_some()),
            ended => {
                assert_eq!(ends, [(&stream.seq, &Some(ended))], "its last number ends it");
                assert_eq!(stream.due_at, None);
            }
        }
        if self.handoff().status.is_final() {
            assert_ne!(stream.status, StreamStatus::Open, "no stream outlives its handoff");
        }
        if self.handoff().status == HandoffStatus::Completed {
            assert_eq!(stream.status, StreamStatus::Closed, "only what is whole is completed");
        }
        if stream.status != StreamStatus::Closed {
            assert_eq!(self.state.handoffs.len(), 1, "no agent goes on with a part of a message");
        }
    }
}

#[test]
fn numbers_are_dense_and_what_is_not_next_changes_nothing() {
    let mut streaming = Streaming::taken();
    streaming.say(&chunk(10, 1, None)).unwrap();
    assert_eq!((streaming.stream().seq, streaming.stream().bytes), (1, 10));
    assert_eq!(streaming.stream().due_at, Some(Micros(10 + IDLE)));
    let records = streaming.kinds.len();
    for seq in [1, 3, 9] {
        let reply = streaming.say(&chunk(11, seq, None)).unwrap();
        assert!(
            matches!(&reply, AnyReply::AppendChunk(Chunked::OutOfOrder(handoff)) if handoff.stream.as_ref().unwrap().seq == 1),
            "{seq}: {reply:?}"
        );
    }
    assert_eq!(streaming.kinds.len(), records, "nothing was written");
    assert_eq!(streaming.stream().due_at, Some(Micros(10 + IDLE)), "and no time gained");
}

#[test]
fn a_message_that_came_whole_takes_no_chunk() {
    let (state, reply, _) = apply(BatchState::default(), &submit(HANDOFF, TASK, 1));
    reply.unwrap();
    let (_, reply, records) = apply(state, &chunk(2, 1, None));
    assert!(matches!(reply, Err(LedgerError::Conflict(_))) && records == 0, "{reply:?}");
}

#[test]
fn what_needs_the_whole_message_waits_for_the_close() {
    let mut streaming = Streaming::taken();
    let complete = verdict(HANDOFF, TASK, 20, 1, VerdictKind::Complete);
    for _ in 0..2 {
        let early = streaming.say(&complete).unwrap_err();
        assert!(matches!(early, LedgerError::Conflict(_)), "{early:?}");
    }
    let mut on = submit(2, TASK, 21);
    if let AnyCommand::Submit(submit) = &mut on.command {
        submit.handoff.source = "b".parse().unwrap();
        submit.handoff.parent_id = Some(HandoffId(uuid(HANDOFF)));
    }
    assert!(matches!(streaming.say(&on), Err(LedgerError::Conflict(_))));
    streaming.say(&chunk(30, 1, Some(closed(None)))).unwrap();
    assert_eq!(streaming.stream().status, StreamStatus::Closed);
    assert_eq!(
        streaming.handoff().content_id,
        Some(content_of(61).id),
        "the message is the assembled one"
    );
    streaming.say(&verdict(HANDOFF, TASK, 40, 1, VerdictKind::Complete)).unwrap();
    assert_eq!(streaming.kinds, ["HANDOFF", "ACCEPTED", "CHUNK", "STREAM_CLOSED", "COMPLETED"]);
    let late = streaming.say(&chunk(41, 2, None)).unwrap_err();
    assert!(matches!(late, LedgerError::Conflict(_)), "{late:?}");
}

#[test]
fn who_was_not_reached_before_the_close_gets_the_message_whole_and_others_what_was_sent() {
    let over = ContextFacts {
        tokens: 900,
        limit: Some(80),
        action: ContextAction::Compress,
        ..ContextFacts::default()
    };
    // The first submission is claimed as it is committed: an attempt may have reached the receiver.
    let mut reached = Streaming::new();
    reached.say(&chunk(10, 1, Some(closed(Some(over))))).unwrap();
    assert_eq!(reached.handoff().context.unwrap().action, ContextAction::Flag);
    let mut waiting = Streaming::new();
    let key = (tenant(), HandoffId(uuid(HANDOFF)));
    waiting.state.outbox.get_mut(&key).unwrap().attempt = 0;
    waiting.say(&chunk(10, 1, Some(closed(Some(over))))).unwrap();
    assert_eq!(waiting.handoff().context.unwrap().action, ContextAction::Compress);
    assert_eq!(waiting.handoff().sent_id, None);
}

#[test]
fn an_abort_and_a_refused_close_take_the_task_back_to_its_sender() {
    for (end, reason) in
        [(Some(StreamEnd::Aborted), "STREAM_ABORTED"), (Some(refused()), "INCOMPLETE_CONTEXT")]
    {
        let mut streaming = Streaming::taken();
        streaming.say(&chunk(10, 1, None)).unwrap();
        streaming.say(&chunk(11, 2, end)).unwrap();
        assert_eq!(streaming.handoff().status, HandoffStatus::Failed);
        assert_eq!(streaming.handoff().reason.as_deref(), Some(reason));
        let task = streaming.task();
        assert_eq!((task.status, task.holder.as_str()), (TaskStatus::PendingHandoff, "a"));
        assert_eq!(streaming.kinds[2..], ["CHUNK", "CHUNK", "FAILED", "ROLLED_BACK"]);
        assert!(streaming.events.contains(&EventType::HandoffStreamAborted));
        assert_eq!(streaming.numbers[&2], Some(StreamStatus::Aborted));
    }
}

#[test]
fn a_stream_without_a_chunk_in_time_ends_with_a_number_of_the_brokers() {
    let mut streaming = Streaming::taken();
    streaming.say(&chunk(50, 1, None)).unwrap();
    streaming.say(&expire(HANDOFF, TASK, 50 + IDLE - 1)).unwrap();
    assert_eq!(streaming.stream().status, StreamStatus::Open, "a chunk gains time");
    streaming.say(&expire(HANDOFF, TASK, 50 + IDLE)).unwrap();
    assert_eq!(streaming.stream().reason.as_deref(), Some("STREAM_TIMEOUT"));
    assert_eq!(streaming.numbers[&2], Some(StreamStatus::Aborted));
    assert_eq!(streaming.handoff().status, HandoffStatus::Failed);
    assert_eq!(streaming.task().status, TaskStatus::PendingHandoff);
}

#[test]
fn a_refused_chunk_is_a_record_and_leaves_the_stream_as_it_is() {
    let mut streaming = Streaming::taken();
    let before = streaming.stream().clone();
    let refuse = RefuseChunk {
        task_id: TaskId(uuid(TASK)),
        handoff_id: HandoffId(uuid(HANDOFF)),
        reason: "SAFETY_VIOLATION".to_owned(),
        content: content_of(63),
    };
    let reply = streaming.say(&command(10, refuse)).unwrap();
    assert!(matches!(reply, AnyReply::RefuseChunk(())));
    assert_eq!(streaming.kinds.last().map(String::as_str), Some("REFUSED"));
    assert_eq!(*streaming.stream(), before);
    streaming.say(&chunk(11, 1, None)).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Add { ahead: i64, end: u8 },
    Say(VerdictKind),
    Expire,
    Receive,
}

fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        3 => Just(VerdictKind::Accept),
        2 => Just(VerdictKind::Complete),
        1 => Just(VerdictKind::Reject("NO".to_owned())),
        1 => Just(VerdictKind::Fail("BROKEN".to_owned())),
        1 => Just(VerdictKind::Heartbeat),
    ];
    prop_oneof![
        10 => (0..3_i64, 0..12_u8).prop_map(|(ahead, end)| Step::Add { ahead, end }),
        4 => word.prop_map(Step::Say),
        1 => Just(Step::Expire),
        2 => Just(Step::Receive),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// The laws of `stands` hold after each command, and the verifier's check takes every record.
    #[test]
    fn any_history_of_a_stream_keeps_its_numbers_and_ends_it_once(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut streaming = Streaming::new();
        let mut ended: Option<Stream> = None;
        for (at, step) in steps.into_iter().enumerate() {
            let at = 2 + 7 * i64::try_from(at).unwrap();
            let last = streaming.stream().seq;
            let token = streaming.handoff().fencing_token;
            let said = match step {
                Step::Add { ahead, end } => {
                    let end = match end {
                        0 => Some(closed(None)),
                        1 => Some(refused()),
                        2 => Some(StreamEnd::Aborted),
                        _ => None,
                    };
                    chunk(at, last + ahead, end)
                }
                Step::Say(word) => verdict(HANDOFF, TASK, at, token, word),
                Step::Expire => expire(HANDOFF, TASK, at),
                Step::Receive => settle(HANDOFF, TASK, at, 1, Outcome::Received { verdict_by: Micros(at + 50) }),
            };
            let _ = streaming.say(&said);
            if let Some(ended) = &ended {
                prop_assert_eq!(streaming.stream(), ended, "an end is for good");
            } else if !streaming.stream().is_open() {
                ended = Some(streaming.stream().clone());
            }
        }
    }
}
