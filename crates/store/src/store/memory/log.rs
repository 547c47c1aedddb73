//! The logs: records, their contents, and the tree.

use std::collections::BTreeMap;

use crate::store::{
    ContentStorage, HandoffKey, Result, StoreError, StoredContent, StoredPersonal, StoredRecord,
};
use handoffd_domain::ids::{ContentId, HandoffId, TaskId, TenantId};
use handoffd_evidence::append::{AppendedRecords, LogAppender};
use handoffd_evidence::commitment::unpack;
use handoffd_evidence::merkle::{Frontier, Hash};
use handoffd_evidence::record::{LogHead, PersonalPart, RecordDraft, RecordKind, SealedRecord};

use super::kept::{MemoryLog, MemoryRecord};
use super::tables::Tables;

/// Most unrecorded handoffs listed.
const UNRECORDED: usize = 10;

/// Kinds of records that commit a handoff or create a dead letter.
const fn commits(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::Handoff | RecordKind::DeadLettered | RecordKind::NoOp)
}

fn bounded(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(0)
}

impl Tables {
    pub(super) fn ensure_tenant(&mut self, tenant: &TenantId, log_id: &str) {
        self.logs.entry(tenant.clone()).or_insert_with(|| MemoryLog {
            head: LogHead {
                tenant: tenant.clone(),
                log_id: log_id.to_owned(),
                size: 0,
                hash: Vec::new(),
                tree: Frontier::default(),
            },
            records: Vec::new(),
            nodes: BTreeMap::new(),
        });
    }

