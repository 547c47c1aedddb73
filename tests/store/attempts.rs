//! The attempts of a handoff that are kept, and their end.

use std::sync::Arc;

use handoffd::store::Writes;
use handoffd::store::attempts::{AttemptRow, KEPT_ATTEMPTS};
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::Micros;

use crate::fixture::{Given, given, handoff_id, submit, write};
use crate::harness::{Bed, acme};

pub fn attempt(of: &Given, number: i32, answer: &str) -> AttemptRow {
    AttemptRow {
        tenant: of.key().0,
        handoff_id: of.id(),
        attempt: number,
        begun_at: Micros(1_000 + i64::from(number)),
        duration_us: Some(1_500),
        transport: Some(DeliveryMode::Webhook),
        outcome: "status".to_owned(),
        status: Some(500),
        error: Some("answered 500".to_owned()),
        headers: vec![("webhook-id".to_owned(), of.id().to_string())],
        answer: Some(answer.to_owned()),
    }
}

pub fn attempts_of(rows: impl IntoIterator<Item = AttemptRow>) -> Writes {
    let key = |row: &AttemptRow| ((row.tenant.clone(), row.handoff_id), row.slot());
    let attempts = rows.into_iter().map(|row| (key(&row), row)).collect();
    Writes { attempts, ..Writes::default() }
}

pub async fn the_newest_attempts_of_a_handoff_are_kept(bed: Arc<Bed>) {
    let (one, other) = (given(1, 1), given(2, 2));
    submit(&bed.store, &[one.clone(), other.clone()]).await;
    assert_eq!(bed.store.list_attempts(&one.key()).await.unwrap(), []);
    let newest = KEPT_ATTEMPTS + 3;
    for number in 1..=newest {
        let writes = attempts_of([attempt(&one, number, "down")]);
        write(&bed.store, writes).await.unwrap();
    }
    let rows = bed.store.list_attempts(&one.key()).await.unwrap();
    let numbers: Vec<_> = rows.iter().map(|row| row.attempt).collect();
    assert_eq!(numbers, (4..=newest).rev().collect::<Vec<_>>());
    assert_eq!(rows[0], attempt(&one, newest, "down"));

    // Several in one batch, one of them with all that may be absent, and one again.
    let bare = AttemptRow {
        duration_us: None,
        transport: None,
        outcome: "not_sent".to_owned(),
        status: None,
        error: None,
        headers: Vec::new(),
        answer: None,
        ..attempt(&other, 1, "")
    };
    let again = attempt(&one, newest, "<b>\"up\"</b> \u{202e}é");
    write(&bed.store, attempts_of([bare.clone(), again.clone()])).await.unwrap();
    assert_eq!(bed.store.list_attempts(&other.key()).await.unwrap(), [bare]);
    let rows = bed.store.list_attempts(&one.key()).await.unwrap();
    assert_eq!((rows.len(), &rows[0]), (20, &again));
    let elsewhere = given(1, 1).of("beta").key();
    assert_eq!(bed.store.list_attempts(&elsewhere).await.unwrap(), [], "another tenant's");
    let stranger = (acme(), handoff_id(9));
    assert_eq!(bed.store.list_attempts(&stranger).await.unwrap(), []);
}

pub fn ended(state: handoffd::store::BatchState) -> Writes {
    let mut writes = Writes::default();
    for (key, mut handoff) in state.handoffs {
        handoff.status = HandoffStatus::Completed;
        writes.handoffs.insert(key, (handoff, false));
    }
    writes
}
