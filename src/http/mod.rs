//! The API: extract, call one use case, respond. `router.rs` holds the whole route table.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
mod groups;
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
use handoffd_broker::directory::Matcher;
use handoffd_broker::erasure::Eraser;
use handoffd_broker::feed::Feed;
use handoffd_broker::intake::Intake;
use handoffd_broker::intake::results::Statements;
use handoffd_broker::metrics::Metrics;
use handoffd_broker::receivers::ReceiverJournal;
use handoffd_broker::transport::DeliveryTypes;
use handoffd_broker::tree::{CosignedHeads, PublishedHeads};
use handoffd_core::domain::ids::Micros;
use handoffd_core::evidence::receipt::Notary;
use handoffd_store::clock::Clock;
use handoffd_store::store::Store;

/// The state of handlers. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<ApiParts>);

pub struct ApiParts {
    /// Submissions; holds the ledger, the directory, the vault and the clock too.
    pub intake: Arc<Intake>,
    /// Store for reads.
    pub store: Arc<dyn Store>,
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
        Statements { store: &*self.store, contents: &self.contents }
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
