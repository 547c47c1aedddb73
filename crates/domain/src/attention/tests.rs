use uuid::Uuid;

use super::*;

const MINUTE: i64 = 60_000_000;
/// The time of the look.
const NOW: Micros = Micros(1_000 * MINUTE);

/// The time this number of minutes before the look.
const fn ago(minutes: i64) -> Micros {
    Micros(NOW.0 - minutes * MINUTE)
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

fn nothing() -> TenantSituation {
    TenantSituation {
        now: NOW,
        escalations: Vec::new(),
        dead_letters: Vec::new(),
        queues: Vec::new(),
        again: Vec::new(),
        idle: Vec::new(),
        still: Vec::new(),
        questions: Vec::new(),
        agents: BTreeMap::new(),
        caps: Vec::new(),
        subscriptions: Vec::new(),
        late_head: None,
    }
}

fn agent(pulls: bool) -> AgentSituation {
    AgentSituation {
        state: AgentState::Runnable,
        pulls,
        disabled: false,
        transport: if pulls { "pull" } else { "nats" },
        key_used_at: Some(ago(14)),
        breaker: None,
        changed_at: ago(600),
    }
}

fn queue_of(count: i64, since: Micros) -> WaitingDeliveries {
    WaitingDeliveries {
        target: id("risk"),
        count,
        first: HandoffId(Uuid::from_u128(2)),
        task_id: TaskId(Uuid::from_u128(1)),
        since,
        attempts: 0,
        visible_at: since,
        last_error: None,
    }
}

fn one(agent: Option<AgentSituation>, queue: WaitingDeliveries) -> Vec<Attention> {
    let agents = agent.into_iter().map(|agent| (id("risk"), agent)).collect();
    attention(&TenantSituation { queues: vec![queue], agents, ..nothing() })
}

/// Each state of a receiver with handoffs that wait, and the item that it makes.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of states")]
fn a_queue_is_told_by_its_receivers_state() {
    use AttentionKind as K;
    use Severity::{Critical, Notice, Warning};
    let paused = AgentSituation { state: AgentState::Paused, ..agent(false) };
    let disabled = AgentSituation { disabled: true, ..agent(false) };
    let silent = AgentSituation { key_used_at: None, ..agent(true) };
    let lively = AgentSituation { key_used_at: Some(NOW), ..agent(true) };
    let tried = |count, attempts, reason: Option<&str>| WaitingDeliveries {
        attempts,
        visible_at: Micros(NOW.0 + MINUTE),
        last_error: reason.map(str::to_owned),
        ..queue_of(count, ago(3))
    };
    let cases = [
        (
            Some(agent(true)),
            queue_of(3, ago(20)),
            Some((
                K::NotFetched,
                Warning,
                "risk has not polled for 14 min; 3 handoffs wait for it, the oldest for 20 min.",
            )),
        ),
        (
            Some(agent(true)),
            queue_of(1, ago(2)),
            Some((
                K::NotFetched,
                Notice,
                "risk has not polled for 14 min; 1 handoff waits for it for 2 min.",
            )),
        ),
        (Some(agent(true)), queue_of(1, ago(0)), None),
        (
            Some(silent),
            queue_of(10_000, ago(180)),
            Some((
                K::NotFetched,
                Warning,
                "risk has never polled; 10000 handoffs wait for it, the oldest for 3 h.",
            )),
        ),
        (
            Some(lively),
            queue_of(2, ago(6)),
            Some((
                K::NotFetched,
                Warning,
                "risk makes requests and does not fetch its handoffs; 2 handoffs wait for it, the oldest for 6 min.",
            )),
        ),
        (
            Some(paused.clone()),
            queue_of(1, ago(0)),
            Some((K::ReceiverPaused, Notice, "risk is paused; 1 handoff waits for it for 0 s.")),
        ),
        (
            Some(paused),
            queue_of(2, ago(60)),
            Some((
                K::ReceiverPaused,
                Warning,
                "risk is paused; 2 handoffs wait for it, the oldest for 1 h.",
            )),
        ),
        (
            Some(disabled),
            queue_of(1, ago(0)),
            Some((
                K::EndpointDisabled,
                Critical,
                "The endpoint of risk is disabled after failures; 1 handoff waits for it for 0 s.",
            )),
        ),
        (
            None,
            queue_of(1, ago(5)),
            Some((
                K::ReceiverDeleted,
                Critical,
                "No agent has the id risk any more; 1 handoff waits for it for 5 min.",
            )),
        ),
        (
            Some(agent(false)),
            tried(1, 1, Some("HTTP_500")),
            Some((
                K::DeliveryFailing,
                Warning,
                "An attempt at risk failed (HTTP_500); 1 handoff waits for it for 3 min.",
            )),
        ),
        (
            Some(agent(false)),
            tried(4, 6, None),
            Some((
                K::DeliveryFailing,
                Warning,
                "Attempts at risk failed; 4 handoffs wait for it, the oldest for 3 min.",
            )),
        ),
        (Some(agent(false)), queue_of(40, ago(9)), None),
    ];
    for (agent, queue, expected) in cases {
        let items = one(agent, queue.clone());
        let Some((kind, severity, sentence)) = expected else {
            assert_eq!(items, [], "{queue:?}");
            continue;
        };
        let [item] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!((item.kind, item.severity, item.sentence.as_str()), (kind, severity, sentence));
        assert_eq!(
            (item.count, item.since, item.attempts),
            (queue.count, queue.since, queue.attempts)
        );
        assert_eq!((&item.agent, &item.last_error), (&Some(id("risk")), &queue.last_error));
        assert!(!item.remedies.is_empty(), "{sentence}");
    }
}

#[test]
fn the_next_attempt_is_told_while_it_is_to_come() {
    let due = Micros(NOW.0 + MINUTE);
    let queue = |visible_at| WaitingDeliveries { attempts: 2, visible_at, ..queue_of(1, ago(3)) };
    let next = |at| one(Some(agent(false)), queue(at)).remove(0).next.map(|next| next.at);
    assert_eq!(next(due), Some(due));
    assert_eq!(next(ago(1)), None);
}

/// A failing receiver is listed while an attempt is under way, until one succeeds: then no delivery is left.
#[test]
fn a_failing_receiver_stays_listed_during_the_next_attempt() {
    use AttentionKind as K;
    let again = |attempts, since| WaitingDeliveries {
        attempts,
        visible_at: Micros(NOW.0 + MINUTE),
        last_error: Some("DELIVERY_STATUS".to_owned()),
        ..queue_of(1, since)
    };
    let of = |agent: AgentSituation, queues: Vec<WaitingDeliveries>, again| {
        let agents = BTreeMap::from([(id("risk"), agent)]);
        attention(&TenantSituation { queues, again: vec![again], agents, ..nothing() })
    };
    let item = of(agent(false), vec![], again(2, ago(3))).remove(0);
    assert_eq!((item.kind, item.count, item.attempts), (K::DeliveryFailing, 1, 1));
    assert_eq!(
        item.sentence,
        "An attempt at risk failed (DELIVERY_STATUS); 1 handoff waits for it for 3 min."
    );
    assert_eq!(item.next, None, "the attempt is under way");
    // With those that wait it is one item, since the older of them.
    let item = of(agent(false), vec![queue_of(2, ago(2))], again(4, ago(9))).remove(0);
    assert_eq!(
        (item.kind, item.count, item.attempts, item.since),
        (K::DeliveryFailing, 3, 3, ago(9))
    );
    let open = AgentSituation { breaker: Some(breaker(1, 4, None)), ..agent(false) };
    let item = of(open, vec![], again(2, ago(3))).remove(0);
    assert_eq!((item.kind, item.count), (K::BreakerOpen, 1));
    assert!(item.sentence.ends_with("1 handoff waits for it for 3 min."), "{}", item.sentence);
    // A receiver that pulls holds it: nothing failed.
    assert_eq!(of(agent(true), vec![], again(2, ago(30))), []);
    assert_eq!(of(agent(false), vec![], again(2, ago(0))), [], "young");
}

/// Receivers of one transport that is away are one item; other receivers and breakers are not in it.
#[test]
fn a_transport_that_is_away_is_told_with_all_its_receivers() {
    use AttentionKind as K;
    let away =
        AgentSituation { breaker: Some(breaker(1, 4, Some(TRANSPORT_AWAY))), ..agent(false) };
    let earlier =
        AgentSituation { breaker: Some(breaker(2, 6, Some(TRANSPORT_AWAY))), ..agent(false) };
    let alone = AgentSituation { transport: "sqs", ..away.clone() };
    let failing =
        AgentSituation { breaker: Some(breaker(1, 5, Some("DELIVERY_STATUS"))), ..agent(false) };
    let paused = AgentSituation { state: AgentState::Paused, ..away.clone() };
    let to = |target: &str, count, since| WaitingDeliveries {
        target: id(target),
        ..queue_of(count, since)
    };
    let situation = TenantSituation {
        agents: BTreeMap::from([
            (id("one"), away),
            (id("two"), earlier),
            (id("three"), alone),
            (id("four"), failing),
            (id("five"), paused),
        ]),
        queues: vec![to("one", 2, ago(3)), to("two", 1, ago(9)), to("four", 1, ago(2))],
        ..nothing()
    };
    let items = attention(&situation);
    let kinds: Vec<_> = items.iter().map(|item| (item.kind, item.since, item.count)).collect();
    assert_eq!(
        kinds,
        [(K::TransportAway, ago(9), 3), (K::BreakerOpen, ago(5), 1), (K::TransportAway, ago(4), 0),]
    );
    assert_eq!(
        items[0].sentence,
        "The transport nats has been away for 6 min: its servers cannot be reached, do not answer in time, are full, or refuse the broker; 2 receivers get nothing; 3 handoffs wait, the oldest for 9 min."
    );
    assert_eq!((&items[0].agent, items[0].agents.len()), (&None, 2));
    assert!(items[0].is_about(&id("one")) && !items[0].is_about(&id("four")));
    assert_eq!(
        items[2].sentence,
        "The transport sqs has been away for 4 min: its servers cannot be reached, do not answer in time, are full, or refuse the broker; three gets nothing; no handoff waits."
    );
    assert_eq!(items[2].agent, Some(id("three")));
    assert!(items.iter().all(|item| !item.remedies.is_empty()));
}

fn escalations(reason: &str, since: Micros, number: u128) -> OpenEscalations {
    OpenEscalations {
        source: id("intake"),
        target: id("risk"),
        reason: reason.to_owned(),
        count: 2,
        first: EscalationId(Uuid::from_u128(number)),
        task_id: TaskId(Uuid::from_u128(1)),
        since,
        timeout_at: Micros(NOW.0 + MINUTE),
    }
}

#[test]
fn decisions_come_first_and_the_oldest_before_the_others() {
    let situation = TenantSituation {
        escalations: vec![escalations("TIMEOUT", ago(5), 7), escalations("REJECTED", ago(50), 8)],
        dead_letters: vec![OpenDeadLetters {
            source: id("intake"),
            reason: "SAFETY_VIOLATION".to_owned(),
            count: 1,
            first: HandoffId(Uuid::from_u128(9)),
            task_id: TaskId(Uuid::from_u128(1)),
            since: ago(20),
        }],
        queues: vec![queue_of(3, ago(600))],
        agents: BTreeMap::from([(id("risk"), agent(true))]),
        ..nothing()
    };
    let items = attention(&situation);
    let sentences: Vec<&str> = items.iter().map(|item| item.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "A person has to decide on 2 handoffs from intake to risk (REJECTED); the oldest waits for 50 min.",
            "The gate refused 1 message of intake (SAFETY_VIOLATION); a person has had to decide for 20 min.",
            "A person has to decide on 2 handoffs from intake to risk (TIMEOUT); the oldest waits for 5 min.",
            "risk has not polled for 14 min; 3 handoffs wait for it, the oldest for 10 h.",
        ]
    );
    let mut places: Vec<Place> = items.iter().map(Attention::place).collect();
    assert!(places.is_sorted());
    places.dedup();
    assert_eq!(places.len(), items.len(), "each item has a place of its own");
    assert_eq!(items[1].dead_letter, Some(HandoffId(Uuid::from_u128(9))));
    assert_eq!(items[0].escalation, Some(EscalationId(Uuid::from_u128(8))));
}

