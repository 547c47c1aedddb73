//! The costs of evidence: verifying a log against hashing its bytes, reading one task out of a large
//! log against the bare rows, the tree's and the receipts' share of a commit, a bundle of many hops.
//! See docs/evidence.md, "Measured".
//!
//! `cargo bench --bench evidence -- --help`

#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]
#![allow(unreachable_pub, reason = "not a library")]
#![allow(
    dead_code,
    reason = "brokers and databases are those of the load harness, which asks more"
)]

#[path = "../load/broker.rs"]
mod broker;
#[path = "../load/database.rs"]
mod database;
mod drill;
mod fill;
mod hops;
mod large;
mod share;
mod world;

use clap::{Parser, Subcommand};

/// Figures on evidence.
#[derive(Debug, Parser)]
#[command(name = "evidence")]
struct Args {
    /// `sqlite:` (a file in a temporary folder), `sqlite:FOLDER`, or a Postgres server on which a
    /// scratch database is made and dropped
    #[arg(long, default_value = "sqlite:", env = "HANDOFFD_LOAD_STORE", global = true)]
    store: String,
    #[command(subcommand)]
    what: What,
    /// Passed by cargo to a bench
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Trace of one task, and `verify`, in a log made of that many records (SQLite)
    Large {
        /// Records in the log; about a kilobyte each
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        /// Records of the task that is traced, spread over the log
        #[arg(long, default_value_t = 10_000)]
        task: u64,
        /// Traces that are timed
        #[arg(long, default_value_t = 50)]
        runs: usize,
    },
    /// Trace and bundle of one task in a large log, and the bundle verified (SQLite): `make drill`
    Drill {
        /// Records in the log; about a kilobyte each
        #[arg(long, default_value_t = 1_000_000)]
        records: u64,
        /// Records of the task that is asked for, spread over the log
        #[arg(long, default_value_t = 300)]
        task: u64,
        /// How often each is asked for
        #[arg(long, default_value_t = 9)]
        runs: usize,
        /// File of the page with the figures
        #[arg(long)]
        out: Option<std::path::PathBuf>,
    },
    /// The tree's and the receipts' share of a commit
    Share {
        /// Seconds under load, of each number of senders
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Senders
        #[arg(long, default_value = "1,8,32", value_delimiter = ',')]
        senders: Vec<usize>,
    },
    /// A bundle of a task of so many hops
    Hops {
        /// Handoffs, one after the other
        #[arg(long, default_value_t = 1_000)]
        hops: u64,
        /// Bundles that are timed
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
}

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    match args.what {
        What::Large { records, task, runs } => large::run(&args.store, records, task, runs).await,
        What::Drill { records, task, runs, out } => {
            drill::run(&args.store, drill::Drill { records, task, runs, out }).await;
        }
        What::Share { seconds, senders } => share::run(&args.store, seconds, &senders).await,
        What::Hops { hops, runs } => hops::run(&args.store, hops, runs).await,
    }
}
