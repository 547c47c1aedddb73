//! A task of many records in a large log: its trace over HTTP against the bare rows read by their
//! index, and `handoffd verify` against hashing the same bytes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};

use crate::broker::Broker;
use crate::database::{ADMIN_KEY, Database};
use crate::fill::{Filled, fill};
use crate::world::{client, spread};

/// The task's records with their contents, in the log's order, by the index that the broker uses.
const SCAN: &str = "SELECT r.leaf_index, r.record_hash, r.kind, r.task_id, r.handoff_id, r.recorded_at, r.body, \
                    c.salt, c.codec, c.bytes FROM audit_records AS r \
                    LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
                    WHERE r.tenant = ? AND r.task_id = ? ORDER BY r.leaf_index";

pub async fn run(store: &str, records: u64, task: u64, runs: usize) {
    assert!(store.starts_with("sqlite:"), "a large log is put into a SQLite file");
    let database = Database::new(store, env!("CARGO_BIN_EXE_handoffd").into()).await;
    Broker::start(&database, &[]).await.stop().await;
    let path = database.url.strip_prefix("sqlite:").unwrap().to_owned();
    let filled = fill(&path, records, task).await;
    let size = std::fs::metadata(&path).unwrap().len() as f64 / 1024.0 / 1024.0 / 1024.0;
    println!("a log of {records} records, {size:.1} GiB; one task of {task} of them");
    traces(&database, &path, &filled, runs).await;
    verification(&database, &path, &filled).await;
    database.drop().await;
}

async fn open(path: &str) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).read_only(true).connect().await.unwrap()
}

async fn traces(database: &Database, path: &str, filled: &Filled, runs: usize) {
    let broker = Broker::start(database, &[]).await;
    let mut conn = open(path).await;
    let http = client();
    let (mut traced, mut scanned) = (Vec::new(), Vec::new());
    // In turn, so that both meet the same machine; the first of each is not counted.
    for run in 0..=runs {
        let began = Instant::now();
        let found = sqlx::query(SCAN)
            .bind(filled.tenant.as_str())
            .bind(filled.task.to_string())
            .fetch_all(&mut conn)
            .await
            .unwrap();
        let bytes: usize = found.iter().map(|row| row.get::<&[u8], _>("body").len()).sum();
        let scan = began.elapsed();
        let began = Instant::now();
        let ask = http.get(format!("{}/tasks/{}/trace", broker.base, filled.task));
        let answer = ask.bearer_auth(ADMIN_KEY).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let trace = answer.bytes().await.unwrap();
        let took = began.elapsed();
        if run == 0 {
            let (rows, size) = (found.len(), trace.len() / 1024);
            println!("  {rows} rows of {} KiB; a trace of {size} KiB", bytes / 1024);
            println!("  first, caches cold: rows {scan:.0?}, trace {took:.0?}");
        } else {
            scanned.push(scan);
            traced.push(took);
        }
    }
    println!("  rows by index: {}", spread(&mut scanned));
    println!("  trace by HTTP: {}", spread(&mut traced));
    broker.stop().await;
}

async fn verification(database: &Database, path: &str, filled: &Filled) {
    let began = Instant::now();
    let mut command = database.command(&[]);
    let said = command.args(["verify", "--log-only"]).output().await.unwrap();
    let verified = began.elapsed();
    assert!(said.status.success(), "{said:?}");
    let (read, hashed, bytes) = raw(path).await;
    let rate = |took: Duration| filled.records as f64 / took.as_secs_f64();
    println!(
        "  verify: {verified:.1?}, {:.0} records/s; the bytes of records alone, {:.2} GB: read {read:.1?}, \
         SHA-256 {hashed:.1?}; verify takes {:.1} times both",
        rate(verified),
        bytes as f64 / 1e9,
        verified.as_secs_f64() / (read + hashed).as_secs_f64(),
    );
}

/// Reads every record's bytes and contents in log order and hashes them, and nothing else: time to read, time to hash,
/// bytes.
async fn raw(path: &str) -> (Duration, Duration, u64) {
    use futures_util::StreamExt;
    let mut conn = open(path).await;
    let (mut hashing, mut bytes) = (Duration::ZERO, 0);
    let began = Instant::now();
    let sql = "SELECT r.body, c.bytes FROM audit_records AS r \
               LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
               ORDER BY r.tenant, r.leaf_index";
    let mut rows = sqlx::query(sql).fetch(&mut conn).ready_chunks(1_000);
    while let Some(some) = rows.next().await {
        let some: Vec<_> = some.into_iter().map(Result::unwrap).collect();
        let from = Instant::now();
        for row in &some {
            let (body, content): (&[u8], Option<&[u8]>) = (row.get(0), row.get(1));
            bytes += body.len() as u64 + content.map_or(0, |content| content.len() as u64);
            black_box((Sha256::digest(body), content.map(Sha256::digest)));
        }
        hashing += from.elapsed();
    }
    drop(rows);
    let all = began.elapsed();
    conn.close().await.unwrap();
    (all.saturating_sub(hashing), hashing, bytes)
}
