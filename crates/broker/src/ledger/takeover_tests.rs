//! Takeovers of a lease: by the holder's own interval, fenced by the token.

use proptest::prelude::*;

use super::commands::{AnyCommand, PutCheckpoint, TakeOver, VerdictKind};
use super::decide_tests::{Order, apply, command, decide, part, submit, tenant, uuid, verdict};
use super::reply::{HandoffReply, LedgerError};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{ExecutionId, HandoffId, Micros, TaskId};
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::BatchState;

const TASK: u8 = 100;

fn key() -> (handoffd_domain::ids::TenantId, HandoffId) {
    (tenant(), HandoffId(uuid(0)))
}

fn held(state: &BatchState) -> &Handoff {
    &state.handoffs[&key()]
}

fn said(at: i64, token: i64, kind: VerdictKind, interval: Option<u64>, lease: i64) -> Order {
    let mut said = verdict(0, TASK, at, token, kind);
    if let AnyCommand::Verdict(verdict) = &mut said.command {
        verdict.interval_ms = interval;
        verdict.lease_until = Micros(at + lease);
    }
    said
}

fn take(at: i64, interval: Option<u64>, lease: i64) -> Order {
    let take = TakeOver {
        task_id: TaskId(uuid(TASK)),
        handoff_id: HandoffId(uuid(0)),
        interval_ms: interval,
        lease_until: Micros(at + lease),
    };
    command(at, take)
}

/// A handoff that was accepted at 0 by a holder with that interval.
fn accepted(interval: Option<u64>) -> BatchState {
    let (state, ..) = apply(BatchState::default(), &submit(0, TASK, 0));
    let accept = said(0, held(&state).fencing_token, VerdictKind::Accept, interval, 1_000_000);
    let (state, reply, _) = apply(state, &accept);
    reply.unwrap();
    state
}

#[test]
fn the_worker_before_has_a_stale_token_and_the_takeover_is_recorded() {
    let state = accepted(Some(1));
    let old = held(&state).fencing_token;
    let mut plan = super::plan::Plan::new(state);
    let asked = take(4_000, Some(2), 1_000_000);
    let (changes, reply) =
        decide(&plan.state, &asked, &super::decide_tests::context(&asked)).unwrap();
    plan.apply(changes);
    let Some(HandoffReply { handoff, .. }) = reply.handoff() else { panic!("{reply:?}") };
    assert!(handoff.fencing_token > old);
    assert_eq!(
        (handoff.status, handoff.deadline_at),
        (HandoffStatus::Accepted, Some(Micros(1_004_000)))
    );
    let kinds: Vec<_> = plan.writes.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [RecordKind::TakenOver]);
    let state = plan.state;
    for word in [
        VerdictKind::Heartbeat,
        VerdictKind::Complete,
        VerdictKind::Fail("NO".to_owned()),
        VerdictKind::Accept,
    ] {
        let (_, reply, _) = apply(state.clone(), &said(4_001, old, word, Some(1), 9));
        assert!(matches!(reply, Err(LedgerError::StaleLease)), "{reply:?}");
    }
    let save = |token| {
        command(
            4_002,
            PutCheckpoint {
                task_id: TaskId(uuid(TASK)),
                execution_id: ExecutionId(uuid(77)),
                agent: handoff.target.clone(),
                has_part: true,
                fence: Some((HandoffId(uuid(0)), token)),
                part: part("state"),
            },
        )
    };
    assert!(matches!(apply(state.clone(), &save(old)).1, Err(LedgerError::StaleLease)));
    apply(state, &save(handoff.fencing_token)).1.unwrap();
}

#[test]
fn a_lease_without_an_interval_is_not_taken_over() {
    let state = accepted(None);
    let (_, reply, records) = apply(state, &take(999_999, Some(1), 9));
    assert!(matches!(reply, Err(LedgerError::Conflict(_))), "{reply:?}");
    assert_eq!(records, 0);
}

