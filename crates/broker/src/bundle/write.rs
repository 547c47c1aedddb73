//! Collects the contents of a bundle in one pass over the task's records, page by page.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek};

use serde_json::Value;

use super::checkpoints::{BundledCheckpoint, checkpoints};
use super::contracts::{RegisteredDocument, find_put};
use super::pack::{BundlePiece, LineFile, Packer};
use crate::archive::Contents;
use crate::trace::Parties;
use crate::tree;
use handoffd_domain::ids::{Micros, TaskId, TenantId};
use handoffd_evidence::bundle::format::{
    BundleContentState, BundleManifest, CommitmentLine, ContentKind, ERASED, FORMAT, KEYS, KeyLine,
    Keys, ProofLine, README, REPORT, SOFTWARE, TRACE, TREE_HEAD, contract_name, erased_slots,
    message_of, page, readme, schema_name, schema_of_contract,
};
use handoffd_evidence::commitment::{hash_text, unpack};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::receipt::Notary;
use handoffd_evidence::record::LogHead;
use handoffd_store::store::cold::ColdError;
use handoffd_store::store::{ContentStorage, SaltedContent, Store, StoreError, StoredRecord};

/// Records read at once: few, since each has its content.
const PAGE: i64 = 64;

/// Records read at once in the search for erasures.
const SCAN: i64 = 512;

/// Most bytes of trace or messages for which the HTML report, made in memory, is included.
const MAX_PAGE_BYTES: u64 = 32 * 1024 * 1024;

/// The bundle to write, and its sources.
pub struct BundleOrder<'a> {
    /// Store of records and proofs.
    pub store: &'a Store,
    /// Reader of the contents.
    pub contents: &'a Contents,
    /// Signs the tree head.
    pub notary: &'a Notary,
    /// The tenant that owns the task.
    pub tenant: &'a TenantId,
    /// The log's head; the bundle holds records before its end.
    pub head: &'a LogHead,
    pub task: TaskId,
    /// Whether to include personal data.
    pub personal: bool,
    /// The task's trace up to `head`, a JSON document.
    pub trace: File,
    /// Current time.
    pub at: Micros,
}

/// Reasons for which no bundle is made.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The temporary file cannot be written.
    #[error("the bundle cannot be written: {0}")]
    Io(#[from] io::Error),
    /// A content is in the archive, which is not reachable.
    #[error("a content is in the archive, which is not available")]
    Away,
    /// An erasure ran meanwhile; its record is beyond `head`. Begin again with a newer head.
    #[error("contents were erased while the bundle was written")]
    Moved,
}

/// Writes a bundle into a temporary file, which is returned at its beginning.
///
/// # Errors
/// [`WriteError`].
pub async fn write(order: BundleOrder<'_>) -> Result<File, WriteError> {
    let BundleOrder { store, tenant, head, notary, .. } = order;
    let mut manifest = BundleManifest {
        format: FORMAT.to_owned(),
        tenant: tenant.to_string(),
        task_id: order.task.to_string(),
        log_id: head.log_id.clone(),
        origin: notary.origin(&head.log_id),
        tree_size: head.tree.size(),
        root_hash: hash_text(&head.tree.root()),
        created_at: order.at.rfc3339(),
        software: SOFTWARE.to_owned(),
        personal_data: order.personal,
        records: 0,
        contents: 0,
        erased: 0,
        files: Vec::new(),
    };
    let note = notary.tree_head(&head.log_id, &head.tree);
    let packer = Packer::start();
    let whole = |name: &str, bytes: Vec<u8>| BundlePiece::Whole(name.to_owned(), bytes);
    packer.put(whole(README, readme(&manifest).into_bytes())).await;
    packer.put(whole(TREE_HEAD, note.clone().into_bytes())).await;
    packer.put(whole(KEYS, json(&keys(store, notary, &head.log_id).await?))).await;
    let mut gathering = BundleWriter {
        order: &order,
        packer: &packer,
        manifest: &mut manifest,
        checkpoints: checkpoints(store, tenant, order.task).await?,
        gaps: BTreeSet::new(),
        contracts: BTreeSet::new(),
        schemas: BTreeSet::new(),
        messages: Some(Vec::new()),
        room: MAX_PAGE_BYTES,
    };
    gathering.task().await?;
    gathering.contracts().await?;
    gathering.schemas().await?;
    gathering.erasures().await?;
    let messages = gathering.messages.take();
    let mut trace = order.trace;
    if let (Some(messages), true) = (messages, trace.metadata()?.len() <= MAX_PAGE_BYTES) {
        let mut text = String::new();
        trace.rewind()?;
        trace.read_to_string(&mut text)?;
        let value: Value = serde_json::from_str(&text).map_err(io::Error::from)?;
        let html = page(&value, &messages, &manifest, &note);
        packer.put(whole(REPORT, html.into_bytes())).await;
    }
    packer.put(BundlePiece::Spooled(TRACE, trace)).await;
    Ok(packer.finish(manifest).await?)
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    // Texts and numbers always serialise.
    serde_json::to_vec(value).unwrap_or_default()
}

