//! Each table of the store says what it is. `scripts/aims` counts its statements.

use std::collections::BTreeSet;
use std::path::Path;

/// The tables that migrations leave behind.
fn migrated(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files =
        std::fs::read_dir(folder).expect("migrations").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files.filter(|path| path.is_file()).collect();
    files.sort();
    let mut tables = BTreeSet::new();
    for file in files {
        let sql = std::fs::read_to_string(file).expect("a migration");
        for line in sql.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["CREATE", "TABLE", name, ..] => drop(tables.insert(name.to_owned())),
                ["DROP", "TABLE", name] => drop(tables.remove(name.trim_end_matches(';'))),
                ["ALTER", "TABLE", from, "RENAME", "TO", to] => {
                    tables.remove(from);
                    tables.insert(to.trim_end_matches(';').to_owned());
                }
                _ => {}
            }
        }
    }
    tables
}

#[test]
fn each_table_says_what_a_row_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store");
    let mut places = std::fs::read_to_string(root.join("README.md")).expect("the README");
    places = places.split_once("| table |").expect("its list of tables").1.to_owned();
    for file in std::fs::read_dir(root.join("src/store/tables")).expect("the tables") {
        let source = std::fs::read_to_string(file.expect("a file").path()).expect("a source");
        let lines = source.lines().filter(|line| line.starts_with("//! - `"));
        places.extend(lines.map(|line| format!("{line}\n")));
    }
    let tables = ["migrations", "migrations/sqlite", "migrations/postgres"].map(migrated);
    let tables: BTreeSet<_> = tables.into_iter().flatten().collect();
    assert!(tables.len() > 40, "{tables:?}");
    let silent: Vec<_> =
        tables.iter().filter(|name| !places.contains(&format!("`{name}`"))).collect();
    assert!(silent.is_empty(), "no file of tables/ and no row of the README has {silent:?}");
}
