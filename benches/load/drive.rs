//! Sends the load, in a closed or an open loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use handoffd::clock::random_id;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::broker::{Broker, postgres_cpu};
use crate::world::{World, client};

/// The most requests under way at once in the open loop; latency includes the wait for a free one.
const MAX_OPEN: usize = 2_000;
/// How long acknowledged handoffs may take to reach their receivers after the load.
const DRAIN: Duration = Duration::from_mins(1);

/// The load to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Senders of the closed loop.
    pub senders: usize,
    /// Handoffs a second in the open loop; `None` for the closed loop.
    pub rate: Option<u64>,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// The measured time.
    pub measured: Duration,
    /// Bytes of a message.
    pub size: usize,
    /// Tenants of the agents; at least one.
    pub tenants: usize,
    /// Handoffs that another tenant has in the store before the load.
    pub past: u64,
    /// Handoffs of a task; 0 for no end.
    pub hops: usize,
    /// Whether senders wait for the verdict.
    pub wait: bool,
}

impl Plan {
    /// A half second of this load, to fill the store before the measurement.
    pub fn begun(&self) -> Self {
        let (warm_up, measured) = (Duration::ZERO, Duration::from_millis(500));
        Self { warm_up, measured, senders: 8, rate: None, hops: 1, ..*self }
    }
}

/// The results of a run.
#[derive(Default)]
pub struct Outcome {
    /// From the intended time to the answer.
    pub answered: Vec<Duration>,
    /// The same for the first tenth and for the last tenth of each task's handoffs, if tasks have an end and
    /// at least ten handoffs.
    pub first_and_last: [Vec<Duration>; 2],
    /// From the intended time to the receiver, over the whole run.
    pub arrived: Vec<Duration>,
    /// Acknowledged over the whole run.
    pub acknowledged: usize,
    /// Requests without an acknowledgement: other answers, or none.
    pub refused: usize,
    /// Delivered more than once.
    pub again: usize,
    /// The time over which the answers were counted.
    pub measured: Duration,
    /// From the last answer to the last arrival.
    pub drained_in: Duration,
    /// The brokers' processor seconds, over the whole run.
    pub broker_cpu: f64,
    /// Commands in a transaction of the first broker, on average.
    pub batch: f64,
    /// Seconds of such a transaction, on average.
    pub commit_s: f64,
    /// Postgres' processor seconds, over the whole run.
    pub postgres_cpu: f64,
    /// Resident memory of the first broker in MiB: before the load, and at most.
    pub resident: [f64; 2],
}

/// One answer.
struct Sample {
    at: Instant,
    took: Duration,
    good: bool,
    /// The handoff's number within its task.
    hop: usize,
}

struct Tools {
    world: Arc<World>,
    http: reqwest::Client,
    plan: Plan,
    from: Instant,
    until: Instant,
    sample: mpsc::UnboundedSender<Sample>,
}

impl Tools {
    /// Sends one handoff and waits for its answer.
    async fn send(&self, n: usize, due: Instant, (task, hop): (&str, usize)) {
        let (id, body) = self.world.message(n, task);
        let sender = &self.world.senders[n % self.world.senders.len()];
        let base = &self.world.bases[n % self.world.bases.len()];
        self.world.arrivals.due.lock().unwrap().insert(id.clone(), due);
        let mut request = self
            .http
            .post(format!("{base}/handoffs"))
            .bearer_auth(&sender.key)
            .header("content-type", "application/json")
            .body(body);
        if self.plan.wait {
            request = request.header("prefer", "wait=30");
        }
        let good = match request.send().await {
            // Reads the whole body, so that the client can use the connection again.
            Ok(answer) => answer.status().is_success() && answer.bytes().await.is_ok(),
            Err(_) => false,
        };
        let now = Instant::now();
        if !good {
            self.world.arrivals.due.lock().unwrap().remove(&id);
        }
        let _ = self.sample.send(Sample { at: now, took: now - due, good, hop });
    }

