//! The store's share of the cold tier: what may go, where it went, and under whose lease.

use std::sync::Arc;

use handoffd::store::cold::{
    ArchiveLocation, ArchiveMark, ColdContent, ExclusiveLease, Frame, PurgeMark,
};
use handoffd::store::{ContentStorage, Store, Writes};
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::{ContentId, Micros};
use handoffd_domain::task::TaskStatus;

use crate::fixture::{Given, content_id, given, needs, submit, transact, write};
use crate::harness::{Bed, acme};

fn lease(owner: &str) -> ExclusiveLease {
    ExclusiveLease { name: "archive/acme".to_owned(), owner: owner.to_owned() }
}

async fn taken(store: &Arc<Store>, owner: &str) -> ExclusiveLease {
    let lease = lease(owner);
    assert!(store.take_lease(&lease, Micros(0), Micros(100)).await.unwrap());
    lease
}

/// Six submissions, each on a task of its own; those of `ended` have ended.
async fn six(bed: &Bed, ended: &[u128]) -> Vec<Given> {
    let all: Vec<_> = (0..6).map(|n| given(n, n)).collect();
    submit(&bed.store, &all).await;
    for n in ended {
        end(bed, &all[usize::try_from(*n).unwrap()]).await;
    }
    all
}

async fn end(bed: &Bed, given: &Given) {
    let key = given.key();
    transact(&bed.store, &needs(std::slice::from_ref(given)), |mut state| {
        let mut handoff = state.handoffs.remove(&key).unwrap();
        handoff.status = HandoffStatus::Completed;
        let mut writes = Writes::default();
        writes.handoffs.insert(key.clone(), (handoff, false));
        writes.outbox.insert(key.clone(), None);
        writes
    })
    .await
    .unwrap();
}

fn frame(n: u128, offset: u64, length: u64) -> Frame {
    Frame { id: content_id(n), offset, length }
}

async fn kept(bed: &Bed, n: u128) -> ContentStorage {
    bed.store.find_content(&acme(), content_id(n)).await.unwrap().unwrap().kept
}

fn at(segment: &str, offset: u64, length: u64) -> ArchiveLocation {
    ArchiveLocation { segment: segment.to_owned(), offset, length }
}

async fn erase(bed: &Bed, n: u128) {
    let sql = "UPDATE contents SET salt = NULL, bytes = NULL WHERE content_id";
    let sql = format!("{sql} = '{}'", content_id(n));
    assert_eq!(bed.raw().await.run(&sql).await.unwrap(), 1);
}

pub async fn a_lease_has_one_owner_until_it_ends(bed: Arc<Bed>) {
    let (one, other) = (lease("one"), lease("other"));
    let store = &bed.store;
    assert!(store.take_lease(&one, Micros(0), Micros(100)).await.unwrap());
    assert!(!store.take_lease(&other, Micros(99), Micros(200)).await.unwrap());
    assert!(store.take_lease(&one, Micros(99), Micros(200)).await.unwrap(), "renewed");
    assert!(!store.take_lease(&other, Micros(150), Micros(300)).await.unwrap());
    assert!(store.take_lease(&other, Micros(200), Micros(300)).await.unwrap(), "overtaken");
    store.release_lease(&one).await.unwrap();
    assert!(!store.take_lease(&one, Micros(201), Micros(400)).await.unwrap(), "not its to give");
    store.release_lease(&other).await.unwrap();
    assert!(store.take_lease(&one, Micros(201), Micros(400)).await.unwrap());
    // A purge's mark is its holder's.
    let before = store.find_purge_mark(&acme()).await.unwrap();
    let unclean = PurgeMark { unclean: true, ..before };
    assert!(!store.keep_purge_mark(&acme(), &other, unclean).await.unwrap());
    assert_eq!(store.find_purge_mark(&acme()).await.unwrap(), before);
    assert!(store.keep_purge_mark(&acme(), &one, unclean).await.unwrap());
    assert_eq!(store.find_purge_mark(&acme()).await.unwrap(), unclean);
}

