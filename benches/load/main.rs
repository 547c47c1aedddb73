//! The load harness: brokers as processes of their own, senders and receivers over real HTTP, and
//! beside it what the same machine does with one transaction a handoff. See docs/performance.md.
//!
//! `cargo bench --bench load -- --help`

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]
#![allow(unreachable_pub, reason = "not a library")]

mod bare;
mod batched;
mod beside;
mod broker;
mod collector;
mod database;
mod doors;
mod drive;
mod past;
mod report;
mod world;
mod yardstick;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

use broker::Broker;
use collector::{Collector, Tracing};
use database::Database;
use drive::{Outcome, Plan};
use report::{Row, table};
use world::World;

/// Load on handoffd, closed loop (N senders, each waits for its answer) or open loop (a fixed rate,
/// latency counted from when a handoff should have been sent).
#[derive(Debug, Clone, Parser)]
#[command(name = "load")]
struct Args {
    /// `sqlite:` (a file in a temporary folder), `sqlite:FOLDER`, or a Postgres server on which a
    /// scratch database is made and dropped; several separated by commas
    #[arg(long, default_value = "sqlite:", env = "HANDOFFD_LOAD_STORE", value_delimiter = ',')]
    store: Vec<String>,
    /// Senders of the closed loop; several are run one after the other
    #[arg(long, default_value = "1,8,32", value_delimiter = ',')]
    senders: Vec<usize>,
    /// Handoffs a second of the open loop; instead of the closed one
    #[arg(long, value_delimiter = ',')]
    rate: Vec<u64>,
    /// Seconds that are measured; 2 s before them are not
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Bytes of a message; several are run one after the other
    #[arg(long, default_value = "4096", value_delimiter = ',')]
    size: Vec<usize>,
    /// Sending agents, and as many receiving ones
    #[arg(long, default_value_t = 16)]
    agents: usize,
    /// Tenants, over which the agents are spread; several are run one after the other
    #[arg(long, default_value = "1", value_delimiter = ',')]
    tenants: Vec<usize>,
    /// Handoffs of one task, one after the other; 0: each sender has one task for ever
    #[arg(long, default_value_t = 1)]
    hops: usize,
    /// Handoffs that are in the store before; several are run one after the other
    #[arg(long, default_value = "0", value_delimiter = ',')]
    past: Vec<u64>,
    /// How many handoffs a receiver takes at once
    #[arg(long, default_value_t = 64)]
    in_flight: u32,
    /// Milliseconds that a receiver takes for its answer
    #[arg(long, default_value_t = 0)]
    receiver_ms: u64,
    /// Brokers over one Postgres
    #[arg(long, default_value_t = 1)]
    brokers: usize,
    /// Senders wait for the verdict (`Prefer: wait`) and not for the commit alone
    #[arg(long)]
    wait: bool,
    /// Runs of each, in turn
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Measure the bare parts too: the database with one transaction a handoff, by 1, 8 and 32 clients, an
    /// echo over HTTP, hashing and parsing
    #[arg(long)]
    yardstick: bool,
    /// Just that
    #[arg(long)]
    only_yardstick: bool,
    /// Just what each door costs against `POST /handoffs`, with so many handoffs by each
    #[arg(long)]
    doors: Option<usize>,
    /// Just an agent that sends rarely (`--rate`, 50 a second), alone and beside one agent with so many senders, in turn
    #[arg(long, value_name = "SENDERS")]
    beside: Option<usize>,
    /// The process of that flood
    #[arg(long, hide = true, value_name = "URL")]
    flood: Option<String>,
    /// The broker to run; the one built with this harness unless said
    #[arg(long)]
    broker: Option<PathBuf>,
    /// File for the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Settings for the brokers, as NAME=VALUE
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// How much is traced, in turn within each run; what is left out is as the settings say
    #[arg(long, value_enum, value_delimiter = ',')]
    tracing: Vec<Tracing>,
    /// Passed by cargo to a bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn binary(&self) -> PathBuf {
        self.broker.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_handoffd").into())
    }

    /// The kinds of tracing, in turn.
    fn tracings(&self) -> Vec<Option<Tracing>> {
        if self.tracing.is_empty() {
            return vec![None];
        }
        self.tracing.iter().copied().map(Some).collect()
    }

    fn plans(&self) -> Vec<Plan> {
        let loads: Vec<(usize, Option<u64>)> = if self.rate.is_empty() {
            self.senders.iter().map(|senders| (*senders, None)).collect()
        } else {
            self.rate.iter().map(|rate| (0, Some(*rate))).collect()
        };
        let mut plans = Vec::new();
        for size in &self.size {
            for tenants in &self.tenants {
                for past in &self.past {
                    plans.extend(loads.iter().map(|(senders, rate)| Plan {
                        senders: *senders,
                        rate: *rate,
                        warm_up: Duration::from_secs(2),
                        measured: Duration::from_secs(self.seconds),
                        size: *size,
                        tenants: (*tenants).max(1),
                        past: *past,
                        hops: self.hops,
                        wait: self.wait,
                    }));
                }
            }
        }
        plans
    }
}

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    if let Some(base) = &args.flood {
        return beside::flood(&args, base).await;
    }
    let collector = Collector::start().await;
    let mut figures = Vec::new();
    let runs = if args.beside.is_some() { 1 } else { args.runs };
    for run in 1..=runs {
        for store in &args.store {
            if let Some(senders) = args.beside {
                for row in beside::measure(&args, store, senders).await {
                    figures.push((run, row));
                }
                continue;
            }
            if let Some(count) = args.doors {
                let size = args.size.first().copied().unwrap_or_default();
                for row in doors::measure(store, &args.binary(), count, size).await {
                    eprintln!("run {run}: {}", row.line());
                    figures.push((run, row));
                }
                continue;
            }
            if !args.only_yardstick {
                for plan in args.plans() {
                    for tracing in args.tracings() {
                        let row = loaded(&args, store, &plan, tracing, &collector).await;
                        eprintln!("run {run}: {}", row.line());
                        figures.push((run, row));
                    }
                }
            }
            if args.yardstick || args.only_yardstick {
                for row in yardstick::measure(store, &args.binary(), args.seconds).await {
                    eprintln!("run {run}: {}", row.line());
                    figures.push((run, row));
                }
            }
        }
        if args.yardstick || args.only_yardstick {
            for row in bare::measure(&args.size, args.seconds).await {
                eprintln!("run {run}: {}", row.line());
                figures.push((run, row));
            }
        }
    }
    println!("{}", table(&figures));
    if let Some(path) = &args.json {
        let rows: Vec<Value> = figures
            .iter()
            .map(|(run, row)| json!({ "run": run, "what": row.what, "figures": row.json() }))
            .collect();
        let text =
            serde_json::to_string_pretty(&json!({ "args": format!("{args:?}"), "rows": rows }));
        std::fs::write(path, text.unwrap()).unwrap();
    }
}

