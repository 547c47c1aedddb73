//! Delivery by Amazon SQS: a handoff is a message of the agent's queue, standard or FIFO.
//!
//! No SDK: three actions of the JSON protocol, signed by the object store's own Signature Version 4, through the egress
//! guard. An agent brings its keys; the broker's own role signs only for queues that the operator names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use object_store::StaticCredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::text::fits_surely;
use crate::descriptions::fields::not_its_own;
use crate::descriptions::sqs::DESCRIPTION;
use crate::descriptions::sqs::MAX_MESSAGE;
use handoffd_broker::config::{self, RoleQueues};
use handoffd_broker::egress::GuardedClient;
use handoffd_broker::transport::{
    Attempt, AttemptFailure, AttemptOutcome, Endpoint, FailureClass, Fields, Publication, Sink,
    Transport,
};
use handoffd_domain::ids::TenantId;
use handoffd_domain::transport::{FieldError, TransportDescription};

pub mod client;
pub mod message;
pub mod receive;
pub mod refusal;
pub mod role;

use client::Client;
use receive::Source;
use refusal::fields;

/// The pause before an attempt is repeated whose outcome is unknown.
const REPEAT_AFTER: Duration = Duration::from_millis(200);

/// The operator's settings of SQS (`transports.sqs`).
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The queues for which the broker's own role signs.
    pub role_queues: Vec<RoleQueues>,
    pub intake: Option<Intake>,
    /// The process's `AWS_…` variables.
    pub environment: Vec<(String, String)>,
}

/// Handoffs in by a queue (`transports.sqs.intake`).
#[derive(Debug, Clone)]
pub struct Intake {
    pub queue_url: String,
    pub region: Option<String>,
    pub endpoint: Option<String>,
    /// The keys that sign; without them the broker's own role does.
    pub keys: Option<Arc<AwsCredential>>,
    /// The queue for problem documents.
    pub answers_url: Option<String>,
    /// The queue for invalid messages.
    pub parked_url: String,
}

