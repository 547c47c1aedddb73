//! Appending to a log: each draft gets a leaf index, and the tree grows with it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::merkle::{Hash, TreeGrowth};
use super::notary::Notary;
use super::record::{LogHead, RecordDraft, SealedRecord, seal};
use handoffd_domain::ids::TenantId;

/// A log during one transaction that appends to it.
#[derive(Debug, Clone)]
pub struct LogAppender {
    head: LogHead,
    growth: TreeGrowth,
}

impl LogAppender {
    /// Begins at a head whose tree covers all of its records.
    #[must_use]
    pub fn new(head: LogHead) -> Self {
        let growth = TreeGrowth::of(head.tree.clone());
        Self { head, growth }
    }

    /// Seals a draft at the next leaf index.
    pub fn append(&mut self, draft: &RecordDraft) -> SealedRecord {
        let sealed = seal(&mut self.head, draft);
        self.growth.push(sealed.hash);
        sealed
    }

    /// Adds leaves that the log already has, in order, to a tree that lags behind. `None` where `leaves` is
    /// empty, or exceeds the log's size.
    #[must_use]
    pub fn caught_up(mut self, leaves: &[Hash]) -> Option<Self> {
        for leaf in leaves {
            self.growth.push(*leaf);
        }
        let size = u64::try_from(self.head.size).unwrap_or(0);
        (!leaves.is_empty() && self.growth.after().size() <= size).then_some(self)
    }

    /// The head after all appended drafts.
    #[must_use]
    pub fn head(&self) -> LogHead {
        LogHead { tree: self.growth.after().clone(), ..self.head.clone() }
    }

    /// Sets `tree_size` of a record to the log's size after this transaction.
    pub fn close(&self, sealed: &mut SealedRecord) {
        sealed.tree_size = self.head.size;
    }

    /// The new nodes to store, with their tenant.
    pub fn nodes(&self) -> impl Iterator<Item = TreeNode<'_>> {
        self.growth.kept_nodes().map(|(level, index, hash)| TreeNode {
            tenant: &self.head.tenant,
            level: i64::from(level),
            index: i64::try_from(index).unwrap_or(i64::MAX),
            hash,
        })
    }
}

/// A node of a log's tree to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeNode<'a> {
    /// The tenant that owns the log.
    pub tenant: &'a TenantId,
    /// Tile level: the tree's level divided by 8.
    pub level: i64,
    /// The node's index within the level, from 0.
    pub index: i64,
    /// The root of the complete subtree below it.
    pub hash: &'a Hash,
}

/// The growth of one log in one transaction.
#[derive(Debug)]
pub struct LogGrowth {
    pub log_id: String,
    /// The tree before and after.
    pub growth: TreeGrowth,
    signed: OnceLock<Arc<str>>,
}

impl LogGrowth {
    /// The tree head of the transaction, signed once however many receipts it goes into.
    pub fn tree_head(&self, notary: &Notary) -> Arc<str> {
        let sign = || notary.tree_head(&self.log_id, self.growth.after()).into();
        Arc::clone(self.signed.get_or_init(sign))
    }
}

/// A record with the tree of its transaction: enough for a receipt.
#[derive(Debug, Clone)]
pub struct LoggedRecord {
    /// The record with its leaf index.
    pub sealed: SealedRecord,
    /// The tree of its transaction.
    pub grown: Arc<LogGrowth>,
}

/// The records and trees of one transaction.
#[derive(Debug, Clone, Default)]
pub struct AppendedRecords {
    /// The records, in the order of the drafts.
    pub records: Vec<SealedRecord>,
    pub trees: BTreeMap<TenantId, Arc<LogGrowth>>,
}

impl AppendedRecords {
    /// From the logs as they are after the last draft.
    #[must_use]
    pub fn new(records: Vec<SealedRecord>, logs: BTreeMap<TenantId, LogAppender>) -> Self {
        let trees = logs
            .into_iter()
            .map(|(tenant, log)| {
                let (log_id, growth) = (log.head.log_id, log.growth);
                (tenant, Arc::new(LogGrowth { log_id, growth, signed: OnceLock::new() }))
            })
            .collect();
        Self { records, trees }
    }

    /// One of the records, with its tree. `None` where the tenant or index is unknown.
    #[must_use]
    pub fn placed(&self, tenant: &TenantId, record: usize) -> Option<LoggedRecord> {
        let sealed = self.records.get(record)?.clone();
        Some(LoggedRecord { sealed, grown: Arc::clone(self.trees.get(tenant)?) })
    }
}
