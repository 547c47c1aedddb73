//! The database file: its lock, its connections and their errors.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::SqliteStore;
use super::db::Db;
use super::file::{DbFile, PATIENCE, Writer, in_place};
use super::wal::Wal;
use crate::fault::{self, Io};
use crate::store::{Result, StoreError};

/// Default of [`SqliteOptions::rewrite_limit`]: 1 GiB takes seconds.
const REWRITE_LIMIT: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Serve the file: hold `<file>.lock` as long as the store is open, so that no second broker
    /// serves it. Without it the store works beside a running broker.
    pub exclusive: bool,
    /// Make the file (mode 0600), and its folder, if it is missing.
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

/// The end of a write transaction.
pub(super) struct Ended<T> {
    /// The caller's value.
    pub(super) value: T,
    /// Commit, and not roll back.
    pub(super) keep: bool,
    pub(super) records: usize,
}

/// Connections for reading; each is opened when it is first needed.
pub(super) struct Readers {
    file: DbFile,
    free: Mutex<Vec<Db>>,
    places: Semaphore,
    most: u32,
}

impl Readers {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Db>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections in use and idle.
    pub(super) fn count(&self) -> (u32, u32) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (self.most.saturating_sub(count(self.places.available_permits())), count(self.free().len()))
    }

    /// Waits for reads to end, and closes all connections.
    async fn close(&self) {
        // No other task closes; and a second call finds it closed.
        let _all = self.places.acquire_many(self.most).await;
        self.places.close();
        self.free().clear();
    }
}

impl SqliteStore {
    /// Reads on a connection of the pool.
    pub(super) async fn read<T>(&self, read: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        let readers = &self.readers;
        let _place = tokio::time::timeout(PATIENCE, readers.places.acquire())
            .await
            .map_err(|_| unavailable_now("no connection became free in time"))?
            .map_err(|_| unavailable_now(CLOSED))?;
        in_place(|| {
            let free = readers.free().pop();
            let db = free.map_or_else(|| readers.file.reader(), Ok)?;
            let outcome = read(&db);
            // A connection whose transaction did not end is closed, which ends it.
            if !db.in_transaction() {
                readers.free().push(db);
            }
            outcome
        })
    }

    /// Runs a write transaction; commits a success, rolls back an error.
    pub(super) async fn write<T>(&self, write: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.transaction(|db| Ok(Ended { value: write(db)?, keep: true, records: 0 })).await
    }

    /// Waits for the writer, and runs a transaction under SQLite's write lock, whole: a caller that goes
    /// away does not leave it half done.
    ///
    /// The connection is given back only when the transaction has ended. A panic takes it along, closing it rolls
    /// back, and the next writer opens another: no state of a half-done transaction survives, whatever SQLite
    /// did to it.
    pub(super) async fn transaction<T>(
        &self,
        work: impl FnOnce(&Db) -> Result<Ended<T>>,
    ) -> Result<T> {
        let mut writer = self.writer.lock().await;
        if writer.closed {
            return Err(unavailable_now(CLOSED));
        }
        in_place(|| {
            injected(Io::Begin)?;
            let db = writer.db.take().map_or_else(|| writer.file.writer(PATIENCE), Ok)?;
            db.query("BEGIN IMMEDIATE").execute()?;
            let (value, keep, records) = match work(&db) {
                Ok(ended) => (Ok(ended.value), ended.keep, ended.records),
                Err(err) => (Err(err), false, 0),
            };
            if keep {
                injected(Io::Commit)?;
                db.query("COMMIT").execute()?;
                if let Some(wal) = &self.wal {
                    wal.wrote(records);
                }
                injected(Io::Committed)?;
            } else if db.query("ROLLBACK").execute().is_err() {
                // SQLite has rolled back by itself (disk full, I/O error); the caller is told what led here.
                return value;
            }
            writer.db = Some(db);
            value
        })
    }

    /// Closes all connections, then releases the lock.
    pub(super) async fn shut(&self) {
        if let Some(wal) = &self.wal {
            wal.end().await;
        }
        let mut writer = self.writer.lock().await;
        writer.closed = true;
        self.readers.close().await;
        // Closing the last connection copies the rest of the write-ahead log.
        in_place(|| writer.db.take());
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
    let file = DbFile { path, exclusive: options.exclusive };
    let (db, first) = in_place(|| {
        let db = options.exclusive.then(|| file.writer(PATIENCE)).transpose()?;
        Ok::<_, StoreError>((db, file.reader()?))
    })?;
    let most = options.readers.max(1);
    let writer = Arc::new(tokio::sync::Mutex::new(Writer {
        file: file.clone(),
        rewrite_limit: options.rewrite_limit,
        db,
        closed: false,
    }));
    Ok(SqliteStore {
        wal: options.exclusive.then(|| Wal::keep(&file, &writer)),
        writer,
        readers: Readers {
            file,
            free: Mutex::new(vec![first]),
            places: Semaphore::new(most as usize),
            most,
        },
        lock: Mutex::new(lock),
    })
}

/// The error of a closed store.
pub(super) const CLOSED: &str = "the store is closed";

pub(super) fn unavailable_now(why: &str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
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

/// Makes a folder, with those above it, that its owner alone may enter. One that is there stays as it is.
///
/// # Errors
/// When it cannot be made.
pub fn private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Creates an empty file readable by its owner only; SQLite gives its companions the same mode.
fn create(path: &Path) -> Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        private_folder(folder).map_err(|err| unavailable(folder, &err))?;
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
