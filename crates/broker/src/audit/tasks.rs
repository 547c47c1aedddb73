//! The rows of tasks against their records: end, holder, beginning, number of handoffs, and figures of money.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::{PAGE, each_task_record};
use handoffd_domain::handoff::Cost;
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::money::Usd;
use handoffd_domain::task::{Task, TaskStatus};
use handoffd_evidence::commitment::unpack;
use handoffd_evidence::record::{RecordKind, RecordParty};
use handoffd_evidence::verify::{LogDefect, Verifier};
use handoffd_store::store::{ContentStorage, Cursor, Result, Store, StoredRecord, TaskFilter};

/// The kinds of records that no task without a row has.
const OF_A_ROW: [RecordKind; 7] = [
    RecordKind::Handoff,
    RecordKind::NoOp,
    RecordKind::DeadLettered,
    RecordKind::Escalated,
    RecordKind::RolledBack,
    RecordKind::TaskCompleted,
    RecordKind::TaskCanceled,
];

/// The reasons of a `HANDOFF` record by which the broker gave a failed message to another agent: its sender has the task.
const READDRESSED: [&str; 2] = ["RECOVERY", "PREFERRED_AGENT"];

/// The reason of an `ESCALATED` record of a handoff that goes to a person: the task's holder stays.
const TO_A_PERSON: &str = "HUMAN_TARGET";

/// Amounts from here on, some nine million USD, lose nano-dollars as a JSON number, and are not compared.
const EXACT: i64 = 1 << 53;

fn is_of_a_row(record: &StoredRecord) -> bool {
    OF_A_ROW.iter().any(|kind| record.kind == kind.as_str())
}

/// Facts on tasks that one pass over the log gathers. Memory grows with the number of top-ups.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskTotals {
    /// Records that no task without a row has.
    marks: u64,
    /// The amount of each top-up by leaf index; `None` for one whose content is gone.
    top_ups: HashMap<i64, Option<Usd>>,
}

impl TaskTotals {
    pub(super) fn add(&mut self, record: &StoredRecord) {
        if record.task_id.is_none() {
            return;
        }
        self.marks += u64::from(is_of_a_row(record));
        if record.kind == RecordKind::BudgetChanged.as_str() {
            self.top_ups.insert(record.leaf_index, added(record));
        }
    }
}

/// The amount that a top-up's content states.
fn added(record: &StoredRecord) -> Option<Usd> {
    let ContentStorage::Hot(_, codec, bytes) = &record.content.as_ref()?.kept else { return None };
    let content: Value = serde_json::from_slice(&unpack(*codec, bytes).ok()?).ok()?;
    Some(Usd::from_f64(content.get("addUSD")?.as_f64()?))
}

/// The members of a record that say how its task moves.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatedMove {
    reason: Option<String>,
    from_agent: RecordParty,
    to_agent: RecordParty,
    group: Option<StatedGroup>,
    cost_at_handoff: Option<Value>,
    spent: Option<StatedSpending>,
}

#[derive(Debug, Deserialize)]
struct StatedGroup {
    id: HandoffId,
}

#[derive(Debug, Deserialize)]
struct StatedSpending {
    usd: Usd,
}

/// The parties of a handoff by its last `HANDOFF` record, and its group.
#[derive(Debug)]
struct Parties {
    source: AgentId,
    target: AgentId,
    group: Option<HandoffId>,
}

/// A task as its records tell it.
#[derive(Debug, Default)]
struct TaskHistory {
    /// Leaf indexes of the records that no task without a row has.
    marks: Vec<i64>,
    begun: Option<Micros>,
    opened_by: Option<AgentId>,
    ended: Option<(i64, TaskStatus)>,
    /// The leaf index of the record that determines the holder, and the holder; `None` where no record does.
    holder: Option<(i64, AgentId)>,
    /// The sender of a held handoff that ended badly: it has the task again, unless another handoff goes on.
    perhaps: Option<AgentId>,
    handoffs: i64,
    /// The highest figure that a message stated; `None` where one cannot be read.
    stated: Option<Usd>,
    /// The figures of the refused message that began it, which 0.1.0 and 0.2.0 took over.
    letter: Option<Cost>,
    /// The budget left by the last message, with its leaf index.
    remaining: Option<(i64, Usd)>,
    /// The sum that records count as spent; `None` where an earlier version counted nothing.
    spent: Option<Usd>,
    top_ups: Vec<i64>,
    parties: HashMap<String, Parties>,
    ended_groups: HashSet<HandoffId>,
}

