//! The composition root: from settings to a running broker.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::{Api, ApiParts, Endpoints, listener, router};

pub use crate::http::router::openapi;
use handoffd_broker::archive::{self, Archive, ArchiveError};
use handoffd_broker::brokers::{self, beat};
use handoffd_broker::classifier::Classifier;
use handoffd_broker::config::{Config, ContractsException, FanOut, MinimumLevel};
use handoffd_broker::directory::{Directory, Matcher};
use handoffd_broker::dispatch::backoff::RetryPolicy;
use handoffd_broker::dispatch::breaker::BreakerSettings;
use handoffd_broker::dispatch::budget::BudgetSettings;
use handoffd_broker::dispatch::dispatcher::{self, Dispatcher};
use handoffd_broker::dispatch::egress::{self, ClientSettings, EgressPolicy};
use handoffd_broker::dispatch::events::{self, EventPublisher};
use handoffd_broker::dispatch::inboxes::Inboxes;
use handoffd_broker::dispatch::webhook::WebhookClient;
use handoffd_broker::erasure::{self, Eraser};
use handoffd_broker::feed::Feed;
use handoffd_broker::intake::policies::policies;
use handoffd_broker::intake::{Intake, SecondOpinion};
use handoffd_broker::ledger::command::{Command, Kind};
use handoffd_broker::ledger::context::Rules;
use handoffd_broker::ledger::{self, Ledger, Outbound};
use handoffd_broker::matcher::ExternalMatcher;
use handoffd_broker::metrics::Metrics;
use handoffd_broker::recovery::{
    Sweeper, forget_events, settle_all_in_doubt, settle_in_doubt, tend,
};
use handoffd_broker::retention::Purger;
use handoffd_broker::tree::CosignedHeads;
use handoffd_broker::vault::{Vault, VaultError, hash_api_key, new_api_key};
use handoffd_broker::witness::{self, HeadDestination, KeptHeadError, Publisher};
use handoffd_core::contract::level::Level;
use handoffd_core::domain::ids::TenantId;
use handoffd_core::domain::warning::WarningCode;
use handoffd_core::evidence::note::Signer;
use handoffd_core::evidence::receipt::Notary;
use handoffd_core::evidence::record::Actor;
use handoffd_core::gate::{Gate, contract};
use handoffd_store::clock::{self, Clock, SystemClock};
use handoffd_store::store::postgres::PostgresStore;
use handoffd_store::store::sqlite::{SqliteOptions, SqliteStore};
use handoffd_store::store::{ClaimRelease, KeyRow, Role, Store, StoreError};

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is wrong.
    #[error("{0}")]
    Config(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The master key is not this database's.
    #[error("{0}")]
    Vault(String),
    /// The database does not fit the tree heads that are kept outside it.
    #[error(transparent)]
    Evidence(KeptHeadError),
    /// An address cannot be listened on, a file not written.
    #[error("{what}: {source}")]
    Io {
        /// On what.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

impl From<VaultError> for StartError {
    fn from(err: VaultError) -> Self {
        Self::Vault(err.to_string())
    }
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Io { what, source }
}

/// How long a stop waits for places to take the last tree heads.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How a store is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As the broker: alone on a SQLite file, made where there is none.
    Serve,
    /// As a command beside a broker.
    Beside,
    /// As a command that may make the database.
    Create,
}

/// Opens the store that the settings name.
///
/// # Errors
/// [`StoreError`], with what to do.
pub async fn open_store(config: &Config, access: Access) -> Result<Arc<dyn Store>, StoreError> {
    let url = config.database_url();
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(
            PostgresStore::open(
                &url,
                handoffd_store::store::postgres::PostgresOptions {
                    audit_url: Some(config.audit.database_url.clone())
                        .filter(|url| !url.is_empty()),
                    max_connections: config.database.max_connections,
                    acquire_timeout: Duration::from_millis(config.database.acquire_timeout_ms),
                },
            )
            .await?,
        ));
    }
    if url.starts_with("sqlite:") {
        let mut options = match access {
            Access::Serve => SqliteOptions::serving(),
            Access::Beside => SqliteOptions::beside(),
            Access::Create => SqliteOptions { create: true, ..SqliteOptions::beside() },
        };
        options.rewrite_limit = config.erasure.rewrite_limit_mib.saturating_mul(1 << 20);
        return Ok(Arc::new(SqliteStore::open(&url, options).await?));
    }
    Err(StoreError::Refused("database.url must begin with sqlite: or postgres://".to_owned()))
}

