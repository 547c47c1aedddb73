//! Ten times what the broker can do: it says no in time, keeps its size, and loses nothing that it took.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::load::Load;
use crate::pace::{Answer, open_loop, percentile};
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, message, until};

/// Seconds of overload where `HANDOFFD_TEST_OVERLOAD_S` says nothing.
const SECONDS: u64 = 4;

/// How long the calm load runs, by which the sustainable rate is measured.
const CALM: Duration = Duration::from_secs(3);

/// Senders of the calm load.
const SENDERS: usize = 8;

/// How much larger the broker may get than under the calm load, in MiB: its queues are bounded, and what
/// waits in them is some tens of KiB each.
const GROWTH_MIB: u64 = 64;

/// And for each connection that is open, or was: its buffers, in the broker and below, in KiB. The allocator gives
/// back what closed ones had some ten seconds later, so the most that were open at once count until the end.
const CONNECTION_KIB: u64 = 32;

/// How long that may take.
const GIVEN_BACK: Duration = Duration::from_mins(1);

/// How long what was taken may take to its receivers afterwards.
const DRAIN: Duration = Duration::from_mins(3);

/// Queues so narrow that a slow machine in debug mode is overloaded too. The senders share its processors, and what
/// they opened may wait longer than the usual 10 s for their headers; slow headers have a test of their own.
const SETTINGS: [(&str, &str); 3] = [
    ("HANDOFFD_LEDGER__QUEUE", "64"),
    ("HANDOFFD_SERVER__MAX_REQUESTS", "128"),
    ("HANDOFFD_SERVER__HEADER_TIMEOUT_MS", "60000"),
];

fn seconds() -> Duration {
    let asked = std::env::var("HANDOFFD_TEST_OVERLOAD_S").map(|text| text.parse().unwrap());
    Duration::from_secs(asked.unwrap_or(SECONDS))
}

async fn delivered(world: &World) {
    until(DRAIN, "everything taken reaches its receiver", async || {
        let seen = world.seen.handoffs();
        world.acknowledged.lock().unwrap().keys().filter(|id| !seen.contains(*id)).count()
    })
    .await;
}

/// Taken and delivered, a second, by senders that wait for their answers.
async fn sustainable(world: &Arc<World>, broker: &Broker) -> f64 {
    let mut load = Load::start(world, &[&broker.base], SENDERS);
    load.more(50).await;
    let (before, began) = (world.count(), Instant::now());
    tokio::time::sleep(CALM).await;
    load.finish().await;
    delivered(world).await;
    (world.count() - before) as f64 / began.elapsed().as_secs_f64()
}

pub async fn ten_times_too_much_is_refused_and_costs_no_memory(site: Arc<Site>) {
    let broker = Broker::start(&site, &SETTINGS).await;
    let seen = Arc::new(Seen::default());
    let mut receivers = Vec::new();
    for id in ["one", "two", "three", "four"] {
        let url = accepting(Arc::clone(&seen), Duration::ZERO).await;
        receivers.push((id, Takes::Webhook(url, 16)));
    }
    let mut world = World::new(&broker, receivers).await;
    world.seen = seen;
    let world = Arc::new(world);
    let rate = sustainable(&world, &broker).await;
    let calm = Size::of(&broker);
    let mut peak = calm;
    // The rate was measured earlier; if the machine is quicker now, the load is higher.
    for factor in [10.0, 40.0, 160.0] {
        let flood = flood(&world, &broker, rate * factor).await;
        let began = Instant::now();
        delivered(&world).await;
        peak = peak.larger(flood.peak);
        println!(
            "{:?}: {rate:.0}/s sustainable; at {:.0}/s for {:?}: {flood}; before {calm:?}, at most {peak:?}; \
             all delivered {:?} later",
            site.side,
            rate * factor,
            seconds(),
            began.elapsed(),
        );
        assert!(flood.others.is_empty(), "neither taken nor refused in order: {:?}", flood.others);
        assert_eq!(flood.unanswered, 0, "who is refused is told so");
        let most = calm.net() + GROWTH_MIB;
        assert!(peak.net() <= most, "before {calm:?}, at most {peak:?}");
        // The allocator gives back when later work makes it look (decision 0016), so there is some.
        until(GIVEN_BACK, "what closed connections had is given back, in MiB", async || {
            world.submit(&broker.base, &message(&random_id().to_string(), None, "one")).await;
            usize::try_from(Size::of(&broker).net().saturating_sub(most)).unwrap()
        })
        .await;
        if flood.refused > 0 {
            serves_as_before(&site, world, broker).await;
            return;
        }
    }
    panic!("nothing was refused: that was no overload");
}

async fn serves_as_before(site: &Site, world: Arc<World>, broker: Broker) {
    world.submit(&broker.base, &message(&random_id().to_string(), None, "one")).await;
    delivered(&world).await;
    world.seen.check_attempts();
    broker.stop().await;
    let records = site.verify().await;
    assert!(records >= 2 * world.count() as u64, "{records} records of {}", world.count());
}

/// The results of an overload.
struct Flood {
    /// From when each was due to its 202, sorted.
    taken: Vec<Duration>,
    refused: usize,
    unanswered: usize,
    others: Vec<Answer>,
    /// The largest it was, beside what its connections may take.
    peak: Size,
}

/// A broker's size at one moment; under a flood, with the most descriptors until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    rss_mib: u64,
    descriptors: u64,
}

impl Size {
    fn of(broker: &Broker) -> Self {
        Self { rss_mib: broker.rss_mib(), descriptors: broker.descriptors() as u64 }
    }

    /// The memory without its connections' buffers, in MiB.
    fn net(self) -> u64 {
        self.rss_mib.saturating_sub(self.descriptors * CONNECTION_KIB / 1024)
    }

    fn larger(self, other: Self) -> Self {
        if other.net() > self.net() { other } else { self }
    }

    /// A broker's size now, after so many descriptors.
    fn after(most: &mut u64, broker: &Broker) -> Self {
        let now = Self::of(broker);
        *most = now.descriptors.max(*most);
        Self { descriptors: *most, ..now }
    }
}

impl std::fmt::Display for Flood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} taken (p50 {:?}, p99 {:?}), {} refused",
            self.taken.len(),
            percentile(&self.taken, 50),
            percentile(&self.taken, 99),
            self.refused
        )
    }
}

/// So many a second, whatever comes back.
async fn flood(world: &Arc<World>, broker: &Broker, rate: f64) -> Flood {
    let mut answers = open_loop(world, &broker.base, rate, seconds());
    let mut flood = Flood {
        taken: Vec::new(),
        refused: 0,
        unanswered: 0,
        others: Vec::new(),
        peak: Size::of(broker),
    };
    let mut most = 0;
    let mut look = tokio::time::interval(Duration::from_millis(50));
    loop {
        let sent = tokio::select! {
            sent = answers.recv() => sent,
            _ = look.tick() => {
                flood.peak = flood.peak.larger(Size::after(&mut most, broker));
                continue;
            }
        };
        let Some(sent) = sent else { break };
        match sent.answer {
            Answer::Taken => flood.taken.push(sent.took),
            // A second or more, and no longer than a client would wait.
            Answer::Overloaded(Some(1..=60)) => flood.refused += 1,
            Answer::None => flood.unanswered += 1,
            other => flood.others.push(other),
        }
    }
    flood.taken.sort();
    flood
}
