//! The auditor's binary stays small: its tree of crates has a bound, and holds none that a broker needs.

use std::collections::BTreeSet;
use std::process::Command;

/// Crates below `handoffd-verify`, build-time macros and itself included.
const MOST: usize = 80;

fn crates_below(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--locked",
            "--offline",
        ])
        // With features unified over the workspace the broker's would count.
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Finding E7 of 0.3.0: the verifier had 226 crates below it, so that few could read what it trusts.
#[test]
fn the_auditors_binary_depends_on_few_crates() {
    let crates = crates_below("handoffd-verify");
    assert!(crates.contains("ed25519-dalek"), "the tree is read: {crates:?}");
    assert!(crates.len() <= MOST, "{} crates: {crates:?}", crates.len());
    for foreign in ["tokio", "sqlx", "axum", "jsonschema", "cel", "tiktoken", "reqwest"] {
        assert!(!crates.contains(foreign), "{foreign} is below handoffd-verify");
    }
}
