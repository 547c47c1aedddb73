//! Groups over many random histories: whatever their receivers say, and whenever, all branches are there or none, a
//! decided group stays decided, the log says why it ended, and the task's budget adds up.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::commands::{
    AnyCommand, AnyReply, CancelTask, Expire, SubmitBranch, SubmitGroup, Verdict, VerdictKind,
};
use super::context::{Context, Rules, Spare};
use super::decide_tests::{
    Order, command, content_of, decide, submission_reply, submit, tenant, uuid,
};
use super::plan::Plan;
use super::reply::{LedgerError, SubmissionReply};
use handoffd_domain::agent::Agent;
use handoffd_domain::funds::Spending;
use handoffd_domain::group::{BranchPlace, Group, GroupStatus, Join, OnReject, branch_id};
use handoffd_domain::handoff::{Cost, Handoff, HandoffDraft, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::policy::{EdgePolicy, Recovery};
use handoffd_domain::ruling::Ruling;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::merkle::Frontier;
use handoffd_evidence::record::{LogHead, RecordParty, seal};
use handoffd_evidence::verify::groups::GroupCheck;
use handoffd_store::store::{AgentRow, BatchState};

const TASK: u8 = 100;
const GROUP: u8 = 7;
/// The amount that each branch asks for.
const ASKED: i64 = 10;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

fn group_id() -> HandoffId {
    HandoffId(uuid(GROUP))
}

/// A message to as many receivers, whose supervisor is `s` where that is asked for.
fn to_all(of: u32, join: Join, on_reject: OnReject, supervised: bool) -> Order {
    let mut made = submit(GROUP, TASK, 0);
    let AnyCommand::Submit(base) = &mut made.command else { unreachable!() };
    let cost = Cost { spent: Usd(1), remaining: Usd(ASKED), ..Cost::default() };
    base.handoff = HandoffDraft { cost, ..base.handoff.clone() };
    let branch = |index: u32| {
        let edge = EdgePolicy { on_reject: Recovery::Supervisor, ..EdgePolicy::default() };
        let edge = if supervised { edge } else { EdgePolicy::default() };
        let place = BranchPlace { id: group_id(), index, of, join, on_reject };
        let ruling = Ruling {
            edge: edge.clone(),
            supervisor: supervised.then(|| agent("s")),
            branch: Some(place),
            ..Ruling::default()
        };
        let handoff = HandoffDraft {
            id: branch_id(group_id(), index),
            target: agent(&format!("r{index}")),
            ruling: Some(Box::new(ruling)),
            ..base.handoff.clone()
        };
        let to = RecordParty { agent_id: Some(handoff.target.clone()), ..RecordParty::default() };
        SubmitBranch { handoff, to, policy: edge, residency: None }
    };
    let branches = (0..of).map(branch).collect();
    let group = SubmitGroup { base: (**base).clone(), join, on_reject, branches };
    Order { command: AnyCommand::SubmitGroup(Box::new(group)), ..made }
}

/// A task with its log.
struct World {
    state: BatchState,
    log: LogHead,
    check: GroupCheck,
    spare: u8,
}

impl World {
    fn new() -> Self {
        let mut state = BatchState::default();
        for name in ["a", "s"] {
            let row = AgentRow {
                tenant: tenant(),
                secrets: String::new(),
                created_at: Micros(0),
                updated_at: Micros(0),
                agent: Agent::new(agent(name)),
            };
            state.agents.insert((tenant(), agent(name)), row);
        }
        let log = LogHead {
            tenant: tenant(),
            log_id: "l".to_owned(),
            size: 0,
            hash: Vec::new(),
            tree: Frontier::default(),
        };
        Self { state, log, check: GroupCheck::default(), spare: 150 }
    }

    fn apply(&mut self, command: &Order) -> Result<AnyReply, LedgerError> {
        self.spare += 1;
        let spare = Spare { handoff: HandoffId(uuid(self.spare)), ..Spare::new(Micros(0)) };
        let context = Context {
            rules: Rules { reserve: true, ..Rules::default() },
            spare,
            waited: Duration::ZERO,
            claim: None,
        };
        let mut plan = Plan::new(std::mem::take(&mut self.state));
        let decided = decide(&plan.state, command, &context);
        let reply = decided.map(|(changes, reply)| {
            plan.apply(changes);
            reply
        });
        for draft in &plan.writes.records {
            let sealed = seal(&mut self.log, draft);
            let body = serde_json::from_slice(&sealed.body).unwrap();
            self.check.take(&body).unwrap();
        }
        self.state = plan.state;
        self.stands();
        reply
    }

    fn task(&self) -> Option<&Task> {
        self.state.tasks.get(&(tenant(), TaskId(uuid(TASK))))
    }

    fn group(&self) -> &Group {
        self.task().unwrap().course.group(group_id()).unwrap()
    }

    /// The handoff that is in a place now.
    fn branch(&self, index: u32) -> Handoff {
        let id = self.group().handoffs().nth(usize::try_from(index).unwrap()).unwrap();
        self.state.handoffs[&(tenant(), id)].clone()
    }

    fn say(&mut self, index: u32, at: i64, kind: VerdictKind) -> Result<AnyReply, LedgerError> {
        let handoff = self.branch(index);
        let spent = matches!(kind, VerdictKind::Complete | VerdictKind::Fail(_));
        let verdict = Verdict {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            kind,
            fencing_token: handoff.fencing_token,
            content: None,
            spent: spent.then_some(Spending { usd: Usd(4), prompt: 0, completion: 0 }),
            said_at: Micros(at),
            interval_ms: None,
            lease_until: Micros(at + 20),
        };
        self.apply(&command(at, verdict))
    }

    /// The laws after each command.
    fn stands(&self) {
        let Some(task) = self.task() else { return };
        let Some(group) = task.course.group(group_id()) else { return };
        let of = usize::try_from(group.of).unwrap();
        let own = self.state.handoffs.values().filter(|one| one.branch().is_some());
        assert!(own.count() >= of, "all branches are there");
        let funds = task.funds.as_ref().unwrap();
        let reserved = funds.reserved();
        assert_eq!(
            funds.granted,
            funds.spent.plus(reserved).plus(funds.free),
            "the budget adds up"
        );
        assert_eq!(task.holder, agent("a"), "its sender has the task");
        let open = (0..group.of).filter(|index| !self.branch(*index).status.is_final()).count();
        if group.status.is_final() {
            assert!(task.course.open_group().is_none() && group.ended_at.is_some());
            let graced = group.status == GroupStatus::Canceled;
            assert!(open == 0 || graced, "nothing of it is open: {group:?}");
        } else {
            let noted: Vec<HandoffStatus> = group.branches.iter().map(|one| one.status).collect();
            let real: Vec<HandoffStatus> =
                (0..group.of).map(|index| self.branch(index).status).collect();
            assert_eq!(noted, real, "the group knows its branches");
        }
        let waiting = self.state.outbox.len();
        assert_eq!(task.undelivered, i64::try_from(waiting).unwrap());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Say(u32, VerdictKind),
    Expire(u32),
    Again,
    Cancel(i64),
    HandOn,
}

fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        4 => Just(VerdictKind::Accept),
        3 => Just(VerdictKind::Complete),
        1 => Just(VerdictKind::Reject("NO".to_owned())),
        1 => Just(VerdictKind::Fail("BROKEN".to_owned())),
    ];
    prop_oneof![
        12 => (0..5_u32, word).prop_map(|(index, word)| Step::Say(index, word)),
        2 => (0..5_u32).prop_map(Step::Expire),
        1 => Just(Step::Again),
        1 => (0..20_i64).prop_map(Step::Cancel),
        1 => Just(Step::HandOn),
    ]
}

