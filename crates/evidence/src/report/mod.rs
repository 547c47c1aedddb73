//! The report for a regulator: one HTML page on the course of a task for a reader new to the product (seed 000 §12.1:
//! each agent's input and conclusions, in order, with cost and outcome). Pure: made from the answer of `GET
//! /tasks/{id}/trace` and the messages.
//!
//! The page uses no network and no script; its own policy forbids both. The template escapes all text written by
//! agents, and `words` makes invisible characters visible.

mod changes;
mod diagram;
mod words;

use std::collections::HashMap;

use askama::Template;
use serde_json::Value;

use changes::{Difference, differences};
use diagram::{Diagram, DiagramStep, draw};
use words::{excerpt, visible};

use handoffd_domain::message::INITIAL;

/// Facts on the page besides the trace.
#[derive(Debug, Clone, Default)]
pub struct ReportFacts {
    /// The tenant that owns the log.
    pub tenant: String,
    pub log_id: String,
    /// Time of creation, RFC 3339.
    pub generated_at: String,
    /// Name and version of the software.
    pub software: String,
    /// File name of the bundle that contains the page, if any.
    pub bundle: Option<String>,
    /// Number of records in the log at the time of creation.
    pub tree_size: Option<u64>,
    /// Root of the Merkle tree over these records, as text.
    pub root_hash: Option<String>,
    /// The signed tree head as a note.
    pub tree_head: Option<String>,
}

impl ReportFacts {
    fn visible(&self) -> Self {
        let text = |text: &Option<String>| text.as_deref().map(visible);
        Self {
            tenant: visible(&self.tenant),
            log_id: visible(&self.log_id),
            generated_at: visible(&self.generated_at),
            software: visible(&self.software),
            bundle: text(&self.bundle),
            tree_size: self.tree_size,
            root_hash: text(&self.root_hash),
            tree_head: text(&self.tree_head),
        }
    }
}

/// Renders the page. `trace` is the answer of `GET /tasks/{taskId}/trace` to a person, `contents` the handoffs'
/// messages, each with its `handoffId`; a missing message counts as erased.
#[must_use]
pub fn html(trace: &Value, contents: &[Value], facts: &ReportFacts) -> String {
    let facts = facts.visible();
    // Writing texts and numbers into memory cannot fail.
    ReportPage::new(trace, contents, &facts).render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    facts: &'a ReportFacts,
    task: String,
    status: Status,
    first: String,
    last: String,
    well: bool,
    first_bad: String,
    /// The rows of the database that contradict the records; empty if none does.
    contradicted: String,
    checked: Counts,
    agents: Vec<ReportAgent>,
    diagram: Option<Diagram>,
    hops: Vec<HopView>,
    refused: usize,
    output: Option<ReportRecord>,
    events: Vec<ReportRecord>,
    cost: Total,
}

/// A status with its meaning.
struct Status {
    code: String,
    means: &'static str,
    tone: &'static str,
}

/// Counts of recomputed evidence.
struct Counts {
    records: u64,
    contents: u64,
    erased: u64,
    purged: u64,
}

struct ReportAgent {
    id: String,
    sent: String,
    received: String,
    usd: String,
    prompt: String,
    completion: String,
}

struct Total {
    usd: String,
    reported: String,
    prompt: String,
    completion: String,
}

struct ReportParty {
    id: String,
    version: String,
    run: String,
}

/// A handoff as shown.
struct HopView {
    number: usize,
    id: String,
    parent: String,
    from: ReportParty,
    to: ReportParty,
    status: Status,
    reason: String,
    committed: String,
    accepted: String,
    ended: String,
    attempts: String,
    contract: String,
    task: String,
    /// The message; none where it is not stored.
    message: Option<String>,
    done: Vec<CompletedWork>,
    /// The state compared with the parent's; none where either message is not stored.
    changes: Option<changes::Differences>,
    first: bool,
    said: Vec<ReportRecord>,
    usd: String,
    prompt: String,
    completion: String,
    /// Tokens of the message; empty where they were not measured.
    context: String,
    /// Its place among the handoffs of one message; empty of a message to one receiver.
    group: String,
    spent: String,
    left: String,
    leaf: String,
    hash: String,
    commitment: String,
}

/// The place of a handoff among those of one message, in words: `Receiver 1 of 3 of the same message, 2 of them needed`.
fn group_place(handoff: &Value) -> String {
    let Some(group) = handoff.get("group") else { return String::new() };
    let count = |name: &str| group.get(name).and_then(Value::as_u64);
    let (Some(index), Some(of)) = (count("index"), count("of")) else { return String::new() };
    let join = group.get("join").and_then(Value::as_str).unwrap_or_default();
    let needs = match join.strip_prefix("quorum:") {
        Some(many) => format!("{many} of them needed"),
        None if join == "any" => "one of them needed".to_owned(),
        None => "all of them needed".to_owned(),
    };
    format!("Receiver {} of {of} of the same message, {needs}", index + 1)
}

