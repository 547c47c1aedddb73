//! The yardstick: the same machine on the same tables with one transaction a handoff, by pgbench on
//! Postgres and by a plain loop on SQLite; and in batches, on both. It checks nothing, hashes
//! nothing and delivers nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use handoffd::clock::random_id;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row as _, SqliteConnection};
use tokio::process::Command;
use tokio::time::Instant;

use crate::batched;
use crate::database::Database;
use crate::report::{Quantiles, Row};

/// Clients of the bare database.
const CLIENTS: [usize; 3] = [1, 8, 32];

/// Bytes that a 4 KB message makes, in units of 16: as the broker packs its content, the checkpoint
/// and the record's body.
pub const CONTENT: usize = 100;
pub const CHECKPOINT: usize = 88;
pub const RECORD: usize = 64;

/// Handoffs in a transaction of the batched loop.
const BATCH: usize = 64;

/// Connections of the batched loop on Postgres, and handoffs in a transaction.
const BATCHES: [(usize, usize); 2] = [(2, 64), (4, 16)];

const SCRIPTS: [(&str, &str); 2] = [
    ("a submission", "benches/pgbench-handoff.sql"),
    ("submission and verdict", "benches/pgbench-handoff-and-verdict.sql"),
];

/// Measures the store's bare database.
pub async fn measure(store: &str, binary: &Path, seconds: u64) -> Vec<Row> {
    if store.starts_with("sqlite") {
        return vec![
            sqlite(store, binary, seconds, false, 1).await,
            sqlite(store, binary, seconds, true, 1).await,
            sqlite(store, binary, seconds, false, BATCH).await,
            sqlite(store, binary, seconds, true, BATCH).await,
        ];
    }
    let mut rows = Vec::new();
    for (connections, batch) in BATCHES {
        for verdict in [false, true] {
            let database = Database::new(store, binary.to_owned()).await;
            prepared(&database).await;
            let time = Duration::from_secs(seconds);
            rows.push(batched::measure(&database.url, time, connections, batch, verdict).await);
            database.drop().await;
        }
    }
    let Some(pgbench) = pgbench() else {
        eprintln!("no pgbench on this machine: that yardstick is left out");
        return rows;
    };
    for (what, script) in SCRIPTS {
        for clients in CLIENTS {
            rows.push(postgres(store, binary, seconds, &pgbench, (what, script), clients).await);
        }
    }
    rows
}

/// Debian keeps it out of the path, one folder a version.
fn pgbench() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin/pgbench"))
        .chain(std::env::split_paths(&std::env::var_os("PATH")?).map(|path| path.join("pgbench")))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop()
}

/// Its tables, and the head of one log.
async fn prepared(database: &Database) {
    database.migrate().await;
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO tenants VALUES ('bare', 0); \
         INSERT INTO audit.log_heads (tenant, log_id, size, hash) VALUES ('bare', 'bare', 0, '')",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
}

