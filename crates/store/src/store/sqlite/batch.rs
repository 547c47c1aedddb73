//! Statements over many rows at once.
//!
//! Rows go in chunks of a few fixed sizes, so that the texts are few and each is prepared once.

use serde::Serialize;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, query::Query};

use super::connection::failure;
use crate::store::{Result, StoreError};

/// A statement to be bound.
pub(super) type SqliteStatement = Query<'static, Sqlite, SqliteArguments>;

/// Rows of one statement: the largest that still fit are taken. 64 rows of the widest table are
/// 2,240 values, far below SQLite's limit of 32,766.
const CHUNKS: [usize; 4] = [64, 16, 4, 1];

/// A statement with a variable list of rows.
pub(super) struct RowBatch {
    before: String,
    width: usize,
    after: String,
}

fn names(columns: &str) -> impl Iterator<Item = &str> {
    columns.split(',').map(str::trim)
}

impl RowBatch {
    /// Inserts; an existing key is an error.
    pub(super) fn insert(table: &str, columns: &str) -> Self {
        Self {
            before: format!("INSERT INTO {table} ({columns}) VALUES "),
            width: names(columns).count(),
            after: String::new(),
        }
    }

    /// Inserts, or sets all columns of the row that has the same `keys`.
    pub(super) fn upsert(table: &str, columns: &str, keys: &[&str]) -> Self {
        let sets: Vec<_> = names(columns)
            .filter(|column| !keys.contains(column))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect();
        Self {
            after: format!(" ON CONFLICT ({}) DO UPDATE SET {}", keys.join(", "), sets.join(", ")),
            ..Self::insert(table, columns)
        }
    }

    /// Sets the columns of existing rows, found by the first two columns. `fixed` columns are bound
    /// but left alone: they never change, and setting them would only rewrite their indexes.
    pub(super) fn update(table: &str, columns: &str, fixed: &[&str]) -> Self {
        let numbered: Vec<_> = names(columns).zip(1..).collect();
        let sets: Vec<_> = numbered[2..]
            .iter()
            .filter(|(column, _)| !fixed.contains(column))
            .map(|(column, n)| format!("{column} = v.column{n}"))
            .collect();
        let keys: Vec<_> = numbered[..2]
            .iter()
            .map(|(column, n)| format!("{table}.{column} = v.column{n}"))
            .collect();
        Self {
            before: format!("UPDATE {table} SET {} FROM (VALUES ", sets.join(", ")),
            width: numbered.len(),
            after: format!(") AS v WHERE {}", keys.join(" AND ")),
        }
    }

    fn sql(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.width].join(","));
        format!("{}{}{}", self.before, vec![row; rows].join(","), self.after)
    }

    /// Runs the statement over all rows; returns the number of affected rows.
    pub(super) async fn run<T: Copy + Sync>(
        &self,
        conn: &mut SqliteConnection,
        rows: &[T],
        bind: fn(SqliteStatement, T) -> SqliteStatement,
    ) -> Result<u64> {
        let mut touched = 0;
        let mut left = rows;
        for size in CHUNKS {
            let mut chunks = left.chunks_exact(size);
            for chunk in &mut chunks {
                let query = sqlx::query(AssertSqlSafe(self.sql(size)));
                let query = chunk.iter().copied().fold(query, bind);
                touched += query.execute(&mut *conn).await.map_err(failure)?.rows_affected();
            }
            left = chunks.remainder();
        }
        Ok(touched)
    }
}

/// A list for `json_each(?)`.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|_| StoreError::Refused("a value has no JSON form".to_owned()))
}
