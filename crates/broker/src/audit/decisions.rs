//! Dead letters and escalations against the records that tell of them: both tables, and nothing else, say what waits for a
//! person.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::{PAGE, each_task_record};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::{Escalation, EscalationOutcome};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::record::{Actor, RecordKind, RecordParty};
use handoffd_evidence::verify::{LogDefect, Verifier};
use handoffd_store::store::{
    Cursor, DeadLetterFilter, DeadLetterRow, EscalationFilter, Result, Store, StoredRecord,
};

/// A record that makes, changes or ends a dead letter or an escalation.
#[derive(Debug, Clone)]
struct Decision {
    leaf_index: i64,
    kind: RecordKind,
    at: Micros,
    handoff: Option<String>,
    said: Said,
}

/// The members of such a record that a row repeats.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Said {
    reason: Option<String>,
    actor: Option<Actor>,
    from_agent: Option<RecordParty>,
    to_agent: Option<RecordParty>,
}

impl Said {
    /// The key or agent that decided, by the name that the row has.
    fn person(&self) -> Option<String> {
        let actor = self.actor.as_ref()?;
        let agent = actor.agent_id.as_ref().map(ToString::to_string);
        Some(actor.key_id.clone().or(agent).unwrap_or_else(|| actor.role.as_str().to_owned()))
    }
}

const KINDS: [RecordKind; 5] = [
    RecordKind::DeadLettered,
    RecordKind::Released,
    RecordKind::Discarded,
    RecordKind::Escalated,
    RecordKind::EscalationResolved,
];

/// The decisions that the log tells of, by task. Memory grows with their number.
#[derive(Debug, Default)]
pub(super) struct ToldDecisions(HashMap<String, Vec<Decision>>);

impl ToldDecisions {
    pub(super) fn add(&mut self, record: &StoredRecord) {
        let kind = KINDS.into_iter().find(|kind| kind.as_str() == record.kind);
        let (Some(kind), Some(task)) = (kind, &record.task_id) else { return };
        self.0.entry(task.clone()).or_default().push(Decision {
            leaf_index: record.leaf_index,
            kind,
            at: record.recorded_at,
            handoff: record.handoff_id.clone(),
            said: serde_json::from_slice(&record.body).unwrap_or_default(),
        });
    }
}

/// The rows of one task.
#[derive(Debug, Default)]
struct TaskRows {
    letters: Vec<DeadLetterRow>,
    escalations: Vec<Escalation>,
}

/// Compares all dead letters and escalations with the records.
pub(super) async fn compare(
    store: &Store,
    tenant: &TenantId,
    told: &ToldDecisions,
    (size, verifier): (i64, &mut Verifier),
) -> Result<()> {
    let mut rows: HashMap<String, TaskRows> = HashMap::new();
    for letter in list_letters(store, tenant).await? {
        rows.entry(letter.task_id.to_string()).or_default().letters.push(letter);
    }
    for row in list_escalations(store, tenant, None).await? {
        rows.entry(row.task_id.to_string()).or_default().escalations.push(row);
    }
    let tasks: HashSet<&String> = told.0.keys().chain(rows.keys()).collect();
    let none = TaskRows::default();
    for task in tasks {
        let records = told.0.get(task).map_or(&[][..], Vec::as_slice);
        if judge(records, rows.get(task).unwrap_or(&none), size).is_none() {
            continue;
        }
        // They may have changed since the records were read.
        let Ok(id) = task.parse::<TaskId>() else { continue };
        if let Some((leaf_index, detail)) = judge_now(store, tenant, id, size).await? {
            verifier.fault(LogDefect { leaf_index, fault: "state", detail });
            return Ok(());
        }
    }
    Ok(())
}