/// The size of a message in words: `1200 tokens, 300 more than before, of a window of 8000`.
fn context_size(handoff: &Value) -> String {
    let count = |name: &str| handoff.get("context").and_then(|found| found.get(name)?.as_i64());
    let Some(tokens) = count("tokens") else { return String::new() };
    let growth = match count("growth") {
        Some(more @ 1..) => format!(", {more} more than before"),
        Some(less @ ..0) => format!(", {} less than before", less.unsigned_abs()),
        Some(0) | None => String::new(),
    };
    let window = count("window").map(|window| format!(", of a window of {window}"));
    format!("{tokens} tokens{growth}{}", window.unwrap_or_default())
}

/// A completed item of work.
struct CompletedWork {
    id: String,
    description: String,
    result: String,
}

/// A record as shown.
struct ReportRecord {
    leaf: String,
    time: String,
    kind: String,
    means: &'static str,
    actor: String,
    handoff: String,
    reason: String,
    hash: String,
    previous: String,
    content: Option<String>,
}

impl<'a> ReportPage<'a> {
    fn new(trace: &Value, contents: &[Value], facts: &'a ReportFacts) -> Self {
        let records = list(trace, "/records");
        let handoffs = list(trace, "/handoffs");
        let messages: HashMap<&str, &Value> = contents
            .iter()
            .filter_map(|message| Some((message.get("handoffId")?.as_str()?, message)))
            .collect();
        let mut own: HashMap<&str, Vec<&Value>> = HashMap::new();
        for record in records {
            if let Some(id) = record.get("handoffId").and_then(Value::as_str) {
                own.entry(id).or_default().push(record);
            }
        }
        let events: Vec<ReportRecord> = records.iter().map(ReportRecord::new).collect();
        let hops: Vec<HopView> = handoffs
            .iter()
            .enumerate()
            .map(|(at, handoff)| {
                let id = handoff["handoffId"].as_str().unwrap_or_default();
                let own = own.get(id).map_or(&[][..], Vec::as_slice);
                HopView::new(at + 1, handoff, &messages, own)
            })
            .collect();
        let last_word = ["TASK_COMPLETED", "COMPLETED"].into_iter().find_map(|kind| {
            records
                .iter()
                .rev()
                .find(|record| record["kind"] == kind && record.get("content").is_some())
        });
        let count = |name: &str| trace["verification"][name].as_u64().unwrap_or(0);
        Self {
            facts,
            task: text(trace, "/taskId"),
            status: Status::new(&text(trace, "/status")),
            first: events.first().map(|event| event.time.clone()).unwrap_or_default(),
            last: events.last().map(|event| event.time.clone()).unwrap_or_default(),
            well: trace["verification"]["ok"] == true,
            first_bad: text(trace, "/verification/firstBad/leafIndex"),
            contradicted: text(trace, "/verification/firstBad/detail"),
            checked: Counts {
                records: count("records"),
                contents: count("contents"),
                erased: count("erased"),
                purged: count("purged"),
            },
            agents: agents(trace),
            diagram: draw(&hops.iter().map(HopView::step).collect::<Vec<_>>()),
            refused: records
                .iter()
                .filter(|record| record["kind"] == "REFUSED" || record["kind"] == "DEAD_LETTERED")
                .count(),
            output: last_word.map(ReportRecord::new),
            hops,
            events,
            cost: Total {
                usd: text(trace, "/cost/totalUSD"),
                reported: text(trace, "/cost/reportedSumUSD"),
                prompt: text(trace, "/cost/tokens/prompt"),
                completion: text(trace, "/cost/tokens/completion"),
            },
        }
    }
}

impl Status {
    fn new(code: &str) -> Self {
        Self { code: code.to_owned(), means: words::status(code), tone: words::tone(code) }
    }
}

impl ReportParty {
    fn new(handoff: &Value, side: &str) -> Self {
        let member = |name: &str| text(handoff, &format!("{side}/{name}"));
        let id = Some(member("agentId")).filter(|id| !id.is_empty());
        Self {
            id: id.unwrap_or_else(|| member("agentType")),
            version: member("agentVersion"),
            run: member("executionId"),
        }
    }
}

