//! Checks the records of a bundle in one pass against their proofs, their contents and the trace.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::format::{
    BundleContentState, BundleManifest, CONTRACT_PUT, CommitmentLine, ContentKind, ERASED, FORMAT,
    FORMAT_2, ProofLine, SCHEMA_PUT, contract_name, erased_slots, message_of, schema_name,
    schema_of_contract,
};
use super::open::OpenBundle;
use super::path::root_of;
use super::report::{BundleDefect, BundleReport};
use super::states::RecordedStates;
use crate::account::Account;
use crate::commitment::{CommitmentSubject, hash_of_text};
use crate::context_growth::ContextGrowth;
use crate::merkle::Hash;
use crate::record::is_shown_elsewhere;
use crate::verify::groups::GroupCheck;
use crate::verify::opinions::OpinionCheck;
use crate::verify::record::{self, CheckedRecord};
use crate::verify::streams::StreamCheck;

/// Kinds of records that require an earlier record of their handoff.
const VERDICTS: &[&str] = &[
    "COMPRESSED",
    "CHUNK",
    "STREAM_CLOSED",
    "ACCEPTED",
    "TAKEN_OVER",
    "REJECTED",
    "INPUT_REQUESTED",
    "INPUT_PROVIDED",
    "COMPLETED",
    "FAILED",
    "EXPIRED",
    "RETURNED",
    "ROLLED_BACK",
];

/// The content of `trace.json`, its lists unparsed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Trace<'a> {
    pub(super) task_id: String,
    status: Option<String>,
    #[serde(borrow)]
    handoffs: Vec<&'a RawValue>,
    #[serde(borrow)]
    records: Vec<&'a RawValue>,
    agents: Value,
    cost: Value,
    verification: Value,
}

/// The state of one pass.
pub(super) struct BundleWalk<'a> {
    pub(super) manifest: &'a BundleManifest,
    pub(super) root: Hash,
    pub(super) trace: Trace<'a>,
    pub(super) report: &'a mut BundleReport,
    pub(super) files: OpenBundle,
    /// Messages for the report; none where the bundle has no page to compare.
    pub(super) messages: Option<Vec<Value>>,
    /// Files named by a commitment.
    pub(super) named: BTreeSet<String>,
    pub(super) seen: WalkState,
}

/// The sections of `records.jsonl`, in order; each is in log order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    /// The task's own records.
    #[default]
    Task,
    /// Records that registered contracts.
    Contracts,
    /// Records that registered payload schemas.
    Schemas,
    /// Records that list erased data.
    Erasures,
}

/// Facts from the records read so far.
#[derive(Default)]
pub(super) struct WalkState {
    /// Index and hash of the previous record.
    last: Option<(i64, String)>,
    section: Section,
    /// Contracts named by the task's records, each with the first such record; and contracts in the bundle.
    ruling: BTreeMap<String, i64>,
    put: BTreeSet<String>,
    /// Payload schemas named by these contracts, each with the first such record; and schemas in the bundle.
    asked: BTreeMap<String, i64>,
    registered: BTreeSet<String>,
    task_records: usize,
    handoffs: usize,
    committed: BTreeSet<String>,
    /// The states by the records, and the entry of each handoff in the trace.
    states: RecordedStates,
    traced: BTreeMap<String, Value>,
    /// Messages of the task's records that are kept, and those that are erased.
    messages: (u64, u64),
    gaps: BTreeSet<(i64, i64)>,
    groups: GroupCheck,
    opinions: OpinionCheck,
    account: Account,
    streams: StreamCheck,
    growth: ContextGrowth,
    /// The cost of each handoff by the trace, with the leaf index of its record; and its context.
    costs: Vec<(i64, Value)>,
    contexts: Vec<(i64, Option<Value>)>,
}

struct Record<'a> {
    leaf: i64,
    hash: String,
    kind: &'a str,
    body: &'a Value,
}

impl Record<'_> {
    fn fault(&self, fault: &'static str, detail: impl Into<String>) -> BundleDefect {
        BundleDefect::at(self.leaf, fault, detail)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }
}

