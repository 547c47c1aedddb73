//! Verifies an exported log with the verifier for databases: each line replaces a row.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{FORMAT, LogContentState, LogHeader, PartLine, RecordLine};
use crate::bundle::open::{MAX_WHOLE, ReadError};
use crate::bundle::read::{
    StatedHead, VerifyOptions, check_times, parse_head, public_keys, signer,
};
use crate::bundle::report::BundleDefect;
use crate::commitment::Codec;
use crate::verify::{LogEntry, RemainingContent, TrustedHead, Verifier};

/// First bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The result of verifying an exported log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogReport {
    /// The tenant that owns the log.
    pub tenant: String,
    pub origin: String,
    /// Number of records by the signed tree head.
    pub tree_size: u64,
    /// Number of records read.
    pub records: u64,
    /// Contents that open their commitments.
    pub contents: u64,
    /// Contents erased according to a record.
    pub erased: u64,
    /// Personal data left out of the export.
    pub withheld: u64,
    /// The key that signed the tree head, as `name+hash+base64`.
    pub signed_by: Option<String>,
    /// Whether the caller supplied that key; otherwise it came from the file.
    pub key_given: bool,
    /// Tree heads kept elsewhere that match the log.
    pub tree_heads: u64,
    /// The first defect; `None` for an intact log.
    pub first_fault: Option<BundleDefect>,
}

/// Whether the bytes begin with a zstd frame.
#[must_use]
pub fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(&ZSTD)
}

/// Verifies an exported log, compressed or not; defects are in the report. `progress` receives the number of records
/// read so far, and the expected number.
///
/// # Errors
/// [`ReadError`] where the file cannot be read.
pub fn verify_log(
    path: &Path,
    options: &VerifyOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<LogReport, ReadError> {
    let mut lines = open(path)?;
    let mut report = LogReport::default();
    report.first_fault = judge(&mut lines, options, &mut report, progress).err();
    Ok(report)
}

fn open(path: &Path) -> Result<LogLines, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    let packed = is_zstd(file.fill_buf().map_err(io)?);
    let reader: Box<dyn BufRead> = if packed {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(file).map_err(io)?))
    } else {
        Box::new(file)
    };
    Ok(LogLines { reader })
}

/// Passes each record of an exported log with its content, if present, to the caller, without verification. Returns
/// the tenant.
///
/// # Errors
/// [`ReadError`] where the file cannot be read; a [`BundleDefect`] where a line is not in the format.
pub fn read_log(
    path: &Path,
    mut visit: impl FnMut(&Value, Option<&Value>),
) -> Result<Result<String, BundleDefect>, ReadError> {
    let mut lines = open(path)?;
    let mut read = || {
        let first = lines.next()?.ok_or_else(|| BundleDefect::damaged("it is empty"))?;
        let head: LogHeader = serde_json::from_slice(&first)
            .map_err(|err| BundleDefect::damaged(format!("the first line: {err}")))?;
        if head.format != FORMAT {
            let detail = format!("the log is of form {}, this version reads {FORMAT}", head.format);
            return Err(BundleDefect::new("manifest", detail));
        }
        let mut leaf = 0;
        while let Some(bytes) = lines.next()? {
            let broken =
                |err: serde_json::Error| BundleDefect::at(leaf, "damaged", err.to_string());
            let line: RecordLine<'_> = serde_json::from_slice(&bytes).map_err(broken)?;
            let record: Value = serde_json::from_str(line.record.get()).map_err(broken)?;
            let content = line.content.as_ref().and_then(|part| part.value);
            let content = content.map(|value| serde_json::from_str(value.get())).transpose();
            visit(&record, content.map_err(broken)?.as_ref());
            leaf += 1;
        }
        Ok(head.tenant)
    };
    Ok(read())
}

