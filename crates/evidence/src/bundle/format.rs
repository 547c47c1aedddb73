//! The format of a bundle: file names and lines, as documented in `docs/bundle.md`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::{self, ReportFacts};

/// Name of this format version.
pub const FORMAT: &str = "handoffd-bundle/4";

/// The previous format, still readable: its trace cost lacks the receiver's final spending.
pub const FORMAT_3: &str = "handoffd-bundle/3";

/// The format before that, still readable: without payload schemas.
pub const FORMAT_2: &str = "handoffd-bundle/2";

/// Instructions for a person who opens the bundle.
pub const README: &str = "README.md";
/// The manifest, with the hash of each other file.
pub const MANIFEST: &str = "manifest.json";
/// The exact bytes of the records, one a line.
pub const RECORDS: &str = "records.jsonl";
/// For each record, in the same order, its hash and its inclusion proof.
pub const PROOFS: &str = "proofs.jsonl";
/// For each commitment of each record, in the same order, the state of the content.
pub const COMMITMENTS: &str = "commitments.jsonl";
/// The signed note over the tree to which all proofs lead.
pub const TREE_HEAD: &str = "tree-head.txt";
/// Present and former public keys for tree heads.
pub const KEYS: &str = "keys.json";
/// The answer of `GET /tasks/{taskId}/trace`.
pub const TRACE: &str = "trace.json";
pub const REPORT: &str = "report.html";

/// The kind of record whose content lists erased data.
pub const ERASED: &str = "ERASED";

/// The kind of record whose content is a contract.
pub const CONTRACT_PUT: &str = "CONTRACT_PUT";

/// The kind of record whose content is a payload schema with its migration notes.
pub const SCHEMA_PUT: &str = "PAYLOAD_SCHEMA_PUT";

/// Name and version of the software that writes the pages of a bundle.
pub const SOFTWARE: &str = concat!("handoffd ", env!("CARGO_PKG_VERSION"));

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleManifest {
    pub format: String,
    pub tenant: String,
    pub task_id: String,
    pub log_id: String,
    pub origin: String,
    /// Number of records in the log (not in the bundle).
    pub tree_size: u64,
    /// Root of the tree, `sha256:…`.
    pub root_hash: String,
    /// Time of creation, RFC 3339.
    pub created_at: String,
    pub software: String,
    /// Whether personal data was requested.
    pub personal_data: bool,
    pub records: u64,
    /// Commitments whose content is in the bundle.
    pub contents: u64,
    /// Commitments whose content was erased.
    pub erased: u64,
    pub files: Vec<FileLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileLine {
    pub name: String,
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The content of `keys.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    pub origin: String,
    pub keys: Vec<KeyLine>,
}

/// One public key of `keys.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyLine {
    /// The key, as `name+hash+base64`.
    pub key: String,
    pub created_at: String,
    pub retired_at: Option<String>,
}

/// One line of `proofs.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProofLine {
    pub leaf_index: i64,
    /// Hash of the record, `sha256:…`.
    pub record_hash: String,
    /// Hashes in hexadecimal, from the leaf up.
    pub inclusion_proof: Vec<String>,
}

/// One line of `commitments.jsonl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitmentLine {
    pub leaf_index: i64,
    pub kind: ContentKind,
    /// Ordinal among the record's commitments of that kind.
    pub ordinal: i64,
    /// The commitment, `sha256:…`.
    pub commitment: String,
    pub state: BundleContentState,
    /// The salt in hexadecimal; present with the content only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub salt: Option<String>,
    /// The file with the content.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// The data subject; present with the data only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject_id: Option<String>,
    /// The contract, as `id@version`; for a contract only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub contract: Option<String>,
    /// The payload schema, as `id@version`; for a payload schema only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload_schema: Option<String>,
}

impl CommitmentLine {
    /// Path of the file with the content.
    pub fn path(&self) -> String {
        let leaf = self.leaf_index;
        match self.kind {
            ContentKind::Message => format!("contents/{leaf}.json"),
            ContentKind::Contract => {
                format!("contracts/{}.json", self.contract.as_deref().unwrap_or_default())
            }
            ContentKind::PayloadSchema => {
                format!("schemas/{}.json", self.payload_schema.as_deref().unwrap_or_default())
            }
            ContentKind::Personal => format!("personal/{leaf}-{}.json", self.ordinal),
            ContentKind::Checkpoint => {
                let hash = &self.commitment;
                format!("checkpoints/{}.json", hash.strip_prefix("sha256:").unwrap_or(hash))
            }
        }
    }
}

/// The contract named by a record, as `id@version`.
pub fn contract_name(record: &Value) -> Option<String> {
    versioned(record.get("contract")?)
}

/// The payload schema named by a record, as `id@version`.
pub fn schema_name(record: &Value) -> Option<String> {
    versioned(record.get("payloadSchema")?)
}

fn versioned(named: &Value) -> Option<String> {
    let text = |name: &str| named.get(name).and_then(Value::as_str);
    Some(format!("{}@{}", text("id")?, text("version")?))
}

/// The registered payload schema named by a contract's document, as `id@version`.
pub fn schema_of_contract(contract: &Value) -> Option<String> {
    let named = contract.pointer("/payload/schema")?.as_str()?;
    named.strip_prefix("registry:").map(str::to_owned)
}

/// The kind of content a commitment covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentKind {
    Message,
    /// The content of a record that registered a contract.
    Contract,
    /// The content of a record that registered a payload schema.
    PayloadSchema,
    Personal,
    Checkpoint,
}

impl ContentKind {
    /// The kind of a record's own content, by the record's kind.
    pub fn of_record(kind: &str) -> Self {
        match kind {
            CONTRACT_PUT => Self::Contract,
            SCHEMA_PUT => Self::PayloadSchema,
            _ => Self::Message,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BundleContentState {
    /// The bundle contains the content.
    Kept,
    /// The content was erased; a record of the bundle lists it.
    Erased,
    /// Personal data that was not requested.
    Withheld,
    /// A checkpoint that the store no longer keeps.
    NotKept,
    /// The archive lost or damaged the content, or the store does not know it.
    Unavailable,
}

/// The data listed by an `ERASED` record's content: leaf index and ordinal (−1 for the record's own content).
pub fn erased_slots(list: &Value) -> Vec<(i64, i64)> {
    let items = |name: &str| list.get(name).and_then(Value::as_array).into_iter().flatten();
    let contents = items("contents").filter_map(|leaf| Some((leaf.as_i64()?, -1)));
    let data = items("personalData")
        .filter_map(|slot| Some((slot.get(0)?.as_i64()?, slot.get(1)?.as_i64()?)));
    contents.chain(data).collect()
}

/// Renders the HTML report.
pub fn page(trace: &Value, messages: &[Value], manifest: &BundleManifest, note: &str) -> String {
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

/// A handoff's message for the report, which finds it by its `handoffId`.
pub fn message_of(handoff_id: Option<&str>, mut message: Value) -> Value {
    if let (Some(id), Some(object)) = (handoff_id, message.as_object_mut()) {
        object.entry("handoffId").or_insert_with(|| id.into());
    }
    message
}

/// Renders the README for a reader new to the product.
pub fn readme(manifest: &BundleManifest) -> String {
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