pub async fn of_many_that_want_a_lease_one_gets_it(bed: Arc<Bed>) {
    let second = bed.second().await;
    let wants = (0..20).map(|n| {
        let store = if n % 2 == 0 { bed.store.clone() } else { second.clone() };
        async move {
            let lease = lease(&format!("owner-{n}"));
            store.take_lease(&lease, Micros(0), Micros(100)).await.unwrap()
        }
    });
    let got = futures_util::future::join_all(wants).await;
    assert_eq!(got.iter().filter(|got| **got).count(), 1);
}

pub async fn a_mark_is_kept(bed: Arc<Bed>) {
    assert_eq!(bed.store.find_archive_mark(&acme()).await.unwrap(), ArchiveMark::default());
    for n in 1..3 {
        let mark = ArchiveMark { done_below: n, scanned_to: n + 1, rescan_at: Micros(n + 2) };
        bed.store.keep_archive_mark(&acme(), mark).await.unwrap();
        assert_eq!(bed.store.find_archive_mark(&acme()).await.unwrap(), mark);
    }
}

pub async fn what_may_still_be_needed_is_held_back(bed: Arc<Bed>) {
    let all = six(&bed, &[0, 1, 2, 4]).await;
    erase(&bed, 1).await;
    let letter = all[2].dead_letter();
    let mut writes = Writes::default();
    writes.dead_letters.push(letter);
    write(&bed.store, writes).await.unwrap();
    transact(&bed.store, &needs(&all[4..5]), |mut state| {
        let mut task = state.tasks.remove(&all[4].task_key()).unwrap();
        task.status = TaskStatus::Escalated;
        let mut writes = Writes::default();
        writes.tasks.insert(all[4].task_key(), (task, false));
        writes
    })
    .await
    .unwrap();
    let page = bed.store.list_archivable(&acme(), 0, 10).await.unwrap();
    let seen: Vec<_> = page
        .iter()
        .map(|record| (record.leaf_index, record.content.map(|content| content.held)))
        .collect();
    let expected = [Some(false), None, Some(true), Some(true), Some(true), Some(true)];
    assert_eq!(seen, (0..).zip(expected).collect::<Vec<_>>());
    let content = page[0].content.unwrap();
    assert_eq!((content.id, page[0].recorded_at), (content_id(0), Micros(0)));
    assert_eq!(
        content.size,
        i64::try_from(all[0].submission().content.unwrap().part.bytes.len()).unwrap()
    );
    assert!(String::from_utf8(page[0].body.clone()).unwrap().contains("messageCommitment"));
    let sql = "UPDATE dead_letters SET status = 'DISCARDED'";
    assert_eq!(bed.raw().await.run(sql).await.unwrap(), 1);
    let page = bed.store.list_archivable(&acme(), 2, 2).await.unwrap();
    assert_eq!(page.len(), 2);
    assert!(!page[0].content.unwrap().held, "no receiver waits for it any more");
}