    async fn closed(self: Arc<Self>, n: usize) {
        let mut turn = n;
        while Instant::now() < self.until {
            let task = random_id().to_string();
            let mut hop = 0;
            while (self.plan.hops == 0 || hop < self.plan.hops) && Instant::now() < self.until {
                self.send(turn, Instant::now(), (&task, hop)).await;
                hop += 1;
                // Another task goes to another receiver; one task stays with its agents.
            }
            turn += self.plan.senders;
        }
    }

    async fn open(self: Arc<Self>, rate: u64) {
        let mut under_way = JoinSet::new();
        let places = Arc::new(Semaphore::new(MAX_OPEN));
        let began = Instant::now();
        let late = Arc::new(AtomicUsize::new(0));
        for n in 0.. {
            let due = began + Duration::from_secs_f64(n as f64 / rate as f64);
            if due >= self.until {
                break;
            }
            sleep_until(due).await;
            if places.available_permits() == 0 {
                late.fetch_add(1, Ordering::Relaxed);
            }
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let tools = Arc::clone(&self);
            under_way.spawn(async move {
                tools.send(n, due, (&random_id().to_string(), 0)).await;
                drop(place);
            });
            while under_way.try_join_next().is_some() {}
        }
        let held = late.load(Ordering::Relaxed);
        if held > 0 {
            eprintln!(
                "{held} waited for one of {MAX_OPEN} places; they count from when they were due"
            );
        }
        while under_way.join_next().await.is_some() {}
    }
}

/// Runs the load to its end.
pub async fn run(world: &Arc<World>, plan: &Plan, brokers: &[Broker]) -> Outcome {
    let (sample, mut samples) = mpsc::unbounded_channel();
    let from = Instant::now() + plan.warm_up;
    let until = from + plan.measured;
    let tools =
        Tools { world: Arc::clone(world), http: client(), plan: *plan, from, until, sample };
    let tools = Arc::new(tools);
    let cpu = || brokers.iter().map(Broker::cpu).sum::<f64>();
    let (cpu_before, postgres_before) = (cpu(), postgres_cpu());
    let resident = brokers[0].memory("VmRSS");
    let mut tasks = JoinSet::new();
    match plan.rate {
        Some(rate) => {
            tasks.spawn(Arc::clone(&tools).open(rate));
        }
        None => {
            for n in 0..plan.senders {
                tasks.spawn(Arc::clone(&tools).closed(n));
            }
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let from = tools.from;
    drop(tools);
    let mut outcome = Outcome { measured: plan.measured, ..Outcome::default() };
    let tenth = plan.hops / 10;
    while let Some(Sample { at, took, good, hop }) = samples.recv().await {
        if !good {
            outcome.refused += 1;
            continue;
        }
        outcome.acknowledged += 1;
        // The closed loop counts answers within the measured time; the open loop counts all handoffs that were due in it.
        let counts = match plan.rate {
            Some(_) => at - took >= from,
            None => at >= from && at < until,
        };
        if counts && hop < tenth {
            outcome.first_and_last[0].push(took);
        } else if counts && tenth > 0 && hop >= plan.hops - tenth {
            outcome.first_and_last[1].push(took);
        }
        if counts {
            outcome.answered.push(took);
        }
    }
    let began = Instant::now();
    while !world.arrivals.due.lock().unwrap().is_empty() {
        assert!(began.elapsed() < DRAIN, "acknowledged handoffs did not reach their receivers");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    outcome.drained_in = began.elapsed();
    outcome.arrived = std::mem::take(&mut *world.arrivals.took.lock().unwrap());
    outcome.again = world.arrivals.again.load(Ordering::Relaxed);
    let once = world.arrivals.once.load(Ordering::Relaxed);
    assert!(once >= outcome.acknowledged, "{once} of {} arrived", outcome.acknowledged);
    outcome.batch = brokers[0].mean("handoff_ledger_batch_commands").await;
    outcome.commit_s = brokers[0].mean("handoff_ledger_commit_duration_seconds").await;
    outcome.resident = [resident, brokers[0].memory("VmHWM")];
    outcome.broker_cpu = cpu() - cpu_before;
    outcome.postgres_cpu = postgres_cpu() - postgres_before;
    outcome
}
