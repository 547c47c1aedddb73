//! Claims, releases, deadlines.

use std::collections::BTreeMap;
use std::sync::Arc;

use handoffd::store::{
    ClaimRelease, ContentStorage, DeliveryClaim, HandoffKey, ReturnRow, Store, Writes,
};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus, Priority};
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_evidence::record::RecordKind;

use crate::fixture::{
    Given, agent, all_different, content_id, given, handoff_id, needs, see, settle, submit,
    transact, write,
};
use crate::harness::{Bed, acme};

const NOW: Micros = Micros(1_000_000);
const UNTIL: Micros = Micros(2_000_000);

async fn claim(store: &Arc<Store>, receiver: &str, limit: i64) -> Vec<DeliveryClaim> {
    store
        .claim(&(acme(), agent(receiver)), DeliveryMode::Webhook, "b1", NOW, UNTIL, limit)
        .await
        .unwrap()
}

fn ids(claims: &[DeliveryClaim]) -> Vec<HandoffId> {
    claims.iter().map(|claim| claim.handoff_id).collect()
}

pub async fn a_claim_has_what_an_attempt_needs(bed: Arc<Bed>) {
    let one = given(1, 1).about("s1", r#"{"data":1}"#).about("s2", r#"{"data":2}"#);
    let second = given(2, 2);
    submit(&bed.store, &[one.clone(), second.clone()]).await;
    let claims = claim(&bed.store, "bob", 10).await;
    let handoff = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    assert_eq!(
        claims[0],
        DeliveryClaim {
            tenant: acme(),
            handoff_id: one.id(),
            task_id: one.task,
            target: agent("bob"),
            attempt: 1,
            busy: 0,
            deadline_at: None,
            to_person: false,
            fencing_token: 1,
            idempotent: true,
            unsettled: false,
            max_retries: None,
            verdict_ms: None,
            traceparent: handoff.traceparent,
            tracestate: handoff.tracestate,
            span: handoff.span,
            context: None,
            compressed: false,
            body: one.body.clone().into(),
            personal: one.personal.iter().map(|(_, data)| data.clone()).collect(),
        }
    );
    assert_eq!((claims[1].idempotent, claims[1].personal.len()), (false, 0));
    assert_eq!(claims[1].body, second.body);
    let row = see(&bed.store, std::slice::from_ref(&one)).await.outbox[&one.key()].clone();
    assert_eq!((row.visible_at, row.attempt), (UNTIL, 1));
    assert_eq!(row.claimed_by.as_deref(), Some("b1"));
}

/// A sent message does not change: each attempt has the compressed message, and says so.
pub async fn a_claim_of_a_compressed_message_has_what_was_sent(bed: Arc<Bed>) {
    let (one, plain) = (given(1, 1), given(2, 2));
    submit(&bed.store, &[one.clone(), plain.clone()]).await;
    let short = br#"{"historyStrategy":"compressed"}"#;
    let mut record = one.record(RecordKind::Compressed);
    record.content = Some(one.content(9, short));
    let mut sent = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    sent.sent_id = Some(content_id(9));
    let handoffs = [(one.key(), (sent.clone(), false))].into();
    let writes = Writes { handoffs, records: vec![record], ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    for attempt in 1..=2 {
        let now = Micros(UNTIL.0 * attempt);
        let until = Micros(now.0 + 1);
        let mode = DeliveryMode::Webhook;
        let claims = bed.store.claim(&one.receiver(), mode, "b1", now, until, 10).await.unwrap();
        assert_eq!(claims.len(), 2);
        assert_eq!((&claims[0].body[..], claims[0].compressed), (&short[..], true));
        assert!(!claims[0].is_to_compress(), "it is not compressed twice");
        assert_eq!((&claims[1].body[..], claims[1].compressed), (&plain.body[..], false));
    }
    let kept = bed.store.find_content(&acme(), content_id(1)).await.unwrap().unwrap();
    assert!(kept.kept.hot().is_some(), "the original stays");
    assert_eq!(crate::tamper::verify(&bed.store, &acme()).await.first_fault, None);
}

pub async fn only_the_first_of_a_task_is_claimed(bed: Arc<Bed>) {
    // The first goes to carol: what is behind it for bob waits for her.
    let batch = [given(1, 1).to("carol"), given(2, 1), given(3, 1), given(4, 2), given(5, 2)];
    submit(&bed.store, &batch).await;
    assert_eq!(ids(&claim(&bed.store, "bob", 10).await), [handoff_id(4)]);
    assert_eq!(claim(&bed.store, "bob", 10).await, []);
    assert_eq!(ids(&claim(&bed.store, "carol", 10).await), [handoff_id(1)]);
    assert_eq!(claim(&bed.store, "dave", 10).await, []);
}

/// FINDINGS E2 of 0.3.0: an outbox row's target was changed, and the message went there.
pub async fn a_row_for_another_receiver_than_its_handoffs_is_not_sent(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 2).to("carol")]).await;
    let of = handoff_id(1);
    let sql = format!("UPDATE outbox SET target = 'carol' WHERE handoff_id = '{of}'");
    assert_eq!(bed.raw().await.run(&sql).await.unwrap(), 1);
    assert_eq!(
        ids(&claim(&bed.store, "carol", 10).await),
        [handoff_id(2)],
        "its neighbour is sent"
    );
    assert_eq!(claim(&bed.store, "bob", 10).await, []);
}

