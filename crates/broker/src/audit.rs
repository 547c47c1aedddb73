//! The reading side of the verifier: reads a log and the data beside it from a store, page by page. A broker may
//! append meanwhile: the log is verified as of its head at the start of the check.

use std::collections::HashMap;

use crate::archive::{ArchiveError, Contents};
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::domain::ids::{TaskId, TenantId};
use handoffd_core::evidence::commitment::{CommitmentSubject, hash_text};
use handoffd_core::evidence::verify::record::opens_packed;
use handoffd_core::evidence::verify::{
    LogDefect, LogEntry, TrustedHead, VerificationReport, Verifier,
};
use handoffd_store::store::cold::ColdError;
use handoffd_store::store::{
    ContentStorage, Cursor, HandoffFilter, Result, Store, StoreError, StoredRecord,
};

/// Records, or handoffs, read at once.
const PAGE: i64 = 512;

/// Options of a verification.
pub struct LogCheck<'a> {
    /// Reader for contents in the cold tier; without it they count as erased.
    pub contents: Option<&'a Contents>,
    /// Tree heads kept outside the database, their signatures verified.
    pub heads: Vec<TrustedHead>,
    /// Whether to compare handoffs and their checkpoints with their records.
    pub state: bool,
    /// Receives the number of records read so far, and the total.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl Default for LogCheck<'_> {
    fn default() -> Self {
        Self { contents: None, heads: Vec::new(), state: true, progress: &|_, _| {} }
    }
}

/// Verifies one log.
///
/// # Errors
/// [`ArchiveError`] where the store or the archive cannot be read.
pub async fn verify_log(
    store: &dyn Store,
    tenant: &TenantId,
    check: LogCheck<'_>,
) -> std::result::Result<VerificationReport, ArchiveError> {
    let Some(head) = store.find_head(tenant).await? else {
        return Err(StoreError::Refused(format!("tenant {tenant} has no log")).into());
    };
    // Before the records are read: a handoff committed later has its record later.
    let unrecorded = store.list_unrecorded(tenant).await?;
    let mut verifier = Verifier::against(head.log_id.clone(), check.heads);
    let total = u64::try_from(head.size).unwrap_or(0);
    let mut from = 0;
    while from < head.size {
        let limit = PAGE.min(head.size - from);
        let page = match check.contents {
            Some(contents) => contents.list_records(tenant, None, from, limit).await?,
            None => store.list_records(tenant, None, from, limit, true).await?,
        };
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in page.iter().filter(|record| record.leaf_index < head.size) {
            verifier.entry(&entry(record));
            cold_fault(&mut verifier, record)?;
        }
        compare_nodes(store, tenant, &mut verifier, head.tree.size()).await?;
        (check.progress)(verifier.report().records, total);
    }
    find_surplus(store, tenant, head.size, &mut verifier).await?;
    // A tree that lags behind (a version without one wrote last) is mended by the next append.
    let edge = head.behind().is_none().then(|| head.tree.to_bytes());
    // Before the end is judged: what was erased since the check began is explained, and no gap.
    if verifier.gaps().unexplained().is_some() {
        read_on(store, tenant, head.size, &mut verifier).await?;
    }
    // What stands beside the log says less than the log itself: it is asked last.
    verifier.ended(head.size, &head.hash, edge.as_deref());
    if let Some(first) = unrecorded.first() {
        verifier.beside(
            head.size,
            "unrecorded",
            format!("handoff {first} has no record: the log was cut or rewritten"),
        );
    }
    if check.state && verifier.report().first_fault.is_none() {
        compare_handoffs(store, tenant, head.size, &mut verifier).await?;
    }
    Ok(verifier.finish(head.size, &head.hash, edge.as_deref()))
}

fn entry(record: &StoredRecord) -> LogEntry<'_> {
    LogEntry {
        leaf_index: record.leaf_index,
        hash: &record.hash,
        kind: &record.kind,
        task_id: record.task_id.as_deref(),
        handoff_id: record.handoff_id.as_deref(),
        recorded_at: record.recorded_at.0,
        body: &record.body,
        content: record.content.as_ref().map(|content| content.kept.hot().into()),
        personal: record
            .personal
            .iter()
            .map(|datum| {
                let kept = datum.kept.as_ref();
                (
                    datum.ordinal,
                    kept.map(|(salt, codec, bytes)| (&salt[..], *codec, &bytes[..])).into(),
                )
            })
            .collect(),
    }
}