    /// Seals the drafts in order and stores them with their contents.
    pub(super) fn append(&mut self, drafts: &[RecordDraft]) -> Result<AppendedRecords> {
        let mut growing = BTreeMap::new();
        let mut sealed = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let tenant = &draft.tenant;
            let log = self
                .logs
                .get(tenant)
                .ok_or_else(|| StoreError::Denied(format!("tenant {tenant} has no log")))?;
            let log =
                growing.entry(tenant.clone()).or_insert_with(|| LogAppender::new(log.head.clone()));
            sealed.push(log.append(draft));
        }
        for (draft, sealed) in drafts.iter().zip(&mut sealed) {
            growing[&draft.tenant].close(sealed);
            if let Some(content) = &draft.content {
                self.contents.insert((draft.tenant.clone(), content.id), content.part.clone());
            }
            if let Some(log) = self.logs.get_mut(&draft.tenant) {
                log.records.push(MemoryRecord {
                    sealed: sealed.clone(),
                    kind: draft.kind,
                    task: draft.task_id,
                    handoff: draft.handoff_id,
                    at: draft.at,
                    content: draft.content_id(),
                    personal: draft.personal.clone(),
                });
            }
        }
        for (tenant, appending) in &growing {
            if let Some(log) = self.logs.get_mut(tenant) {
                log.head = appending.head();
                let nodes = appending.nodes();
                log.nodes.extend(nodes.map(|node| ((node.level, node.index), *node.hash)));
            }
        }
        Ok(AppendedRecords::new(sealed, growing))
    }

    pub(super) fn find_content(&self, tenant: &TenantId, id: ContentId) -> Option<StoredContent> {
        let part = self.contents.get(&(tenant.clone(), id))?;
        let kept = ContentStorage::Hot(part.salt.clone(), part.codec, part.bytes.to_vec());
        Some(StoredContent { id: id.to_string(), kept })
    }

    pub(super) fn find_receipt(&self, key: &HandoffKey) -> Option<SealedRecord> {
        let log = self.logs.get(&key.0)?;
        let own = log.records.iter().filter(|one| one.handoff == Some(key.1) && commits(one.kind));
        let first =
            own.min_by_key(|one| (one.kind == RecordKind::DeadLettered, one.sealed.leaf_index));
        first.map(|one| one.sealed.clone())
    }

    pub(super) fn find_last_commit(&self, key: &HandoffKey, task: TaskId) -> Option<SealedRecord> {
        let log = self.logs.get(&key.0)?;
        let own = |one: &&MemoryRecord| {
            (one.task, one.handoff) == (Some(task), Some(key.1))
                && matches!(
                    one.kind,
                    RecordKind::Handoff | RecordKind::NoOp | RecordKind::StreamClosed
                )
        };
        log.records.iter().rfind(own).map(|one| one.sealed.clone())
    }

    pub(super) fn find_opinion(&self, key: &HandoffKey, task: TaskId) -> Option<SealedRecord> {
        let log = self.logs.get(&key.0)?;
        let own = |one: &&MemoryRecord| {
            (one.task, one.handoff, one.kind)
                == (Some(task), Some(key.1), RecordKind::SecondOpinion)
        };
        log.records.iter().find(own).map(|one| one.sealed.clone())
    }

    pub(super) fn list_records(
        &self,
        tenant: &TenantId,
        of: impl Fn(Option<TaskId>, RecordKind) -> bool,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Vec<StoredRecord> {
        let Some(log) = self.logs.get(tenant) else { return Vec::new() };
        let wanted = log.records.iter();
        let wanted = wanted.filter(|one| one.sealed.leaf_index >= from && of(one.task, one.kind));
        let stored = |one: &MemoryRecord| StoredRecord {
            leaf_index: one.sealed.leaf_index,
            hash: one.sealed.hash.to_vec(),
            kind: one.kind.as_str().to_owned(),
            task_id: one.task.map(|id| id.to_string()),
            handoff_id: one.handoff.map(|id| id.to_string()),
            recorded_at: one.at,
            body: one.sealed.body.clone(),
            content: one.content.filter(|_| contents).and_then(|id| self.find_content(tenant, id)),
            personal: if contents { stored_personal(&one.personal) } else { Vec::new() },
        };
        wanted.take(bounded(limit)).map(stored).collect()
    }

    pub(super) fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Vec<Hash> {
        let Some(log) = self.logs.get(tenant) else { return Vec::new() };
        let limit = bounded(limit);
        if level == 0 {
            let leaves = log.records.iter().map(|one| &one.sealed);
            let leaves = leaves.filter(|sealed| sealed.leaf_index >= from);
            return leaves.take(limit).map(|sealed| sealed.hash).collect();
        }
        let of_level = log.nodes.range((level, from)..(level + 1, 0));
        of_level.take(limit).map(|(_, hash)| *hash).collect()
    }

    pub(super) fn list_unrecorded(&self, tenant: &TenantId) -> Vec<String> {
        let recorded = |id: HandoffId| {
            let log = self.logs.get(tenant);
            log.is_some_and(|log| {
                log.records.iter().any(|one| one.handoff == Some(id) && commits(one.kind))
            })
        };
        let own = self.handoffs.keys().filter(|(of, id)| of == tenant && !recorded(*id));
        own.take(UNRECORDED).map(|(_, id)| id.to_string()).collect()
    }

    /// The personal data committed with a handoff.
    pub(super) fn personal_of(&self, tenant: &TenantId, id: HandoffId) -> Result<Vec<Vec<u8>>> {
        let Some(log) = self.logs.get(tenant) else { return Ok(Vec::new()) };
        let own = log.records.iter().filter(|one| one.handoff == Some(id));
        own.flat_map(|one| &one.personal)
            .map(|datum| unpack(datum.part.codec, &datum.part.bytes).map_err(StoreError::Refused))
            .collect()
    }
}

fn stored_personal(parts: &[PersonalPart]) -> Vec<StoredPersonal> {
    parts
        .iter()
        .zip(0..)
        .map(|(PersonalPart { subject_id, part }, ordinal)| StoredPersonal {
            ordinal,
            subject_id: subject_id.clone(),
            kept: Some((part.salt.clone(), part.codec, part.bytes.to_vec())),
        })
        .collect()
}
