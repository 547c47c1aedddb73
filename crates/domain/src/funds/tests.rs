use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn id(n: u64) -> HandoffId {
    HandoffId(Uuid::from_u128(u128::from(n)))
}

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

fn cost(spent: i64, remaining: i64) -> Cost {
    Cost { spent: Usd(spent), remaining: Usd(remaining), prompt_tokens: 0, completion_tokens: 0 }
}

fn said(spent: i64) -> Spending {
    Spending { usd: Usd(spent), ..Spending::default() }
}

/// A task that a began and handed to b, with `remaining` to spend.
fn begun(remaining: i64) -> Funds {
    let first = cost(0, remaining);
    let mut funds = Funds::open(&agent("a"), &first, None, Usd(0), true);
    hand(&mut funds, 1, None, "a", "b", first).unwrap();
    funds
}

fn hand(
    funds: &mut Funds,
    n: u64,
    parent: Option<u64>,
    from: &str,
    to: &str,
    cost: Cost,
) -> Result<(), Shortage> {
    let source = agent(from);
    let ask = FundsRequest { parent: parent.map(id), source: &source, cost: &cost };
    funds.check(ask)?;
    funds.draw(id(n), &agent(to), ask);
    adds_up(funds);
    Ok(())
}

fn adds_up(funds: &Funds) {
    assert_eq!(funds.granted, funds.spent.plus(funds.reserved()).plus(funds.free), "{funds:?}");
    let by_agents = funds.agents.values().fold(Usd(0), |sum, one| sum.plus(one.usd));
    assert_eq!(funds.spent, by_agents);
    assert!(funds.reserves.iter().all(|one| one.left >= Usd(0)), "{funds:?}");
    assert!(funds.reserves.iter().all(|one| one.open || one.left == Usd(0)), "{funds:?}");
}

#[test]
fn children_side_by_side_share_what_their_parent_has() {
    let mut funds = begun(10);
    hand(&mut funds, 2, Some(1), "b", "c", cost(1, 4)).unwrap();
    hand(&mut funds, 3, Some(1), "b", "d", cost(1, 4)).unwrap();
    let short = hand(&mut funds, 4, Some(1), "b", "e", cost(2, 3)).unwrap_err();
    assert_eq!((short.asked, short.remaining, short.spends), (Usd(4), Usd(3), Usd(1)));
    assert_eq!((short.left, short.spent, short.reserved), (Usd(1), Usd(1), Usd(9)));
    hand(&mut funds, 5, Some(1), "b", "e", cost(1, 1)).unwrap();
    // Without a parent the sender is measured by what it holds all the same.
    assert!(hand(&mut funds, 6, None, "b", "e", cost(1, 1)).is_err());
}

#[test]
fn what_a_receiver_did_not_spend_goes_back_to_its_sender() {
    let mut funds = begun(10);
    hand(&mut funds, 2, Some(1), "b", "c", cost(0, 10)).unwrap();
    funds.settle(id(2), Some(said(3)));
    adds_up(&funds);
    assert_eq!((funds.spent, funds.reserves[0].left, funds.free), (Usd(3), Usd(7), Usd(0)));
    hand(&mut funds, 3, Some(1), "b", "d", cost(0, 7)).unwrap();
    assert!(hand(&mut funds, 4, Some(1), "b", "d", cost(0, 1)).is_err());
    // A verdict that comes twice counts once.
    assert_eq!(funds.settle(id(2), Some(said(9))), Spending::default());
    // One that failed and said nothing has spent nothing.
    funds.settle(id(3), None);
    assert_eq!(funds.reserves[0].left, Usd(7));
    funds.settle(id(1), None);
    adds_up(&funds);
    assert_eq!((funds.free, funds.reserved()), (Usd(7), Usd(0)));
}

#[test]
fn a_child_that_outlives_its_parent_returns_to_whoever_is_left() {
    let mut funds = begun(10);
    hand(&mut funds, 2, Some(1), "b", "c", cost(0, 8)).unwrap();
    hand(&mut funds, 3, Some(2), "c", "d", cost(0, 6)).unwrap();
    funds.settle(id(2), None);
    assert_eq!(funds.reserves[0].left, Usd(4), "2 from b's own, 2 that c had left");
    funds.settle(id(3), Some(said(1)));
    adds_up(&funds);
    assert_eq!((funds.reserves[0].left, funds.spent), (Usd(9), Usd(1)));
}

