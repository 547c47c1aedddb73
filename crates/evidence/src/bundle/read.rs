//! `handoffd verify bundle.zip`: recomputes all contents of a bundle offline, trusting only signatures.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::format::{
    BundleManifest, COMMITMENTS, FORMAT, FORMAT_2, FORMAT_3, KEYS, KeyLine, Keys, MANIFEST, PROOFS,
    README, RECORDS, REPORT, SOFTWARE, TRACE, TREE_HEAD, page, readme,
};
use super::open::{OpenBundle, ReadError};
use super::report::{BundleDefect, BundleReport};
use super::walk::{BundleWalk, Trace, WalkState};
use crate::commitment::hash_text;
use crate::merkle::Hash;
use crate::note::{Note, PublicKey, TreeHead};

/// Trusted keys and tree heads for a verification.
#[derive(Debug, Default)]
pub struct VerifyOptions {
    /// Trusted keys, each under its log's origin. If empty, the bundle's own keys count.
    pub keys: Vec<PublicKey>,
    /// Tree heads kept elsewhere.
    pub tree_heads: Vec<(Note, TreeHead)>,
}

/// Verifies a bundle; defects are in the report.
///
/// # Errors
/// [`ReadError`] if the file cannot be read, or is not a zip.
pub fn verify(path: &Path, options: &VerifyOptions) -> Result<BundleReport, ReadError> {
    let mut bundle = OpenBundle::open(path)?;
    let mut report = BundleReport::default();
    report.first_fault = judge(&mut bundle, options, &mut report).err();
    Ok(report)
}

fn judge(
    bundle: &mut OpenBundle,
    options: &VerifyOptions,
    report: &mut BundleReport,
) -> Result<(), BundleDefect> {
    let names = bundle.names()?;
    let manifest: BundleManifest = json(bundle, MANIFEST, "manifest")?;
    if ![FORMAT, FORMAT_3, FORMAT_2].contains(&manifest.format.as_str()) {
        let detail = format!(
            "the bundle is of form {}, this version reads {FORMAT}, {FORMAT_3} and {FORMAT_2}",
            manifest.format
        );
        return Err(BundleDefect::new("manifest", detail));
    }
    report.task_id.clone_from(&manifest.task_id);
    report.tenant.clone_from(&manifest.tenant);
    report.origin.clone_from(&manifest.origin);
    report.tree_size = manifest.tree_size;
    compare_files(bundle, &names, &manifest)?;
    let note = String::from_utf8(bundle.whole(TREE_HEAD)?)
        .map_err(|_| BundleDefect::new("tree-head", "the tree head is not a text"))?;
    let root = check_head(bundle, &note, &manifest, options, report)?;
    check_records(bundle, &names, &manifest, root, report, &note)
}

fn json<T: serde::de::DeserializeOwned>(
    bundle: &mut OpenBundle,
    name: &str,
    fault: &'static str,
) -> Result<T, BundleDefect> {
    let bytes = bundle.whole(name)?;
    serde_json::from_slice(&bytes).map_err(|err| BundleDefect::new(fault, format!("{name}: {err}")))
}

/// Checks that the bundle has exactly the files of the manifest.
fn compare_files(
    bundle: &mut OpenBundle,
    names: &BTreeSet<String>,
    manifest: &BundleManifest,
) -> Result<(), BundleDefect> {
    let mut listed = BTreeSet::from([MANIFEST]);
    for file in &manifest.files {
        if !listed.insert(&file.name) {
            return Err(BundleDefect::new("manifest", format!("it lists {} twice", file.name)));
        }
        if !names.contains(&file.name) {
            return Err(BundleDefect::new("missing", format!("{} is missing", file.name)));
        }
        if bundle.digest(&file.name)? != (file.bytes, file.sha256.clone()) {
            return Err(BundleDefect::new("hash", format!("{} is not as it was", file.name)));
        }
    }
    match names.iter().find(|name| !listed.contains(name.as_str())) {
        Some(name) => Err(BundleDefect::new("surplus", format!("{name} is not in the manifest"))),
        None => Ok(()),
    }
}