/// Judges a task by its records and rows as they are now.
async fn judge_now(
    store: &Store,
    tenant: &TenantId,
    task: TaskId,
    size: i64,
) -> Result<Option<(i64, String)>> {
    let escalations = list_escalations(store, tenant, Some(task)).await?;
    store.settle_log(tenant).await?;
    let mut told = ToldDecisions::default();
    each_task_record(store, tenant, &[task], |record| told.add(record)).await?;
    let records = told.0.remove(&task.to_string()).unwrap_or_default();
    let mut letters = Vec::new();
    let ids: HashSet<&String> = records.iter().filter_map(|one| one.handoff.as_ref()).collect();
    for id in ids {
        let Ok(id) = id.parse::<HandoffId>() else { continue };
        let found = store.find_dead_letter(&(tenant.clone(), id)).await?;
        letters.extend(found.filter(|letter| letter.task_id == task));
    }
    let rows = TaskRows { letters, escalations };
    let found = judge(&records, &rows, size);
    let again = list_escalations(store, tenant, Some(task)).await?;
    Ok(found.filter(|_| again == rows.escalations))
}

async fn list_letters(store: &Store, tenant: &TenantId) -> Result<Vec<DeadLetterRow>> {
    let (mut all, mut after): (Vec<DeadLetterRow>, Option<Cursor>) = (Vec::new(), None);
    let filter = DeadLetterFilter::default();
    loop {
        let page = store.list_dead_letters(tenant, &filter, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some((last.created_at, last.handoff_id.to_string()));
        all.extend(page);
    }
}

async fn list_escalations(
    store: &Store,
    tenant: &TenantId,
    task_id: Option<TaskId>,
) -> Result<Vec<Escalation>> {
    let (mut all, mut after): (Vec<Escalation>, Option<Cursor>) = (Vec::new(), None);
    let filter = EscalationFilter { task_id, ..EscalationFilter::default() };
    loop {
        let page = store.list_escalations(tenant, &filter, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some((last.created_at, last.id.to_string()));
        all.extend(page);
    }
}

/// The first row that the records do not tell of, or tell otherwise.
fn judge(records: &[Decision], rows: &TaskRows, size: i64) -> Option<(i64, String)> {
    judge_letters(records, &rows.letters, size)
        .or_else(|| judge_escalations(records, &rows.escalations, size))
}

fn judge_letters(
    records: &[Decision],
    letters: &[DeadLetterRow],
    size: i64,
) -> Option<(i64, String)> {
    // By handoff: the record that made it, and the one that ended it.
    let mut told: BTreeMap<&str, (&Decision, Option<&Decision>)> = BTreeMap::new();
    for record in records {
        let Some(id) = record.handoff.as_deref() else { continue };
        match record.kind {
            RecordKind::DeadLettered => {
                told.insert(id, (record, None));
            }
            RecordKind::Released | RecordKind::Discarded => {
                if let Some((_, end)) = told.get_mut(id) {
                    *end = Some(record);
                }
            }
            _ => {}
        }
    }
    for row in letters {
        let id = row.handoff_id.to_string();
        let Some((made, end)) = told.remove(id.as_str()) else {
            return Some((size, format!("dead letter {id} exists, and no record tells of it")));
        };
        let status = match end.map(|end| end.kind) {
            Some(RecordKind::Released) => DeadLetterStatus::Released,
            Some(_) => DeadLetterStatus::Discarded,
            None => DeadLetterStatus::Open,
        };
        let at = |at: Option<Micros>| at.map_or_else(|| "none".to_owned(), Micros::rfc3339);
        let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
        let person = end.and_then(|end| end.said.person());
        let party = |party: &Option<RecordParty>| party.as_ref()?.agent_id.clone();
        let source = party(&made.said.from_agent);
        // A letter without an answer has the receiver of its handoff.
        let target = match &made.said.from_agent {
            Some(_) => party(&made.said.to_agent),
            None => row.target.clone(),
        };
        let agent = |agent: Option<&AgentId>| text(agent.map(AgentId::as_str));
        let members = [
            ("/status", row.status.as_str().to_owned(), status.as_str().to_owned()),
            ("/createdAt", at(Some(row.created_at)), at(Some(made.at))),
            ("/resolvedAt", at(row.resolved_at), at(end.map(|end| end.at))),
            ("/resolvedBy", text(row.resolved_by.as_deref()), text(person.as_deref())),
            ("/reason", row.reason.clone(), text(made.said.reason.as_deref())),
            (
                "/source",
                row.source.to_string(),
                source.map_or_else(|| row.source.to_string(), |agent| agent.to_string()),
            ),
            ("/target", agent(row.target.as_ref()), agent(target.as_ref())),
        ];
        if let Some((place, is, was)) = members.into_iter().find(|(_, is, was)| is != was) {
            let leaf_index = end.unwrap_or(made).leaf_index;
            let detail = format!("dead letter {id} has {place} {is}, its records say {was}");
            return Some((leaf_index, detail));
        }
    }
    let (id, (made, _)) = told.first_key_value()?;
    Some((made.leaf_index, format!("dead letter {id} has this record, and its row is gone")))
}

fn judge_escalations(
    records: &[Decision],
    rows: &[Escalation],
    size: i64,
) -> Option<(i64, String)> {
    let of = |kind| records.iter().filter(move |record| record.kind == kind);
    let mut made: Vec<&Decision> = of(RecordKind::Escalated).collect();
    let mut ends: Vec<&Decision> = of(RecordKind::EscalationResolved).collect();
    for row in rows {
        let handoff = row.handoff_id.map(|id| id.to_string());
        let is_own = |one: &&Decision| {
            one.at == row.created_at
                && one.handoff == handoff
                && one.said.reason.as_ref() == Some(&row.reason)
        };
        let Some(place) = made.iter().position(is_own) else {
            let (id, task) = (row.id, row.task_id);
            let at = row.created_at.rfc3339();
            let detail = format!(
                "escalation {id} of task {task} was made at {at} for {} by its row, and no record says so",
                row.reason
            );
            return Some((size, detail));
        };
        let made = made.remove(place);
        if let Some(detail) = parties_differ(row, &made.said) {
            return Some((made.leaf_index, detail));
        }
        if row.is_open() != row.resolution.is_none() {
            let (id, status) = (row.id, row.status.as_str());
            let detail = format!(
                "escalation {id} has the status {status}, and its own resolution says otherwise"
            );
            return Some((made.leaf_index, detail));
        }
        if row.is_open() && (row.resolved_at.is_some() || row.resolved_by.is_some()) {
            let (id, task) = (row.id, row.task_id);
            let detail = format!(
                "escalation {id} of task {task} is open, and names a time or a person of its end"
            );
            return Some((made.leaf_index, detail));
        }
        let Some(resolution) = row.resolution else { continue };
        let is_end = |one: &&Decision| {
            one.handoff == handoff
                && Some(one.at) == row.resolved_at
                && one.said.reason.as_deref() == Some(resolution.as_str())
        };
        let Some(place) = ends.iter().position(is_end) else {
            let detail = format!(
                "escalation {} is resolved ({}), and no record says so",
                row.id,
                resolution.as_str()
            );
            return Some((made.leaf_index, detail));
        };
        let end = ends.remove(place);
        // The identity that took over without an answer acts through the broker.
        let person = match resolution {
            EscalationOutcome::TimedOutResumed => Some(Actor::broker().role.as_str().to_owned()),
            _ => end.said.person(),
        };
        if row.resolved_by != person {
            let named = |person: Option<String>| person.unwrap_or_else(|| "none".to_owned());
            let (is, was) = (named(row.resolved_by.clone()), named(person));
            let detail =
                format!("escalation {} has the person {is}, its record says {was}", row.id);
            return Some((made.leaf_index, detail));
        }
    }
    if let Some(made) = made.first() {
        let detail = "an escalation has this record, and its row is gone".to_owned();
        return Some((made.leaf_index, detail));
    }
    // A record resolved this escalation, so its row may not be open.
    let end = ends.first()?;
    Some((
        end.leaf_index,
        "an escalation has this record of its end, and its row says otherwise".to_owned(),
    ))
}

/// How the agents of an escalation differ from its record. Records of earlier versions name none.
fn parties_differ(row: &Escalation, said: &Said) -> Option<String> {
    let differs = |place: &str, is: &AgentId, was: &Option<RecordParty>| {
        let was = was.as_ref()?.agent_id.as_ref().filter(|was| *was != is)?;
        Some(format!("escalation {} has {place} {is}, its record says {was}", row.id))
    };
    differs("/source", &row.source, &said.from_agent)
        .or_else(|| differs("/target", &row.target, &said.to_agent))
}