fn join() -> impl Strategy<Value = Join> {
    let quorum = (1..4_u32).prop_map(|many| Join::Quorum(NonZeroU32::new(many).unwrap()));
    prop_oneof![Just(Join::All), Just(Join::Any), quorum]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_history_of_a_group_keeps_what_it_came_to(
        of in 1..5_u32,
        join in join(),
        drops in any::<bool>(),
        supervised in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let join = match join {
            Join::Quorum(many) if many.get() > of => Join::All,
            join => join,
        };
        let on_reject = if drops { OnReject::Drop } else { OnReject::Rollback };
        let wanted = to_all(of, join, on_reject, supervised);
        let mut world = World::new();
        let mut ended: Option<Group> = None;
        let made = matches!(submission_reply(&world.apply(&wanted)), Some(SubmissionReply::Group { replayed: false, .. }));
        assert!(made);
        for (at, step) in steps.into_iter().enumerate() {
            let at = i64::try_from(at).unwrap() * 10;
            match step {
                Step::Say(index, word) => _ = world.say(index % of, at, word),
                Step::Expire(index) => {
                    let handoff = world.branch(index % of);
                    let (task_id, handoff_id) = (handoff.task_id, handoff.id);
                    _ = world.apply(&command(at, Expire { task_id, handoff_id }));
                }
                Step::Again => {
                    let again = matches!(submission_reply(&world.apply(&wanted)), Some(SubmissionReply::Group { replayed: true, .. }));
                    assert!(again);
                }
                Step::Cancel(grace) => {
                    let cancel = CancelTask {
                        task_id: TaskId(uuid(TASK)),
                        by: None,
                        grace_until: Micros(at + grace),
                        content: content_of(201),
                    };
                    _ = world.apply(&command(at, cancel));
                }
                Step::HandOn => {
                    let open = world.task().unwrap().course.open_group().is_some();
                    if open {
                        let on = world.apply(&submit(8, TASK, at));
                        assert!(matches!(on, Err(LedgerError::Conflict(_))), "{on:?}");
                    }
                }
            }
            let group = world.group().clone();
            if let Some(ended) = &ended {
                assert_eq!(&group, ended, "a decided group stays decided");
            } else if group.status.is_final() {
                let status = world.task().unwrap().status;
                let expected = match group.status {
                    GroupStatus::Completed => vec![TaskStatus::PendingHandoff],
                    GroupStatus::Failed => vec![TaskStatus::PendingHandoff, TaskStatus::Escalated],
                    _ => vec![TaskStatus::Canceled],
                };
                assert!(expected.contains(&status), "{status:?} after {group:?}");
                ended = Some(group);
            }
        }
    }
}