#[test]
fn idle_tasks_are_told_by_holder_and_used_up_budgets_apart() {
    let idle = |used_up, count, since| IdleTasks {
        holder: id("intake"),
        used_up,
        count,
        first: TaskId(Uuid::from_u128(5)),
        since,
    };
    let of = |idle| attention(&TenantSituation { idle: vec![idle], ..nothing() });
    assert_eq!(of(idle(false, 3, ago(0))), [], "a task that has just come back");
    let item = of(idle(false, 1, ago(4))).remove(0);
    assert_eq!((item.kind, item.severity), (AttentionKind::TasksIdle, Severity::Notice));
    assert_eq!(item.sentence, "intake has 1 task back and has not handed on, for 4 min.");
    let item = of(idle(false, 1_400, ago(200))).remove(0);
    assert_eq!((item.kind, item.severity), (AttentionKind::TasksIdle, Severity::Warning));
    assert_eq!(
        item.sentence,
        "intake has 1400 tasks back and has not handed on, the oldest for 3 h."
    );
    let item = of(idle(true, 2, ago(0))).remove(0);
    assert_eq!((item.kind, item.severity), (AttentionKind::BudgetUsedUp, Severity::Critical));
    assert_eq!(
        item.sentence,
        "Nothing is left of the budget of 2 tasks with intake; no handoff is open, the oldest for 0 s."
    );
}

