//! The composition root: from settings to a running broker.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{self, Clock, SystemClock};
use crate::config::Config;
use crate::directory::Directory;
use crate::dispatch::backoff::RetryPolicy;
use crate::dispatch::breaker::BreakerSettings;
use crate::dispatch::dispatcher::{self, Dispatcher};
use crate::dispatch::egress::{self, ClientSettings, EgressPolicy};
use crate::dispatch::webhook::WebhookClient;
use crate::domain::ids::TenantId;
use crate::evidence::record::Actor;
use crate::gate::Gate;
use crate::http::{Api, ApiParts, listener, router};
use crate::intake::Intake;
use crate::ledger::command::{Command, Kind};
use crate::ledger::{self, Ledger, Outbound};
use crate::metrics::Metrics;
use crate::recovery::{Sweeper, beat};
use crate::store::postgres::PostgresStore;
use crate::store::sqlite::{SqliteOptions, SqliteStore};
use crate::store::{KeyRow, Role, Store, StoreError};
use crate::vault::{Vault, VaultError, hash_api_key, new_api_key};

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
                crate::store::postgres::PostgresOptions {
                    max_connections: config.database.max_connections,
                    acquire_timeout: Duration::from_millis(config.database.acquire_timeout_ms),
                },
            )
            .await?,
        ));
    }
    if url.starts_with("sqlite:") {
        let options = match access {
            Access::Serve => SqliteOptions::serving(),
            Access::Beside => SqliteOptions::beside(),
            Access::Create => SqliteOptions { create: true, ..SqliteOptions::beside() },
        };
        return Ok(Arc::new(SqliteStore::open(&url, options).await?));
    }
    Err(StoreError::Refused("database.url must begin with sqlite: or postgres://".to_owned()))
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
    store: Arc<dyn Store>,
    broker: String,
}

/// Starts a broker: opens and migrates the store, settles keys, listens, delivers.
///
/// # Errors
/// [`StartError`], with what to do.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let policy = EgressPolicy::parse(&config.egress.allow)
        .map_err(|err| StartError::Config(format!("egress.allow: {err}")))?;
    let store = open_store(&config, Access::Serve).await?;
    let new = store.migrate().await?;
    if new > 0 {
        tracing::info!(new, "migrations applied");
    }
    let vault = settle_vault(&config, &*store).await?;
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
    let client = egress::client(
        policy,
        &ClientSettings {
            connect_timeout: Duration::from_millis(config.delivery.connect_timeout_ms),
            ..ClientSettings::default()
        },
    )
    .map_err(|err| StartError::Config(format!("the HTTP client cannot be built: {err}")))?;
    let (dispatcher, nudges) = Dispatcher::new(
        dispatcher::Parts {
            store: Arc::clone(&store),
            directory: Arc::clone(&directory),
            vault: vault.clone(),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            client: WebhookClient::new(client),
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
        // Whatever their clock said: the machine's may have been set back since.
        store.release_dead(crate::domain::ids::Micros(i64::MAX), clock.now()).await?;
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
        Sweeper {
            store: Arc::clone(&store),
            ledger: ledger.clone(),
            outbound,
            clock: Arc::clone(&clock),
            broker: broker.clone(),
            period: Duration::from_millis(config.delivery.poll_ms),
            broker_timeout: Duration::from_millis(config.delivery.broker_timeout_ms),
            stopping: stopping.clone(),
        }
        .run(),
    );

    let accepting = Arc::new(AtomicBool::new(true));
    let api = Api::new(ApiParts {
        slots: tokio::sync::Semaphore::new(config.server.max_requests),
        waits: tokio::sync::Semaphore::new(config.server.max_waits),
        large_bodies: tokio::sync::Semaphore::new(
            (config.server.max_large_bytes.max(config.server.max_body_bytes) / 1024).max(1),
        ),
        intake: Intake {
            gate: Arc::new(Gate::new()),
            directory,
            ledger,
            store: Arc::clone(&store),
            vault,
            clock,
            metrics: Arc::clone(&metrics),
        },
        store: Arc::clone(&store),
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
        store,
        broker,
    })
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
        let now = self.api.now();
        // Nobody is left who could say anything: the workers end with what is in the queue.
        self.api.intake.ledger.close();
        drop(self.api);
        self.workers.close();
        let _ = tokio::time::timeout(Duration::from_secs(2), self.workers.wait()).await;
        match self.store.release_own(&self.broker, now).await {
            Ok(0) => {}
            Ok(claims) => tracing::info!(claims, "handed unfinished claims back"),
            Err(err) => tracing::warn!(error = %err, "claims could not be handed back"),
        }
        self.store.close().await;
        tracing::info!("stopped");
    }
}

fn dispatcher_settings(config: &Config) -> dispatcher::Settings {
    let delivery = &config.delivery;
    dispatcher::Settings {
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
        poll: Duration::from_millis(delivery.poll_ms),
        claim: delivery.broker_claim(),
        verdict: Duration::from_millis(delivery.verdict_timeout_ms),
        lease: Duration::from_millis(delivery.lease_ms),
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
        let path = config.server.data_dir.join("master.key");
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

/// The first admin key: the configured one, or one made at the first start and written to a file.
async fn settle_admin_key(
    config: &Config,
    store: &dyn Store,
    ledger: &Ledger,
    now: crate::domain::ids::Micros,
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
    let path = config.server.data_dir.join("admin.key");
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
    now: crate::domain::ids::Micros,
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