async fn started(args: &Args, database: &Database, settings: &[String]) -> Vec<Broker> {
    let mut brokers = Vec::new();
    for _ in 0..args.brokers.max(1) {
        brokers.push(Broker::start(database, settings).await);
    }
    brokers
}

/// One measurement on a fresh database: brokers, agents, load, the count, the verifier.
async fn loaded(
    args: &Args,
    store: &str,
    plan: &Plan,
    tracing: Option<Tracing>,
    collector: &Collector,
) -> Row {
    let traced = tracing.map_or_else(Vec::new, |tracing| collector.settings(tracing));
    let settings = [args.settings.as_slice(), &traced].concat();
    let database = Database::new(store, args.binary()).await;
    let mut brokers = started(args, &database, &settings).await;
    let mut world = Arc::new(World::new(&database, &brokers, args, plan).await);
    if plan.past > 0 {
        drive::run(&world, &plan.begun(), &brokers).await;
        for broker in brokers {
            broker.stop().await;
        }
        past::fill(&database.url, plan.past).await;
        brokers = started(args, &database, &settings).await;
        world = Arc::new(Arc::into_inner(world).unwrap().anew(&brokers));
    }
    let outcome: Outcome = drive::run(&world, plan, &brokers).await;
    let ready = brokers.iter().map(|broker| broker.ready_in).max().unwrap();
    for broker in brokers {
        broker.stop().await;
    }
    if plan.past > 0 {
        past::forget(&database.url).await;
    }
    let records = database.verify().await;
    database.drop().await;
    let mut row = Row::of(store, args, plan, &outcome, ready, records);
    if let Some(tracing) = tracing {
        row.what = format!("{}, {}", row.what, tracing.label());
        row.more.insert(
            "span bytes/handoff",
            collector.took() as f64 / outcome.acknowledged.max(1) as f64,
        );
    }
    row
}
