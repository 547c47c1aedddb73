use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::funds::{self, FundsRequest};
use crate::handoff::Cost;
use crate::ids::HandoffId;

fn window(text: &str) -> Window {
    text.parse().unwrap()
}

fn cap(agent: Option<&str>, text: &str) -> Cap {
    let agent = agent.map(|id| id.parse().unwrap());
    Cap::new(("acme".parse().unwrap(), agent, window(text)), None, 1, Micros(0))
}

fn at(seconds: i64) -> Micros {
    Micros(seconds * SECOND)
}

fn spends(usd: i64) -> Charge {
    Charge { spent: Usd(usd), ..Charge::default() }
}

#[test]
fn windows_are_read_and_written_as_iso_durations() {
    for (text, seconds, written) in [
        ("PT1M", 60, "PT1M"),
        ("PT1H", 3_600, "PT1H"),
        ("PT90M", 5_400, "PT1H30M"),
        ("P1DT1S", 86_401, "P1DT1S"),
        ("P1W", 604_800, "P7D"),
        ("P31D", 2_678_400, "P31D"),
    ] {
        assert_eq!(window(text).seconds(), seconds, "{text}");
        assert_eq!(window(text).to_string(), written);
    }
    for wrong in [
        "",
        "P",
        "PT",
        "PT59S",
        "P32D",
        "P1M",
        "P1Y",
        "1D",
        "P-1D",
        "P1.5D",
        "PT1H1D",
        "PT1M1H",
        "P1D ",
        "p1d",
        "P99999999D",
        "PT1H1H",
    ] {
        assert_eq!(wrong.parse::<Window>(), Err(WindowError), "{wrong}");
    }
}

#[test]
fn an_amount_counts_for_the_whole_window_and_a_step_at_most_beyond() {
    let mut cap = cap(None, "PT1H");
    cap.enter(spends(5), at(90));
    assert_eq!(cap.spent(at(90 + 3_599)), Usd(5));
    assert_eq!(cap.spent(at(90 + 3_600)), Usd(5), "its step has not left the window");
    assert_eq!(cap.spent(at(120 + 3_600)), Usd(0));
    assert_eq!(cap.spent(at(0)), Usd(5), "a clock that is behind forgets nothing");
}

#[test]
fn what_does_not_fit_is_told_with_both_sides_and_the_time_when_it_will() {
    let mut cap = cap(Some("a"), "PT1H");
    cap.enter(Charge { spent: Usd(6), reserved: Usd(1), tokens: 0 }, at(10));
    cap.enter(spends(2), at(70));
    let limit = Usd(10);
    assert_eq!(cap.excess(limit, spends(1), at(80)), None);
    assert_eq!(cap.excess(limit, spends(3), at(80)), Some(Usd(2)));
    let over = cap.over(limit, spends(3), at(80));
    let (spent, reserved, left, asked) = (Usd(8), Usd(1), Usd(1), Usd(3));
    assert_eq!(over.lack, CapShortage::Usd { cap: limit, spent, reserved, left, asked });
    assert_eq!(over.frees, Some(at(60 + 3_600)), "the six leave with their step");
    assert_eq!(over.wait, Some(Duration::from_secs(3_580)));
    assert_eq!(cap.over(limit, spends(9), at(80)).frees, Some(at(120 + 3_600)));
    assert_eq!(cap.over(limit, spends(10), at(80)).frees, None, "the reserve stays");
    let lowered = Usd(1);
    let goes_back = Charge { spent: Usd(1), reserved: Usd(-1), tokens: 0 };
    assert_eq!(cap.excess(lowered, goes_back, at(80)), None, "what adds nothing is never refused");
}

