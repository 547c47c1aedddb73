//! Starting a broker: parts, evidence check, write path, background work, listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rmcp::ServerHandler;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::parts::{BrokerParts, WritePath};
use super::secrets::{FirstKey, settle_admin_key, settle_notary, settle_vault};
use super::settings::{
    dispatcher_settings, gate_of, ledger_settings, rules, stream_settings, word_limits,
};
use super::store::{Access, open_archive, open_store};
use super::transports::{refuse_left_out, transports};
use super::{Running, StartError, background, files, io};
use crate::console;
use crate::doors::{self, Follow, Outside};
use crate::http::fair::Pools;
use crate::http::places::Bounds;
use crate::http::service::MetricsPage;
use crate::http::{Api, ApiParts, listener, router};
use handoffd_broker::administration::Endpoints;
use handoffd_broker::claim_check::ClaimLinks;
use handoffd_broker::classifier::ExternalClassifier;
use handoffd_broker::compress::{CompressionStep, Summarizer};
use handoffd_broker::config::{Compressor, Config};
use handoffd_broker::console_sessions::ConsoleSessions;
use handoffd_broker::costs::{COST_BLOCK, Costs};
use handoffd_broker::directory::{Directory, Matcher};
use handoffd_broker::dispatch::dispatcher::{self, Dispatcher};
use handoffd_broker::dispatch::trial::ServedTypes;
use handoffd_broker::egress::{self, ClientSettings, EgressPolicy, GuardedClient};
use handoffd_broker::erasure::Eraser;
use handoffd_broker::feed::Feed;
use handoffd_broker::intake::stream::Streams;
use handoffd_broker::intake::turns::{Sizes, Turns};
use handoffd_broker::intake::{Intake, SecondOpinion};
use handoffd_broker::issuer::Issuer;
use handoffd_broker::ledger::{Ledger, Outbound};
use handoffd_broker::matcher::ExternalMatcher;
use handoffd_broker::metrics::Metrics;
use handoffd_broker::recovery::settle_all_in_doubt;
use handoffd_broker::states::{Adoption, StateGuard};
use handoffd_broker::summarizer::ModelSummarizer;
use handoffd_broker::tree::CosignedHeads;
use handoffd_broker::witness::{self, HeadDestination, KeptHeadError, Publisher};
use handoffd_domain::warning::WarningCode;

use handoffd_store::clock::{self, Clock, Machine, SystemClock};
use handoffd_store::store::ClaimRelease;
use handoffd_transports::a2a::client::AgentClient;
use handoffd_transports::a2a::transport::A2aTransport;

/// Requests for readiness and metrics under way at once: each asks the store, and more are not needed.
const HEALTH_REQUESTS: usize = 256;

/// Starts a broker: opens and migrates the store, settles keys, listens, delivers.
///
/// # Errors
/// [`StartError`], with what to do.
pub async fn start(config: Config) -> Result<Running, StartError> {
    Box::pin(started(config, Beginning::now, with_console)).await
}

/// Starts a broker with a clock and a mark of its own: the demo's past is made by it.
///
/// # Errors
/// [`StartError`], with what to do.
pub async fn start_beginning(config: Config, beginning: Beginning) -> Result<Running, StartError> {
    Box::pin(started(config, |_| beginning, with_console)).await
}

fn with_console(api: &Api, outside: &Outside) -> axum::Router {
    doors::router(api, outside, console::routes(api))
}

/// The time by which a broker works, and the marks of the first record of its log.
pub struct Beginning {
    pub clock: Arc<dyn Clock>,
    /// How the id and the label of the first admin key begin, where this start makes one.
    pub first_key: FirstKey,
}

impl Beginning {
    /// The machine's time.
    fn now(config: &Config) -> Self {
        let grace = Duration::from_millis(config.recovery.start_grace_ms);
        let clock = Arc::new(SystemClock::over(Machine, grace));
        Self { clock, first_key: FirstKey::default() }
    }
}

/// Starts a broker with this handler behind its MCP door: tests put the conformance suite's fixtures there.
///
/// # Errors
/// [`StartError`], with what to do.
#[doc(hidden)]
pub async fn start_with_mcp<H: ServerHandler + Clone>(
    config: Config,
    handler: H,
) -> Result<Running, StartError> {
    let router = |api: &Api, outside: &Outside| doors::router_with_mcp(api, outside, handler);
    Box::pin(started(config, Beginning::now, router)).await
}