async fn keys(store: &Store, notary: &Notary, log_id: &str) -> Result<Keys, StoreError> {
    let keys = key_lines(store, notary, log_id).await?;
    Ok(Keys { origin: notary.origin(log_id), keys })
}

/// Present and former public keys of a log's tree heads.
pub(super) async fn key_lines(
    store: &Store,
    notary: &Notary,
    log_id: &str,
) -> Result<Vec<KeyLine>, StoreError> {
    let keys = store.list_tree_keys().await?;
    let keys = keys.iter().filter_map(|row| {
        Some(KeyLine {
            key: notary.public(log_id, Some(&row.public))?.to_string(),
            created_at: row.created_at.rfc3339(),
            retired_at: row.retired_at.map(Micros::rfc3339),
        })
    });
    Ok(keys.collect())
}

struct BundleWriter<'a, 'o> {
    order: &'a BundleOrder<'o>,
    packer: &'a Packer,
    manifest: &'a mut BundleManifest,
    checkpoints: HashMap<String, BundledCheckpoint>,
    /// Missing data without a record so far: leaf index and ordinal (−1 for the content).
    gaps: BTreeSet<(i64, i64)>,
    /// Contracts named by the task's records, as `id@version`.
    contracts: BTreeSet<String>,
    /// Registered payload schemas named by these contracts, as `id@version`.
    schemas: BTreeSet<String>,
    /// Messages for the report; none once they exceed [`MAX_PAGE_BYTES`].
    messages: Option<Vec<Value>>,
    room: u64,
}

impl BundleWriter<'_, '_> {
    /// Size of the log covered by the bundle.
    fn end(&self) -> i64 {
        i64::try_from(self.manifest.tree_size).unwrap_or(i64::MAX)
    }

    /// Writes the task's records.
    async fn task(&mut self) -> Result<(), WriteError> {
        let BundleOrder { store, contents, tenant, task, .. } = *self.order;
        let parties = Parties::of(store, tenant, task).await?;
        let mut from = 0;
        loop {
            let mut page = contents.list_records(tenant, Some(task), from, PAGE).await?;
            page.retain(|record| record.leaf_index < self.end());
            let Some(last) = page.last() else { return Ok(()) };
            from = last.leaf_index + 1;
            page.retain(|record| parties.include(record));
            if !page.is_empty() {
                self.add(&page).await?;
            }
        }
    }

    /// Writes the records that registered the task's contracts, in log order. Their contents are the documents.
    async fn contracts(&mut self) -> Result<(), WriteError> {
        let BundleOrder { store, contents, tenant, .. } = *self.order;
        if self.contracts.is_empty() {
            return Ok(());
        }
        let mut puts = BTreeSet::new();
        for row in store.list_contracts(tenant, None).await? {
            let name = format!("{}@{}", row.id, row.version);
            if self.contracts.contains(&name) {
                let put = RegisteredDocument::Contract(name, row.created_at);
                puts.extend(find_put(store, tenant, &put, self.end()).await?);
            }
        }
        for leaf in puts {
            let found = contents.list_records(tenant, None, leaf, 1).await?;
            self.add(&found).await?;
        }
        Ok(())
    }

    /// Writes the records that registered the payload schemas of these contracts, in log order.
    async fn schemas(&mut self) -> Result<(), WriteError> {
        let BundleOrder { store, contents, tenant, .. } = *self.order;
        if self.schemas.is_empty() {
            return Ok(());
        }
        let mut puts = BTreeSet::new();
        for row in store.list_payload_schemas(tenant, None).await? {
            let name = format!("{}@{}", row.id, row.version);
            if self.schemas.contains(&name) {
                let put = RegisteredDocument::Schema(name, row.created_at);
                puts.extend(find_put(store, tenant, &put, self.end()).await?);
            }
        }
        for leaf in puts {
            let found = contents.list_records(tenant, None, leaf, 1).await?;
            self.add(&found).await?;
        }
        Ok(())
    }