pub async fn contents_become_cold_all_or_none(bed: Arc<Bed>) {
    six(&bed, &[0, 1, 2]).await;
    let store = &bed.store;
    let hot = kept(&bed, 0).await;
    let ContentStorage::Hot(salt, ..) = hot.clone() else { panic!("{hot:?}") };
    let frames = [frame(0, 0, 10), frame(1, 10, 7)];
    assert!(!store.settle_cold(&acme(), &lease("one"), "s1", &frames).await.unwrap(), "no lease");
    let lease = taken(store, "one").await;
    erase(&bed, 2).await;
    let bad = [frame(0, 0, 10), frame(2, 10, 7)];
    assert!(!store.settle_cold(&acme(), &lease, "s1", &bad).await.unwrap(), "one is erased");
    assert_eq!(kept(&bed, 0).await, hot);
    let other = "beta".parse().unwrap();
    assert!(!store.settle_cold(&other, &lease, "s1", &frames).await.unwrap(), "not its contents");
    assert!(store.settle_cold(&acme(), &lease, "s1", &frames).await.unwrap());
    assert_eq!(
        kept(&bed, 0).await,
        ContentStorage::Cold(ColdContent { salt, place: at("s1", 0, 10) })
    );
    assert!(!store.settle_cold(&acme(), &lease, "s2", &frames).await.unwrap(), "they are cold");
    let records = store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    let place = |n: usize| match &records[n].content.as_ref().unwrap().kept {
        ContentStorage::Cold(cold) => cold.place.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((place(0), place(1)), (at("s1", 0, 10), at("s1", 10, 7)));
    let ids: Vec<ContentId> = [0, 2, 3, 77].map(content_id).into();
    let found = store.list_contents(&acme(), &ids).await.unwrap();
    assert_eq!(found.len(), 3, "those that exist");
    let page = store.list_archivable(&acme(), 0, 3).await.unwrap();
    assert!(page.iter().all(|record| record.content.is_none()), "nothing more to move");
    let segments = ["s1".to_owned(), "s2".to_owned()];
    assert_eq!(store.list_unreferenced(&acme(), &segments).await.unwrap(), ["s2"]);
    assert_eq!(store.list_unreferenced(&other, &segments).await.unwrap(), segments);
}

pub async fn what_is_erased_while_cold_is_found_and_moved_out(bed: Arc<Bed>) {
    six(&bed, &[0, 1, 2]).await;
    let store = &bed.store;
    let lease = taken(store, "one").await;
    let frames = [frame(0, 0, 10), frame(1, 10, 7), frame(2, 17, 5)];
    assert!(store.settle_cold(&acme(), &lease, "s1", &frames).await.unwrap());
    assert!(store.list_to_forget(&acme(), 10).await.unwrap().is_empty());
    erase(&bed, 1).await;
    assert_eq!(kept(&bed, 1).await, ContentStorage::Erased);
    assert_eq!(store.list_to_forget(&acme(), 10).await.unwrap(), ["s1"]);
    let inside = store.list_inhabitants(&acme(), "s1").await.unwrap();
    assert_eq!((inside.live, inside.erased), (vec![frames[0], frames[2]], vec![content_id(1)]));

    let moved = [frame(0, 0, 10), frame(2, 10, 5)];
    let few = &moved[..1];
    assert!(!store.move_segment(&acme(), &lease, "s1", "s2", few).await.unwrap(), "one is left");
    assert!(!store.move_segment(&acme(), &lease, "s0", "s2", &moved).await.unwrap(), "not there");
    let lost = ExclusiveLease { owner: "lost".to_owned(), ..lease.clone() };
    assert!(!store.move_segment(&acme(), &lost, "s1", "s2", &moved).await.unwrap());
    assert!(store.move_segment(&acme(), &lease, "s1", "s2", &moved).await.unwrap());
    assert!(store.list_to_forget(&acme(), 10).await.unwrap().is_empty());
    let inside = store.list_inhabitants(&acme(), "s2").await.unwrap();
    assert_eq!((inside.live, inside.erased), (moved.to_vec(), vec![]));
    assert_eq!(kept(&bed, 1).await, ContentStorage::Erased);

    // And when nothing is left, the segment is in no row.
    erase(&bed, 0).await;
    erase(&bed, 2).await;
    assert!(store.move_segment(&acme(), &lease, "s2", "", &[]).await.unwrap());
    let segments = ["s2".to_owned()];
    assert_eq!(store.list_unreferenced(&acme(), &segments).await.unwrap(), segments);
}

pub async fn a_cold_content_is_never_delivered_empty(bed: Arc<Bed>) {
    let all = six(&bed, &[]).await;
    let lease = taken(&bed.store, "one").await;
    assert!(bed.store.settle_cold(&acme(), &lease, "s1", &[frame(0, 0, 10)]).await.unwrap());
    let receiver = all[0].receiver();
    let claims = bed
        .store
        .claim(&receiver, DeliveryMode::Webhook, "b", Micros(50), Micros(99), 10)
        .await
        .unwrap();
    assert_eq!(claims.len(), 5, "the cold one stays behind and keeps no other back");
    assert!(claims.iter().all(|claim| !claim.body.is_empty()));
}
