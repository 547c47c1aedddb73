//! The transports of this broker: one line for each; and who takes what comes in by them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::StartError;
use crate::doors::queues::{Handoffs, RefusalDocument, Verdicts};
use handoffd_broker::config::{self, Config};
use handoffd_broker::dispatch::egress::GuardedClient;
use handoffd_broker::dispatch::transport::a2a::A2aTransport;
use handoffd_broker::dispatch::transport::amqp::AmqpTransport;
use handoffd_broker::dispatch::transport::listeners::Sinks;
use handoffd_broker::dispatch::transport::nats::NatsTransport;
use handoffd_broker::dispatch::transport::redis::{RedisIntake, RedisTransport};
use handoffd_broker::dispatch::transport::sqs::client::AwsCredential;
use handoffd_broker::dispatch::transport::sqs::{self, SqsTransport};
use handoffd_broker::dispatch::transport::temporal::TemporalTransport;
use handoffd_broker::dispatch::transport::webhook::WebhookTransport;
use handoffd_broker::dispatch::transport::{Transport, Transports};
use handoffd_broker::dispatch::webhook::WebhookClient;
use handoffd_broker::intake::verdicts::channel::ReplyDesk;
use handoffd_broker::transport::Sink;
use handoffd_core::domain::handoff::DeliveryMode;
use handoffd_core::domain::ids::TenantId;

pub(super) fn transports(
    config: &Config,
    client: &GuardedClient,
    a2a: A2aTransport,
) -> Result<Transports, StartError> {
    let policy = client.policy();
    let all: Vec<Arc<dyn Transport>> = vec![
        Arc::new(WebhookTransport::new(Arc::new(WebhookClient::new(client.clone())))),
        Arc::new(RedisTransport::new(
            policy.clone(),
            redis_intake(&config.transports.redis.intake)?,
        )),
        Arc::new(NatsTransport::new(policy.clone(), config.transports.nats.clone())),
        Arc::new(AmqpTransport::new(policy.clone(), config.transports.amqp.clone())),
        Arc::new(SqsTransport::new(client.clone(), sqs_settings(&config.transports.sqs))),
        Arc::new(TemporalTransport::new(client.clone())),
        Arc::new(a2a),
    ];
    Ok(Transports::new(all))
}

fn redis_intake(intake: &config::RedisIntake) -> Result<Option<RedisIntake>, StartError> {
    if intake.server.is_empty() {
        return Ok(None);
    }
    let mut config = Map::new();
    config.insert("server".to_owned(), intake.server.clone().into());
    if !intake.ca_certificate_file.is_empty() {
        let pem = std::fs::read_to_string(&intake.ca_certificate_file).map_err(|err| {
            StartError::Config(format!("transports.redis.intake.ca_certificate_file: {err}"))
        })?;
        config.insert("caCertificate".to_owned(), pem.into());
    }
    let mut login = Map::new();
    for (key, value) in [("username", &intake.username), ("password", &intake.password)] {
        if !value.is_empty() {
            login.insert(key.to_owned(), Value::from(value.clone()));
        }
    }
    let named = |stream: &String| Some(stream.clone()).filter(|stream| !stream.is_empty());
    Ok(Some(RedisIntake {
        config: config.into(),
        credentials: login.into(),
        stream: intake.stream.clone(),
        answers: named(&intake.answers),
        parked: named(&intake.parked),
    }))
}

fn sqs_settings(sqs: &config::SqsTransport) -> sqs::Settings {
    let named = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let intake = &sqs.intake;
    sqs::Settings {
        // The settings were checked when they were read.
        role_queues: sqs.role_queues.iter().filter_map(|queues| queues.parse().ok()).collect(),
        intake: named(&intake.queue_url).map(|queue_url| sqs::Intake {
            queue_url,
            region: named(&intake.region),
            endpoint: named(&intake.endpoint),
            keys: named(&intake.access_key_id).map(|key_id| {
                Arc::new(AwsCredential {
                    key_id,
                    secret_key: intake.secret_access_key.clone(),
                    token: None,
                })
            }),
            answers_url: named(&intake.answers_url),
            parked_url: intake.parked_url.clone(),
        }),
        environment: std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect(),
    }
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