impl BundleWalk<'_> {
    /// Checks a record with its proof. `commitments` returns the next commitment line.
    pub(super) fn record(
        &mut self,
        bytes: &[u8],
        proof: &[u8],
        mut commitments: impl FnMut() -> Result<Option<Vec<u8>>, BundleDefect>,
    ) -> Result<(), BundleDefect> {
        let proof: ProofLine = serde_json::from_slice(proof)
            .map_err(|err| BundleDefect::new("proof", format!("a line of proofs.jsonl: {err}")))?;
        let leaf = proof.leaf_index;
        let at = |fault, detail: &str| BundleDefect::at(leaf, fault, detail);
        let stated = hash_of_text(&proof.record_hash).unwrap_or_default();
        let CheckedRecord { hash, body } = record::record(bytes, &stated)
            .map_err(|defect| at(defect.fault(), &defect.to_string()))?;
        let root = u64::try_from(leaf).ok().and_then(|leaf| {
            let path: Option<Vec<Hash>> = proof
                .inclusion_proof
                .iter()
                .map(|step| hex::decode(step).ok()?.try_into().ok())
                .collect();
            root_of(hash, leaf, self.manifest.tree_size, &path?)
        });
        if root != Some(self.root) {
            return Err(at("proof", "its inclusion proof does not lead to the signed root"));
        }
        let kind = body.get("kind").and_then(Value::as_str).unwrap_or_default();
        let record = Record { leaf, hash: proof.record_hash, kind, body: &body };
        self.place(&record)?;
        let content = self.contents(&record, &mut commitments)?;
        match (self.seen.section, content) {
            (Section::Task, content) => {
                self.state(&record)?;
                self.traced(&record, content)?;
                if let Some(contract) = contract_name(record.body) {
                    self.seen.ruling.entry(contract).or_insert(leaf);
                }
            }
            (Section::Contracts, content) => {
                self.seen.put.extend(contract_name(record.body));
                if let Some(Opening::Kept(contract)) = content
                    && let Some(schema) = schema_of_contract(&contract)
                {
                    self.seen.asked.entry(schema).or_insert(leaf);
                }
            }
            (Section::Schemas, _) => self.seen.registered.extend(schema_name(record.body)),
            (Section::Erasures, Some(Opening::Kept(list))) => {
                for slot in erased_slots(&list) {
                    self.seen.gaps.remove(&slot);
                }
            }
            (Section::Erasures, _) => {}
        }
        self.report.records += 1;
        self.seen.last = Some((leaf, record.hash));
        Ok(())
    }

    /// Whether the bundle has the format without payload schemas.
    fn without_schemas(&self) -> bool {
        self.manifest.format == FORMAT_2
    }

    /// Checks the record's section and its link to the previous record.
    fn place(&mut self, record: &Record<'_>) -> Result<(), BundleDefect> {
        if record.text("logId") != Some(&self.manifest.log_id)
            || record.text("tenant") != Some(&self.manifest.tenant)
        {
            return Err(record.fault("foreign", "the record belongs to another log"));
        }
        if record.body.get("leafIndex").and_then(Value::as_i64) != Some(record.leaf) {
            return Err(record.fault("proof", "the record states another leafIndex"));
        }
        let section = match (record.text("taskId"), record.kind) {
            (None, CONTRACT_PUT) => Section::Contracts,
            (None, SCHEMA_PUT) if !self.without_schemas() => Section::Schemas,
            (None, ERASED) => Section::Erasures,
            (Some(task), _) if task == self.manifest.task_id => Section::Task,
            _ => return Err(record.fault("foreign", "the record belongs to another task")),
        };
        if section < self.seen.section {
            return Err(record.fault("swap", "the records are not in the bundle's order"));
        }
        if section > self.seen.section {
            (self.seen.section, self.seen.last) = (section, None);
        }
        let link = record.text("previousRecordHash");
        match &self.seen.last {
            Some((before, _)) if *before >= record.leaf => {
                Err(record.fault("swap", "the records are not in the log's order"))
            }
            Some((before, hash)) if *before + 1 == record.leaf && link != Some(hash) => {
                Err(record.fault("chain", "it does not follow the record before it"))
            }
            _ if (record.leaf == 0) != link.is_none() => {
                Err(record.fault("chain", "only the first record follows none"))
            }
            _ => Ok(()),
        }
    }

    /// Checks each of the record's commitments against its content; returns the record's own content.
    fn contents(
        &mut self,
        record: &Record<'_>,
        next: &mut impl FnMut() -> Result<Option<Vec<u8>>, BundleDefect>,
    ) -> Result<Option<Opening>, BundleDefect> {
        let mut own = None;
        for (kind, ordinal, commitment) in commitments(record) {
            let text =
                next()?.ok_or_else(|| record.fault("commitments", "a line about it is missing"))?;
            let line: CommitmentLine = serde_json::from_slice(&text)
                .map_err(|err| record.fault("commitments", err.to_string()))?;
            let stands = (line.leaf_index, line.kind, line.ordinal, line.commitment.as_str());
            let named = match kind {
                ContentKind::Contract => (contract_name(record.body), None),
                ContentKind::PayloadSchema => (None, schema_name(record.body)),
                _ => (None, None),
            };
            let names = (&line.contract, &line.payload_schema);
            if stands != (record.leaf, kind, ordinal, commitment) || names != (&named.0, &named.1) {
                let detail = "a line of commitments.jsonl is not about the record's commitment";
                return Err(record.fault("commitments", detail));
            }
            let found = self.opening(record, &line)?;
            if matches!(kind, ContentKind::Message | ContentKind::Contract) {
                own = Some(found);
            }
        }
        Ok(own)
    }

    fn opening(
        &mut self,
        record: &Record<'_>,
        line: &CommitmentLine,
    ) -> Result<Opening, BundleDefect> {
        let (name, subject) = match line.kind {
            ContentKind::Message => ("content", CommitmentSubject::Message),
            ContentKind::Contract => ("contract", CommitmentSubject::Message),
            ContentKind::PayloadSchema => ("payload-schema", CommitmentSubject::Message),
            ContentKind::Personal => ("personal-data", CommitmentSubject::PersonalData),
            ContentKind::Checkpoint => ("checkpoint", CommitmentSubject::Checkpoint),
        };
        let wrong = |detail: &str| record.fault(name, detail);
        if line.state != BundleContentState::Kept && (line.salt.is_some() || line.file.is_some()) {
            return Err(wrong("a salt or a file is present, and the content is said to be gone"));
        }
        match line.state {
            BundleContentState::Kept => {
                let file = line.path();
                if line.file.as_ref() != Some(&file) {
                    return Err(wrong("its line names another file"));
                }
                if line.kind == ContentKind::Personal && !self.manifest.personal_data {
                    return Err(wrong("personal data that the manifest does not speak of"));
                }
                let salt = line.salt.as_deref().and_then(|salt| hex::decode(salt).ok());
                let salt = salt.ok_or_else(|| wrong("its salt is missing"))?;
                let content = self.files.whole(&file)?;
                if !record::opens(&line.commitment, subject, &salt, &content) {
                    return Err(wrong("the content does not open the record's commitment"));
                }
                self.named.insert(file);
                self.report.contents += 1;
                let value = serde_json::from_slice(&content);
                let value: Value = value.map_err(|err| wrong(&format!("not JSON: {err}")))?;
                let named = line.subject_id.as_deref();
                if line.kind == ContentKind::Personal && value["subjectId"].as_str() != named {
                    return Err(wrong("its line names another person than it speaks of"));
                }
                Ok(Opening::Kept(value))
            }
            BundleContentState::Erased
                if matches!(line.kind, ContentKind::Message | ContentKind::Personal) =>
            {
                let ordinal = if line.kind == ContentKind::Message { -1 } else { line.ordinal };
                self.seen.gaps.insert((line.leaf_index, ordinal));
                self.report.erased += 1;
                Ok(Opening::Gone)
            }
            BundleContentState::Withheld
                if line.kind == ContentKind::Personal && !self.manifest.personal_data =>
            {
                self.report.withheld += 1;
                Ok(Opening::Gone)
            }
            BundleContentState::NotKept if line.kind == ContentKind::Checkpoint => {
                Ok(Opening::Gone)
            }
            BundleContentState::Unavailable => {
                Err(record.fault("content-gone", "its content is lost, and was not erased"))
            }
            _ => Err(record.fault("commitments", "a state that this commitment cannot have")),
        }
    }

    /// Takes the handoff's status from the record.
    fn state(&mut self, record: &Record<'_>) -> Result<(), BundleDefect> {
        self.seen.groups.take(record.body).map_err(|detail| record.fault("group", detail))?;
        self.seen.opinions.take(record.body).map_err(|detail| record.fault("opinion", detail))?;
        self.seen.states.take(record.leaf, record.body);
        let Some(id) = record.text("handoffId") else { return Ok(()) };
        if record.kind == "HANDOFF" {
            self.seen.committed.insert(id.to_owned());
        } else if VERDICTS.contains(&record.kind) && !self.seen.committed.contains(id) {
            let detail = format!("the record of handoff {id}, of which it speaks, is missing");
            return Err(record.fault("drop", detail));
        }
        Ok(())
    }

    /// Compares the record with its handoff in the trace.
    fn traced(
        &mut self,
        record: &Record<'_>,
        content: Option<Opening>,
    ) -> Result<(), BundleDefect> {
        let wrong = |detail: &str| record.fault("trace", detail);
        let entry = self.trace.records.get(self.seen.task_records);
        let entry = entry.ok_or_else(|| wrong("the trace ends before this record"))?;
        self.seen.task_records += 1;
        let entry: Value = serde_json::from_str(entry.get()).unwrap_or_default();
        let content = match content {
            Some(Opening::Kept(value)) => {
                self.seen.messages.0 += 1;
                Some(value)
            }
            gone => {
                self.seen.messages.1 += u64::from(gone.is_some());
                None
            }
        };
        let mut expected = record.body.clone();
        if let Some(object) = expected.as_object_mut() {
            object.insert("recordHash".to_owned(), json!(record.hash));
            if let Some(content) = content.as_ref().filter(|_| !is_shown_elsewhere(record.kind)) {
                object.insert("content".to_owned(), content.clone());
            }
        }
        if entry != expected {
            return Err(wrong("the trace shows another record"));
        }
        self.seen.account.take(record.body);
        self.seen.growth.take(record.body);
        let followed = self.seen.streams.take(record.body, || content.clone());
        followed.map_err(|detail| record.fault("stream", detail))?;
        if record.kind != "HANDOFF" {
            return Ok(());
        }
        let entry = self.trace.handoffs.get(self.seen.handoffs);
        let entry = entry.ok_or_else(|| wrong("the trace ends before this handoff"))?;
        self.seen.handoffs += 1;
        let entry: Value = serde_json::from_str(entry.get()).unwrap_or_default();
        let of_content = |name: &str| content.as_ref().and_then(|content| content.get(name));
        let summary = of_content("taskSummary").filter(|summary| summary.is_string());
        // The cost and the size of an end come later.
        self.seen.costs.push((record.leaf, entry.get("cost").cloned().unwrap_or_default()));
        self.seen.contexts.push((record.leaf, entry.get("context").cloned()));
        let body = |name: &str| record.body.get(name);
        for (name, expected) in [
            ("handoffId", body("handoffId")),
            ("parentHandoffId", body("parentHandoffId")),
            ("taskId", body("taskId")),
            ("leafIndex", body("leafIndex")),
            ("committedAt", body("time")),
            ("fromAgent", body("fromAgent")),
            ("toAgent", body("toAgent")),
            ("contract", body("contract")),
            ("costTracking", body("costAtHandoff")),
            ("taskDescription", of_content("taskDescription")),
            ("taskSummary", summary),
            ("residency", body("residency")),
            ("group", body("group")),
            // The trace of a row that contradicts its records says so, and proves nothing.
            ("rowDiffers", None),
        ] {
            if entry.get(name).unwrap_or(&Value::Null) != expected.unwrap_or(&Value::Null) {
                return Err(wrong(&format!("the trace shows another {name} of the handoff")));
            }
        }
        let id = record.text("handoffId");
        if let Some(id) = id {
            self.seen.traced.insert(id.to_owned(), entry);
        }
        if let (Some(messages), Some(content)) = (&mut self.messages, content) {
            messages.push(message_of(id, content));
        }
        Ok(())
    }

    /// The checks that need all records.
    pub(super) fn finish(&mut self) -> Result<(), BundleDefect> {
        let seen = &self.seen;
        if let Some((leaf, _)) = seen.gaps.first() {
            let detail = "a content is gone, and no record of the bundle says that it was erased";
            return Err(BundleDefect::at(*leaf, "content-gone", detail));
        }
        let missing = seen.ruling.iter().find(|(contract, _)| !seen.put.contains(*contract));
        if let Some((contract, leaf)) = missing {
            let detail = format!("it names contract {contract}, which is not in the bundle");
            return Err(BundleDefect::at(*leaf, "contract", detail));
        }
        let missing = seen.asked.iter().find(|(schema, _)| !seen.registered.contains(*schema));
        if let Some((schema, leaf)) = missing.filter(|_| !self.without_schemas()) {
            let detail = format!("it names payload schema {schema}, which is not in the bundle");
            return Err(BundleDefect::at(*leaf, "payload-schema", detail));
        }
        self.compare_states()?;
        let trace = &self.trace;
        let wrong =
            |what: &str| BundleDefect::new("trace", format!("the trace shows other {what}"));
        if trace.records.len() != seen.task_records || trace.handoffs.len() != seen.handoffs {
            return Err(wrong("records or handoffs than the bundle has"));
        }
        let costs = seen.account.hops().iter().map(|hop| json!(hop.view()));
        if let Some(((leaf, _), _)) =
            seen.costs.iter().zip(costs).find(|((_, said), cost)| said != cost)
        {
            let detail = "the trace shows another cost of the handoff";
            return Err(BundleDefect::at(*leaf, "trace", detail));
        }
        let contexts = seen.contexts.iter().zip(seen.growth.hops());
        if let Some(((leaf, _), _)) = contexts.into_iter().find(|((_, said), grown)| said != *grown)
        {
            let detail = "the trace shows another context of the handoff";
            return Err(BundleDefect::at(*leaf, "trace", detail));
        }
        if trace.cost != seen.account.cost() {
            return Err(wrong("costs"));
        }
        if trace.agents != seen.account.agents() {
            return Err(wrong("agents"));
        }
        if self.own_verification_differs() {
            return Err(wrong("findings of its own verification"));
        }
        Ok(())
    }

    /// Derives the states of the task and its handoffs from the records, and compares the trace with them.
    fn compare_states(&self) -> Result<(), BundleDefect> {
        let states = &self.seen.states;
        for (id, entry) in &self.seen.traced {
            // Traces of earlier forms may lag behind in times.
            let lags = self.manifest.format != FORMAT;
            let differs = states.status_differs(id, entry);
            let differs = differs.or_else(|| states.times_differ(id, entry).filter(|_| !lags));
            if let Some((leaf, detail)) = differs {
                return Err(BundleDefect::at(leaf, "state", detail));
            }
        }
        match states.task_differs(self.trace.status.as_deref()) {
            Some((Some(leaf), detail)) => Err(BundleDefect::at(leaf, "state", detail)),
            Some((None, detail)) => Err(BundleDefect::new("state", detail)),
            None => Ok(()),
        }
    }

    /// Whether the trace says of its own check what this one does not find.
    fn own_verification_differs(&self) -> bool {
        let shown = &self.trace.verification;
        let count = |name: &str| shown.get(name).and_then(Value::as_u64);
        let (kept, erased) = self.seen.messages;
        let counts = (count("records"), count("contents"), count("erased"));
        shown.get("ok") != Some(&Value::Bool(true))
            || shown.get("firstBad").is_some_and(|bad| !bad.is_null())
            || counts != (Some(self.seen.task_records as u64), Some(kept), Some(erased))
            || count("purged").unwrap_or(0) > erased
            || count("unavailable").unwrap_or(0) > 0
    }
}

/// The state of a record's content.
enum Opening {
    Kept(Value),
    Gone,
}

/// A record's commitments in the order of `commitments.jsonl`.
fn commitments<'a>(record: &Record<'a>) -> Vec<(ContentKind, i64, &'a str)> {
    let body = record.body;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let personal = body.get("personalDataCommitments").and_then(Value::as_array);
    let personal =
        personal.into_iter().flatten().zip(0..).map(|(hash, ordinal)| {
            (ContentKind::Personal, ordinal, hash.as_str().unwrap_or_default())
        });
    text("messageCommitment")
        .map(|hash| (ContentKind::of_record(record.kind), 0, hash))
        .into_iter()
        .chain(personal)
        .chain(text("checkpointCommitment").map(|hash| (ContentKind::Checkpoint, 0, hash)))
        .collect()
}