pub async fn nothing_is_claimed_before_its_time(bed: Arc<Bed>) {
    let one = given(1, 1).at(500);
    let bob = one.receiver();
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let early =
        bed.store.claim(&bob, DeliveryMode::Webhook, "b1", Micros(499), UNTIL, 10).await.unwrap();
    assert_eq!(early, []);
    let due =
        bed.store.claim(&bob, DeliveryMode::Webhook, "b1", Micros(500), UNTIL, 10).await.unwrap();
    assert_eq!(due.len(), 1);
    settle(&bed.store, &one).await;
}

pub async fn a_claim_takes_the_oldest_first_and_no_more_than_asked(bed: Arc<Bed>) {
    let batch: Vec<_> =
        (1..=6).map(|n| given(n, n).at(i64::try_from(700 - 100 * n).unwrap())).collect();
    submit(&bed.store, &batch).await;
    let first = ids(&claim(&bed.store, "bob", 2).await);
    assert_eq!(first, [handoff_id(6), handoff_id(5)]);
    let rest = ids(&claim(&bed.store, "bob", 10).await);
    assert_eq!(rest, [4, 3, 2, 1].map(handoff_id));
}

pub async fn the_more_urgent_goes_first_and_a_task_keeps_its_order(bed: Arc<Bed>) {
    use Priority::{High, Low, Normal, Urgent};
    let batch = [
        given(1, 1).wanted(Low),
        given(2, 2),
        given(3, 3).wanted(Urgent),
        given(4, 4).wanted(High),
        given(5, 5).wanted(Urgent),
        // As urgent as it is, it waits for the first of its task.
        given(6, 1).wanted(Urgent),
        given(7, 7).wanted(Normal),
    ];
    submit(&bed.store, &batch).await;
    assert_eq!(ids(&claim(&bed.store, "bob", 4).await), [3, 5, 4, 2].map(handoff_id));
    assert_eq!(ids(&claim(&bed.store, "bob", 4).await), [7, 1].map(handoff_id));
    settle(&bed.store, &batch[0]).await;
    assert_eq!(ids(&claim(&bed.store, "bob", 4).await), [handoff_id(6)]);
}

pub async fn an_attempt_is_counted_with_each_claim(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    for attempt in 1..=3 {
        let now = Micros(NOW.0 * i64::from(attempt));
        let until = Micros(now.0 + 1);
        let claims = bed
            .store
            .claim(&one.receiver(), DeliveryMode::Webhook, "b1", now, until, 10)
            .await
            .unwrap();
        assert_eq!(claims[0].attempt, attempt);
    }
}

/// The fact that distinguishes an attempt that may have reached its receiver from one that was settled.
pub async fn a_claim_tells_whether_the_attempt_before_has_an_end(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let first = claim(&bed.store, "bob", 1).await;
    assert!(!first[0].unsettled, "nothing was before");
    bed.store.release(ClaimRelease::Everyone).await.unwrap();
    let second = claim(&bed.store, "bob", 1).await;
    assert_eq!((second[0].attempt, second[0].unsettled), (2, true), "its broker never said");
    // As a settlement leaves it that wants another attempt.
    let wanted = needs(std::slice::from_ref(&one));
    let done = transact(&bed.store, &wanted, |state| {
        let mut handoff = state.handoffs[&one.key()].clone();
        let mut row = state.outbox[&one.key()].clone();
        (handoff.attempts, handoff.reason) = (row.attempt, Some("DELIVERY_CONNECT".to_owned()));
        (row.claimed_by, row.visible_at) = (None, Micros(0));
        let mut writes = Writes::default();
        writes.handoffs.insert(one.key(), (handoff, false));
        writes.outbox.insert(one.key(), Some(row));
        writes
    });
    done.await.unwrap();
    let third = claim(&bed.store, "bob", 1).await;
    assert_eq!((third[0].attempt, third[0].unsettled), (3, false), "it is known how that ended");
}