/// The reason of a record; of a second opinion its verdict, with the label or why there is none.
fn reason(record: &Value) -> String {
    let parts = ["/opinion/verdict", "/opinion/label", "/reason"].map(|at| text(record, at));
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

impl ReportRecord {
    fn new(record: &Value) -> Self {
        let agent = text(record, "/actor/agentId");
        let kind = text(record, "/kind");
        Self {
            leaf: text(record, "/leafIndex"),
            time: text(record, "/time"),
            means: words::kind(&kind),
            kind,
            actor: if agent.is_empty() { text(record, "/actor/role") } else { agent },
            handoff: text(record, "/handoffId"),
            reason: reason(record),
            hash: text(record, "/recordHash"),
            previous: text(record, "/previousRecordHash"),
            content: record.get("content").map(pretty),
        }
    }
}

impl HopView {
    /// `own` are the handoff's records.
    fn new(
        number: usize,
        handoff: &Value,
        messages: &HashMap<&str, &Value>,
        own: &[&Value],
    ) -> Self {
        let id = handoff["handoffId"].as_str().unwrap_or_default();
        let parent = handoff["parentHandoffId"].as_str();
        let message = messages.get(id).copied();
        let before = parent.and_then(|id| messages.get(id).copied());
        let nothing = Value::Object(serde_json::Map::new());
        let changes = message.and_then(|message| {
            let before = if parent.is_none() { &nothing } else { &before?["currentState"] };
            Some(differences("/currentState", before, &message["currentState"]))
        });
        let record = own.iter().find(|record| record["kind"] == "HANDOFF").copied();
        let evidence =
            |pointer: &str| record.map(|record| text(record, pointer)).unwrap_or_default();
        Self {
            number,
            id: visible(id),
            parent: visible(parent.unwrap_or_default()),
            from: ReportParty::new(handoff, "/fromAgent"),
            to: ReportParty::new(handoff, "/toAgent"),
            status: Status::new(&text(handoff, "/status")),
            reason: text(handoff, "/reason"),
            committed: text(handoff, "/committedAt"),
            accepted: text(handoff, "/acceptedAt"),
            ended: text(handoff, "/endedAt"),
            attempts: text(handoff, "/attempts"),
            contract: if handoff["contract"].is_object() {
                [text(handoff, "/contract/id"), text(handoff, "/contract/version")].join(" ")
            } else {
                String::new()
            },
            task: task(handoff),
            message: message.map(pretty),
            done: finished(message, before),
            changes: changes.map(shown),
            first: parent.is_none(),
            said: own
                .iter()
                .filter(|record| record["kind"] != "HANDOFF")
                .map(|record| ReportRecord::new(record))
                .collect(),
            usd: text(handoff, "/cost/usd"),
            prompt: text(handoff, "/cost/tokens/prompt"),
            completion: text(handoff, "/cost/tokens/completion"),
            context: context_size(handoff),
            group: group_place(handoff),
            spent: text(handoff, "/costTracking/costSpentSoFarUSD"),
            left: text(handoff, "/costTracking/costBudgetRemainingUSD"),
            leaf: text(handoff, "/leafIndex"),
            hash: evidence("/recordHash"),
            commitment: evidence("/messageCommitment"),
        }
    }

    fn step(&self) -> DiagramStep {
        DiagramStep {
            from: self.from.id.clone(),
            to: self.to.id.clone(),
            label: self.status.code.clone(),
            tone: self.status.tone,
        }
    }
}

/// Work items that the parent's message does not list as completed.
fn finished(message: Option<&Value>, before: Option<&Value>) -> Vec<CompletedWork> {
    // By their ids: a message may list thousands, each hop more than the one before.
    let mut known: HashMap<Option<&str>, Vec<&Value>> = HashMap::new();
    for done in before.map(|before| list(before, "/completedSubtasks")).unwrap_or_default() {
        known.entry(subtask_id(done)).or_default().push(done);
    }
    message
        .map(|message| list(message, "/completedSubtasks"))
        .unwrap_or_default()
        .iter()
        .filter(|done| known.get(&subtask_id(done)).is_none_or(|same| !same.contains(done)))
        .map(|done| CompletedWork {
            id: text(done, "/subtaskId"),
            description: text(done, "/description"),
            result: done.get("result").map(pretty).unwrap_or_default(),
        })
        .collect()
}

fn subtask_id(done: &Value) -> Option<&str> {
    done.get("subtaskId").and_then(Value::as_str)
}

/// Differences with their texts made visible.
fn shown(found: changes::Differences) -> changes::Differences {
    let listed = found.listed.into_iter().map(|one| Difference {
        pointer: visible(&one.pointer),
        before: excerpt(&one.before),
        after: excerpt(&one.after),
        ..one
    });
    changes::Differences { listed: listed.collect(), more: found.more }
}

/// The participating agents with their spending.
fn agents(trace: &Value) -> Vec<ReportAgent> {
    let costs: HashMap<&str, &Value> = list(trace, "/cost/perAgent")
        .iter()
        .filter_map(|cost| Some((cost.get("agentId")?.as_str()?, cost)))
        .collect();
    list(trace, "/agents")
        .iter()
        .map(|agent| {
            let cost = agent["agentId"].as_str().and_then(|id| costs.get(id));
            let cost = |pointer: &str| cost.map(|cost| text(cost, pointer)).unwrap_or_default();
            ReportAgent {
                id: text(agent, "/agentId"),
                sent: text(agent, "/sent"),
                received: text(agent, "/received"),
                usd: cost("/usd"),
                prompt: cost("/tokens/prompt"),
                completion: cost("/tokens/completion"),
            }
        })
        .collect()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The description of the task; for a handoff before any work, the task in short.
fn task(handoff: &Value) -> String {
    let initial = handoff.get("taskDescription").is_some_and(|told| told == INITIAL);
    let summary = initial && handoff.get("taskSummary").is_some();
    text(handoff, if summary { "/taskSummary" } else { "/taskDescription" })
}

/// The text or number at a pointer; empty for anything else.
fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => excerpt(text),
        Some(other) => excerpt(&other.to_string()),
    }
}

fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => excerpt(text),
        other => excerpt(&serde_json::to_string_pretty(other).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
