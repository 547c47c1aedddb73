//! The effects of handing on, on cost and leases, decided: one figure for all readers over random
//! histories, and chains in which nothing runs out.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::commands::{AnyCommand, AnyReply, Outcome, VerdictKind};
use super::context::{Context, Rules, Spare};
use super::decide_tests::{
    Order, claim_of, command, content_of, decide, expire, settle, submit, tenant, uuid, verdict,
};
use super::plan::Plan;
use crate::ledger::commands::{Answer, Ask, CompleteTask};
use handoffd_domain::agent::Agent;
use handoffd_domain::funds::Spending;
use handoffd_domain::handoff::{HANDED_ON, Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, Micros, TaskId};
use handoffd_domain::lineage::reached;
use handoffd_domain::money::Usd;
use handoffd_domain::policy::{EdgePolicy, Recovery};
use handoffd_domain::ruling::Ruling;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::account::Account;
use handoffd_evidence::merkle::Frontier;
use handoffd_evidence::record::{LogHead, seal};
use handoffd_store::store::{AgentRow, BatchState, HandoffKey, ReturnRow};

const TASK: u8 = 200;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

/// A task in the making: what is known, and the bodies of its records.
struct History {
    state: BatchState,
    head: LogHead,
    account: Account,
    /// Returns in inboxes, as the store has them.
    inboxes: BTreeMap<HandoffKey, ReturnRow>,
    /// The next handoff asks for the task's return.
    lends: bool,
    ids: u8,
    at: i64,
}

impl History {
    fn new() -> Self {
        let mut state = BatchState::default();
        for name in NAMES {
            let row = AgentRow {
                tenant: tenant(),
                agent: Agent::new(agent(name)),
                secrets: String::new(),
                created_at: Micros(0),
                updated_at: Micros(0),
            };
            state.agents.insert((tenant(), agent(name)), row);
        }
        let head = LogHead {
            tenant: tenant(),
            log_id: "log".to_owned(),
            size: 0,
            hash: Vec::new(),
            tree: Frontier::default(),
        };
        let (account, inboxes) = (Account::default(), BTreeMap::new());
        Self { state, head, account, inboxes, lends: false, ids: 0, at: 0 }
    }

    fn ask(&mut self, said: &Order) -> Option<AnyReply> {
        let spare = Spare { handoff: HandoffId(uuid(self.ids + 1)), ..Spare::new(Micros(0)) };
        let rules = Rules { max_hops: 99, max_edge_repeats: 99, ..Rules::default() };
        let context = Context { rules, spare, waited: Duration::ZERO, claim: claim_of(said) };
        let (changes, reply) = decide(&self.state, said, &context).ok()?;
        let mut plan = Plan::new(std::mem::take(&mut self.state));
        plan.apply(changes);
        for draft in &plan.writes.records {
            let sealed = seal(&mut self.head, draft);
            self.account.take(&serde_json::from_slice::<Value>(&sealed.body).unwrap());
        }
        for (key, row) in plan.writes.returns {
            match row {
                Some(row) => self.inboxes.insert(key, row),
                None => self.inboxes.remove(&key),
            };
        }
        self.state = plan.state;
        self.ids += u8::from(self.state.handoffs.contains_key(&(tenant(), spare.handoff)));
        Some(reply)
    }

    fn task(&self) -> &Task {
        &self.state.tasks[&(tenant(), TaskId(uuid(TASK)))]
    }

    fn of(&self, id: u8) -> &Handoff {
        &self.state.handoffs[&(tenant(), HandoffId(uuid(id)))]
    }

