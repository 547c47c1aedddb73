//! Salted commitments: a record names content by a hash that tells nothing once the salt is gone
//! (ruling X6), so content can be erased and the chain still verifies.

use std::cell::RefCell;

use bytes::Bytes;
use ring::digest::{Context, SHA256};

/// Length of a salt in bytes.
pub const SALT_LEN: usize = 16;

/// Contents from this size on, in bytes, are compressed before they are stored. Below it a frame saves some 200 bytes, and making it
/// takes a hundredth of the instructions of a handoff.
const COMPRESS_FROM: usize = 1024;

/// zstd's level for contents: the fastest that still halves JSON.
const ZSTD_LEVEL: i32 = 1;

/// The largest content that [`unpack`] will produce: a guard against a planted bomb.
pub const MAX_UNPACKED: usize = 64 * 1024 * 1024;

/// The kind of content a commitment covers. Part of the hashed bytes, so that one kind cannot pass for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitmentSubject {
    /// A handoff's message, or the content of a later record.
    Message,
    /// A task's saved state.
    Checkpoint,
    PersonalData,
    /// A whole submission, kept to recognise a replay.
    Submission,
    /// The id of a data subject, for an erasure or a legal hold.
    DataSubject,
}

impl CommitmentSubject {
    const fn tag(self) -> &'static [u8] {
        match self {
            Self::Message => b"handoffd/commitment/v1/message\0",
            Self::Checkpoint => b"handoffd/commitment/v1/checkpoint\0",
            Self::PersonalData => b"handoffd/commitment/v1/personal-data\0",
            Self::Submission => b"handoffd/commitment/v1/submission\0",
            Self::DataSubject => b"handoffd/commitment/v1/data-subject\0",
        }
    }
}

/// SHA-256 over a tag, the salt and the canonical content.
#[must_use]
pub fn commit(subject: CommitmentSubject, salt: &[u8], content: &[u8]) -> [u8; 32] {
    sha256(&[subject.tag(), &(salt.len() as u64).to_be_bytes(), salt, content])
}

/// SHA-256 over parts, one after another.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(part);
    }
    hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The coding of stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Canonical JSON, not compressed.
    Raw,
    /// One zstd frame.
    Zstd,
}

impl Codec {
    /// The name in the database column.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
        }
    }

    /// Parses a stored codec name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "raw" => Some(Self::Raw),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A content to be stored: committed, salted and packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedContent {
    /// [`SALT_LEN`] random bytes.
    pub salt: Vec<u8>,
    /// The commitment, by [`commit`].
    pub commitment: [u8; 32],
    /// The coding of `bytes`.
    pub codec: Codec,
    /// The packed content; clones share it.
    pub bytes: Bytes,
}

impl PackedContent {
    /// Commits to canonical content and packs it.
    #[must_use]
    pub fn new(subject: CommitmentSubject, salt: [u8; SALT_LEN], content: &[u8]) -> Self {
        let commitment = commit(subject, &salt, content);
        let packed = (content.len() >= COMPRESS_FROM)
            .then(|| compress(content))
            .flatten()
            .filter(|packed| packed.len() < content.len());
        let (codec, bytes) = match packed {
            Some(packed) => (Codec::Zstd, packed),
            None => (Codec::Raw, content.to_vec()),
        };
        Self { salt: salt.to_vec(), commitment, codec, bytes: bytes.into() }
    }
}

thread_local! {
    /// Compressor of each thread: building its tables takes as long as compressing one content.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> =
        RefCell::new(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok());
}

/// The bytes as [`Codec::Zstd`]; `None` where compression fails, and the bytes are stored raw.
#[must_use]
pub fn compress(content: &[u8]) -> Option<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| compressor.as_mut()?.compress(content).ok())
}

/// Unpacks stored bytes.
///
/// # Errors
/// A sentence when the bytes are not what the codec says.
pub fn unpack(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>, String> {
    match codec {
        Codec::Raw => Ok(bytes.to_vec()),
        Codec::Zstd => zstd::bulk::decompress(
            bytes,
            zstd::zstd_safe::get_frame_content_size(bytes)
                .ok()
                .flatten()
                .and_then(|size| usize::try_from(size).ok())
                .filter(|size| *size <= MAX_UNPACKED)
                .ok_or_else(|| "not a zstd frame of a known, bearable size".to_owned())?,
        )
        .map_err(|err| err.to_string()),
    }
}

/// `sha256:` and 64 hex digits.
#[must_use]
pub fn hash_text(hash: &[u8]) -> String {
    format!("sha256:{}", hex::encode(hash))
}

/// The hash that [`hash_text`] wrote; `None` for any other spelling.
#[must_use]
pub fn hash_of_text(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    hex::decode_to_slice(text.strip_prefix("sha256:")?, &mut hash).ok()?;
    (hash_text(&hash) == text).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_unpacks_to_what_was_committed(content in proptest::collection::vec(any::<u8>(), 0..2000), salt: [u8; 16]) {
            let part = PackedContent::new(CommitmentSubject::Message, salt, &content);
            let unpacked = unpack(part.codec, &part.bytes).unwrap();
            prop_assert_eq!(&unpacked, &content);
            prop_assert_eq!(commit(CommitmentSubject::Message, &part.salt, &unpacked), part.commitment);
        }
    }

    #[test]
    fn salt_kind_and_content_all_count() {
        let base = commit(CommitmentSubject::Message, &[1; 16], b"x");
        assert_ne!(base, commit(CommitmentSubject::Message, &[2; 16], b"x"));
        assert_ne!(base, commit(CommitmentSubject::Checkpoint, &[1; 16], b"x"));
        assert_ne!(base, commit(CommitmentSubject::Message, &[1; 16], b"y"));
    }

    #[test]
    fn repetitive_json_is_stored_small_and_rubbish_is_refused() {
        let content = r#"{"a":"bbbbbbbb"}"#.repeat(100);
        let part = PackedContent::new(CommitmentSubject::Message, [0; 16], content.as_bytes());
        assert_eq!(part.codec, Codec::Zstd);
        assert!(part.bytes.len() < content.len() / 4);
        assert!(unpack(Codec::Zstd, b"rubbish").is_err());
    }
}