impl TaskHistory {
    fn take(&mut self, record: &StoredRecord) {
        let stated: StatedMove = serde_json::from_slice(&record.body).unwrap_or_default();
        let kind = MOVES.into_iter().find(|kind| kind.as_str() == record.kind);
        if let Some(kind) = kind {
            if is_of_a_row(record) {
                self.begin(record, kind, &stated);
            }
            self.follow(record, kind, &stated);
        }
        if let (Some(sum), Some(spending)) = (&mut self.spent, stated.spent) {
            *sum = sum.plus(spending.usd);
        }
    }

    fn follow(&mut self, record: &StoredRecord, kind: RecordKind, stated: &StatedMove) {
        let leaf = record.leaf_index;
        match kind {
            RecordKind::TaskCompleted => self.ended = Some((leaf, TaskStatus::Completed)),
            RecordKind::TaskCanceled => self.ended = Some((leaf, TaskStatus::Canceled)),
            RecordKind::BudgetChanged => self.top_ups.push(leaf),
            RecordKind::Handoff => self.cross(record, stated),
            RecordKind::NoOp => self.state_cost(leaf, stated),
            RecordKind::GroupEnded => {
                self.ended_groups.extend(stated.group.as_ref().map(|group| group.id));
            }
            _ => self.moved(record, kind, stated),
        }
    }

    fn begin(&mut self, record: &StoredRecord, kind: RecordKind, stated: &StatedMove) {
        self.marks.push(record.leaf_index);
        if self.begun.is_some() {
            return;
        }
        self.begun = Some(record.recorded_at);
        self.spent = Some(Usd(0));
        let by_message = matches!(kind, RecordKind::Handoff | RecordKind::NoOp);
        let refused = kind == RecordKind::DeadLettered;
        self.letter = if refused { stated_cost(stated) } else { None };
        // A message that begins a task states its first figure; a refused one states none. Of 0.1.0 it cannot be read.
        let unread = refused && stated.cost_at_handoff.is_some() && self.letter.is_none();
        let first = if by_message { Usd(i64::MIN) } else { Usd(0) };
        self.stated = (!unread).then_some(first);
        self.remaining = (!unread).then_some((record.leaf_index, Usd(0)));
        if by_message || refused {
            self.opened_by.clone_from(&stated.from_agent.agent_id);
            self.hold(record.leaf_index, stated.from_agent.agent_id.clone());
        }
    }

    fn hold(&mut self, leaf: i64, agent: Option<AgentId>) {
        self.holder = agent.map(|agent| (leaf, agent));
        self.perhaps = None;
    }

    fn state_cost(&mut self, leaf: i64, stated: &StatedMove) {
        let cost = stated_cost(stated);
        self.stated = self.stated.zip(cost).map(|(before, cost)| before.max(cost.spent));
        self.remaining = cost.map(|cost| (leaf, cost.remaining));
    }

    fn cross(&mut self, record: &StoredRecord, stated: &StatedMove) {
        self.handoffs += 1;
        if stated.spent.is_none() {
            self.spent = None;
        }
        let (source, target) = (&stated.from_agent.agent_id, &stated.to_agent.agent_id);
        if let (Some(id), Some(source), Some(target)) = (&record.handoff_id, source, target) {
            let (source, target) = (source.clone(), target.clone());
            let group = stated.group.as_ref().map(|group| group.id);
            self.parties.insert(id.clone(), Parties { source, target, group });
        }
        let readdressed =
            stated.reason.as_deref().is_some_and(|reason| READDRESSED.contains(&reason));
        if readdressed || self.holder.is_none() {
            self.hold(record.leaf_index, source.clone());
        }
        if !readdressed {
            self.state_cost(record.leaf_index, stated);
        }
    }

    /// A handoff was answered or put back.
    fn moved(&mut self, record: &StoredRecord, kind: RecordKind, stated: &StatedMove) {
        let Some(id) = &record.handoff_id else { return };
        let Some(parties) = self.parties.get(id) else {
            // A dead letter is none of the task's handoffs yet; a handoff that cannot be read leaves the holder open.
            if kind != RecordKind::DeadLettered {
                self.holder = None;
            }
            return;
        };
        // The sender of an open group has the task all the while.
        let gathered = parties.group.is_some_and(|group| !self.ended_groups.contains(&group));
        let (source, target) = (parties.source.clone(), parties.target.clone());
        let holds = self.holder.as_ref().is_some_and(|(_, holder)| *holder == target);
        let leaf = record.leaf_index;
        match kind {
            RecordKind::Accepted if !gathered => self.hold(leaf, Some(target)),
            RecordKind::RolledBack => self.hold(leaf, Some(source)),
            RecordKind::Escalated if stated.reason.as_deref() != Some(TO_A_PERSON) => {
                self.hold(leaf, Some(source));
            }
            // Earlier versions do not say to whom.
            RecordKind::Returned if holds => self.hold(leaf, stated.to_agent.agent_id.clone()),
            RecordKind::Rejected | RecordKind::Failed | RecordKind::Expired
                if holds && !gathered =>
            {
                self.perhaps = Some(source);
            }
            _ => {}
        }
    }