/// The archive that the settings name; credentials come from the process's environment.
///
/// # Errors
/// [`ArchiveError::Config`] where the settings cannot be.
pub fn open_archive(config: &Config) -> Result<Archive, ArchiveError> {
    Archive::new(config, std::env::vars())
}

/// How the ledger is to work with these settings.
#[must_use]
pub fn ledger_settings(config: &Config) -> ledger::Settings {
    let postgres = config.database_url().starts_with("postgres");
    ledger::Settings {
        queue: config.ledger.queue,
        batch: config.ledger.batch,
        workers: if postgres { config.ledger.workers } else { 1 },
        conflict_tries: config.ledger.conflict_tries,
        claim_ttl: config.delivery.broker_claim(),
        rules: rules(config),
    }
}

fn rules(config: &Config) -> Rules {
    Rules {
        max_hops: i64::from(config.gate.max_hops),
        max_edge_repeats: i64::from(config.gate.max_edge_repeats),
        reserve: config.budget.fan_out == FanOut::Reserve,
        lease: Duration::from_millis(config.delivery.lease_ms),
        escalation_timeout: Duration::from_millis(config.recovery.escalation_timeout_ms),
        caps: config.budget.caps(),
        residency: config.residency.rules(),
    }
}

/// A broker that serves.
pub struct Running {
    /// Where the API listens.
    pub address: SocketAddr,
    /// Where metrics listen, if apart.
    pub metrics_address: Option<SocketAddr>,
    /// Where the first admin key was written, if this start made one.
    pub admin_key_file: Option<std::path::PathBuf>,
    api: Api,
    accepting: Arc<AtomicBool>,
    /// Ends long polls, waits and everything in the background.
    stopping: CancellationToken,
    /// Ends the listeners.
    closing: CancellationToken,
    servers: TaskTracker,
    background: TaskTracker,
    attempts: TaskTracker,
    workers: TaskTracker,
    witness: Arc<Publisher>,
    store: Arc<dyn Store>,
    broker: String,
}

