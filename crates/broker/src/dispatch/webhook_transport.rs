//! Delivery by webhook: a signed POST to the receiver's URL, whose answer may be the verdict.

use std::sync::Arc;

use async_trait::async_trait;

use super::webhook::{HandoffHeaders, Post, Posted, WebhookRequest, named_headers};
use crate::transport::catalog::WEBHOOK;
use crate::transport::{Attempt, AttemptFailure, Envelope, FailureClass, Publication, Transport};
use handoffd_domain::transport::TransportDescription;

/// Posts attempts by a client.
pub struct WebhookTransport(Arc<dyn Post>);

impl WebhookTransport {
    #[must_use]
    pub fn new(post: Arc<dyn Post>) -> Self {
        Self(post)
    }
}

#[async_trait]
impl Transport for WebhookTransport {
    fn describe(&self) -> &'static TransportDescription {
        &WEBHOOK
    }

    async fn publish(&self, attempt: Attempt) -> Publication {
        let Attempt { endpoint, envelope, body, encoded, timeout, verdict } = attempt;
        let Some(url) = endpoint.url else {
            let failure =
                AttemptFailure::unreached(FailureClass::Request, "the webhook has no URL");
            return Publication::failed(failure.at("/delivery/url"));
        };
        let request = WebhookRequest {
            url,
            body,
            encoded,
            id: envelope.handoff_id.to_string(),
            timestamp_s: envelope.timestamp_s,
            headers: headers(&envelope),
            secrets: envelope.secrets,
            timeout,
            verdict,
        };
        let Posted { outcome, timing, answer } = self.0.send(request).await;
        Publication { outcome, sent: timing.sent, overdue: timing.overdue, answer }
    }

    fn headers(&self, envelope: &Envelope) -> Vec<(String, String)> {
        let id = envelope.handoff_id.to_string();
        let more = headers(envelope);
        let named = named_headers(&id, envelope.timestamp_s, String::new(), &more);
        let coding = ("content-encoding", envelope.coding.map(str::to_owned));
        let set = named.into_iter().chain([coding]);
        set.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

fn headers(envelope: &Envelope) -> HandoffHeaders {
    HandoffHeaders {
        traceparent: envelope.traceparent.clone(),
        tracestate: envelope.tracestate.clone(),
        handoff_id: Some(envelope.handoff_id.to_string()),
        task_id: Some(envelope.task_id.to_string()),
        attempt: Some(envelope.attempt),
        fencing_token: Some(envelope.fencing_token),
        test: envelope.test,
        ..HandoffHeaders::default()
    }
}
