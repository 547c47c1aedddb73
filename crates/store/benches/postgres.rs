//! The cost of a handoff in the Postgres store: a submission and its verdict, alone and in batches of thirty.
//!
//! `scripts/with-postgres cargo bench -p handoffd-store --bench postgres`; or `BENCH_POSTGRES_URL`, a server on this
//! machine whose processes this user may read, as a superuser: a database is made there, and dropped. A server of the
//! script does not wait for its disk. `BENCH_RUNS` is the number of rounds (3), `BENCH_SECONDS` the time of each load,
//! `BENCH_BATCHES` the batches (1,30); then commands arrive at fixed rates (`BENCH_RATES`, 300,600 a second) and one
//! queue is served by some workers (`BENCH_WORKERS`, 1,2).
//! Processor time is that of this process and of all of the server's, as Linux counts them.

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]

mod load;

use std::sync::Arc;
use std::time::Duration;

use handoffd_store::store::postgres::{PostgresOptions, PostgresStore};
use load::Load;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Handoffs before anything is measured, so that tables have some depth and plans are kept.
const BEFORE: usize = 6_000;

/// Clock ticks of `/proc` in a second.
const TICKS: f64 = 100.0;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn numbers(name: &str, default: &str) -> Vec<u32> {
    let list = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    list.split(',').filter(|one| !one.is_empty()).map(|one| one.parse().unwrap()).collect()
}

fn stat(pid: &str) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = &stat[stat.rfind(')')? + 2..];
    Some(after.split(' ').map(str::to_owned).collect())
}

/// Processor seconds of a server's processes, the ended ones included.
fn server_cpu(postmaster: &str) -> f64 {
    let seconds = |stat: &[String], fields: std::ops::Range<usize>| {
        stat[fields].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS
    };
    let of = |entry: std::fs::DirEntry| {
        let stat = stat(entry.file_name().to_str()?)?;
        (stat[1] == postmaster).then(|| seconds(&stat, 11..13))
    };
    let ended = stat(postmaster).map_or(0.0, |stat| seconds(&stat, 11..15));
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.unwrap())).sum::<f64>() + ended
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // As the broker's ledger: a task of the runtime, and not the thread that waits for it.
    runtime.block_on(async { tokio::spawn(bench()).await.unwrap() });
}

async fn bench() {
    let url = std::env::var("BENCH_POSTGRES_URL")
        .or_else(|_| std::env::var("HANDOFFD_TEST_POSTGRES_URL"))
        .expect("a server: see the head of this file");
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let name = format!("handoffd_bench_{}", std::process::id());
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create).execute(&mut admin).await.unwrap();
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut admin).await.unwrap();
    let postmaster = stat(&pid.to_string()).unwrap()[1].clone();
    let (base, _) = url.rsplit_once('/').unwrap();
    let url = format!("{base}/{name}");
    let store = PostgresStore::open(&url, PostgresOptions::default()).await.unwrap();
    let load = Load::fill(store.into(), BEFORE).await;
    // As a broker does each second: the planner's statistics, and plans that are kept.
    load.store.tend().await.unwrap();
    let span = Duration::from_secs(number("BENCH_SECONDS", 6));
    let load = Arc::new(load);
    let server = || Some(server_cpu(&postmaster));
    for _ in 0..number("BENCH_RUNS", 3) {
        load.store.tend().await.unwrap();
        for batch in numbers("BENCH_BATCHES", "1,30") {
            load.run(batch as usize, span, server).await;
        }
        for rate in numbers("BENCH_RATES", "300,600") {
            for workers in numbers("BENCH_WORKERS", "1,2") {
                for crowd in numbers("BENCH_CROWDS", "0,8,16,32") {
                    let arrive = Arc::clone(&load).arrive(
                        rate,
                        workers as usize,
                        crowd as usize,
                        span,
                        server,
                    );
                    arrive.await;
                }
            }
        }
    }
    load.store.close().await;
    let drop = AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
    sqlx::raw_sql(drop).execute(&mut admin).await.unwrap();
}