    /// The first member in which a task's row differs, with the leaf index of the record that says otherwise.
    fn difference(&self, task: &Task, (totals, size): (&TaskTotals, i64)) -> Option<(i64, String)> {
        let id = task.id;
        let Some(begun) = self.begun else {
            return Some((size, format!("task {id} has this row, and no record tells of it")));
        };
        let status = task.status.as_str();
        match self.ended {
            Some((leaf, ended)) if ended != task.status => {
                let ended = ended.as_str();
                return Some((
                    leaf,
                    format!("task {id} has the status {status}, its record says {ended}"),
                ));
            }
            None if task.status.is_final() => {
                let detail =
                    format!("task {id} has the status {status}, no record says that it ended");
                return Some((self.marks[0], detail));
            }
            _ => {}
        }
        let (first, last) = (self.marks[0], *self.marks.last()?);
        let differs = |leaf: i64, place: &str, is: String, was: String| {
            (is != was)
                .then(|| (leaf, format!("task {id} has {place} {is}, its records say {was}")))
        };
        let usd = |leaf: i64, place: &str, is: Usd, was: Option<Usd>| {
            let was = was.filter(|was| is.0.abs() < EXACT && was.0.abs() < EXACT)?;
            differs(leaf, place, is.to_string(), was.to_string())
        };
        let holder = self.holder.as_ref().filter(|_| self.perhaps.as_ref() != Some(&task.holder));
        let spent = task.funds.as_ref().map(|funds| funds.spent);
        // A broker that counts spending keeps the account with the task.
        let closed = self.spent.filter(|_| spent.is_none() && self.handoffs > 0);
        let added = self.added(totals, -1);
        let since = self.remaining.and_then(|(leaf, _)| self.added(totals, leaf));
        let remaining = self.remaining.zip(since).map(|((_, left), since)| left.plus(since));
        let stated = self.stated.map(|was| match &self.letter {
            Some(letter) if task.spent == was.max(letter.spent) => task.spent,
            _ => was,
        });
        let remaining = remaining.map(|was| match &self.letter {
            Some(letter) if self.handoffs == 0 && task.remaining == letter.remaining => {
                task.remaining
            }
            _ => was,
        });
        differs(first, "/createdAt", task.created_at.rfc3339(), begun.rfc3339())
            .or_else(|| {
                let was = self.opened_by.as_ref()?.to_string();
                let is =
                    task.opened_by.as_ref().map_or_else(|| "none".to_owned(), AgentId::to_string);
                differs(first, "/openedBy", is, was)
            })
            .or_else(|| {
                let (leaf, was) = holder?;
                differs(*leaf, "/holder", task.holder.to_string(), was.to_string())
            })
            .or_else(|| {
                differs(last, "/handoffs", task.handoffs.to_string(), self.handoffs.to_string())
            })
            .or_else(|| usd(last, "/stated", task.spent, stated))
            .or_else(|| usd(last, "/remaining", task.remaining, remaining))
            .or_else(|| usd(last, "/toppedUp", task.topped_up, added))
            .or_else(|| usd(last, "/spent", spent?, self.spent))
            .or_else(|| differs(last, "/spent", "none".to_owned(), closed?.to_string()))
    }

    /// The sum of the top-ups behind a leaf index; `None` where the content of one is gone.
    fn added(&self, totals: &TaskTotals, behind: i64) -> Option<Usd> {
        let later = self.top_ups.iter().filter(|leaf| **leaf > behind);
        later
            .map(|leaf| totals.top_ups.get(leaf).copied().flatten())
            .try_fold(Usd(0), |sum, added| Some(sum.plus(added?)))
    }
}

/// The figures of a record's message.
fn stated_cost(stated: &StatedMove) -> Option<Cost> {
    serde_json::from_value(stated.cost_at_handoff.clone()?).ok()
}

