//! The Merkle tree that grows with the log.

use std::sync::Arc;

use handoffd::store::{Store, Writes};
use handoffd::tree;
use handoffd_domain::ids::Micros;
use handoffd_evidence::merkle::{Frontier, Hash, verify_consistency, verify_inclusion};
use handoffd_evidence::note::Signer;
use handoffd_evidence::receipt::{Notary, Receipt};
use handoffd_evidence::record::SealedRecord;

use crate::fixture::{given, needs, plan, submit};
use crate::harness::{Bed, acme};

/// The tree that the log's own leaves make.
fn grown(leaves: impl IntoIterator<Item = Hash>) -> Frontier {
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.push(leaf, |_, _, _| {});
    }
    frontier
}

async fn leaves(store: &Arc<Store>) -> Vec<Hash> {
    store.list_hashes(&acme(), 0, 0, 100_000).await.unwrap()
}

async fn submit_many(store: &Arc<Store>, from: u128, count: u128) -> Vec<SealedRecord> {
    let mut sealed = Vec::new();
    for first in (from..from + count).step_by(60) {
        let batch: Vec<_> = (first..(first + 60).min(from + count)).map(|n| given(n, n)).collect();
        sealed.extend(submit(store, &batch).await);
    }
    sealed
}

pub async fn the_tree_has_all_records_and_proves_each_against_the_head(bed: Arc<Bed>) {
    let sealed = submit_many(&bed.store, 1, 600).await;
    let head = bed.store.find_head(&acme()).await.unwrap().unwrap();
    let all = leaves(&bed.store).await;
    assert_eq!(all, sealed.iter().map(|record| record.hash).collect::<Vec<_>>());
    assert_eq!(head.tree, grown(all.iter().copied()));
    assert_eq!(bed.store.list_hashes(&acme(), 1, 0, 9).await.unwrap().len(), 2, "600 / 256");
    for index in [0, 255, 256, 511, 599] {
        let proof = tree::inclusion(&bed.store, &acme(), index, 600).await.unwrap().unwrap();
        let leaf = &all[usize::try_from(index).unwrap()];
        verify_inclusion(leaf, index, 600, &proof, &head.tree.root()).unwrap();
    }
    for old in [1, 100, 256, 512, 600] {
        let root = tree::root(&bed.store, &acme(), old).await.unwrap().unwrap();
        assert_eq!(root, grown(all[..usize::try_from(old).unwrap()].iter().copied()).root());
        let proof = tree::consistency(&bed.store, &acme(), old, 600).await.unwrap().unwrap();
        verify_consistency(old, 600, &proof, &root, &head.tree.root()).unwrap();
    }
    assert_eq!(tree::inclusion(&bed.store, &acme(), 600, 600).await.unwrap(), None);
    assert_eq!(tree::inclusion(&bed.store, &acme(), 0, 601).await.unwrap(), None);
    assert_eq!(tree::consistency(&bed.store, &acme(), 0, 600).await.unwrap(), None);
    assert_eq!(tree::consistency(&bed.store, &acme(), 600, 601).await.unwrap(), None);
}

pub async fn a_fresh_receipt_is_the_one_that_the_store_gives_later(bed: Arc<Bed>) {
    submit_many(&bed.store, 1, 70).await;
    let batch: Vec<_> = (100..105).map(|n| given(n, n)).collect();
    let appended =
        bed.store.transact(&needs(&batch), &mut |state| plan(&batch, state)).await.unwrap();
    let notary = Notary::new(Signer::new(&[5; 32]), "test".to_owned());
    for place in 0..batch.len() {
        let placed = appended.placed(&acme(), place).unwrap();
        let fresh = Receipt::fresh(&placed, &notary).unwrap();
        let later = tree::receipt(&bed.store, &notary, &acme(), &placed.sealed).await.unwrap();
        assert_eq!(Some(fresh), later);
    }
}

