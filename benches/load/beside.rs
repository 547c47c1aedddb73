//! How much longer the answers of an agent that sends rarely take beside an agent that sends without pause.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use handoffd::clock::random_id;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::database::{ADMIN_KEY, Database};
use crate::drive::{self, Plan};
use crate::report::{Quantiles, Row};
use crate::world::{World, client};
use crate::{Args, started};

/// Time for the flood to fill the broker's queues, and for the broker to empty them afterwards.
const SETTLED: Duration = Duration::from_secs(1);

/// Measures the rare sender alone and then beside the flood, `--runs` times.
pub async fn measure(args: &Args, store: &str, senders: usize) -> Vec<Row> {
    let database = Database::new(store, args.binary()).await;
    let brokers = started(args, &database, &args.settings).await;
    let rate = args.rate.first().copied().unwrap_or(50);
    let plan = Plan { rate: Some(rate), warm_up: SETTLED, senders: 0, ..args.plans()[0] };
    let world = Arc::new(World::new(&database, &brokers, args, &plan).await);
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..args.runs {
        let alone = drive::run(&world, &plan, &brokers).await;
        let flood = Flood::begin(&brokers[0], senders, plan.size);
        let beside = drive::run(&world, &plan, &brokers).await;
        let flooded = flood.end().await;
        let mut row = |what: String, outcome: &drive::Outcome| {
            let mut row = Row::of(store, args, &plan, outcome, brokers[0].ready_in, 0);
            row.what = format!("{}, {what}", row.what);
            rows.push(row);
        };
        row("alone".to_owned(), &alone);
        row(format!("beside one agent with {senders} senders"), &beside);
        let [alone, beside] = [&alone, &beside].map(|one| Quantiles::of(&one.answered));
        ratios.push([beside.0 / alone.0, beside.1 / alone.1]);
        eprintln!(
            "alone {:.1} / {:.1} ms, beside {flooded:.0}/s {:.1} / {:.1} ms: p50 {:.2}, p99 {:.2} times",
            alone.0,
            alone.1,
            beside.0,
            beside.1,
            beside.0 / alone.0,
            beside.1 / alone.1
        );
    }
    for (name, at) in [("p50", 0), ("p99", 1)] {
        let mut all: Vec<f64> = ratios.iter().map(|ratio| ratio[at]).collect();
        all.sort_by(f64::total_cmp);
        eprintln!(
            "{store}: {name} beside the flood: {:.2} times (median of {})",
            all[all.len() / 2],
            all.len()
        );
    }
    for broker in brokers {
        broker.stop().await;
    }
    database.verify().await;
    database.drop().await;
    rows
}

/// The flood, in a process of its own with the lowest priority, so that its client takes no processor time from the
/// rare sender's.
struct Flood(tokio::process::Child);

impl Flood {
    fn begin(broker: &Broker, senders: usize, size: usize) -> Self {
        let child = Command::new("nice")
            .args(["-n", "19"])
            .arg(std::env::current_exe().unwrap())
            .args(["--flood", &broker.base])
            .args(["--senders", &senders.to_string(), "--size", &size.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Ends the flood; returns its handoffs a second.
    async fn end(mut self) -> f64 {
        drop(self.0.stdin.take());
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
        self.0.wait().await.unwrap();
        tokio::time::sleep(SETTLED).await;
        text.trim().parse().unwrap()
    }
}

/// The flood's process: one agent sends over `senders` connections until standard input ends. Prints its handoffs a second.
pub async fn flood(args: &Args, base: &str) {
    let world = World::of_one(base, ADMIN_KEY, "flood", args).await;
    let world = Arc::new(world);
    let (over, count, began) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Instant::now());
    let http = client();
    let mut senders = JoinSet::new();
    for _ in 0..args.senders[0] {
        let (world, over, count, http) =
            (Arc::clone(&world), Arc::clone(&over), Arc::clone(&count), http.clone());
        senders.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let (_, body) = world.message(0, &random_id().to_string());
                let request = http
                    .post(format!("{}/handoffs", world.bases[0]))
                    .bearer_auth(&world.senders[0].key);
                let answer =
                    request.header("content-type", "application/json").body(body).send().await;
                if let Ok(answer) = answer
                    && answer.status().is_success()
                    && answer.bytes().await.is_ok()
                {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let mut nothing = Vec::new();
    tokio::io::stdin().read_to_end(&mut nothing).await.unwrap();
    over.store(true, Ordering::Relaxed);
    let rate = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    while senders.join_next().await.is_some() {}
    println!("{rate}");
}