async fn started(
    config: Config,
    beginning: impl FnOnce(&Config) -> Beginning,
    router: impl FnOnce(&Api, &Outside) -> axum::Router,
) -> Result<Running, StartError> {
    report(&config);
    // Before anything is opened: what does not fit is told.
    let connections = files::connections(&config.server)?;
    let Beginning { clock, first_key } = beginning(&config);
    let mut parts = BrokerParts::make(config, clock).await?;
    let cosigned = Arc::new(CosignedHeads::default());
    // Before anything is written: what was attested must still be there.
    let witness = Arc::new(parts.witness(&cosigned).await?);
    // Before anything is delivered: a start that cannot listen uses up no attempt.
    let listeners = BoundListeners::bind(&parts.config)?;
    let path = parts.write_path();
    let (store, clock) = (&parts.store, &parts.clock);
    if parts.alone() {
        // No other broker serves this file, so each claim belongs to a broker that died.
        store.release(ClaimRelease::Everyone).await?;
    } else {
        store.beat(&parts.broker, clock.now()).await?;
    }
    parts.adopt(&path.ledger).await?;
    let admin_key_file =
        settle_admin_key(&parts.config, store, &path.ledger, clock.now(), first_key).await?;
    let ledger = path.ledger.clone();
    background::spawn_delivery(&parts, path);
    background::spawn_upkeep(&parts, &ledger, &witness);
    background::spawn_opinions(&parts, &ledger);
    background::spawn_tokenizers(&parts);
    let feed = background::spawn_events(&parts, &ledger);
    let eraser = background::spawn_erasure(&parts, &ledger);
    let accepting = Arc::new(AtomicBool::new(true));
    let api = parts.api(ledger, cosigned, feed, eraser, &accepting);
    background::spawn_listeners(&parts, &api);
    let servers = TaskTracker::new();
    let closing = CancellationToken::new();
    let (calls, served) = (parts.agents.clone(), parts.transports.clone());
    let follow = Follow::new(api.clone(), calls, served, parts.background.clone());
    if let Some(tasks) = parts.remote_tasks.take() {
        parts.background.spawn(follow.clone().run(tasks, parts.alone()));
    }
    let outside = Outside { issuer: parts.issuer().map(Arc::new), follow };
    let router = router(&api, &outside);
    let (address, metrics_address) = listeners.serve(&api, router, connections, &servers, &closing);
    tracing::info!(%address, parts.broker, version = env!("CARGO_PKG_VERSION"), "ready");
    Ok(Running {
        address,
        metrics_address,
        admin_key_file,
        api,
        accepting,
        stopping: parts.stopping,
        closing,
        servers,
        background: parts.background,
        attempts: parts.attempts,
        workers: parts.workers,
        witness,
        store: parts.store,
        broker: parts.broker,
    })
}

