//! A receipt: one record's inclusion in a log under a signed tree head (C2SP tlog-checkpoint, RFC 9162 §2.1.3). Of a document
//! around it, an erasure's certificate is held to the record member by member; of any other the report says what was not judged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handoffd_evidence::bundle::VerifyOptions;
use handoffd_evidence::commitment::hash_of_text;
use handoffd_evidence::merkle::{Hash, verify_inclusion};
use handoffd_evidence::note::{Note, NoteError, TreeHead};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::certificate;

/// A receipt that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The file is not a receipt.
    #[error("no receipt: {0}")]
    Malformed(String),
    /// The tree head is not a signed note.
    #[error("its tree head cannot be read: {0}")]
    TreeHead(#[from] NoteError),
}

/// The verdict on a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptReport {
    /// The log's origin, as signed.
    pub origin: String,
    /// The record's place in the log, from 0.
    pub leaf_index: u64,
    /// Number of records under the tree head.
    pub tree_size: u64,
    /// The given key that signed the tree head; absent where no key was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// Whether the caller gave a key; without one the signature was not checked.
    pub key_given: bool,
    /// Members of the document that nothing in it binds to the log: they were not judged. A fault of a certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<String>,
    /// The failed check, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// The members of a receipt, as the broker's answers have them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceiptMembers {
    log_id: String,
    leaf_index: u64,
    record_hash: String,
    tree_head: String,
    inclusion_proof: Vec<String>,
}

/// The receipt itself, or the one in an answer of the broker, with that answer.
fn find(text: &str) -> Option<(Value, Option<Value>)> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    if let Some(receipt) = value.get_mut("receipt") {
        return Some((receipt.take(), Some(value)));
    }
    value.get("treeHead").is_some().then_some((value, None))
}

/// Whether a text is a receipt, or an answer with one.
pub(crate) fn is_receipt(text: &str) -> bool {
    find(text).is_some_and(|(receipt, _)| receipt.get("inclusionProof").is_some())
}

fn hash(bytes: Vec<u8>) -> Option<Hash> {
    bytes.try_into().ok()
}

/// Verifies a receipt: the tree head is signed by one of the given keys of its log, agrees with the given tree heads of the same
/// size, and has the record.
///
/// # Errors
/// [`ReceiptError`]: the text is not a receipt. A check that fails is in the report.
pub fn verify_receipt(text: &str, options: &VerifyOptions) -> Result<ReceiptReport, ReceiptError> {
    let malformed = |why: &str| ReceiptError::Malformed(why.to_owned());
    let (value, document) =
        find(text).ok_or_else(|| malformed("no JSON object with `treeHead`"))?;
    let receipt: ReceiptMembers =
        serde_json::from_value(value).map_err(|err| malformed(&err.to_string()))?;
    let leaf = hash_of_text(&receipt.record_hash)
        .ok_or_else(|| malformed("`recordHash` is `sha256:` and 64 hexadecimal digits"))?;
    let proof = receipt
        .inclusion_proof
        .iter()
        .map(|step| STANDARD.decode(step).ok().and_then(hash))
        .collect::<Option<Vec<Hash>>>()
        .ok_or_else(|| malformed("`inclusionProof` holds hashes of 32 bytes in base64"))?;
    let note = Note::parse(&receipt.tree_head)?;
    let head = TreeHead::parse(&note.text)?;
    let mut report = ReceiptReport {
        origin: head.origin.clone(),
        leaf_index: receipt.leaf_index,
        tree_size: head.size,
        signed_by: None,
        key_given: !options.keys.is_empty(),
        not_judged: Vec::new(),
        fault: None,
    };
    report.fault = judge(&receipt, &note, &head, (&leaf, &proof), options, &mut report.signed_by);
    if report.fault.is_none()
        && let Some(document) = &document
    {
        match around(document, &leaf) {
            Ok(not_judged) => report.not_judged = not_judged,
            Err(why) => report.fault = Some(why),
        }
    }
    Ok(report)
}

/// Judges the document around a receipt; returns the members that nothing binds to the log.
fn around(document: &Value, leaf: &Hash) -> Result<Vec<String>, String> {
    if certificate::is_certificate(document) {
        return certificate::judge(document, leaf);
    }
    let members = document.as_object().into_iter().flatten();
    let others = members.filter(|(name, _)| *name != "receipt");
    Ok(others.map(|(name, _)| format!("/{name}")).collect())
}

