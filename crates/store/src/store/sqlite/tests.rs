//! SQLite's own parts: the file and its lock, the writer that outlives its callers, the triggers of
//! the log. The conformance suite has the behaviour of both sides.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::store::driver::Driver;
use crate::store::{OutboxRow, Store, StoreError};
use handoffd_domain::handoff::{Cost, HandoffStatus, Priority};
use handoffd_domain::ids::{ContentId, ExecutionId, HandoffId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::lease::HolderPulse;
use handoffd_domain::money::Usd;
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{
    Actor, PersonalPart, RecordContent, RecordDraft, RecordKind, record_hash,
};

pub(super) const AT: Micros = Micros(1_000_000);

pub(super) struct SqliteBench {
    pub(super) folder: TempDir,
    pub(super) store: Store,
    pub(super) tenant: TenantId,
}

impl SqliteBench {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&url(&folder), SqliteOptions::serving()).await.unwrap();
        let store = Store::from(store);
        assert!(store.migrate().await.unwrap() > 0);
        let tenant: TenantId = "acme".parse().unwrap();
        store.ensure_tenant(&tenant, "log-1", AT).await.unwrap();
        Self { folder, store, tenant }
    }

    /// The store's driver.
    pub(super) fn db(&self) -> &SqliteStore {
        let Driver::Sqlite(db) = &self.store.driver else { panic!("a store on SQLite") };
        db
    }

    /// A connection past the store.
    pub(super) fn raw(&self) -> Connection {
        let path = self.folder.path().join("deep/er/h.db");
        Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap()
    }

    pub(super) async fn write(&self, writes: Writes) -> Result<Vec<SealedRecord>> {
        let mut writes = Some(writes);
        let done = self.store.transact(&Needs::default(), &mut |_| writes.take().unwrap()).await;
        done.map(|done| done.records)
    }

    pub(super) async fn load(&self, needs: &Needs) -> BatchState {
        let mut seen = None;
        let none = self
            .store
            .transact(needs, &mut |state| {
                seen = Some(state);
                Writes::default()
            })
            .await
            .unwrap();
        assert!(none.records.is_empty());
        seen.unwrap()
    }

    pub(super) fn task(&self, n: u128) -> Task {
        Task {
            tenant: self.tenant.clone(),
            id: TaskId(Uuid::from_u128(n)),
            status: TaskStatus::HandingOff,
            holder: agent("a"),
            checkpoint: None,
            fence: 1,
            handoffs: 1,
            undelivered: 1,
            failures: 0,
            course: handoffd_domain::course::Course::default(),
            spent: Usd(5),
            remaining: Usd(7),
            topped_up: Usd(9),
            opened_by: Some(agent("a")),
            funds: None,
            created_at: AT,
            updated_at: AT,
        }
    }

    pub(super) fn handoff(&self, n: u128, task: &Task) -> Handoff {
        Handoff {
            tenant: self.tenant.clone(),
            id: HandoffId(Uuid::from_u128(n)),
            task_id: task.id,
            parent_id: None,
            source: agent("a"),
            source_version: "1.0.0".to_owned(),
            source_execution: ExecutionId(Uuid::from_u128(9)),
            target: agent("b"),
            target_type: "type-b".to_owned(),
            target_version: "2.0.0".to_owned(),
            mode: DeliveryMode::Webhook,
            status: HandoffStatus::Pending,
            fencing_token: 1,
            attempts: 0,
            deadline_at: Some(Micros(2_000_000)),
            pulse: Some(HolderPulse {
                interval_ms: 1_500,
                heard_at: Micros(1_000_000),
                until: Micros(2_000_000),
            }),
            cost: Cost { prompt_tokens: 3, ..Cost::default() },
            idempotent: true,
            checkpoint: None,
            content_id: None,
            digest_salt: vec![1; 16],
            digest: vec![2; 32],
            checkpoint_commitment: Some([8; 32]),
            commitment: Some([7; 32]),
            origin: None,
            ruling: None,
            context: None,
            sent_id: None,
            questions: Vec::new(),
            conversation_id: None,
            user_ref: None,
            stream: None,
            topped_up: Usd(11),
            reason: None,
            traceparent: "00-trace".to_owned(),
            tracestate: "a=1".to_owned(),
            span: "00-span".to_owned(),
            created_at: Micros(AT.0 + i64::try_from(n).unwrap()),
            clock: LatencyClock { started_at: Micros(AT.0 - 5), offered_at: Some(AT) },
            accepted_at: None,
            ended_at: None,
        }
    }
}

pub(super) fn url(folder: &TempDir) -> String {
    format!("sqlite:{}", folder.path().join("deep/er/h.db").display())
}

