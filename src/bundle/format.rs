//! The form of a bundle: its files' names and the lines in them. `docs/bundle.md` says the same in words.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::{self, ReportFacts};

/// Names this form; another form gets another name.
pub(super) const FORMAT: &str = "handoffd-bundle/4";

/// The form before it: what a receiver said at the end that it spent was not in the trace's cost. It is read
/// too.
pub(super) const FORMAT_3: &str = "handoffd-bundle/3";

/// The form before that, which had no payload schemas; it is read too.
pub(super) const FORMAT_2: &str = "handoffd-bundle/2";

/// For a person who opens the bundle.
pub(super) const README: &str = "README.md";
/// What is in the bundle, with the hash of each other file.
pub(super) const MANIFEST: &str = "manifest.json";
/// The exact bytes of the records, one a line.
pub(super) const RECORDS: &str = "records.jsonl";
/// For each record, in the same order, its hash and its path to the root.
pub(super) const PROOFS: &str = "proofs.jsonl";
/// For each commitment of each record, in the same order, what became of the content.
pub(super) const COMMITMENTS: &str = "commitments.jsonl";
/// The signed note over the tree that all proofs lead to.
pub(super) const TREE_HEAD: &str = "tree-head.txt";
/// Public keys that sign or signed tree heads.
pub(super) const KEYS: &str = "keys.json";
/// What `GET /tasks/{taskId}/trace` said.
pub(super) const TRACE: &str = "trace.json";
/// The page for a person.
pub(super) const REPORT: &str = "report.html";

/// The kind of record whose content lists what was erased.
pub(super) const ERASED: &str = "ERASED";

/// The kind of record whose content is a contract.
pub(super) const CONTRACT_PUT: &str = "CONTRACT_PUT";

/// The kind of record whose content is a payload schema, with the words on its migration.
pub(super) const SCHEMA_PUT: &str = "PAYLOAD_SCHEMA_PUT";

/// What makes the pages of a bundle: name and version.
pub(super) const SOFTWARE: &str = concat!("handoffd ", env!("CARGO_PKG_VERSION"));

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) tenant: String,
    pub(super) task_id: String,
    pub(super) log_id: String,
    pub(super) origin: String,
    /// Records in the log, not in the bundle.
    pub(super) tree_size: u64,
    /// `sha256:…`.
    pub(super) root_hash: String,
    /// RFC 3339.
    pub(super) created_at: String,
    pub(super) software: String,
    /// Whether personal data was asked for.
    pub(super) personal_data: bool,
    /// Records in the bundle.
    pub(super) records: u64,
    /// Commitments whose content is in the bundle.
    pub(super) contents: u64,
    /// Commitments whose content was erased.
    pub(super) erased: u64,
    pub(super) files: Vec<FileLine>,
}

/// One file of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileLine {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// In hexadecimal.
    pub(super) sha256: String,
}

/// `keys.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    pub(super) origin: String,
    pub(super) keys: Vec<KeyLine>,
}

/// One key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KeyLine {
    /// As `name+hash+base64`.
    pub(super) key: String,
    pub(super) created_at: String,
    pub(super) retired_at: Option<String>,
}

/// One line of `proofs.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProofLine {
    pub(super) leaf_index: i64,
    /// `sha256:…`.
    pub(super) record_hash: String,
    /// In hexadecimal, from the leaf up.
    pub(super) inclusion_proof: Vec<String>,
}

/// One line of `commitments.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CommitmentLine {
    pub(super) leaf_index: i64,
    pub(super) kind: Part,
    /// Its place among the record's commitments of that kind.
    pub(super) ordinal: i64,
    /// `sha256:…`.
    pub(super) commitment: String,
    pub(super) state: State,
    /// In hexadecimal; with the content only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) salt: Option<String>,
    /// Which file has the content.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) file: Option<String>,
    /// Whose personal data; with the data only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) subject_id: Option<String>,
    /// Which contract, as `id@version`; of a contract only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) contract: Option<String>,
    /// Which payload schema, as `id@version`; of a payload schema only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) payload_schema: Option<String>,
}

