//! Exports a log as lines.

use std::io::Write;

use serde_json::value::RawValue;

use super::WriteError;
use super::write::key_lines;
use crate::archive::Contents;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::bundle::format::{ERASED, SOFTWARE};
use handoffd_evidence::bundle::log::{FORMAT, LogContentState, LogHeader, PartLine, RecordLine};
use handoffd_evidence::commitment::{Codec, hash_text, unpack};
use handoffd_evidence::receipt::Notary;
use handoffd_store::store::cold::ColdError;
use handoffd_store::store::{ContentStorage, Store, StoreError, StoredPersonal, StoredRecord};

/// Records read at once: few, since each has its content.
const PAGE: i64 = 64;

/// Records read at once in the search for concurrent erasures.
const SCAN: i64 = 512;

/// The log to export, and its sources.
pub struct LogExport<'a> {
    /// Store of the records.
    pub store: &'a Store,
    /// Reader of the contents.
    pub contents: &'a Contents,
    /// Signs the tree head.
    pub notary: &'a Notary,
    /// The tenant that owns the log.
    pub tenant: &'a TenantId,
    /// Whether to include personal data.
    pub personal: bool,
    /// Current time.
    pub at: Micros,
    /// Receives the number of records written so far, and the total.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// Writes the log as of the call and returns its records; records appended later are left out.
///
/// # Errors
/// [`WriteError`]; [`WriteError::Moved`] where an erasure ran meanwhile: the output may contain erased data, so
/// discard it and begin again.
pub async fn export_log(order: &LogExport<'_>, out: &mut dyn Write) -> Result<u64, WriteError> {
    let LogExport { store, contents, notary, tenant, .. } = *order;
    let head = store.find_head(tenant).await?;
    let head = head.ok_or_else(|| StoreError::Refused(format!("tenant {tenant} has no log")))?;
    let size = head.tree.size();
    let first = LogHeader {
        format: FORMAT.to_owned(),
        tenant: tenant.to_string(),
        log_id: head.log_id.clone(),
        origin: notary.origin(&head.log_id),
        tree_size: size,
        root_hash: hash_text(&head.tree.root()),
        tree_head: notary.tree_head(&head.log_id, &head.tree),
        keys: key_lines(store, notary, &head.log_id).await?,
        created_at: order.at.rfc3339(),
        software: SOFTWARE.to_owned(),
        personal_data: order.personal,
    };
    put(out, &first)?;
    let (mut from, end) = (0, i64::try_from(size).unwrap_or(i64::MAX));
    while from < end {
        let page = contents.list_records(tenant, None, from, PAGE.min(end - from)).await?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in page.iter().filter(|record| record.leaf_index < end) {
            line(record, order.personal, out)?;
        }
        (order.progress)(u64::try_from(from).unwrap_or(0), size);
    }
    if erased_since(store, tenant, end).await? { Err(WriteError::Moved) } else { Ok(size) }
}

/// Whether a record beyond the end lists an erasure.
async fn erased_since(store: &Store, tenant: &TenantId, mut from: i64) -> Result<bool, StoreError> {
    loop {
        let page = store.list_records(tenant, None, from, SCAN, false).await?;
        let Some(last) = page.last() else { return Ok(false) };
        from = last.leaf_index + 1;
        if page.iter().any(|record| record.kind == ERASED) {
            return Ok(true);
        }
    }
}

fn put(out: &mut dyn Write, line: &impl serde::Serialize) -> Result<(), WriteError> {
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

fn line(record: &StoredRecord, personal: bool, out: &mut dyn Write) -> Result<(), WriteError> {
    let leaf = record.leaf_index;
    let content = match record.content.as_ref().map(|content| &content.kept) {
        None => None,
        Some(ContentStorage::Hot(salt, codec, bytes)) => {
            Some(LineContent::kept(leaf, salt, *codec, bytes)?)
        }
        Some(ContentStorage::Unavailable(ColdError::Away)) => return Err(WriteError::Away),
        Some(ContentStorage::Unavailable(ColdError::Missing)) => {
            Some(LineContent::absent(LogContentState::ColdMissing))
        }
        Some(ContentStorage::Unavailable(ColdError::Damaged)) => {
            Some(LineContent::absent(LogContentState::ColdDamaged))
        }
        Some(ContentStorage::Erased | ContentStorage::Purged | ContentStorage::Cold(_)) => {
            Some(LineContent::absent(LogContentState::Erased))
        }
    };
    let data = record.personal.iter().map(|datum| datum_of(leaf, datum, personal));
    let data = data.collect::<Result<Vec<_>, _>>()?;
    let data = data.iter().zip(&record.personal).map(|(shown, datum)| {
        let subject_id = shown.value.is_some().then(|| datum.subject_id.clone());
        PartLine { ordinal: Some(datum.ordinal), subject_id, ..shown.line() }
    });
    let body = embed(leaf, record.body.clone())?;
    put(
        out,
        &RecordLine {
            record_hash: hash_text(&record.hash),
            record: &body,
            content: content.as_ref().map(LineContent::line),
            personal: data.collect(),
        },
    )
}

fn datum_of(leaf: i64, datum: &StoredPersonal, personal: bool) -> Result<LineContent, StoreError> {
    match &datum.kept {
        None => Ok(LineContent::absent(LogContentState::Erased)),
        Some(_) if !personal => Ok(LineContent::absent(LogContentState::Withheld)),
        Some((salt, codec, bytes)) => LineContent::kept(leaf, salt, *codec, bytes),
    }
}

/// A content in the form of its line.
struct LineContent {
    state: LogContentState,
    salt: Option<String>,
    value: Option<Box<RawValue>>,
}

impl LineContent {
    const fn absent(state: LogContentState) -> Self {
        Self { state, salt: None, value: None }
    }

    fn kept(leaf: i64, salt: &[u8], codec: Codec, bytes: &[u8]) -> Result<Self, StoreError> {
        let value = unpack(codec, bytes).map_err(|_| unreadable(leaf))?;
        let value = Some(embed(leaf, value)?);
        Ok(Self { state: LogContentState::Kept, salt: Some(hex::encode(salt)), value })
    }

    fn line(&self) -> PartLine<'_> {
        PartLine {
            ordinal: None,
            state: self.state,
            salt: self.salt.clone(),
            subject_id: None,
            value: self.value.as_deref(),
        }
    }
}

/// JSON embedded in a line unchanged. Rejects bytes that would break the line; the broker never writes any.
fn embed(leaf: i64, bytes: Vec<u8>) -> Result<Box<RawValue>, StoreError> {
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\n'));
    text.and_then(|text| RawValue::from_string(text).ok()).ok_or_else(|| unreadable(leaf))
}

fn unreadable(leaf: i64) -> StoreError {
    StoreError::Refused(format!(
        "record {leaf}, or what it commits to, is not what a broker writes: run handoffd verify"
    ))
}
