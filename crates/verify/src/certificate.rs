//! An erasure's certificate: each of its members against the record of the erasure's end, and the record against the receipt.

use handoffd_domain::canonical;
use handoffd_evidence::commitment::{CommitmentSubject, commit, hash_text};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::verify::record;
use serde_json::Value;

/// Members that bind the certificate to its record, and are judged by the receipt or the commitment.
const BINDING: [&str; 3] = ["receipt", "record", "subjectSalt"];

/// Each member of a certificate with the place of the same fact in the record. `held` and `requestedAt` are in records since 0.4.
const SAME: [(&str, &str); 9] = [
    ("/erasureId", "/erasure/id"),
    ("/scope", "/erasure/scope"),
    ("/subjectCommitment", "/erasure/subjectCommitment"),
    ("/erased/personalData", "/erasure/data"),
    ("/erased/contents", "/erasure/contents"),
    ("/erased/checkpoints", "/erasure/checkpoints"),
    ("/reason", "/reason"),
    ("/erasedAt", "/time"),
    ("/held", "/erasure/held"),
];

/// The time of the request in both documents.
const REQUESTED: (&str, &str) = ("/requestedAt", "/erasure/requestedAt");

/// Whether a document is an erasure's certificate.
pub(crate) fn is_certificate(document: &Value) -> bool {
    document.get("erasureId").is_some() || document.get("subjectCommitment").is_some()
}

/// Compares a certificate with its record. `Ok` lists the members that the record does not state: it was written by a release
/// before 0.4.
///
/// # Errors
/// A sentence that names the first member that differs, or that nothing binds.
pub(crate) fn judge(certificate: &Value, leaf: &Hash) -> Result<Vec<String>, String> {
    let stated = certificate.get("record").ok_or(
        "the certificate has no `record`, so nothing binds its members: fetch it again with \
         GET /data-subjects/{subjectId}/erasures/{erasureId}",
    )?;
    let record = record::record(&canonical::to_vec(stated), leaf)
        .map_err(|_| "`record` does not hash to the receipt's recordHash")?
        .body;
    if record.get("kind").and_then(Value::as_str) != Some("ERASURE_COMPLETED") {
        return Err("the receipt is not of an ERASURE_COMPLETED record".to_owned());
    }
    if certificate.get("status").and_then(Value::as_str) != Some("COMPLETED") {
        return Err("`status` is not COMPLETED, and the record says that it is".to_owned());
    }
    let mut unstated = Vec::new();
    for (member, place) in SAME.into_iter().chain([REQUESTED]) {
        let (says, recorded) = (certificate.pointer(member), record.pointer(place));
        match (says, recorded) {
            (Some(says), Some(recorded)) if says == recorded => {}
            (_, None) if ["/held", REQUESTED.0].contains(&member) => {
                unstated.push(member.to_owned());
            }
            (says, recorded) => {
                let told = |value: Option<&Value>| {
                    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
                };
                return Err(format!(
                    "`{member}` is {} in the certificate and {} in the record",
                    told(says),
                    told(recorded)
                ));
            }
        }
    }
    person(certificate)?;
    match unknown(certificate) {
        Some(member) => Err(format!("`{member}` is a member that no record binds")),
        None => Ok(unstated),
    }
}

/// Whether the certificate's id of the person opens its commitment.
fn person(certificate: &Value) -> Result<(), String> {
    let text = |name: &str| certificate.get(name).and_then(Value::as_str);
    let salt = text("subjectSalt").and_then(from_hex);
    let (Some(id), Some(salt)) = (text("subjectId"), salt) else {
        return Err(
            "`subjectId` and `subjectSalt` (32 hexadecimal digits) do not both stand in it"
                .to_owned(),
        );
    };
    let made = hash_text(&commit(CommitmentSubject::DataSubject, &salt, id.as_bytes()));
    if text("subjectCommitment") == Some(made.as_str()) {
        Ok(())
    } else {
        Err("`subjectId` and `subjectSalt` do not open `subjectCommitment`: it is of another person".to_owned())
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// The pointer of the first member that is none of those judged above.
fn unknown(certificate: &Value) -> Option<String> {
    let known = |pointer: &str| {
        ["/status", "/subjectId", REQUESTED.0].contains(&pointer)
            || SAME.iter().any(|(member, _)| *member == pointer)
    };
    let members = certificate.as_object()?;
    for (name, value) in members {
        let pointer = format!("/{name}");
        if name == "erased" {
            let inner = value.as_object()?.keys().map(|name| format!("{pointer}/{name}"));
            if let Some(found) = inner.into_iter().find(|pointer| !known(pointer)) {
                return Some(found);
            }
        } else if !BINDING.contains(&name.as_str()) && !known(&pointer) {
            return Some(pointer);
        }
    }
    None
}