pub async fn brokers_that_append_at_once_grow_one_tree(bed: Arc<Bed>) {
    let other = bed.second().await;
    let (one, two) = tokio::join!(submit_many(&bed.store, 1, 300), submit_many(&other, 1001, 300));
    assert_eq!(one.len() + two.len(), 600);
    let head = bed.store.find_head(&acme()).await.unwrap().unwrap();
    let all = leaves(&bed.store).await;
    assert_eq!((all.len(), head.size), (600, 600));
    assert_eq!(head.tree, grown(all));
}

/// A version without a tree moves size and hash, and leaves the right edge as it was.
pub async fn a_tree_that_lags_behind_catches_up(bed: Arc<Bed>) {
    submit_many(&bed.store, 1, 300).await;
    let mut raw = bed.raw_log().await;
    raw.run("UPDATE audit.log_heads SET frontier = NULL").await.unwrap();
    // Its nodes may not go: the log is append-only. So begin where there are none.
    assert!(raw.run("DELETE FROM audit.nodes").await.is_err());
    raw.disarm().await;
    raw.run("DELETE FROM audit.nodes").await.unwrap();

    let head = bed.store.find_head(&acme()).await.unwrap().unwrap();
    assert_eq!((head.tree.size(), head.behind()), (0, Some(0)));
    submit_many(&bed.store, 400, 1).await;
    let head = bed.store.find_head(&acme()).await.unwrap().unwrap();
    assert_eq!((head.tree.size(), head.behind()), (301, None));
    assert_eq!(head.tree, grown(leaves(&bed.store).await));
    assert!(tree::inclusion(&bed.store, &acme(), 7, 301).await.unwrap().is_some());

    raw.run("UPDATE audit.log_heads SET frontier = NULL").await.unwrap();
    raw.run("DELETE FROM audit.nodes").await.unwrap();
    bed.store.catch_up_trees().await.unwrap();
    assert_eq!(bed.store.find_head(&acme()).await.unwrap().unwrap(), head);
}

pub async fn a_batch_that_fails_leaves_the_tree_as_it_was(bed: Arc<Bed>) {
    submit_many(&bed.store, 1, 10).await;
    let before = bed.store.find_head(&acme()).await.unwrap();
    let again = [given(1, 1)];
    let refused = bed
        .store
        .transact(&needs(&again), &mut |_| Writes {
            records: vec![given(99, 99).submission()],
            handoffs: [(again[0].key(), (again[0].handoff(), true))].into(),
            ..Writes::default()
        })
        .await;
    assert!(refused.is_err());
    assert_eq!(bed.store.find_head(&acme()).await.unwrap(), before);
}

pub async fn the_first_key_signs_until_another_takes_its_place(bed: Arc<Bed>) {
    let store = &bed.store;
    assert!(store.settle_tree_key(&[1; 32], Micros(1), false).await.unwrap());
    assert!(!store.settle_tree_key(&[2; 32], Micros(2), false).await.unwrap(), "not asked for");
    assert!(store.settle_tree_key(&[1; 32], Micros(3), false).await.unwrap());
    assert!(store.settle_tree_key(&[2; 32], Micros(4), true).await.unwrap());
    assert!(!store.settle_tree_key(&[1; 32], Micros(5), false).await.unwrap(), "retired");
    assert!(!store.settle_tree_key(&[1; 32], Micros(6), true).await.unwrap(), "for good");
    let keys = store.list_tree_keys().await.unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!((keys[0].public, keys[0].retired_at), ([1; 32], Some(Micros(4))));
    assert_eq!((keys[1].public, keys[1].retired_at), ([2; 32], None));
}

pub async fn of_two_that_settle_the_first_key_at_once_one_does(bed: Arc<Bed>) {
    let other = bed.second().await;
    let (one, two) = tokio::join!(
        bed.store.settle_tree_key(&[1; 32], Micros(1), false),
        other.settle_tree_key(&[2; 32], Micros(1), false),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one, two);
    let keys = bed.store.list_tree_keys().await.unwrap();
    let public = if one { [1; 32] } else { [2; 32] };
    assert_eq!(keys.iter().map(|key| key.public).collect::<Vec<_>>(), [public]);
}