#[test]
fn what_the_new_holder_saves_or_hands_on_carries_its_own_token() {
    let state = accepted(Some(1));
    let old = held(&state).fencing_token;
    let (state, reply, _) = apply(state, &take(4_000, None, 1_000_000));
    reply.unwrap();
    let next = |token| {
        let mut next = submit(1, TASK, 4_001);
        if let AnyCommand::Submit(submit) = &mut next.command {
            submit.handoff.parent_id = Some(HandoffId(uuid(0)));
            submit.handoff.source = "b".parse().unwrap();
            submit.handoff.target = "c".parse().unwrap();
            submit.fencing_token = Some(token);
        }
        next
    };
    let stale = apply(state.clone(), &next(old)).1;
    assert!(matches!(stale, Err(LedgerError::StaleLease)), "{stale:?}");
    let own = apply(state.clone(), &next(held(&state).fencing_token)).1;
    assert!(!matches!(own, Err(LedgerError::StaleLease)), "{own:?}");
}

#[derive(Debug, Clone)]
enum Step {
    /// A worker with the token of the n-th holder says that it lives.
    Beat {
        holder: usize,
        interval: Option<u64>,
    },
    Complete {
        holder: usize,
    },
    Take {
        interval: Option<u64>,
    },
    /// A broker of 0.3.0 extends the lease and does not know of pulses.
    OlderBeat,
}

fn step() -> impl Strategy<Value = (i64, Step)> {
    let interval = || prop_oneof![Just(None), (1..40u64).prop_map(Some)];
    let step = prop_oneof![
        4 => (0..4usize, interval()).prop_map(|(holder, interval)| Step::Beat { holder, interval }),
        1 => (0..4usize).prop_map(|holder| Step::Complete { holder }),
        4 => interval().prop_map(|interval| Step::Take { interval }),
        1 => Just(Step::OlderBeat),
    ];
    (0..120_000i64, step)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn one_token_holds_at_any_time_and_only_a_silent_holder_loses_it(
        first in prop_oneof![Just(None), (1..40u64).prop_map(Some)],
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        const LEASE: i64 = 1_000_000_000;
        let mut state = accepted(first);
        let mut tokens = vec![held(&state).fencing_token];
        // The model: interval and last word of the holder; none where they are not known.
        let mut pulse = first.map(|interval| (interval, 0));
        let mut interval_told = first;
        let mut now = 0;
        for (after, step) in steps {
            now += after;
            match step {
                Step::Beat { holder, interval } => {
                    let current = tokens.len() - 1;
                    let holder = current.saturating_sub(holder);
                    let beat = said(now, tokens[holder], VerdictKind::Heartbeat, interval, LEASE);
                    let (next, reply, _) = apply(state.clone(), &beat);
                    if holder == current {
                        prop_assert!(reply.is_ok(), "{reply:?}");
                        interval_told = interval.or(interval_told);
                        pulse = interval_told.map(|interval| (interval, now));
                        state = next;
                    } else {
                        prop_assert!(matches!(reply, Err(LedgerError::StaleLease)), "{reply:?}");
                    }
                }
                Step::Complete { holder } => {
                    let current = tokens.len() - 1;
                    let holder = current.saturating_sub(holder);
                    let done = said(now, tokens[holder], VerdictKind::Complete, None, LEASE);
                    let reply = apply(state.clone(), &done).1;
                    prop_assert_eq!(reply.is_ok(), holder == current);
                }
                Step::Take { interval } => {
                    let (next, reply, records) = apply(state.clone(), &take(now, interval, LEASE));
                    let silent = pulse.is_some_and(|(interval, heard)| {
                        now >= heard + 4_000 * i64::try_from(interval).unwrap()
                    });
                    prop_assert_eq!(reply.is_ok(), silent, "{:?} at {}", pulse, now);
                    prop_assert_eq!(records, usize::from(silent));
                    if silent {
                        let token = held(&next).fencing_token;
                        prop_assert!(token > *tokens.last().unwrap());
                        tokens.push(token);
                        interval_told = interval;
                        pulse = interval.map(|interval| (interval, now));
                        state = next;
                    }
                }
                Step::OlderBeat => {
                    let row = state.handoffs.get_mut(&key()).unwrap();
                    row.deadline_at = Some(Micros(now + LEASE + 1));
                    pulse = None;
                }
            }
        }
    }
}
