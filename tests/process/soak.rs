//! A long run at half of saturation: what ought to stay the same stays the same.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::crash::hands::{Done, Hands};
use crate::load::Load;
use crate::pace::{Answer, open_loop, percentile};
use crate::receiver::Seen;
use crate::site::{Side, Site};
use crate::world::{Takes, World, until};

/// Seconds, where `HANDOFFD_TEST_SOAK_S` says nothing.
const SECONDS: u64 = 3_600;

/// Samples in that time; the first eighth of them is warm-up, the rest four quarters.
const SAMPLES: u32 = 64;

/// Lines of the table that is printed.
const LINES: usize = 16;

/// Senders that find the saturation, and for how long.
const SENDERS: usize = 16;
const SATURATED: Duration = Duration::from_secs(20);

/// One in how many may be refused over the whole time, in order and with `Retry-After`: when the machine
/// itself stops for seconds, a bounded queue refuses rather than grow.
const REFUSED_ONE_IN: usize = 1_000;

/// The most that the last quarter may have above the first.
mod margin {
    use std::time::Duration;

    /// Of resident memory, MiB, and a tenth.
    pub(super) const RSS_MIB: f64 = 16.0;
    pub(super) const DESCRIPTORS: f64 = 16.0;
    /// Of rows in a table that is emptied as fast as it is filled.
    pub(super) const ROWS: f64 = 64.0;
    /// Of the p99, as a factor, and on top: the machine has other work.
    pub(super) const P99_FACTOR: f64 = 2.0;
    pub(super) const P99: Duration = Duration::from_millis(100);
    /// Of the bytes that the database grows by for each handoff, as a factor.
    pub(super) const BYTES_FACTOR: f64 = 1.25;
}

/// The figures of a broker at one moment, and of the time before it.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    rss_mib: f64,
    descriptors: f64,
    outbox: f64,
    /// Sessions and cursors: rows of live objects, not of past events.
    living: f64,
    database_mib: f64,
    taken: usize,
    refused: usize,
    p50: Duration,
    p99: Duration,
}

/// Rows of the outbox, rows of brokers, leases and cursors, and the database's size in MiB.
async fn tables(site: &Site) -> (f64, f64, f64) {
    const OUTBOX: &str = "SELECT count(*) FROM outbox";
    const LIVING: &str = "SELECT (SELECT count(*) FROM brokers) + (SELECT count(*) FROM leases) \
         + (SELECT count(*) FROM event_cursors)";
    const BYTES: &str = "SELECT pg_database_size(current_database())";
    const PAGES: &str =
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    let ask = |sql: &'static str| sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql));
    let (outbox, living, bytes) = match site.side {
        Side::Sqlite => {
            let mut db = sqlx::SqliteConnection::connect(site.url()).await.unwrap();
            let asked = async |sql: &'static str, db: &mut sqlx::SqliteConnection| {
                sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(db).await.unwrap()
            };
            let all = (
                asked(OUTBOX, &mut db).await,
                asked(LIVING, &mut db).await,
                asked(PAGES, &mut db).await,
            );
            db.close().await.unwrap();
            all
        }
        Side::Postgres | Side::Apart => {
            let mut db = sqlx::PgConnection::connect(site.url()).await.unwrap();
            let outbox = ask(OUTBOX).fetch_one(&mut db).await.unwrap();
            let living = ask(LIVING).fetch_one(&mut db).await.unwrap();
            let bytes = ask(BYTES).fetch_one(&mut db).await.unwrap();
            db.close().await.unwrap();
            (outbox, living, bytes)
        }
    };
    (outbox as f64, living as f64, bytes as f64 / f64::from(1 << 20))
}

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Taken and carried out to the end, a second, by senders that wait for their answers.
async fn saturation(world: &Arc<World>, broker: &Broker, done: &Done) -> f64 {
    let began = Instant::now();
    let mut load = Load::start(world, &[&broker.base], SENDERS);
    tokio::time::sleep(SATURATED).await;
    load.finish().await;
    all_done(world, done).await;
    world.count() as f64 / began.elapsed().as_secs_f64()
}

async fn all_done(world: &World, done: &Done) {
    until(Duration::from_mins(5), "everything taken is carried out", async || {
        world.count().saturating_sub(done.count())
    })
    .await;
}

