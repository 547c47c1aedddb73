//! The database file, its connections, and the questions to the file itself, which no table answers.

use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::db::Db;
use crate::store::Result;

/// Wait of a statement for another process, and of a reader for a free connection.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the log from which writers wait for the rest to be copied, so that it begins anew: while they go
/// on, there is always a rest. The file is cut back to that whenever the log begins anew, so that a longer
/// file holds a longer log. Each such wait synchronises the file: a quarter as many of them let 64 senders through 1.2
/// times as fast as 16 MiB did.
pub(super) const LONG: u64 = 67_108_864;

/// Pages from which a commit copies them itself, since no other task seems to.
const NET: u32 = 65_536;

/// [`NET`] of a writer beside the broker: SQLite's own interval.
const OWN: u32 = 1_000;

/// A database file, to connect to.
#[derive(Debug, Clone)]
pub(super) struct DbFile {
    pub(super) path: PathBuf,
    /// Whether a task copies the write-ahead log: see [`super::wal`].
    pub(super) exclusive: bool,
}

impl DbFile {
    /// Connects to write. `secure_delete` overwrites what is erased, and does not just mark it as free; the page cache
    /// is in KiB (negative by SQLite's convention).
    pub(super) fn writer(&self, patience: Duration) -> Result<Db> {
        let net = if self.exclusive { NET } else { OWN };
        let pragmas = format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384; PRAGMA secure_delete = ON; \
             PRAGMA journal_size_limit = {LONG}; PRAGMA wal_autocheckpoint = {net}"
        );
        Db::open(&self.path, patience, &pragmas)
    }

    /// Connects to read. Reads at once, so that a file that is not a database fails now.
    pub(super) fn reader(&self) -> Result<Db> {
        let pragmas = "PRAGMA temp_store = MEMORY; PRAGMA query_only = ON; \
                       SELECT count(*) FROM sqlite_schema";
        Db::open(&self.path, PATIENCE, pragmas)
    }
}

/// See [`crate::store::Store::ping`].
pub(super) fn ping(db: &Db) -> Result<()> {
    // Reads the file's header and not just the connection.
    db.query("SELECT count(*) FROM sqlite_schema").one(|_| Ok(()))
}

/// The size of the file, in bytes.
pub(super) fn size(db: &Db) -> Result<i64> {
    db.query("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").only()
}

/// Runs blocking work on this thread; a runtime of several threads gives its other tasks to another meanwhile.
///
/// A batch is some hundred statements of a few microseconds each: a thread of its own would cost two switches
/// a statement, or two a call with everything that the call borrows copied.
pub(super) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// The only writing connection; reopened after it was dropped.
pub(super) struct Writer {
    pub(super) file: DbFile,
    pub(super) rewrite_limit: u64,
    pub(super) db: Option<Db>,
    pub(super) closed: bool,
}
