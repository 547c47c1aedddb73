//! Second opinions after the commit: what is due, who asks, and the record that ends it.

use std::sync::Arc;

use handoffd::store::{Needs, Writes};
use handoffd_domain::ids::Micros;
use handoffd_evidence::record::{ClassifierFacts, RecordDraft, RecordKind, SafetyFacts};

use crate::fixture::{Given, given, needs, plan, submit, transact, write};
use crate::harness::{Bed, acme};
use crate::tamper::verify;

fn due_from(of: &Given, at: i64) -> Writes {
    Writes { opinions: [(of.key(), Some(Micros(at)))].into(), ..Writes::default() }
}

/// Commits a handoff whose opinion is due from then on, in one transaction.
async fn submit_due(bed: &Bed, of: &Given, at: i64) {
    let batch = std::slice::from_ref(of);
    let needs = needs(batch);
    let written = transact(&bed.store, &needs, |state| {
        let mut writes = plan(batch, state);
        writes.opinions = due_from(of, at).opinions;
        for draft in writes.records.iter_mut().filter(|draft| draft.kind == RecordKind::Handoff) {
            draft.safety = Some(SafetyFacts {
                rules: "1".to_owned(),
                observed: Vec::new(),
                marked: vec!["order".to_owned()],
                classifier: Some(ClassifierFacts::new("guard", ClassifierFacts::PENDING)),
            });
        }
        writes
    });
    written.await.unwrap();
}

fn opinion(of: &Given) -> RecordDraft {
    let mut draft = of.record(RecordKind::SecondOpinion);
    draft.opinion = Some(ClassifierFacts::new("guard", ClassifierFacts::UNSAFE));
    draft
}

async fn due(bed: &Bed, now: i64) -> Vec<handoffd::store::HandoffKey> {
    bed.store.list_due_opinions(Micros(now), 10).await.unwrap()
}

async fn claim(bed: &Bed, of: &Given, now: i64) -> Option<i32> {
    bed.store.claim_opinion(&of.key(), Micros(now), Micros(now + 50)).await.unwrap()
}

pub async fn an_opinion_is_due_from_its_commit_until_its_record(bed: Arc<Bed>) {
    let (one, other, plain) = (given(1, 1), given(2, 2), given(3, 3));
    submit(&bed.store, std::slice::from_ref(&plain)).await;
    assert_eq!((due(&bed, 100).await, claim(&bed, &plain, 100).await), (vec![], None));
    submit_due(&bed, &one, 200).await;
    submit_due(&bed, &other, 100).await;
    assert_eq!(bed.store.depths(Micros(0)).await.unwrap().opinions, 2);
    assert_eq!(due(&bed, 99).await, []);
    assert_eq!(due(&bed, 500).await, [other.key(), one.key()], "the longest waiting first");
    write(&bed.store, due_from(&one, 300)).await.unwrap_err();
    assert_eq!(bed.store.find_opinion(&one.key(), one.task).await.unwrap(), None);
    // A batch that records one reads its claim, and takes the row away with the record.
    assert_eq!(claim(&bed, &one, 500).await, Some(1));
    let needs = Needs { opinions: [one.key(), other.key()].into(), ..Needs::default() };
    let mut seen = None;
    let written = transact(&bed.store, &needs, |state| {
        seen = Some(state.opinions);
        let opinions = [(one.key(), None)].into();
        Writes { opinions, records: vec![opinion(&one)], ..Writes::default() }
    });
    let sealed = written.await.unwrap();
    assert_eq!(seen.unwrap(), [(one.key(), 1), (other.key(), 0)].into());
    assert_eq!(due(&bed, 9_000).await, [other.key()]);
    assert_eq!(bed.store.depths(Micros(0)).await.unwrap().opinions, 1);
    let found = bed.store.find_opinion(&one.key(), one.task).await.unwrap();
    assert_eq!(found.as_ref(), sealed.first());
    assert_eq!(bed.store.find_opinion(&one.key(), other.task).await.unwrap(), None);
    assert_eq!(bed.store.find_opinion(&other.key(), other.task).await.unwrap(), None);
    let receipt = bed.store.find_receipt(&one.key()).await.unwrap().unwrap();
    assert_ne!(Some(&receipt), sealed.first(), "the receipt stays the commit's");
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
    // An opinion that no record announces, or a second one, is a fault.
    write(&bed.store, Writes { records: vec![opinion(&one)], ..Writes::default() }).await.unwrap();
    let fault = verify(&bed.store, &acme()).await.first_fault.unwrap();
    assert_eq!(fault.fault, "opinion", "{fault:?}");
}

pub async fn a_due_opinion_has_one_claim_at_a_time_and_its_number_is_the_token(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit_due(&bed, &one, 0).await;
    let claims = (0..8).map(|_| claim(&bed, &one, 100));
    let got: Vec<i32> =
        futures_util::future::join_all(claims).await.into_iter().flatten().collect();
    assert_eq!(got, [1], "one of eight");
    assert_eq!(due(&bed, 149).await, []);
    // The lease ran out: the next claimer has another token, and the first token is void.
    assert_eq!((due(&bed, 150).await, claim(&bed, &one, 150).await), (vec![one.key()], Some(2)));
    let postpone = async |attempt, at| {
        bed.store.postpone_opinion(&one.key(), attempt, Micros(at)).await.unwrap()
    };
    assert!(!postpone(1, 0).await);
    assert_eq!(due(&bed, 160).await, []);
    assert!(postpone(2, 170).await);
    assert_eq!((claim(&bed, &one, 169).await, claim(&bed, &one, 170).await), (None, Some(3)));
    write(&bed.store, Writes { opinions: [(one.key(), None)].into(), ..Writes::default() })
        .await
        .unwrap();
    assert!(!postpone(3, 0).await);
    assert_eq!(claim(&bed, &one, 900).await, None);
}
