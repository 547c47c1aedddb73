//! Statements over the rows of any table, put together from its columns.
//!
//! SQLite runs a statement once for each row. Postgres runs one for many rows: each column is an array, and `UNNEST` makes
//! rows of the arrays, so that a batch of any size is one round trip and one prepared statement.

use std::fmt::Write as _;

use crate::store::table::BatchTable;

/// SQLite: inserts a row; an existing key is an error.
pub(in crate::store) fn insert_one(table: &str, columns: &str) -> String {
    let values = vec!["?"; names(columns).count()].join(", ");
    format!("INSERT INTO {table} ({columns}) VALUES ({values})")
}

/// SQLite: inserts a row, or sets all columns of the one that has the same `keys`.
pub(in crate::store) fn upsert_one(table: &str, columns: &str, keys: &[&str]) -> String {
    let set: Vec<_> = names(columns)
        .filter(|column| !keys.contains(column))
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    let insert = insert_one(table, columns);
    format!("{insert} ON CONFLICT ({}) DO UPDATE SET {}", keys.join(", "), set.join(", "))
}

/// SQLite: sets the columns of a row, found by the first two columns, but not those in `fixed`. A value has the number of its
/// column.
pub(in crate::store) fn update_one(table: &str, columns: &str, fixed: &[&str]) -> String {
    let key: Vec<_> = names(columns).zip(1..).take(2).map(assigned).collect();
    let set: Vec<_> = names(columns)
        .zip(1..)
        .skip(2)
        .filter(|(column, _)| !fixed.contains(column))
        .map(assigned)
        .collect();
    format!("UPDATE {table} SET {} WHERE {}", set.join(", "), key.join(" AND "))
}

/// SQLite: selects the rows with a tenant and an id.
pub(in crate::store) fn select_one(columns: &str, table: &str, id: &str) -> String {
    format!("SELECT {columns} FROM {table} WHERE tenant = ? AND {id} = ?")
}

/// SQLite: selects the rows of a tenant that a condition finds.
pub(in crate::store) fn select_where(columns: &str, table: &str, condition: &str) -> String {
    format!("SELECT {columns} FROM {table} WHERE tenant = ? AND {condition}")
}

/// SQLite: selects the rows of a tenant, to which the caller adds the tenant and more conditions; `leader` is the name of the
/// table among `tables` whose tenant counts.
pub(in crate::store) fn select_of_tenant(columns: &str, tables: &str, leader: &str) -> String {
    format!("SELECT {columns} FROM {tables} WHERE {leader}.tenant = ")
}

/// SQLite: deletes the row with a tenant and an id.
pub(in crate::store) fn delete_one(table: &str, id: &str) -> String {
    format!("DELETE FROM {table} WHERE tenant = ? AND {id} = ?")
}

fn names(columns: &str) -> impl Iterator<Item = &str> {
    columns.split(',').map(str::trim)
}

fn assigned((column, number): (&str, usize)) -> String {
    format!("{column} = ?{number}")
}

/// Postgres: statements as one, each by its text and whether its rows are counted; its one value are these counts, in order.
pub(in crate::store) fn joined<'t>(parts: impl Iterator<Item = (&'t str, bool)>) -> String {
    let mut text = String::from("WITH ");
    let mut counts = String::new();
    for (place, (part, is_counted)) in parts.enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        let returning = if is_counted { " RETURNING 1" } else { "" };
        let _ = write!(text, "{comma}p{place} AS ({part}{returning})");
        if is_counted {
            let comma = if counts.is_empty() { "" } else { ", " };
            let _ = write!(counts, "{comma}(SELECT count(*) FROM p{place})");
        }
    }
    let _ = write!(text, " SELECT ARRAY[{counts}]::bigint[]");
    text
}

/// Rows of a table that are bound value by value. Each number of them is a text of its own, which a connection prepares.
pub(in crate::store) const FEW: usize = 2;

/// The form of a statement's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Bound {
    /// One array for each column: any number of rows by one text.
    Arrays,
    /// One value for each column and row, column by column: of few rows it costs the server 0.6 times as much.
    Values(usize),
}

impl Bound {
    pub(in crate::store) fn of(rows: usize) -> Self {
        if (1..=FEW).contains(&rows) { Self::Values(rows) } else { Self::Arrays }
    }
}

