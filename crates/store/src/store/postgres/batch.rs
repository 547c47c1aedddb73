//! Statements over many rows: each column is one array, and `UNNEST` makes rows of them, so that a
//! batch of any size is one round trip and one prepared statement.

use std::fmt::Write as _;
use std::sync::LazyLock;

use sqlx::postgres::PgRow;

use super::call::Call;
use super::rows;
use crate::store::Result;
use crate::store::query::FromColumn;
use crate::store::table::BatchTable;

/// Rows of a table that are bound value by value. Each number of them is a text of its own, which a connection prepares.
pub(super) const FEW: usize = 2;

/// The form of a statement's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// One array for each column: any number of rows by one text.
    Arrays,
    /// One value for each column and row, column by column: of few rows it costs the server 0.6 times as much.
    Values(usize),
}

impl Bound {
    pub(super) fn of(rows: usize) -> Self {
        if (1..=FEW).contains(&rows) { Self::Values(rows) } else { Self::Arrays }
    }
}

/// Approximate bytes of an array element sent to the server: its length, and an id or a number.
const COLUMN_BYTES: usize = 24;

/// The text of a statement, built once.
pub(super) type Sql = LazyLock<String>;

/// A statement by the form of its rows: [`Bound::Values`] for each count up to [`FEW`], then [`Bound::Arrays`].
pub(super) struct RowsSql(LazyLock<[String; FEW + 1]>);

impl RowsSql {
    pub(super) const fn new(texts: fn() -> [String; FEW + 1]) -> Self {
        Self(LazyLock::new(texts))
    }

    /// The statement for so many rows, without its values.
    pub(super) fn call(&'static self, rows: usize) -> Call {
        let bound = Bound::of(rows);
        let place = if bound == Bound::Arrays { FEW } else { rows.saturating_sub(1) };
        let mut call = Call::new(self.0[place].as_str());
        call.flat = bound != Bound::Arrays;
        call
    }
}

/// The texts of a statement by the form of its rows.
pub(super) fn by_rows(text: impl Fn(Bound) -> String) -> [String; FEW + 1] {
    std::array::from_fn(|place| {
        text(if place < FEW { Bound::Values(place + 1) } else { Bound::Arrays })
    })
}

impl BatchTable {
    fn list(columns: &[(&str, &str)], one: impl Fn(usize, &str, &str) -> String) -> String {
        columns.iter().enumerate().fold(String::new(), |mut text, (place, (name, kind))| {
            let comma = if place == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{}", one(place, name, kind));
            text
        })
    }

    fn names(columns: &[(&str, &str)]) -> String {
        Self::list(columns, |_, name, _| name.to_owned())
    }

    /// Approximate bytes of a row without its texts and contents.
    pub(super) fn row_bytes(&self) -> usize {
        self.columns.len() * COLUMN_BYTES
    }

    /// The rows to write or to find, named `n`; `first` is the number of the first parameter.
    pub(super) fn rows(columns: &[(&str, &str)], first: usize, rows: Bound) -> String {
        let names = Self::names(columns);
        match rows {
            Bound::Arrays => {
                let array = |place, _: &str, kind: &str| format!("${}::{kind}[]", first + place);
                format!("UNNEST({}) AS n({names})", Self::list(columns, array))
            }
            Bound::Values(count) => {
                let row = |row: usize| {
                    let value = |place, _: &str, kind: &str| {
                        format!("${}::{kind}", first + place * count + row)
                    };
                    format!("({})", Self::list(columns, value))
                };
                let rows: Vec<_> = (0..count).map(row).collect();
                format!("(VALUES {}) AS n({names})", rows.join(", "))
            }
        }
    }

    fn same_key(&self) -> String {
        self.columns[..self.keys]
            .iter()
            .map(|(name, _)| format!("t.{name} = n.{name}"))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    /// Inserts; an existing key is an error.
    pub(super) fn insert(&self, first: usize, rows: Bound) -> String {
        let (names, rows) = (Self::names(self.columns), Self::rows(self.columns, first, rows));
        format!("INSERT INTO {} ({names}) SELECT {names} FROM {rows}", self.name)
    }

    /// Inserts, or updates an existing row.
    pub(super) fn upsert(&self, first: usize, rows: Bound) -> String {
        let (keys, others) = self.columns.split_at(self.keys);
        let set = Self::list(others, |_, name, _| format!("{name} = EXCLUDED.{name}"));
        format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {set}",
            self.insert(first, rows),
            Self::names(keys)
        )
    }