/// Starts a broker: opens and migrates the store, settles keys, listens, delivers.
///
/// # Errors
/// [`StartError`], with what to do.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    if !config.service_links.is_empty() {
        let names = config.service_links.join(" ");
        tracing::info!(
            names,
            "variables that Kubernetes sets beside a Service are no settings: ignored"
        );
    }
    if let Some(crossing) = config.residency.archive_crossing() {
        tracing::warn!(code = WarningCode::ResidencyCrossing.as_str(), "archive: {crossing}");
    }
    let policy = EgressPolicy::parse(&config.egress.allow)
        .map_err(|err| StartError::Config(format!("egress.allow: {err}")))?;
    let endpoints: Endpoints = {
        let policy = policy.clone();
        Arc::new(move |url| policy.check_url(url).err().map(|denied| denied.to_string()))
    };
    let archive = open_archive(&config).map_err(|err| StartError::Config(err.to_string()))?;
    // Rules are compiled and roots read while the store opens: half of a start's processor time.
    let made = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || {
            let settings = ClientSettings {
                connect_timeout: Duration::from_millis(config.delivery.connect_timeout_ms),
                ..ClientSettings::default()
            };
            let client = egress::client(policy, &settings).map_err(|err| {
                StartError::Config(format!("the HTTP client cannot be built: {err}"))
            })?;
            Ok::<_, StartError>((gate_of(&config)?, client))
        })
    };
    let store = open_store(&config, Access::Serve).await?;
    let new = store.migrate().await?;
    if new > 0 {
        tracing::info!(new, "migrations applied");
    }
    settle_all_in_doubt(&*store).await?;
    let vault = settle_vault(&config, &*store).await?;
    let notary = Arc::new(settle_notary(&config, &*store, clock.now()).await?);
    store.catch_up_trees().await?;
    let metrics = Arc::new(Metrics::new().map_err(|err| StartError::Config(err.to_string()))?);
    let broker = format!("broker-{}", clock::random_id());
    let directory = Arc::new(Directory::new(
        Arc::clone(&store),
        Arc::clone(&clock),
        Duration::from_millis(config.auth.cache_ttl_ms),
    ));

    let stopping = CancellationToken::new();
    let closing = CancellationToken::new();
    let (background, attempts, workers) =
        (TaskTracker::new(), TaskTracker::new(), TaskTracker::new());
    let (gate, client) = made
        .await
        .map_err(|err| StartError::Config(format!("the gate cannot be made ready: {err}")))??;
    let gate = Arc::new(gate);
    let cosigned = Arc::new(CosignedHeads::default());
    let witness = witness::PublisherContext {
        store: Arc::clone(&store),
        notary: Arc::clone(&notary),
        clock: Arc::clone(&clock),
        metrics: metrics.witness.clone(),
        cosigned: Arc::clone(&cosigned),
        places: witness::places(&config, &client, std::env::vars())
            .map_err(|err| StartError::Config(err.to_string()))?,
        known: std::collections::HashMap::new(),
    };
    // Before anything is written: what was attested must still be there.
    let witness = Arc::new(settle_witness(witness).await?);
    let second_opinion = Classifier::new(client.clone(), &config.safety.classifier)
        .map(|classifier| Arc::new(classifier) as Arc<dyn SecondOpinion>);
    let matcher = ExternalMatcher::new(client.clone(), &config.routing.matcher)
        .map(|matcher| Arc::new(matcher) as Arc<dyn Matcher>);
    let client = WebhookClient::new(client);
    let redaction = Arc::new(config.redaction.policy());
    let (dispatcher, nudges) = Dispatcher::new(
        dispatcher::DispatcherDependencies {
            store: Arc::clone(&store),
            directory: Arc::clone(&directory),
            vault: vault.clone(),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            post: Arc::new(client.clone()),
            schemas: Arc::clone(&gate.schemas),
            redaction: Arc::clone(&redaction),
            settings: dispatcher_settings(&config),
            broker: broker.clone(),
            stopping: stopping.clone(),
        },
        attempts.clone(),
    );
    let outbound: Arc<dyn Outbound> = Arc::new(dispatcher.clone());
    let ledger = Ledger::start(
        Arc::clone(&store),
        Arc::clone(&outbound),
        Arc::clone(&metrics),
        ledger_settings(&config),
        broker.clone(),
        &workers,
    );
    dispatcher.settle_with(ledger.clone());
    if !config.database_url().starts_with("postgres") {
        // Nobody else serves this file: whatever is still claimed was claimed by a broker that died.
        store.release(ClaimRelease::Everyone).await?;
    }
    store.beat(&broker, clock.now()).await?;
    let admin_key_file = settle_admin_key(&config, &*store, &ledger, clock.now()).await?;
    background.spawn(dispatcher.run(nudges));
    background.spawn(beat(
        Arc::clone(&store),
        Arc::clone(&clock),
        broker.clone(),
        Duration::from_millis(config.delivery.broker_timeout_ms),
        stopping.clone(),
    ));
    background.spawn(
        Inboxes {
            store: Arc::clone(&store),
            directory: Arc::clone(&directory),
            ledger: ledger.clone(),
            outbound: Arc::clone(&outbound),
            clock: Arc::clone(&clock),
            period: Duration::from_millis(config.delivery.poll_ms),
            unclaimed: Duration::from_millis(config.delivery.unclaimed_ms),
            stopping: stopping.clone(),
        }
        .run(),
    );
    background.spawn(
        brokers::BrokerMonitor {
            store: Arc::clone(&store),
            outbound,
            timeout: Duration::from_millis(config.delivery.broker_timeout_ms),
            stopping: stopping.clone(),
        }
        .run(),
    );
    background.spawn(
        Sweeper {
            store: Arc::clone(&store),
            ledger: ledger.clone(),
            clock: Arc::clone(&clock),
            period: Duration::from_millis(config.delivery.poll_ms),
            stopping: stopping.clone(),
        }
        .run(),
    );

    background.spawn(tend(Arc::clone(&store), stopping.clone()));
    if !config.audit.database_url.is_empty() {
        let metrics = Arc::clone(&metrics);
        background.spawn(settle_in_doubt(Arc::clone(&store), metrics, stopping.clone()));
    }
    let interval = Duration::from_secs(config.audit.publish_interval_s);
    background.spawn(Arc::clone(&witness).run(interval, stopping.clone()));
    spawn_archive(&config, &archive, &store, &clock, &metrics, &background, &stopping);
    let feed = Feed::new(Arc::clone(&store));
    background.spawn(
        EventPublisher::new(
            events::PublisherDependencies {
                store: Arc::clone(&store),
                feed: feed.clone(),
                directory: Arc::clone(&directory),
                vault: vault.clone(),
                clock: Arc::clone(&clock),
                metrics: Arc::clone(&metrics),
                client,
                ledger: ledger.clone(),
                settings: teller_settings(&config),
                broker: broker.clone(),
                stopping: stopping.clone(),
            },
            attempts.clone(),
        )
        .run(),
    );
    background.spawn(forget_events(
        Arc::clone(&store),
        Arc::clone(&clock),
        Duration::from_secs(config.events.retention_days.saturating_mul(86_400)),
        stopping.clone(),
    ));
    let eraser = Eraser::new(erasure::EraserContext {
        store: Arc::clone(&store),
        ledger: ledger.clone(),
        cold: Arc::new(archive.archivist(
            Arc::clone(&store),
            Arc::clone(&clock),
            metrics.archive.clone(),
        )),
        clock: Arc::clone(&clock),
        metrics: Arc::clone(&metrics),
        settings: erasure_settings(&config),
        tracker: background.clone(),
        stopping: stopping.clone(),
    });
    if config.retention.delete_after_days > 0 {
        let purger = Purger {
            store: Arc::clone(&store),
            ledger: ledger.clone(),
            cold: Arc::new(archive.archivist(
                Arc::clone(&store),
                Arc::clone(&clock),
                metrics.archive.clone(),
            )),
            clock: Arc::clone(&clock),
            metrics: metrics.retention.clone(),
            page: erasure_settings(&config).page,
        };
        let interval = Duration::from_secs(config.retention.delete_interval_s);
        let days = config.retention.delete_after_days;
        background.spawn(purger.sweep(days, interval, stopping.clone()));
    }
    let alone = !config.database_url().starts_with("postgres");
    background.spawn(eraser.clone().sweep(alone));

    let accepting = Arc::new(AtomicBool::new(true));
    let api = Api::new(ApiParts {
        slots: tokio::sync::Semaphore::new(config.server.max_requests),
        waits: tokio::sync::Semaphore::new(config.server.max_waits),
        what_ifs: tokio::sync::Semaphore::new(1),
        large_bodies: tokio::sync::Semaphore::new(
            (config.server.max_large_bytes.max(config.server.max_body_bytes) / 1024).max(1),
        ),
        intake: Intake {
            gate,
            second_opinion,
            directory,
            ledger,
            store: Arc::clone(&store),
            redaction,
            vault,
            clock,
            metrics: Arc::clone(&metrics),
            rules: rules(&config),
        },
        store: Arc::clone(&store),
        notary,
        cosigned,
        contents: archive.contents(Arc::clone(&store)),
        matcher,
        endpoints,
        feed,
        streams: Arc::new(tokio::sync::Semaphore::new(config.events.max_streams)),
        eraser,
        metrics,
        accepting: Arc::clone(&accepting),
        broker: broker.clone(),
        stopping: stopping.clone(),
        config: config.clone(),
    });
    let servers = TaskTracker::new();
    let limits = listener::Limits {
        connections: config.server.max_connections,
        headers: Duration::from_millis(config.server.header_timeout_ms),
    };
    let address =
        listen(config.server.listen, router::router(api.clone()), limits, &servers, &closing)
            .await?;
    let metrics_address = match config.server.metrics_listen {
        Some(at) => {
            Some(listen(at, router::metrics_router(api.clone()), limits, &servers, &closing).await?)
        }
        None => None,
    };
    tracing::info!(%address, broker, version = env!("CARGO_PKG_VERSION"), "ready");
    Ok(Running {
        address,
        metrics_address,
        admin_key_file,
        api,
        accepting,
        stopping,
        closing,
        servers,
        background,
        attempts,
        workers,
        witness,
        store,
        broker,
    })
}