pub async fn a_row_is_never_handed_out_twice(bed: Arc<Bed>) {
    const ROWS: usize = 200;
    let batch: Vec<_> = (1..=ROWS as u128).map(|n| given(n, n)).collect();
    submit(&bed.store, &batch).await;
    let other = bed.second().await;
    let mut brokers = tokio::task::JoinSet::new();
    for broker in 0..8 {
        let store = if broker % 2 == 0 { bed.store.clone() } else { other.clone() };
        brokers.spawn(async move {
            let (mut got, mut empty) = (Vec::new(), 0);
            // A neighbour's lock may hide rows for a moment: an empty answer ends it when repeated.
            while empty < 5 {
                let claims = claim(&store, "bob", 7).await;
                empty = if claims.is_empty() { empty + 1 } else { 0 };
                assert!(claims.iter().all(|claim| claim.attempt == 1));
                got.extend(ids(&claims));
            }
            got
        });
    }
    let got = brokers.join_all().await.concat();
    all_different(&got);
    assert_eq!(got.len(), ROWS);
}

pub async fn a_task_is_never_handed_out_twice_at_once(bed: Arc<Bed>) {
    const TASKS: u128 = 4;
    const EACH: u128 = 8;
    let batch: Vec<_> = (0..TASKS * EACH).map(|n| given(n + 1, n % TASKS)).collect();
    submit(&bed.store, &batch).await;
    let by_id: Arc<BTreeMap<HandoffId, Given>> =
        Arc::new(batch.into_iter().map(|given| (given.id(), given)).collect());
    let other = bed.second().await;
    let out = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut brokers = tokio::task::JoinSet::new();
    for broker in 0..6 {
        let store = if broker % 2 == 0 { bed.store.clone() } else { other.clone() };
        let (by_id, out, order) = (by_id.clone(), out.clone(), order.clone());
        brokers.spawn(async move {
            while order.lock().unwrap().len() < by_id.len() {
                for claimed in claim(&store, "bob", 3).await {
                    let task = claimed.task_id;
                    assert!(out.lock().unwrap().insert(task), "two of one task are out");
                    order.lock().unwrap().push((task, claimed.handoff_id));
                    tokio::task::yield_now().await;
                    // Before the row goes: from then on the next one may be handed out.
                    out.lock().unwrap().remove(&task);
                    settle(&store, &by_id[&claimed.handoff_id]).await;
                }
                // In memory nothing waits: who finds nothing must let those go on who have something.
                tokio::task::yield_now().await;
            }
        });
    }
    brokers.join_all().await;
    let order = order.lock().unwrap();
    all_different(&order);
    for task in 0..TASKS {
        let task = crate::fixture::task_id(task);
        let of_task: Vec<_> = order.iter().filter(|(t, _)| *t == task).map(|(_, h)| h).collect();
        assert!(of_task.is_sorted(), "out of order: {of_task:?}");
    }
}

pub async fn a_batch_does_not_undo_a_claim(bed: Arc<Bed>) {
    const ROUNDS: i32 = 60;
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let other = bed.second().await;
    let claiming = {
        let (store, receiver) = (other.clone(), one.receiver());
        tokio::spawn(async move {
            let mut claims = 0;
            while claims < ROUNDS {
                // Visible again at once, so that the next round may claim it.
                let got =
                    store.claim(&receiver, DeliveryMode::Webhook, "b2", NOW, NOW, 1).await.unwrap();
                claims += i32::try_from(got.len()).unwrap();
                assert!(got.iter().all(|claim| claim.attempt == claims));
            }
        })
    };
    while !claiming.is_finished() {
        let rewrite = transact(&bed.store, &needs(std::slice::from_ref(&one)), |state| {
            let mut writes = Writes::default();
            writes.outbox.insert(one.key(), state.outbox.get(&one.key()).cloned());
            writes
        })
        .await;
        rewrite.unwrap();
    }
    claiming.await.unwrap();
    let row = see(&bed.store, std::slice::from_ref(&one)).await.outbox[&one.key()].clone();
    assert_eq!(row.attempt, ROUNDS);
}

pub async fn a_settled_handoff_frees_the_next_of_its_task(bed: Arc<Bed>) {
    let batch = [given(1, 1), given(2, 1).to("carol"), given(3, 1)];
    submit(&bed.store, &batch).await;
    for (step, one) in batch.iter().enumerate() {
        let got = claim(&bed.store, one.target.as_str(), 10).await;
        assert_eq!(ids(&got), [one.id()], "step {step}");
        settle(&bed.store, one).await;
    }
    assert_eq!(bed.store.depths(Micros(0)).await.unwrap().outbox, 0);
}

