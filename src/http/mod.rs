//! The API: extract, call one use case, respond. The modules, and the whole route table.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The route table, for a router whose `routes` takes what `$routes!` makes of the handlers of one path.
macro_rules! route_table {
    ($router:expr, $routes:ident) => {
        $router
            .routes($routes!(handoffs::submit, handoffs::list))
            .routes($routes!(handoffs::validate))
            .routes($routes!(handoffs::get))
            .routes($routes!(attempts::list))
            .routes($routes!(prompt::prompt))
            .routes($routes!(prompt::result_prompt))
            .routes($routes!(prompt::question_prompt))
            .routes($routes!(history::history))
            .routes($routes!(streams::append, streams::list))
            .routes($routes!(verdicts::accept))
            .routes($routes!(verdicts::reject))
            .routes($routes!(verdicts::heartbeat))
            .routes($routes!(verdicts::takeover))
            .routes($routes!(questions::ask))
            .routes($routes!(questions::answer))
            .routes($routes!(verdicts::complete))
            .routes($routes!(verdicts::fail))
            .routes($routes!(tasks::list))
            .routes($routes!(tasks::get))
            .routes($routes!(trace::trace))
            .routes($routes!(blame::blame))
            .routes($routes!(cost::cost))
            .routes($routes!(why::explain))
            .routes($routes!(attention::list))
            .routes($routes!(receivers::list))
            .routes($routes!(receivers::get))
            .routes($routes!(costs::costs))
            .routes($routes!(users::search))
            .routes($routes!(tasks::complete))
            .routes($routes!(tasks::cancel))
            .routes($routes!(bulk::cancel_tasks))
            .routes($routes!(tasks::budget))
            .routes($routes!(checkpoints::list))
            .routes($routes!(checkpoints::restore))
            .routes($routes!(tasks::put_checkpoint, tasks::get_checkpoint))
            .routes($routes!(agents::create, agents::list))
            .routes($routes!(matching::find_match))
            .routes($routes!(matching::handoff_tool))
            .routes($routes!(agents::get, agents::patch, agents::delete))
            .routes($routes!(allowlist::get_targets, allowlist::put_targets))
            .routes($routes!(allowlist::add_target, allowlist::remove_target))
            .routes($routes!(agents::rotate_secret))
            .routes($routes!(transports::list))
            .routes($routes!(transports::test))
            .routes($routes!(inbox::poll))
            .routes($routes!(claims::read))
            .routes($routes!(allowlist::graph))
            .routes($routes!(contracts::put, contracts::get))
            .routes($routes!(contracts::list))
            .routes($routes!(contracts::lint_all))
            .routes($routes!(caps::list))
            .routes($routes!(caps::put, caps::delete))
            .routes($routes!(what_if::ask))
            .routes($routes!(keys::create, keys::list))
            .routes($routes!(keys::revoke))
            .routes($routes!(sessions::list))
            .routes($routes!(sessions::end))
            .routes($routes!(refusals::list))
            .routes($routes!(dead_letters::list))
            .routes($routes!(dead_letters::get))
            .routes($routes!(audit::tree_head))
            .routes($routes!(heads::list))
            .routes($routes!(audit::records))
            .routes($routes!(audit::inclusion))
            .routes($routes!(audit::consistency))
            .routes($routes!(audit::keys))
            .routes($routes!(tiles::checkpoint))
            .routes($routes!(tiles::tile))
            .routes($routes!(tiles::log_checkpoint))
            .routes($routes!(tiles::log_tile))
            .routes($routes!(subscriptions::create, subscriptions::list))
            .routes($routes!(subscriptions::get, subscriptions::patch, subscriptions::delete))
            .routes($routes!(subscriptions::rotate_secret))
            .routes($routes!(subscriptions::replay))
            .routes($routes!(subscriptions::deliveries))
            .routes($routes!(events::list))
            .routes($routes!(events::watch_task))
            .routes($routes!(events::event_schemas))
            .routes($routes!(events::event_schema))
            .routes($routes!(dead_letters::release))
            .routes($routes!(dead_letters::discard))
            .routes($routes!(dead_letters::release_many))
            .routes($routes!(dead_letters::discard_many))
            .routes($routes!(escalations::list))
            .routes($routes!(escalations::get))
            .routes($routes!(escalations::resolve))
            .routes($routes!(bulk::resolve_escalations))
            .routes($routes!(access_report::report, data_subjects::erase))
            .routes($routes!(data_subjects::get_erasure))
            .routes($routes!(erasures::list))
            .routes($routes!(legal_holds::list))
            .routes($routes!(legal_holds::place, legal_holds::get, legal_holds::release))
            .routes($routes!(service::schemas))
            .routes($routes!(schemas::list))
            .routes($routes!(schemas::versions))
            .routes($routes!(schemas::put, schemas::get))
            .routes($routes!(schemas::compare))
            .routes($routes!(service::handoff_schema))
            .routes($routes!(service::sw4rm_context_schema))
            .routes($routes!(service::livez))
            .routes($routes!(service::readyz))
            .routes($routes!(service::metrics))
    };
}

