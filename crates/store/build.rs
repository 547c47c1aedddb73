//! Lists the migrations of `migrations/`, so that a new one is its file alone.
//!
//! A file in a folder is for one database, and its text is taken as it is. A file beside the folders is for both: lines
//! behind `-- sqlite` or `-- postgres` are for that one alone, until `-- both`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a build fails by a panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Migrations by number: name and text.
type Migrations = BTreeMap<i64, (String, String)>;

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../migrations");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut lists = String::new();
    for side in ["sqlite", "postgres", "postgres-audit"] {
        let mut migrations = read(&root.join(side), |text| text);
        if side != "postgres-audit" {
            for (number, shared) in read(&root, |text| of_side(&text, side)) {
                let other = migrations.insert(number, shared);
                assert!(other.is_none(), "the migration {number} of {side} is there twice");
            }
        }
        let name = side.replace('-', "_").to_uppercase();
        writeln!(lists, "pub(super) const {name}: MigrationSet = &{};", listed(&migrations))
            .unwrap();
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("migrations.rs");
    fs::write(out, lists).unwrap();
}

/// The files `NNNN_name.sql` of a folder.
fn read(folder: &Path, text: impl Fn(String) -> String) -> Migrations {
    let mut migrations = Migrations::new();
    for entry in fs::read_dir(folder).expect("a folder of migrations") {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "sql") {
            continue;
        }
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (number, name) = stem.split_once('_').expect("NNNN_name.sql");
        let number = number.parse().expect("NNNN_name.sql");
        let sql = text(fs::read_to_string(&path).unwrap());
        let other = migrations.insert(number, (name.to_owned(), sql));
        assert!(other.is_none(), "the migration {number} is there twice: {}", path.display());
    }
    migrations
}

/// The lines for one database of a text for both.
fn of_side(text: &str, side: &str) -> String {
    let mut own = true;
    let mut lines = String::new();
    for line in text.lines() {
        match line.strip_prefix("-- ") {
            Some("both") => own = true,
            Some(other @ ("sqlite" | "postgres")) => own = other == side,
            _ if own => lines.extend([line, "\n"]),
            _ => {}
        }
    }
    lines
}

/// Numbers, names and texts as a slice in Rust.
fn listed(migrations: &Migrations) -> String {
    let one = |(number, (name, sql)): (&i64, &(String, String))| {
        format!("({number}, {name:?}, {sql:?}),\n")
    };
    format!("[\n{}]", migrations.iter().map(one).collect::<String>())
}
