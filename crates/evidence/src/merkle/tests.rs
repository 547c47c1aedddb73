use std::path::{Path, PathBuf};

use base64::Engine as _;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// All leaves in memory, and nothing clever: the tree by its definition.
struct Plain(Vec<Hash>);

impl Nodes for Plain {
    fn node(&self, level: u32, index: u64) -> Option<Hash> {
        let from = usize::try_from(index << level).ok()?;
        let leaves = self.0.get(from..from + (1 << level))?;
        Some(fold(leaves))
    }
}

fn fold(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        leaves => {
            let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
            node_hash(&fold(left), &fold(right))
        }
    }
}

fn leaves(count: u64) -> Vec<Hash> {
    (0..count).map(|n| Sha256::digest(n.to_be_bytes()).into()).collect()
}

fn grown(count: u64) -> Frontier {
    let mut frontier = Frontier::default();
    for leaf in leaves(count) {
        frontier.push(leaf, |_, _, _| {});
    }
    frontier
}

#[test]
fn the_frontier_has_the_root_of_the_whole_tree_at_every_size() {
    for count in 0..70 {
        let frontier = grown(count);
        assert_eq!(frontier.root(), fold(&leaves(count)), "{count} leaves");
        assert_eq!(Frontier::parse(&frontier.to_bytes()), Some(frontier));
    }
}

#[test]
fn bytes_that_are_no_frontier_are_refused() {
    let bytes = grown(6).to_bytes();
    for wrong in [&[][..], &bytes[..7], &bytes[..bytes.len() - 1], &bytes[..8 + 32]] {
        assert_eq!(Frontier::parse(wrong), None);
    }
}

#[test]
fn proofs_of_every_leaf_and_every_pair_of_sizes_hold() {
    let nodes = Plain(leaves(40));
    for size in 1..=40 {
        let top = root(&nodes, size).unwrap();
        for index in 0..size {
            let proof = inclusion(&nodes, index, size).unwrap();
            let leaf = &nodes.0[index as usize];
            assert_eq!(verify_inclusion(leaf, index, size, &proof, &top), Ok(()));
        }
        for old in 1..=size {
            let proof = consistency(&nodes, old, size).unwrap();
            let old_root = root(&nodes, old).unwrap();
            assert_eq!(verify_consistency(old, size, &proof, &old_root, &top), Ok(()));
        }
    }
}

#[test]
fn there_is_no_proof_out_of_range() {
    let nodes = Plain(leaves(5));
    assert_eq!(inclusion(&nodes, 0, 0), None);
    assert_eq!(inclusion(&nodes, 5, 5), None);
    assert_eq!(inclusion(&nodes, 0, 6), None);
    assert_eq!(consistency(&nodes, 0, 5), None);
    assert_eq!(consistency(&nodes, 5, 4), None);
    assert_eq!(consistency(&nodes, 4, 6), None);
    assert_eq!(consistency(&nodes, 5, 5), Some(Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_growth_proves_its_new_leaves_as_the_whole_tree_would(before in 0u64..600, added in 1u64..80) {
        let mut growth = TreeGrowth::of(grown(before));
        let all = leaves(before + added);
        for leaf in &all[before as usize..] {
            growth.push(*leaf);
        }
        let top = growth.after().root();
        prop_assert_eq!(top, fold(&all));
        prop_assert_eq!(growth.before().root(), fold(&all[..before as usize]));
        let plain = Plain(all);
        for index in before..before + added {
            let proof = inclusion(&growth, index, before + added);
            prop_assert_eq!(&proof, &inclusion(&plain, index, before + added));
            let leaf = &plain.0[index as usize];
            prop_assert_eq!(verify_inclusion(leaf, index, before + added, &proof.unwrap(), &top), Ok(()));
        }
        for (level, index, hash) in growth.kept_nodes() {
            prop_assert_eq!(Some(*hash), plain.node(level * TILE_HEIGHT, index));
        }
        let kept = growth.kept_nodes().filter(|(level, _, _)| *level == 1).count() as u64;
        prop_assert_eq!(kept, (before + added) / 256 - before / 256);
    }

    #[test]
    fn a_proof_holds_for_nothing_else(size in 2u64..200, pick: u64, bit in 0usize..256, step: usize) {
        let nodes = Plain(leaves(size));
        let index = pick % size;
        let top = root(&nodes, size).unwrap();
        let mut proof = inclusion(&nodes, index, size).unwrap();
        let leaf = nodes.0[index as usize];
        prop_assert!(verify_inclusion(&leaf, (index + 1) % size, size, &proof, &top).is_err());
        let step = step % proof.len();
        proof[step][bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(verify_inclusion(&leaf, index, size, &proof, &top), Err(ProofError::Root));
        proof.pop();
        prop_assert_eq!(verify_inclusion(&leaf, index, size, &proof, &top), Err(ProofError::Length));
    }
}

/// The probes of transparency-dev/merkle (tests/vectors/merkle): one JSON a file.
fn probes(kind: &str) -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/merkle");
    let file = std::fs::read(root.join(format!("{kind}.jsonl"))).unwrap();
    file.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            let probe: Value = serde_json::from_slice(line).unwrap();
            (PathBuf::from(probe["file"].as_str().unwrap()), probe)
        })
        .collect()
}

fn hash(value: &Value) -> Option<Hash> {
    base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()?.try_into().ok()
}

/// A root; some probes have words in its place, which are equal or not and nothing more.
fn root_of(value: &Value) -> Hash {
    hash(value).unwrap_or_else(|| Sha256::digest(value.as_str().unwrap()).into())
}

fn hashes(value: &Value) -> Option<Vec<Hash>> {
    value.as_array().map_or(Some(Vec::new()), |items| items.iter().map(hash).collect())
}

#[test]
fn inclusion_agrees_with_the_probes_of_transparency_dev() {
    let probes = probes("inclusion");
    assert!(probes.len() > 50, "{}", probes.len());
    for (file, probe) in probes {
        let judged = (|| {
            let (leaf, root) = (hash(&probe["leafHash"])?, hash(&probe["root"])?);
            let proof = hashes(&probe["proof"])?;
            let (index, size) = (probe["leafIdx"].as_u64()?, probe["treeSize"].as_u64()?);
            verify_inclusion(&leaf, index, size, &proof, &root).ok()
        })();
        assert_eq!(judged.is_none(), probe["wantErr"].as_bool().unwrap(), "{}", file.display());
    }
}

#[test]
fn consistency_agrees_with_the_probes_of_transparency_dev() {
    let probes = probes("consistency");
    assert!(probes.len() > 50, "{}", probes.len());
    for (file, probe) in probes {
        let judged = (|| {
            let (old_root, new_root) = (root_of(&probe["root1"]), root_of(&probe["root2"]));
            let proof = hashes(&probe["proof"])?;
            let (old, new) = (probe["size1"].as_u64()?, probe["size2"].as_u64()?);
            verify_consistency(old, new, &proof, &old_root, &new_root).ok()
        })();
        assert_eq!(judged.is_none(), probe["wantErr"].as_bool().unwrap(), "{}", file.display());
    }
}