#[test]
fn who_is_done_may_still_hand_on_what_went_back() {
    let mut funds = begun(10);
    funds.settle(id(1), Some(said(4)));
    hand(&mut funds, 2, Some(1), "b", "c", cost(4, 6)).unwrap();
    assert_eq!((funds.spent, funds.free), (Usd(4), Usd(0)), "its spending counts once");
    assert!(hand(&mut funds, 3, Some(1), "b", "c", cost(4, 1)).is_err());
}

#[test]
fn who_sends_again_after_a_rollback_counts_what_it_spent_since() {
    let mut funds = begun(10);
    funds.settle(id(1), None);
    hand(&mut funds, 2, None, "a", "c", cost(2, 8)).unwrap();
    assert_eq!((funds.granted, funds.spent, funds.free), (Usd(10), Usd(2), Usd(0)));
}

#[test]
fn who_began_the_task_brings_the_money_unless_its_budget_was_named() {
    let mut funds = begun(10);
    hand(&mut funds, 2, None, "a", "c", cost(0, 10)).unwrap();
    assert_eq!(funds.granted, Usd(20));

    let first = cost(0, 4);
    let mut named = Funds::open(&agent("a"), &first, Some(Usd(10)), Usd(0), true);
    hand(&mut named, 1, None, "a", "b", first).unwrap();
    hand(&mut named, 2, None, "a", "c", cost(0, 6)).unwrap();
    let short = hand(&mut named, 3, None, "a", "d", cost(0, 1)).unwrap_err();
    assert_eq!((short.left, short.granted, short.reserved), (Usd(0), Usd(10), Usd(10)));
    named.top_up(Usd(1));
    hand(&mut named, 3, None, "a", "d", cost(0, 1)).unwrap();
}

#[test]
fn a_top_up_is_given_out_once() {
    let mut funds = begun(10);
    hand(&mut funds, 2, Some(1), "b", "c", cost(0, 5)).unwrap();
    funds.top_up(Usd(3));
    hand(&mut funds, 3, Some(2), "c", "d", cost(0, 8)).unwrap();
    assert!(hand(&mut funds, 4, Some(1), "b", "d", cost(0, 6)).is_err());
    hand(&mut funds, 4, Some(1), "b", "d", cost(0, 5)).unwrap();
}

#[test]
fn who_stands_in_gets_what_is_there() {
    let mut funds = begun(10);
    hand(&mut funds, 2, Some(1), "b", "c", cost(1, 9)).unwrap();
    hand(&mut funds, 3, Some(2), "c", "d", cost(1, 5)).unwrap();
    funds.settle(id(2), Some(said(3)));
    funds.pass_on(id(2), id(9), &agent("e"), &cost(1, 9));
    adds_up(&funds);
    assert_eq!(funds.reserves.last().unwrap().left, Usd(2), "d still holds 5, c spent 2");
    assert!(hand(&mut funds, 4, Some(9), "e", "f", cost(1, 3)).is_err());
}

#[test]
fn what_was_spent_too_much_shows_and_is_paid_first() {
    let mut funds = begun(10);
    funds.settle(id(1), Some(said(12)));
    adds_up(&funds);
    assert_eq!((funds.spent, funds.free), (Usd(12), Usd(-2)));
    funds.top_up(Usd(5));
    assert!(hand(&mut funds, 2, Some(1), "b", "c", cost(12, 4)).is_err());
    hand(&mut funds, 2, Some(1), "b", "c", cost(12, 3)).unwrap();
}

#[test]
fn siblings_may_share_where_nothing_is_reserved() {
    let first = cost(10, 90);
    let mut funds = Funds::open(&agent("a"), &first, None, Usd(0), false);
    for n in 1..4 {
        hand(&mut funds, n, None, "a", "b", first).unwrap();
    }
    assert_eq!(funds.granted, Usd(280));
}

#[test]
fn books_survive_the_store_without_a_double_in_them() {
    let mut funds = begun(1_000_000_000_000_000_001);
    hand(&mut funds, 2, Some(1), "b", "c", cost(1, 3)).unwrap();
    funds.settle(id(2), Some(said(2)));
    let text = serde_json::to_string(&funds).unwrap();
    assert!(!text.contains('.') && text.contains("1000000000000000001"), "{text}");
    assert_eq!(serde_json::from_str::<Funds>(&text).unwrap(), funds);
}