    /// Hands on from what reached an agent, or begins the task.
    fn hand(&mut self, parent: Option<u8>, from: &str, to: &str, (spent, left): (i64, i64)) -> u8 {
        self.at += 1;
        self.ids += 1;
        let id = self.ids;
        let mut said = submit(id, TASK, self.at);
        let AnyCommand::Submit(made) = &mut said.command else { unreachable!() };
        made.subtasks = (0..=u64::from(id)).collect();
        made.from.agent_id = Some(agent(from));
        made.to.agent_id = Some(agent(to));
        made.handoff.source = agent(from);
        made.handoff.target = agent(to);
        made.handoff.parent_id = parent.map(|id| HandoffId(uuid(id)));
        made.handoff.source_execution = ExecutionId(uuid(from.as_bytes()[0]));
        made.handoff.cost.spent = Usd(spent);
        made.handoff.cost.remaining = Usd(left);
        made.handoff.cost.prompt_tokens = spent.unsigned_abs() * 10;
        if id.is_multiple_of(3) {
            let edge =
                EdgePolicy { on_reject: Recovery::Agent(agent("e")), ..EdgePolicy::default() };
            made.handoff.ruling = Some(Box::new(Ruling { edge, ..Ruling::default() }));
        }
        if std::mem::take(&mut self.lends) {
            made.handoff.ruling.get_or_insert_default().returns_to = Some(agent(from));
        }
        self.ask(&said);
        id
    }

    /// Hands on and asks for the task's return.
    fn lend(&mut self, parent: Option<u8>, from: &str, to: &str) -> u8 {
        self.lends = true;
        self.hand(parent, from, to, (0, 1_000))
    }

    fn complete_task(&mut self, by: &str) -> Option<AnyReply> {
        let (task_id, by) = (TaskId(uuid(TASK)), Some(agent(by)));
        let kind = CompleteTask { task_id, by, content: content_of(1) };
        self.ask(&command(self.at, kind))
    }

    fn say(&mut self, id: u8, word: VerdictKind, spent: Option<i64>) {
        self.at += 1;
        let Some(handoff) = self.state.handoffs.get(&(tenant(), HandoffId(uuid(id)))) else {
            return;
        };
        let mut said = verdict(id, TASK, self.at, handoff.fencing_token, word);
        if let AnyCommand::Verdict(verdict) = &mut said.command {
            verdict.spent = spent.map(|usd| Spending {
                usd: Usd(usd),
                prompt: usd.unsigned_abs() * 10,
                completion: 0,
            });
        }
        self.ask(&said);
    }

    /// Every reader says the same.
    fn one_figure(&self) {
        let task = self.task();
        let Some(funds) = task.funds.as_deref() else { return };
        assert_eq!(self.account.total().usd, funds.spent, "the log and the books");
        assert_eq!(task.cost(), funds.spent, "the task");
        let hops = self.account.hops().iter();
        let sum = hops.fold(Usd(0), |sum, hop| sum.plus(hop.sender.usd).plus(hop.receiver.usd));
        assert_eq!(sum, funds.spent, "hop by hop");
        let spent = |tally: &Spending| *tally != Spending::default();
        let by_log: Vec<(String, Spending)> = self
            .account
            .per_agent()
            .into_iter()
            .filter(|(_, tally)| spent(tally))
            .map(|(id, tally)| (id.to_owned(), tally))
            .collect();
        let tallies = funds.agents.iter().filter(|(_, tally)| spent(tally));
        let by_funds: Vec<_> = tallies.map(|(id, tally)| (id.to_string(), *tally)).collect();
        assert_eq!(by_log, by_funds, "agent by agent");
        let all = funds.spent.plus(funds.reserved()).plus(funds.free);
        assert_eq!(all, funds.granted, "granted = spent + reserved + free");
    }

    /// The returns in inboxes are those that the task lists, and come from handoffs that are completed.
    fn returns(&self) {
        let known = self.task().course.returned.iter();
        let known: BTreeMap<_, _> = known.map(|one| (one.handoff, one.to.clone())).collect();
        let returned = self.inboxes.values().filter(|row| row.question.is_none());
        let stored = returned.map(|row| (row.handoff_id, row.agent.clone()));
        assert_eq!(stored.collect::<BTreeMap<_, _>>(), known, "inboxes and task");
        assert!(known.is_empty() || !self.task().status.is_final(), "an ended task is in no inbox");
        for (id, to) in known {
            let one = &self.state.handoffs[&(tenant(), id)];
            assert_eq!(one.status, HandoffStatus::Completed);
            assert_eq!(one.ruling.as_ref().unwrap().returns_to, Some(to));
        }
    }

