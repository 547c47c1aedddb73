//! One record and one content, each against its hash: the check that the log's verifier, bundles, traces and
//! blame share.

use serde_json::Value;

use crate::commitment::{Codec, CommitmentSubject, commit, hash_text, sha256, unpack};
use crate::merkle::Hash;
use handoffd_domain::canonical;

/// A record whose bytes were checked.
#[derive(Debug)]
pub struct CheckedRecord {
    /// The leaf hash of the bytes.
    pub hash: Hash,
    pub body: Value,
}

/// A defect of a record's bytes.
#[derive(Debug, thiserror::Error)]
pub enum RecordDefect {
    /// The bytes have another hash than the stated one.
    #[error("the bytes do not hash to the kept recordHash")]
    Hash,
    /// The bytes are not JSON.
    #[error("the bytes are not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The bytes are JSON in another form than RFC 8785.
    #[error("the bytes are not in canonical form")]
    Form,
}

impl RecordDefect {
    /// The kind of change, as [`super::LogDefect::fault`] names it.
    #[must_use]
    pub const fn fault(&self) -> &'static str {
        match self {
            Self::Hash => "flip",
            Self::Json(_) | Self::Form => "rewrite",
        }
    }
}

/// Checks the bytes of a record: they hash to `stated`, and are JSON in canonical form.
///
/// # Errors
/// [`RecordDefect`].
pub fn record(bytes: &[u8], stated: &[u8]) -> Result<CheckedRecord, RecordDefect> {
    let hash: Hash = sha256(&[&[0], bytes]);
    if hash[..] != *stated {
        return Err(RecordDefect::Hash);
    }
    let body: Value = serde_json::from_slice(bytes)?;
    if canonical::to_vec(&body) != bytes {
        return Err(RecordDefect::Form);
    }
    Ok(CheckedRecord { hash, body })
}

/// Whether a content opens a record's commitment (`sha256:…`).
#[must_use]
pub fn opens(expected: &str, subject: CommitmentSubject, salt: &[u8], content: &[u8]) -> bool {
    hash_text(&commit(subject, salt, content)) == expected
}

/// [`opens`] for a content as stored.
///
/// # Errors
/// A sentence with the reason.
pub fn opens_packed(
    expected: &str,
    subject: CommitmentSubject,
    (salt, codec, bytes): (&[u8], Codec, &[u8]),
) -> Result<(), String> {
    if opens(expected, subject, salt, &unpack(codec, bytes)?) {
        Ok(())
    } else {
        Err("the content does not open the record's commitment".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> Hash {
        sha256(&[&[0], bytes])
    }

    #[test]
    fn a_record_is_its_hash_and_its_canonical_form() {
        let good = br#"{"a":1,"b":2}"#;
        assert_eq!(record(good, &hash(good)).unwrap().body["b"], 2);
        assert_eq!(record(good, &[0; 32]).unwrap_err().fault(), "flip");
        for bad in [&br#"{"b":2,"a":1}"#[..], br#"{"a": 1}"#, b"{"] {
            assert_eq!(record(bad, &hash(bad)).unwrap_err().fault(), "rewrite");
        }
    }

    #[test]
    fn a_content_opens_its_own_commitment_only() {
        let subject = CommitmentSubject::Message;
        let expected = hash_text(&commit(subject, &[7], b"{}"));
        assert!(opens(&expected, subject, &[7], b"{}"));
        assert!(!opens(&expected, subject, &[8], b"{}"), "another salt");
        assert!(!opens(&expected, CommitmentSubject::Checkpoint, &[7], b"{}"), "another subject");
        assert_eq!(opens_packed(&expected, subject, (&[7], Codec::Raw, b"{}")), Ok(()));
        assert!(opens_packed(&expected, subject, (&[7], Codec::Raw, b"[]")).is_err());
    }
}
