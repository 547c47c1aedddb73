//! The database file: its lock, its connections and their errors.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, MutexGuard};

use super::SqliteStore;
use super::wal::{self, Wal};
use crate::fault::{self, Io};
use crate::store::{Result, StoreError};

/// Wait of a statement for another process, and of a reader for a free connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prepared statements kept on a connection: about twice as many as there are.
const STATEMENTS: usize = 200;

/// Page cache of the writer, in KiB (negative by SQLite's convention).
const WRITER_CACHE: &str = "-16384";

/// Default of [`SqliteOptions::rewrite_limit`]: 1 GiB takes seconds.
const REWRITE_LIMIT: u64 = 1 << 30;

/// Options of a [`SqliteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Serve the file: hold `<file>.lock` as long as the store is open, so that no second broker
    /// serves it. Without it the store works beside a running broker.
    pub exclusive: bool,
    /// Make the file (mode 0600), and the folder it stands in, where it is missing.
    pub create: bool,
    /// Number of connections for reading.
    pub readers: u32,
    /// The largest file, in bytes, that an erasure rewrites: see [`crate::store::Store::scrub`].
    pub rewrite_limit: u64,
}

impl SqliteOptions {
    /// Options for a broker: exclusive, and creates the file.
    #[must_use]
    pub const fn serving() -> Self {
        Self { exclusive: true, create: true, readers: 4, rewrite_limit: REWRITE_LIMIT }
    }

    /// Options for commands on an existing file, also beside a running broker.
    #[must_use]
    pub const fn beside() -> Self {
        Self { exclusive: false, create: false, ..Self::serving() }
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::serving()
    }
}

/// The only writing connection; reopened after it was dropped.
pub(super) struct Writer {
    pub(super) options: SqliteConnectOptions,
    pub(super) rewrite_limit: u64,
    conn: Option<SqliteConnection>,
    pub(super) closed: bool,
}

/// An open write transaction.
///
/// It owns its connection and gives it back only when the transaction has ended. A caller that goes
/// away in between (a dropped future, a panic in `plan`) takes the connection along, closing it
/// rolls back, and the next writer opens another: no state of a half-done transaction survives,
/// whatever SQLite did to it. The fields drop in this order, so the connection goes first.
pub(super) struct Tx<'a> {
    pub(super) conn: SqliteConnection,
    writer: MutexGuard<'a, Writer>,
    wal: Option<&'a Wal>,
    /// Records written in the transaction.
    pub(super) records: usize,
}

impl Tx<'_> {
    /// Commits a success, rolls back an error.
    pub(super) async fn settle<T>(self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => {
                injected(Io::Commit)?;
                self.end("COMMIT").await?;
                injected(Io::Committed)?;
                Ok(value)
            }
            Err(err) => {
                self.abandon().await;
                Err(err)
            }
        }
    }

    /// Rolls the transaction back.
    pub(super) async fn abandon(self) {
        // Where it fails, SQLite has rolled back by itself (disk full, I/O error): `end` drops the
        // connection, and what the caller is told is the error that led here.
        let _ = self.end("ROLLBACK").await;
    }

    async fn end(mut self, how: &'static str) -> Result<()> {
        sqlx::query(how).execute(&mut self.conn).await.map_err(failure)?;
        let Self { conn, mut writer, wal, records } = self;
        writer.conn = Some(conn);
        if let Some(wal) = wal {
            wal.wrote(records);
        }
        Ok(())
    }
}

impl SqliteStore {
    /// Waits for the writer and takes SQLite's write lock.
    pub(super) async fn begin(&self) -> Result<Tx<'_>> {
        let mut writer = self.writer.lock().await;
        if writer.closed {
            return Err(StoreError::Unavailable("the store is closed".to_owned()));
        }
        injected(Io::Begin)?;
        let conn = match writer.conn.take() {
            Some(conn) => conn,
            None => writer.options.connect().await.map_err(failure)?,
        };
        let mut tx = Tx { conn, writer, wal: self.wal.as_ref(), records: 0 };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut tx.conn).await.map_err(failure)?;
        Ok(tx)
    }

    /// Closes all connections, then releases the lock.
    pub(super) async fn shut(&self) {
        if let Some(wal) = &self.wal {
            wal.end().await;
        }
        let mut writer = self.writer.lock().await;
        writer.closed = true;
        self.readers.close().await;
        if let Some(conn) = writer.conn.take() {
            // A connection that cannot be closed in order is closed by being dropped.
            let _ = conn.close().await;
        }
        if let Ok(mut lock) = self.lock.lock() {
            lock.take();
        }
    }
}

