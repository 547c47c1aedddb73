//! A tenant's whole log as lines of JSON, written in one pass and verified offline in another, both in constant
//! memory. The first line identifies the log and carries its signed tree head; each further line is a record with its
//! committed contents. `docs/evidence.md` documents the format.

mod read;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::format::KeyLine;

pub use read::{LogReport, is_zstd, read_log, verify_log};

/// Name of this format version.
pub const FORMAT: &str = "handoffd-log/1";

/// The first line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogHeader {
    pub format: String,
    pub tenant: String,
    pub log_id: String,
    pub origin: String,
    /// Number of records in the file, which is the whole log.
    pub tree_size: u64,
    /// Root of the tree, `sha256:…`.
    pub root_hash: String,
    /// The signed note over all records.
    pub tree_head: String,
    pub keys: Vec<KeyLine>,
    /// Time of creation, RFC 3339.
    pub created_at: String,
    pub software: String,
    /// Whether personal data was requested.
    pub personal_data: bool,
}

/// One record; the line number is its leaf index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordLine<'a> {
    /// Hash of the record, `sha256:…`.
    pub record_hash: String,
    /// The exact hashed bytes.
    #[serde(borrow)]
    pub record: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub content: Option<PartLine<'a>>,
    /// Personal data, in the order of the record's commitments.
    #[serde(borrow, skip_serializing_if = "Vec::is_empty", default)]
    pub personal: Vec<PartLine<'a>>,
}

/// One committed content of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartLine<'a> {
    /// Ordinal among the record's personal data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ordinal: Option<i64>,
    pub state: LogContentState,
    /// The salt in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub salt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject_id: Option<String>,
    /// The exact committed bytes.
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    pub value: Option<&'a RawValue>,
}

/// The state of a content in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogContentState {
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
