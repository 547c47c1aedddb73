//! Verifies what handoffd hands to auditors, from the files alone: bundles, exported logs, receipts. No settings, no
//! database, no network.

mod certificate;
mod receipt;

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use handoffd_evidence::bundle::{
    BundleDefect, BundleReport, LogReport, ReadError, VerifyOptions, is_zstd, verify, verify_log,
};
use handoffd_evidence::note::{Note, TreeHead, split};
use serde_json::{Value, json};

pub use receipt::{ReceiptError, ReceiptReport, verify_receipt};

/// The verdict on one file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileReport {
    /// Whether everything in the file holds.
    pub ok: bool,
    /// The report as JSON, one object.
    pub json: Value,
    /// The report as text, one line or several.
    pub text: String,
}

/// A file that cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A bundle or an exported log that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A receipt that cannot be read.
    #[error("{0}: {1}")]
    Receipt(String, ReceiptError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Bundle,
    Log,
    Receipt,
}

/// The largest file that is looked at as a receipt, in bytes.
const MAX_RECEIPT: u64 = 1 << 20;

/// The kind of a file: one JSON object with a receipt's members is a receipt, other lines of JSON, compressed or not, an exported
/// log, and all else a bundle.
fn kind_of(path: &Path) -> FileKind {
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    if read.is_err() || !(start[0] == b'{' || is_zstd(&start)) {
        return FileKind::Bundle;
    }
    let small = std::fs::metadata(path).is_ok_and(|file| file.len() <= MAX_RECEIPT);
    let text = if small { std::fs::read_to_string(path).ok() } else { None };
    if text.is_some_and(|text| receipt::is_receipt(&text)) {
        FileKind::Receipt
    } else {
        FileKind::Log
    }
}

/// Verifies one file; `progress` gets the bytes or records read and their total.
///
/// # Errors
/// [`FileError`]: the file cannot be read.
pub fn verify_file(
    path: &Path,
    options: &VerifyOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<FileReport, FileError> {
    Ok(match kind_of(path) {
        FileKind::Bundle => of_bundle(path, &verify(path, options)?),
        FileKind::Log => of_log(path, &verify_log(path, options, progress)?),
        FileKind::Receipt => {
            let wrong = |err| FileError::Receipt(path.display().to_string(), err);
            let text = std::fs::read_to_string(path).map_err(|err| wrong(err.into()))?;
            of_receipt(path, &verify_receipt(&text, options).map_err(wrong)?)
        }
    })
}

fn of_bundle(path: &Path, report: &BundleReport) -> FileReport {
    let ok = report.first_fault.is_none();
    let json = json!({ "ok": ok, "bundle": path, "report": report });
    if let Some(defect) = &report.first_fault {
        return FileReport { ok, json, text: failed(path, defect) };
    }
    let (file, task, tenant, log) =
        (path.display(), &report.task_id, &report.tenant, &report.origin);
    let mut text = format!(
        "ok: {file}: task {task} of tenant {tenant}: {} records are in log {log} of {}, {} contents ({} erased, {} withheld)",
        report.records, report.tree_size, report.contents, report.erased, report.withheld,
    );
    text.push_str(&signer(report.signed_by.as_deref(), report.key_given));
    if !report.pages_compared {
        text.push_str("\nREADME.md and report.html were made by another version and not compared");
    }
    FileReport { ok, json, text }
}

fn of_log(path: &Path, report: &LogReport) -> FileReport {
    let ok = report.first_fault.is_none();
    let json = json!({ "ok": ok, "export": path, "report": report });
    if let Some(defect) = &report.first_fault {
        return FileReport { ok, json, text: failed(path, defect) };
    }
    let (file, tenant, log) = (path.display(), &report.tenant, &report.origin);
    let mut text = format!(
        "ok: {file}: log {log} of tenant {tenant}: {} records, {} contents ({} erased, {} withheld)",
        report.records, report.contents, report.erased, report.withheld,
    );
    if report.tree_heads > 0 {
        // Writing to a text cannot fail.
        let _ = write!(text, ", {} saved tree heads matched", report.tree_heads);
    }
    text.push_str(&signer(report.signed_by.as_deref(), report.key_given));
    FileReport { ok, json, text }
}

fn of_receipt(path: &Path, report: &ReceiptReport) -> FileReport {
    let ok = report.fault.is_none();
    let json = json!({ "ok": ok, "receipt": path, "report": report });
    let file = path.display();
    let text = match &report.fault {
        Some(fault) => format!("FAILED: {file}: record {}: {fault}", report.leaf_index),
        None => format!(
            "ok: {file}: record {} is among the {} of {}{}{}",
            report.leaf_index,
            report.tree_size,
            report.origin,
            match &report.signed_by {
                Some(key) => format!("\nsigned by the given key {key}"),
                None => "\nno key was given: who signed the tree head was not checked; give the log's key with --key"
                    .to_owned(),
            },
            if report.not_judged.is_empty() {
                String::new()
            } else {
                let members = report.not_judged.join(", ");
                format!("\nthe receipt alone was checked: nothing binds these members to the log: {members}")
            }
        ),
    };
    FileReport { ok, json, text }
}

fn failed(path: &Path, defect: &BundleDefect) -> String {
    let at = defect.leaf_index.map_or_else(String::new, |leaf| format!("record {leaf}: "));
    format!("FAILED: {}: {at}{}: {}", path.display(), defect.fault, defect.detail)
}

fn signer(signer: Option<&str>, given: bool) -> String {
    let signer = signer.unwrap_or("nobody");
    if given {
        return format!("\nsigned by the given key {signer}");
    }
    format!(
        "\nsigned by {signer}\nthat key came with the file: it shows that the file fits together, not who signed it; give the log's key with --key"
    )
}

/// Reads a file of tree heads: signed notes, one after the other.
///
/// # Errors
/// A sentence that names the file and what is wrong with it.
pub fn read_tree_heads(path: &Path) -> Result<Vec<(Note, TreeHead)>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|err| wrong(&err))?;
    let notes = split(&text).into_iter().map(|note| {
        let note = Note::parse(note).map_err(|err| wrong(&err))?;
        let head = TreeHead::parse(&note.text).map_err(|err| wrong(&err))?;
        Ok((note, head))
    });
    let notes = notes.collect::<Result<Vec<_>, String>>()?;
    if notes.is_empty() { Err(wrong(&"it holds no tree head")) } else { Ok(notes) }
}