/// Whether users of the machine beside the folder's owner and group may enter it.
#[cfg(unix)]
fn is_open(folder: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(folder).is_ok_and(|about| about.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &std::path::Path) -> bool {
    false
}

/// Logs settings that the operator should know of.
fn report(config: &Config) {
    let folder = &config.server.data_dir;
    if is_open(folder) {
        let folder = folder.display().to_string();
        tracing::warn!(
            folder,
            "every user of this machine may enter the data directory: chmod 700 closes it"
        );
    }
    if !config.service_links.is_empty() {
        let names = config.service_links.join(" ");
        tracing::info!(
            names,
            "variables that Kubernetes sets beside a Service are no settings: ignored"
        );
    }
    if config.delivery.pull_timeout_ms.is_some() {
        tracing::warn!(
            "delivery.pull_timeout_ms is deprecated: set delivery.unclaimed_ms, which it overrides"
        );
    }
    let (claim, verdict) = (config.delivery.claim_ttl_ms, config.delivery.verdict_timeout_ms);
    if claim > verdict / 3 {
        tracing::warn!(
            claim,
            verdict,
            "delivery.claim_ttl_ms is over a third of delivery.verdict_timeout_ms: a claim whose answer is lost leaves \
             little time for the next one; lower the first or raise the second"
        );
    }
    for outsider in config.outsiders() {
        if let Some(crossing) = outsider.crossing {
            let section = outsider.section.trim_end_matches('.');
            tracing::warn!(code = WarningCode::ResidencyCrossing.as_str(), "{section}: {crossing}");
        }
    }
}

impl BrokerParts {
    /// Opens and migrates the store, settles the secrets, compiles the gate.
    async fn make(config: Config, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let policy = EgressPolicy::parse(&config.egress.allow)
            .map_err(|err| StartError::Config(format!("egress.allow: {err}")))?;
        let endpoints: Endpoints = {
            let policy = policy.clone();
            Arc::new(move |url| policy.check_url(url).err().map(|denied| denied.to_string()))
        };
        let archive = open_archive(&config).map_err(|err| StartError::Config(err.to_string()))?;
        // Rules are compiled and roots read while the store opens: half of a start's processor time.
        let compiled = {
            let config = config.clone();
            tokio::task::spawn_blocking(move || {
                Ok::<_, StartError>((gate_of(&config)?, client_of(&config, policy)?))
            })
        };
        let store = open_store(&config, Access::Serve).await?;
        let new = store.migrate().await?;
        if new > 0 {
            tracing::info!(new, "migrations applied");
        }
        settle_all_in_doubt(&store).await?;
        let vault = settle_vault(&config, &store).await?;
        let notary = Arc::new(settle_notary(&config, &store, clock.now()).await?);
        store.catch_up_trees().await?;
        let metrics = Arc::new(Metrics::new().map_err(|err| StartError::Config(err.to_string()))?);
        let ttl = Duration::from_millis(config.auth.cache_ttl_ms);
        let contents = archive.contents(Arc::clone(&store));
        let guard = StateGuard::new(Arc::clone(&store), contents, Arc::clone(&metrics), ttl);
        let directory = Directory::new(Arc::clone(&store), Arc::clone(&clock), ttl);
        let directory = Arc::new(directory.guarded(Arc::new(guard)));
        let (gate, client) = compiled
            .await
            .map_err(|err| StartError::Config(format!("the gate cannot be made ready: {err}")))??;
        let (gate, stopping) = (Arc::new(gate), CancellationToken::new());
        let agents = AgentClient::new(client.clone());
        let (tell, remote_tasks) = mpsc::unbounded_channel();
        let public_url = config.server.public_url.as_ref().map_or("", url::Url::as_str);
        let (shown, secrets) = (Arc::clone(&gate), vault.clone());
        let read = Arc::clone(&store);
        let a2a = A2aTransport::new(agents.clone(), shown, read, secrets, public_url, tell);
        let transports = transports(&config, &client, a2a)?;
        refuse_left_out(&transports, &store, &directory).await?;
        let model = (config.context.compressor == Compressor::Model)
            .then(|| {
                let (settings, crossing) = (&config.context.model, config.model_crossing());
                ModelSummarizer::new(client.clone(), settings, Arc::clone(&gate), crossing)
            })
            .flatten();
        let compression = Arc::new(CompressionStep {
            directory: Arc::clone(&directory),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            settings: config.context.settings(),
            model: model.map(|model| Arc::new(model) as Arc<dyn Summarizer>),
            stopping: stopping.clone(),
        });
        let classifier = ExternalClassifier::new(
            client.clone(),
            &config.safety.classifier,
            config.classifier_crossing(),
        );
        Ok(Self {
            compression,
            second_opinion: classifier
                .map(|classifier| Arc::new(classifier) as Arc<dyn SecondOpinion>),
            replies: Arc::default(),
            receivers: Arc::default(),
            published: Arc::default(),
            redaction: Arc::new(config.redaction.policy()),
            config,
            clock,
            store,
            archive,
            vault,
            notary,
            metrics,
            directory,
            gate,
            client,
            endpoints,
            transports,
            agents,
            remote_tasks: Some(remote_tasks),
            broker: format!("broker-{}", clock::random_id()),
            stopping,
            background: TaskTracker::new(),
            attempts: TaskTracker::new(),
            workers: TaskTracker::new(),
        })
    }

    /// Commits to the rows that earlier versions wrote.
    async fn adopt(&self, ledger: &Ledger) -> Result<(), StartError> {
        let adoption = Adoption {
            store: &self.store,
            contents: &self.archive.contents(Arc::clone(&self.store)),
            ledger,
            vault: &self.vault,
            clock: &*self.clock,
            broker: &self.broker,
        };
        let adopted = adoption.run().await;
        adopted.map(|_| ()).map_err(|err| {
            StartError::Config(format!("rows of earlier versions cannot be committed to: {err}"))
        })
    }

    /// Whether no other broker serves this database.
    pub(super) fn alone(&self) -> bool {
        !self.config.database_url().starts_with("postgres")
    }

    /// The publisher of tree heads, after a check of the database against those that are kept in folders.
    async fn witness(&self, cosigned: &Arc<CosignedHeads>) -> Result<Publisher, StartError> {
        let mut context = witness::PublisherContext {
            store: Arc::clone(&self.store),
            notary: Arc::clone(&self.notary),
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.witness.clone(),
            cosigned: Arc::clone(cosigned),
            published: Arc::clone(&self.published),
            places: witness::places(&self.config, &self.client, std::env::vars())
                .map_err(|err| StartError::Config(err.to_string()))?,
            known: std::collections::HashMap::new(),
        };
        for folder in context.places.iter().filter_map(HeadDestination::folder) {
            let known = witness::check(folder, &context.store, &context.notary).await;
            context.known.extend(known.map_err(|fault| match fault {
                KeptHeadError::Store(err) => StartError::Store(err),
                fault => StartError::Evidence(fault),
            })?);
        }
        Ok(Publisher::new(context))
    }

    fn claim_links(&self) -> ClaimLinks {
        let base = self.config.server.public_url.as_ref().map(url::Url::as_str);
        ClaimLinks {
            vault: self.vault.clone(),
            base: base.unwrap_or_default().trim_end_matches('/').to_owned(),
            ttl: Duration::from_secs(self.config.transports.claim_ttl_s),
        }
    }

    /// Starts the ledger, with the dispatcher that takes what is committed.
    fn write_path(&self) -> WritePath {
        let (dispatcher, nudges) = Dispatcher::new(
            dispatcher::DispatcherDependencies {
                store: Arc::clone(&self.store),
                directory: Arc::clone(&self.directory),
                vault: self.vault.clone(),
                claims: self.claim_links(),
                clock: Arc::clone(&self.clock),
                metrics: Arc::clone(&self.metrics),
                transports: self.transports.clone(),
                schemas: Arc::clone(&self.gate.schemas),
                compression: Arc::clone(&self.compression),
                redaction: Arc::clone(&self.redaction),
                replies: Arc::clone(&self.replies),
                receivers: Arc::clone(&self.receivers),
                settings: dispatcher_settings(&self.config),
                broker: self.broker.clone(),
                stopping: self.stopping.clone(),
            },
            self.attempts.clone(),
        );
        let outbound: Arc<dyn Outbound> = Arc::new(dispatcher.clone());
        let ledger = Ledger::start(
            Arc::clone(&self.store),
            Arc::clone(&outbound),
            Arc::clone(&self.metrics),
            Arc::clone(&self.receivers),
            ledger_settings(&self.config),
            self.broker.clone(),
            &self.workers,
        );
        dispatcher.settle_with(ledger.clone());
        WritePath { ledger, dispatcher, nudges, outbound }
    }

    /// The issuer whose tokens the MCP door takes.
    fn issuer(&self) -> Option<Issuer> {
        let url = self.config.server.public_url.as_ref()?;
        let audience = format!("{}/mcp", url.as_str().trim_end_matches('/'));
        Issuer::new(self.client.clone(), &self.config.doors.mcp.oauth, &audience)
    }

    /// The parts that handlers work with.
    fn api(
        &self,
        ledger: Ledger,
        cosigned: Arc<CosignedHeads>,
        feed: Feed,
        eraser: Eraser,
        accepting: &Arc<AtomicBool>,
    ) -> Api {
        let config = &self.config;
        let matcher = ExternalMatcher::new(self.client.clone(), &config.routing.matcher);
        Api::new(ApiParts {
            costs: Costs::new(Arc::clone(&self.store), COST_BLOCK),
            pools: Pools::new(config, &self.metrics),
            health_slots: Semaphore::new(HEALTH_REQUESTS),
            metrics_page: MetricsPage::default(),
            what_ifs: Semaphore::new(1),
            intake: Arc::new(Intake {
                gate: Arc::clone(&self.gate),
                second_opinion: self.second_opinion.clone(),
                directory: Arc::clone(&self.directory),
                ledger,
                store: Arc::clone(&self.store),
                redaction: Arc::clone(&self.redaction),
                vault: self.vault.clone(),
                clock: Arc::clone(&self.clock),
                metrics: Arc::clone(&self.metrics),
                rules: rules(config),
                limits: word_limits(config),
                streams: Streams::new(stream_settings(config)),
                turns: Turns::new(
                    Sizes {
                        all: config.ledger.submissions,
                        each: config.submissions_each(),
                        longest: config.ledger.queue,
                    },
                    self.metrics.submissions_waiting.clone(),
                ),
            }),
            store: Arc::clone(&self.store),
            notary: Arc::clone(&self.notary),
            cosigned,
            contents: self.archive.contents(Arc::clone(&self.store)),
            matcher: matcher.map(|matcher| Arc::new(matcher) as Arc<dyn Matcher>),
            endpoints: Arc::clone(&self.endpoints),
            delivery_types: Arc::new(ServedTypes {
                transports: self.transports.clone(),
                vault: self.vault.clone(),
                clock: Arc::clone(&self.clock),
            }),
            receivers: Arc::clone(&self.receivers),
            published: Arc::clone(&self.published),
            feed,
            eraser,
            sessions: ConsoleSessions::new(
                Arc::clone(&self.store),
                Arc::clone(&self.directory),
                Arc::clone(&self.clock),
                &config.console,
            ),
            compression: Arc::clone(&self.compression),
            metrics: Arc::clone(&self.metrics),
            accepting: Arc::clone(accepting),
            broker: self.broker.clone(),
            stopping: self.stopping.clone(),
            config: config.clone(),
        })
    }
}

fn client_of(config: &Config, policy: EgressPolicy) -> Result<GuardedClient, StartError> {
    let settings = ClientSettings {
        connect_timeout: Duration::from_millis(config.delivery.connect_timeout_ms),
        ..ClientSettings::default()
    };
    egress::client(policy, &settings)
        .map_err(|err| StartError::Config(format!("the HTTP client cannot be built: {err}")))
}

/// The sockets of the API and, where the settings put them apart, of metrics. The system holds a client that connects
/// before the broker serves them.
struct BoundListeners {
    api: (TcpListener, SocketAddr),
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl BoundListeners {
    fn bind(config: &Config) -> Result<Self, StartError> {
        let bind =
            |at: SocketAddr| listener::bind(at).map_err(io(format!("cannot listen on {at}")));
        Ok(Self {
            api: bind(config.server.listen)?,
            metrics: config.server.metrics_listen.map(bind).transpose()?,
        })
    }

    /// Serves; returns the addresses of the API and of metrics.
    fn serve(
        self,
        api: &Api,
        router: axum::Router,
        connections: usize,
        servers: &TaskTracker,
        closing: &CancellationToken,
    ) -> (SocketAddr, Option<SocketAddr>) {
        let settings = &api.config.server;
        let limits = |connections: usize| listener::Limits {
            places: Bounds {
                connections,
                each: settings.max_connection_bytes,
                all: settings.max_connections_bytes,
            },
            headers: Duration::from_millis(settings.header_timeout_ms),
            writes: Duration::from_millis(settings.write_timeout_ms),
        };
        let serve = |(listening, address): (TcpListener, SocketAddr),
                     router: axum::Router,
                     connections: usize| {
            let (limits, metrics) = (limits(connections), Arc::clone(&api.metrics));
            servers.spawn(listener::serve(listening, router, limits, metrics, closing.clone()));
            address
        };
        let address = serve(self.api, router, connections);
        let metrics = self.metrics.map(|bound| {
            let router = router::metrics_router(api.clone());
            serve(bound, router, files::METRICS_CONNECTIONS.min(connections))
        });
        (address, metrics)
    }
}
