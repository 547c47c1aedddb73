//! A segment: contents of old records, one zstd frame each, end to end, and a manifest beside it.
//!
//! ```text
//! {tenant}/{logId}/contents/{first leaf}-{last leaf}-{nonce}.seg    the frames, in log order
//! {tenant}/{logId}/contents/{first leaf}-{last leaf}-{nonce}.json   the manifest, RFC 8785
//! ```
//!
//! Leaf indexes have 20 digits, so that names sort as the log does. The nonce makes every name that
//! was ever written unlike any other: no put can overwrite what a reader needs, and a delete that
//! comes late, from a broker that stalled, cannot meet what another wrote since. The log's id keeps
//! two databases apart that share an archive.
//!
//! A frame is a whole zstd frame with its checksum: it is read alone by its range, and `zstd -dc`
//! reads a segment without this program. There is no shared dictionary: trained on contents, it would
//! hold fragments of contents that are erased later. Salts are not in a segment: they stay in the
//! database, and without its salt a content opens no commitment.

use std::collections::HashMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::commitment::{Codec, hash_text, unpack};
use handoffd_domain::canonical;
use handoffd_domain::ids::{ContentId, TenantId};

/// zstd level in segments: they are written once and kept for years.
const ZSTD_LEVEL: i32 = 9;

/// A content to be written into a segment, in log order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentItem {
    pub id: ContentId,
    /// Leaf index of the record.
    pub leaf_index: i64,
    /// The record's commitment to the content, `sha256:…`.
    pub commitment: String,
    /// The zstd frame.
    pub frame: Vec<u8>,
}

/// A content's location, as the manifest lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentEntry {
    pub content_id: String,
    /// Leaf index of the record.
    pub leaf_index: i64,
    /// Offset of the frame in the segment, in bytes.
    pub offset: u64,
    /// Length of the frame, in bytes.
    pub length: u64,
    /// The record's commitment to the content, `sha256:…`.
    pub commitment: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentManifest {
    /// Format version, 1.
    pub v: u32,
    /// The tenant that owns the log.
    pub tenant: String,
    pub log_id: String,
    /// Leaf index of the first record with a content in the segment.
    pub first_leaf: i64,
    /// Leaf index of the last such record.
    pub last_leaf: i64,
    /// The segment's object key.
    pub segment: String,
    /// Length of the segment, in bytes.
    pub length: u64,
    /// Hash of the segment, `sha256:…`.
    pub sha256: String,
    /// The frames, in log order, without gaps.
    pub contents: Vec<SegmentEntry>,
}

/// A segment with its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSegment {
    /// The list of frames.
    pub manifest: SegmentManifest,
    /// The frames, one after the other.
    pub bytes: Vec<u8>,
}

/// Packs a content into a frame.
///
/// # Errors
/// A sentence where zstd fails.
pub fn pack(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let content = unpack(codec, bytes)?;
    let mut packer = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|err| err.to_string())?;
    // A reader of the frame sees from the checksum whether a disk or a server changed it.
    packer.include_checksum(true).map_err(|err| err.to_string())?;
    packer.compress(&content).map_err(|err| err.to_string())
}

/// The folder of a log's segments.
#[must_use]
pub fn folder(tenant: &TenantId, log_id: &str) -> String {
    format!("{tenant}/{log_id}/contents")
}

/// The key of a segment's manifest.
#[must_use]
pub fn manifest_key(segment: &str) -> String {
    format!("{}.json", segment.strip_suffix(".seg").unwrap_or(segment))
}

/// The key of the segment to which an object (segment or manifest) belongs; `None` for any other object.
#[must_use]
pub fn segment_key(object: &str) -> Option<String> {
    let stem = object.strip_suffix(".seg").or_else(|| object.strip_suffix(".json"))?;
    Some(format!("{stem}.seg"))
}

impl ArchiveSegment {
    /// Joins items into a segment; `None` for an empty list. `nonce` is random.
    #[must_use]
    pub fn join(
        tenant: &TenantId,
        log_id: &str,
        nonce: [u8; 8],
        items: &[SegmentItem],
    ) -> Option<Self> {
        let (first, last) = (items.first()?.leaf_index, items.last()?.leaf_index);
        let mut bytes = Vec::with_capacity(items.iter().map(|item| item.frame.len()).sum());
        let mut contents = Vec::with_capacity(items.len());
        for item in items {
            contents.push(SegmentEntry {
                content_id: item.id.to_string(),
                leaf_index: item.leaf_index,
                offset: bytes.len() as u64,
                length: item.frame.len() as u64,
                commitment: item.commitment.clone(),
            });
            bytes.extend_from_slice(&item.frame);
        }
        let name = format!("{first:020}-{last:020}-{}", hex::encode(nonce));
        let manifest = SegmentManifest {
            v: 1,
            tenant: tenant.to_string(),
            log_id: log_id.to_owned(),
            first_leaf: first,
            last_leaf: last,
            segment: format!("{}/{name}.seg", folder(tenant, log_id)),
            length: bytes.len() as u64,
            sha256: hash_text(&Sha256::digest(&bytes)),
            contents,
        };
        Some(Self { manifest, bytes })
    }