/// Checks that a trusted key signed the tree head; returns its root.
fn check_head(
    bundle: &mut OpenBundle,
    text: &str,
    manifest: &BundleManifest,
    options: &VerifyOptions,
    report: &mut BundleReport,
) -> Result<Hash, BundleDefect> {
    let stated = StatedHead {
        log_id: &manifest.log_id,
        origin: &manifest.origin,
        size: manifest.tree_size,
        root: &manifest.root_hash,
    };
    let (note, head) = parse_head(text, stated)?;
    let keys: Keys = json(bundle, KEYS, "keys")?;
    let own = public_keys(&keys.keys)?;
    let trusted = if options.keys.is_empty() { &own } else { &options.keys };
    let signer = signer(&note, &head, trusted)?;
    report.key_given = !options.keys.is_empty();
    report.signed_by = Some(signer.to_string());
    if !own.contains(signer) {
        return Err(BundleDefect::new("keys", "keys.json lacks the key that signed the tree head"));
    }
    if keys.origin != head.origin {
        return Err(BundleDefect::new("keys", "keys.json is of another log"));
    }
    check_times(&keys.keys)?;
    for (kept, stated) in &options.tree_heads {
        if stated.origin != head.origin {
            let detail = format!("a kept tree head is of log {}", stated.origin);
            return Err(BundleDefect::new("foreign", detail));
        }
        self::signer(kept, stated, trusted)?;
        if stated.size == head.size {
            if stated.root != head.root {
                let detail = format!(
                    "a tree head kept elsewhere has another root over the same {} records: the log was shown in two versions",
                    head.size
                );
                return Err(BundleDefect::new("fork", detail));
            }
            report.tree_heads += 1;
        }
    }
    Ok(head.root)
}

/// The tree head as stated by a manifest or by the header of an exported log.
#[derive(Clone, Copy)]
pub(super) struct StatedHead<'a> {
    pub(super) log_id: &'a str,
    pub(super) origin: &'a str,
    pub(super) size: u64,
    /// The root, `sha256:…`.
    pub(super) root: &'a str,
}

/// Parses a tree head, which must equal the stated one. Does not check its signature.
pub(super) fn parse_head(
    text: &str,
    stated: StatedHead<'_>,
) -> Result<(Note, TreeHead), BundleDefect> {
    let malformed = |err: &dyn std::fmt::Display| BundleDefect::new("tree-head", err.to_string());
    let note = Note::parse(text).map_err(|err| malformed(&err))?;
    let head = TreeHead::parse(&note.text).map_err(|err| malformed(&err))?;
    let named = head.origin.rsplit('/').next() == Some(stated.log_id);
    let fits = (head.origin.as_str(), head.size, hash_text(&head.root).as_str())
        == (stated.origin, stated.size, stated.root);
    if named && fits {
        Ok((note, head))
    } else {
        Err(BundleDefect::new("tree-head", "the manifest speaks of another tree head"))
    }
}

pub(super) fn public_keys(lines: &[KeyLine]) -> Result<Vec<PublicKey>, BundleDefect> {
    lines
        .iter()
        .map(|line| {
            PublicKey::parse(&line.key).map_err(|err| BundleDefect::new("keys", err.to_string()))
        })
        .collect()
}

/// Checks that the times of the keys are times, RFC 3339.
pub(super) fn check_times(keys: &[KeyLine]) -> Result<(), BundleDefect> {
    let times = keys.iter().flat_map(|key| [Some(&key.created_at), key.retired_at.as_ref()]);
    match times.flatten().find(|time| OffsetDateTime::parse(time, &Rfc3339).is_err()) {
        Some(time) => Err(BundleDefect::new("keys", format!("a key has {time:?} for a time"))),
        None => Ok(()),
    }
}