pub async fn erased_content_is_claimed_empty(bed: Arc<Bed>) {
    let one = given(1, 1).about("s1", r#"{"data":1}"#).about("s2", r#"{"data":2}"#);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let mut raw = bed.raw().await;
    raw.run("UPDATE contents SET salt = NULL, bytes = NULL").await.unwrap();
    raw.run("UPDATE personal_data SET salt = NULL, bytes = NULL WHERE subject_id = 's1'")
        .await
        .unwrap();
    let claims = claim(&bed.store, "bob", 10).await;
    assert!(claims[0].body.is_empty());
    assert_eq!(claims[0].personal, [one.personal[1].1.clone()]);
    let content = see(&bed.store, std::slice::from_ref(&one)).await.handoffs[&one.key()].content_id;
    let content = bed.store.find_content(&acme(), content.unwrap()).await.unwrap().unwrap();
    assert_eq!(content.kept, ContentStorage::Erased);
}

pub async fn unreadable_content_keeps_no_neighbour_back(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 2), given(3, 3)]).await;
    let mut raw = bed.raw().await;
    let content = crate::fixture::content_id(2);
    let sql =
        format!("UPDATE contents SET codec = 'zstd', bytes = $1 WHERE content_id = '{content}'");
    assert_eq!(raw.put(&sql, b"rubbish").await, 1);
    let claims = claim(&bed.store, "bob", 10).await;
    assert_eq!(ids(&claims), [1, 3].map(handoff_id));
}

pub async fn due_receivers_are_found_by_mode(bed: Arc<Bed>) {
    bed.store.ensure_tenant(&"beta".parse().unwrap(), "log-beta", Micros(1)).await.unwrap();
    let batch = [
        given(1, 1).at(300),
        given(2, 2).at(301),
        given(3, 3).to("carol").at(100),
        given(4, 1).to("dave").at(50), // behind the first of task 1
        given(5, 5).to("erin").by_pull().at(60),
        given(6, 6).to("frank").at(5_000),
        given(7, 7).of("beta").at(200),
    ];
    submit(&bed.store, &batch).await;
    let due = async |mode, now, limit| {
        let due = bed.store.list_due_receivers(mode, Micros(now), limit).await.unwrap();
        let mut due: Vec<_> =
            due.iter().map(|(tenant, agent)| format!("{tenant}/{agent}")).collect();
        due.sort();
        due
    };
    assert_eq!(due(DeliveryMode::Webhook, 400, 10).await, ["acme/bob", "acme/carol", "beta/bob"]);
    assert_eq!(due(DeliveryMode::Webhook, 400, 2).await.len(), 2);
    assert_eq!(due(DeliveryMode::Webhook, 150, 10).await, ["acme/carol"]);
    assert_eq!(due(DeliveryMode::Pull, 400, 10).await, ["acme/erin"]);
    assert_eq!(due(DeliveryMode::Pull, 59, 10).await, [""; 0]);
    bed.store
        .claim(&batch[2].receiver(), DeliveryMode::Webhook, "b1", Micros(400), UNTIL, 1)
        .await
        .unwrap();
    assert_eq!(due(DeliveryMode::Webhook, 400, 10).await, ["acme/bob", "beta/bob"]);
}

/// Otherwise a dispatcher would wake, claim nothing, and wake again at once.
pub async fn a_handoff_behind_anothers_is_not_due(bed: Arc<Bed>) {
    let batch = [given(1, 1).to("carol"), given(2, 1)];
    submit(&bed.store, &batch).await;
    let (carol, bob) = (batch[0].receiver(), batch[1].receiver());
    let due = bed.store.list_due_receivers(DeliveryMode::Webhook, NOW, 10).await.unwrap();
    assert_eq!(due, std::slice::from_ref(&carol));
    bed.store.claim(&carol, DeliveryMode::Webhook, "b1", NOW, UNTIL, 10).await.unwrap();
    settle(&bed.store, &batch[0]).await;
    let due = bed.store.list_due_receivers(DeliveryMode::Webhook, NOW, 10).await.unwrap();
    assert_eq!(due, std::slice::from_ref(&bob));
}

