//! A deterministic simulation: schedules of everything that can go wrong, tens of thousands of them,
//! each from one seed (`docs/reliability.md` says what is real in it, and what it looks for).
//!
//! Ledger, dispatcher, inboxes, sweeper, heartbeats and the watch over other brokers are the product's
//! own, several brokers over one store. Time is tokio's paused clock: it steps to the next thing that
//! is due, so a schedule of half a minute takes milliseconds. All chance comes from the seed through
//! `clock.rs`. The rest is simulated: the store's line, the network, receivers, senders, operators.
//!
//! `HANDOFFD_TEST_SIM_SCHEDULES` sets how many schedules run, `HANDOFFD_TEST_SIM_FIRST` the first one's seed. A
//! failure prints its seed and its steps; `HANDOFFD_TEST_SIM_SEED=…` runs exactly that one again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::audit::{LogCheck, verify_log};
use handoffd_domain::ids::Micros;
use handoffd_store::clock::seeded::Seeded;
use handoffd_store::store::{AgentRow, Needs, Writes};

mod asks;
mod books;
mod broker;
mod dice;
mod lines;
mod people;
mod pieces;
mod receivers;
mod senders;
mod wire;
mod world;

use broker::Broker;
use dice::{below, pause};
use world::{World, tenant};

/// Schedules of a run without a setting.
const SCHEDULES: u64 = 2_000;
/// Time within which everything comes to rest after the last fault: leases, verdicts, claims, escalations and their
/// consequences, several times over, and the leases of a chain of receivers that handed on, one after the other.
const REST: Duration = Duration::from_mins(2);

/// The result of a schedule.
#[derive(Debug)]
struct SimulationRun {
    violation: Option<String>,
    trace: String,
    handoffs: u64,
    attempts: u64,
    /// Chunks that were committed, those that were sent by webhook, and those that pull receivers read.
    chunks: [u64; 3],
    /// Messages that were compressed.
    compressed: u64,
    records: u64,
    time: Duration,
}