/// Checks the database against the tree heads that are kept in folders.
async fn settle_witness(mut parts: witness::PublisherContext) -> Result<Publisher, StartError> {
    for folder in parts.places.iter().filter_map(HeadDestination::folder) {
        let known = witness::check(folder, &*parts.store, &parts.notary).await;
        parts.known.extend(known.map_err(|fault| match fault {
            KeptHeadError::Store(err) => StartError::Store(err),
            fault => StartError::Evidence(fault),
        })?);
    }
    Ok(Publisher::new(parts))
}

/// Has contents of old records moved, where there is an archive and the settings want it.
fn spawn_archive(
    config: &Config,
    archive: &Archive,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    background: &TaskTracker,
    stopping: &CancellationToken,
) {
    let archivist =
        archive.archivist(Arc::clone(store), Arc::clone(clock), metrics.archive.clone());
    let interval = Duration::from_secs(config.retention.archive_interval_s);
    if interval.is_zero() {
        return;
    }
    if !archivist.has_archive() {
        tracing::info!("contents stay in the database: retention.archive_url names no archive");
        return;
    }
    let hot_days = config.retention.hot_days;
    background.spawn(archive::sweep(archivist, hot_days, interval, stopping.clone()));
}

impl Running {
    /// [`Running::stop_within`] as long as the settings allow.
    pub async fn stop(self) {
        let patience = Duration::from_millis(self.api.config.server.stop_timeout_ms);
        // What is in flight gets most of the time; the rest is for handing back and closing.
        self.stop_within(patience.mul_f64(0.8)).await;
    }

