//! Delivery by Temporal: a handoff is a signal to the task's workflow, which the signal starts if it does not run.
//!
//! The broker is a plain HTTP client of Temporal's own API: no gRPC, no SDK, no worker. Payloads go as exact bytes in
//! `json/plain`, which every SDK reads.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use url::Url;
use zeroize::Zeroizing;

use super::servers::unusable_certificate;
use super::text::fits_surely;
use crate::connections::Connections;
use crate::descriptions::temporal::DESCRIPTION;
use crate::descriptions::temporal::MAX_PAYLOAD;
use handoffd_broker::egress::{GuardedClient, TlsCertificateError, TlsCertificates};
use handoffd_broker::transport::{
    Attempt, AttemptFailure, AttemptOutcome, ConnectionKey, Endpoint, FailureClass, Fields,
    Publication, Sink, Transport,
};
use handoffd_domain::transport::{FieldError, TransportDescription};

pub mod client;
pub mod questions;
pub mod refusal;
pub mod signal;

use client::Client;
use questions::Questions;
use refusal::fields;
use signal::{Ids, workflow_id};

/// The size of a payload above which the broker warns: a workflow's history holds every signal, and is bounded itself.
const LARGE_PAYLOAD: usize = 256 * 1024;
/// The pause before a request is repeated whose outcome is unknown.
const REPEAT_AFTER: Duration = Duration::from_millis(200);

/// Signals workflows.
pub struct TemporalTransport {
    http: GuardedClient,
    /// Clients with certificates of their own.
    clients: Connections<GuardedClient>,
}

impl TemporalTransport {
    #[must_use]
    pub fn new(http: GuardedClient) -> Self {
        Self { http, clients: Connections::default() }
    }

    async fn client(&self, endpoint: &Endpoint) -> Result<Client, AttemptFailure> {
        let unusable =
            |field, why: String| AttemptFailure::unreached(FailureClass::Request, why).at(field);
        let config = &endpoint.config;
        let address = Url::parse(config.text("address").unwrap_or_default())
            .map_err(|err| unusable(fields::ADDRESS, err.to_string()))?;
        Ok(Client {
            http: self.http(endpoint).await.map_err(|why| {
                let field = match why {
                    TlsCertificateError::Identity => "/delivery/credentials/clientCertificate",
                    TlsCertificateError::Roots => "/delivery/config/caCertificate",
                };
                unusable(field, why.to_string())
            })?,
            address,
            namespace: config.text("namespace").unwrap_or("default").to_owned(),
            api_key: endpoint.credentials.text("apiKey").map(|key| Zeroizing::new(key.to_owned())),
        })
    }

    /// The client with the agent's certificates; the shared one where it has none.
    async fn http(&self, endpoint: &Endpoint) -> Result<GuardedClient, TlsCertificateError> {
        let certificates = TlsCertificates {
            identity: endpoint
                .credentials
                .text("clientCertificate")
                .zip(endpoint.credentials.text("clientKey")),
            roots: endpoint.config.text("caCertificate"),
        };
        if certificates.identity.is_none() && certificates.roots.is_none() {
            return Ok(self.http.clone());
        }
        let (certificate, key) = certificates.identity.unwrap_or_default();
        let key = ConnectionKey::of(&[certificate, key, certificates.roots.unwrap_or_default()]);
        let make = || std::future::ready(self.http.with_certificates(&certificates));
        Ok(self.clients.get(key, make).await?.0)
    }