/// Batches over shared tasks in clashing order, claims, releases and signs of life, all at once: no
/// deadlock, nothing lost, the log is whole.
pub async fn everything_at_once_stays_sound(bed: Arc<Bed>) {
    const WRITERS: u128 = 4;
    const ROUNDS: u128 = 15;
    let other = bed.second().await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut sweepers = tokio::task::JoinSet::new();
    for sweeper in 0..4 {
        let store = if sweeper % 2 == 0 { bed.store.clone() } else { other.clone() };
        let stop = stop.clone();
        sweepers.spawn(async move {
            let broker = format!("b{sweeper}");
            let bob = (acme(), agent("bob"));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                store.beat(&broker, NOW).await.unwrap();
                store.claim(&bob, DeliveryMode::Webhook, &broker, NOW, NOW, 5).await.unwrap();
                let beats = store.list_heartbeats().await.unwrap();
                if let Some((silent, value)) = beats.get(sweeper) {
                    store.release(ClaimRelease::Silent(silent, Some(*value))).await.unwrap();
                }
                let held = store.list_claims(&broker).await.unwrap();
                store.release(ClaimRelease::These(&broker, &held)).await.unwrap();
                store.claim(&bob, DeliveryMode::Webhook, &broker, NOW, UNTIL, 5).await.unwrap();
                store.release(ClaimRelease::Own(&broker)).await.unwrap();
                store.list_due_receivers(DeliveryMode::Webhook, NOW, 5).await.unwrap();
            }
        });
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { bed.store.clone() } else { other.clone() };
        writers.spawn(async move {
            let mut all: Vec<Given> = Vec::new();
            for round in 0..ROUNDS {
                let first = 1 + 8 * (round * WRITERS + writer);
                let tasks = if writer % 2 == 0 { [0, 1, 2, 3] } else { [3, 2, 1, 0] };
                let batch: Vec<_> = (first..).zip(tasks).map(|(n, task)| given(n, task)).collect();
                submit(&store, &batch).await;
                // Puts back what it sees of all outbox rows so far, as a settlement might.
                let mine = needs(&all);
                let rewritten = transact(&store, &mine, |state| Writes {
                    outbox: state.outbox.into_iter().map(|(key, row)| (key, Some(row))).collect(),
                    ..Writes::default()
                });
                rewritten.await.unwrap();
                all.extend(batch);
            }
        });
    }
    writers.join_all().await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    sweepers.join_all().await;
    let total = u64::try_from(4 * WRITERS * ROUNDS).unwrap();
    let report = crate::tamper::verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, total));
    assert_eq!(bed.store.depths(Micros(0)).await.unwrap().outbox, i64::try_from(total).unwrap());
}

pub async fn claims_of_silent_brokers_are_released(bed: Arc<Bed>) {
    let batch = [
        given(1, 1).to("live"),
        given(2, 2).to("dead"),
        given(3, 3).to("stranger"),
        given(4, 4).to("pulled").by_pull(),
        given(5, 5).to("waiting").at(3_000_000),
    ];
    submit(&bed.store, &batch).await;
    // Values only: the one that lives has the older clock.
    bed.store.beat("live", Micros(5)).await.unwrap();
    bed.store.beat("dead", Micros(900_000)).await.unwrap();
    for (receiver, mode, broker) in [
        ("live", DeliveryMode::Webhook, "live"),
        ("dead", DeliveryMode::Webhook, "dead"),
        ("stranger", DeliveryMode::Webhook, "stranger"),
        ("pulled", DeliveryMode::Pull, "dead"),
    ] {
        let receiver = (acme(), agent(receiver));
        let got = bed.store.claim(&receiver, mode, broker, NOW, UNTIL, 10).await.unwrap();
        assert_eq!(got.len(), 1);
    }
    assert_eq!(bed.store.list_strangers().await.unwrap(), ["stranger"]);
    let release = async |whose| bed.store.release(whose).await.unwrap();
    let heard = Some(Micros(900_000));
    assert_eq!(
        release(ClaimRelease::Silent("dead", Some(Micros(899_999)))).await,
        0,
        "it spoke since"
    );
    assert_eq!(release(ClaimRelease::Silent("dead", None)).await, 0, "it has a heartbeat");
    assert_eq!(release(ClaimRelease::Silent("dead", heard)).await, 1);
    assert_eq!(release(ClaimRelease::Silent("dead", heard)).await, 0, "another was first");
    assert_eq!(release(ClaimRelease::Silent("stranger", None)).await, 1);
    let seen = see(&bed.store, &batch).await;
    let row = |n: usize| &seen.outbox[&batch[n].key()];
    for (n, holder, visible) in [
        (0, Some("live"), UNTIL.0),
        (1, None, 0),
        (2, None, 0),
        (3, Some("dead"), UNTIL.0),
        (4, None, 3_000_000),
    ] {
        assert_eq!((row(n).claimed_by.as_deref(), row(n).visible_at.0), (holder, visible), "{n}");
    }
    let left = bed.store.list_heartbeats().await.unwrap();
    assert_eq!(left, [("live".to_owned(), Micros(5))]);
    let again = claim(&bed.store, "dead", 10).await;
    assert_eq!(again[0].attempt, 2);
    assert_eq!(release(ClaimRelease::Everyone).await, 2);
    assert_eq!(bed.store.list_heartbeats().await.unwrap(), []);
}

