//! Claims from an inbox against the verdict's time, decided (finding O4 of 0.3.0).

use proptest::prelude::*;

use super::commands::{AnyCommand, AnyReply, Lease, Leased, VerdictKind};
use super::context::Rules;
use super::decide_tests::{apply, command, expire, submit, tenant, uuid, verdict};
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_store::store::{BatchState, HandoffKey, OutboxRow};

const HANDOFF: u8 = 1;
const TASK: u8 = 100;

const fn ms(ms: i64) -> i64 {
    ms * 1_000
}

/// One handoff in an inbox.
struct Inbox {
    state: BatchState,
    claim_ttl: i64,
}

impl Inbox {
    fn new(claim_ttl: i64) -> Self {
        let mut wanted = submit(HANDOFF, TASK, 0);
        if let AnyCommand::Submit(submit) = &mut wanted.command {
            submit.handoff.mode = DeliveryMode::Pull;
        }
        let (mut state, reply, _) = apply(BatchState::default(), &wanted);
        reply.unwrap();
        // The context of these tests has a dispatcher's claim at hand, which an inbox does not use.
        let row = state.outbox.get_mut(&Self::key()).unwrap();
        (row.visible_at, row.claimed_by, row.attempt) = (Micros(0), None, 0);
        Self { state, claim_ttl }
    }

    fn key() -> HandoffKey {
        (tenant(), HandoffId(uuid(HANDOFF)))
    }

    fn row(&self) -> Option<&OutboxRow> {
        self.state.outbox.get(&Self::key())
    }

    fn status(&self) -> HandoffStatus {
        self.state.handoffs[&Self::key()].status
    }

    fn deadline(&self) -> Option<i64> {
        self.state.handoffs[&Self::key()].deadline_at.map(|at| at.0)
    }

    /// A poll: the store claims, the ledger leases. Returns the token, if a handoff was there.
    fn poll(&mut self, at: i64) -> Option<i64> {
        let until = at + self.claim_ttl;
        let row = self.state.outbox.get_mut(&Self::key()).filter(|row| row.visible_at.0 <= at)?;
        row.visible_at = Micros(until);
        row.claimed_by = Some("broker".to_owned());
        row.attempt += 1;
        let lease = Lease {
            task_id: TaskId(uuid(TASK)),
            handoff_id: HandoffId(uuid(HANDOFF)),
            attempt: row.attempt,
            verdict_by: Micros(at).plus(Rules::default().verdict),
        };
        let (state, reply, _) = apply(std::mem::take(&mut self.state), &command(at, lease));
        self.state = state;
        match reply.unwrap() {
            AnyReply::Lease(Some(Leased { handoff, .. })) => Some(handoff.fencing_token),
            _ => None,
        }
    }

    fn sweep(&mut self, at: i64) {
        let (state, reply, _) = apply(std::mem::take(&mut self.state), &expire(HANDOFF, TASK, at));
        reply.unwrap();
        self.state = state;
    }

    fn accept(&mut self, at: i64, token: i64) {
        let said = verdict(HANDOFF, TASK, at, token, VerdictKind::Accept);
        let (state, reply, _) = apply(std::mem::take(&mut self.state), &said);
        reply.unwrap();
        self.state = state;
    }
}

#[test]
fn at_the_end_of_the_verdicts_time_a_claim_returns_first() {
    let mut inbox = Inbox::new(ms(30_000));
    inbox.poll(0).unwrap();
    inbox.sweep(ms(30_000));
    assert_eq!(inbox.status(), HandoffStatus::Pending);
    assert_eq!(inbox.deadline(), Some(ms(40_000)), "a third of the verdict's time");
    let token = inbox.poll(ms(39_000)).unwrap();
    assert_eq!(inbox.deadline(), Some(ms(49_000)), "the last claim has its whole time");
    inbox.sweep(ms(48_999));
    inbox.accept(ms(48_999), token);
    assert_eq!(inbox.status(), HandoffStatus::Accepted);
}

#[test]
fn a_poll_before_the_sweep_takes_the_last_claim() {
    let mut inbox = Inbox::new(ms(30_000));
    inbox.poll(0).unwrap();
    let token = inbox.poll(ms(30_000)).unwrap();
    inbox.sweep(ms(30_000));
    inbox.accept(ms(31_000), token);
    assert_eq!(inbox.status(), HandoffStatus::Accepted);
}

#[test]
fn it_is_offered_once_and_not_where_it_lay_in_the_inbox() {
    let mut inbox = Inbox::new(ms(10_000));
    inbox.poll(ms(25_000)).unwrap();
    inbox.sweep(ms(55_000));
    assert_eq!(inbox.status(), HandoffStatus::Expired, "it lay there for 20 s");

    let mut inbox = Inbox::new(ms(10_000));
    for at in [0, 10_000, 20_000] {
        inbox.poll(ms(at)).unwrap();
    }
    inbox.sweep(ms(30_000));
    inbox.poll(ms(30_500)).unwrap();
    inbox.sweep(ms(40_500));
    assert_eq!(inbox.status(), HandoffStatus::Expired);
    assert!(inbox.row().is_none());

    let mut inbox = Inbox::new(ms(10_000));
    inbox.poll(ms(0)).unwrap();
    inbox.poll(ms(22_000)).unwrap();
    inbox.sweep(ms(30_000));
    inbox.sweep(ms(40_000));
    assert_eq!(inbox.status(), HandoffStatus::Expired, "no poll took the offer");
}

proptest! {
    /// However long claims last and whenever polls and sweeps come: a receiver that polls every second and loses one
    /// answer gets the handoff again before it expires, and without a verdict it ends within twice the verdict's time.
    #[test]
    fn one_lost_answer_never_costs_a_rollback(
        claim_ttl in 1_000_i64..60_000,
        first in 0_i64..5_000,
        sweeps in proptest::collection::vec(100_i64..2_000, 100),
        lost in 1_usize..3,
    ) {
        let mut inbox = Inbox::new(ms(claim_ttl));
        inbox.poll(ms(first)).unwrap();
        let (mut polled, mut swept, mut claims) = (first, first, 1);
        let mut sweeps = sweeps.into_iter().cycle();
        let mut next_sweep = first + sweeps.next().unwrap();
        while inbox.status() == HandoffStatus::Pending {
            if polled + 1_000 <= next_sweep {
                polled += 1_000;
                if let Some(token) = inbox.poll(ms(polled)) {
                    claims += 1;
                    if claims > lost {
                        inbox.accept(ms(polled), token);
                    }
                }
            } else {
                swept = next_sweep;
                next_sweep += sweeps.next().unwrap();
                inbox.sweep(ms(swept));
            }
            prop_assert!(swept.max(polled) <= first + 62_000, "it has no end");
        }
        if lost == 1 {
            prop_assert_eq!(inbox.status(), HandoffStatus::Accepted);
        }
    }
}
