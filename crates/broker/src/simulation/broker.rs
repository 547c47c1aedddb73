//! A broker of the product's own parts: ledger, dispatcher, sweeper, inboxes, heartbeat and the watch
//! over the others, put together as `app/start.rs` does. Only what lies outside is simulated: the line to
//! the store and the wire to the receivers, both of which end with the broker.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dice::{below, pause};
use super::wire::Wire;
use super::world::{SetTimes, World};
use crate::brokers::{self, beat};
use crate::claim_check::ClaimLinks;
use crate::compress::CompressionStep;
use crate::directory::Directory;
use crate::dispatch::backoff::RetryPolicy;
use crate::dispatch::breaker::BreakerSettings;
use crate::dispatch::budget::BudgetSettings;
use crate::dispatch::chunks::{self, ChunkSender};
use crate::dispatch::dispatcher::{self, Dispatcher};
use crate::dispatch::inboxes::Inboxes;
use crate::dispatch::webhook_transport::WebhookTransport;
use crate::ledger::command::Call;
use crate::ledger::commands::{AnyCommand, AnyReply, Queued, Submit};
use crate::ledger::context::Rules;
use crate::ledger::reply::{LedgerError, SubmissionReply};
use crate::ledger::{self, Ledger, Outbound, Outgoing};
use crate::metrics::Metrics;
use crate::recovery::Sweeper;
use crate::transport::{Transport, Transports};
use crate::vault::Vault;
use handoffd_domain::ids::Micros;
use handoffd_domain::redaction::RedactionPolicy;
use handoffd_domain::window::ContextSettings;
use handoffd_gate::schema::Schemas;
use handoffd_store::clock::{Clock, SystemClock};
use handoffd_store::store::memory::{StoreEffect, StoreLine};
use handoffd_store::store::{Result, Store, StoreError};

/// Time for a verdict.
pub(super) const VERDICT: Duration = Duration::from_secs(1);
/// Lease of an acceptance.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// Lifetime of a claim of a broker or a pull receiver.
pub(super) const CLAIM: Duration = Duration::from_millis(2_500);
/// Longest allowed silence of a broker.
pub(super) const SILENCE: Duration = Duration::from_millis(1_500);
/// Interval of all polls.
const PERIOD: Duration = Duration::from_secs(1);
/// Time for the decision on an escalation.
const ESCALATION: Duration = Duration::from_secs(2);
/// Time for a pull receiver to claim a handoff.
const UNCLAIMED: Duration = Duration::from_secs(10);
/// A day, in microseconds.
const DAY_US: u64 = 86_400_000_000;

/// How long a start leaves passed deadlines alone.
const START_GRACE: Duration = Duration::from_secs(1);

/// A cache keeps an entry for a whole schedule: its own clock is not the schedule's.
const CACHED: Duration = Duration::from_hours(1);

/// Shared by all schedules: counters influence no decision.
static METRICS: LazyLock<Arc<Metrics>> =
    LazyLock::new(|| Arc::new(Metrics::new().expect("the metrics")));
static SCHEMAS: LazyLock<Arc<Schemas>> = LazyLock::new(|| Arc::new(Schemas::new()));
static VAULT: LazyLock<Vault> =
    LazyLock::new(|| Vault::from_base64(&Vault::new_master_key()).expect("a master key"));

/// Makes what is made once, from no schedule's seed.
pub(super) fn prepare() {
    LazyLock::force(&METRICS);
    LazyLock::force(&SCHEMAS);
    LazyLock::force(&VAULT);
}

/// The machine and the network under a broker.
pub(super) struct Host {
    pub(super) name: String,
    /// Ends all traffic of the host.
    pub(super) dead: CancellationToken,
    stalled_until: Mutex<Option<Instant>>,
    away_until: Mutex<Option<Instant>>,
}