fn judge(
    receipt: &ReceiptMembers,
    note: &Note,
    head: &TreeHead,
    (leaf, proof): (&Hash, &[Hash]),
    options: &VerifyOptions,
    signed_by: &mut Option<String>,
) -> Option<String> {
    if head.origin.rsplit('/').next() != Some(receipt.log_id.as_str()) {
        return Some(format!("the tree head is of {}, not of log {}", head.origin, receipt.log_id));
    }
    if !options.keys.is_empty() {
        let own = options.keys.iter().filter(|key| key.name() == head.origin);
        let judged: Vec<_> = own.map(|key| (key, note.verify(key))).collect();
        if let Some((key, _)) = judged.iter().find(|(_, verdict)| verdict.is_ok()) {
            *signed_by = Some(key.to_string());
        } else {
            let why = judged.into_iter().find_map(|(_, verdict)| verdict.err());
            let none = || format!("no given key is of {}", head.origin);
            return Some(why.map_or_else(none, |err| err.to_string()));
        }
    }
    for (_, kept) in &options.tree_heads {
        if kept.origin != head.origin {
            return Some(format!("foreign: a kept tree head is of log {}", kept.origin));
        }
        if kept.size == head.size && kept.root != head.root {
            return Some(format!("a saved tree head of {} records has another root", head.size));
        }
    }
    verify_inclusion(leaf, receipt.leaf_index, head.size, proof, &head.root)
        .err()
        .map(|err| err.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use handoffd_domain::canonical;
    use handoffd_evidence::commitment::{CommitmentSubject, commit, hash_text};
    use handoffd_evidence::merkle::node_hash;
    use handoffd_evidence::note::Signer;
    use serde_json::json;

    use super::*;

    const ORIGIN: &str = "handoffd/log-1";

    /// The receipt of the first of two records, and the key that signed.
    fn receipt() -> (Value, String) {
        let (leaf, other) = ([1; 32], [2; 32]);
        let signer = Signer::new(&[7; 32]);
        let head = TreeHead { origin: ORIGIN.to_owned(), size: 2, root: node_hash(&leaf, &other) };
        let receipt = json!({
            "logId": "log-1", "leafIndex": 0, "recordHash": format!("sha256:{}", "01".repeat(32)),
            "treeHead": signer.sign(&head).unwrap(), "inclusionProof": [STANDARD.encode(other)],
        });
        (receipt, signer.public(ORIGIN).unwrap().to_string())
    }

    fn with(key: &str) -> VerifyOptions {
        let keys = vec![handoffd_evidence::note::PublicKey::parse(key).unwrap()];
        VerifyOptions { keys, ..VerifyOptions::default() }
    }

    #[test]
    fn a_receipt_holds_by_itself_in_an_answer_and_under_its_key() {
        let (receipt, key) = receipt();
        for text in
            [receipt.to_string(), json!({ "status": "PENDING", "receipt": receipt }).to_string()]
        {
            let report = verify_receipt(&text, &VerifyOptions::default()).unwrap();
            assert_eq!((report.fault, report.signed_by, report.key_given), (None, None, false));
            let report = verify_receipt(&text, &with(&key)).unwrap();
            assert_eq!((report.fault, report.signed_by), (None, Some(key.clone())));
            assert!(report.key_given);
        }
    }

    #[test]
    fn each_changed_member_is_found() {
        let (receipt, key) = receipt();
        let stranger = Signer::new(&[8; 32]).public(ORIGIN).unwrap().to_string();
        let fault = |receipt: &Value, key: &str| {
            verify_receipt(&receipt.to_string(), &with(key)).unwrap().fault
        };
        assert!(fault(&receipt, &stranger).is_some(), "another key");
        for (name, value) in [
            ("leafIndex", json!(1)),
            ("leafIndex", json!(9)),
            ("recordHash", json!(format!("sha256:{}", "03".repeat(32)))),
            ("inclusionProof", json!([])),
            ("logId", json!("log-2")),
        ] {
            let mut changed = receipt.clone();
            changed[name] = value;
            assert!(fault(&changed, &key).is_some(), "{name}");
        }
        let mut changed = receipt.clone();
        let head = receipt["treeHead"].as_str().unwrap().replace("\n2\n", "\n3\n");
        changed["treeHead"] = json!(head);
        assert!(fault(&changed, &key).is_some(), "the tree head's size");
    }

    #[test]
    fn a_kept_tree_head_is_of_the_receipts_log_and_has_its_root() {
        let (receipt, _) = receipt();
        let note = Note::parse(receipt["treeHead"].as_str().unwrap()).unwrap();
        let head = TreeHead::parse(&note.text).unwrap();
        let other = TreeHead { root: [1; 32], ..head.clone() };
        let elsewhere = TreeHead { origin: "handoffd/log-2".to_owned(), ..head.clone() };
        for (kept, fault) in
            [(head, None), (other, Some("another root")), (elsewhere, Some("foreign"))]
        {
            let options = VerifyOptions {
                tree_heads: vec![(note.clone(), kept)],
                ..VerifyOptions::default()
            };
            let found = verify_receipt(&receipt.to_string(), &options).unwrap().fault;
            assert_eq!(found.is_some(), fault.is_some(), "{found:?}");
            assert!(found.is_none_or(|found| fault.is_some_and(|fault| found.contains(fault))));
        }
    }

    /// A certificate whose record is the first of two, as the broker hands it out.
    fn erased() -> Value {
        let salt = [9; 16];
        let person = hash_text(&commit(CommitmentSubject::DataSubject, &salt, b"ada"));
        let record = json!({
            "kind": "ERASURE_COMPLETED", "logId": "log-1", "time": "2026-11-28T12:00:00.000000Z",
            "reason": "DATA_SUBJECT_REQUEST",
            "erasure": {
                "id": "e-1", "scope": "messages", "subjectCommitment": person, "data": 3, "contents": 2,
                "checkpoints": 1, "held": 3, "requestedAt": "2026-11-28T11:00:00.000000Z",
            },
        });
        let leaf: Hash = handoffd_evidence::record::record_hash(&canonical::to_vec(&record));
        let other = [2; 32];
        let head = TreeHead { origin: ORIGIN.to_owned(), size: 2, root: node_hash(&leaf, &other) };
        json!({
            "erasureId": "e-1", "subjectId": "ada", "status": "COMPLETED", "scope": "messages",
            "reason": "DATA_SUBJECT_REQUEST", "subjectCommitment": person, "subjectSalt": "09".repeat(16),
            "held": 3, "erased": { "personalData": 3, "contents": 2, "checkpoints": 1 },
            "requestedAt": "2026-11-28T11:00:00.000000Z", "erasedAt": "2026-11-28T12:00:00.000000Z",
            "record": record,
            "receipt": {
                "logId": "log-1", "leafIndex": 0, "recordHash": hash_text(&leaf),
                "treeHead": Signer::new(&[7; 32]).sign(&head).unwrap(),
                "inclusionProof": [STANDARD.encode(other)],
            },
        })
    }

    /// Finding E4 of 0.3.0: only the receipt within was checked.
    #[test]
    fn each_changed_added_or_missing_member_of_a_certificate_is_found() {
        let certificate = erased();
        let judged =
            |document: &Value| verify_receipt(&document.to_string(), &VerifyOptions::default());
        let report = judged(&certificate).unwrap();
        assert_eq!((report.fault, report.not_judged), (None, Vec::new()));
        let mut pointers: Vec<String> =
            certificate.as_object().unwrap().keys().map(|name| format!("/{name}")).collect();
        pointers.retain(|pointer| !["/receipt", "/erased", "/record"].contains(&pointer.as_str()));
        for inner in [
            "/erased/personalData",
            "/erased/contents",
            "/erased/checkpoints",
            "/record/reason",
            "/record/erasure/data",
        ] {
            pointers.push(inner.to_owned());
        }
        for pointer in pointers {
            let mut changed = certificate.clone();
            let member = changed.pointer_mut(&pointer).unwrap();
            *member = if member.is_number() { json!(0) } else { json!("another") };
            assert!(judged(&changed).unwrap().fault.is_some(), "{pointer}");
        }
        let mut changed = certificate.clone();
        changed["erased"]["backups"] = json!(1);
        assert!(
            judged(&changed).unwrap().fault.is_some_and(|fault| fault.contains("/erased/backups"))
        );
        let mut changed = certificate.clone();
        changed["approvedBy"] = json!("the regulator");
        assert!(judged(&changed).unwrap().fault.is_some_and(|fault| fault.contains("/approvedBy")));
        for name in ["record", "subjectSalt", "erasedAt", "held", "status", "erased"] {
            let mut changed = certificate.clone();
            changed.as_object_mut().unwrap().remove(name);
            assert!(judged(&changed).unwrap().fault.is_some(), "without {name}");
        }
    }

    #[test]
    fn members_beside_a_receipt_are_named_as_not_judged() {
        let (receipt, _) = receipt();
        let answer = json!({ "status": "ACCEPTED", "handoffId": "h-1", "receipt": receipt });
        let report = verify_receipt(&answer.to_string(), &VerifyOptions::default()).unwrap();
        assert_eq!(
            (report.fault, report.not_judged),
            (None, vec!["/handoffId".to_owned(), "/status".to_owned()])
        );
    }

    #[test]
    fn what_is_no_receipt_is_told() {
        for text in ["", "{}", "[1]", r#"{"treeHead":"x"}"#, r#"{"receipt":null}"#] {
            assert!(verify_receipt(text, &VerifyOptions::default()).is_err(), "{text}");
        }
    }
}