async fn postgres(
    store: &str,
    binary: &Path,
    seconds: u64,
    pgbench: &Path,
    (what, script): (&str, &str),
    clients: usize,
) -> Row {
    let database = Database::new(store, binary.to_owned()).await;
    prepared(&database).await;
    let output = Command::new(pgbench)
        .args(["--no-vacuum", "--protocol=prepared", "--file"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .args(["--client", &clients.to_string(), "--jobs", &clients.min(2).to_string()])
        .args(["--time", &seconds.to_string()])
        .args(["--define", &format!("content={CONTENT}")])
        .args(["--define", &format!("checkpoint={CHECKPOINT}")])
        .args(["--define", &format!("record={RECORD}")])
        .arg(&database.url)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let figure = |before: &str| -> f64 {
        let line = said.lines().find_map(|line| line.strip_prefix(before)).expect(before);
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let more = BTreeMap::from([("latency average ms", figure("latency average = "))]);
    let rate = figure("tps = ");
    database.drop().await;
    let what = format!("Postgres bare, {what}, {clients} clients");
    Row { what, rate, answered: None, arrived: None, more }
}

/// One connection, as SQLite has one writer, with the broker's settings but one: it copies the write-ahead log
/// itself, as SQLite does by default. `batch` submissions make one
/// transaction, and as many verdicts another.
async fn sqlite(store: &str, binary: &Path, seconds: u64, verdict: bool, batch: usize) -> Row {
    let database = Database::new(store, binary.to_owned()).await;
    database.migrate().await;
    let mut connection = SqliteConnectOptions::new()
        .filename(database.url.strip_prefix("sqlite:").unwrap())
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("cache_size", "-16384")
        .connect()
        .await
        .unwrap();
    sqlx::raw_sql(
        "INSERT INTO tenants (tenant, created_at) VALUES ('bare', 0); \
         INSERT INTO audit_log_heads (tenant, log_id, size, hash) VALUES ('bare', 'bare', 0, x'')",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let mut took = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let one = Instant::now();
        let ids: Vec<String> = (0..batch).map(|_| random_id().to_string()).collect();
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        for id in &ids {
            submission(&mut tx, id).await.unwrap();
        }
        tx.commit().await.unwrap();
        if verdict {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
            for id in &ids {
                accepted(&mut tx, id).await.unwrap();
            }
            tx.commit().await.unwrap();
        }
        took.extend(ids.iter().map(|_| one.elapsed()));
    }
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    connection.close().await.unwrap();
    database.drop().await;
    let what = if verdict { "submission and verdict" } else { "a submission" };
    let in_batches = if batch > 1 { format!(", batches of {batch}") } else { String::new() };
    Row {
        what: format!("SQLite bare, {what}, 1 client{in_batches}"),
        rate,
        answered: Some(Quantiles::of(&took)),
        arrived: None,
        more: BTreeMap::new(),
    }
}

async fn next_leaf(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    let row = sqlx::query("SELECT size FROM audit_log_heads WHERE tenant = 'bare'");
    row.fetch_one(connection).await?.try_get(0)
}

async fn append(connection: &mut SqliteConnection, kind: &str, id: &str) -> sqlx::Result<()> {
    let leaf = next_leaf(connection).await?;
    sqlx::query(
        "INSERT INTO audit_records (tenant, leaf_index, record_hash, kind, task_id, handoff_id, \
         content_id, recorded_at, body) \
         VALUES ('bare', ?, randomblob(32), ?, ?, ?, ?, 1, randomblob(?))",
    )
    .bind(leaf)
    .bind(kind)
    .bind(id)
    .bind(id)
    .bind((kind == "HANDOFF").then_some(id))
    .bind(i64::try_from(RECORD * 16).unwrap_or_default())
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "UPDATE audit_log_heads SET size = size + 1, hash = randomblob(32) WHERE tenant = 'bare'",
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn submission(tx: &mut SqliteConnection, id: &str) -> sqlx::Result<()> {
    for read in [
        "SELECT status FROM tasks WHERE tenant = 'bare' AND task_id = ?",
        "SELECT status FROM handoffs WHERE tenant = 'bare' AND handoff_id = ?",
    ] {
        sqlx::query(read).bind(id).fetch_optional(&mut *tx).await?;
    }
    for write in [
        "INSERT INTO tasks (tenant, task_id, status, holder, checkpoint_execution, checkpoint_seq, \
         fence, handoffs, undelivered, failures, spent_nanos, remaining_nanos, created_at, updated_at) \
         VALUES ('bare', ?1, 'HANDING_OFF', 'sender-1', NULL, NULL, 1, 1, 1, 0, 1, 1, 1, 1)",
        "INSERT INTO handoffs (tenant, handoff_id, task_id, parent_id, source, source_version, \
         source_execution, target, target_type, target_version, mode, status, fencing_token, attempts, \
         deadline_at, spent_nanos, remaining_nanos, prompt_tokens, completion_tokens, idempotent, \
         checkpoint_execution, checkpoint_seq, content_id, digest_salt, digest, reason, traceparent, \
         created_at, accepted_at, ended_at) VALUES ('bare', ?1, ?1, NULL, 'sender-1', '1.0.0', ?1, 'receiver-1', \
         'receiver-1', '1.0.0', 'webhook', 'PENDING', 1, 1, NULL, 1, 1, 1200, 300, 1, ?1, 1, ?1, \
         randomblob(16), randomblob(32), NULL, \
         '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 1, NULL, NULL)",
        "INSERT INTO outbox (tenant, handoff_id, task_id, seq, target, mode, visible_at, attempt, \
         claimed_by, created_at) VALUES ('bare', ?1, ?1, 1, 'receiver-1', 'webhook', 1, 1, 'broker-1', 1)",
    ] {
        sqlx::query(write).bind(id).execute(&mut *tx).await?;
    }
    for (write, units) in [
        (
            "INSERT INTO checkpoints VALUES ('bare', ?1, ?1, 1, 'sender-1', randomblob(32), \
             randomblob(16), 'zstd', randomblob(?2), 1)",
            CHECKPOINT,
        ),
        (
            "INSERT INTO contents (tenant, content_id, salt, codec, bytes, created_at) VALUES ('bare', ?1, randomblob(16), 'zstd', randomblob(?2), 1)",
            CONTENT,
        ),
    ] {
        let bytes = i64::try_from(units * 16).unwrap_or_default();
        sqlx::query(write).bind(id).bind(bytes).execute(&mut *tx).await?;
    }
    append(tx, "HANDOFF", id).await
}

async fn accepted(tx: &mut SqliteConnection, id: &str) -> sqlx::Result<()> {
    for read in [
        "SELECT status FROM tasks WHERE tenant = 'bare' AND task_id = ?",
        "SELECT status FROM handoffs WHERE tenant = 'bare' AND handoff_id = ?",
        "SELECT attempt FROM outbox WHERE tenant = 'bare' AND handoff_id = ?",
    ] {
        sqlx::query(read).bind(id).fetch_optional(&mut *tx).await?;
    }
    for write in [
        "UPDATE tasks SET status = 'RUNNING', undelivered = 0 WHERE tenant = 'bare' AND task_id = ?",
        "UPDATE handoffs SET status = 'ACCEPTED', accepted_at = 2, deadline_at = 3 \
         WHERE tenant = 'bare' AND handoff_id = ?",
        "DELETE FROM outbox WHERE tenant = 'bare' AND handoff_id = ?",
    ] {
        sqlx::query(write).bind(id).execute(&mut *tx).await?;
    }
    append(tx, "ACCEPTED", id).await
}