fn until(place: &Mutex<Option<Instant>>) -> Option<Instant> {
    *place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Suspends the host, as in a long pause of its machine.
    pub(super) fn stall(&self, time: Duration) {
        *self.stalled_until.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now() + time);
    }

    /// Cuts the connection to the store.
    pub(super) fn cut_off(&self, time: Duration) {
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now() + time);
    }

    /// Returns only while the host is alive and not suspended.
    pub(super) async fn moves(&self) {
        while let Some(until) = until(&self.stalled_until).filter(|at| *at > Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
        if self.dead.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

/// A broker's connection to the store.
struct FaultyStoreConnection {
    world: Arc<World>,
    host: Arc<Host>,
}

impl FaultyStoreConnection {
    /// `usual` is the largest delay in milliseconds of a fast store.
    async fn travel(&self, usual: u64) {
        let slow = self.world.fails(self.world.weather.store_slow);
        let pause = if slow { pause(5, 400) } else { Duration::from_millis(below(usual)) };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        self.host.moves().await;
    }

    fn fault(&self, what: &str, how: &str) -> Result<()> {
        self.world.note(|| format!("{} {what}: {how}", self.host.name));
        Err(StoreError::Unavailable(how.to_owned()))
    }
}

#[async_trait]
impl StoreLine for FaultyStoreConnection {
    async fn asked(&self, what: &'static str) -> Result<()> {
        self.travel(4).await;
        let cut_off = until(&self.host.away_until).is_some_and(|at| at > Instant::now());
        if (cut_off && !self.world.is_calm()) || self.world.fails(self.world.weather.store_away) {
            return self.fault(what, "the store is away");
        }
        Ok(())
    }

    fn collides(&self) -> bool {
        self.world.fails(self.world.weather.collides)
    }

    fn done(&self, what: StoreEffect<'_>) {
        self.world.note(|| format!("{} {}", self.host.name, super::books::words(what)));
        self.world.books().done(what, self.world.elapsed());
    }

    async fn answered(&self, what: &'static str) -> Result<()> {
        if self.world.fails(self.world.weather.crash) {
            self.world.note(|| format!("{} dies after {what}", self.host.name));
            self.host.dead.cancel();
        }
        self.travel(1).await;
        if self.world.fails(self.world.weather.store_lost) {
            return self.fault(what, "the answer is lost");
        }
        Ok(())
    }
}

pub(super) struct Broker {
    pub(super) host: Arc<Host>,
    pub(super) store: Arc<Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ledger: Ledger,
    pub(super) compression: Arc<CompressionStep>,
    pub(super) stopping: CancellationToken,
}

impl Broker {
    /// Starts a broker after its first heartbeat; the broker may die before.
    pub(super) async fn start(world: &Arc<World>, name: String) -> Self {
        let host = Arc::new(Host {
            name,
            dead: CancellationToken::new(),
            stalled_until: Mutex::default(),
            away_until: Mutex::default(),
        });
        let line = FaultyStoreConnection { world: Arc::clone(world), host: Arc::clone(&host) };
        let store: Arc<Store> = Arc::new(world.tables.over(Arc::new(line)).into());
        let ahead = Duration::from_millis(below(world.weather.skew_ms.max(1)));
        // After at least a moment, so that the start itself has the time of the schedule.
        let set = world.fails(world.weather.clock_set).then(|| {
            let at = world.now().plus(Duration::from_millis(1 + below(20_000)));
            (at, (below(2 * DAY_US) as i64) - DAY_US as i64)
        });
        let times = SetTimes { world: Arc::clone(world), ahead, set };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::over(times, START_GRACE));
        let broker = Self::assemble(world, host, store, clock);
        let says = async {
            while broker.store.beat(&broker.host.name, broker.clock.now()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            biased;
            () = broker.host.dead.cancelled() => {}
            () = says => {}
        }
        broker
    }

    fn assemble(
        world: &Arc<World>,
        host: Arc<Host>,
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (tracker, stopping) = (TaskTracker::new(), CancellationToken::new());
        let directory = Arc::new(Directory::new(Arc::clone(&store), Arc::clone(&clock), CACHED));
        let compression = Arc::new(CompressionStep {
            directory: Arc::clone(&directory),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&METRICS),
            settings: ContextSettings { keep_turns: 2, ..ContextSettings::default() },
            model: None,
            stopping: stopping.clone(),
        });
        let wire = Arc::new(Wire { world: Arc::clone(world), host: Arc::clone(&host) });
        let (dispatcher, nudges) = Dispatcher::new(
            dispatcher::DispatcherDependencies {
                store: Arc::clone(&store),
                directory: Arc::clone(&directory),
                vault: VAULT.clone(),
                claims: ClaimLinks {
                    vault: VAULT.clone(),
                    base: String::new(),
                    ttl: std::time::Duration::from_hours(1),
                },
                clock: Arc::clone(&clock),
                metrics: Arc::clone(&METRICS),
                transports: Transports::new([
                    Arc::new(WebhookTransport::new(wire.clone())) as Arc<dyn Transport>
                ]),
                schemas: Arc::clone(&SCHEMAS),
                compression: Arc::clone(&compression),
                redaction: Arc::new(RedactionPolicy::default()),
                replies: Arc::default(),
                receivers: Arc::default(),
                settings: dispatcher_settings(),
                broker: host.name.clone(),
                stopping: stopping.clone(),
            },
            tracker.clone(),
        );
        let outbound: Arc<dyn Outbound> = Arc::new(dispatcher.clone());
        let ledger = Ledger::start(
            Arc::clone(&store),
            Arc::clone(&outbound),
            Arc::clone(&METRICS),
            Arc::default(),
            ledger_settings(),
            host.name.clone(),
            &tracker,
        );
        dispatcher.settle_with(ledger.clone());
        tracker.spawn(dispatcher.run(nudges));
        let sender = ChunkSender::new(
            chunks::ChunkSenderDependencies {
                store: Arc::clone(&store),
                directory: Arc::clone(&directory),
                vault: VAULT.clone(),
                clock: Arc::clone(&clock),
                metrics: Arc::clone(&METRICS),
                post: wire,
                ledger: ledger.clone(),
                settings: chunk_sender_settings(),
                broker: host.name.clone(),
                stopping: stopping.clone(),
            },
            tracker.clone(),
        );
        tracker.spawn(sender.run());
        let (name, ending) = (host.name.clone(), stopping.clone());
        tracker.spawn(beat(Arc::clone(&store), Arc::clone(&clock), name, SILENCE, ending));
        let inboxes = Inboxes {
            store: Arc::clone(&store),
            directory,
            ledger: ledger.clone(),
            outbound: Arc::clone(&outbound),
            clock: Arc::clone(&clock),
            period: PERIOD,
            unclaimed: UNCLAIMED,
            stopping: stopping.clone(),
        };
        tracker.spawn(inboxes.run());
        let watch = brokers::BrokerMonitor {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&METRICS),
            broker: host.name.clone(),
            outbound,
            timeout: SILENCE,
            stopping: stopping.clone(),
        };
        tracker.spawn(watch.run());
        let sweeper = Sweeper {
            store: Arc::clone(&store),
            ledger: ledger.clone(),
            clock: Arc::clone(&clock),
            period: PERIOD,
            standstill: PERIOD * 100,
            stream_idle: Duration::ZERO,
            stopping: stopping.clone(),
        };
        tracker.spawn(sweeper.run());
        Self { host, store, clock, ledger, compression, stopping }
    }

    /// Ends the broker at once, as SIGKILL does: completed operations stay, no other follows.
    pub(super) fn kill(&self) {
        self.host.dead.cancel();
        // Its loops cannot do anything any more; this only spares stepping through them.
        self.stopping.cancel();
    }

    /// Sends a request over a network that may lose the request or the answer. `None` where the outcome is unknown.
    pub(super) async fn call<C: Queued>(
        &self,
        world: &World,
        make: impl FnOnce(Micros) -> (Call, C),
    ) -> Option<std::result::Result<C::Reply, LedgerError>> {
        self.reach(world, async |now| {
            let (call, command) = make(now);
            self.ledger.handle(call, command).await
        })
        .await
    }

    /// The same with one of several commands.
    pub(super) async fn call_any(
        &self,
        world: &World,
        make: impl FnOnce(Micros) -> (Call, AnyCommand),
    ) -> Option<std::result::Result<AnyReply, LedgerError>> {
        self.reach(world, async |now| {
            let (call, command) = make(now);
            self.ledger.handle_any(call, command).await
        })
        .await
    }

    /// The same with a submission.
    pub(super) async fn submit(
        &self,
        world: &World,
        make: impl FnOnce(Micros) -> (Call, Submit),
        outgoing: Outgoing,
    ) -> Option<std::result::Result<SubmissionReply, LedgerError>> {
        self.reach(world, async |now| {
            let (call, submit) = make(now);
            Ok(self.ledger.submit(call, submit, outgoing).await?.reply)
        })
        .await
    }

    async fn reach<R>(
        &self,
        world: &World,
        handle: impl AsyncFnOnce(Micros) -> std::result::Result<R, LedgerError>,
    ) -> Option<std::result::Result<R, LedgerError>> {
        tokio::time::sleep(pause(0, 8)).await;
        if world.fails(world.weather.call_lost) {
            return None;
        }
        let now = self.clock.now();
        let handled = async {
            self.host.moves().await;
            handle(now).await
        };
        let reply = tokio::select! {
            biased;
            () = self.host.dead.cancelled() => return None,
            reply = handled => reply,
        };
        (!world.fails(world.weather.call_lost)).then_some(reply)
    }
}