    /// Writes the `ERASED` records that list this task's contents. They belong to no task, so the log is searched
    /// from the first gap to the last explained one.
    async fn erasures(&mut self) -> Result<(), WriteError> {
        let BundleOrder { store, contents, tenant, .. } = *self.order;
        let mut from = self.gaps.first().map_or(0, |gap| gap.0 + 1);
        while !self.gaps.is_empty() {
            let page = store.list_records(tenant, None, from, SCAN, false).await?;
            let Some(last) = page.last().filter(|_| from < self.end()) else {
                // A record beyond the head may; without one, the verifier will say what is missing.
                let newer = store.find_head(tenant).await?.is_some_and(|now| now.size > self.end());
                return if newer { Err(WriteError::Moved) } else { Ok(()) };
            };
            from = last.leaf_index + 1;
            for record in page.iter().filter(|record| record.kind == ERASED) {
                if record.leaf_index >= self.end() {
                    return Err(WriteError::Moved);
                }
                let found = contents.list_records(tenant, None, record.leaf_index, 1).await?;
                if found.first().is_some_and(|record| self.explains(record)) {
                    self.add(&found).await?;
                }
            }
        }
        Ok(())
    }

    /// Closes the gaps listed by an `ERASED` record; returns whether it lists any.
    fn explains(&mut self, record: &StoredRecord) -> bool {
        let Some((_, list)) = record.content.as_ref().and_then(|content| opened(&content.kept))
        else {
            return false;
        };
        let list: Value = serde_json::from_slice(&list).unwrap_or_default();
        let before = self.gaps.len();
        for slot in erased_slots(&list) {
            self.gaps.remove(&slot);
        }
        self.gaps.len() < before
    }

    async fn add(&mut self, page: &[StoredRecord]) -> Result<(), WriteError> {
        let indexes: Vec<u64> = page
            .iter()
            .map(|record| u64::try_from(record.leaf_index).unwrap_or(u64::MAX))
            .collect();
        let (store, tenant) = (self.order.store, self.order.tenant);
        let proofs = tree::inclusions(store, tenant, &indexes, self.manifest.tree_size).await?;
        let proofs = proofs.ok_or_else(|| {
            StoreError::Refused("the log's tree lacks nodes: run handoffd verify".to_owned())
        })?;
        for (record, proof) in page.iter().zip(&proofs) {
            self.record(record, proof).await?;
        }
        Ok(())
    }