    /// The segment's object key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.manifest.segment
    }

    /// Splits a segment into its items.
    ///
    /// # Errors
    /// A sentence where the bytes do not match the manifest.
    pub fn split(manifest: &SegmentManifest, bytes: &[u8]) -> Result<Vec<SegmentItem>, String> {
        if manifest.v != 1 {
            return Err(format!("manifest of version {}", manifest.v));
        }
        if hash_text(&Sha256::digest(bytes)) != manifest.sha256 {
            return Err("the bytes do not hash to what the manifest says".to_owned());
        }
        let mut end = 0;
        let mut items = Vec::with_capacity(manifest.contents.len());
        for entry in &manifest.contents {
            if entry.offset != end {
                return Err("frames do not stand end to end".to_owned());
            }
            end = entry.offset.saturating_add(entry.length);
            items.push(SegmentItem {
                id: ContentId::from_str(&entry.content_id).map_err(|err| err.to_string())?,
                leaf_index: entry.leaf_index,
                commitment: entry.commitment.clone(),
                frame: slice(bytes, entry.offset, entry.length)
                    .ok_or("a frame lies beyond the end")?
                    .to_vec(),
            });
        }
        if end != bytes.len() as u64 {
            return Err("bytes that no frame covers".to_owned());
        }
        Ok(items)
    }
}

impl SegmentManifest {
    /// Serialized form: RFC 8785 JSON.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        // A struct of texts and whole numbers always serialises.
        canonical::to_vec(&serde_json::to_value(self).unwrap_or_default())
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// A sentence where the bytes are no manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|err| err.to_string())
    }

    /// Leaf index and commitment by content id.
    #[must_use]
    pub fn leaves(&self) -> HashMap<&str, (i64, &str)> {
        self.contents
            .iter()
            .map(|entry| (entry.content_id.as_str(), (entry.leaf_index, entry.commitment.as_str())))
            .collect()
    }
}

/// The bytes of one frame; `None` where the range exceeds the segment.
#[must_use]
pub fn slice(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let from = usize::try_from(offset).ok()?;
    bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(leaf_index: i64, content: &[u8]) -> SegmentItem {
        SegmentItem {
            id: ContentId(uuid::Uuid::from_u128(leaf_index.unsigned_abs().into())),
            leaf_index,
            commitment: format!("sha256:{leaf_index}"),
            frame: pack(Codec::Raw, content).unwrap(),
        }
    }

    fn joined(items: &[SegmentItem]) -> ArchiveSegment {
        ArchiveSegment::join(&"t".parse().unwrap(), "log", [7; 8], items).unwrap()
    }

    proptest! {
        #[test]
        fn what_was_joined_splits_again(contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..20)) {
            let items: Vec<_> = (0..).zip(&contents).map(|(leaf, content)| item(leaf * 3, content)).collect();
            let segment = joined(&items);
            let manifest = SegmentManifest::parse(&segment.manifest.to_vec()).unwrap();
            prop_assert_eq!(&manifest, &segment.manifest);
            prop_assert_eq!(&ArchiveSegment::split(&manifest, &segment.bytes).unwrap(), &items);
            for (entry, content) in manifest.contents.iter().zip(&contents) {
                let frame = slice(&segment.bytes, entry.offset, entry.length).unwrap();
                prop_assert_eq!(&unpack(Codec::Zstd, frame).unwrap(), content);
            }
        }

        #[test]
        fn any_flipped_bit_of_a_segment_is_found(content in proptest::collection::vec(any::<u8>(), 1..300), place: prop::sample::Index, bit in 0..8u32) {
            let segment = joined(&[item(0, b"{}"), item(1, &content)]);
            let mut bytes = segment.bytes.clone();
            bytes[place.index(segment.bytes.len())] ^= 1 << bit;
            prop_assert!(ArchiveSegment::split(&segment.manifest, &bytes).is_err());
        }
    }

    #[test]
    fn names_say_the_range_and_manifests_stand_beside() {
        let items = [item(4, b"{\"a\":1}"), item(7, b"{\"b\":2}"), item(9, b"{}")];
        let segment = joined(&items);
        let name = "t/log/contents/00000000000000000004-00000000000000000009-0707070707070707";
        assert_eq!(segment.key(), format!("{name}.seg"));
        assert_eq!(manifest_key(segment.key()), format!("{name}.json"));
        assert_eq!(segment_key(&manifest_key(segment.key())).as_deref(), Some(segment.key()));
        assert_eq!(ArchiveSegment::join(&"t".parse().unwrap(), "log", [7; 8], &[]), None);
    }

    #[test]
    fn a_frame_with_a_flipped_byte_does_not_unpack() {
        let frame = pack(Codec::Raw, &b"some words ".repeat(40)).unwrap();
        let bad = (0..frame.len()).filter(|place| {
            let mut frame = frame.clone();
            frame[*place] ^= 0x10;
            unpack(Codec::Zstd, &frame).is_ok_and(|content| content == b"some words ".repeat(40))
        });
        // The header has bits that zstd does not read; content never comes out wrong.
        assert!(bad.count() < 3);
        let mut cut = frame.clone();
        cut.pop();
        assert!(unpack(Codec::Zstd, &cut).is_err());
    }
}
