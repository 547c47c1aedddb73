//! A tenant's whole log as lines of JSON, written in one pass and verified offline in another, both in
//! constant memory. The first line says which log and carries its signed tree head; each line after it
//! is a record with what it commits to. `docs/evidence.md` says the same in words.

mod read;
mod write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::format::KeyLine;

pub use read::{LogReport, is_zstd, read_log, verify_log};
pub use write::{LogOrder, export_log};

/// Names this form; another form gets another name.
const FORMAT: &str = "handoffd-log/1";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    format: String,
    tenant: String,
    log_id: String,
    origin: String,
    /// Records in the file: all that the log had.
    tree_size: u64,
    /// `sha256:…`.
    root_hash: String,
    /// The signed note over them.
    tree_head: String,
    keys: Vec<KeyLine>,
    /// RFC 3339.
    created_at: String,
    software: String,
    /// Whether personal data was asked for.
    personal_data: bool,
}

/// A line for a record; its place in the file is its leaf index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RecordLine<'a> {
    /// `sha256:…`.
    record_hash: String,
    /// The very bytes that were hashed.
    #[serde(borrow)]
    record: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    content: Option<PartLine<'a>>,
    /// In the order of the record's commitments.
    #[serde(borrow, skip_serializing_if = "Vec::is_empty", default)]
    personal: Vec<PartLine<'a>>,
}

/// What a record commits to.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PartLine<'a> {
    /// The place among the record's personal data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ordinal: Option<i64>,
    state: State,
    /// In hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    salt: Option<String>,
    /// Whose personal data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    subject_id: Option<String>,
    /// The very bytes that were committed to.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    value: Option<&'a RawValue>,
}

/// What became of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// It is in the line.
    Kept,
    /// It is gone; a record of kind `ERASED` says so.
    Erased,
    /// Personal data that was not asked for.
    Withheld,
    /// The archive does not have its segment.
    ColdMissing,
    /// The archive has a damaged segment.
    ColdDamaged,
}
