//! Untrusted input in place of a bundle, and the verifier's evaluation of proofs. `tests/api/bundle.rs` tampers with
//! a real bundle.

use std::io::Write;

use sha2::{Digest, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::path::root_of;
use super::{ReadError, VerifyOptions, verify};
use crate::merkle::{self, Frontier, Hash, Nodes, node_hash};

struct Leaves(Vec<Hash>);

impl Nodes for Leaves {
    fn node(&self, level: u32, index: u64) -> Option<Hash> {
        if level == 0 {
            return self.0.get(usize::try_from(index).ok()?).copied();
        }
        let (left, right) =
            (self.node(level - 1, 2 * index)?, self.node(level - 1, 2 * index + 1)?);
        Some(node_hash(&left, &right))
    }
}

#[test]
fn every_path_of_small_trees_leads_to_the_root_and_to_no_other_place() {
    for size in 1..=33_u64 {
        let leaves: Vec<Hash> = (0..size).map(|leaf| Sha256::digest([leaf as u8]).into()).collect();
        let mut tree = Frontier::default();
        for leaf in &leaves {
            tree.push(*leaf, |_, _, _| {});
        }
        let nodes = Leaves(leaves.clone());
        for index in 0..size {
            let path = merkle::inclusion(&nodes, index, size).unwrap();
            let leaf = leaves[index as usize];
            assert_eq!(root_of(leaf, index, size, &path), Some(tree.root()), "{index} of {size}");
            for other in (0..size).filter(|other| *other != index) {
                assert_ne!(root_of(leaf, other, size, &path), Some(tree.root()));
            }
            assert_eq!(root_of(leaf, size, size, &path), None);
            let longer = [&path[..], &[[0; 32]]].concat();
            assert_ne!(root_of(leaf, index, size, &longer), Some(tree.root()));
        }
    }
}

/// A zip of these files.
fn zip(files: &[(&str, &[u8])]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut zip = ZipWriter::new(file.reopen().unwrap());
    for (name, bytes) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
    file
}

#[test]
fn what_is_no_bundle_is_refused_by_name() {
    for (files, fault) in [
        (&[][..], "missing"),
        (&[("manifest.json", &b"{}"[..])], "manifest"),
        (&[("../../etc/passwd", b"x")], "surplus"),
        (&[("/manifest.json", b"{}")], "surplus"),
        (&[("contents/../x.json", b"{}")], "surplus"),
        (&[("contents/1.json/", b"")], "surplus"),
        (&[("checkpoints/short.json", b"{}")], "surplus"),
    ] {
        let file = zip(files);
        let report = verify(file.path(), &VerifyOptions::default()).unwrap();
        assert_eq!(report.first_fault.unwrap().fault, fault, "{files:?}");
    }
}

#[test]
fn two_files_of_one_name_are_refused() {
    let file = zip(&[("README.md", b"one"), ("README.MD", b"two")]);
    let mut bytes = std::fs::read(file.path()).unwrap();
    let second = bytes.windows(9).rposition(|name| name == b"README.MD").unwrap();
    bytes[second..second + 9].copy_from_slice(b"README.md");
    let first = bytes.windows(9).position(|name| name == b"README.MD").unwrap();
    bytes[first..first + 9].copy_from_slice(b"README.md");
    std::fs::write(file.path(), bytes).unwrap();
    let report = verify(file.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.first_fault.unwrap().fault, "damaged");
}

#[test]
fn more_than_a_manifest_may_have_is_not_read() {
    let bomb = vec![b' '; usize::try_from(super::open::MAX_WHOLE).unwrap() + 1];
    let file = zip(&[("manifest.json", &bomb)]);
    assert!(file.as_file().metadata().unwrap().len() < 1024 * 1024);
    let report = verify(file.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.first_fault.unwrap().fault, "damaged");
}

#[test]
fn what_is_no_zip_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"PK\x03\x04 and no more").unwrap();
    let said = verify(file.path(), &VerifyOptions::default());
    assert!(matches!(said, Err(ReadError::NotABundle { .. })));
    let said = verify(&file.path().join("nowhere"), &VerifyOptions::default());
    assert!(matches!(said, Err(ReadError::Io { .. })));
}
