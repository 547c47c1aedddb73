//! The write-ahead log is copied into the file beside the writer, not by it: with SQLite's own way every
//! so many pages one commit waits until all of them are copied and the file is synchronised.
//!
//! A second connection that copies while the writer begins the log anew could lose pages in versions of SQLite
//! from 3.7.0 to 3.51.2 (its release notes call it the WAL-reset bug). The bundled one is newer; a test asks.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::db::Db;
use super::file::{DbFile, LONG, Writer, in_place};
use crate::store::Result;

/// Records and commits between two rounds of copying (a lone accepted handoff makes four of them): some 1,000 pages,
/// SQLite's own interval.
const ROUND: usize = 128;

/// Wait for readers of an old state before the log can begin anew.
const PATIENCE: Duration = Duration::from_millis(200);

/// Copies the write-ahead log into the file.
pub(super) struct Wal {
    shared: Arc<WalState>,
    task: std::sync::Mutex<Option<JoinHandle<()>>>,
    stop: CancellationToken,
    /// Ends the task with the store, even without a call of [`Wal::end`].
    _stop: DropGuard,
}

struct WalState {
    path: PathBuf,
    /// The database itself, to synchronise what was copied. Never closed: with any descriptor of the file that
    /// a process closes, POSIX takes away the locks that SQLite has on it.
    file: Option<&'static File>,
    written: AtomicUsize,
    /// Log size in bytes from which writers wait: above [`LONG`] while a reader holds an old state.
    long: AtomicU64,
    due: Notify,
    /// One copy at a time: SQLite rejects a second one. A task that also needs the writer takes the writer first.
    turn: Mutex<()>,
}

impl Wal {
    /// Starts the copy task, on its own connection.
    pub(super) fn keep(file: &DbFile, writer: &Arc<Mutex<Writer>>) -> Self {
        let mut path = file.path.as_os_str().to_owned();
        path.push("-wal");
        let stop = CancellationToken::new();
        let shared = Arc::new(WalState {
            path: path.into(),
            file: File::open(&file.path).ok().map(|file| &*Box::leak(Box::new(file))),
            written: AtomicUsize::new(0),
            long: AtomicU64::new(LONG),
            due: Notify::new(),
            turn: Mutex::new(()),
        });
        let task =
            tokio::spawn(run(file.clone(), Arc::clone(writer), Arc::clone(&shared), stop.clone()));
        Self {
            shared,
            task: std::sync::Mutex::new(Some(task)),
            _stop: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Counts a commit with its number of records.
    pub(super) fn wrote(&self, records: usize) {
        let what = 1 + records;
        let enough = self.shared.written.fetch_add(what, Ordering::Relaxed) + what >= ROUND;
        // A few contents may be as much as many records.
        if enough || self.shared.is_long() {
            self.shared.due.notify_one();
        }
    }

    /// Blocks copying while the guard is held. The holder of the writer may call
    /// this; the holder of the guard must not wait for the writer, or the two deadlock.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.turn.lock().await
    }

    /// Ends the task; pages not copied stay in the log, where readers find them. The holder of the writer must
    /// not call this.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A panic in it was told when it happened.
            let _ = task.await;
        }
    }
}

impl WalState {
    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    fn is_long(&self) -> bool {
        self.bytes() > self.long.load(Ordering::Relaxed)
    }
}

async fn run(
    file: DbFile,
    writer: Arc<Mutex<Writer>>,
    shared: Arc<WalState>,
    stop: CancellationToken,
) {
    let mut kept = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = shared.due.notified() => {}
        }
        shared.written.store(0, Ordering::Relaxed);
        let conn = match kept.take() {
            Some(conn) => Ok(conn),
            None => in_place(|| file.writer(PATIENCE)),
        };
        let done = async { round(conn?, &writer, &shared).await };
        match done.await {
            Ok(conn) => kept = Some(conn),
            // Committed data are safe in the log, which grows meanwhile.
            Err(err) => tracing::warn!(error = %err, "SQLite's log was not copied into the file"),
        }
    }
    // Before the writer's, which is the last and copies the rest.
    drop(kept);
}

/// Copies the present pages; for a long log also the rest, while no writer runs.
async fn round(db: Db, writer: &Mutex<Writer>, shared: &WalState) -> Result<Db> {
    if shared.bytes() <= LONG {
        shared.long.store(LONG, Ordering::Relaxed);
    }
    {
        let _turn = shared.turn.lock().await;
        checkpoint(&db, "PASSIVE")?;
    }
    if shared.is_long() {
        // SQLite synchronises the file only once all is copied, and no writer could work during that time.
        if let Some(file) = shared.file {
            // A failure here comes again there, and is reported there.
            let _ = in_place(|| file.sync_data());
        }
        let _writer = writer.lock().await;
        let _turn = shared.turn.lock().await;
        let anew = checkpoint(&db, "RESTART")?;
        // Otherwise a reader uses an old state, and may for long: writers are not to wait each time.
        let long = if anew { LONG } else { shared.bytes() + LONG };
        shared.long.store(long, Ordering::Relaxed);
    }
    Ok(db)
}

/// Runs a checkpoint; returns whether it completed.
pub(super) fn checkpoint(db: &Db, how: &str) -> Result<bool> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    // The first column is 0 if no reader was in the way.
    in_place(|| Ok(db.query(&sql).only::<i64>()? == 0))
}
