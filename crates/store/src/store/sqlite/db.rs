//! Statements on one connection, run where they are called: SQLite works in its caller's thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{FromSql, ToSql, ToSqlOutput, Value as OwnedValue, ValueRef};
use rusqlite::{CachedStatement, Connection, OpenFlags};

use crate::store::query::{Columns, Row, Statement, Value, unreadable};
use crate::store::{Result, StoreError};

/// Prepared statements kept on a connection: about twice as many as there are.
const STATEMENTS: usize = 300;

/// A connection with its prepared statements.
pub(super) struct Db {
    connection: Connection,
    texts: RefCell<HashMap<TextKey, Arc<str>>>,
}

/// A statement that is put together from a table's columns: the table's name, the columns, and the statement's number.
type TextKey = (&'static str, &'static str, usize);

impl Db {
    /// Opens an existing file and runs `pragmas`.
    pub(super) fn open(path: &std::path::Path, patience: Duration, pragmas: &str) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failure)?;
        connection.busy_timeout(patience).map_err(failure)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // A plan does not depend on bound values: with `LIMIT ?` SQLite else prepares a statement anew each time it runs.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failure)?;
        let db = Self { connection, texts: RefCell::default() };
        db.batch(pragmas)?;
        Ok(db)
    }

    /// Prepares a statement, once for each text.
    pub(super) fn query(&self, sql: &str) -> Query<'_> {
        tracing::trace!(sql);
        Query { statement: self.connection.prepare_cached(sql), bound: 0, columns: &[] }
    }

    /// The text of a statement, put together once.
    pub(super) fn text(&self, key: TextKey, make: impl Fn() -> String) -> Arc<str> {
        let text = Arc::clone(self.texts.borrow_mut().entry(key).or_insert_with(|| make().into()));
        debug_assert_eq!(*text, make(), "two statements have one number");
        text
    }

    /// Prepares a statement that is the same for both databases, and binds its values.
    pub(super) fn statement(&self, statement: &Statement<'_>) -> Query<'_> {
        let query = self.query(&statement.for_sqlite()).of(statement.columns);
        statement.values.iter().fold(query, Query::bind)
    }

    /// Runs statements without parameters, and ignores their rows.
    pub(super) fn batch(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(failure)
    }

    /// Whether a transaction is open.
    pub(super) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Runs reads that see one state of the file.
    pub(super) fn snapshot<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        self.query("BEGIN").execute()?;
        let outcome = read();
        self.query("ROLLBACK").execute()?;
        outcome
    }
}

/// A statement with the values bound so far. An error of preparing or binding is returned when it runs.
pub(super) struct Query<'c> {
    statement: rusqlite::Result<CachedStatement<'c>>,
    bound: usize,
    /// The names of the columns, where a table's description has them.
    columns: Columns,
}