    async fn record(&mut self, record: &StoredRecord, proof: &[Hash]) -> Result<(), WriteError> {
        self.manifest.records += 1;
        self.packer.put(BundlePiece::Line(LineFile::Records, record.body.clone())).await;
        let proof = ProofLine {
            leaf_index: record.leaf_index,
            record_hash: hash_text(&record.hash),
            inclusion_proof: proof.iter().map(hex::encode).collect(),
        };
        self.packer.put(BundlePiece::Line(LineFile::Proofs, json(&proof))).await;
        let body: Value = serde_json::from_slice(&record.body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let contract = contract_name(&body);
        if let Some(commitment) = text("messageCommitment") {
            let kind = ContentKind::of_record(&record.kind);
            let mut line = line(record.leaf_index, kind, 0, commitment);
            line.contract = contract.clone().filter(|_| kind == ContentKind::Contract);
            line.payload_schema = schema_name(&body).filter(|_| kind == ContentKind::PayloadSchema);
            self.message(record, line).await?;
        }
        self.contracts.extend(contract);
        let commitments = body.get("personalDataCommitments").and_then(Value::as_array);
        for (commitment, ordinal) in commitments.into_iter().flatten().zip(0..) {
            let commitment = commitment.as_str().unwrap_or_default();
            self.personal(record, ordinal, commitment).await;
        }
        if let Some(commitment) = text("checkpointCommitment") {
            self.checkpoint(record.leaf_index, commitment).await?;
        }
        Ok(())
    }

    async fn message(
        &mut self,
        record: &StoredRecord,
        line: CommitmentLine,
    ) -> Result<(), WriteError> {
        match record.content.as_ref().map(|content| &content.kept) {
            Some(ContentStorage::Unavailable(ColdError::Away)) => return Err(WriteError::Away),
            Some(ContentStorage::Erased | ContentStorage::Purged) => {
                self.gaps.insert((record.leaf_index, -1));
                self.without(line, BundleContentState::Erased).await;
            }
            Some(kept) => match opened(kept) {
                Some((salt, content)) => {
                    if record.kind == "HANDOFF" {
                        self.remember(record, &content);
                    } else if line.kind == ContentKind::Contract {
                        let contract = serde_json::from_slice(&content).unwrap_or_default();
                        self.schemas.extend(schema_of_contract(&contract));
                    }
                    self.with(line, &salt, content).await;
                }
                None => self.without(line, BundleContentState::Unavailable).await,
            },
            None => self.without(line, BundleContentState::Unavailable).await,
        }
        Ok(())
    }

    /// Keeps a message for the report.
    fn remember(&mut self, record: &StoredRecord, content: &[u8]) {
        let left = self.room.checked_sub(content.len() as u64);
        match (left, &mut self.messages) {
            (Some(left), Some(messages)) => {
                self.room = left;
                let message = serde_json::from_slice(content).unwrap_or_default();
                messages.push(message_of(record.handoff_id.as_deref(), message));
            }
            _ => self.messages = None,
        }
    }

    async fn personal(&mut self, record: &StoredRecord, ordinal: i64, commitment: &str) {
        let mut line = line(record.leaf_index, ContentKind::Personal, ordinal, commitment);
        let datum = record.personal.iter().find(|datum| datum.ordinal == ordinal);
        match datum.map(|datum| (&datum.kept, &datum.subject_id)) {
            Some((None, _)) => {
                self.gaps.insert((record.leaf_index, ordinal));
                self.without(line, BundleContentState::Erased).await;
            }
            Some((Some(_), _)) if !self.order.personal => {
                self.without(line, BundleContentState::Withheld).await;
            }
            Some((Some(kept), subject)) => match unpacked(kept) {
                Some(content) => {
                    line.subject_id = Some(subject.clone());
                    self.with(line, &kept.0, content).await;
                }
                None => self.without(line, BundleContentState::Unavailable).await,
            },
            None => self.without(line, BundleContentState::Unavailable).await,
        }
    }

    async fn checkpoint(&mut self, leaf: i64, commitment: &str) -> Result<(), WriteError> {
        let mut line = line(leaf, ContentKind::Checkpoint, 0, commitment);
        let Some(saved) = self.checkpoints.get_mut(commitment) else {
            self.without(line, BundleContentState::NotKept).await;
            return Ok(());
        };
        if let Some(salt) = &saved.packed {
            line.salt = Some(salt.clone());
            line.file = Some(line.path());
            self.manifest.contents += 1;
            self.packer.put(BundlePiece::Line(LineFile::Commitments, json(&line))).await;
            return Ok(());
        }
        let run = (self.order.tenant.clone(), self.order.task, saved.run);
        let row = self.order.store.find_checkpoint(&run, None, Some(saved.seq)).await?;
        let part = row.map(|row| row.part).filter(|part| !part.salt.is_empty());
        match part.and_then(|part| Some((unpack(part.codec, &part.bytes).ok()?, part.salt))) {
            Some((content, salt)) => {
                saved.packed = Some(hex::encode(&salt));
                self.with(line, &salt, content).await;
            }
            None => self.without(line, BundleContentState::NotKept).await,
        }
        Ok(())
    }

    async fn with(&mut self, mut line: CommitmentLine, salt: &[u8], content: Vec<u8>) {
        let name = line.path();
        line.salt = Some(hex::encode(salt));
        line.file = Some(name.clone());
        self.manifest.contents += 1;
        self.packer.put(BundlePiece::Whole(name, content)).await;
        self.packer.put(BundlePiece::Line(LineFile::Commitments, json(&line))).await;
    }

    async fn without(&mut self, line: CommitmentLine, state: BundleContentState) {
        self.manifest.erased += u64::from(state == BundleContentState::Erased);
        let line = CommitmentLine { state, ..line };
        self.packer.put(BundlePiece::Line(LineFile::Commitments, json(&line))).await;
    }
}

fn line(leaf_index: i64, kind: ContentKind, ordinal: i64, commitment: &str) -> CommitmentLine {
    CommitmentLine {
        leaf_index,
        kind,
        ordinal,
        commitment: commitment.to_owned(),
        state: BundleContentState::Kept,
        salt: None,
        file: None,
        subject_id: None,
        contract: None,
        payload_schema: None,
    }
}

/// Salt and content, where both are available.
fn opened(kept: &ContentStorage) -> Option<(Vec<u8>, Vec<u8>)> {
    let (salt, codec, bytes) = kept.hot()?;
    Some((salt.to_vec(), unpack(codec, bytes).ok()?))
}

fn unpacked((_, codec, bytes): &SaltedContent) -> Option<Vec<u8>> {
    unpack(*codec, bytes).ok()
}