/// Also if its clock does not move, or was set back.
pub async fn a_heartbeat_never_has_the_same_value_twice(bed: Arc<Bed>) {
    let mut before = Micros(i64::MIN);
    for at in [1_000, 1_000, 500, 2_000, 2_001] {
        bed.store.beat("b1", Micros(at)).await.unwrap();
        let heard = bed.store.list_heartbeats().await.unwrap()[0].1;
        assert!(heard > before, "{heard:?} after {before:?}");
        before = heard;
    }
}

pub async fn a_broker_finds_and_frees_claims_of_its_own(bed: Arc<Bed>) {
    let batch = [given(1, 1), given(2, 2), given(3, 3), given(4, 4).by_pull()];
    submit(&bed.store, &batch[..3]).await;
    assert_eq!(claim(&bed.store, "bob", 10).await.len(), 3);
    submit(&bed.store, &batch[3..]).await;
    let bob = batch[3].receiver();
    bed.store.claim(&bob, DeliveryMode::Pull, "b1", NOW, UNTIL, 10).await.unwrap();
    let held = bed.store.list_claims("b1").await.unwrap();
    assert_eq!(
        held,
        [1, 2, 3].map(|n| ((acme(), handoff_id(n)), 1)),
        "pulled ones are not its own"
    );
    assert_eq!(bed.store.list_claims("b2").await.unwrap(), []);
    let these = [held[0].clone(), ((acme(), handoff_id(2)), 2), ((acme(), handoff_id(4)), 1)];
    assert_eq!(bed.store.release(ClaimRelease::These("b2", &these)).await.unwrap(), 0, "not b2's");
    assert_eq!(bed.store.release(ClaimRelease::These("b1", &these)).await.unwrap(), 1, "as it is");
    let again = claim(&bed.store, "bob", 10).await;
    assert_eq!((again[0].handoff_id, again[0].attempt, again.len()), (handoff_id(1), 2, 1));
}

pub async fn a_broker_hands_back_its_own_claims(bed: Arc<Bed>) {
    let batch =
        [given(1, 1).to("mine"), given(2, 2).to("another"), given(3, 3).to("pulled").by_pull()];
    submit(&bed.store, &batch).await;
    bed.store.beat("b1", NOW).await.unwrap();
    claim(&bed.store, "mine", 10).await;
    let pulled = batch[2].receiver();
    bed.store.claim(&pulled, DeliveryMode::Pull, "b1", NOW, UNTIL, 10).await.unwrap();
    let another = batch[1].receiver();
    bed.store.claim(&another, DeliveryMode::Webhook, "b2", NOW, UNTIL, 10).await.unwrap();
    assert_eq!(bed.store.release(ClaimRelease::Own("b1")).await.unwrap(), 1);
    assert_eq!(bed.store.release(ClaimRelease::Own("b1")).await.unwrap(), 0);
    let seen = see(&bed.store, &batch).await;
    let row = |n: usize| &seen.outbox[&batch[n].key()];
    assert_eq!((row(0).claimed_by.as_deref(), row(0).visible_at.0), (None, 0));
    assert_eq!(row(1).claimed_by.as_deref(), Some("b2"));
    assert_eq!(row(2).claimed_by.as_deref(), Some("b1"), "a pulled claim is the receiver's");
    assert_eq!(bed.raw().await.count("brokers").await, 0);
}

/// An agent may change how it receives while handoffs wait for it.
pub async fn a_claim_says_how_it_is_delivered(bed: Arc<Bed>) {
    let batch = [given(1, 1).to("pushed"), given(2, 2).to("pulled").by_pull()];
    submit(&bed.store, &batch).await;
    for (one, mode) in batch.iter().zip([DeliveryMode::Pull, DeliveryMode::Webhook]) {
        let got = bed.store.claim(&one.receiver(), mode, "b1", NOW, UNTIL, 10).await.unwrap();
        assert_eq!(got.len(), 1);
        assert_eq!(see(&bed.store, &batch).await.outbox[&one.key()].mode, mode);
    }
}