impl Query<'_> {
    /// States that the statement selects these columns, and no others: SQLite is not asked for the name of each.
    pub(super) fn of(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// Binds the next parameter. A value beyond the last is passed over: an update leaves out columns that stay.
    pub(super) fn bind(mut self, value: impl ToSql) -> Self {
        self.bound += 1;
        if let Ok(statement) = &mut self.statement
            && self.bound <= statement.parameter_count()
            && let Err(err) = statement.raw_bind_parameter(self.bound, value)
        {
            self.statement = Err(err);
        }
        self
    }

    /// Runs a statement without rows; returns the number of changed ones.
    pub(super) fn execute(self) -> Result<u64> {
        let changed = self.statement.and_then(|mut statement| statement.raw_execute());
        changed.map(|changed| changed as u64).map_err(failure)
    }

    pub(super) fn each(self, mut read: impl FnMut(&dyn Row) -> Result<()>) -> Result<()> {
        let mut statement = self.statement.map_err(failure)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(failure)? {
            read(&SqliteRow::new(row, self.columns))?;
        }
        Ok(())
    }

    pub(super) fn list<T, C: FromIterator<T>>(
        self,
        mut read: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<C> {
        let mut found = Vec::new();
        self.each(|row| {
            found.push(read(row)?);
            Ok(())
        })?;
        Ok(found.into_iter().collect())
    }

    /// Reads the first row, if there is one.
    pub(super) fn find<T>(self, read: impl FnOnce(&dyn Row) -> Result<T>) -> Result<Option<T>> {
        let mut statement = self.statement.map_err(failure)?;
        let mut rows = statement.raw_query();
        let Some(row) = rows.next().map_err(failure)? else { return Ok(None) };
        read(&SqliteRow::new(row, self.columns)).map(Some)
    }

    /// Reads the only row of a statement that always has one.
    pub(super) fn one<T>(self, read: impl FnOnce(&dyn Row) -> Result<T>) -> Result<T> {
        self.find(read)?.ok_or_else(|| StoreError::Refused("a row is missing".to_owned()))
    }

    /// Reads the first column of the first row, if there is one.
    pub(super) fn scalar<T: FromSql>(self) -> Result<Option<T>> {
        let mut statement = self.statement.map_err(failure)?;
        let mut rows = statement.raw_query();
        let Some(row) = rows.next().map_err(failure)? else { return Ok(None) };
        row.get(0).map(Some).map_err(failure)
    }

    /// Reads the only value of a statement that always has one.
    pub(super) fn only<T: FromSql>(self) -> Result<T> {
        self.scalar()?.ok_or_else(|| StoreError::Refused("a row is missing".to_owned()))
    }

    /// Whether there is a row.
    pub(super) fn exists(self) -> Result<bool> {
        Ok(self.find(|_| Ok(()))?.is_some())
    }
}

/// A row, until its statement goes on to the next.
struct SqliteRow<'s> {
    row: &'s rusqlite::Row<'s>,
    /// The column after the last one read: columns are mostly read in their order.
    next: Cell<usize>,
    /// See [`Query::of`]; empty where the statement is to be asked.
    columns: Columns,
}

impl<'s> SqliteRow<'s> {
    fn new(row: &'s rusqlite::Row<'s>, columns: Columns) -> Self {
        let made = Self { row, next: Cell::new(0), columns };
        debug_assert!(made.has_its_columns(), "a statement selects other columns than its table's");
        made
    }

    /// Whether the columns that were stated are those that the statement selects.
    fn has_its_columns(&self) -> bool {
        let statement: &rusqlite::Statement<'_> = self.row.as_ref();
        let stated = self.columns.iter().map(|(name, _)| *name);
        self.columns.is_empty() || stated.eq(statement.column_names())
    }

    /// The place of a column; the search begins behind the last one read.
    fn place(&self, column: &str) -> Option<usize> {
        let next = self.next.get();
        if self.columns.is_empty() {
            let statement: &rusqlite::Statement<'_> = self.row.as_ref();
            return (next..statement.column_count())
                .chain(0..next)
                .find(|&index| statement.column_name(index).is_ok_and(|name| name == column));
        }
        (next..self.columns.len()).chain(0..next).find(|&index| self.columns[index].0 == column)
    }

    /// Finds a column, and reads it by `read`, which has `None` for a value of another type.
    fn value<'r, T>(
        &'r self,
        column: &str,
        read: impl FnOnce(ValueRef<'r>) -> Option<T>,
    ) -> Result<Option<T>> {
        let index = self
            .place(column)
            .ok_or_else(|| StoreError::Refused(format!("column {column} is missing")))?;
        self.next.set(index + 1);
        let value = self.row.get_ref(index).map_err(failure)?;
        if value == ValueRef::Null {
            return Ok(None);
        }
        read(value).map(Some).ok_or_else(|| unreadable(column, value.data_type()))
    }
}

impl Row for SqliteRow<'_> {
    fn text(&self, column: &str) -> Result<Option<&str>> {
        self.value(column, |value| value.as_str().ok())
    }

    fn bytes(&self, column: &str) -> Result<Option<&[u8]>> {
        self.value(column, |value| value.as_bytes().ok())
    }

    fn long(&self, column: &str) -> Result<Option<i64>> {
        self.value(column, |value| value.as_i64().ok())
    }

    fn int(&self, column: &str) -> Result<Option<i32>> {
        self.value(column, |value| value.as_i64().ok()?.try_into().ok())
    }

    fn flag(&self, column: &str) -> Result<Option<bool>> {
        self.value(column, |value| value.as_i64().ok().map(|value| value != 0))
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null(_) => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Long(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Self::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer((*number).into())),
            Self::Flag(flag) => ToSqlOutput::Borrowed(ValueRef::Integer((*flag).into())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::Texts(texts) => list(texts)?,
            Self::Longs(numbers) => list(numbers)?,
        })
    }
}