/// Postgres: statements over many rows.
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

    /// The rows to write or to find, named `n`; `first` is the number of the first parameter.
    pub(in crate::store) fn rows(columns: &[(&str, &str)], first: usize, rows: Bound) -> String {
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
    pub(in crate::store) fn insert(&self, first: usize, rows: Bound) -> String {
        let (names, rows) = (Self::names(self.columns), Self::rows(self.columns, first, rows));
        format!("INSERT INTO {} ({names}) SELECT {names} FROM {rows}", self.name)
    }

    /// Inserts, or updates an existing row.
    pub(in crate::store) fn upsert(&self, first: usize, rows: Bound) -> String {
        let (keys, others) = self.columns.split_at(self.keys);
        let set = Self::list(others, |_, name, _| format!("{name} = EXCLUDED.{name}"));
        format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {set}",
            self.insert(first, rows),
            Self::names(keys)
        )
    }

    /// Updates existing rows.
    pub(in crate::store) fn update(&self) -> String {
        self.update_but(1, Bound::Arrays, &[])
    }

    /// Updates existing rows, except the columns in `fixed`, which are bound and not written.
    pub(in crate::store) fn update_but(&self, first: usize, rows: Bound, fixed: &[&str]) -> String {
        let set: Vec<_> = self.columns[self.keys..]
            .iter()
            .filter(|(name, _)| !fixed.contains(name))
            .map(|(name, _)| format!("{name} = n.{name}"))
            .collect();
        let set = set.join(", ");
        let rows = Self::rows(self.columns, first, rows);
        format!("UPDATE {} AS t SET {set} FROM {rows} WHERE {}", self.name, self.same_key())
    }

    /// Deletes by key.
    pub(in crate::store) fn delete(&self, first: usize, rows: Bound) -> String {
        let rows = Self::rows(&self.columns[..self.keys], first, rows);
        format!("DELETE FROM {} AS t USING {rows} WHERE {}", self.name, self.same_key())
    }

    /// Selects by key, in key order, locked.
    pub(in crate::store) fn select_locked(&self, rows: Bound) -> String {
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
    pub(in crate::store) fn select_of(&self, rows: Bound, condition: &str, second: &str) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&[("tenant", "text"), ("id", "text")], 1, rows);
        format!(
            "SELECT {names} FROM {} AS t JOIN {rows} ON t.tenant = n.tenant AND t.{second} = n.id{condition}",
            self.name,
        )
    }

    /// Selects the handoffs of a task that an agent accepted.
    pub(in crate::store) fn select_received(&self, rows: Bound) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&[("tenant", "text"), ("id", "text"), ("agent", "text")], 1, rows);
        format!(
            "SELECT {names} FROM {} AS t JOIN {rows} ON t.tenant = n.tenant AND t.task_id = n.id \
             AND t.target = n.agent AND t.accepted_at IS NOT NULL",
            self.name,
        )
    }

    /// [`Self::select_of`] without a condition, in key order, locked.
    pub(in crate::store) fn select_of_locked(&self, rows: Bound, second: &str) -> String {
        let keys = Self::list(&self.columns[..self.keys], |_, name, _| format!("t.{name}"));
        format!("{} ORDER BY {keys} FOR UPDATE OF t", self.select_of(rows, "", second))
    }

    /// Selects by key.
    pub(in crate::store) fn select(&self, rows: Bound) -> String {
        let names = Self::list(self.columns, |_, name, _| format!("t.{name}"));
        let rows = Self::rows(&self.columns[..self.keys], 1, rows);
        format!("SELECT {names} FROM {} AS t JOIN {rows} ON {}", self.name, self.same_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_numbers_its_values_by_column() {
        assert_eq!(
            update_one("t", "tenant, id, a, b, c", &["b"]),
            "UPDATE t SET a = ?3, c = ?5 WHERE tenant = ?1 AND id = ?2"
        );
    }

    #[test]
    fn only_updates_are_counted() {
        assert_eq!(
            joined([("INSERT a", false), ("UPDATE b", true)].into_iter()),
            "WITH p0 AS (INSERT a), p1 AS (UPDATE b RETURNING 1) \
             SELECT ARRAY[(SELECT count(*) FROM p1)]::bigint[]"
        );
        let none = joined([("DELETE", false)].into_iter());
        assert_eq!(none, "WITH p0 AS (DELETE) SELECT ARRAY[]::bigint[]");
    }
}
