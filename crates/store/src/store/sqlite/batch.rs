//! One statement for many rows: prepared once, run for each.

use serde::Serialize;

use super::db::{Db, Query};
use crate::store::table::{NewRow, Table};
use crate::store::tables::any;
use crate::store::{Result, StoreError};

/// A statement that is run for each row of a list.
pub(super) struct RowBatch<'s> {
    table: &'static str,
    columns: &'static str,
    kind: Kind<'s>,
}

enum Kind<'s> {
    Insert,
    Upsert(&'s [&'s str]),
    Update(&'s [&'s str]),
}

impl<'s> RowBatch<'s> {
    /// Inserts; an existing key is an error.
    pub(super) fn insert(table: &'static str, columns: &'static str) -> Self {
        Self { table, columns, kind: Kind::Insert }
    }

    /// Inserts, or sets all columns of the row that has the same `keys`.
    pub(super) fn upsert(table: &'static str, columns: &'static str, keys: &'s [&'s str]) -> Self {
        Self { table, columns, kind: Kind::Upsert(keys) }
    }

    /// Sets the columns of existing rows, found by the first two columns. `fixed` columns are bound
    /// but left alone: they never change, and setting them would only rewrite their indexes.
    pub(super) fn update(table: &'static str, columns: &'static str, fixed: &'s [&'s str]) -> Self {
        Self { table, columns, kind: Kind::Update(fixed) }
    }

    fn sql(&self) -> String {
        match self.kind {
            Kind::Insert => any::insert_one(self.table, self.columns),
            Kind::Upsert(keys) => any::upsert_one(self.table, self.columns, keys),
            Kind::Update(fixed) => any::update_one(self.table, self.columns, fixed),
        }
    }

    /// Runs the statement for all rows; returns the number of affected rows.
    pub(super) fn run<T: Copy>(
        &self,
        db: &Db,
        rows: &[T],
        bind: impl Fn(Query<'_>, T) -> Query<'_>,
    ) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        // A table has one key, and of the columns that its updates leave alone the longer lists contain the shorter.
        let number = match self.kind {
            Kind::Insert => 0,
            Kind::Upsert(_) => 1,
            Kind::Update(fixed) => 2 + fixed.len(),
        };
        let sql = db.text((self.table, self.columns, number), || self.sql());
        let mut touched = 0;
        for row in rows {
            touched += bind(db.query(&sql), *row).execute()?;
        }
        Ok(touched)
    }
}

/// Inserts rows; an existing key is an error.
pub(super) fn insert<'r, T>(
    db: &Db,
    table: &Table<T>,
    rows: impl IntoIterator<Item = &'r T>,
) -> Result<()> {
    run(db, &RowBatch::insert(table.shape.name, table.list), table, rows).map(|_| ())
}

/// Inserts rows of any tables; an existing key is an error.
pub(super) fn insert_new(db: &Db, rows: &[NewRow]) -> Result<()> {
    for row in rows {
        RowBatch::insert(row.table.name, row.list)
            .run(db, &[row], |query, row| row.values.iter().cloned().fold(query, Query::bind))?;
    }
    Ok(())
}

/// Inserts rows, or sets all columns of those that are there.
pub(super) fn upsert<'r, T>(
    db: &Db,
    table: &Table<T>,
    rows: impl IntoIterator<Item = &'r T>,
) -> Result<()> {
    let keys = table.key();
    run(db, &RowBatch::upsert(table.shape.name, table.list, &keys), table, rows).map(|_| ())
}

/// Updates rows, all columns but the fixed ones; returns the number of rows found.
pub(super) fn update<T>(db: &Db, table: &Table<T>, rows: &[&T]) -> Result<u64> {
    let fixed = table.fixed();
    let batch = RowBatch::update(table.shape.name, table.list, &fixed);
    run(db, &batch, table, rows.iter().copied())
}

fn run<'r, T>(
    db: &Db,
    batch: &RowBatch<'_>,
    table: &Table<T>,
    rows: impl IntoIterator<Item = &'r T>,
) -> Result<u64> {
    let rows: Vec<&T> = rows.into_iter().collect();
    batch.run(db, &rows, |query, row| {
        table.columns.iter().fold(query, |query, column| query.bind((column.get)(row)))
    })
}

/// A list for `json_each(?)`.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|_| StoreError::Refused("a value has no JSON form".to_owned()))
}
