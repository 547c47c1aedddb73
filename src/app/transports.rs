//! The transports of this broker: one line for each; and who takes what comes in by them.

use std::sync::Arc;

use super::StartError;
use crate::doors::queues::{Handoffs, RefusalDocument, Verdicts};
use handoffd_broker::config::{self, Config};
use handoffd_broker::directory::Directory;
use handoffd_broker::dispatch::listeners::Sinks;
use handoffd_broker::dispatch::webhook::WebhookClient;
use handoffd_broker::dispatch::webhook_transport::WebhookTransport;
use handoffd_broker::egress::GuardedClient;
use handoffd_broker::intake::verdicts::channel::ReplyDesk;
use handoffd_broker::transport::catalog::left_out;
use handoffd_broker::transport::{Sink, Transport, Transports};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::TenantId;
use handoffd_store::store::Store;
use handoffd_transports::a2a::transport::A2aTransport;
#[cfg(feature = "amqp")]
use handoffd_transports::amqp;
use handoffd_transports::left_out::{LEFT_OUT, needed_by};
#[cfg(feature = "nats")]
use handoffd_transports::nats;
#[cfg(feature = "redis")]
use handoffd_transports::redis;
#[cfg(feature = "sqs")]
use handoffd_transports::sqs;
#[cfg(feature = "temporal")]
use handoffd_transports::temporal;

pub(super) fn transports(
    config: &Config,
    client: &GuardedClient,
    a2a: A2aTransport,
) -> Result<Transports, StartError> {
    if let Some((setting, mode)) = needed_by(&config.transports, LEFT_OUT) {
        return Err(StartError::Config(format!("{setting}: {}", left_out(mode))));
    }
    let all = [
        Arc::new(WebhookTransport::new(Arc::new(WebhookClient::new(client.clone()))))
            as Arc<dyn Transport>,
        Arc::new(a2a),
        #[cfg(feature = "redis")]
        Arc::new(
            redis::RedisTransport::of(client.policy().clone(), &config.transports.redis)
                .map_err(StartError::Config)?,
        ),
        #[cfg(feature = "nats")]
        Arc::new(nats::NatsTransport::new(client.policy().clone(), config.transports.nats.clone())),
        #[cfg(feature = "amqp")]
        Arc::new(amqp::AmqpTransport::new(client.policy().clone(), config.transports.amqp.clone())),
        #[cfg(feature = "sqs")]
        Arc::new(sqs::SqsTransport::new(
            client.clone(),
            sqs::Settings::of(&config.transports.sqs, std::env::vars()),
        )),
        #[cfg(feature = "temporal")]
        Arc::new(temporal::TemporalTransport::new(client.clone())),
    ];
    Ok(Transports::new(all).leaving_out(LEFT_OUT))
}

/// Refuses a store with an agent whose transport this build leaves out: its handoffs could not be delivered.
pub(super) async fn refuse_left_out(
    transports: &Transports,
    store: &Store,
    directory: &Directory,
) -> Result<(), StartError> {
    if LEFT_OUT.is_empty() {
        return Ok(());
    }
    for tenant in store.list_tenants().await? {
        let agents =
            directory.agents(&tenant).await.map_err(|err| StartError::Config(err.to_string()))?;
        for agent in agents.roster.iter() {
            if let Some(why) = transports.left_out(agent.delivery.mode) {
                let agent = &agent.agent_id;
                return Err(StartError::Config(format!("agent {agent} of tenant {tenant}: {why}")));
            }
        }
    }
    Ok(())
}

/// Takes what comes in by the transports through the same use cases as the API.
pub(super) struct QueueSinks {
    pub(super) desk: ReplyDesk,
    pub(super) settings: config::Transports,
    pub(super) document: RefusalDocument,
}

impl Sinks for QueueSinks {
    fn verdicts(&self, tenant: TenantId, mode: DeliveryMode) -> Arc<dyn Sink> {
        Arc::new(Verdicts { desk: self.desk.clone(), tenant, mode })
    }

    fn handoffs(&self, mode: DeliveryMode) -> Option<Arc<dyn Sink>> {
        let transports = &self.settings;
        let (server, tenant) = match mode {
            DeliveryMode::Redis => {
                (&transports.redis.intake.server, &transports.redis.intake.tenant)
            }
            DeliveryMode::Nats => (&transports.nats.intake.server, &transports.nats.intake.tenant),
            DeliveryMode::Amqp => (&transports.amqp.intake.server, &transports.amqp.intake.tenant),
            DeliveryMode::Sqs => (&transports.sqs.intake.queue_url, &transports.sqs.intake.tenant),
            _ => return None,
        };
        if server.is_empty() {
            return None;
        }
        // The settings were checked when they were read.
        let tenant = tenant.parse().ok()?;
        let (intake, document) = (Arc::clone(&self.desk.intake), self.document);
        Some(Arc::new(Handoffs { intake, tenant, mode, document }))
    }
}