pub async fn overdue_handoffs_are_open_and_past_their_deadline(bed: Arc<Bed>) {
    let batch: Vec<_> = (1..=6).map(|n| given(n, n)).collect();
    submit(&bed.store, &batch).await;
    let seen = see(&bed.store, &batch).await;
    let mut writes = Writes::default();
    for (one, (status, deadline)) in batch.iter().zip([
        (HandoffStatus::Pending, Some(300)),
        (HandoffStatus::Accepted, Some(200)),
        (HandoffStatus::Completed, Some(100)),
        (HandoffStatus::Pending, Some(501)),
        (HandoffStatus::Pending, None),
        (HandoffStatus::Accepted, Some(500)),
    ]) {
        let mut handoff = seen.handoffs[&one.key()].clone();
        handoff.status = status;
        handoff.deadline_at = deadline.map(Micros);
        writes.handoffs.insert(one.key(), (handoff, false));
    }
    write(&bed.store, writes).await.unwrap();
    let overdue = async |limit| {
        let found = bed.store.list_overdue(Micros(500), limit).await.unwrap();
        found.iter().map(|handoff| handoff.id).collect::<Vec<_>>()
    };
    assert_eq!(overdue(10).await, [2, 1, 6].map(handoff_id));
    assert_eq!(overdue(2).await, [2, 1].map(handoff_id));
}

pub async fn depths_are_counted(bed: Arc<Bed>) {
    assert_eq!(bed.store.depths(Micros(0)).await.unwrap(), handoffd::store::Depths::default());
    submit(&bed.store, &[given(7, 1), given(5, 2)]).await;
    let mut closed = given(9, 1).dead_letter();
    closed.status = DeadLetterStatus::Discarded;
    let writes =
        Writes { dead_letters: vec![given(8, 1).dead_letter(), closed], ..Writes::default() };
    write(&bed.store, writes).await.unwrap();
    let depths = bed.store.depths(Micros(0)).await.unwrap();
    assert_eq!((depths.outbox, depths.oldest), (2, Some(Micros(5))));
    assert_eq!((depths.dead_letters, depths.records), (1, 2));
}