    /// Updates existing rows.
    pub(super) fn update(&self) -> String {
        self.update_but(1, Bound::Arrays, &[])
    }

    /// Updates existing rows, except the columns in `fixed`, which are bound and not written.
    pub(super) fn update_but(&self, first: usize, rows: Bound, fixed: &[&str]) -> String {
        let set: Vec<_> = self.columns[self.keys..]
            .iter()
            .filter(|(name, _)| !fixed.contains(name))
            .map(|(name, _)| format!("{name} = n.{name}"))
            .collect();
        let set = set.join(", ");
        let rows = Self::rows(self.columns, first, rows);
        format!("UPDATE {} AS t SET {set} FROM {rows} WHERE {}", self.name, self.same_key())
    }

    pub(super) fn delete(&self, first: usize, rows: Bound) -> String {
        let rows = Self::rows(&self.columns[..self.keys], first, rows);
        format!("DELETE FROM {} AS t USING {rows} WHERE {}", self.name, self.same_key())
    }

    /// Selects by key, in key order, locked.
    pub(super) fn select_locked(&self, rows: Bound) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let keys = Self::list(&self.columns[..self.keys], |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&self.columns[..self.keys], 1, rows);
        format!(
            "SELECT {names} FROM {} AS t JOIN {rows} ON {} ORDER BY {keys} FOR UPDATE OF t",
            self.name,
            self.same_key()
        )
    }

    /// Selects by the first two key columns, and a condition on `t`.
    pub(super) fn select_of(&self, rows: Bound, condition: &str, second: &str) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&[("tenant", TEXT), ("id", TEXT)], 1, rows);
        format!(
            "SELECT {names} FROM {} AS t JOIN {rows} ON t.tenant = n.tenant AND t.{second} = n.id{condition}",
            self.name,
        )
    }

    /// Selects the handoffs of a task that an agent accepted.
    pub(super) fn select_received(&self, rows: Bound) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&[("tenant", TEXT), ("id", TEXT), ("agent", TEXT)], 1, rows);
        format!(
            "SELECT {names} FROM {} AS t JOIN {rows} ON t.tenant = n.tenant AND t.task_id = n.id \
             AND t.target = n.agent AND t.accepted_at IS NOT NULL",
            self.name,
        )
    }

    /// [`Self::select_of`] without a condition, in key order, locked.
    pub(super) fn select_of_locked(&self, rows: Bound, second: &str) -> String {
        let keys = Self::list(&self.columns[..self.keys], |_, name, _| format!("t.{name}"));
        format!("{} ORDER BY {keys} FOR UPDATE OF t", self.select_of(rows, "", second))
    }

    pub(super) fn select(&self, rows: Bound) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&self.columns[..self.keys], 1, rows);
        format!("SELECT {names} FROM {} AS t JOIN {rows} ON {}", self.name, self.same_key())
    }
}

/// Binds one array for each column: the values of an expression over all rows.
macro_rules! bind {
    ($query:expr, $rows:expr, |$row:ident| $($value:expr),+ $(,)?) => {
        $query$(.bind($rows.iter().map(|$row| $value).collect::<Vec<_>>()))+
    };
}
pub(super) use bind;

/// One column of the rows read, for binding as an array.
pub(super) fn column<'r, T>(found: &'r [PgRow], name: &str) -> Result<Vec<T>>
where
    T: FromColumn<'r>,
{
    found.iter().map(|row| rows::get(row, name)).collect()
}

const TEXT: &str = "text";
const BIGINT: &str = "bigint";
const BYTEA: &str = "bytea";

pub(super) const CONTENTS: BatchTable = BatchTable {
    name: "contents",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("content_id", TEXT),
        ("salt", BYTEA),
        ("codec", TEXT),
        ("bytes", BYTEA),
        ("created_at", BIGINT),
    ],
};

