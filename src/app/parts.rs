//! The parts of a running broker.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use handoffd_broker::administration::Endpoints;
use handoffd_broker::archive::Archive;
use handoffd_broker::compress::CompressionStep;
use handoffd_broker::config::Config;
use handoffd_broker::directory::Directory;
use handoffd_broker::dispatch::dispatcher::{Dispatcher, Nudges};
use handoffd_broker::early_replies::EarlyReplies;
use handoffd_broker::egress::GuardedClient;
use handoffd_broker::intake::SecondOpinion;
use handoffd_broker::ledger::{Ledger, Outbound};
use handoffd_broker::metrics::Metrics;
use handoffd_broker::receivers::ReceiverJournal;
use handoffd_broker::transport::Transports;
use handoffd_broker::tree::PublishedHeads;
use handoffd_broker::vault::Vault;
use handoffd_domain::redaction::RedactionPolicy;
use handoffd_evidence::receipt::Notary;
use handoffd_gate::Gate;
use handoffd_store::clock::Clock;
use handoffd_store::store::Store;
use handoffd_transports::a2a::client::AgentClient;
use handoffd_transports::a2a::transport::NewTask;

/// The parts of a broker that its work needs.
pub(super) struct BrokerParts {
    pub(super) config: Config,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Arc<Store>,
    pub(super) archive: Archive,
    pub(super) vault: Vault,
    pub(super) notary: Arc<Notary>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) directory: Arc<Directory>,
    pub(super) gate: Arc<Gate>,
    pub(super) redaction: Arc<RedactionPolicy>,
    pub(super) compression: Arc<CompressionStep>,
    /// The external classifier, if configured.
    pub(super) second_opinion: Option<Arc<dyn SecondOpinion>>,
    pub(super) replies: Arc<EarlyReplies>,
    /// Takes notes on receivers.
    pub(super) receivers: Arc<ReceiverJournal>,
    /// How far tree heads are published.
    pub(super) published: Arc<PublishedHeads>,
    /// Calls receivers, subscribers and the services that the settings name, through the egress guard.
    pub(super) client: GuardedClient,
    pub(super) endpoints: Endpoints,
    pub(super) transports: Transports,
    /// Calls remote A2A agents.
    pub(super) agents: AgentClient,
    /// Tasks that were made at them, for their follower.
    pub(super) remote_tasks: Option<mpsc::UnboundedReceiver<NewTask>>,
    pub(super) broker: String,
    /// Ends long polls, waits and everything in the background.
    pub(super) stopping: CancellationToken,
    pub(super) background: TaskTracker,
    pub(super) attempts: TaskTracker,
    pub(super) workers: TaskTracker,
}

/// The write path, and the dispatcher behind it.
pub(super) struct WritePath {
    pub(super) ledger: Ledger,
    pub(super) dispatcher: Dispatcher,
    pub(super) nudges: Nudges,
    pub(super) outbound: Arc<dyn Outbound>,
}