#[test]
fn books_of_an_older_version_are_read() {
    let kept = serde_json::json!({
        "opener": "a", "strict": true, "declared": false, "granted": 100, "spent": 30, "free": 0,
        "stated": {"u": 20, "p": 5, "c": 6}, "agents": {"a": {"u": 30, "p": 5, "c": 6}},
        "reserves": [
            {"h": id(1), "s": "a", "t": "b", "o": false, "l": 0, "m": {"u": 20, "p": 5, "c": 6},
             "b": {"u": 0, "p": 0, "c": 0}, "e": {"u": 10, "p": 0, "c": 0}},
            {"h": id(2), "f": id(1), "s": "b", "t": "c", "o": true, "l": 70, "m": {"u": 30, "p": 5, "c": 6},
             "b": {"u": 0, "p": 0, "c": 0}, "e": {"u": 0, "p": 0, "c": 0}, "k": [7, 8]},
        ],
    });
    let funds: Funds = serde_json::from_value(kept).unwrap();
    assert_eq!(funds.stated, Spending { usd: Usd(20), prompt: 5, completion: 6 });
    assert_eq!((funds.reserves[0].from, funds.reserves[0].after.usd), (None, Usd(10)));
    let second = &funds.reserves[1];
    assert_eq!((second.from, &*second.marks, second.left), (Some(id(1)), &[7, 8][..], Usd(70)));
    assert_eq!(serde_json::from_str::<Funds>(&funds.to_text()).unwrap(), funds);
}

