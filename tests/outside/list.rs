//! The columns that no record determines and none commits to, as docs/evidence.md lists them with their reasons.
//! `tests/api/states.rs` changes each column of the database that is not among them.

/// Columns of a table, and the reason for which a false value says nothing false of the past.
pub struct Outside {
    pub table: String,
    /// `None`: all.
    pub columns: Option<Vec<String>>,
    #[allow(dead_code, reason = "one of the two that include this file reads it")]
    pub why: String,
}

impl Outside {
    pub fn has(&self, column: &str) -> bool {
        self.columns.as_ref().is_none_or(|names| names.iter().any(|name| name == column))
    }
}

/// A row `| table | columns | why |`, whose names are code.
fn parsed(row: &str) -> Option<Outside> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [table, columns, why] = cells[..] else { return None };
    let name = |text: &str| Some(text.strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let columns = match columns {
        "all" => None,
        names => Some(names.split(", ").map(name).collect::<Option<_>>()?),
    };
    Some(Outside { table: name(table)?, columns, why: why.to_owned() })
}

/// The list of docs/evidence.md.
pub fn list() -> Vec<Outside> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/evidence.md");
    let text = std::fs::read_to_string(path).expect("docs/evidence.md");
    let (_, after) = text.split_once("These columns are outside.").expect("the list of columns");
    let (_, rows) = after.split_once("|---|---|---|\n").expect("a table");
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| parsed(row).unwrap_or_else(|| panic!("docs/evidence.md: {row}"))).collect()
}