pub mod access_report;
pub mod agents;
pub mod allowlist;
pub mod arrival;
pub mod attempts;
pub mod attention;
pub mod audit;
pub mod auth;
pub mod authority;
pub mod blame;
pub mod bulk;
pub mod bundle;
pub mod caps;
pub mod checkpoints;
pub mod claims;
pub mod coding;
pub mod connection;
pub mod contracts;
pub mod cost;
pub mod costs;
pub mod data_subjects;
pub mod dead_letters;
pub mod docs;
pub mod document;
pub mod erasures;
pub mod escalations;
pub mod events;
mod examples;
pub mod explanation;
pub mod extract;
pub mod fair;
pub mod groups;
pub mod handoffs;
pub mod heads;
pub mod history;
pub mod inbox;
pub mod keys;
pub mod layer;
pub mod legal_holds;
pub mod listener;
pub mod matching;
pub mod once;
pub mod open;
pub mod places;
pub mod problem;
pub mod prompt;
pub mod queries;
pub mod questions;
pub mod receivers;
pub mod record;
pub mod refusals;
pub mod router;
pub(crate) mod routing;
pub mod schemas;
pub mod service;
pub mod sessions;
mod shape;
pub mod sorted;
pub mod streams;
pub mod subscriptions;
pub mod tasks;
pub mod tiles;
pub mod trace;
pub mod transports;
pub mod unread;
pub mod unsent;
pub mod users;
pub mod verdicts;
pub mod views;
mod waiting;
pub mod what_if;
pub mod why;
pub(crate) mod withheld;

use handoffd_broker::administration::{Administration, Endpoints};
use handoffd_broker::compress::CompressionStep;
use handoffd_broker::config::Config;
use handoffd_broker::console_sessions::ConsoleSessions;
use handoffd_broker::costs::Costs;
use handoffd_broker::directory::Matcher;
use handoffd_broker::erasure::Eraser;
use handoffd_broker::feed::Feed;
use handoffd_broker::intake::Intake;
use handoffd_broker::intake::results::Statements;
use handoffd_broker::metrics::Metrics;
use handoffd_broker::receivers::ReceiverJournal;
use handoffd_broker::transport::DeliveryTypes;
use handoffd_broker::tree::{CosignedHeads, PublishedHeads};
use handoffd_domain::ids::Micros;
use handoffd_evidence::receipt::Notary;
use handoffd_store::clock::Clock;
use handoffd_store::store::Store;

/// The state of handlers. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<ApiParts>);

pub struct ApiParts {
    /// Submissions; holds the ledger, the directory, the vault and the clock too.
    pub intake: Arc<Intake>,
    /// Store for reads.
    pub store: Arc<Store>,
    /// Signs tree heads.
    pub notary: Arc<Notary>,
    /// Tree heads that witnesses cosigned.
    pub cosigned: Arc<CosignedHeads>,
    /// Contents of records, wherever they are kept.
    pub contents: handoffd_broker::archive::Contents,
    /// Ranks agents for a task; `None` where text relevance does.
    pub matcher: Option<Arc<dyn Matcher>>,
    /// Checks URLs at registration.
    pub endpoints: Endpoints,
    /// The transports that agents may be registered with.
    pub delivery_types: Arc<dyn DeliveryTypes>,
    /// Takes what requests tell of receivers.
    pub receivers: Arc<ReceiverJournal>,
    /// How far tree heads are published.
    pub published: Arc<PublishedHeads>,
    /// Reads events, in the format that subscribers get.
    pub feed: Feed,
    pub eraser: Eraser,
    pub costs: Costs,
    /// Logins at the console.
    pub sessions: ConsoleSessions,
    pub config: Config,
    /// Compresses messages that are too large for their receivers.
    pub compression: Arc<CompressionStep>,
    pub metrics: Arc<Metrics>,
    /// Turns false when the broker stops taking.
    pub accepting: Arc<AtomicBool>,
    pub broker: String,
    /// Ends long waits when the broker stops.
    pub stopping: tokio_util::sync::CancellationToken,
    /// Bounds requests at work, waits, live streams and large bodies, and shares them fairly.
    pub pools: fair::Pools,
    /// Bounds the requests for health and metrics that ask the store, apart from all others.
    pub health_slots: tokio::sync::Semaphore,
    /// Pages of metrics that were made.
    pub metrics_page: service::MetricsPage,
    /// Admits one what-if at a time: each reads and judges thousands of messages.
    pub what_ifs: tokio::sync::Semaphore,
}

impl Api {
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Administers a caller's tenant.
    pub(crate) fn administration(&self) -> Administration<'_> {
        Administration {
            intake: &self.intake,
            delivery_types: &*self.delivery_types,
            endpoints: &self.endpoints,
            sessions: &self.sessions,
            config: &self.config,
        }
    }

    /// Reads what receivers said with their verdicts.
    pub(crate) fn statements(&self) -> Statements<'_> {
        Statements { store: &self.store, contents: &self.contents }
    }

    /// Current time.
    #[must_use]
    pub fn now(&self) -> Micros {
        Clock::now(&*self.intake.clock)
    }
}

impl std::ops::Deref for Api {
    type Target = ApiParts;
    fn deref(&self) -> &ApiParts {
        &self.0
    }
}