/// The kinds of records that move a task.
const MOVES: [RecordKind; 14] = [
    RecordKind::Handoff,
    RecordKind::NoOp,
    RecordKind::DeadLettered,
    RecordKind::Accepted,
    RecordKind::Rejected,
    RecordKind::Failed,
    RecordKind::Expired,
    RecordKind::RolledBack,
    RecordKind::Returned,
    RecordKind::Escalated,
    RecordKind::GroupEnded,
    RecordKind::BudgetChanged,
    RecordKind::TaskCompleted,
    RecordKind::TaskCanceled,
];

/// Compares each task's row with its records, and finds rows that are gone. A page of tasks takes one more read: the
/// records of these tasks.
pub(super) async fn compare(
    store: &Store,
    tenant: &TenantId,
    totals: &TaskTotals,
    (size, verifier): (i64, &mut Verifier),
) -> Result<()> {
    let mut after: Option<Cursor> = None;
    let mut marks = 0;
    loop {
        let page = store.list_tasks(tenant, &TaskFilter::default(), after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.to_string()));
        let ids: Vec<TaskId> = page.iter().map(|task| task.id).collect();
        let histories = read(store, tenant, &ids).await?;
        let none = TaskHistory::default();
        for task in &page {
            let history = histories.get(&task.id.to_string()).unwrap_or(&none);
            marks += history.marks.iter().filter(|leaf| **leaf < size).count() as u64;
            if history.difference(task, (totals, size)).is_some()
                && let Some((leaf_index, detail)) =
                    judge_now(store, tenant, task.id, (totals, size)).await?
            {
                verifier.fault(LogDefect { leaf_index, fault: "state", detail });
                return Ok(());
            }
        }
    }
    if marks < totals.marks {
        find_gone(store, tenant, size, verifier).await?;
    }
    Ok(())
}

async fn read(
    store: &Store,
    tenant: &TenantId,
    ids: &[TaskId],
) -> Result<HashMap<String, TaskHistory>> {
    let mut histories: HashMap<String, TaskHistory> = HashMap::new();
    let take = |record: &StoredRecord| {
        let Some(task) = &record.task_id else { return };
        match histories.get_mut(task) {
            Some(history) => history.take(record),
            None => histories.entry(task.clone()).or_default().take(record),
        }
    };
    each_task_record(store, tenant, ids, take).await?;
    Ok(histories)
}

/// Judges a task by its row and records as they are now: it may have moved since the check began.
async fn judge_now(
    store: &Store,
    tenant: &TenantId,
    id: TaskId,
    (totals, size): (&TaskTotals, i64),
) -> Result<Option<(i64, String)>> {
    let key = (tenant.clone(), id);
    let Some(task) = store.find_task(&key).await? else { return Ok(None) };
    store.settle_log(tenant).await?;
    let history = read(store, tenant, &[id]).await?.remove(&id.to_string()).unwrap_or_default();
    let mut totals = totals.clone();
    let mut from = size;
    if history.top_ups.iter().any(|leaf| *leaf >= size) {
        loop {
            let page = store.list_records(tenant, Some(id), from, PAGE, true).await?;
            let Some(last) = page.last() else { break };
            from = last.leaf_index + 1;
            for record in &page {
                totals.add(record);
            }
        }
    }
    let found = history.difference(&task, (&totals, size));
    let moved = store.find_task(&key).await?.as_ref() != Some(&task);
    Ok(found.filter(|_| !moved))
}

/// Most tasks that a search for one without a row remembers.
const REMEMBERED: usize = 1 << 16;

/// Names the first task whose row is gone: rows of tasks are never removed.
async fn find_gone(
    store: &Store,
    tenant: &TenantId,
    size: i64,
    verifier: &mut Verifier,
) -> Result<()> {
    let mut there: HashSet<String> = HashSet::new();
    let mut from = 0;
    while from < size {
        let page = store.list_records(tenant, None, from, PAGE.min(size - from), false).await?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.leaf_index + 1;
        for record in page.iter().filter(|record| is_of_a_row(record)) {
            let Some(id) = record.task_id.as_deref() else { continue };
            if there.contains(id) {
                continue;
            }
            let row = match id.parse::<TaskId>() {
                Ok(id) => store.find_task(&(tenant.clone(), id)).await?,
                Err(_) => None,
            };
            if row.is_none() {
                let detail = format!("task {id} has this record, and its row is gone");
                verifier.beside(record.leaf_index, "state", detail);
                return Ok(());
            }
            if there.len() == REMEMBERED {
                there.clear();
            }
            there.insert(id.to_owned());
        }
    }
    Ok(())
}