fn judge(
    lines: &mut LogLines,
    options: &VerifyOptions,
    report: &mut LogReport,
    progress: &dyn Fn(u64, u64),
) -> Result<(), BundleDefect> {
    let first = lines.next()?.ok_or_else(|| BundleDefect::damaged("it is empty"))?;
    let head: LogHeader = serde_json::from_slice(&first)
        .map_err(|err| BundleDefect::damaged(format!("the first line: {err}")))?;
    if head.format != FORMAT {
        let detail = format!("the log is of form {}, this version reads {FORMAT}", head.format);
        return Err(BundleDefect::new("manifest", detail));
    }
    report.tenant.clone_from(&head.tenant);
    report.origin.clone_from(&head.origin);
    report.tree_size = head.tree_size;
    let kept = check_heads(&head, options, report)?;
    let mut verifier = Verifier::against(head.log_id.clone(), kept).of_tenant(&head.tenant);
    let mut last = Vec::new();
    let read = read(lines, &head, &mut verifier, &mut last, progress);
    // A fault in the records comes before the error that ended the reading after them.
    if verifier.report().first_fault.is_none() {
        read?;
    }
    let size = i64::try_from(head.tree_size).unwrap_or(i64::MAX);
    let found = verifier.finish(size, &last, None);
    report.records = found.records;
    report.contents = found.contents;
    report.erased = found.erased;
    report.withheld = found.withheld;
    report.tree_heads = found.tree_heads;
    if let Some(fault) = found.first_fault {
        return Err(BundleDefect::at(fault.leaf_index, fault.fault, fault.detail));
    }
    if found.root.as_ref() != Some(&head.root_hash) {
        let detail = "the records have another root than the signed tree head: this one or one before it was rewritten, with all hashes after it";
        return Err(BundleDefect::at(size - 1, "rewrite", detail));
    }
    Ok(())
}

/// Checks the signature of the log's tree head and of the trusted heads; returns the trusted heads.
fn check_heads(
    head: &LogHeader,
    options: &VerifyOptions,
    report: &mut LogReport,
) -> Result<Vec<TrustedHead>, BundleDefect> {
    let stated = StatedHead {
        log_id: &head.log_id,
        origin: &head.origin,
        size: head.tree_size,
        root: &head.root_hash,
    };
    let (note, own) = parse_head(&head.tree_head, stated)?;
    let keys = public_keys(&head.keys)?;
    let trusted = if options.keys.is_empty() { &keys } else { &options.keys };
    report.key_given = !options.keys.is_empty();
    report.signed_by = Some(signer(&note, &own, trusted)?.to_string());
    check_times(&head.keys)?;
    options
        .tree_heads
        .iter()
        .map(|(note, kept)| {
            if kept.origin != head.origin {
                let detail = format!("a kept tree head is of log {}", kept.origin);
                return Err(BundleDefect::new("foreign", detail));
            }
            signer(note, kept, trusted)?;
            Ok(TrustedHead { size: kept.size, root: kept.root })
        })
        .collect()
}

/// Passes each record to the verifier; sets `last` to the hash stated by the last record.
fn read(
    lines: &mut LogLines,
    head: &LogHeader,
    verifier: &mut Verifier,
    last: &mut Vec<u8>,
    progress: &dyn Fn(u64, u64),
) -> Result<(), BundleDefect> {
    for leaf in 0.. {
        let Some(bytes) =
            lines.next().map_err(|fault| BundleDefect { leaf_index: Some(leaf), ..fault })?
        else {
            break;
        };
        let line: RecordLine<'_> = serde_json::from_slice(&bytes)
            .map_err(|err| BundleDefect::at(leaf, "damaged", format!("its line: {err}")))?;
        let hash = line.record_hash.strip_prefix("sha256:").and_then(|hash| hex::decode(hash).ok());
        *last = hash.unwrap_or_default();
        take(&line, leaf, last, verifier);
        let parts = line.content.iter().map(|part| (part, "content"));
        for (part, name) in parts.chain(line.personal.iter().map(|part| (part, "personal-data"))) {
            if let Some((fault, detail)) = misfit(part, head, name) {
                verifier.beside(leaf, fault, detail.to_owned());
            }
        }
        progress(verifier.report().records, head.tree_size);
    }
    Ok(())
}