#[test]
fn an_endpoint_a_cap_and_a_subscription_are_told_by_themselves() {
    let disabled = AgentSituation { disabled: true, ..agent(false) };
    let usd = |text: &str| text.parse::<Usd>().unwrap();
    let situation = TenantSituation {
        agents: BTreeMap::from([(id("risk"), disabled)]),
        caps: vec![
            UsedUpCap {
                agent: Some(id("intake")),
                window: "P1D".parse().unwrap(),
                money: Some((usd("5"), usd("5"))),
                since: ago(3),
            },
            UsedUpCap { agent: None, window: "PT1H".parse().unwrap(), money: None, since: ago(2) },
        ],
        subscriptions: vec![DisabledSubscription {
            id: SubscriptionId(Uuid::from_u128(6)),
            reason: "GONE".to_owned(),
            since: ago(1),
        }],
        ..nothing()
    };
    let items = attention(&situation);
    let kinds: Vec<_> = items.iter().map(|item| (item.kind, item.severity, item.count)).collect();
    assert_eq!(
        kinds,
        [
            (AttentionKind::EndpointDisabled, Severity::Warning, 0),
            (AttentionKind::CapUsedUp, Severity::Warning, 0),
            (AttentionKind::CapUsedUp, Severity::Warning, 0),
            (AttentionKind::SubscriptionDisabled, Severity::Warning, 0),
        ]
    );
    assert!(items[1].sentence.starts_with("The cap of intake for P1D has no room: "));
    assert!(items[1].remedies[0].request.starts_with("PUT /caps/P1D?agentId=intake"));
    assert!(
        items[2].sentence.starts_with("The tenant's cap for PT1H has no room: all of its tokens")
    );
}