pub(super) const RECORDS: BatchTable = BatchTable {
    name: "audit.records",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("leaf_index", BIGINT),
        ("record_hash", BYTEA),
        ("kind", TEXT),
        ("task_id", TEXT),
        ("handoff_id", TEXT),
        ("content_id", TEXT),
        ("recorded_at", BIGINT),
        ("body", BYTEA),
        ("tree_size", BIGINT),
    ],
};

pub(super) const PERSONAL_DATA: BatchTable = BatchTable {
    name: "personal_data",
    keys: 3,
    columns: &[
        ("tenant", TEXT),
        ("leaf_index", BIGINT),
        ("ordinal", "integer"),
        ("handoff_id", TEXT),
        ("subject_id", TEXT),
        ("salt", BYTEA),
        ("codec", TEXT),
        ("bytes", BYTEA),
        ("created_at", BIGINT),
    ],
};

pub(super) const HEADS: BatchTable = BatchTable {
    name: "audit.log_heads",
    keys: 1,
    columns: &[("tenant", TEXT), ("size", BIGINT), ("hash", BYTEA), ("frontier", BYTEA)],
};

pub(super) const NODES: BatchTable = BatchTable {
    name: "audit.nodes",
    keys: 3,
    columns: &[("tenant", TEXT), ("level", BIGINT), ("idx", BIGINT), ("hash", BYTEA)],
};

pub(super) const EVENTS: BatchTable = BatchTable {
    name: "events",
    keys: 3,
    columns: &[
        ("tenant", TEXT),
        ("leaf_index", BIGINT),
        ("ordinal", "integer"),
        ("event_id", TEXT),
        ("type", TEXT),
        ("at", BIGINT),
        ("task_id", TEXT),
        ("handoff_id", TEXT),
        ("source", TEXT),
        ("target", TEXT),
        ("audience", TEXT),
        ("data", TEXT),
    ],
};

pub(super) const SUBSCRIPTIONS: BatchTable = BatchTable {
    name: "subscriptions",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("subscription_id", TEXT),
        ("doc", TEXT),
        ("secrets", TEXT),
        ("created_at", BIGINT),
        ("updated_at", BIGINT),
    ],
};

pub(super) const EVENT_DELIVERIES: BatchTable = BatchTable {
    name: "event_deliveries",
    keys: 3,
    columns: &[
        ("tenant", TEXT),
        ("subscriber", TEXT),
        ("slot", "integer"),
        ("number", BIGINT),
        ("leaf_index", BIGINT),
        ("ordinal", "integer"),
        ("event_id", TEXT),
        ("type", TEXT),
        ("at", BIGINT),
        ("attempt", "integer"),
        ("outcome", TEXT),
        ("status", "integer"),
        ("detail", TEXT),
        ("duration_us", BIGINT),
    ],
};

pub(super) const HOLDS: BatchTable = BatchTable {
    name: "legal_holds",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("hold_id", TEXT),
        ("subject_key", BYTEA),
        ("subject_id", TEXT),
        ("task_id", TEXT),
        ("reason", TEXT),
        ("placed_at", BIGINT),
        ("released_at", BIGINT),
    ],
};

pub(super) const ERASURES: BatchTable = BatchTable {
    name: "erasures",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("erasure_id", TEXT),
        ("subject_key", BYTEA),
        ("subject_id", TEXT),
        ("commitment", BYTEA),
        ("scope", TEXT),
        ("reason", TEXT),
        ("status", TEXT),
        ("held", BIGINT),
        ("data", BIGINT),
        ("contents", BIGINT),
        ("checkpoints", BIGINT),
        ("leaf_index", BIGINT),
        ("requested_at", BIGINT),
        ("updated_at", BIGINT),
        ("completed_at", BIGINT),
    ],
};

/// The statements that have rows.
pub(super) fn some<T>(
    statements: [(&'static Sql, Vec<T>); 2],
) -> impl Iterator<Item = (&'static Sql, Vec<T>)> {
    statements.into_iter().filter(|(_, rows)| !rows.is_empty())
}
