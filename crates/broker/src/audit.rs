//! The reading side of the verifier: reads a log and the data beside it from a store, page by page. A broker may
//! append meanwhile: the log is verified as of its head at the start of the check.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use crate::archive::{ArchiveError, Contents};
use crate::vault::Vault;
use handoffd_domain::handoff::{Cost, Handoff};
use handoffd_domain::ids::{HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::commitment::{CommitmentSubject, hash_text, unpack};
use handoffd_evidence::record::{RecordKind, RecordParty};
use handoffd_evidence::verify::record::opens_packed;
use handoffd_evidence::verify::states::StateBook;
use handoffd_evidence::verify::{
    EntryCheck, LogDefect, LogEntry, RemainingContent, ToldReasons, TrustedHead,
    VerificationReport, Verifier,
};
use handoffd_store::store::cold::ColdError;
use handoffd_store::store::erasure::ERASED_CHECKPOINT;
use handoffd_store::store::{
    CheckpointRow, ContentStorage, Cursor, HandoffFilter, Result, RunKey, Store, StoreError,
    StoredRecord,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

mod decisions;
mod events;
pub mod states;
mod tasks;

use decisions::ToldDecisions;
use events::EventWalk;
use tasks::TaskTotals;

/// Records, or handoffs, read at once.
const PAGE: i64 = 512;

/// Records of a page's tasks read at once; they come without contents.
const TASK_RECORDS: i64 = 8 * PAGE;

/// Options of a verification.
pub struct LogCheck<'a> {
    /// Reader for contents in the cold tier; without it they count as erased.
    pub contents: Option<&'a Contents>,
    /// Tree heads kept outside the database, their signatures verified.
    pub heads: Vec<TrustedHead>,
    /// Whether to compare the rows beside the log with their records.
    pub state: bool,
    /// Whether to compare events with their records, and the rows that steer the broker with the states that records commit
    /// to. The store in memory keeps neither.
    pub rows: bool,
    /// The master key; without it secrets are not compared.
    pub vault: Option<&'a Vault>,
    /// Receives the number of records read so far, and the total.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl Default for LogCheck<'_> {
    fn default() -> Self {
        Self {
            contents: None,
            heads: Vec::new(),
            state: true,
            rows: true,
            vault: None,
            progress: &|_, _| {},
        }
    }
}

/// Verifies one log.
///
/// # Errors
/// [`ArchiveError`] where the store or the archive cannot be read.
pub async fn verify_log(
    store: &Store,
    tenant: &TenantId,
    check: LogCheck<'_>,
) -> std::result::Result<VerificationReport, ArchiveError> {
    let Some(head) = store.find_head(tenant).await? else {
        return Err(StoreError::Refused(format!("tenant {tenant} has no log")).into());
    };
    // Before the records are read: a handoff committed later has its record later.
    let unrecorded = store.list_unrecorded(tenant).await?;
    let mut verifier =
        Verifier::against(head.log_id.clone(), check.heads).of_tenant(tenant.as_str());
    let total = u64::try_from(head.size).unwrap_or(0);
    // Records with which a handoff's row is made; a handoff that was a dead letter and released has two.
    let mut made = 0;
    let mut totals = TaskTotals::default();
    let mut events = EventWalk::default();
    let mut book = StateBook::default();
    let mut decided = ToldDecisions::default();
    let read = async |from: i64| -> Result<Vec<StoredRecord>> {
        if from >= head.size {
            return Ok(Vec::new());
        }
        let limit = PAGE.min(head.size - from);
        match check.contents {
            Some(contents) => contents.list_records(tenant, None, from, limit).await,
            None => store.list_records(tenant, None, from, limit, true).await,
        }
    };
    let mut page = read(0).await?;
    while let Some(last) = page.last() {
        let from = last.leaf_index + 1;
        // The next page is read while this one is hashed.
        let (checked, following) = tokio::join!(check_entries(page), read(from));
        let mut checked = checked?;
        for (record, alone) in &mut checked {
            if record.leaf_index < head.size
                && let Some(alone) = alone.take()
            {
                verifier.checked_entry(&entry(record), alone);
                cold_fault(&mut verifier, record)?;
                subject_fault(&mut verifier, record);
                if check.state {
                    made += u64::from(makes_a_row(record));
                    totals.add(record);
                    states::enter(&mut book, record);
                    decided.add(record);
                }
            }
        }
        let beside = check.state && check.rows;
        if beside && verifier.report().first_fault.is_none() {
            let records = checked.iter().map(|(record, _)| record);
            let records = records.filter(|record| record.leaf_index < head.size);
            events.compare(store, tenant, records).await?;
        }
        compare_nodes(store, tenant, &mut verifier, head.tree.size()).await?;
        (check.progress)(verifier.report().records, total);
        page = following?;
    }
    find_surplus(store, tenant, head.size, &mut verifier).await?;
    // A tree that lags behind (a version without one wrote last) is mended by the next append.
    let edge = head.behind().is_none().then(|| head.tree.to_bytes());
    // Before the end is judged: what was erased since the check began is explained, and no gap.
    if verifier.gaps().unexplained().is_some() {
        read_on(store, tenant, head.size, &mut verifier).await?;
    }
    // The data beside the log say less than the log itself: they are asked last.
    verifier.ended(head.size, &head.hash, edge.as_deref());
    if let Some(first) = unrecorded.first() {
        verifier.beside(
            head.size,
            "unrecorded",
            format!("handoff {first} has no record: the log was cut or rewritten"),
        );
    }
    if check.state && verifier.report().first_fault.is_none() {
        let rows = compare_handoffs(store, tenant, head.size, &mut verifier).await?;
        if made > rows && verifier.report().first_fault.is_none() {
            find_gone(store, tenant, head.size, &mut verifier).await?;
        }
        if verifier.report().first_fault.is_none() {
            tasks::compare(store, tenant, &totals, (head.size, &mut verifier)).await?;
        }
        if verifier.report().first_fault.is_none() {
            decisions::compare(store, tenant, &decided, (head.size, &mut verifier)).await?;
        }
        if check.rows
            && verifier.report().first_fault.is_none()
            && let Some(fault) = events.finish(store, tenant).await?
        {
            verifier.fault(fault);
        }
        if check.rows && verifier.report().first_fault.is_none() {
            let (book, means) = ((&mut book, head.size), (check.contents, check.vault));
            states::compare(store, tenant, book, means, &mut verifier).await?;
        }
    }
    Ok(verifier.finish(head.size, &head.hash, edge.as_deref()))
}

/// A record with its check; the check is taken once.
type Checked = (StoredRecord, Option<EntryCheck>);

/// Checks each record of a page alone, on all processors.
async fn check_entries(page: Vec<StoredRecord>) -> Result<Vec<Checked>> {
    let check = move || {
        let mut checked: Vec<Checked> = page.into_iter().map(|record| (record, None)).collect();
        let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = checked.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            for part in checked.chunks_mut(share) {
                scope.spawn(|| {
                    for (record, alone) in part {
                        *alone = Some(EntryCheck::of(&entry(record)));
                    }
                });
            }
        });
        checked
    };
    let failed = |_| StoreError::Unavailable("the check of a page ended".to_owned());
    tokio::task::spawn_blocking(check).await.map_err(failed)
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
        content: record.content.as_ref().map(|content| match &content.kept {
            ContentStorage::Unavailable(_) => RemainingContent::Lost,
            kept => kept.hot().into(),
        }),
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
    store: &Store,
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