    /// A question waits with a deadline, in the inbox of the handoff's sender, and nowhere else.
    fn questions(&self) {
        let open = self.state.handoffs.values().filter(|one| one.open_question().is_some());
        let open = open.inspect(|one| assert!(one.deadline_at.is_some(), "{}", one.id));
        let open: BTreeMap<_, _> =
            open.map(|one| (one.id, (one.open_question(), one.source.clone()))).collect();
        let waiting = self.inboxes.values().filter(|row| row.question.is_some());
        let waiting: BTreeMap<_, _> =
            waiting.map(|row| (row.handoff_id, (row.question, row.agent.clone()))).collect();
        assert_eq!(waiting, open, "inboxes and questions");
    }

    /// Asks, or answers what is open.
    fn asks(&mut self, id: u8, answers: bool) {
        self.at += 1;
        let Some(one) = self.state.handoffs.get(&(tenant(), HandoffId(uuid(id)))) else { return };
        let (task_id, handoff_id) = (one.task_id, one.id);
        let number = u32::try_from(one.questions.len()).unwrap();
        let (content, whole, key) = (content_of(id), self.at.to_be_bytes().to_vec(), None);
        let said = if answers {
            command(self.at, Answer { task_id, handoff_id, number, by: None, content, whole, key })
        } else {
            command(
                self.at,
                Ask {
                    task_id,
                    handoff_id,
                    fencing_token: one.fencing_token,
                    content,
                    whole,
                    key,
                    answer_by: Micros(self.at + 1_000_000),
                },
            )
        };
        self.ask(&said);
    }