    /// Stops in order: takes no more, ends long waits, finishes what is under way as far as `patience`
    /// goes, hands back what it still had claimed, closes the store.
    pub async fn stop_within(self, patience: Duration) {
        let deadline = tokio::time::Instant::now() + patience;
        self.accepting.store(false, Ordering::Release);
        // Long polls and the background end first, then the listeners drain.
        self.stopping.cancel();
        self.closing.cancel();
        // All at once: a client that sends slowly must not take the time of attempts under way.
        let ending = [
            ("requests", &self.servers),
            ("background work", &self.background),
            ("attempts at delivery", &self.attempts),
        ]
        .map(|(what, tracker)| async move {
            tracker.close();
            if tokio::time::timeout_at(deadline, tracker.wait()).await.is_err() {
                tracing::warn!(what, "did not end in time; what is claimed is handed back");
            }
        });
        futures_util::future::join_all(ending).await;
        // What the last requests committed was handed to the dispatcher before they were answered, maybe
        // after its attempts were found to have ended: those are waited for too.
        let _ = tokio::time::timeout_at(deadline, self.attempts.wait()).await;
        // Nobody is left who could say anything: the workers end with what is in the queue.
        self.api.intake.ledger.close();
        drop(self.api);
        self.workers.close();
        let _ = tokio::time::timeout(Duration::from_secs(2), self.workers.wait()).await;
        // The last word on what was committed; a place that is away gets it at the next start.
        if tokio::time::timeout(LAST_WORD, self.witness.publish()).await.is_err() {
            tracing::warn!("the last tree heads were not published everywhere");
        }
        match self.store.release(ClaimRelease::Own(&self.broker)).await {
            Ok(0) => {}
            Ok(claims) => tracing::info!(claims, "handed unfinished claims back"),
            Err(err) => tracing::warn!(error = %err, "claims could not be handed back"),
        }
        self.store.close().await;
        tracing::info!("stopped");
    }
}