/// Compares the person whom each personal datum is filed under with the one it speaks of: an erasure finds it by the former.
fn subject_fault(verifier: &mut Verifier, record: &StoredRecord) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Stated {
        subject_id: String,
    }
    for datum in &record.personal {
        let Some((_, codec, bytes)) = &datum.kept else {
            if !datum.subject_id.is_empty() {
                let ordinal = datum.ordinal;
                let detail = format!("personal datum {ordinal} is gone, and filed under a person");
                verifier.beside(record.leaf_index, "personal-data", detail);
            }
            continue;
        };
        let bytes = unpack(*codec, bytes).unwrap_or_default();
        // Unreadable bytes open no commitment, which is a fault already.
        let Ok(stated) = serde_json::from_slice::<Stated>(&bytes) else { continue };
        if stated.subject_id != datum.subject_id {
            let ordinal = datum.ordinal;
            let detail =
                format!("personal datum {ordinal} is filed under another person than it speaks of");
            verifier.beside(record.leaf_index, "personal-data", detail);
        }
    }
}

/// Compares the stored tree with the tree computed from the records, as far as it is stored.
async fn compare_nodes(
    store: &Store,
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
    store: &Store,
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

/// Names the first handoff whose row is gone: rows of handoffs are never removed.
async fn find_gone(
    store: &Store,
    tenant: &TenantId,
    size: i64,
    verifier: &mut Verifier,
) -> Result<()> {
    let mut from = 0;
    while from < size {
        let page = store.list_records(tenant, None, from, PAGE.min(size - from), false).await?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.leaf_index + 1;
        for record in &page {
            let Some(id) = record.handoff_id.as_deref().filter(|_| makes_a_row(record)) else {
                continue;
            };
            let there = match id.parse::<HandoffId>() {
                Ok(id) => store.find_handoff(&(tenant.clone(), id)).await?.is_some(),
                Err(_) => false,
            };
            if !there {
                let detail = format!("handoff {id} has this record, and its row is gone");
                verifier.beside(record.leaf_index, "state", detail);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Compares each handoff's state with its last record, and its checkpoint with its commitment. A page of handoffs
/// takes two reads more: the records of its tasks, and its checkpoints. Returns how many records below `size` made
/// these rows.
async fn compare_handoffs(
    store: &Store,
    tenant: &TenantId,
    size: i64,
    verifier: &mut Verifier,
) -> Result<u64> {
    let mut after: Option<Cursor> = None;
    let mut tasks = RecordedTasks::default();
    let mut rows = 0;
    loop {
        let page =
            store.list_handoffs(tenant, &HandoffFilter::default(), after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(rows) };
        after = Some((last.created_at, last.id.to_string()));
        let (read, checkpoints) =
            tokio::join!(tasks.read(store, tenant, &page), read_checkpoints(store, &page));
        read?;
        let checkpoints = checkpoints?;
        for handoff in &page {
            let makers = tasks.state_of(handoff).makers;
            rows += makers.iter().filter(|leaf| **leaf < size).count() as u64;
            let Some(fault) =
                compare(handoff, tasks.state_of(handoff), &checkpoints, (size, verifier))
            else {
                continue;
            };
            // It may have changed between the reads, or been erased since the check began.
            let key = (tenant.clone(), handoff.id);
            let now = store.find_handoff(&key).await?;
            store.settle_log(tenant).await?;
            read_on(store, tenant, size, verifier).await?;
            let again = match &now {
                Some(now) => {
                    let alone = std::slice::from_ref(now);
                    let mut tasks = RecordedTasks::default();
                    tasks.read(store, tenant, alone).await?;
                    let checkpoints = read_checkpoints(store, alone).await?;
                    compare(now, tasks.state_of(now), &checkpoints, (size, verifier))
                }
                None => None,
            };
            let moved = store.find_handoff(&key).await? != now;
            if again.is_some() && !moved {
                verifier.fault(fault);
                return Ok(rows);
            }
        }
    }
}

/// Whether a handoff's row is made with a record.
fn makes_a_row(record: &StoredRecord) -> bool {
    record.handoff_id.is_some() && MAKE_A_ROW.iter().any(|kind| record.kind == kind.as_str())
}

/// The kinds of the record with which a handoff's row is made.
const MAKE_A_ROW: [RecordKind; 3] =
    [RecordKind::Handoff, RecordKind::NoOp, RecordKind::DeadLettered];

/// The facts in a handoff's records: its last status, its last checkpoint's commitment and the terms of its commit,
/// each with the leaf index of the record.
#[derive(Debug, Clone, Default)]
struct RecordedState {
    status: Option<(i64, String)>,
    checkpoint: Option<(i64, String)>,
    terms: Option<(i64, Terms)>,
    /// The time of its first record that is not a refusal, with which its row was made.
    made: Option<Micros>,
    /// The leaf index of each record of a kind that makes a row.
    makers: Vec<i64>,
    /// The times of its records with a status: it ended at one of them.
    times: Vec<Micros>,
    reasons: ToldReasons,
    /// The commitment of its message, by the record that has the message: its commit, or the end of its stream.
    message: Option<(i64, String)>,
    /// When its receiver accepted; none again once it is committed anew.
    accepted: Option<(i64, Micros)>,
}

/// The members of a record that state its handoff's status and checkpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatedState {
    status: Option<String>,
    reason: Option<String>,
    message_commitment: Option<String>,
    checkpoint_commitment: Option<String>,
}

/// The terms of a handoff in the record that made its row: what the row states, too, and no later move changes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terms {
    parent_handoff_id: Option<HandoffId>,
    /// Every record of a message has it, but those of 0.1.0, which state no parent either.
    context: Option<IgnoredAny>,
    from_agent: RecordParty,
    to_agent: RecordParty,
    /// None in the record of a handoff that the broker made of another.
    cost_at_handoff: Option<Cost>,
}

/// The pointer of a term, what the row states and what the record states.
type Difference = (&'static str, String, String);

impl Terms {
    /// The first term in which a handoff's row differs. A term that the record does not state may
    /// have any value in the row.
    fn difference(&self, row: &Handoff) -> Option<Difference> {
        fn differs<T: PartialEq + Display>(
            place: &'static str,
            recorded: Option<&T>,
            row: &T,
        ) -> Option<Difference> {
            let other = recorded.filter(|recorded| *recorded != row)?;
            Some((place, row.to_string(), other.to_string()))
        }
        let (from, to, cost) = (&self.from_agent, &self.to_agent, self.cost_at_handoff.as_ref());
        let states = self.parent_handoff_id.is_some() || self.context.is_some();
        let parent = (states && self.parent_handoff_id != row.parent_id).then(|| {
            let named =
                |id: Option<HandoffId>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
            ("/parentHandoffId", named(row.parent_id), named(self.parent_handoff_id))
        });
        let version = from.agent_version.as_ref();
        let spent = cost.map(|cost| &cost.spent);
        let remaining = cost.map(|cost| &cost.remaining);
        let prompt = cost.map(|cost| &cost.prompt_tokens);
        let completion = cost.map(|cost| &cost.completion_tokens);
        let found = [
            differs("/fromAgent/agentId", from.agent_id.as_ref(), &row.source),
            differs("/fromAgent/agentVersion", version, &row.source_version),
            differs("/fromAgent/executionId", from.execution_id.as_ref(), &row.source_execution),
            differs("/toAgent/agentId", to.agent_id.as_ref(), &row.target),
            differs("/toAgent/agentType", to.agent_type.as_ref(), &row.target_type),
            differs("/toAgent/agentVersion", to.agent_version.as_ref(), &row.target_version),
            parent,
            differs("/costAtHandoff/costSpentSoFarUSD", spent, &row.cost.spent),
            differs("/costAtHandoff/costBudgetRemainingUSD", remaining, &row.cost.remaining),
            differs("/costAtHandoff/tokenSpent/prompt", prompt, &row.cost.prompt_tokens),
            differs(
                "/costAtHandoff/tokenSpent/completion",
                completion,
                &row.cost.completion_tokens,
            ),
        ];
        found.into_iter().flatten().next()
    }
}

/// Shows each record of these tasks in log order, page by page and without contents.
async fn each_task_record(
    store: &Store,
    tenant: &TenantId,
    tasks: &[TaskId],
    mut take: impl FnMut(&StoredRecord),
) -> Result<()> {
    let mut from = 0;
    loop {
        let page = store.list_task_records(tenant, tasks, from, TASK_RECORDS).await?;
        page.iter().for_each(&mut take);
        match page.last() {
            Some(last) if page.len() as i64 == TASK_RECORDS => from = last.leaf_index + 1,
            _ => return Ok(()),
        }
    }
}

/// The states by the records of tasks, so that a task with many handoffs is read once.
#[derive(Debug, Default)]
struct RecordedTasks {
    tasks: HashSet<TaskId>,
    /// By task and handoff.
    states: HashMap<(String, String), RecordedState>,
}

impl RecordedTasks {
    /// Most handoffs kept, besides those of one page's tasks.
    const KEPT: usize = 1 << 16;

    /// Reads the records of the tasks of these handoffs, unless they were read before.
    async fn read(&mut self, store: &Store, tenant: &TenantId, handoffs: &[Handoff]) -> Result<()> {
        if self.states.len() > Self::KEPT {
            *self = Self::default();
        }
        let missing: HashSet<TaskId> = handoffs
            .iter()
            .map(|handoff| handoff.task_id)
            .filter(|task| !self.tasks.contains(task))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let wanted: Vec<TaskId> = missing.iter().copied().collect();
        each_task_record(store, tenant, &wanted, |record| self.add(record)).await?;
        self.tasks.extend(missing);
        Ok(())
    }

    fn add(&mut self, record: &StoredRecord) {
        let (Some(task), Some(id)) = (&record.task_id, &record.handoff_id) else { return };
        let stated: StatedState = serde_json::from_slice(&record.body).unwrap_or_default();
        let state = self.states.entry((task.clone(), id.clone())).or_default();
        if MAKE_A_ROW.iter().any(|kind| record.kind == kind.as_str()) {
            state.made.get_or_insert(record.recorded_at);
            state.makers.push(record.leaf_index);
        }
        // A dead letter of an accepted handoff keeps the time; its release commits the row anew.
        if record.kind == RecordKind::Handoff.as_str() {
            state.accepted = None;
        }
        if record.kind == RecordKind::Accepted.as_str() {
            state.accepted = Some((record.leaf_index, record.recorded_at));
        }
        let has_message = makes_a_row(record) || record.kind == RecordKind::StreamClosed.as_str();
        if let Some(commitment) = stated.message_commitment.filter(|_| has_message) {
            state.message = Some((record.leaf_index, commitment));
        }
        state.reasons.take(&record.kind, stated.reason.as_deref());
        if let Some(status) = stated.status {
            state.times.push(record.recorded_at);
            state.status = Some((record.leaf_index, status));
        }
        // Of a dead letter that was a handoff before, the first record has the terms.
        let is_letter = record.kind == RecordKind::DeadLettered.as_str();
        if makes_a_row(record) && !(is_letter && state.terms.is_some()) {
            let terms = serde_json::from_slice(&record.body).unwrap_or_default();
            state.terms = Some((record.leaf_index, terms));
        }
        if let Some(commitment) =
            stated.checkpoint_commitment.filter(|_| record.kind != "ROLLED_BACK")
        {
            state.checkpoint = Some((record.leaf_index, commitment));
        }
    }

    fn state_of(&self, handoff: &Handoff) -> RecordedState {
        self.states
            .get(&(handoff.task_id.to_string(), handoff.id.to_string()))
            .cloned()
            .unwrap_or_default()
    }
}

/// Checkpoints by run and number.
type Checkpoints = HashMap<(RunKey, i64), CheckpointRow>;

/// The key of a handoff's checkpoint.
fn checkpoint_key(handoff: &Handoff) -> Option<(RunKey, i64)> {
    let at = handoff.checkpoint?;
    Some(((handoff.tenant.clone(), handoff.task_id, at.execution_id), at.seq))
}

/// Reads the checkpoints of these handoffs.
async fn read_checkpoints(store: &Store, handoffs: &[Handoff]) -> Result<Checkpoints> {
    let keys: HashSet<_> = handoffs.iter().filter_map(checkpoint_key).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let rows = store.list_checkpoints_at(&keys).await?;
    let keyed = |row: CheckpointRow| {
        (((row.tenant.clone(), row.task_id, row.at.execution_id), row.at.seq), row)
    };
    Ok(rows.into_iter().map(keyed).collect())
}

fn compare(
    handoff: &Handoff,
    recorded: RecordedState,
    checkpoints: &Checkpoints,
    (size, verifier): (i64, &Verifier),
) -> Option<LogDefect> {
    let (id, status) = (handoff.id, handoff.status.as_str());
    let state = |leaf_index, detail| LogDefect { leaf_index, fault: "state", detail };
    let Some((leaf_index, said)) = recorded.status.clone() else {
        let detail = format!(
            "handoff {id} names task {}, and no record of that task names the handoff",
            handoff.task_id
        );
        return Some(state(size, detail));
    };
    if said != status {
        let detail = format!("handoff {id} has the status {status}, its last record says {said}");
        return Some(state(leaf_index, detail));
    }
    if recorded.reasons.contradict(handoff.status, handoff.reason.as_deref()) {
        let named = |reason: Option<&str>| reason.unwrap_or("none").to_owned();
        let (is, was) = (handoff.reason.as_deref(), recorded.reasons.of(handoff.status));
        let (is, was) = (named(is), named(was));
        let detail = format!("handoff {id} has the reason {is}, its records say {was}");
        return Some(state(leaf_index, detail));
    }
    if recorded.made != Some(handoff.created_at) {
        let at = handoff.created_at.rfc3339();
        let was = recorded.made.map(Micros::rfc3339).unwrap_or_default();
        let detail =
            format!("handoff {id} was made at {at} by its row, at {was} by its first record");
        return Some(state(leaf_index, detail));
    }
    if let Some((leaf_index, detail)) = times_differ(handoff, &recorded, leaf_index) {
        return Some(state(leaf_index, detail));
    }
    if let Some((leaf_index, terms)) = recorded.terms
        && let Some((place, is, was)) = terms.difference(handoff)
    {
        let detail = format!("handoff {id} has {place} {is}, its record says {was}");
        return Some(state(leaf_index, detail));
    }
    let named = |commitment: Option<[u8; 32]>| {
        commitment.map_or_else(|| "none".to_owned(), |is| hash_text(&is))
    };
    if let Some((leaf_index, was)) = &recorded.message
        && named(handoff.commitment) != *was
    {
        let is = named(handoff.commitment);
        let detail = format!("handoff {id} has /commitment {is}, its record says {was}");
        return Some(state(*leaf_index, detail));
    }
    let (leaf_index, commitment) = recorded.checkpoint?;
    let is = named(handoff.checkpoint_commitment);
    if is != commitment {
        let detail =
            format!("handoff {id} has /checkpointCommitment {is}, its record says {commitment}");
        return Some(state(leaf_index, detail));
    }
    compare_checkpoint(handoff, (leaf_index, &commitment), checkpoints, verifier)
}

/// The first of the times in which a handoff's row differs from its records.
fn times_differ(handoff: &Handoff, recorded: &RecordedState, last: i64) -> Option<(i64, String)> {
    let id = handoff.id;
    let told = |at: Option<Micros>| at.map_or_else(|| "never".to_owned(), Micros::rfc3339);
    let accepted = recorded.accepted.map(|(_, at)| at);
    if accepted != handoff.accepted_at {
        let (is, was) = (told(handoff.accepted_at), told(accepted));
        let leaf_index = recorded.accepted.map_or(last, |(leaf_index, _)| leaf_index);
        return Some((
            leaf_index,
            format!("handoff {id} was accepted at {is} by its row, at {was} by its records"),
        ));
    }
    let ended = match handoff.ended_at {
        Some(at) => recorded.times.contains(&at),
        None => !handoff.status.is_final(),
    };
    if ended {
        return None;
    }
    let is = told(handoff.ended_at);
    Some((
        last,
        format!("handoff {id} ended at {is} by its row, and no record of it has that time"),
    ))
}

fn compare_checkpoint(
    handoff: &Handoff,
    (leaf_index, commitment): (i64, &str),
    checkpoints: &Checkpoints,
    verifier: &Verifier,
) -> Option<LogDefect> {
    let kept = checkpoint_key(handoff).and_then(|key| checkpoints.get(&key));
    let why = match handoff.checkpoint.zip(kept) {
        None => Some("it is missing".to_owned()),
        Some((_, row)) if hash_text(&row.part.commitment) != commitment => {
            Some("it is another than the record commits to".to_owned())
        }
        Some((at, row))
            if row.part.bytes == ERASED_CHECKPOINT
                && row.part.salt.is_empty()
                && verifier.gaps().lists_checkpoint(handoff.task_id, at) =>
        {
            None
        }
        Some((_, row)) => {
            let kept = (&row.part.salt[..], row.part.codec, &row.part.bytes[..]);
            opens_packed(commitment, CommitmentSubject::Checkpoint, kept).err()
        }
    };
    why.map(|why| LogDefect {
        leaf_index,
        fault: "checkpoint",
        detail: format!("the checkpoint of handoff {}: {why}", handoff.id),
    })
}