fn breaker(brokers: usize, minutes: i64, reason: Option<&str>) -> OpenBreaker {
    OpenBreaker { brokers, since: ago(minutes), reason: reason.map(str::to_owned) }
}

/// Each state of a receiver with an open breaker, with and without handoffs that wait, and the item that it makes.
#[test]
fn an_open_breaker_is_told_once_with_what_it_holds_up() {
    use AttentionKind as K;
    let open =
        AgentSituation { breaker: Some(breaker(1, 4, Some("DELIVERY_STATUS"))), ..agent(false) };
    let two = AgentSituation { breaker: Some(breaker(2, 90, None)), ..agent(false) };
    let pulls = AgentSituation { pulls: true, ..open.clone() };
    let paused = AgentSituation { state: AgentState::Paused, ..open.clone() };
    let disabled = AgentSituation { disabled: true, ..open.clone() };
    let tried = WaitingDeliveries { attempts: 5, ..queue_of(3, ago(2)) };
    let cases = [
        (
            open.clone(),
            Some(tried.clone()),
            Some((
                K::BreakerOpen,
                ago(4),
                "1 broker has sent risk single probes alone for 4 min, after failures in a row (DELIVERY_STATUS); 3 handoffs wait for it, the oldest for 2 min.",
            )),
        ),
        (
            open,
            Some(queue_of(1, ago(0))),
            Some((
                K::BreakerOpen,
                ago(4),
                "1 broker has sent risk single probes alone for 4 min, after failures in a row (DELIVERY_STATUS); 1 handoff waits for it for 0 s.",
            )),
        ),
        (
            two.clone(),
            None,
            Some((
                K::BreakerOpen,
                ago(90),
                "2 brokers have sent risk single probes alone for 1 h, after failures in a row; no handoff waits for it.",
            )),
        ),
        (
            two,
            Some(queue_of(1, ago(120))),
            Some((
                K::BreakerOpen,
                ago(120),
                "2 brokers have sent risk single probes alone for 1 h, after failures in a row; 1 handoff waits for it for 2 h.",
            )),
        ),
        (pulls.clone(), None, None),
        (pulls, Some(tried.clone()), Some((K::NotFetched, ago(2), ""))),
        (paused.clone(), None, None),
        (paused, Some(tried.clone()), Some((K::ReceiverPaused, ago(2), ""))),
        (disabled.clone(), None, Some((K::EndpointDisabled, ago(600), ""))),
        (disabled, Some(tried), Some((K::EndpointDisabled, ago(2), ""))),
    ];
    for (agent, queue, expected) in cases {
        let agents = BTreeMap::from([(id("risk"), agent)]);
        let queues: Vec<_> = queue.into_iter().collect();
        let count = queues.first().map_or(0, |queue| queue.count);
        let items = attention(&TenantSituation { queues, agents, ..nothing() });
        let Some((kind, since, sentence)) = expected else {
            assert_eq!(items, []);
            continue;
        };
        let [item] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!((item.kind, item.since, item.count), (kind, since, count));
        assert!(sentence.is_empty() || item.sentence == sentence, "{}", item.sentence);
        assert_eq!(item.agent, Some(id("risk")));
        assert!(!item.remedies.is_empty(), "{kind:?}");
    }
}