impl Settings {
    /// The operator's settings, with the process's `environment`.
    #[must_use]
    pub fn of(
        sqs: &config::SqsTransport,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let named = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let intake = &sqs.intake;
        Self {
            // The settings were checked when they were read.
            role_queues: sqs.role_queues.iter().filter_map(|queues| queues.parse().ok()).collect(),
            intake: named(&intake.queue_url).map(|queue_url| Intake {
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
            environment: environment
                .into_iter()
                .filter(|(name, _)| name.starts_with("AWS_"))
                .collect(),
        }
    }
}

/// Sends handoffs to SQS queues.
pub struct SqsTransport {
    http: GuardedClient,
    settings: Settings,
    /// Providers of the broker's own role, by region.
    roles: Mutex<BTreeMap<String, AwsCredentialProvider>>,
}

impl SqsTransport {
    #[must_use]
    pub fn new(http: GuardedClient, settings: Settings) -> Self {
        Self { http, settings, roles: Mutex::default() }
    }

    /// The server of an agent's queues, and the credentials that sign for it.
    fn client(&self, endpoint: &Endpoint) -> Result<Client, AttemptFailure> {
        let config = &endpoint.config;
        let (url, region) = server(config.text("queueUrl").unwrap_or_default(), config).map_err(
            |(field, why)| AttemptFailure::unreached(FailureClass::Request, why).at(field),
        )?;
        let credentials = if let Some(keys) = keys(&endpoint.credentials) {
            Arc::new(StaticCredentialProvider::new(keys)) as AwsCredentialProvider
        } else {
            // The settings may name fewer queues than at the agent's registration.
            let mut refused = Vec::new();
            self.check_role(&endpoint.tenant, config.map(), &mut refused);
            let named = refused.pop().map_or(Ok(()), |(_, why)| Err(why));
            named.and_then(|()| self.role(&region)).map_err(|why| {
                AttemptFailure::unreached(FailureClass::Unauthorized, why).at(fields::CREDENTIALS)
            })?
        };
        Ok(Client { http: self.http.clone(), endpoint: url, region, credentials })
    }

    /// The broker's own credentials in a region; one provider each, which keeps them until they expire.
    fn role(&self, region: &str) -> Result<AwsCredentialProvider, String> {
        let mut roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = roles.get(region) {
            return Ok(Arc::clone(provider));
        }
        let provider = role::provider(region, &self.settings.environment)?;
        roles.insert(region.to_owned(), Arc::clone(&provider));
        Ok(provider)
    }

    fn intake_client(&self, intake: &Intake) -> Result<Client, AttemptFailure> {
        let mut config = Map::new();
        for (key, value) in [("region", &intake.region), ("endpoint", &intake.endpoint)] {
            if let Some(value) = value {
                config.insert(key.to_owned(), value.clone().into());
            }
        }
        let unusable = |why| AttemptFailure::unreached(FailureClass::Request, why);
        let (endpoint, region) =
            server(&intake.queue_url, &config.into()).map_err(|(_, why)| unusable(why))?;
        let credentials = match &intake.keys {
            Some(keys) => Arc::new(StaticCredentialProvider::new(AwsCredential {
                key_id: keys.key_id.clone(),
                secret_key: keys.secret_key.clone(),
                token: keys.token.clone(),
            })) as AwsCredentialProvider,
            None => self.role(&region).map_err(unusable)?,
        };
        Ok(Client { http: self.http.clone(), endpoint, region, credentials })
    }

    async fn send(&self, attempt: &Attempt) -> Result<Value, AttemptOutcome> {
        let Attempt { endpoint, timeout, .. } = attempt;
        let client = self.client(endpoint).map_err(waiting)?;
        let queue = endpoint.config.text("queueUrl").unwrap_or_default();
        let (input, size) = message::send_input(queue, attempt);
        let largest = largest(&endpoint.config);
        if size > largest {
            let why = format!("the message has {size} bytes and the queue takes {largest}");
            let failure = AttemptFailure::unreached(FailureClass::BodyTooLarge, why);
            return Err(AttemptOutcome::Failed(failure.at(fields::SIZE)));
        }
        let until = Instant::now() + *timeout;
        let mut maybe_sent = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match client.call("SendMessage", &input, left).await {
                Ok(sent) => return Ok(sent),
                // A FIFO queue takes the same deduplication id once, so asking again settles what became of it.
                Err(err)
                    if err.is_unknown()
                        && message::is_fifo(queue)
                        && until.saturating_duration_since(Instant::now()) > REPEAT_AFTER =>
                {
                    maybe_sent = true;
                    sleep(REPEAT_AFTER).await;
                }
                Err(err) if maybe_sent => return Err(AttemptFailure::after_unknown(err.outcome())),
                Err(err) => return Err(err.outcome()),
            }
        }
    }

    /// Whether the broker's own role signs for a queue of a tenant's agents.
    fn role_signs_for(&self, tenant: &TenantId, queue_url: &str) -> bool {
        let Ok(url) = Url::parse(queue_url) else { return false };
        let mut of_tenant = self.settings.role_queues.iter().filter(|one| one.tenant == *tenant);
        of_tenant.any(|RoleQueues { url: allowed, .. }| {
            url.as_str() == allowed
                || url
                    .as_str()
                    .strip_prefix(allowed.as_str())
                    .is_some_and(|rest| allowed.ends_with('/') && !rest.is_empty())
        })
    }

    /// Rules of the broker's own role: an agent that brings no keys reaches what the operator names, and nothing else.
    fn check_role(
        &self,
        tenant: &TenantId,
        config: &Map<String, Value>,
        errors: &mut Vec<FieldError>,
    ) {
        for key in ["queueUrl", "replyTo"] {
            if let Some(queue) = config.get(key).and_then(Value::as_str)
                && !self.role_signs_for(tenant, queue)
            {
                errors.push((
                    format!("/delivery/config/{key}"),
                    "is not a queue that the broker's own role may use (transports.sqs.role_queues); \
                     give accessKeyId and secretAccessKey, or ask the operator"
                        .to_owned(),
                ));
            }
        }
        if config.contains_key("endpoint") {
            errors.push((
                "/delivery/config/endpoint".to_owned(),
                "cannot be given where the broker's own role signs".to_owned(),
            ));
        }
    }
}

/// The outcome of a failure before the attempt: an operator can mend it.
const fn waiting(failure: AttemptFailure) -> AttemptOutcome {
    AttemptOutcome::Away(failure)
}

/// An agent's own keys.
fn keys(credentials: &Fields) -> Option<AwsCredential> {
    Some(AwsCredential {
        key_id: credentials.text("accessKeyId")?.to_owned(),
        secret_key: credentials.text("secretAccessKey")?.to_owned(),
        token: credentials.text("sessionToken").map(str::to_owned),
    })
}

/// The largest message of an agent's queue, in bytes.
fn largest(config: &Fields) -> usize {
    config
        .integer("maxMessageBytes")
        .and_then(|bytes| usize::try_from(bytes).ok())
        .map_or(MAX_MESSAGE, |bytes| bytes.min(MAX_MESSAGE))
}

/// The server to ask, and the region to sign for; the error names the member.
fn server(queue_url: &str, config: &Fields) -> Result<(Url, String), (&'static str, String)> {
    let queue = Url::parse(queue_url).map_err(|err| (fields::QUEUE, err.to_string()))?;
    let mut server = match config.text("endpoint") {
        Some(endpoint) => {
            Url::parse(endpoint).map_err(|err| ("/delivery/config/endpoint", err.to_string()))?
        }
        None => queue.clone(),
    };
    server.set_path("/");
    server.set_query(None);
    server.set_fragment(None);
    let region = match config.text("region") {
        Some(region) => region.to_owned(),
        None => [queue.host_str(), server.host_str()]
            .into_iter()
            .flatten()
            .find_map(message::region_of)
            .ok_or_else(|| (fields::REGION, NO_REGION.to_owned()))?
            .to_owned(),
    };
    Ok((server, region))
}

const NO_REGION: &str = "is required where the queue's host names no region of AWS";

#[async_trait]
impl Transport for SqsTransport {
    fn describe(&self) -> &'static TransportDescription {
        &DESCRIPTION
    }

    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let fields_given = Fields::from(config.clone());
        let queue = fields_given.text("queueUrl").unwrap_or_default();
        if let Err((field, why)) = server(queue, &fields_given) {
            errors.push((field.to_owned(), why));
        }
        errors.extend(not_its_own(config, "queueUrl"));
        let has = |name: &str| set.iter().any(|key| key == name);
        let pairs = [
            ("accessKeyId", "secretAccessKey", fields::SECRET),
            ("secretAccessKey", "accessKeyId", fields::KEY_ID),
            ("sessionToken", "accessKeyId", fields::KEY_ID),
        ];
        for (given, wanted, field) in pairs {
            if has(given) && !has(wanted) {
                errors.push((field.to_owned(), format!("is required beside {given}")));
            }
        }
        errors
    }

    fn check_tenant(
        &self,
        tenant: &TenantId,
        config: &Map<String, Value>,
        set: &[String],
    ) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !set.iter().any(|key| key == "accessKeyId") {
            self.check_role(tenant, config, &mut errors);
        }
        errors
    }

    fn is_too_large(&self, attempt: &Attempt) -> bool {
        let largest = largest(&attempt.endpoint.config);
        let queue = attempt.endpoint.config.text("queueUrl").unwrap_or_default();
        !fits_surely(attempt.body.len(), largest) && message::send_input(queue, attempt).1 > largest
    }

    async fn publish(&self, attempt: Attempt) -> Publication {
        match self.send(&attempt).await {
            Ok(_) => Publication::acknowledged(),
            Err(outcome) => Publication::of(outcome),
        }
    }

    async fn test(&self, attempt: Attempt) -> Result<String, AttemptFailure> {
        let sent = match self.send(&attempt).await {
            Ok(sent) => sent,
            Err(AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure)) => {
                return Err(failure);
            }
            Err(_) => {
                let why = "SQS throttles the broker";
                return Err(AttemptFailure::unreached(FailureClass::Status, why));
            }
        };
        let id = sent.get("MessageId").and_then(Value::as_str).unwrap_or_default();
        let mut sentence = format!("the queue took the test as message {id}");
        if let Some(queue) = attempt.endpoint.config.text("replyTo") {
            let client = self.client(&attempt.endpoint)?;
            let input = json!({"QueueUrl": queue, "AttributeNames": ["QueueArn"]});
            match client.call("GetQueueAttributes", &input, attempt.timeout).await {
                Ok(_) => sentence.push_str("; the reply queue exists"),
                Err(err) => {
                    let mut failure = err.failure();
                    failure.field = Some("/delivery/config/replyTo");
                    return Err(failure);
                }
            }
        }
        Ok(sentence)
    }

    fn reply_channel(&self, endpoint: &Endpoint) -> Option<String> {
        endpoint.config.text("replyTo").map(str::to_owned)
    }

    fn own_fields(&self) -> &'static [&'static str] {
        &["queueUrl", "maxMessageBytes"]
    }

    async fn listen(
        &self,
        endpoint: &Endpoint,
        channel: &str,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let client = self.client(endpoint)?;
        let source = Source { client: &client, queue_url: channel, refusals: None, parked: None };
        source.read(sink, stopping).await
    }

    async fn take_in(
        &self,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let Some(intake) = &self.settings.intake else { return Ok(()) };
        let client = self.intake_client(intake)?;
        let source = Source {
            client: &client,
            queue_url: &intake.queue_url,
            refusals: intake.answers_url.as_deref(),
            parked: Some(&intake.parked_url),
        };
        source.read(sink, stopping).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_broker::egress::{self, ClientSettings, EgressPolicy};

    fn errors(allowed: &[&str], config: Value) -> Vec<String> {
        let http = egress::client(EgressPolicy::default(), &ClientSettings::default());
        let settings = Settings {
            role_queues: allowed.iter().map(|queues| queues.parse().unwrap()).collect(),
            ..Settings::default()
        };
        let transport = SqsTransport::new(http.unwrap(), settings);
        let Value::Object(config) = config else { panic!("an object") };
        let tenant = "default".parse().unwrap();
        let mut errors = transport.check(&config, &[]);
        errors.extend(transport.check_tenant(&tenant, &config, &[]));
        errors.into_iter().map(|(field, _)| field).collect()
    }

    #[test]
    fn the_brokers_role_reaches_the_queues_that_the_operator_names() {
        let account = "https://sqs.eu-west-1.amazonaws.com/111122223333/";
        let queue = |name: &str| json!({ "queueUrl": format!("{account}{name}") });
        assert_eq!(errors(&[account], queue("a")), [""; 0]);
        assert_eq!(errors(&[&format!("{account}a")], queue("a")), [""; 0]);
        let named = format!("default={account}");
        let of_two = ["acme=https://elsewhere.example/", named.as_str()];
        assert_eq!(errors(&of_two, queue("a")), [""; 0]);
        for (allowed, config) in [
            (vec![], queue("a")),
            // A beginning that does not end in / is one queue.
            (vec![format!("{account}a")], queue("ab")),
            (vec![account.to_owned()], queue("../444455556666/a")),
            (vec!["https://sqs.eu-west-1.amazonaws.com/111122223333".to_owned()], queue("a")),
            // Another tenant's.
            (vec![format!("acme={account}")], queue("a")),
        ] {
            let allowed: Vec<_> = allowed.iter().map(String::as_str).collect();
            assert_eq!(errors(&allowed, config.clone()), [fields::QUEUE], "{allowed:?} {config}");
        }
        let mut config = queue("a");
        config["endpoint"] = json!("https://evil.example");
        assert_eq!(errors(&[account], config), ["/delivery/config/endpoint"]);
        let mut config = queue("a");
        config["replyTo"] = json!("https://sqs.eu-west-1.amazonaws.com/444455556666/r");
        assert_eq!(errors(&[account], config), ["/delivery/config/replyTo"]);
        let mut config = queue("a");
        config["replyTo"] = config["queueUrl"].clone();
        assert_eq!(errors(&[account], config), ["/delivery/config/replyTo"]);
        for (text, why) in [
            ("acme=nowhere", "must be queue URLs"),
            ("nowhere", "must be queue URLs"),
            ("a b=https://x.example/", "must name a tenant"),
        ] {
            assert!(text.parse::<RoleQueues>().unwrap_err().contains(why), "{text}");
        }
    }
}
