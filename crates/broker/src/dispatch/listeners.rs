//! The reply channels that the broker hears: one listener for each channel that an agent's registration names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::directory::Directory;
use crate::transport::{AttemptFailure, ConnectionKey, Endpoint, Sink, Transport, Transports};
use crate::vault::Vault;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::TenantId;
use handoffd_store::clock;
use handoffd_store::store::Store;

/// Interval between two looks for new, changed and removed channels.
const LOOK: Duration = Duration::from_secs(2);
/// First pause before a broken channel is heard again.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Makes the sinks for what comes in.
pub trait Sinks: Send + Sync {
    /// Takes verdicts of a tenant's receivers.
    fn verdicts(&self, tenant: TenantId, mode: DeliveryMode) -> Arc<dyn Sink>;
    /// Takes handoffs; `None` where the settings name no intake for the mode.
    fn handoffs(&self, mode: DeliveryMode) -> Option<Arc<dyn Sink>>;
}

/// The tasks that hear reply channels and take handoffs in.
pub struct Listeners {
    pub transports: Transports,
    pub store: Arc<Store>,
    pub directory: Arc<Directory>,
    pub vault: Vault,
    pub sinks: Arc<dyn Sinks>,
    pub stopping: CancellationToken,
}

/// One reply channel. Agents with the same tenant, server and channel share a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ChannelKey(ConnectionKey);

impl Listeners {
    /// Hears until the broker stops.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        for transport in self.transports.iter().filter(|one| one.describe().intake) {
            let (transport, stopping) = (Arc::clone(transport), self.stopping.clone());
            let Some(sink) = self.sinks.handoffs(transport.describe().mode) else { continue };
            tasks.spawn(async move {
                forever(transport.describe().mode, "intake", &stopping, || {
                    transport.take_in(&*sink, &stopping)
                })
                .await;
            });
        }
        let mut heard: HashMap<ChannelKey, CancellationToken> = HashMap::new();
        loop {
            match self.wanted().await {
                Ok(wanted) => self.adjust(&mut heard, wanted, &mut tasks),
                Err(()) => {
                    tracing::debug!("agents cannot be read; reply channels stay as they are");
                }
            }
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => break,
                () = tokio::time::sleep(LOOK) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
        while tasks.join_next().await.is_some() {}
    }

    /// The channels that agents name now.
    async fn wanted(&self) -> Result<HashMap<ChannelKey, ReplyChannel>, ()> {
        let mut wanted = HashMap::new();
        for tenant in self.store.list_tenants().await.map_err(|_| ())? {
            let agents = self.directory.agents(&tenant).await.map_err(|_| ())?;
            for agent in agents.roster.iter().filter(|agent| agent.delivery.mode.is_pushed()) {
                let Some(transport) = self.transports.get(agent.delivery.mode) else { continue };
                let Some(row) = agents.row(&agent.agent_id) else { continue };
                if !transport.describe().reply_channel {
                    continue;
                }
                let Ok(endpoint) = Endpoint::of(row, &**transport, &self.vault) else {
                    tracing::error!(agent_id = %agent.agent_id, "the credentials of a transport cannot be opened");
                    continue;
                };
                if let Some(name) = transport.reply_channel(&endpoint) {
                    let channel = ReplyChannel { transport: Arc::clone(transport), endpoint, name };
                    wanted.entry(channel.key()).or_insert(channel);
                }
            }
        }
        Ok(wanted)
    }

    /// Starts and ends listeners.
    fn adjust(
        &self,
        heard: &mut HashMap<ChannelKey, CancellationToken>,
        wanted: HashMap<ChannelKey, ReplyChannel>,
        tasks: &mut JoinSet<()>,
    ) {
        heard.retain(|key, token| {
            let kept = wanted.contains_key(key);
            if !kept {
                token.cancel();
            }
            kept
        });
        for (key, channel) in wanted {
            if heard.contains_key(&key) {
                continue;
            }
            let stopping = self.stopping.child_token();
            heard.insert(key, stopping.clone());
            let mode = channel.transport.describe().mode;
            let sink = self.sinks.verdicts(channel.endpoint.tenant.clone(), mode);
            tasks.spawn(async move {
                let ReplyChannel { transport, endpoint, name } = &channel;
                forever(mode, "reply channel", &stopping, || {
                    transport.listen(endpoint, name, &*sink, &stopping)
                })
                .await;
            });
        }
    }
}

struct ReplyChannel {
    transport: Arc<dyn Transport>,
    endpoint: Endpoint,
    name: String,
}

impl ReplyChannel {
    fn key(&self) -> ChannelKey {
        let Endpoint { tenant, config, credentials, .. } = &self.endpoint;
        let mode = self.transport.describe().mode.as_str();
        // Only what says where the channel is: two streams on one server may answer on one channel.
        let config = config.without(self.transport.own_fields());
        ChannelKey(ConnectionKey::of(&[
            tenant.as_str(),
            mode,
            &self.name,
            &config.whole(),
            &credentials.whole(),
            if self.transport.answers_by_agent() { self.endpoint.agent_id.as_str() } else { "" },
        ]))
    }
}

/// Repeats `work` until `stopping`, with growing pauses after failures. Work that ends well while the broker runs has
/// nothing to do.
async fn forever<F: Future<Output = Result<(), AttemptFailure>>>(
    mode: DeliveryMode,
    what: &'static str,
    stopping: &CancellationToken,
    work: impl Fn() -> F,
) {
    let mut pause = PAUSE;
    while !stopping.is_cancelled() {
        let started = tokio::time::Instant::now();
        let Err(failure) = work().await else { return };
        if started.elapsed() > PAUSE_MAX {
            pause = PAUSE;
        }
        tracing::warn!(
            transport = mode.as_str(),
            class = failure.class.as_str(),
            detail = failure.detail,
            "a {what} cannot be read; trying again"
        );
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(pause.mul_f64(0.5 + clock::random_fraction() / 2.0)) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