    /// Signals the workflow; answers with its id.
    async fn signal(&self, attempt: &Attempt) -> Result<String, AttemptOutcome> {
        let Attempt { endpoint, envelope, timeout, .. } = attempt;
        let client = self.client(endpoint).await.map_err(AttemptOutcome::Away)?;
        let config = &endpoint.config;
        let id =
            workflow_of(endpoint, &envelope.task_id.to_string(), &envelope.handoff_id.to_string())
                .map_err(|why| failed(FailureClass::Request, why, Some(fields::WORKFLOW_ID)))?;
        let (request, size) = signal::signal_request(attempt);
        if size > MAX_PAYLOAD {
            let why = format!("the payload has {size} bytes and Temporal takes {MAX_PAYLOAD}");
            return Err(failed(FailureClass::BodyTooLarge, why, None));
        }
        if size > LARGE_PAYLOAD {
            tracing::warn!(size, "a large signal fills the workflow's history");
        }
        let name = config.text("signal").unwrap_or("handoff");
        let path = ["workflows", id.as_str(), "signal-with-start", name];
        let until = Instant::now() + *timeout;
        let mut maybe_sent = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match client.call(Method::POST, &path, Some(&request), left).await {
                Ok(_) => return Ok(id),
                // The same request id signals once, so asking again settles what became of it.
                Err(err)
                    if err.is_unknown()
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
}

fn failed(class: FailureClass, why: String, field: Option<&'static str>) -> AttemptOutcome {
    let failure = AttemptFailure::unreached(class, why);
    AttemptOutcome::Failed(AttemptFailure { field, ..failure })
}

/// The id of the workflow that works on a handoff.
fn workflow_of(endpoint: &Endpoint, task: &str, handoff: &str) -> Result<String, String> {
    let template = endpoint.config.text("workflowId").unwrap_or("handoff-{taskId}");
    let agent = endpoint.agent_id.to_string();
    workflow_id(template, Ids { task, handoff, agent: &agent })
}

#[async_trait]
impl Transport for TemporalTransport {
    fn describe(&self) -> &'static TransportDescription {
        &DESCRIPTION
    }

    fn check(&self, config: &Map<String, Value>, set: &[String]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = Fields::from(config.clone());
        let ids = Ids { task: "", handoff: "", agent: "" };
        if let Err(why) = workflow_id(given.text("workflowId").unwrap_or_default(), ids) {
            errors.push((fields::WORKFLOW_ID.to_owned(), why));
        }
        let has = |name: &str| set.iter().any(|key| key == name);
        for (one, other) in [("clientCertificate", "clientKey"), ("clientKey", "clientCertificate")]
        {
            if has(one) && !has(other) {
                errors.push((
                    format!("/delivery/credentials/{other}"),
                    format!("is required beside {one}"),
                ));
            }
        }
        let encrypted =
            given.text("address").is_some_and(|address| address.starts_with("https://"));
        if has("clientCertificate") && !encrypted {
            let at = "/delivery/credentials/clientCertificate";
            errors.push((at.to_owned(), "needs an https address".to_owned()));
        }
        errors
    }

    fn is_too_large(&self, attempt: &Attempt) -> bool {
        !fits_surely(attempt.body.len(), MAX_PAYLOAD)
            && signal::signal_request(attempt).1 > MAX_PAYLOAD
    }

    fn check_certificates(
        &self,
        config: &Map<String, Value>,
        given: Option<&Map<String, Value>>,
    ) -> Option<FieldError> {
        unusable_certificate(config, given)
    }

    async fn publish(&self, attempt: Attempt) -> Publication {
        match self.signal(&attempt).await {
            Ok(_) => Publication::acknowledged(),
            Err(outcome) => Publication::of(outcome),
        }
    }

    async fn test(&self, attempt: Attempt) -> Result<String, AttemptFailure> {
        let id = match self.signal(&attempt).await {
            Ok(id) => id,
            Err(AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure)) => {
                return Err(failure);
            }
            Err(_) => {
                let why = "Temporal limits the broker's rate";
                return Err(AttemptFailure::unreached(FailureClass::Status, why));
            }
        };
        let queue = attempt.endpoint.config.text("taskQueue").unwrap_or_default();
        let client = self.client(&attempt.endpoint).await?;
        let path = ["task-queues", queue];
        let polled =
            client.call(Method::GET, &path, None, attempt.timeout).await.is_ok_and(|queue| {
                queue
                    .get("pollers")
                    .and_then(Value::as_array)
                    .is_some_and(|pollers| !pollers.is_empty())
            });
        let workers = if polled { "workers poll" } else { "no worker polls" };
        Ok(format!("the workflow {id} took the test; {workers} the task queue {queue}"))
    }

    fn reply_channel(&self, endpoint: &Endpoint) -> Option<String> {
        endpoint.config.text("replyTo").map(str::to_owned)
    }

    fn answers_by_agent(&self) -> bool {
        true
    }

    async fn listen(
        &self,
        endpoint: &Endpoint,
        channel: &str,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let client = self.client(endpoint).await?;
        let interval = endpoint.config.integer("queryIntervalMs").unwrap_or(1_000);
        let interval = Duration::from_millis(u64::try_from(interval).unwrap_or(1_000));
        Questions { client: &client, endpoint, query: channel, interval }.ask(sink, stopping).await
    }
}

#[cfg(test)]
#[path = "temporal/tests.rs"]
mod tests;
