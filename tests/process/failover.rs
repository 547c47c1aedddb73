//! Postgres fails over under load: the primary is killed, its synchronous standby is promoted, and whatever finds the
//! primary for the brokers (haproxy here) leads them there. `scripts/failover` makes the servers and runs this case.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_fraction;
use tokio::process::Command;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::kills::rounds;
use crate::load::Load;
use crate::site::Site;
use crate::world::{World, until};

/// Failovers where `HANDOFFD_TEST_ROUNDS` says nothing.
const ROUNDS: usize = 3;

/// Longest silence of the brokers around a failover. A failed health check and a promotion take the first second.
const BACK_WITHIN: Duration = Duration::from_secs(30);

/// The site whose database fails over, and the command that fails it over.
fn given() -> (Site, String) {
    let named =
        |name| std::env::var(name).unwrap_or_else(|_| panic!("no {name}: run scripts/failover"));
    (Site::at(named("HANDOFFD_TEST_FAILOVER_URL")), named("HANDOFFD_TEST_FAILOVER_COMMAND"))
}

pub async fn the_primary_dies_under_load() {
    let (site, command) = given();
    let settings = [("HANDOFFD_DATABASE__ACQUIRE_TIMEOUT_MS", "1000")];
    let first = Broker::start(&site, &settings).await;
    let second = Broker::start(&site, &settings).await;
    let world = Arc::new(World::with_backlog(&first).await);
    let mut load = Load::start(&world, &[&first.base, &second.base], 3);
    load.pull("puller");
    let mut silences = Vec::new();
    for round in 0..rounds(ROUNDS) {
        load.more(100).await;
        tokio::time::sleep(Duration::from_secs_f64(random_fraction() * 0.03)).await;
        let (before, killed) = (world.count(), Instant::now());
        let mut failing = Command::new(&command).spawn().unwrap();
        let silence = longest_silence(&world, &mut failing).await;
        println!(
            "failover {}: {before} acknowledged before, silent for {silence:?}, all of it took {:?}",
            round + 1,
            killed.elapsed()
        );
        silences.push(silence);
        load.more(20).await;
    }
    load.finish().await;
    let tally = world.settle_up(&site, &first).await;
    first.stop().await;
    second.stop().await;
    let records = site.verify().await;
    silences.sort_unstable();
    println!(
        "{} failovers: {} handoffs acknowledged, {} deliveries, {records} records verified; silent for {:?} (median), \
         {:?} (longest)",
        silences.len(),
        tally.acknowledged,
        tally.deliveries,
        silences[silences.len() / 2],
        silences[silences.len() - 1],
    );
}

/// The longest time without an acknowledgement until the failover is done and the load goes on.
async fn longest_silence(world: &World, failing: &mut tokio::process::Child) -> Duration {
    let (mut count, mut last, mut longest) = (world.count(), Instant::now(), Duration::ZERO);
    let mut done = false;
    until(BACK_WITHIN * 2, "the failover is done and the brokers go on", async || {
        let now = world.count();
        if now > count {
            (count, last) = (now, Instant::now());
        }
        longest = longest.max(last.elapsed());
        if let Some(status) = failing.try_wait().unwrap() {
            assert!(status.success(), "the failover command: {status}");
            done = true;
        }
        usize::from(!done || last.elapsed() > Duration::from_secs(1))
    })
    .await;
    assert!(longest < BACK_WITHIN, "silent for {longest:?}");
    longest
}