fn teller_settings(config: &Config) -> events::PublisherSettings {
    let events = &config.events;
    events::PublisherSettings {
        retry: RetryPolicy {
            base: Duration::from_millis(events.retry_base_ms),
            cap: Duration::from_millis(events.retry_cap_ms),
            // An endpoint's line stands until it answers or is given up.
            max_attempts: u32::MAX,
        },
        timeout: Duration::from_millis(events.timeout_ms),
        set_aside_after: events.set_aside_after,
        disable_after: Duration::from_secs(events.disable_after_h.saturating_mul(3_600)),
        lease: Duration::from_millis(events.lease_ms),
        poll: Duration::from_millis(config.delivery.poll_ms),
        at_once: events.max_in_flight,
    }
}

/// What is asked of the contracts of edges.
fn requirement(config: &Config) -> contract::ContractRequirement {
    let required = config.gate.contract_exceptions.iter().map(|one| {
        let (tenant, agent, to) = (one.tenant.clone(), one.agent.clone(), one.to.clone());
        (contract::EdgeFilter { tenant, agent, to, until: one.until }, one.require_contract)
    });
    let edges = |one: &ContractsException| contract::EdgeFilter {
        tenant: one.tenant.clone(),
        agent: one.agent.clone(),
        to: one.to.clone(),
        until: one.until,
    };
    let level = |minimum: MinimumLevel| match minimum {
        MinimumLevel::None => None,
        MinimumLevel::L1 => Some(Level::L1),
        MinimumLevel::L2 => Some(Level::L2),
        MinimumLevel::L3 => Some(Level::L3),
    };
    let contracts = &config.contracts;
    let said = contracts.exceptions.iter();
    contract::ContractRequirement {
        required: contract::EdgeRule {
            default: config.gate.require_contract,
            exceptions: required.collect(),
        },
        minimum_level: contract::EdgeRule {
            default: level(contracts.minimum_level),
            exceptions: said
                .clone()
                .filter_map(|one| Some((edges(one), level(one.minimum_level?))))
                .collect(),
        },
        accept_pinned: contract::EdgeRule {
            default: contracts.accept_pinned,
            exceptions: said.filter_map(|one| Some((edges(one), one.accept_pinned?))).collect(),
        },
    }
}

/// The gate, with the policies about safety findings and contracts as set.
fn gate_of(config: &Config) -> Result<Gate, StartError> {
    let policies = policies(config.safety.mode, &config.safety.exceptions);
    let mut gate = Gate::with(policies, requirement(config));
    gate.residency = config.residency.rules();
    gate.versions = config.gate.agent_version;
    gate.credentials = config.redaction.secrets;
    gate.max_checkpoint = config.recovery.max_checkpoint_bytes;
    match gate.policies.unknown(gate.scanner.rules()) {
        Some(name) => Err(StartError::Config(format!(
            "safety.exceptions: no rule and no family is named {name:?}"
        ))),
        None => Ok(gate),
    }
}

fn erasure_settings(config: &Config) -> erasure::ErasureSettings {
    erasure::ErasureSettings {
        page: i64::try_from(config.erasure.page).unwrap_or(i64::MAX),
        period: Duration::from_millis(config.delivery.broker_timeout_ms),
        patience: Duration::from_millis(config.delivery.broker_timeout_ms.saturating_mul(3)),
    }
}