#[test]
fn tasks_and_questions_are_told_after_a_minute_and_warned_of_after_an_hour() {
    use Severity::{Notice, Warning};
    let still = |count, since| IdleTasks {
        holder: id("intake"),
        used_up: false,
        count,
        first: TaskId(Uuid::from_u128(5)),
        since,
    };
    let open_questions = |count, since| OpenQuestions {
        sender: id("intake"),
        count,
        first: HandoffId(Uuid::from_u128(2)),
        task_id: TaskId(Uuid::from_u128(5)),
        asked_by: id("risk"),
        since,
        due_at: Some(Micros(NOW.0 + MINUTE)),
    };
    let cases = [
        (1, 0, None, "", ""),
        (
            1,
            4,
            Some(Notice),
            "intake runs 1 task and has neither handed on nor completed; no handoff is open, for 4 min.",
            "intake has not answered a question of risk for 4 min.",
        ),
        (
            1_400,
            200,
            Some(Warning),
            "intake runs 1400 tasks and has neither handed on nor completed; no handoff is open, the oldest for 3 h.",
            "intake has not answered 1400 questions; risk has waited longest, for 3 h.",
        ),
    ];
    for (count, minutes, severity, of_tasks, of_questions) in cases {
        let situation = TenantSituation {
            still: vec![still(count, ago(minutes))],
            questions: vec![open_questions(count, ago(minutes))],
            ..nothing()
        };
        let items = attention(&situation);
        let Some(severity) = severity else {
            assert_eq!(items, []);
            continue;
        };
        let [question, tasks] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!(
            (tasks.kind, question.kind),
            (AttentionKind::TasksUnmoved, AttentionKind::QuestionOpen)
        );
        assert_eq!((&tasks.sentence[..], &question.sentence[..]), (of_tasks, of_questions));
        assert_eq!(question.next.as_ref().map(|next| next.at), Some(Micros(NOW.0 + MINUTE)));
        for item in [tasks, question] {
            assert_eq!((item.severity, item.count), (severity, count));
            assert_eq!(item.remedies.len(), 2);
        }
    }
}

#[test]
fn a_late_tree_head_is_told_with_what_the_place_has() {
    let late_head = LateHead { place: "file", published: 7, size: 9, since: ago(12) };
    let items = attention(&TenantSituation { late_head: Some(late_head), ..nothing() });
    let [item] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!((item.kind, item.severity), (AttentionKind::TreeHeadLate, Severity::Warning));
    assert_eq!(
        item.sentence,
        "A place outside the database (file) lacks records of the log for 12 min: its last tree head covers 7 of 9."
    );
    assert!(!item.remedies.is_empty());
}
