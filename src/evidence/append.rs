//! Appending to a log: drafts get their places, the tree grows with them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::merkle::{Growth, Hash};
use super::receipt::Notary;
use super::record::{Draft, LogHead, Sealed, seal};
use crate::domain::ids::TenantId;

/// A log that is being appended to, within one transaction.
#[derive(Debug, Clone)]
pub struct Appending {
    head: LogHead,
    growth: Growth,
}

impl Appending {
    /// Begins at a head whose tree has all of its records.
    #[must_use]
    pub fn new(head: LogHead) -> Self {
        let growth = Growth::of(head.tree.clone());
        Self { head, growth }
    }

    /// Gives a draft the next place.
    pub fn append(&mut self, draft: &Draft) -> Sealed {
        let sealed = seal(&mut self.head, draft);
        self.growth.push(sealed.hash);
        sealed
    }

    /// Gives the tree leaves that the log has already, in order. `None` where there are none, or more
    /// than the log has.
    #[must_use]
    pub fn caught_up(mut self, leaves: &[Hash]) -> Option<Self> {
        for leaf in leaves {
            self.growth.push(*leaf);
        }
        let size = u64::try_from(self.head.size).unwrap_or(0);
        (!leaves.is_empty() && self.growth.after().size() <= size).then_some(self)
    }

    /// The head as it will be.
    #[must_use]
    pub fn head(&self) -> LogHead {
        LogHead { tree: self.growth.after().clone(), ..self.head.clone() }
    }

    /// Tells a record how large the log is after this transaction.
    pub fn close(&self, sealed: &mut Sealed) {
        sealed.tree_size = self.head.size;
    }

    /// The new nodes that are kept, with whose they are.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.growth.kept_nodes().map(|(level, index, hash)| Node {
            tenant: &self.head.tenant,
            level: i64::from(level),
            index: i64::try_from(index).unwrap_or(i64::MAX),
            hash,
        })
    }
}

/// A node of a log's tree on its way into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Whose log.
    pub tenant: &'a TenantId,
    /// Tile level: the tree's level through 8.
    pub level: i64,
    /// Its place within the level.
    pub index: i64,
    /// The root of the complete subtree below it.
    pub hash: &'a Hash,
}

/// How a log grew in one transaction.
#[derive(Debug)]
pub struct Grown {
    /// Which log.
    pub log_id: String,
    /// The tree before and after.
    pub growth: Growth,
    signed: OnceLock<Arc<str>>,
}

impl Grown {
    /// The tree head of the transaction, signed once however many receipts it goes into.
    pub fn tree_head(&self, notary: &Notary) -> Arc<str> {
        let sign = || notary.tree_head(&self.log_id, self.growth.after()).into();
        Arc::clone(self.signed.get_or_init(sign))
    }
}

/// A record with the tree that grew with it: enough for a receipt.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The record.
    pub sealed: Sealed,
    /// The tree of its transaction.
    pub grown: Arc<Grown>,
}

/// What a transaction appended.
#[derive(Debug, Clone, Default)]
pub struct Appended {
    /// The records, in the order of the drafts.
    pub records: Vec<Sealed>,
    /// How each tenant's tree grew.
    pub trees: BTreeMap<TenantId, Arc<Grown>>,
}

impl Appended {
    /// From the logs as they are after the last draft.
    #[must_use]
    pub fn new(records: Vec<Sealed>, logs: BTreeMap<TenantId, Appending>) -> Self {
        let trees = logs
            .into_iter()
            .map(|(tenant, log)| {
                let (log_id, growth) = (log.head.log_id, log.growth);
                (tenant, Arc::new(Grown { log_id, growth, signed: OnceLock::new() }))
            })
            .collect();
        Self { records, trees }
    }

    /// One of the records, with its tree.
    #[must_use]
    pub fn placed(&self, tenant: &TenantId, record: usize) -> Option<Placed> {
        let sealed = self.records.get(record)?.clone();
        Some(Placed { sealed, grown: Arc::clone(self.trees.get(tenant)?) })
    }
}