/// The members of a record that a database has as columns.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RecordColumns {
    kind: String,
    task_id: Option<String>,
    handoff_id: Option<String>,
    time: String,
}

fn take(line: &RecordLine<'_>, leaf: i64, hash: &[u8], verifier: &mut Verifier) {
    let columns: RecordColumns = serde_json::from_str(line.record.get()).unwrap_or_default();
    let time = OffsetDateTime::parse(&columns.time, &Rfc3339).ok();
    let micros = time.and_then(|time| i64::try_from(time.unix_timestamp_nanos() / 1_000).ok());
    let content_salt = line.content.as_ref().map(salt);
    let salts: Vec<Vec<u8>> = line.personal.iter().map(salt).collect();
    verifier.entry(&LogEntry {
        leaf_index: leaf,
        hash,
        kind: &columns.kind,
        task_id: columns.task_id.as_deref(),
        handoff_id: columns.handoff_id.as_deref(),
        recorded_at: micros.unwrap_or(i64::MIN),
        body: line.record.get().as_bytes(),
        content: line
            .content
            .as_ref()
            .zip(content_salt.as_ref())
            .map(|(part, salt)| kept(part, salt)),
        personal: line
            .personal
            .iter()
            .zip(&salts)
            .map(|(part, salt)| (part.ordinal.unwrap_or(-1), kept(part, salt)))
            .collect(),
    });
}

fn salt(part: &PartLine<'_>) -> Vec<u8> {
    part.salt.as_ref().and_then(|salt| hex::decode(salt).ok()).unwrap_or_default()
}

/// A part without salt or value opens no commitment.
fn kept<'a>(part: &'a PartLine<'a>, salt: &'a [u8]) -> RemainingContent<'a> {
    match part.state {
        LogContentState::Kept => RemainingContent::Whole(
            salt,
            Codec::Raw,
            part.value.map_or(b"", |value| value.get().as_bytes()),
        ),
        LogContentState::Withheld => RemainingContent::Withheld,
        LogContentState::Erased => RemainingContent::Gone,
        LogContentState::ColdMissing | LogContentState::ColdDamaged => RemainingContent::Lost,
    }
}

/// A contradiction between a line's state and its content, beyond the commitments.
fn misfit(
    part: &PartLine<'_>,
    head: &LogHeader,
    name: &'static str,
) -> Option<(&'static str, &'static str)> {
    let personal = name == "personal-data";
    match part.state {
        LogContentState::Kept if personal && !head.personal_data => {
            Some((name, "personal data that the first line does not speak of"))
        }
        LogContentState::Withheld if !personal || head.personal_data => {
            Some((name, "it is withheld, and the first line does not say so"))
        }
        LogContentState::ColdMissing => {
            Some(("cold-missing", "the segment with its content was not in the archive"))
        }
        LogContentState::ColdDamaged => {
            Some(("cold-damaged", "the segment with its content was damaged"))
        }
        state
            if state != LogContentState::Kept && (part.salt.is_some() || part.value.is_some()) =>
        {
            Some((name, "a salt or a value is present, and the content is said to be gone"))
        }
        _ => None,
    }
}

/// Reads the file line by line.
struct LogLines {
    reader: Box<dyn BufRead>,
}

impl LogLines {
    /// The next line without its newline.
    fn next(&mut self) -> Result<Option<Vec<u8>>, BundleDefect> {
        let cut =
            || BundleDefect::new("truncation", "the file ends within a line: its end was cut off");
        let mut line = Vec::new();
        let read = (&mut self.reader).take(MAX_WHOLE).read_until(b'\n', &mut line);
        read.map_err(|err| match err.kind() {
            ErrorKind::UnexpectedEof => cut(),
            _ => BundleDefect::damaged(err.to_string()),
        })?;
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) if line.len() as u64 + 1 == MAX_WHOLE => {
                Err(BundleDefect::damaged(format!("a line has more than {MAX_WHOLE} bytes")))
            }
            Some(_) => Err(cut()),
        }
    }
}
