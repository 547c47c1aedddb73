//! Each crate of this repository has its own `opt-level` in a release, or a reason for that of the profile.
//!
//! The profile's `opt-level` is `s`. A crate that moves, or takes its name along, would fall back to it in silence, and the gate
//! with it: a test of speed on a shared machine does not notice a fifth.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Crates that loop over bytes: records, messages and their texts.
const FAST: [&str; 3] = ["handoffd-domain", "handoffd-evidence", "handoffd-gate"];

/// Crates that call those, or wait.
const SMALL: [(&str, &str); 6] = [
    ("handoffd", "it reads requests and writes answers by dependencies with a level of their own"),
    ("handoffd-broker", "it waits for the database and for receivers"),
    ("handoffd-transports", "it waits for queues and for receivers"),
    ("handoffd-store", "it waits for the database; SQLite has a level of its own"),
    ("handoffd-verify", "a command line over handoffd-evidence"),
    ("handoffd-certify", "it waits for the broker that it drives"),
];

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The value of the first line `KEY = "VALUE"` or `KEY = VALUE` of a section.
fn value<'a>(manifest: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let (_, rest) = manifest.split_once(&format!("\n[{section}]\n"))?;
    let rest = rest.split("\n[").next().unwrap_or_default();
    let text = rest.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='))?;
    Some(text.trim().trim_matches('"'))
}

/// The names of the workspace's crates.
fn members() -> BTreeSet<String> {
    let folders = std::fs::read_dir(root().join("crates")).expect("the crates");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let manifests = folders.chain([root()]).map(|folder| folder.join("Cargo.toml"));
    let names = manifests.map(|path| {
        let text = format!("\n{}", read(&path));
        value(&text, "package", "name").map(str::to_owned)
    });
    names.map(|name| name.expect("a crate has a name")).collect()
}

#[test]
fn every_own_crate_has_its_level_in_a_release() {
    let all = FAST.into_iter().chain(SMALL.map(|(name, _)| name)).map(str::to_owned);
    assert_eq!(members(), all.collect(), "left: the workspace's crates; right: FAST and SMALL");
    let manifest = read(&root().join("Cargo.toml"));
    assert_eq!(value(&manifest, "profile.release", "opt-level"), Some("s"));
    let level = |name| {
        value(&manifest, &format!("profile.release.package.{name}"), "opt-level").unwrap_or("s")
    };
    for name in FAST {
        assert_eq!(level(name), "3", "[profile.release.package.{name}]");
    }
    for (name, why) in SMALL {
        assert_eq!(level(name), "s", "{name}: {why}");
    }
}

/// Cargo only warns of a package that is not there.
#[test]
fn every_package_of_a_profile_is_one_of_the_build() {
    let manifest = read(&root().join("Cargo.toml"));
    let lock = read(&root().join("Cargo.lock"));
    let named = manifest.lines().filter_map(|line| {
        let (_, name) =
            line.strip_prefix("[profile.")?.strip_suffix(']')?.split_once(".package.")?;
        Some(name.trim_matches('"'))
    });
    let gone: Vec<&str> = named
        .filter(|name| *name != "*" && !lock.contains(&format!("\nname = \"{name}\"\n")))
        .collect();
    assert!(gone.is_empty(), "no package of Cargo.lock: {gone:?}");
}