/// One step in the life of a task tree. Numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    Hand { parent: Option<usize>, source: usize, target: usize, spends: i64, remaining: i64 },
    End { which: usize, spent: Option<i64> },
    StandIn { which: usize, target: usize },
    TopUp(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let hand = (
        prop::option::weighted(0.8, 0..40usize),
        0..5usize,
        0..5usize,
        prop_oneof![4 => Just(0i64), 4 => 0..30i64],
        0..120i64,
    );
    prop_oneof![
        6 => hand.prop_map(|(parent, source, target, spends, remaining)| {
            Step::Hand { parent, source, target, spends, remaining }
        }),
        3 => (0..40usize, prop::option::of(-5..60i64))
            .prop_map(|(which, spent)| Step::End { which, spent }),
        1 => (0..40usize, 0..5usize).prop_map(|(which, target)| Step::StandIn { which, target }),
        1 => (1..50i64).prop_map(Step::TopUp),
    ]
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever happens on a tree: the books add up, what was spent never falls, nothing is granted
    /// but by its opener and by operators, and at the end all that was not spent is free.
    #[test]
    fn books_of_random_trees_add_up(
        declared in prop::option::of(100..300i64),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let first = cost(3, 97);
        let mut funds = Funds::open(&agent("a"), &first, declared.map(Usd), Usd(0), true);
        hand(&mut funds, 0, None, "a", "b", first).unwrap();
        let (mut handed, mut topped_up, mut overspent) = (vec![0u64], Usd(0), Usd(0));
        let opening = funds.granted;
        let mut brought = Usd(0);
        for (n, step) in (1u64..).zip(steps) {
            let before = funds.clone();
            match step {
                Step::Hand { parent, source, target, spends, remaining } => {
                    let parent = parent.map(|at| handed[at % handed.len()]);
                    let known = parent.and_then(|id_| funds.find(id(id_)));
                    // Most senders hold what they hand on.
                    let source = match known {
                        Some(at) if source > 0 => funds.reserves[at].holder.clone(),
                        _ => agent(NAMES[source]),
                    };
                    let stated = known.map_or(funds.stated.usd, |at| funds.reserves[at].stated.usd);
                    let cost = cost(stated.0 + spends, remaining);
                    let ask = FundsRequest { parent: parent.map(id), source: &source, cost: &cost };
                    let place = funds.place(ask.parent, ask.source);
                    let there = funds.left_at(place.from);
                    match funds.check(ask) {
                        Ok(()) => {
                            let counted = funds.spends(ask).usd;
                            funds.draw(id(n), &agent(NAMES[target]), ask);
                            handed.push(n);
                            let more = funds.granted.minus(before.granted);
                            brought = brought.plus(more);
                            if more > Usd(0) {
                                prop_assert!(declared.is_none() && source == agent("a"));
                            } else {
                                prop_assert!(counted.plus(Usd(remaining)) <= there);
                            }
                            let after = funds.left_at(place.from.and_then(|_| funds.find(before.reserves[place.from.unwrap()].handoff)));
                            prop_assert_eq!(
                                there.plus(more).minus(after),
                                counted.plus(Usd(remaining)),
                                "what was asked for is gone from where it was"
                            );
                        }
                        Err(short) => {
                            prop_assert!(short.asked > short.left);
                            prop_assert_eq!(short.left, there);
                            prop_assert_eq!(&funds, &before);
                        }
                    }
                }
                Step::End { which, spent } => {
                    let which = handed[which % handed.len()];
                    let one = funds.find(id(which)).map(|at| funds.reserves[at].clone());
                    let total = one.as_ref().and_then(|one| Some(one.stated.usd.0 + spent?));
                    let added = funds.settle(id(which), total.map(said)).usd;
                    let open = one.as_ref().is_some_and(|one| one.open);
                    prop_assert_eq!(added, Usd(if open { spent.unwrap_or(0).max(0) } else { 0 }));
                    if let Some(one) = one.filter(|one| one.open) {
                        overspent = overspent.plus(Usd(added.minus(one.left).0.max(0)));
                    }
                    // A second word changes nothing.
                    let once = funds.clone();
                    funds.settle(id(which), Some(said(1_000_000)));
                    prop_assert_eq!(&funds, &once);
                }
                Step::StandIn { which, target } => {
                    let which = handed[which % handed.len()];
                    let ended = funds.find(id(which)).is_some_and(|at| !funds.reserves[at].open);
                    if ended {
                        funds.pass_on(id(which), id(n), &agent(NAMES[target]), &cost(3, 50));
                        handed.push(n);
                    }
                    prop_assert_eq!(funds.granted, before.granted);
                }
                Step::TopUp(add) => {
                    funds.top_up(Usd(add));
                    topped_up = topped_up.plus(Usd(add));
                }
            }
            adds_up(&funds);
            prop_assert!(funds.spent >= before.spent);
            prop_assert_eq!(funds.granted, opening.plus(topped_up).plus(brought));
            prop_assert!(funds.free >= Usd(0).minus(overspent), "{:?}", funds);
            prop_assert!(
                funds.spent.plus(funds.reserved()) <= funds.granted.plus(overspent),
                "{:?}", funds
            );
        }
        for which in handed {
            funds.settle(id(which), None);
        }
        adds_up(&funds);
        prop_assert_eq!(funds.reserved(), Usd(0));
        prop_assert_eq!(funds.free, funds.granted.minus(funds.spent));
    }
}

/// One step of a task that one agent at a time goes on with, or a group of them.
#[derive(Debug, Clone)]
enum Turn {
    /// Hands everything on, having spent an amount itself.
    Hand { spends: i64 },
    /// The last receiver fails or completes, and says what it spent or nothing; its sender has the task again.
    Back { spent: Option<i64> },
    /// The last receiver fails, and another agent takes its place.
    StandIn { spent: Option<i64> },
    /// Hands to several at once, each a part, and all come back.
    Group { spends: i64, branches: Vec<Option<i64>> },
}

fn turn() -> impl Strategy<Value = Turn> {
    let amount = || prop_oneof![1 => Just(0i64), 2 => 1..9i64];
    let said = || prop::option::weighted(0.7, amount());
    prop_oneof![
        3 => amount().prop_map(|spends| Turn::Hand { spends }),
        3 => said().prop_map(|spent| Turn::Back { spent }),
        1 => said().prop_map(|spent| Turn::StandIn { spent }),
        2 => (amount(), prop::collection::vec(said(), 2..4))
            .prop_map(|(spends, branches)| Turn::Group { spends, branches }),
    ]
}

