//! A batch's writes as one statement over many tables: each table's rows are a part of one `WITH`, so that a batch
//! takes one message.
//!
//! The parts of a statement see the same snapshot and not each other, and the server chooses their order: they must
//! not touch the same row. A statement that grows too large ends, and another begins.

use super::batch::Bound;
use super::call::Call;
use crate::store::table::{BatchTable, Table};
use crate::store::tables::any;

/// Approximate limit of the bytes of a statement that the driver and the server keep at once. A single row may
/// exceed it.
const STATEMENT: usize = 512 * 1024;

/// The operation on a part's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteMode<'f> {
    /// Inserts; an existing key is an error.
    Insert,
    /// Inserts, or updates an existing row.
    Upsert,
    /// Updates all but these columns. A missing row is a defect of the plan, as rows are locked and never
    /// deleted, so a retry would not help.
    Update(&'f [&'static str]),
    Delete,
}

/// A batch's writes under construction.
pub(super) struct JoinedStatement {
    /// Approximate limit of a statement's row bytes.
    limit: usize,
    room: usize,
    bound: Call,
    parts: Vec<StatementPart>,
    full: Vec<Call>,
}

struct StatementPart {
    text: String,
    /// The table and the number of rows that an update must find.
    sought: Option<(&'static str, usize)>,
}

impl JoinedStatement {
    pub(super) fn new() -> Self {
        Self::limited(STATEMENT)
    }

    fn limited(limit: usize) -> Self {
        Self { limit, room: limit, bound: Call::default(), parts: Vec::new(), full: Vec::new() }
    }

    /// Adds rows of one table. `bytes` is the size of a row without ids and numbers; `bind` binds one array for
    /// each column, for [`WriteMode::Delete`] of the key only.
    pub(super) fn put<T>(
        &mut self,
        table: &BatchTable,
        how: WriteMode<'_>,
        rows: &[T],
        bytes: impl Fn(&T) -> usize,
        bind: impl Fn(Call, &[T]) -> Call,
    ) {
        let mut rest = rows;
        while !rest.is_empty() {
            let (fit, left) = fitting(rest, self.room, |row| table.row_bytes() + bytes(row));
            if fit == 0 && !self.parts.is_empty() {
                self.end();
                continue;
            }
            let (now, later) = rest.split_at(fit.max(1));
            let first = self.bound.len() + 1;
            let rows = Bound::of(now.len());
            let text = match how {
                WriteMode::Insert => table.insert(first, rows),
                WriteMode::Upsert => table.upsert(first, rows),
                WriteMode::Update(fixed) => table.update_but(first, rows, fixed),
                WriteMode::Delete => table.delete(first, rows),
            };
            let sought = matches!(how, WriteMode::Update(_)).then_some((table.name, now.len()));
            self.bound.flat = rows != Bound::Arrays;
            self.bound = bind(std::mem::take(&mut self.bound), now);
            self.parts.push(StatementPart { text, sought });
            self.room = left;
            rest = later;
            if !rest.is_empty() {
                self.end();
            }
        }
    }

    /// [`Self::put`] of rows whose table states their columns, by any mode but [`WriteMode::Delete`].
    pub(super) fn rows<'r, T>(
        &mut self,
        table: &Table<T>,
        how: WriteMode<'_>,
        rows: impl IntoIterator<Item = &'r T>,
    ) {
        self.sized_rows(table, how, rows, |_| 0);
    }

    /// [`Self::rows`], where `bytes` is the size of a row without ids and numbers.
    pub(super) fn sized_rows<'r, T>(
        &mut self,
        table: &Table<T>,
        how: WriteMode<'_>,
        rows: impl IntoIterator<Item = &'r T>,
        bytes: impl Fn(&T) -> usize,
    ) {
        let rows: Vec<&T> = rows.into_iter().collect();
        let columns = |bound: Call, rows: &[&T]| bound.rows(table.columns, rows);
        self.put(&table.shape, how, &rows, |row| bytes(row), columns);
    }

    /// The statements, in order.
    pub(super) fn calls(mut self) -> Vec<Call> {
        self.end();
        self.full
    }

    /// Ends the statement under construction.
    fn end(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        let mut call = std::mem::take(&mut self.bound);
        self.room = self.limit;
        if !parts.is_empty() {
            let texts = parts.iter().map(|part| (part.text.as_str(), part.sought.is_some()));
            call.text = any::joined(texts).into();
            call.sought = parts.iter().filter_map(|part| part.sought).collect();
            self.full.push(call);
        }
    }
}

/// The number of leading rows that fit, and the remaining room.
fn fitting<T>(rows: &[T], mut room: usize, bytes: impl Fn(&T) -> usize) -> (usize, usize) {
    let fit = rows.iter().take_while(|row| {
        let left = room.checked_sub(bytes(row));
        room = left.unwrap_or(room);
        left.is_some()
    });
    let fit = fit.count();
    (fit, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_until_one_does_not_fit() {
        let size = |bytes: &usize| *bytes;
        assert_eq!(fitting(&[3, 3, 3], 7, size), (2, 1));
        assert_eq!(fitting(&[3, 3], 6, size), (2, 0));
        assert_eq!(fitting(&[9, 1], 6, size), (0, 6));
        assert_eq!(fitting(&[], 6, size), (0, 6));
    }
}
