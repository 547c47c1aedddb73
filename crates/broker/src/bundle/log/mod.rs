//! A tenant's whole log as lines of JSON, written in one pass and verified offline in another, both in constant
//! memory. The first line identifies the log and carries its signed tree head; each further line is a record with its
//! committed contents. `docs/evidence.md` documents the format.

mod read;
mod write;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::format::KeyLine;

pub use read::{LogReport, is_zstd, read_log, verify_log};
pub use write::{LogExport, export_log};

/// Name of this format version.
const FORMAT: &str = "handoffd-log/1";

/// The first line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogHeader {
    format: String,
    tenant: String,
    log_id: String,
    origin: String,
    /// Number of records in the file, which is the whole log.
    tree_size: u64,
    /// Root of the tree, `sha256:…`.
    root_hash: String,
    /// The signed note over all records.
    tree_head: String,
    keys: Vec<KeyLine>,
    /// Time of creation, RFC 3339.
    created_at: String,
    software: String,
    /// Whether personal data was requested.
    personal_data: bool,
}

/// One record; the line number is its leaf index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RecordLine<'a> {
    /// Hash of the record, `sha256:…`.
    record_hash: String,
    /// The exact hashed bytes.
    #[serde(borrow)]
    record: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    content: Option<PartLine<'a>>,
    /// Personal data, in the order of the record's commitments.
    #[serde(borrow, skip_serializing_if = "Vec::is_empty", default)]
    personal: Vec<PartLine<'a>>,
}

/// One committed content of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PartLine<'a> {
    /// Ordinal among the record's personal data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ordinal: Option<i64>,
    state: LogContentState,
    /// The salt in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    salt: Option<String>,
    /// The data subject.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    subject_id: Option<String>,
    /// The exact committed bytes.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    value: Option<&'a RawValue>,
}

/// The state of a content in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LogContentState {
    /// The line contains the content.
    Kept,
    /// The content is gone; a record of kind `ERASED` lists it.
    Erased,
    /// Personal data that was not requested.
    Withheld,
    /// The archive lacks the content's segment.
    ColdMissing,
    /// The archive's segment is damaged.
    ColdDamaged,
}