/// Draws a part for each of several receivers, at once.
fn several(funds: &mut Funds, ids: &[u64], parent: Option<u64>, from: &str, each: Cost) {
    for n in ids {
        let source = agent(from);
        let ask = FundsRequest { parent: parent.map(id), source: &source, cost: &each };
        funds.check(ask).unwrap();
        funds.draw(id(*n), &agent("x"), ask);
        adds_up(funds);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// After every way back (a failure, a completion, a stand-in that fails, a group), the agent that has the task
    /// states the amounts that the task shows, spent and left, and nothing counts twice (finding G3 of 0.3.0).
    #[test]
    fn after_every_way_back_the_next_message_states_what_the_task_shows(
        declared in prop::option::of(Just(1_000i64)),
        turns in prop::collection::vec(turn(), 1..40),
    ) {
        let first = cost(3, 997);
        let mut funds = Funds::open(&agent("a"), &first, declared.map(Usd), Usd(0), true);
        hand(&mut funds, 0, None, "a", "b", first).unwrap();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        // The open handoffs, each the parent of the next, with what its message stated.
        let mut path = vec![(0u64, first)];
        let mut own = 3i64;
        for (n, turn) in (1u64..).map(|n| n * 10).zip(turns) {
            let holder = names[path.len()];
            let parent = path.last().map(|(id, _)| *id);
            let shown = |funds: &Funds, spends: i64| {
                cost(funds.spent.0 + spends, funds.granted.minus(funds.spent).0 - spends)
            };
            match turn {
                Turn::Hand { spends } if path.len() + 1 < names.len() => {
                    let now = shown(&funds, spends);
                    hand(&mut funds, n, parent, holder, names[path.len() + 1], now).unwrap();
                    path.push((n, now));
                    own += spends;
                }
                Turn::Back { spent } if !path.is_empty() => {
                    let (last, stated) = path.pop().unwrap();
                    funds.settle(id(last), spent.map(|spent| said(funds.spent.0 + spent)));
                    funds.put_behind(id(last), &stated);
                    own += spent.unwrap_or(0);
                }
                Turn::StandIn { spent } if !path.is_empty() => {
                    let (last, stated) = path.pop().unwrap();
                    funds.settle(id(last), spent.map(|spent| said(funds.spent.0 + spent)));
                    funds.put_behind(id(last), &stated);
                    own += spent.unwrap_or(0);
                    funds.pass_on(id(last), id(n), &agent(names[path.len() + 1]), &stated);
                    path.push((n, stated));
                    // Its budget is the amount in its sender's message: it states the same, and that it is done.
                    funds.settle(id(n), None);
                    funds.put_behind(id(n), &stated);
                    path.pop();
                }
                Turn::Group { spends, branches } => {
                    let whole = shown(&funds, spends);
                    let each = cost(whole.spent.0, whole.remaining.0 / 4);
                    let ids: Vec<u64> = (0..branches.len() as u64).map(|at| n + at).collect();
                    several(&mut funds, &ids, parent, holder, each);
                    own += spends;
                    for (branch, spent) in ids.iter().zip(branches) {
                        funds.settle(id(*branch), spent.map(|spent| said(each.spent.0 + spent)));
                        funds.put_behind(id(*branch), &each);
                        own += spent.unwrap_or(0);
                    }
                }
                _ => {}
            }
            adds_up(&funds);
            prop_assert_eq!(funds.spent.0, own, "what was spent counts once");
            let now = shown(&funds, 0);
            let source = agent(names[path.len()]);
            let ask = FundsRequest { parent: path.last().map(|(at, _)| id(*at)), source: &source, cost: &now };
            prop_assert_eq!(funds.spends(ask), Spending::default());
            prop_assert!(funds.check(ask).is_ok() && funds.covers(ask), "{:?}", funds);
        }
    }
}

#[test]
fn beside_handoffs_under_way_each_branch_goes_on_with_its_own_figures() {
    let mut funds = begun(100);
    hand(&mut funds, 2, Some(1), "b", "c", cost(1, 30)).unwrap();
    hand(&mut funds, 3, Some(1), "b", "d", cost(1, 30)).unwrap();
    hand(&mut funds, 4, Some(2), "c", "e", cost(3, 10)).unwrap();
    hand(&mut funds, 5, Some(3), "d", "f", cost(6, 10)).unwrap();
    funds.settle(id(4), Some(said(7)));
    funds.put_behind(id(4), &cost(3, 10));
    // c spent 2, e 4; what d spent beside them is not behind c.
    hand(&mut funds, 6, Some(2), "c", "g", cost(8, 5)).unwrap();
    assert_eq!(funds.before(id(6)), Some(said(1)));
}