/// The key that signed a tree head.
pub(super) fn signer<'k>(
    note: &Note,
    head: &TreeHead,
    keys: &'k [PublicKey],
) -> Result<&'k PublicKey, BundleDefect> {
    let mut why = format!("no key of {} was given", head.origin);
    for key in keys.iter().filter(|key| key.name() == head.origin) {
        match note.verify(key) {
            Ok(()) => return Ok(key),
            Err(err) => why = err.to_string(),
        }
    }
    Err(BundleDefect::new("signature", format!("the tree head of {} records: {why}", head.size)))
}

fn check_records(
    bundle: &mut OpenBundle,
    names: &BTreeSet<String>,
    manifest: &BundleManifest,
    root: Hash,
    report: &mut BundleReport,
    note: &str,
) -> Result<(), BundleDefect> {
    let text = String::from_utf8(bundle.whole(TRACE)?)
        .map_err(|_| BundleDefect::new("trace", "the trace is not a text"))?;
    let trace: Trace<'_> = serde_json::from_str(&text)
        .map_err(|err| BundleDefect::new("trace", format!("the trace: {err}")))?;
    if trace.task_id != manifest.task_id {
        return Err(BundleDefect::new("trace", "the trace is of another task"));
    }
    // The pages of an older form are not made any more.
    let ours = manifest.software == SOFTWARE && manifest.format == FORMAT;
    let (mut one, mut two, mut three) = (bundle.again()?, bundle.again()?, bundle.again()?);
    let mut records = one.lines(RECORDS)?;
    let mut proofs = two.lines(PROOFS)?;
    let mut commitments = three.lines(COMMITMENTS)?;
    let mut walk = BundleWalk {
        manifest,
        root,
        trace,
        report,
        files: bundle.again()?,
        messages: (ours && names.contains(REPORT)).then(Vec::new),
        named: BTreeSet::new(),
        seen: WalkState::default(),
    };
    while let Some(record) = records.next()? {
        let proof = proofs.next()?;
        let proof =
            proof.ok_or_else(|| BundleDefect::new("proof", "proofs.jsonl ends too early"))?;
        walk.record(&record, &proof, || commitments.next())?;
    }
    if proofs.next()?.is_some() {
        return Err(BundleDefect::new("drop", "there are more proofs than records"));
    }
    if commitments.next()?.is_some() {
        return Err(BundleDefect::new(
            "commitments",
            "there are more commitments than in the records",
        ));
    }
    walk.finish()?;
    let (named, messages) = (std::mem::take(&mut walk.named), walk.messages.take());
    let surplus = names.iter().find(|name| name.contains('/') && !named.contains(*name));
    if let Some(name) = surplus {
        return Err(BundleDefect::new("surplus", format!("no record commits to {name}")));
    }
    let counted = (report.records, report.contents, report.erased);
    if counted != (manifest.records, manifest.contents, manifest.erased) {
        return Err(BundleDefect::new("manifest", "the manifest counts otherwise"));
    }
    if ours {
        compare_pages(bundle, manifest, &text, messages.as_deref(), note)?;
        report.pages_compared = true;
    }
    Ok(())
}

/// Checks that the report and README match the evidence.
fn compare_pages(
    bundle: &mut OpenBundle,
    manifest: &BundleManifest,
    trace: &str,
    messages: Option<&[Value]>,
    note: &str,
) -> Result<(), BundleDefect> {
    let other =
        |name: &str| BundleDefect::new("page", format!("{name} is not what the evidence gives"));
    if bundle.whole(README)? != readme(manifest).as_bytes() {
        return Err(other(README));
    }
    let Some(messages) = messages else { return Ok(()) };
    let trace: Value = serde_json::from_str(trace).unwrap_or_default();
    if bundle.whole(REPORT)? != page(&trace, messages, manifest, note).as_bytes() {
        return Err(other(REPORT));
    }
    Ok(())
}