#[test]
fn books_come_back_as_they_were_kept() {
    let mut cap = cap(None, "P1D");
    let charge = Charge { spent: Usd(3), reserved: Usd(2), tokens: 5 };
    cap.enter(charge, at(1_000_000));
    cap.set_tokens(Some(9));
    let text = cap.usage.to_text();
    assert_eq!(text, r#"{"s":{"694":3},"r":2,"t":1000000000000,"l":9,"k":{"694":5}}"#);
    assert_eq!(serde_json::from_str::<CapUsage>(&text).unwrap(), cap.usage);
    let before_tokens = r#"{"s":{"694":3},"r":2,"t":1000000000000}"#;
    let usage: CapUsage = serde_json::from_str(before_tokens).unwrap();
    assert_eq!(usage.to_text(), before_tokens);
}

#[test]
fn the_settings_amounts_hold_where_an_operator_set_none() {
    let (usd, tokens) = (Some(Usd(7)), Some(70));
    let of = |window, usd, tokens| Some(CapLimit { window, usd, tokens });
    let (hour, day) = (window("PT1H"), window("P1D"));
    let defaults = Defaults {
        tenant: [of(hour, usd, None), of(day, None, tokens), None, None],
        agent: [of(hour, None, Some(1)), None, None, None],
    };
    let limits = |cap: &Cap| (cap.limit(&defaults), cap.token_limit(&defaults));
    assert_eq!(limits(&cap(None, "PT1H")), (usd, None));
    assert_eq!(limits(&cap(None, "P1D")), (None, tokens));
    assert_eq!(limits(&cap(Some("a"), "P1D")), (None, None));
    let mut own = cap(Some("a"), "PT1H");
    assert_eq!(limits(&own), (None, Some(1)));
    own.set_tokens(Some(5));
    own.usd = Some(Usd(3));
    assert_eq!(limits(&own), (Some(Usd(3)), Some(5)));
    own.enter(Charge { tokens: 4, ..Charge::default() }, at(10));
    let a = "a".parse().unwrap();
    assert_eq!(own.used_up(&a, &defaults, at(20)), None);
    own.set_tokens(None);
    let over = own.used_up(&a, &defaults, at(20)).unwrap();
    assert_eq!(over.lack, CapShortage::Tokens { cap: 1, spent: 4 }, "over the same usage");
}

#[test]
fn tokens_count_when_they_are_stated_and_a_cap_that_is_used_up_lets_nothing_through() {
    let (a, b): (AgentId, AgentId) = ("a".parse().unwrap(), "b".parse().unwrap());
    let cost = |prompt, completion| Cost {
        spent: Usd(1),
        remaining: Usd(9),
        prompt_tokens: prompt,
        completion_tokens: completion,
    };
    let id = HandoffId(uuid::Uuid::from_u128(1));
    let mut funds = Funds::open(&a, &cost(70, 20), None, Usd(0), true);
    funds.draw(id, &b, FundsRequest { parent: None, source: &a, cost: &cost(70, 20) });
    let mut settled = funds.clone();
    settled.settle(id, Some(funds::Spending { usd: Usd(2), prompt: 100, completion: 25 }));
    let none = Defaults::default();
    let mut whole = cap(None, "PT1H");
    whole.set_tokens(Some(100));
    let mut own = cap(Some("b"), "PT1H");
    own.set_tokens(Some(35));
    for (cap, first, second) in [(&mut whole, 90, 35), (&mut own, 0, 35)] {
        let charge = cap.charge(None, &funds);
        assert_eq!(charge.tokens, first);
        cap.enter(charge, at(10));
        assert_eq!(cap.used_up(&b, &none, at(20)), None);
        let charge = cap.charge(Some(&funds), &settled);
        assert_eq!(charge.tokens, second);
        cap.enter(charge, at(70));
    }
    let over = whole.used_up(&a, &none, at(80)).unwrap();
    assert_eq!(over.lack, CapShortage::Tokens { cap: 100, spent: 125 });
    assert_eq!(over.frees, Some(at(60 + 3_600)), "without the ninety there is room");
    assert_eq!(over.failure().pointer, "/costTracking/tokenSpent");
    assert_eq!(own.used_up(&b, &none, at(80)).unwrap().frees, Some(at(120 + 3_600)));
    assert_eq!(
        own.used_up(&a, &none, at(80)),
        None,
        "what an agent sends spends nothing of its own"
    );
    assert_eq!(own.used_up(&b, &none, at(120 + 3_600)), None);
    own.set_tokens(Some(0));
    assert_eq!(
        own.used_up(&b, &none, at(80)).unwrap().frees,
        None,
        "no time makes room under nothing"
    );
    own.set_tokens(None);
    assert_eq!(own.used_up(&b, &none, at(80)), None);
    own.set_tokens(Some(1));
    assert_eq!(own.spent_tokens(at(80)), 35, "they are counted under money too");
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Move {
    /// A task's first handoff, or one more out of the reserve of an open one.
    Hand { from: Option<usize>, to: u8, spends: i64, remaining: i64 },
    /// An open handoff ends; it spent this share of its budget, in percent.
    End { which: usize, percent: i64 },
    /// Time passes, in seconds.
    Wait(i64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let hand = (prop::option::of(0..8_usize), 0..3_u8, 0..40_i64, 0..60_i64)
        .prop_map(|(from, to, spends, remaining)| Move::Hand { from, to, spends, remaining });
    let end = (0..8_usize, 0..=100_i64).prop_map(|(which, percent)| Move::End { which, percent });
    let wait = (0..900_i64).prop_map(Move::Wait);
    prop::collection::vec(prop_oneof![3 => hand, 2 => end, 2 => wait], 1..120)
}

const LIMIT: Usd = Usd(100);

fn agent(n: u8) -> AgentId {
    format!("a{n}").parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Over random histories of many tasks: what was spent within any window, of the tenant and of each
    /// agent, stays under the cap, measured from the plain list of all that was spent.
    #[test]
    fn no_window_ever_holds_more_than_the_cap(history in moves()) {
        let mut caps: Vec<Cap> = std::iter::once(cap(None, "PT1H"))
            .chain((0..4).map(|n| cap(Some(agent(n).as_str()), "PT1H")))
            .collect();
        let mut tasks: Vec<Funds> = Vec::new();
        let mut open: Vec<(usize, HandoffId)> = Vec::new();
        let mut entries: Vec<(i64, AgentId, i64)> = Vec::new();
        let (mut now, mut next) = (0_i64, 0_u128);
        for step in history {
            let (task, before, after) = match step {
                Move::Wait(seconds) => {
                    now += seconds;
                    continue;
                }
                Move::Hand { from, to, spends, remaining } => {
                    let parent = from.filter(|_| !open.is_empty()).map(|at| open[at % open.len()]);
                    next += 1;
                    let id = HandoffId(uuid::Uuid::from_u128(next));
                    let cost = |spent| Cost { spent, remaining: Usd(remaining), ..Cost::default() };
                    let (task, before, mut after, source, cost) = match parent {
                        None => {
                            let (opener, cost) = (agent(3), cost(Usd(spends)));
                            let funds = Funds::open(&opener, &cost, None, Usd(0), true);
                            (tasks.len(), None, funds, opener, cost)
                        }
                        Some((task, id)) => {
                            let funds = tasks[task].clone();
                            let held = funds.reserves.iter().find(|one| one.handoff == id).unwrap();
                            let spends = Usd(spends.min(held.left.0));
                            let (source, cost) =
                                (held.holder.clone(), cost(held.stated.usd.plus(spends)));
                            (task, Some(funds.clone()), funds, source, cost)
                        }
                    };
                    let ask = FundsRequest { parent: parent.map(|(_, id)| id), source: &source, cost: &cost };
                    if after.check(ask).is_err() {
                        continue;
                    }
                    after.draw(id, &agent(to), ask);
                    after.mark_new(before.as_ref(), |_| vec![1]);
                    let refused = caps.iter().any(|cap| {
                        let charge = cap.charge(before.as_ref(), &after);
                        cap.excess(LIMIT, charge, at(now)).is_some()
                    });
                    if refused {
                        continue;
                    }
                    open.push((task, id));
                    (task, before, after)
                }
                Move::End { which, percent } => {
                    if open.is_empty() {
                        continue;
                    }
                    let (task, id) = open.remove(which % open.len());
                    let before = tasks[task].clone();
                    let mut after = before.clone();
                    let held = before.reserves.iter().find(|one| one.handoff == id).unwrap();
                    let mut said = held.stated;
                    said.usd = said.usd.plus(Usd(held.left.0 * percent / 100));
                    after.settle(id, Some(said));
                    (task, Some(before), after)
                }
            };
            for (who, sum) in &after.agents {
                let was = before.as_ref().and_then(|funds| funds.agents.get(who));
                entries.push((now, who.clone(), sum.usd.minus(was.map_or(Usd(0), |was| was.usd)).0));
            }
            for cap in &mut caps {
                let charge = cap.charge(before.as_ref(), &after);
                cap.enter(charge, at(now));
            }
            match tasks.get_mut(task) {
                Some(funds) => *funds = after,
                None => tasks.push(after),
            }
            let recent = entries.iter().filter(|(when, ..)| *when > now - 3_600);
            let mut sums: BTreeMap<&AgentId, i64> = BTreeMap::new();
            for (_, who, amount) in recent {
                *sums.entry(who).or_default() += amount;
            }
            prop_assert!(sums.values().sum::<i64>() <= LIMIT.0, "{sums:?} at {now}");
            for cap in &caps {
                prop_assert!(cap.used(at(now)) <= LIMIT, "{cap:?} at {now}");
                let own: i64 = match &cap.agent {
                    None => sums.values().sum(),
                    Some(agent) => sums.get(agent).copied().unwrap_or(0),
                };
                prop_assert!(Usd(own) <= cap.spent(at(now)), "the usage forgets nothing");
            }
            let held: i64 = tasks.iter().map(|funds| funds.reserved().0).sum();
            prop_assert_eq!(caps[0].reserved(), Usd(held));
        }
    }
}