pub async fn what_waits_follows_its_receiver(bed: Arc<Bed>) {
    let batch =
        [given(1, 1), given(2, 2), given(3, 3).by_pull(), given(4, 4).to("carol"), given(5, 5)];
    submit(&bed.store, &batch[4..]).await;
    assert_eq!(claim(&bed.store, "bob", 10).await.len(), 1);
    submit(&bed.store, &batch[..4]).await;
    let mut writes = Writes::default();
    writes.retargets.insert((acme(), agent("bob")), (DeliveryMode::Pull, NOW));
    write(&bed.store, writes.clone()).await.unwrap();
    let modes = async || {
        let seen = see(&bed.store, &batch).await;
        batch
            .iter()
            .map(|one| {
                let mode = seen.outbox[&one.key()].mode;
                assert_eq!(seen.handoffs[&one.key()].mode, mode);
                mode == DeliveryMode::Pull
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(modes().await, [true, true, true, false, false], "the claimed one is left alone");
    writes.retargets.insert((acme(), agent("bob")), (DeliveryMode::Pull, UNTIL));
    write(&bed.store, writes.clone()).await.unwrap();
    assert_eq!(modes().await, [true, true, true, false, true], "its claim has run out");
    writes.retargets.insert((acme(), agent("bob")), (DeliveryMode::Webhook, NOW));
    write(&bed.store, writes).await.unwrap();
    assert_eq!(modes().await, [false; 5]);
}

pub async fn what_waits_is_listed(bed: Arc<Bed>) {
    let batch = [
        given(1, 1).by_pull().at(100),
        given(2, 1).by_pull().at(100), // behind the first
        given(3, 3).by_pull().at(300),
        given(4, 4).by_pull().at(50).to("carol"),
        given(5, 5).at(60).to("carol"),
    ];
    submit(&bed.store, &batch).await;
    let ids = |rows: Vec<handoffd::store::OutboxRow>| {
        rows.into_iter().map(|row| row.handoff_id).collect::<Vec<_>>()
    };
    let (bob, carol, dave) = (batch[0].receiver(), batch[3].receiver(), (acme(), agent("dave")));
    let waiting =
        async |receiver, now| ids(bed.store.list_waiting(receiver, Micros(now), 10).await.unwrap());
    assert_eq!(waiting(&bob, 400).await, [1, 3].map(handoff_id));
    assert_eq!(waiting(&bob, 200).await, [handoff_id(1)]);
    assert_eq!(waiting(&carol, 400).await, [4, 5].map(handoff_id));
    assert_eq!(waiting(&dave, 400).await, []);
    let unpulled = async |before, limit| {
        ids(bed.store.list_unpulled(Micros(before), Micros(400), limit).await.unwrap())
    };
    assert_eq!(unpulled(400, 10).await, [4, 1, 3].map(handoff_id));
    assert_eq!(unpulled(300, 10).await, [4, 1].map(handoff_id));
    assert_eq!(unpulled(300, 1).await, [handoff_id(4)]);
    let among = async |receivers: &[_], now| {
        let mut due = bed.store.list_due_among(receivers, Micros(now)).await.unwrap();
        due.sort();
        due
    };
    let all = [dave, carol.clone(), bob.clone()];
    assert_eq!(among(&all, 400).await, [bob.clone(), carol.clone()]);
    assert_eq!(among(&all, 70).await, std::slice::from_ref(&carol));
    assert_eq!(among(&[], 400).await, []);
    bed.store.claim(&carol, DeliveryMode::Pull, "b1", Micros(400), UNTIL, 10).await.unwrap();
    assert_eq!(among(&all, 400).await, [bob]);
    assert_eq!(unpulled(400, 10).await, [1, 3].map(handoff_id));
}

/// On SQLite no other broker exists.
pub async fn one_broker_hears_of_anothers_commits(bed: Arc<Bed>) {
    let mut heard = bed.store.listen().await.unwrap();
    let other = bed.second().await;
    for _ in 0..3 {
        other.notify().await.unwrap();
        let wait = std::time::Duration::from_secs(if bed.is_shared() { 20 } else { 1 });
        let woken = tokio::time::timeout(wait, heard.next()).await;
        assert_eq!(woken.is_ok(), bed.is_shared());
        if !bed.is_shared() {
            return;
        }
    }
    // Cut: it says so, and hears again.
    bed.raw()
        .await
        .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        .await
        .unwrap();
    let mut tries = 0;
    while let Err(err) = heard.next().await {
        tries += 1;
        assert!(tries < 5, "{err}");
    }
    other.notify().await.unwrap();
    heard.next().await.unwrap();
}

pub async fn a_return_is_in_one_inbox_until_it_is_taken_out(bed: Arc<Bed>) {
    let one = given(1, 1);
    let second = given(2, 2);
    submit(&bed.store, &[one.clone(), second.clone()]).await;
    let row = |of: &Given, at: i64| ReturnRow {
        tenant: acme(),
        handoff_id: of.id(),
        task_id: of.task,
        agent: agent("asker"),
        returned_at: Micros(at),
        visible_at: Micros(0),
        question: None,
    };
    let have = |rows: Vec<(HandoffKey, Option<ReturnRow>)>| Writes {
        returns: rows.into_iter().collect(),
        ..Writes::default()
    };
    let (late, early) = (row(&one, 20), row(&second, 10));
    let both = have(vec![(one.key(), Some(late)), (second.key(), Some(early))]);
    write(&bed.store, both).await.unwrap();
    let asker = (acme(), agent("asker"));
    let other = (acme(), agent("other"));
    let claim = async |who: &(_, _), now: i64, limit| {
        let found = bed.store.claim_returns(who, Micros(now), Micros(now + 50), limit).await;
        found.unwrap().iter().map(|row| row.handoff_id).collect::<Vec<_>>()
    };
    let due = async |now: i64| {
        let both = [asker.clone(), other.clone()];
        bed.store.list_due_among(&both, Micros(now)).await.unwrap()
    };
    assert_eq!(due(100).await, std::slice::from_ref(&asker));
    assert_eq!(claim(&other, 100, 10).await, []);
    assert_eq!(claim(&asker, 100, 1).await, [second.id()], "the oldest first");
    assert_eq!(claim(&asker, 101, 10).await, [one.id()], "the other is taken");
    assert_eq!(claim(&asker, 102, 10).await, []);
    assert_eq!(due(102).await, []);
    // A return that the asker did not act on comes again.
    assert_eq!(claim(&asker, 151, 10).await, [second.id(), one.id()]);
    write(&bed.store, have(vec![(second.key(), None)])).await.unwrap();
    assert_eq!(due(300).await, std::slice::from_ref(&asker));
    assert_eq!(claim(&asker, 300, 10).await, [one.id()]);
    write(&bed.store, have(vec![(one.key(), None), (second.key(), None)])).await.unwrap();
    assert_eq!(due(900).await, []);
    // A question replaces the earlier return of its handoff.
    let asked = |number| ReturnRow { question: Some(number), ..row(&one, 1_000) };
    for number in [1, 2] {
        write(&bed.store, have(vec![(one.key(), Some(asked(number)))])).await.unwrap();
        let found =
            bed.store.claim_returns(&asker, Micros(1_000), Micros(2_000), 10).await.unwrap();
        let found: Vec<_> = found.iter().map(|row| (row.handoff_id, row.question)).collect();
        assert_eq!(found, [(one.id(), Some(number))]);
    }
}