pub(super) fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

pub(super) fn outbox(handoff: &Handoff, seq: i64) -> OutboxRow {
    OutboxRow {
        tenant: handoff.tenant.clone(),
        handoff_id: handoff.id,
        task_id: handoff.task_id,
        seq,
        target: handoff.target.clone(),
        mode: handoff.mode,
        priority: Priority::Normal,
        visible_at: handoff.created_at,
        attempt: 0,
        busy: 0,
        claimed_by: None,
        created_at: handoff.created_at,
    }
}

/// The record of a committed handoff with its message and two subjects' data.
pub(super) fn record(handoff: &mut Handoff, message: &str) -> RecordDraft {
    let id = ContentId(Uuid::from_u128(handoff.id.0.as_u128() + 1_000_000));
    handoff.content_id = Some(id);
    let part = PackedContent::new(CommitmentSubject::Message, [3; 16], message.as_bytes());
    let personal = |subject: &str| PersonalPart {
        subject_id: subject.to_owned(),
        part: PackedContent::new(
            CommitmentSubject::PersonalData,
            [4; 16],
            format!("\"{subject}\"").as_bytes(),
        ),
    };
    let mut draft =
        RecordDraft::new(handoff.tenant.clone(), RecordKind::Handoff, AT, Actor::broker());
    draft.task_id = Some(handoff.task_id);
    draft.handoff_id = Some(handoff.id);
    draft.content = Some(RecordContent { id, part });
    draft.personal = vec![personal("zoe"), personal("adam")];
    draft
}

/// `count` handoffs, each on a task of its own, with outbox row and record.
pub(super) fn committed(bench: &SqliteBench, ids: std::ops::Range<u128>) -> Writes {
    let mut writes = Writes::default();
    for n in ids {
        let task = bench.task(n);
        let mut handoff = bench.handoff(n, &task);
        writes.records.push(record(&mut handoff, &format!("message {n}")));
        let key = (bench.tenant.clone(), handoff.id);
        writes.outbox.insert(key.clone(), Some(outbox(&handoff, 1)));
        writes.handoffs.insert(key, (handoff, true));
        writes.tasks.insert((bench.tenant.clone(), task.id), (task, true));
    }
    writes
}

#[tokio::test]
async fn a_url_names_a_file() {
    for bad in ["sqlite::memory:", "sqlite:", "postgres://x", "sqlite:a.db?mode=ro", "a.db"] {
        let refused = SqliteStore::open(bad, SqliteOptions::serving()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{bad}: {refused}");
    }
    let missing = SqliteStore::open("sqlite:/no/such/file.db", SqliteOptions::beside()).await;
    assert!(matches!(missing.unwrap_err(), StoreError::Unavailable(_)));
}

#[tokio::test]
async fn one_broker_serves_a_file_and_others_may_look() {
    let bench = SqliteBench::new().await;
    let url = url(&bench.folder);
    let second = SqliteStore::open(&url, SqliteOptions::serving()).await.unwrap_err();
    assert!(second.to_string().contains("another broker serves"), "{second}");

    bench.write(committed(&bench, 1..3)).await.unwrap();
    let beside = SqliteStore::open(&url, SqliteOptions::beside()).await.unwrap();
    assert_eq!(beside.find_head(&bench.tenant).await.unwrap().unwrap().size, 2);
    assert_eq!(beside.migrate().await.unwrap(), 0);
    beside.close().await;

    bench.store.close().await;
    assert!(matches!(bench.store.ping().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(bench.store.beat("x", AT).await, Err(StoreError::Unavailable(_))));
    let again = Store::from(SqliteStore::open(&url, SqliteOptions::serving()).await.unwrap());
    assert_eq!(again.find_head(&bench.tenant).await.unwrap().unwrap().size, 2);
    assert_eq!(again.list_tenants().await.unwrap(), std::slice::from_ref(&bench.tenant));
    again.ping().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_reads_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let bench = SqliteBench::new().await;
    for file in std::fs::read_dir(bench.folder.path().join("deep/er")).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{file:?}");
    }
}

#[tokio::test]
async fn a_foreign_or_changed_migration_is_refused() {
    let bench = SqliteBench::new().await;
    assert_eq!(bench.store.migrate().await.unwrap(), 0);
    let raw = bench.raw();
    raw.execute_batch("INSERT INTO _sqlx_migrations VALUES (99, 'future', '', TRUE, x'00', 0)")
        .unwrap();
    let newer = bench.store.migrate().await.unwrap_err();
    assert!(matches!(&newer, StoreError::Refused(why) if why.contains("migration 99")), "{newer}");
    raw.execute_batch(
        "DELETE FROM _sqlx_migrations WHERE version = 99; \
         UPDATE _sqlx_migrations SET checksum = x'00'",
    )
    .unwrap();
    let changed = bench.store.migrate().await.unwrap_err();
    assert!(matches!(&changed, StoreError::Refused(why) if why.contains("another text")));
}

#[tokio::test]
async fn rows_of_a_database_before_the_narrow_tables_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&url(&folder), SqliteOptions::serving()).await.unwrap();
    let (before, after) = SQLITE.split_at(18);
    store.write(|db| migrations::run(db, before)).await.unwrap();
    let rows = "INSERT INTO outbox (tenant, handoff_id, task_id, seq, target, mode, visible_at, attempt, \
           claimed_by, created_at, priority, busy) \
         VALUES ('acme', 'h', 't', 1, 'b', 'pull', 2, 3, NULL, 4, 0, 5); \
         INSERT INTO idempotency_keys VALUES ('acme', 'a', 'k', 'h', 6); \
         INSERT INTO task_edges VALUES ('acme', 't', 'a', 'b', 1, 2, 3, 4, 5, 6, 7, 8)";
    store.write(|db| db.batch(rows)).await.unwrap();
    assert_eq!(store.migrate().await.unwrap(), after.len());
    let kept = "SELECT (SELECT count(*) FROM outbox WHERE target = 'b' AND claimed_by IS NULL \
           AND (visible_at, attempt, created_at, priority, busy) = (2, 3, 4, 0, 5)) \
         + (SELECT count(*) FROM idempotency_keys WHERE (handoff_id, created_at) = ('h', 6)) \
         + (SELECT count(*) FROM task_edges WHERE (passages, repeats, completed_count, failures, \
           spent_nanos, remaining_nanos, topped_up_nanos, updated_at) = (1, 2, 3, 4, 5, 6, 7, 8))";
    let kept: i64 = store.read(|db| db.query(kept).only()).await.unwrap();
    assert_eq!(kept, 3);
}