pub async fn at_half_of_saturation_nothing_grows(site: Arc<Site>) {
    let length = Duration::from_secs_f64(setting("HANDOFFD_TEST_SOAK_S").unwrap_or(SECONDS as f64));
    let broker = Broker::start(&site, &[]).await;
    let (seen, done) = (Arc::<Seen>::default(), Arc::<Done>::default());
    let (base, _) = tokio::sync::watch::channel(broker.base.clone());
    let mut hands = Vec::new();
    let mut receivers = Vec::new();
    for id in ["one", "two", "three", "four"] {
        let agent = Hands::new(id, vec![base.subscribe()], &seen, &done);
        receivers.push((id, Takes::Webhook(agent.calling_back().await, 16)));
        hands.push((id, agent));
    }
    let mut world = World::new(&broker, receivers).await;
    world.seen = seen;
    for (id, agent) in hands {
        agent.give_key(&world.receivers[id]);
    }
    let world = Arc::new(world);
    let saturated = saturation(&world, &broker, &done).await;
    let rate = setting("HANDOFFD_TEST_RATE").unwrap_or(saturated / 2.0);
    println!("{:?}: saturated at {saturated:.0}/s; {rate:.0}/s for {length:?}", site.side);

    let mut answers = open_loop(&world, &broker.base, rate, length);
    let (began, step) = (Instant::now(), length / SAMPLES);
    let (mut samples, mut window) = (Vec::new(), Vec::new());
    let (mut refused, mut refused_before, mut others) = (0, 0, Vec::new());
    let mut due = began + step;
    loop {
        tokio::select! {
            sent = answers.recv() => match sent {
                None => break,
                Some(sent) => match sent.answer {
                    Answer::Taken => window.push(sent.took),
                    Answer::Overloaded(Some(_)) => refused += 1,
                    other => others.push(other),
                },
            },
            () = tokio::time::sleep_until(due) => {
                window.sort();
                let (outbox, living, database_mib) = tables(&site).await;
                samples.push(Sample {
                    at: began.elapsed(),
                    rss_mib: broker.rss_mib() as f64,
                    descriptors: broker.descriptors() as f64,
                    outbox,
                    living,
                    database_mib,
                    taken: window.len(),
                    refused: refused - refused_before,
                    p50: percentile(&window, 50),
                    p99: percentile(&window, 99),
                });
                window.clear();
                refused_before = refused;
                due += step;
            }
        }
    }
    println!("{}", table(&samples));
    all_done(&world, &done).await;
    println!("{refused} refused, {} taken", world.count());
    assert_eq!((done.faults(), others), (Vec::new(), Vec::new()));
    assert!(refused * REFUSED_ONE_IN <= world.count(), "{refused} of {} refused", world.count());
    for (what, first, last, most) in compared(&samples) {
        println!(
            "{what}: {first:.1} in the first quarter, {last:.1} in the last, at most {most:.1}"
        );
    }
    let grown: Vec<_> =
        compared(&samples).into_iter().filter(|(_, _, last, most)| last > most).collect();
    assert!(grown.is_empty(), "{grown:?}");
    world.seen.check_attempts();
    broker.stop().await;
    println!("{} handoffs, {} records verified", world.count(), site.verify().await);
}

