//! `[transports]`: the broker's own side of the transports.

use std::str::FromStr;

use handoffd_domain::ids::TenantId;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Transports {
    pub reply_max_age_s: u64,
    pub reply_wait_ms: u64,
    pub claim_ttl_s: u64,
    pub redis: RedisTransport,
    pub nats: NatsTransport,
    pub amqp: AmqpTransport,
    pub sqs: SqsTransport,
}

/// `[transports.redis]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct RedisTransport {
    pub intake: RedisIntake,
}

/// `[transports.redis.intake]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct RedisIntake {
    pub tenant: String,
    pub server: String,
    pub username: String,
    pub password: String,
    pub ca_certificate_file: String,
    pub stream: String,
    pub answers: String,
    pub parked: String,
}

impl std::fmt::Debug for RedisIntake {
    /// Omits the server's address and the login: neither belongs in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisIntake")
            .field("tenant", &self.tenant)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// `[transports.nats]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct NatsTransport {
    pub consumer: String,
    pub intake: NatsIntake,
}

/// `[transports.nats.intake]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct NatsIntake {
    pub tenant: String,
    pub server: String,
    pub subject: String,
    pub answers: String,
    pub parked: String,
    pub username: String,
    pub password: String,
    pub token: String,
    pub nkey_seed: String,
    pub credentials_file: String,
    pub ca_certificate_file: String,
    pub client_certificate_file: String,
    pub client_key_file: String,
}

/// `[transports.amqp]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct AmqpTransport {
    pub intake: AmqpIntake,
}

/// `[transports.amqp.intake]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct AmqpIntake {
    pub tenant: String,
    pub server: String,
    pub vhost: String,
    pub queue: String,
    pub answers: String,
    pub parked: String,
    pub username: String,
    pub password: String,
    pub ca_certificate_file: String,
    pub client_certificate_file: String,
    pub client_key_file: String,
}

impl std::fmt::Debug for NatsIntake {
    /// Omits what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { server, subject, answers, parked, .. } = self;
        f.debug_struct("NatsIntake")
            .field("server", server)
            .field("subject", subject)
            .field("answers", answers)
            .field("parked", parked)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AmqpIntake {
    /// Omits what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { server, vhost, queue, answers, parked, .. } = self;
        f.debug_struct("AmqpIntake")
            .field("server", server)
            .field("vhost", vhost)
            .field("queue", queue)
            .field("answers", answers)
            .field("parked", parked)
            .finish_non_exhaustive()
    }
}

/// `[transports.sqs]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct SqsTransport {
    #[serde(deserialize_with = "super::list")]
    pub role_queues: Vec<String>,
    pub intake: SqsIntake,
}

/// Queues of one tenant for which the broker's own role signs: an item of `transports.sqs.role_queues`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleQueues {
    pub tenant: TenantId,
    /// A queue's URL, or the beginning of some that ends in `/`.
    pub url: String,
}

impl FromStr for RoleQueues {
    type Err = &'static str;

    /// `tenant=url`; a URL alone is of the tenant `default`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tenant, url) = match text.split_once('=') {
            Some((tenant, url)) if !tenant.contains(':') => (tenant.trim(), url.trim()),
            _ => ("default", text),
        };
        let tenant = tenant.parse::<TenantId>().map_err(|_| "must name a tenant before the =")?;
        let parsed = url::Url::parse(url).ok();
        if !parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https")) {
            return Err("must be queue URLs, or beginnings of some that end in /");
        }
        Ok(Self { tenant, url: url.to_owned() })
    }
}

/// `[transports.sqs.intake]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct SqsIntake {
    pub tenant: String,
    pub queue_url: String,
    pub region: String,
    pub endpoint: String,
    pub access_key_id: String,
    pub secret_access_key: String,
    pub answers_url: String,
    pub parked_url: String,
}

impl std::fmt::Debug for SqsIntake {
    /// Omits the access keys, which belong in no log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqsIntake")
            .field("tenant", &self.tenant)
            .field("queue_url", &self.queue_url)
            .finish_non_exhaustive()
    }
}