/// See [`SqliteStore::open`].
pub(super) async fn open(url: &str, options: &SqliteOptions) -> Result<SqliteStore> {
    let named = path_of(url)?;
    if options.create {
        create(&named)?;
    }
    // Past symbolic links, so that one file has one lock.
    let path = named.canonicalize().map_err(|err| unavailable(&named, &err))?;
    let lock = options.exclusive.then(|| lock(&path)).transpose()?;

    let shared = SqliteConnectOptions::new()
        .filename(&path)
        .foreign_keys(true)
        .busy_timeout(PATIENCE)
        .statement_cache_capacity(STATEMENTS)
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging();
    let writing = shared
        .clone()
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("cache_size", WRITER_CACHE)
        // What is erased is overwritten, and not just marked as free.
        .pragma("secure_delete", "ON")
        .pragma("journal_size_limit", wal::LONG.to_string());
    let writing =
        if options.exclusive { writing.pragma("wal_autocheckpoint", wal::NET) } else { writing };
    let conn =
        if options.exclusive { Some(writing.connect().await.map_err(failure)?) } else { None };
    // The first reader connects at once: a file that is no database is told now.
    let readers = SqlitePoolOptions::new()
        .max_connections(options.readers.max(1))
        .acquire_timeout(PATIENCE)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(shared.pragma("query_only", "ON"))
        .await
        .map_err(failure)?;
    let writer = Arc::new(Mutex::new(Writer {
        options: writing.clone(),
        rewrite_limit: options.rewrite_limit,
        conn,
        closed: false,
    }));
    Ok(SqliteStore {
        wal: options.exclusive.then(|| Wal::keep(&path, writing, &writer)),
        writer,
        readers,
        lock: std::sync::Mutex::new(lock),
    })
}

fn path_of(url: &str) -> Result<PathBuf> {
    let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
    match path {
        Some(":memory:") => Err(StoreError::Refused(
            "an in-memory SQLite database would be lost; name a file, as in sqlite:handoffd.db"
                .to_owned(),
        )),
        Some(path) if !path.is_empty() && !path.contains('?') && !path.starts_with("file:") => {
            Ok(PathBuf::from(path))
        }
        _ => Err(StoreError::Refused(
            "a SQLite URL is sqlite: and a path, without parameters".to_owned(),
        )),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty file readable by its owner only; SQLite gives its companions the same mode.
fn create(path: &Path) -> Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|err| unavailable(folder, &err))?;
    }
    match private().create_new(true).open(path) {
        Err(err) if err.kind() != std::io::ErrorKind::AlreadyExists => Err(unavailable(path, &err)),
        _ => Ok(()),
    }
}

/// Takes the lock of a serving broker. The file stays; the lock ends with the process.
fn lock(path: &Path) -> Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = private()
        .create(true)
        .truncate(false)
        .open(&name)
        .map_err(|err| unavailable(&name, &err))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Refused(format!(
            "another broker serves {} ({} is locked): a SQLite file has one broker, \
             several need Postgres",
            path.display(),
            name.display(),
        ))),
        Err(TryLockError::Error(err)) => Err(unavailable(&name, &err)),
    }
}

/// A disk error, where a test injects one.
fn injected(call: Io) -> Result<()> {
    if fault::fails(call) {
        return Err(StoreError::Unavailable(format!("{}: a test's I/O error", call.name())));
    }
    Ok(())
}

fn unavailable(path: &Path, err: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {err}", path.display()))
}

/// Maps a driver error. SQLite's messages name tables and columns, never values.
pub(super) fn failure(err: sqlx::Error) -> StoreError {
    match err {
        sqlx::Error::Database(err) => {
            let code = err.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default();
            let told = format!("{} (SQLite {code})", err.message());
            // The low byte is the primary result code, https://sqlite.org/rescode.html: BUSY,
            // LOCKED, NOMEM, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL.
            if matches!(code & 0xff, 5 | 6 | 7 | 9 | 10 | 13 | 14 | 15) {
                StoreError::Unavailable(told)
            } else if err.is_unique_violation() {
                StoreError::Conflict(told)
            } else {
                StoreError::Refused(told)
            }
        }
        sqlx::Error::Io(err) => StoreError::Unavailable(err.to_string()),
        sqlx::Error::PoolTimedOut => {
            StoreError::Unavailable("no connection became free in time".to_owned())
        }
        sqlx::Error::PoolClosed => StoreError::Unavailable("the store is closed".to_owned()),
        sqlx::Error::WorkerCrashed => {
            StoreError::Unavailable("a connection's thread ended".to_owned())
        }
        sqlx::Error::ColumnNotFound(column) => {
            StoreError::Refused(format!("column {column} is missing"))
        }
        // Other kinds may quote what they could not read.
        _ => StoreError::Refused("the driver could not carry the statement out".to_owned()),
    }
}