fn table(samples: &[Sample]) -> String {
    let mut text = String::from(
        "| after | taken/s | refused | p50 | p99 | RSS | descriptors | outbox | brokers, leases, cursors | database |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let before = std::iter::once(Duration::ZERO).chain(samples.iter().map(|sample| sample.at));
    let all: Vec<_> = samples.iter().zip(before).collect();
    for (sample, since) in all.iter().rev().step_by(all.len().div_ceil(LINES).max(1)).rev() {
        // Writing into memory cannot fail.
        let _ = writeln!(
            text,
            "| {:.0} min | {:.0} | {} | {:.0} ms | {:.0} ms | {:.0} MiB | {:.0} | {:.0} | {:.0} | {:.0} MiB |",
            sample.at.as_secs_f64() / 60.0,
            sample.taken as f64 / sample.at.saturating_sub(*since).as_secs_f64(),
            sample.refused,
            sample.p50.as_secs_f64() * 1e3,
            sample.p99.as_secs_f64() * 1e3,
            sample.rss_mib,
            sample.descriptors,
            sample.outbox,
            sample.living,
            sample.database_mib,
        );
    }
    text
}

/// The compared figures: in the first quarter after the warm-up, in the last, and the limit there.
fn compared(samples: &[Sample]) -> Vec<(&'static str, f64, f64, f64)> {
    let warm = &samples[samples.len() / 8..];
    let quarter = warm.len() / 4;
    let (first, last) = (&warm[..quarter], &warm[warm.len() - quarter..]);
    // The middle one: a moment in which the machine did other work is not growth.
    let middle = |of: &[Sample], what: &dyn Fn(&Sample) -> f64| {
        let mut all: Vec<f64> = of.iter().map(what).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let row = |name, what: &dyn Fn(&Sample) -> f64, most: &dyn Fn(f64) -> f64| {
        let (first, last) = (middle(first, what), middle(last, what));
        (name, first, last, most(first))
    };
    // The least: as many are open as there are connections at the moment, but what is never closed stays.
    let open = |of: &[Sample]| of.iter().map(|one| one.descriptors).fold(f64::INFINITY, f64::min);
    let grown = |of: &[Sample]| {
        let taken: usize = of[1..].iter().map(|sample| sample.taken).sum();
        (of[of.len() - 1].database_mib - of[0].database_mib) * 1024.0 / taken.max(1) as f64
    };
    let p99_more = margin::P99.as_secs_f64() * 1e3;
    vec![
        row("RSS, MiB", &|one| one.rss_mib, &|first| first * 1.1 + margin::RSS_MIB),
        ("least descriptors", open(first), open(last), open(first) + margin::DESCRIPTORS),
        row("rows in the outbox", &|one| one.outbox, &|first| first + margin::ROWS),
        row("rows of brokers, leases, cursors", &|one| one.living, &|first| first + margin::ROWS),
        row("p99, ms", &|one| one.p99.as_secs_f64() * 1e3, &|first| {
            first * margin::P99_FACTOR + p99_more
        }),
        ("KiB a handoff", grown(first), grown(last), grown(first) * margin::BYTES_FACTOR),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, rss_mib: f64, database_mib: f64) -> Sample {
        let (p50, p99) = (Duration::from_millis(2), Duration::from_millis(9));
        let at = Duration::from_secs(at);
        Sample {
            at,
            rss_mib,
            descriptors: 30.0,
            outbox: 0.0,
            living: 2.0,
            database_mib,
            taken: 100,
            refused: 0,
            p50,
            p99,
        }
    }

    fn too_much(samples: &[Sample]) -> Vec<&'static str> {
        let all = compared(samples).into_iter();
        all.filter(|(_, _, last, most)| last > most).map(|(name, ..)| name).collect()
    }

    #[test]
    fn what_grows_is_named_and_what_does_not_is_not() {
        let flat: Vec<Sample> = (0..64).map(|n| sample(n, 80.0, n as f64)).collect();
        assert_eq!(too_much(&flat), Vec::<&str>::new());
        let leaking: Vec<Sample> = (0..64).map(|n| sample(n, 80.0 + n as f64, n as f64)).collect();
        assert_eq!(too_much(&leaking), ["RSS, MiB"]);
        let swelling: Vec<Sample> =
            (0..64).map(|n| sample(n, 80.0, (n * n) as f64 / 40.0)).collect();
        assert_eq!(too_much(&swelling), ["KiB a handoff"]);
        let keeping = |n| Sample { descriptors: 30.0 + n as f64, ..sample(n, 80.0, n as f64) };
        let keeping: Vec<Sample> = (0..64).map(keeping).collect();
        assert_eq!(too_much(&keeping), ["least descriptors"]);
        let bursting = |n| Sample {
            descriptors: if n > 50 && n % 2 == 0 { 130.0 } else { 30.0 },
            ..sample(n, 80.0, n as f64)
        };
        let bursting: Vec<Sample> = (0..64).map(bursting).collect();
        assert_eq!(too_much(&bursting), Vec::<&str>::new());
    }
}