impl CommitmentLine {
    /// The file that its content is in.
    pub(super) fn path(&self) -> String {
        let leaf = self.leaf_index;
        match self.kind {
            Part::Message => format!("contents/{leaf}.json"),
            Part::Contract => {
                format!("contracts/{}.json", self.contract.as_deref().unwrap_or_default())
            }
            Part::PayloadSchema => {
                format!("schemas/{}.json", self.payload_schema.as_deref().unwrap_or_default())
            }
            Part::Personal => format!("personal/{leaf}-{}.json", self.ordinal),
            Part::Checkpoint => {
                let hash = &self.commitment;
                format!("checkpoints/{}.json", hash.strip_prefix("sha256:").unwrap_or(hash))
            }
        }
    }
}

/// The contract that a record names, as `id@version`.
pub(super) fn contract_name(record: &Value) -> Option<String> {
    versioned(record.get("contract")?)
}

/// The payload schema that a record names, as `id@version`.
pub(super) fn schema_name(record: &Value) -> Option<String> {
    versioned(record.get("payloadSchema")?)
}

fn versioned(named: &Value) -> Option<String> {
    let text = |name: &str| named.get(name).and_then(Value::as_str);
    Some(format!("{}@{}", text("id")?, text("version")?))
}

/// The registered payload schema that a contract's document names, as `id@version`.
pub(super) fn schema_of_contract(contract: &Value) -> Option<String> {
    let named = contract.pointer("/payload/schema")?.as_str()?;
    named.strip_prefix("registry:").map(str::to_owned)
}

/// What a commitment is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    Message,
    /// The content of the record by which a contract was put.
    Contract,
    /// The content of the record by which a payload schema was registered.
    PayloadSchema,
    Personal,
    Checkpoint,
}

impl Part {
    /// What a record's own content is.
    pub(super) fn of_record(kind: &str) -> Self {
        match kind {
            CONTRACT_PUT => Self::Contract,
            SCHEMA_PUT => Self::PayloadSchema,
            _ => Self::Message,
        }
    }
}

/// What became of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// It is in the bundle.
    Kept,
    /// It was erased; a record of the bundle says so.
    Erased,
    /// Personal data that was not asked for.
    Withheld,
    /// A checkpoint that is no longer kept.
    NotKept,
    /// The archive lost or damaged it, or the store has no trace of it.
    Unavailable,
}

/// What the content of an `ERASED` record lists: leaf index, and ordinal (−1: the record's content).
pub(super) fn erased_slots(list: &Value) -> Vec<(i64, i64)> {
    let items = |name: &str| list.get(name).and_then(Value::as_array).into_iter().flatten();
    let contents = items("contents").filter_map(|leaf| Some((leaf.as_i64()?, -1)));
    let data = items("personalData")
        .filter_map(|slot| Some((slot.get(0)?.as_i64()?, slot.get(1)?.as_i64()?)));
    contents.chain(data).collect()
}

/// The page for a person.
pub(super) fn page(trace: &Value, messages: &[Value], manifest: &Manifest, note: &str) -> String {
    let facts = ReportFacts {
        tenant: manifest.tenant.clone(),
        log_id: manifest.log_id.clone(),
        generated_at: manifest.created_at.clone(),
        software: manifest.software.clone(),
        bundle: Some("bundle.zip".to_owned()),
        tree_size: Some(manifest.tree_size),
        root_hash: Some(manifest.root_hash.clone()),
        tree_head: Some(note.to_owned()),
    };
    report::html(trace, messages, &facts)
}

/// A handoff's message for the page, which finds it by its `handoffId`.
pub(super) fn message_of(handoff_id: Option<&str>, mut message: Value) -> Value {
    if let (Some(id), Some(object)) = (handoff_id, message.as_object_mut()) {
        object.entry("handoffId").or_insert_with(|| id.into());
    }
    message
}

/// The text for a person who has never seen the product.
pub(super) fn readme(manifest: &Manifest) -> String {
    let personal = if manifest.personal_data {
        "It contains personal data: `personal/`. Treat it accordingly."
    } else {
        "Personal data that was marked as such is not in it; only salted fingerprints are."
    };
    [
        ("{task}", manifest.task_id.as_str()),
        ("{tenant}", &manifest.tenant),
        ("{origin}", &manifest.origin),
        ("{created}", &manifest.created_at),
        ("{software}", &manifest.software),
        ("{size}", &manifest.tree_size.to_string()),
        ("{personal}", personal),
    ]
    .iter()
    .fold(include_str!("../../templates/bundle.md").to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}