/// Attempts at a handoff, and at the end of a stream whose handoff has ended.
pub(super) const ATTEMPTS: u32 = 4;

const RETRY: RetryPolicy = RetryPolicy {
    base: Duration::from_millis(200),
    cap: Duration::from_secs(1),
    max_attempts: ATTEMPTS,
};

const fn chunk_sender_settings() -> chunks::ChunkSenderSettings {
    chunks::ChunkSenderSettings { retry: RETRY, lease: SILENCE, poll: PERIOD, at_once: 4 }
}

fn dispatcher_settings() -> dispatcher::DispatcherSettings {
    dispatcher::DispatcherSettings {
        retry: RETRY,
        max_in_flight: 2 + below(6) as usize,
        breaker: BreakerSettings { cool_down_cap: Duration::from_secs(2), ..Default::default() },
        budget: BudgetSettings::default(),
        disable_after: 0,
        poll: PERIOD,
        claim: CLAIM,
        // No transport of the simulation has a reply channel.
        reply_wait: std::time::Duration::ZERO,
        verdict: VERDICT,
        lease: LEASE,
        compress_above: usize::MAX,
    }
}

fn ledger_settings() -> ledger::Settings {
    ledger::Settings {
        queue: 64,
        batch: 1 + below(8) as usize,
        workers: 1 + below(2) as usize,
        conflict_tries: 4,
        settle_delay: Duration::from_millis(below(3) * 10),
        claim_ttl: CLAIM,
        rules: Rules {
            escalation_timeout: ESCALATION,
            reserve: true,
            lease: LEASE,
            ..Rules::default()
        },
    }
}