#[test]
fn the_sum_of_the_branches_is_reserved_or_none_of_them() {
    let mut world = World::new();
    // A task with a budget of its own, of which two branches' parts are left.
    let mut wanted = to_all(3, Join::All, OnReject::Rollback, false);
    if let AnyCommand::SubmitGroup(group) = &mut wanted.command {
        group.base.declared_budget = Some(Usd(1 + 2 * ASKED));
    }
    let refused = world.apply(&wanted);
    let Err(LedgerError::Refused(failures)) = refused else { panic!("{refused:?}") };
    assert_eq!(failures[0].pointer, "/receiverList/2");
    assert!(world.state.handoffs.is_empty() && world.task().is_none(), "none of them");
    let mut fits = to_all(2, Join::All, OnReject::Rollback, false);
    if let AnyCommand::SubmitGroup(group) = &mut fits.command {
        group.base.declared_budget = Some(Usd(1 + 2 * ASKED));
    }
    assert!(world.apply(&fits).is_ok());
    let funds = world.task().unwrap().funds.clone().unwrap();
    assert_eq!((funds.reserved(), funds.free), (Usd(2 * ASKED), Usd(0)));
    world.say(0, 1, VerdictKind::Complete).unwrap();
    world.say(1, 2, VerdictKind::Complete).unwrap();
    let funds = world.task().unwrap().funds.clone().unwrap();
    // Each said 4 in all, of which its sender had spent 1.
    assert_eq!((funds.spent, funds.reserved()), (Usd(7), Usd(0)));
    assert_eq!(funds.stated.usd, Usd(7), "its sender goes on from the sum");
}

/// Two brokers get the same message at once. On Postgres the second looks for the task before the first commits, and for the
/// handoffs after it.
#[test]
fn a_group_that_was_committed_between_two_reads_is_written_anew_and_collides() {
    let mut world = World::new();
    let wanted = to_all(3, Join::All, OnReject::Rollback, false);
    world.apply(&wanted).unwrap();
    world.state.tasks.clear();
    let context = Context {
        rules: Rules { reserve: true, ..Rules::default() },
        spare: Spare::new(Micros(0)),
        waited: Duration::ZERO,
        claim: None,
    };
    let mut plan = Plan::new(world.state.clone());
    let (changes, _) = decide(&plan.state, &wanted, &context).unwrap();
    plan.apply(changes);
    let key = (tenant(), TaskId(uuid(TASK)));
    assert!(plan.writes.tasks[&key].1, "the task is new to it: to insert it is a conflict");
    // A handoff of another task has the id of a branch: that is not a copy.
    let branch = (tenant(), branch_id(group_id(), 1));
    world.state.handoffs.get_mut(&branch).unwrap().task_id = TaskId(uuid(101));
    world.state.handoffs.retain(|known, _| *known == branch);
    let taken = decide(&world.state, &wanted, &context);
    assert!(matches!(taken, Err(LedgerError::Exists(_))), "{taken:?}");
}
