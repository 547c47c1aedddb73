//! The cost of a handoff in the SQLite store: a submission and its verdict, alone and in batches of thirty.
//!
//! `cargo bench -p handoffd-store --bench sqlite`. Processor time and context switches are the process's own, as Linux
//! counts them; pages are those of the write-ahead log while a reader keeps the log from beginning anew.

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]

#[allow(dead_code, reason = "arrivals are measured on Postgres alone")]
mod load;

use std::path::Path;
use std::time::Duration;

use handoffd_store::store::sqlite::{SqliteOptions, SqliteStore};
use load::Load;

/// Time of each load.
const SPAN: Duration = Duration::from_secs(6);

/// Handoffs before anything is measured, so that tables have some depth.
const BEFORE: usize = 6_000;

/// Handoffs whose pages are counted.
const COUNTED: usize = 300;

/// Bytes of a page in the write-ahead log, with its header.
const PAGE: u64 = 4_096 + 24;

/// Counts the pages of handoffs committed in batches of this size.
async fn pages(load: &Load, file: &Path, batch: usize) {
    let reader = rusqlite::Connection::open(file).unwrap();
    // Begin with an empty log, and keep it from beginning anew.
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    let bytes = || std::fs::metadata(&wal).unwrap().len();
    while bytes() > 0 {
        reader.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    let open = load.submit(1).await;
    load.accept(&open).await;
    reader.execute_batch("BEGIN; SELECT count(*) FROM tenants").unwrap();
    let before = bytes();
    for _ in 0..COUNTED / batch {
        let open = load.submit(batch).await;
        load.accept(&open).await;
    }
    let pages = (bytes() - before) as f64 / PAGE as f64 / COUNTED as f64;
    println!("batch {batch:>2}: {pages:.1} pages a handoff");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let folder =
            tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or(".".into())).unwrap();
        let file = folder.path().join("h.db");
        let store =
            SqliteStore::open(&format!("sqlite:{}", file.display()), SqliteOptions::serving())
                .await
                .unwrap();
        // As the broker's ledger: a task of the runtime, and not the thread that waits for it.
        tokio::spawn(async move {
            let load = Load::fill(store.into(), BEFORE).await;
            pages(&load, &file, 1).await;
            pages(&load, &file, 30).await;
            for _ in 0..2 {
                load.run(1, SPAN, || None).await;
                load.run(30, SPAN, || None).await;
            }
            load.store.close().await;
        })
        .await
        .unwrap();
    });
}