/// Runs one schedule on this thread.
fn run(seed: u64, traced: bool) -> SimulationRun {
    broker::prepare();
    let _seeded = Seeded::from(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(schedule(traced))
}

async fn schedule(traced: bool) -> SimulationRun {
    let world = Arc::new(World::new(traced));
    world.note(|| format!("{:?}", world.weather));
    register(&world).await;
    let places = 1 + below(3) as usize;
    for place in 0..places {
        let broker = Broker::start(&world, format!("b{place}.0")).await;
        world.brokers().push(Arc::new(broker));
        tokio::spawn(people::keep_alive(Arc::clone(&world), place));
    }
    let senders: Vec<_> =
        (0..=below(3)).map(|_| tokio::spawn(senders::send(Arc::clone(&world)))).collect();
    tokio::spawn(receivers::pull(Arc::clone(&world), receivers::puller()));
    tokio::spawn(people::operate(Arc::clone(&world)));
    tokio::spawn(senders::answer(Arc::clone(&world)));
    tokio::spawn(people::trouble(Arc::clone(&world)));
    tokio::time::sleep(pause(1_000, 5_000)).await;
    world.calm();

    for sender in senders {
        if tokio::time::timeout(REST, sender).await.is_err() {
            world.books().violate(|| "a sender is never answered".to_owned());
        }
    }
    let deadline = tokio::time::Instant::now() + REST;
    loop {
        let unrest = world.books().unrest();
        let Some(why) = (match unrest {
            None => unsent(&world).await,
            some => some,
        }) else {
            break;
        };
        if tokio::time::Instant::now() > deadline {
            world.books().violate(|| format!("no rest: {why}"));
        }
        if world.books().violation().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let records = settle_up(&world).await;
    let (handoffs, attempts) = world.books().counts();
    // Each in a statement of its own, as each locks the books.
    let chunks = world.books().chunk_counts();
    let compressed = world.books().compressed_count();
    let ran = SimulationRun {
        violation: world.books().violation(),
        trace: world.trace(),
        handoffs: handoffs as u64,
        attempts: attempts as u64,
        chunks,
        compressed,
        records,
        time: world.elapsed(),
    };
    // Brokers know the world and the world its brokers.
    world.brokers().clear();
    ran
}

/// A stream with chunks that its webhook receiver was not sent.
async fn unsent(world: &World) -> Option<String> {
    // Behind every pause and lease.
    let due = world.store.list_due_lines(Micros(i64::MAX), 1).await.unwrap_or_default();
    due.first().map(|(_, id)| format!("chunks of {} were not sent", books::short(*id)))
}

async fn register(world: &World) {
    let (tenant, now) = (tenant(), world.now());
    world.store.ensure_tenant(&tenant, "log", now).await.expect("a log");
    let mut writes = Writes::default();
    for id in asks::agents() {
        let row = AgentRow {
            tenant: tenant.clone(),
            agent: people::registered(&id),
            secrets: String::new(),
            created_at: now,
            updated_at: now,
        };
        writes.agents.insert((tenant.clone(), id), Some(row));
    }
    let needs = Needs::default();
    world.store.transact(&needs, &mut |_| writes.clone()).await.expect("agents");
}

/// Ends a schedule: checks that each acknowledged handoff exists once, and that the log verifies.
async fn settle_up(world: &World) -> u64 {
    if world.books().violation().is_some() {
        return 0;
    }
    let acknowledged = world.books().at_rest();
    for (id, handoff) in acknowledged {
        let receipt = world.store.find_receipt(&(tenant(), id)).await.expect("memory answers");
        let (commits, releases) = world.books().commits_of(id).unwrap_or_default();
        if receipt.is_none() || commits != 1 + releases {
            world.books().violate(|| {
                format!("{} was acknowledged and is {commits} times in the log", handoff.id)
            });
        }
    }
    let report =
        // Agents of the simulation are put into the store without a record.
        verify_log(&world.store, &tenant(), LogCheck { rows: false, ..LogCheck::default() }).await.expect("memory answers");
    if let Some(fault) = &report.first_fault {
        world.books().violate(|| format!("the log does not verify: {fault:?}"));
    }
    report.records
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Repeats a failed schedule with a trace, and reports the violation.
fn tell(seed: u64, violation: &str) -> ! {
    let again = run(seed, true);
    let same = again.violation.as_deref() == Some(violation);
    panic!(
        "{}\nseed {seed}: {violation}{}\nHANDOFFD_TEST_SIM_SEED={seed} runs it again",
        again.trace,
        if same { "" } else { "\n(and it was not the same again: something is not repeatable)" }
    );
}

#[test]
fn whatever_goes_wrong_the_promises_hold() {
    if let Some(seed) = number("HANDOFFD_TEST_SIM_SEED") {
        let ran = run(seed, true);
        println!("{}", ran.trace);
        assert_eq!(ran.violation, None, "seed {seed}");
        return;
    }
    let schedules = number("HANDOFFD_TEST_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("HANDOFFD_TEST_SIM_FIRST").unwrap_or(1);
    let next = AtomicU64::new(first);
    let failed = AtomicU64::new(u64::MAX);
    let [handoffs, attempts, records, seconds] = [const { AtomicU64::new(0) }; 4];
    let [chunks, sent, read, compressed] = [const { AtomicU64::new(0) }; 4];
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + schedules || failed.load(Ordering::Relaxed) != u64::MAX {
                        return;
                    }
                    let ran = run(seed, false);
                    handoffs.fetch_add(ran.handoffs, Ordering::Relaxed);
                    attempts.fetch_add(ran.attempts, Ordering::Relaxed);
                    chunks.fetch_add(ran.chunks[0], Ordering::Relaxed);
                    sent.fetch_add(ran.chunks[1], Ordering::Relaxed);
                    read.fetch_add(ran.chunks[2], Ordering::Relaxed);
                    compressed.fetch_add(ran.compressed, Ordering::Relaxed);
                    records.fetch_add(ran.records, Ordering::Relaxed);
                    seconds.fetch_add(ran.time.as_secs(), Ordering::Relaxed);
                    if ran.violation.is_some() {
                        failed.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seed = failed.into_inner();
    if seed != u64::MAX {
        println!("failed after {} schedules", seed - first + 1);
        let violation = run(seed, false).violation.unwrap_or_default();
        tell(seed, &violation);
    }
    println!(
        "{schedules} schedules of {} s in all: {} handoffs, {} attempts, {} chunks, {} sent by webhook, {} read, \
         {} compressed, {} records; no violation",
        seconds.into_inner(),
        handoffs.into_inner(),
        attempts.into_inner(),
        chunks.into_inner(),
        sent.into_inner(),
        read.into_inner(),
        compressed.into_inner(),
        records.into_inner()
    );
}

#[test]
fn the_same_seed_takes_the_same_steps() {
    let mut steps = 0;
    for seed in [1, 2, 3, 0xfeed, u64::MAX] {
        let (one, other) = (run(seed, true), run(seed, true));
        let differs = one.trace.lines().zip(other.trace.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.trace, other.trace, "seed {seed}");
        steps += one.trace.lines().count();
    }
    assert!(steps > 200, "they do something: {steps} steps");
}

#[test]
fn another_seed_takes_other_steps() {
    assert_ne!(run(1, true).trace, run(2, true).trace);
}
