//! The verifier's reading side: takes a log and what stands beside it out of a store, page by page, and
//! has it judged. A broker may append meanwhile: what is judged is the log as its head stood when the
//! check began.

use std::collections::HashMap;

use crate::archive::{ArchiveError, Contents};
use crate::domain::handoff::Handoff;
use crate::domain::ids::{TaskId, TenantId};
use crate::evidence::commitment::{Subject, hash_text};
use crate::evidence::verify::{Entry, Fault, KeptHead, Report, Verifier, opens};
use crate::store::cold::ColdFault;
use crate::store::{Cursor, HandoffFilter, Kept, Result, Store, StoreError, StoredRecord};

/// Records, or handoffs, read at once.
const PAGE: i64 = 512;

/// What to hold a log against, and whom to tell how far it is.
pub struct Check<'a> {
    /// Reads contents that were moved to the cold tier; without it they count as erased.
    pub contents: Option<&'a Contents>,
    /// Tree heads kept outside the database, their signatures checked.
    pub heads: Vec<KeptHead>,
    /// Compare handoffs and their checkpoints with their records too.
    pub state: bool,
    /// Told of the records read so far, and of how many there are.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl Default for Check<'_> {
    fn default() -> Self {
        Self { contents: None, heads: Vec::new(), state: true, progress: &|_, _| {} }
    }
}

/// Verifies one log.
///
/// # Errors
/// When the store or the archive cannot be read.
pub async fn verify_log(
    store: &dyn Store,
    tenant: &TenantId,
    check: Check<'_>,
) -> std::result::Result<Report, ArchiveError> {
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

fn entry(record: &StoredRecord) -> Entry<'_> {
    Entry {
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

/// What an erasure took while the log was read is listed in records beyond the head that is judged.
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

/// A content that the archive did not give is a fault with a name of its own; an archive that does not
/// answer at all is no verdict on the log.
fn cold_fault(
    verifier: &mut Verifier,
    record: &StoredRecord,
) -> std::result::Result<(), ArchiveError> {
    let Some(Kept::Unavailable(fault)) = record.content.as_ref().map(|content| &content.kept)
    else {
        return Ok(());
    };
    let detail = match fault {
        ColdFault::Missing => "the segment with its content is not in the archive",
        ColdFault::Damaged => "the segment with its content is damaged",
        ColdFault::Away => {
            let leaf_index = record.leaf_index;
            return Err(ArchiveError::Away(format!("the content of record {leaf_index}")));
        }
    };
    verifier.beside(record.leaf_index, fault.as_str(), detail.to_owned());
    Ok(())
}

/// Compares what is kept of the tree with what the records make, as far as it is kept.
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

/// Records after the end that the head speaks of. They are read before the head is read again: one that
/// was appended meanwhile is then within it.
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
    let mut tasks = Tasks::default();
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
                        let said = Tasks::default().said_of(store, now).await?;
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

/// What the records of a handoff say last: its status, and the checkpoint that it commits to, each with the
/// record's place.
#[derive(Debug, Clone, Default)]
struct Said {
    status: Option<(i64, String)>,
    checkpoint: Option<(i64, String)>,
}

/// What was read of the tasks that were asked for last: a task of many handoffs is not read anew for each.
#[derive(Debug, Default)]
struct Tasks {
    said: HashMap<TaskId, HashMap<String, Said>>,
    /// Handoffs in all of them.
    held: usize,
}

impl Tasks {
    /// Handoffs held at most, beside those of one task.
    const HELD: usize = 1 << 16;

    async fn said_of(&mut self, store: &dyn Store, handoff: &Handoff) -> Result<Said> {
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
) -> Result<HashMap<String, Said>> {
    let (mut from, mut read) = (0, HashMap::<String, Said>::new());
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
    said: Said,
    verifier: &Verifier,
) -> Result<Option<Fault>> {
    let (id, stands) = (handoff.id, handoff.status.as_str());
    match said.status {
        Some((leaf_index, recorded)) if recorded != stands => {
            let detail =
                format!("handoff {id} stands as {stands}, its last record says {recorded}");
            Ok(Some(Fault { leaf_index, fault: "state", detail }))
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
) -> Result<Option<Fault>> {
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
            opens(commitment, Subject::Checkpoint, kept).err()
        }
    };
    Ok(why.map(|why| Fault {
        leaf_index,
        fault: "checkpoint",
        detail: format!("the checkpoint of handoff {}: {why}", handoff.id),
    }))
}
