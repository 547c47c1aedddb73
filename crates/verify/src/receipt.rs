//! A receipt: one record's inclusion in a log under a signed tree head (C2SP tlog-checkpoint, RFC 9162 §2.1.3).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handoffd_core::bundle::VerifyOptions;
use handoffd_core::evidence::commitment::hash_of_text;
use handoffd_core::evidence::merkle::{Hash, verify_inclusion};
use handoffd_core::evidence::note::{Note, NoteError, TreeHead};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A receipt that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The file is no receipt.
    #[error("no receipt: {0}")]
    Malformed(String),
    /// The tree head is no signed note.
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

/// The receipt itself, or the one in the broker's answer to a submission.
fn find(text: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    if let Some(receipt) = value.get_mut("receipt") {
        return Some(receipt.take());
    }
    value.get("treeHead").is_some().then_some(value)
}

/// Whether a text is a receipt, or an answer with one.
pub(crate) fn is_receipt(text: &str) -> bool {
    find(text).is_some_and(|receipt| receipt.get("inclusionProof").is_some())
}

fn hash(bytes: Vec<u8>) -> Option<Hash> {
    bytes.try_into().ok()
}

/// Verifies a receipt: the tree head is signed by one of the given keys of its log, agrees with the given tree heads of the same
/// size, and has the record.
///
/// # Errors
/// [`ReceiptError`]: the text is no receipt. What does not hold is in the report.
pub fn verify_receipt(text: &str, options: &VerifyOptions) -> Result<ReceiptReport, ReceiptError> {
    let malformed = |why: &str| ReceiptError::Malformed(why.to_owned());
    let value = find(text).ok_or_else(|| malformed("no JSON object with `treeHead`"))?;
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
        fault: None,
    };
    report.fault = judge(&receipt, &note, &head, (&leaf, &proof), options, &mut report.signed_by);
    Ok(report)
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

    use handoffd_core::evidence::merkle::node_hash;
    use handoffd_core::evidence::note::Signer;
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
        let keys = vec![handoffd_core::evidence::note::PublicKey::parse(key).unwrap()];
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

    #[test]
    fn what_is_no_receipt_is_told() {
        for text in ["", "{}", "[1]", r#"{"treeHead":"x"}"#, r#"{"receipt":null}"#] {
            assert!(verify_receipt(text, &VerifyOptions::default()).is_err(), "{text}");
        }
    }
}