/// Reads the records after the verified head: they list data erased during the check.
async fn read_on(
    store: &dyn Store,
    tenant: &TenantId,
    mut from: i64,
    verifier: &mut Verifier,
) -> Result<()> {
    loop {
        let page = store.list_records(tenant, None, from, PAGE, true).await?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.leaf_index + 1;
        for record in &page {
            verifier.later(&entry(record));
        }
    }
}

/// Maps an archive failure: a missing or damaged content is a defect of its own kind, an unreachable archive is an
/// error and no verdict on the log.
fn cold_fault(
    verifier: &mut Verifier,
    record: &StoredRecord,
) -> std::result::Result<(), ArchiveError> {
    let Some(ContentStorage::Unavailable(fault)) =
        record.content.as_ref().map(|content| &content.kept)
    else {
        return Ok(());
    };
    let detail = match fault {
        ColdError::Missing => "the segment with its content is not in the archive",
        ColdError::Damaged => "the segment with its content is damaged",
        ColdError::Away => {
            let leaf_index = record.leaf_index;
            return Err(ArchiveError::Away(format!("the content of record {leaf_index}")));
        }
    };
    verifier.beside(record.leaf_index, fault.as_str(), detail.to_owned());
    Ok(())
}

/// Compares the stored tree with the tree computed from the records, as far as it is stored.
async fn compare_nodes(
    store: &dyn Store,
    tenant: &TenantId,
    verifier: &mut Verifier,
    size: u64,
) -> Result<()> {
    for (level, index, hash) in verifier.take_nodes() {
        let leaves = (index + 1) << (8 * level);
        if leaves > size {
            continue;
        }
        let place = i64::try_from(index).unwrap_or(i64::MAX);
        let kept = store.list_hashes(tenant, i64::from(level), place, 1).await?;
        if kept.first() != Some(&hash) {
            verifier.beside(
                i64::try_from(leaves - 1).unwrap_or(i64::MAX),
                "tree",
                format!("node {index} of tile level {level} is not what the records make"),
            );
        }
    }
    Ok(())
}

/// Finds records after the end stated by the head. They are read before the head is read again, so that a record
/// appended meanwhile is within the new head.
async fn find_surplus(
    store: &dyn Store,
    tenant: &TenantId,
    size: i64,
    verifier: &mut Verifier,
) -> Result<()> {
    let mut last = store.list_records(tenant, None, size, PAGE, false).await?;
    let now = store.find_head(tenant).await?.map_or(size, |head| head.size);
    last.retain(|record| record.leaf_index >= now);
    if let Some(record) = last.first() {
        let detail = format!("the head speaks of {now} records, and there are more");
        verifier.beside(record.leaf_index, "insert", detail);
    }
    Ok(())
}