    /// A lease runs for each agent that holds a handoff and does not wait.
    fn leases(&self) {
        let Some(funds) = self.task().funds.as_deref() else { return };
        for one in self.state.handoffs.values() {
            if one.status == HandoffStatus::Accepted && self.task().status != TaskStatus::Escalated
            {
                let waits = funds.is_handed_on(one.id);
                assert_eq!(one.deadline_at.is_none(), waits, "{} {:?}", one.id, one.status);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Hand { from: usize, to: usize, spends: i64, keeps: i64, lends: bool },
    Say { which: u8, word: VerdictKind, spends: Option<i64> },
    Take { which: u8 },
    Expire { which: u8 },
    Ask { which: u8, answers: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![
        Just(VerdictKind::Accept),
        Just(VerdictKind::Accept),
        Just(VerdictKind::Reject("NO".to_owned())),
        Just(VerdictKind::Complete),
        Just(VerdictKind::Fail("BROKE".to_owned())),
        Just(VerdictKind::Heartbeat),
    ];
    prop_oneof![
        4 => (0..30usize, 0..5usize, 0..40i64, 0..3i64, prop::bool::weighted(0.3)).prop_map(
            |(from, to, spends, keeps, lends)| Step::Hand { from, to, spends, keeps, lends }
        ),
        4 => (1..30u8, word, prop::option::of(0..60i64))
            .prop_map(|(which, word, spends)| Step::Say { which, word, spends }),
        4 => (1..30u8).prop_map(|which| Step::Take { which }),
        1 => (1..30u8).prop_map(|which| Step::Expire { which }),
        3 => (1..30u8, any::<bool>()).prop_map(|(which, answers)| Step::Ask { which, answers }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Chains, rollbacks, re-addressing, ends with a cost of their own and children side by side, in any order.
    #[test]
    fn f1_2_all_readers_show_one_figure_whatever_happens(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut history = History::new();
        history.hand(None, "a", "b", (7, 1_000));
        for step in steps {
            let known = history.ids;
            match step {
                Step::Hand { from, to, spends, keeps, lends } => {
                    // From something that reached its receiver, or from the opener.
                    let held: Vec<u8> = (1..=known)
                        .filter(|id| {
                            let key = (tenant(), HandoffId(uuid(*id)));
                            let one = history.state.handoffs.get(&key);
                            one.is_some_and(|one| reached(one, &one.target))
                        })
                        .collect();
                    let parent = (!held.is_empty()).then(|| held[from % held.len()]);
                    let (source, spent, left) = parent.map_or(("a".to_owned(), 7, 1_000), |id| {
                        let one = history.of(id);
                        (one.target.to_string(), one.cost.spent.0, one.cost.remaining.0)
                    });
                    if NAMES[to] != source {
                        history.lends = lends;
                        let cost = (spent + spends, (left - spends) / (1 + keeps));
                        history.hand(parent, &source, NAMES[to], cost);
                    }
                }
                Step::Say { which, word, spends } => {
                    let which = 1 + which % known;
                    let key = (tenant(), HandoffId(uuid(which)));
                    let stated = history.state.handoffs.get(&key).map_or(0, |one| one.cost.spent.0);
                    history.say(which, word, spends.map(|usd| stated + usd));
                }
                Step::Take { which } => {
                    let which = 1 + which % known;
                    history.at += 1;
                    let said = settle(which, TASK, history.at, 1, Outcome::Accepted);
                    history.ask(&said);
                    history.say(which, VerdictKind::Accept, None);
                }
                Step::Expire { which } => {
                    history.at += 2_000_000_000;
                    let said = expire(1 + which % known, TASK, history.at);
                    history.ask(&said);
                }
                Step::Ask { which, answers } => history.asks(1 + which % known, answers),
            }
            history.one_figure();
            history.leases();
            history.returns();
            history.questions();
        }
        prop_assert!(history.account.hops().len() <= history.state.handoffs.len());
    }
}

/// Eight agents, each of which only hands on, under leases of a microsecond: time steps far beyond them while
/// each waits for the next.
#[test]
fn f1_3_a_faultless_chain_ends_with_every_hop_completed_at_any_lease_length() {
    let mut history = History::new();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut parent = None;
    for (place, pair) in names.windows(2).enumerate() {
        let id = history.hand(parent, pair[0], pair[1], (place as i64, 100 - place as i64));
        history.at += 3_600_000_000;
        for before in 1..id {
            let late = expire(before, TASK, history.at);
            history.ask(&late);
        }
        let mut taken =
            verdict(id, TASK, history.at, history.of(id).fencing_token, VerdictKind::Accept);
        if let AnyCommand::Verdict(verdict) = &mut taken.command {
            verdict.lease_until = Micros(history.at + 1);
        }
        history.ask(&taken);
        parent = Some(id);
    }
    let last = history.ids;
    for id in 1..last {
        let one = history.of(id);
        assert_eq!(
            (one.status, one.reason.as_deref()),
            (HandoffStatus::Completed, Some(HANDED_ON))
        );
    }
    assert!(history.complete_task("h").is_some());
    history.at += 3_600_000_000;
    for id in 1..=last {
        let late = expire(id, TASK, history.at);
        history.ask(&late);
        assert_eq!(history.of(id).status, HandoffStatus::Completed);
    }
    assert_eq!(history.task().status, TaskStatus::Completed);
    assert_eq!(history.task().funds.as_ref().unwrap().reserved(), Usd(0));
    history.one_figure();
}

/// The generalist asks a specialist, who asks another agent; each gets the task back, and the first goes on.
#[test]
fn f2_11_a_completed_handoff_gives_the_task_back_to_the_agent_that_asked() {
    let mut history = History::new();
    let first = history.hand(None, "a", "b", (0, 1_000));
    history.say(first, VerdictKind::Accept, None);
    let asked = history.lend(Some(first), "b", "c");
    assert_eq!(history.of(first).deadline_at, None, "the asker's lease waits");
    history.say(asked, VerdictKind::Accept, None);
    assert_eq!(
        history.of(first).status,
        HandoffStatus::Accepted,
        "the asker keeps its own handoff"
    );
    assert!(history.complete_task("c").is_none(), "the specialist has its own part only");
    // The specialist hands on: what it owes goes along.
    let on = history.hand(Some(asked), "c", "d", (0, 500));
    history.say(on, VerdictKind::Accept, None);
    assert_eq!(history.of(asked).status, HandoffStatus::Completed);
    assert_eq!(history.of(first).deadline_at, None, "the asker still waits");
    history.say(on, VerdictKind::Complete, Some(3));
    assert_eq!(
        (history.task().holder.as_str(), history.task().status),
        ("b", TaskStatus::PendingHandoff)
    );
    assert!(history.of(first).deadline_at.is_some(), "its lease runs again");
    history.returns();
    assert_eq!(history.inboxes.values().next().map(|row| row.agent.as_str()), Some("b"));
    // To say so once more changes nothing.
    history.say(on, VerdictKind::Complete, Some(3));
    assert_eq!(history.inboxes.len(), 1);
    let next = history.hand(Some(first), "b", "e", (3, 400));
    assert!(history.inboxes.is_empty(), "it went on with the task");
    history.say(next, VerdictKind::Reject("NO".to_owned()), None);
    assert!(history.complete_task("b").is_some());
    assert_eq!(history.of(first).status, HandoffStatus::Completed);
    history.one_figure();
}

/// The opener asks, with no handoff of its own that could wait; it completes the task with what came back.
#[test]
fn f2_11_the_opener_has_the_task_back_and_completes_it() {
    let mut history = History::new();
    let asked = history.lend(None, "a", "b");
    history.say(asked, VerdictKind::Complete, Some(5));
    assert_eq!(
        (history.task().holder.as_str(), history.task().status),
        ("a", TaskStatus::PendingHandoff)
    );
    let again = history.lend(None, "a", "b");
    assert!(history.inboxes.is_empty());
    history.say(again, VerdictKind::Complete, None);
    assert!(history.complete_task("b").is_none());
    assert!(history.complete_task("a").is_some());
    history.returns();
}

/// A receiver that fails gives nothing back but the task: no return is told.
#[test]
fn f2_11_a_failed_handoff_is_rolled_back_and_returns_nothing() {
    let mut history = History::new();
    let first = history.hand(None, "a", "b", (0, 1_000));
    history.say(first, VerdictKind::Accept, None);
    let asked = history.lend(Some(first), "b", "c");
    history.say(asked, VerdictKind::Accept, None);
    history.say(asked, VerdictKind::Fail("BROKE".to_owned()), None);
    assert_eq!(history.task().holder.as_str(), "b");
    assert!(history.of(first).deadline_at.is_some());
    assert!(history.inboxes.is_empty());
    history.returns();
}

/// A borrower gives the task back once: not while what it handed on is open, and afterwards it hands nothing on.
#[test]
fn f2_11_a_borrower_gives_the_task_back_once_and_has_it_no_more() {
    let mut history = History::new();
    let first = history.hand(None, "a", "b", (0, 1_000));
    history.say(first, VerdictKind::Accept, None);
    let asked = history.lend(Some(first), "b", "c");
    history.say(asked, VerdictKind::Accept, None);
    // One that goes to no other agent when it is rejected.
    history.ids += 1;
    let on = history.hand(Some(asked), "c", "d", (0, 500));
    history.say(asked, VerdictKind::Complete, None);
    assert_eq!(history.of(asked).status, HandoffStatus::Accepted, "what it handed on is open");
    history.say(on, VerdictKind::Reject("NO".to_owned()), None);
    history.say(asked, VerdictKind::Complete, None);
    assert_eq!(history.task().holder.as_str(), "b");
    assert_eq!(history.of(asked).reason.as_deref(), Some("RETURNED"));
    let late = history.hand(Some(asked), "c", "d", (0, 100));
    let key = (tenant(), HandoffId(uuid(late)));
    assert!(!history.state.handoffs.contains_key(&key), "it gave the task back");
    history.returns();
    history.leases();
}