#[tokio::test]
async fn records_cannot_be_rewritten_by_sql() {
    let bench = SqliteBench::new().await;
    bench.write(committed(&bench, 1..3)).await.unwrap();
    let raw = bench.raw();
    for sql in [
        "UPDATE audit_records SET body = x'00'",
        "DELETE FROM audit_records WHERE leaf_index = 1",
        "REPLACE INTO audit_records SELECT * FROM audit_records WHERE leaf_index = 0",
        "INSERT OR REPLACE INTO audit_records SELECT * FROM audit_records",
    ] {
        let refused = raw.execute_batch(sql).unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{sql}: {refused}");
    }
    let records = bench.store.list_records(&bench.tenant, None, 0, 10, false).await.unwrap();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record_hash(&record.body) == record.hash.as_slice()));
}

#[tokio::test]
async fn a_caller_that_goes_away_before_its_turn_takes_nothing_with_it() {
    let bench = SqliteBench::new().await;
    let writer = bench.db().writer.lock().await;
    let mut plan = |_| panic!("it is not its turn");
    let needs = Needs::default();
    tokio::select! {
        biased;
        _ = bench.store.transact(&needs, &mut plan) => panic!("the writer is taken"),
        () = std::future::ready(()) => {}
    }
    drop(writer);
    assert_eq!(bench.store.find_head(&bench.tenant).await.unwrap().unwrap().size, 0);
    assert_eq!(bench.write(committed(&bench, 1..3)).await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_error_after_the_first_write_leaves_nothing_of_the_batch() {
    let bench = SqliteBench::new().await;
    let mut writes = committed(&bench, 1..200);
    let nobody: TenantId = "nobody".parse().unwrap();
    writes.records.push(RecordDraft::new(nobody, RecordKind::NoOp, AT, Actor::broker()));
    bench.write(writes).await.unwrap_err();
    assert_eq!(bench.store.find_head(&bench.tenant).await.unwrap().unwrap().size, 0);
    assert_eq!(bench.store.depths(Micros(0)).await.unwrap().outbox, 0);
    assert_eq!(bench.write(committed(&bench, 1..3)).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_a_caller_goes_away_a_batch_is_whole_or_absent() {
    let bench = Arc::new(SqliteBench::new().await);
    for n in 0..60u32 {
        let from = u128::from(n) * 100 + 1;
        let (writing, writes) = (Arc::clone(&bench), committed(&bench, from..from + 20));
        let attempt = tokio::spawn(async move { writing.write(writes).await });
        let _ = tokio::time::timeout(Duration::from_micros(u64::from(n) * 50), async {
            while !attempt.is_finished() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        attempt.abort();
    }
    bench.write(committed(&bench, 100_000..100_001)).await.unwrap();
    let head = bench.store.find_head(&bench.tenant).await.unwrap().unwrap();
    let depths = bench.store.depths(Micros(0)).await.unwrap();
    assert_eq!((head.size - 1) % 20, 0);
    assert_eq!(depths.outbox, head.size);
    let records = bench.store.list_records(&bench.tenant, None, 0, 5_000, false).await.unwrap();
    assert_eq!(i64::try_from(records.len()).unwrap(), head.size);
    assert!(bench.store.list_unrecorded(&bench.tenant).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tasks_go_on_while_a_batch_is_written() {
    let bench = SqliteBench::new().await;
    let (waited, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (plan_waits, other_saw) = (Arc::clone(&waited), Arc::clone(&seen));
    let other = tokio::spawn(async move {
        while !plan_waits.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        other_saw.store(true, Ordering::Release);
    });
    let writing = tokio::spawn(async move {
        let mut plan = |_| {
            waited.store(true, Ordering::Release);
            while !seen.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Writes::default()
        };
        bench.store.transact(&Needs::default(), &mut plan).await
    });
    writing.await.unwrap().unwrap();
    other.await.unwrap();
}

#[tokio::test]
async fn a_plan_that_panics_leaves_the_writer_usable() {
    let bench = SqliteBench::new().await;
    let writes = committed(&bench, 1..2);
    let store = Arc::new(bench.store);
    let panicking = Arc::clone(&store);
    let task = tokio::spawn(async move {
        panicking.transact(&Needs::default(), &mut |_| panic!("as the test wants")).await
    });
    assert!(task.await.unwrap_err().is_panic());
    let mut writes = Some(writes);
    let sealed = store.transact(&Needs::default(), &mut |_| writes.take().unwrap()).await.unwrap();
    assert_eq!(sealed.records.len(), 1);
}

/// A transaction of 1 MiB.
async fn fill(bench: &SqliteBench) {
    let blobs = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 16) \
         INSERT INTO filler SELECT randomblob(65536) FROM n";
    bench.db().write(|db| db.batch(blobs)).await.unwrap();
}

/// Times of [`fill`] that make a long log.
const FILLS: u64 = file::LONG >> 20;

async fn filler(bench: &SqliteBench) {
    bench.db().write(|db| db.batch("CREATE TABLE filler (bytes BLOB)")).await.unwrap();
}

fn log_bytes(bench: &SqliteBench) -> u64 {
    let path = bench.folder.path().join("deep/er/h.db-wal");
    std::fs::metadata(path).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_begins_anew_while_writers_go_on() {
    let bench = SqliteBench::new().await;
    filler(&bench).await;
    for _ in 0..15 * FILLS / 2 {
        fill(&bench).await;
        assert!(log_bytes(&bench) < 3 * file::LONG, "{}", log_bytes(&bench));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_grows_under_a_long_reader_and_is_cut_back_after_it() {
    let bench = SqliteBench::new().await;
    filler(&bench).await;
    let reader = bench.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM filler").unwrap();
    for _ in 0..5 * FILLS / 2 {
        fill(&bench).await;
    }
    assert!(log_bytes(&bench) > 2 * file::LONG, "{}", log_bytes(&bench));
    reader.close().unwrap();
    let mut left = 200;
    while log_bytes(&bench) > file::LONG {
        assert!(left > 0, "still {} bytes", log_bytes(&bench));
        left -= 1;
        fill(&bench).await;
    }
    for _ in 0..5 * FILLS {
        fill(&bench).await;
        assert!(log_bytes(&bench) < 3 * file::LONG, "{}", log_bytes(&bench));
    }
}

/// See the head of `wal.rs`.
#[tokio::test]
async fn this_sqlite_has_no_wal_reset_bug() {
    let bench = SqliteBench::new().await;
    let raw = bench.raw();
    let version: String = raw.query_row("SELECT sqlite_version()", [], |row| row.get(0)).unwrap();
    let version: semver::Version = version.parse().unwrap();
    assert!(version >= semver::Version::new(3, 51, 3), "{version}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_write_ahead_log_holds_at_the_end_is_in_the_file() {
    let bench = SqliteBench::new().await;
    filler(&bench).await;
    fill(&bench).await;
    // Enough for the log to have been copied once, by the other connection.
    for _ in 0..300 {
        bench.db().write(|_| Ok(())).await.unwrap();
    }
    bench.store.close().await;
    let folder = bench.folder.path().join("deep/er");
    assert!(!folder.join("h.db-wal").exists());
    assert!(std::fs::metadata(folder.join("h.db")).unwrap().len() > 1 << 20);
}