/// Compares each handoff's state with its last record, and its checkpoint with its commitment.
async fn compare_handoffs(
    store: &dyn Store,
    tenant: &TenantId,
    size: i64,
    verifier: &mut Verifier,
) -> Result<()> {
    let mut after: Option<Cursor> = None;
    let mut tasks = RecordedTasks::default();
    loop {
        let page =
            store.list_handoffs(tenant, &HandoffFilter::default(), after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some((last.created_at, last.id.to_string()));
        for handoff in &page {
            let said = tasks.said_of(store, handoff).await?;
            if let Some(fault) = compare(store, handoff, said, verifier).await? {
                // It may have changed between the two reads, or been erased since the check began.
                let key = (tenant.clone(), handoff.id);
                let now = store.find_handoff(&key).await?;
                store.settle_log(tenant).await?;
                read_on(store, tenant, size, verifier).await?;
                let again = match &now {
                    Some(now) => {
                        let said = RecordedTasks::default().said_of(store, now).await?;
                        compare(store, now, said, verifier).await?
                    }
                    None => None,
                };
                let moved = store.find_handoff(&key).await? != now;
                if again.is_some() && !moved {
                    verifier.fault(fault);
                    return Ok(());
                }
            }
        }
    }
}

/// The last status and checkpoint commitment of a handoff in its records, each with the leaf index.
#[derive(Debug, Clone, Default)]
struct RecordedState {
    status: Option<(i64, String)>,
    checkpoint: Option<(i64, String)>,
}

/// Cache of the records' statements by task: a task with many handoffs is read once.
#[derive(Debug, Default)]
struct RecordedTasks {
    said: HashMap<TaskId, HashMap<String, RecordedState>>,
    /// Number of cached handoffs.
    held: usize,
}

impl RecordedTasks {
    /// Most cached handoffs, besides those of one task.
    const HELD: usize = 1 << 16;

    async fn said_of(&mut self, store: &dyn Store, handoff: &Handoff) -> Result<RecordedState> {
        if !self.said.contains_key(&handoff.task_id) {
            if self.held > Self::HELD {
                *self = Self::default();
            }
            let said = read_task(store, &handoff.tenant, handoff.task_id).await?;
            self.held += said.len();
            self.said.insert(handoff.task_id, said);
        }
        let said = self.said.get(&handoff.task_id);
        Ok(said.and_then(|said| said.get(&handoff.id.to_string())).cloned().unwrap_or_default())
    }
}

async fn read_task(
    store: &dyn Store,
    tenant: &TenantId,
    task: TaskId,
) -> Result<HashMap<String, RecordedState>> {
    let (mut from, mut read) = (0, HashMap::<String, RecordedState>::new());
    loop {
        let page = store.list_records(tenant, Some(task), from, PAGE, false).await?;
        for record in &page {
            let Some(id) = &record.handoff_id else { continue };
            let said = read.entry(id.clone()).or_default();
            let body: serde_json::Value = serde_json::from_slice(&record.body).unwrap_or_default();
            let text = |member: &str| body.get(member)?.as_str().map(ToOwned::to_owned);
            if let Some(status) = text("status") {
                said.status = Some((record.leaf_index, status));
            }
            if let Some(commitment) =
                text("checkpointCommitment").filter(|_| record.kind != "ROLLED_BACK")
            {
                said.checkpoint = Some((record.leaf_index, commitment));
            }
        }
        match page.last() {
            Some(record) if page.len() as i64 == PAGE => from = record.leaf_index + 1,
            _ => return Ok(read),
        }
    }
}

async fn compare(
    store: &dyn Store,
    handoff: &Handoff,
    said: RecordedState,
    verifier: &Verifier,
) -> Result<Option<LogDefect>> {
    let (id, stands) = (handoff.id, handoff.status.as_str());
    match said.status {
        Some((leaf_index, recorded)) if recorded != stands => {
            let detail =
                format!("handoff {id} stands as {stands}, its last record says {recorded}");
            Ok(Some(LogDefect { leaf_index, fault: "state", detail }))
        }
        _ => match said.checkpoint {
            Some((leaf_index, commitment)) => {
                compare_checkpoint(store, handoff, (leaf_index, &commitment), verifier).await
            }
            None => Ok(None),
        },
    }
}

async fn compare_checkpoint(
    store: &dyn Store,
    handoff: &Handoff,
    (leaf_index, commitment): (i64, &str),
    verifier: &Verifier,
) -> Result<Option<LogDefect>> {
    let Some(at) = handoff.checkpoint else { return Ok(None) };
    let run = (handoff.tenant.clone(), handoff.task_id, at.execution_id);
    let why = match store.find_checkpoint(&run, Some(at.seq)).await? {
        None => Some("it is missing".to_owned()),
        Some(row) if hash_text(&row.part.commitment) != commitment => {
            Some("it is another than the record commits to".to_owned())
        }
        Some(_) if verifier.gaps().lists_checkpoint(handoff.task_id, at) => None,
        Some(row) => {
            let kept = (&row.part.salt[..], row.part.codec, &row.part.bytes[..]);
            opens_packed(commitment, CommitmentSubject::Checkpoint, kept).err()
        }
    };
    Ok(why.map(|why| LogDefect {
        leaf_index,
        fault: "checkpoint",
        detail: format!("the checkpoint of handoff {}: {why}", handoff.id),
    }))
}