fn dispatcher_settings(config: &Config) -> dispatcher::DispatcherSettings {
    let delivery = &config.delivery;
    dispatcher::DispatcherSettings {
        retry: RetryPolicy {
            base: Duration::from_millis(delivery.retry_base_ms),
            cap: Duration::from_millis(delivery.retry_cap_ms),
            max_attempts: delivery.max_attempts,
        },
        max_in_flight: delivery.max_in_flight,
        breaker: BreakerSettings {
            failure_threshold: delivery.breaker_failures,
            ..BreakerSettings::default()
        },
        disable_after: delivery.disable_after_failures,
        budget: BudgetSettings {
            share: f64::from(delivery.retry_budget_percent) / 100.0,
            floor: f64::from(delivery.retry_budget_per_s),
            ..BudgetSettings::default()
        },
        poll: Duration::from_millis(delivery.poll_ms),
        claim: delivery.broker_claim(),
        verdict: Duration::from_millis(delivery.verdict_timeout_ms),
        lease: Duration::from_millis(delivery.lease_ms),
        compress_above: delivery.compress_above_bytes,
    }
}

async fn listen(
    at: SocketAddr,
    router: axum::Router,
    limits: listener::Limits,
    servers: &TaskTracker,
    closing: &CancellationToken,
) -> Result<SocketAddr, StartError> {
    let (listening, address) =
        listener::bind(at).await.map_err(io(format!("cannot listen on {at}")))?;
    servers.spawn(listener::serve(listening, router, limits, closing.clone()));
    Ok(address)
}

/// The shortest secret that a file may hold: what is shorter was cut off, or never a secret.
const MIN_SECRET: usize = 24;

/// Reads a secret file, or makes it with mode 0600: whole or not at all, so that a crash in between
/// leaves no empty secret behind.
fn secret_file(
    path: &Path,
    make: impl FnOnce() -> zeroize::Zeroizing<String>,
) -> Result<(zeroize::Zeroizing<String>, bool), StartError> {
    use std::io::Write;
    let what = || path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().len() >= MIN_SECRET => {
            return Ok((zeroize::Zeroizing::new(text.trim().to_owned()), false));
        }
        Ok(_) => {
            return Err(StartError::Config(format!(
                "{} holds no secret of {MIN_SECRET} characters or more: restore it, or remove it to have a new one made",
                path.display()
            )));
        }
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
        Err(err) => return Err(io(what())(err)),
    }
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder).map_err(io(folder.display().to_string()))?;
    let text = make();
    // A temporary file has mode 0600 from its first moment.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io(what()))?;
    writeln!(file, "{}", *text).and_then(|()| file.as_file().sync_all()).map_err(io(what()))?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok((text, true)),
        // Another broker was first: its secret counts.
        Err(err) if err.error.kind() == std::io::ErrorKind::AlreadyExists => {
            let text = std::fs::read_to_string(path).map_err(io(what()))?;
            Ok((zeroize::Zeroizing::new(text.trim().to_owned()), false))
        }
        Err(err) => Err(io(what())(err.error)),
    }
}

/// The master key: from the settings or from its file, and always the one this database knows.
///
/// # Errors
/// [`StartError::Vault`] where it is another.
pub async fn settle_vault(config: &Config, store: &dyn Store) -> Result<Vault, StartError> {
    let vault = if config.auth.master_key.is_empty() {
        let path = config.keys_dir().join("master.key");
        let (text, made) = secret_file(&path, Vault::new_master_key)?;
        if made {
            tracing::info!(file = %path.display(), "made a master key");
        }
        Vault::from_base64(&text)?
    } else {
        Vault::from_base64(&config.auth.master_key)?
    };
    let kept = store.settle_fact("master-key-check", &vault.check_value()?).await?;
    if vault.accepts(&kept) {
        return Ok(vault);
    }
    Err(StartError::Vault(
        "this database was set up with another master key: give that one in HANDOFFD_MASTER_KEY, \
         or as master.key in the data directory (brokers that share a database share it)"
            .to_owned(),
    ))
}