/// A list, as `json_each` takes it.
fn list<T: serde::Serialize>(values: &[T]) -> rusqlite::Result<ToSqlOutput<'static>> {
    let list = serde_json::to_string(values)
        .map_err(|err| rusqlite::Error::ToSqlConversionFailure(err.into()))?;
    Ok(ToSqlOutput::Owned(OwnedValue::Text(list)))
}

/// A statement put together from pieces.
pub(super) struct Pieces {
    sql: String,
    values: Vec<OwnedValue>,
}

impl Pieces {
    pub(super) fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), values: Vec::new() }
    }

    pub(super) fn push(&mut self, sql: impl AsRef<str>) -> &mut Self {
        self.sql.push_str(sql.as_ref());
        self
    }

    /// Adds a parameter and its value.
    pub(super) fn push_bind(&mut self, value: impl Into<OwnedValue>) -> &mut Self {
        self.sql.push('?');
        self.values.push(value.into());
        self
    }

    /// The same statement behind a prefix.
    #[cfg(feature = "simulation")]
    pub(super) fn before(mut self, prefix: &str) -> Self {
        self.sql.insert_str(0, prefix);
        self
    }

    /// The statement with its values.
    pub(super) fn build(self, db: &Db) -> Query<'_> {
        self.values.into_iter().fold(db.query(&self.sql), Query::bind)
    }
}

/// Maps a driver error. SQLite's messages name tables and columns, never values.
pub(super) fn failure(err: rusqlite::Error) -> StoreError {
    match err {
        rusqlite::Error::SqliteFailure(err, message) => {
            let code = err.extended_code;
            let told = format!("{} (SQLite {code})", message.unwrap_or_else(|| err.to_string()));
            // The low byte is the primary result code, https://sqlite.org/rescode.html: BUSY,
            // LOCKED, NOMEM, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL; then UNIQUE and PRIMARYKEY.
            match code {
                _ if matches!(code & 0xff, 5 | 6 | 7 | 9 | 10 | 13 | 14 | 15) => {
                    StoreError::Unavailable(told)
                }
                2067 | 1555 => StoreError::Conflict(told),
                // A value that does not fit: TOOBIG, MISMATCH, RANGE.
                _ if matches!(code & 0xff, 18 | 20 | 25) => StoreError::Refused(told),
                _ => StoreError::Denied(told),
            }
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => {
            StoreError::Denied(format!("{msg} (SQLite {})", error.extended_code))
        }
        // Other kinds may quote what they could not read.
        _ => StoreError::Refused("the driver could not carry the statement out".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn stated_columns_are_held_against_those_that_the_statement_selects() {
        const A: (&str, &str) = ("a", "bigint");
        const B: (&str, &str) = ("b", "bigint");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::File::create(&path).unwrap();
        let db = Db::open(&path, Duration::ZERO, "CREATE TABLE t (a INTEGER, b INTEGER)").unwrap();
        db.batch("INSERT INTO t VALUES (1, 2)").unwrap();
        let read = |columns: Columns| {
            let query = db.query("SELECT a, b FROM t").of(columns);
            catch_unwind(AssertUnwindSafe(|| query.one(|row| row.get::<i64>("b")))).ok()
        };
        assert_eq!(read(&[A, B]).unwrap().unwrap(), 2);
        assert!(read(&[B, A]).is_none());
        assert!(read(&[A]).is_none());
    }

    #[test]
    fn a_statement_is_prepared_once_whatever_is_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::File::create(&path).unwrap();
        let db = Db::open(&path, Duration::ZERO, "CREATE TABLE t (a INTEGER PRIMARY KEY)").unwrap();
        db.batch("INSERT INTO t VALUES (1), (2), (3)").unwrap();
        let sql = "SELECT a FROM t WHERE a > ? ORDER BY a LIMIT ?";
        for (above, limit, expected) in [(0, 2, vec![1, 2]), (1, 1, vec![2]), (0, 9, vec![1, 2, 3])]
        {
            let found: Vec<i64> =
                db.query(sql).bind(above).bind(limit).list(|row| row.get("a")).unwrap();
            assert_eq!(found, expected);
        }
        let again = db.query(sql).statement.unwrap().get_status(StatementStatus::RePrepare);
        assert_eq!(again, 0);
    }
}
