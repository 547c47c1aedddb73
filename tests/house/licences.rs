//! `deny.toml` lets in each licence of the dependency graph, and no other.
//!
//! cargo-deny reads the same file and looks closer (licence texts, all platforms), but building
//! it takes longer than building the broker. These tests need nothing beyond the toolchain, so
//! they run everywhere. `deny.toml` stays the only list.

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn at_root(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn policy() -> config::Config {
    config::Config::builder()
        .add_source(config::File::from(at_root("deny.toml")).format(config::FileFormat::Toml))
        .build()
        .expect("deny.toml is TOML")
}

fn allowed_licences() -> BTreeSet<String> {
    policy().get::<BTreeSet<String>>("licenses.allow").expect("deny.toml has licenses.allow")
}

/// Every `[[package]]` of the lock file: all platforms, all optional features.
fn locked_packages() -> Vec<(String, Option<String>)> {
    let text = std::fs::read_to_string(at_root("Cargo.lock")).expect("Cargo.lock is there");
    text.split("[[package]]")
        .skip(1)
        .map(|entry| {
            let field = |key: &str| {
                entry.lines().find_map(|line| {
                    let value = line.strip_prefix(key)?.strip_prefix(" = \"")?;
                    value.strip_suffix('"').map(str::to_owned)
                })
            };
            (field("name").expect("a package has a name"), field("source"))
        })
        .collect()
}

/// The graph that is compiled on this platform, as cargo sees it. Offline: what is built here has
/// been downloaded; the crates of other platforms have not, hence the filter.
fn compiled_packages() -> Vec<Value> {
    let cargo = env!("CARGO");
    let version = Command::new(cargo).arg("-vV").output().expect("cargo answers");
    let version = String::from_utf8(version.stdout).expect("cargo speaks UTF-8");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host triple");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host, "--manifest-path"])
        .arg(at_root("Cargo.toml"))
        .output()
        .expect("cargo metadata runs");
    assert!(
        output.status.success(),
        "cargo metadata failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("metadata without packages: {other}"),
    }
}

/// Whether an SPDX expression can be satisfied from `allowed`.
///
/// `AND` binds tighter than `OR`; the old crates.io form `MIT/Apache-2.0` means `OR`. A licence
/// `WITH` an exception is permitted where the bare licence is, since an exception only grants more.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let verdict = either(&mut tokens, allowed)?;
    match tokens.next() {
        None => Ok(verdict),
        Some(rest) => Err(format!("unexpected `{rest}` in licence `{expression}`")),
    }
}

type Tokens<'a, I> = std::iter::Peekable<I>;

fn either<'a, I: Iterator<Item = &'a str>>(
    tokens: &mut Tokens<'a, I>,
    allowed: &BTreeSet<String>,
) -> Result<bool, String> {
    let mut verdict = both(tokens, allowed)?;
    while tokens.next_if_eq(&"OR").is_some() {
        verdict |= both(tokens, allowed)?;
    }
    Ok(verdict)
}

fn both<'a, I: Iterator<Item = &'a str>>(
    tokens: &mut Tokens<'a, I>,
    allowed: &BTreeSet<String>,
) -> Result<bool, String> {
    let mut verdict = one(tokens, allowed)?;
    while tokens.next_if_eq(&"AND").is_some() {
        verdict &= one(tokens, allowed)?;
    }
    Ok(verdict)
}

fn one<'a, I: Iterator<Item = &'a str>>(
    tokens: &mut Tokens<'a, I>,
    allowed: &BTreeSet<String>,
) -> Result<bool, String> {
    match tokens.next() {
        Some("(") => {
            let verdict = either(tokens, allowed)?;
            match tokens.next() {
                Some(")") => Ok(verdict),
                _ => Err("unbalanced parenthesis in a licence".to_owned()),
            }
        }
        Some(licence) if !matches!(licence, ")" | "AND" | "OR" | "WITH") => {
            if tokens.next_if_eq(&"WITH").is_some() && tokens.next().is_none() {
                return Err(format!("`{licence} WITH` names no exception"));
            }
            Ok(allowed.contains(licence))
        }
        other => Err(format!("expected a licence, found {other:?}")),
    }
}

#[test]
fn every_licence_is_on_the_list() {
    let allowed = allowed_licences();
    let mut faults = Vec::new();
    let packages = compiled_packages();
    assert!(packages.len() > 100, "only {} packages: is the graph whole?", packages.len());
    for package in packages {
        let label = format!("{} {}", package["name"], package["version"]);
        match package["license"].as_str().map(|licence| (licence, satisfied(licence, &allowed))) {
            Some((_, Ok(true))) => {}
            Some((licence, Ok(false))) => {
                faults.push(format!("{label}: `{licence}` is not allowed"));
            }
            Some((_, Err(fault))) => faults.push(format!("{label}: {fault}")),
            None => faults.push(format!("{label}: declares no licence")),
        }
    }
    assert!(
        faults.is_empty(),
        "deny.toml lists the licences that may be linked; decide there, with the reason:\n{}",
        faults.join("\n")
    );
}

#[test]
fn no_banned_crate_is_locked() {
    #[derive(serde::Deserialize)]
    struct Ban {
        #[serde(rename = "crate")]
        name: String,
        reason: String,
    }
    let bans: Vec<Ban> = policy().get("bans.deny").expect("deny.toml has bans.deny with reasons");
    assert!(!bans.is_empty());
    let locked = locked_packages();
    let faults: Vec<String> = bans
        .iter()
        .filter(|ban| locked.iter().any(|(name, _)| *name == ban.name))
        .map(|ban| format!("{} is banned: {}", ban.name, ban.reason))
        .collect();
    assert!(faults.is_empty(), "{}\n`cargo tree -i CRATE` says who wants it", faults.join("\n"));
}

#[test]
fn every_crate_comes_from_crates_io() {
    let strangers: Vec<_> = locked_packages()
        .into_iter()
        .filter(|(_, source)| source.as_deref().is_some_and(|source| source != CRATES_IO))
        .collect();
    assert!(strangers.is_empty(), "not from crates.io: {strangers:?}");
}

/// `fail` makes a broker die on demand: what ships must not have it. Resolved as `cargo build` does.
#[test]
fn what_ships_cannot_be_made_to_fail() {
    const FEATURE: &str = "fail feature \"failpoints\"";
    let tree = |edges: &str| {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--features",
                "full",
                "--invert",
                "fail",
                "--edges",
                edges,
            ])
            .arg("--manifest-path")
            .arg(at_root("Cargo.toml"))
            .output()
            .expect("cargo tree runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("cargo speaks UTF-8")
    };
    assert!(tree("features").contains(FEATURE), "the tests have the steps");
    let shipped = tree("features,no-dev");
    assert!(shipped.contains("handoffd") && !shipped.contains(FEATURE), "{shipped}");
}

#[test]
fn expressions_are_read_as_spdx_says() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0".to_owned()]);
    let cases = [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("Apache-2.0 / GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0 AND MIT OR Apache-2.0", true),
        ("Apache-2.0 OR MIT AND GPL-3.0", true),
        ("(Apache-2.0 OR MIT) AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Apache-2.0", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-2.0 WITH Classpath-exception-2.0 OR MIT", true),
    ];
    for (expression, expected) in cases {
        assert_eq!(satisfied(expression, &allowed), Ok(expected), "{expression}");
    }
    for malformed in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "AND MIT", "MIT WITH"] {
        assert!(satisfied(malformed, &allowed).is_err(), "{malformed:?} passed");
    }
}