/// The key that signs tree heads: from the settings or from its file, made there at the first start. It
/// must be the one that this database's logs are signed with.
///
/// # Errors
/// [`StartError::Vault`] where it is another, or a retired one.
pub async fn settle_notary(
    config: &Config,
    store: &dyn Store,
    now: handoffd_core::domain::ids::Micros,
) -> Result<Notary, StartError> {
    let notary = tree_key(config)?;
    if store.settle_tree_key(&notary.public_bytes(), now, false).await? {
        return Ok(notary);
    }
    Err(StartError::Vault(
        "tree heads of this database are signed with another key: give that one in \
         HANDOFFD_AUDIT__SIGNING_KEY, or as tree-head.key in the data directory (brokers that share a \
         database share it); to change keys on purpose, run handoffd key tree-head"
            .to_owned(),
    ))
}

/// The key as the settings or its file have it.
///
/// # Errors
/// [`StartError`] where it cannot be read or made.
pub fn tree_key(config: &Config) -> Result<Notary, StartError> {
    let text = if config.audit.signing_key.is_empty() {
        let path = config.tree_key_file();
        let (text, made) = secret_file(&path, Vault::new_master_key)?;
        if made {
            tracing::info!(file = %path.display(), "made the key that signs tree heads");
        }
        text
    } else {
        zeroize::Zeroizing::new(config.audit.signing_key.clone())
    };
    let seed = BASE64.decode(text.trim()).map(zeroize::Zeroizing::new);
    let seed = seed.ok().and_then(|seed| Some(zeroize::Zeroizing::new(*seed.as_array::<32>()?)));
    let Some(seed) = seed else {
        return Err(StartError::Config("audit.signing_key must be 32 bytes in base64".to_owned()));
    };
    Ok(Notary::new(Signer::new(&seed), config.audit.origin.clone()))
}

/// The first admin key: the configured one, or one made at the first start and written to a file.
async fn settle_admin_key(
    config: &Config,
    store: &dyn Store,
    ledger: &Ledger,
    now: handoffd_core::domain::ids::Micros,
) -> Result<Option<std::path::PathBuf>, StartError> {
    let tenant = &config.auth.tenant;
    store.ensure_tenant(tenant, &clock::random_id().to_string(), now).await?;
    if !config.auth.admin_key.is_empty() {
        if store.find_key(&hash_api_key(&config.auth.admin_key)).await?.is_none() {
            make_admin(ledger, tenant, &config.auth.admin_key, "HANDOFFD_ADMIN_KEY", now).await?;
        }
        return Ok(None);
    }
    let keys = store.list_keys(tenant).await?;
    if keys.iter().any(|key| key.role == Role::Admin && key.expires_at.is_none()) {
        return Ok(None);
    }
    let path = config.keys_dir().join("admin.key");
    let (key, _) = secret_file(&path, new_api_key)?;
    make_admin(ledger, tenant, &key, "made at the first start", now).await?;
    tracing::info!(file = %path.display(), "made the first admin key");
    Ok(Some(path))
}

async fn make_admin(
    ledger: &Ledger,
    tenant: &TenantId,
    key: &str,
    label: &str,
    now: handoffd_core::domain::ids::Micros,
) -> Result<(), StartError> {
    let row = KeyRow {
        tenant: tenant.clone(),
        key_id: format!("key_{}", clock::time_ordered_id(now).simple()),
        hash: hash_api_key(key),
        role: Role::Admin,
        agent: None,
        label: label.to_owned(),
        created_at: now,
        expires_at: None,
    };
    let command = Command {
        tenant: tenant.clone(),
        at: now,
        actor: Actor::broker(),
        kind: Kind::CreateKey(Box::new(row)),
    };
    match ledger.handle(command).await {
        Ok(_) => Ok(()),
        Err(err) => Err(StartError::Config(format!("the admin key cannot be stored: {err}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_made_whole_and_an_empty_one_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/admin.key");
        let (first, made) = secret_file(&path, new_api_key).unwrap();
        assert!(made && first.len() >= MIN_SECRET);
        let (again, made) = secret_file(&path, new_api_key).unwrap();
        assert!(!made && *again == *first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(secret_file(&path, new_api_key).unwrap_err().to_string().contains("admin.key"));
    }
}
