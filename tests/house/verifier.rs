//! The auditor's binary stays small: its tree of crates holds none that a broker needs.

use std::collections::BTreeSet;
use std::process::Command;

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

/// Few crates, so that an auditor can read them: `scripts/aims` counts them.
#[test]
fn the_auditors_binary_depends_on_nothing_of_the_broker() {
    let crates = crates_below("handoffd-verify");
    assert!(crates.contains("ed25519-dalek"), "the tree is read: {crates:?}");
    for foreign in ["tokio", "sqlx", "axum", "jsonschema", "cel", "tiktoken", "reqwest"] {
        assert!(!crates.contains(foreign), "{foreign} is below handoffd-verify");
    }
}
