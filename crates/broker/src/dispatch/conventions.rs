//! A delivery in traces: names and attributes of OpenTelemetry's conventions for HTTP clients and, where configured,
//! for agents; and the outgoing trace context.

use serde::Deserialize;
use tracing::Span;
use tracing::field::{Empty, display};

use crate::telemetry;
use crate::transport::{AttemptFailure, AttemptOutcome};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_store::store::DeliveryClaim;

/// Names a delivery's span before it begins.
pub(super) fn describe(span: &Span, claim: &DeliveryClaim) {
    if !telemetry::exporting() {
        return;
    }
    if !telemetry::gen_ai() {
        span.record("otel.name", format!("deliver {}", claim.target));
        span.record("otel.kind", "internal");
        return;
    }
    // "Invoke agent client span" of the GenAI conventions.
    span.record("otel.name", format!("invoke_agent {}", claim.target));
    span.record("otel.kind", "client");
    span.record("gen_ai.operation.name", "invoke_agent");
    span.record("gen_ai.provider.name", "handoffd");
    span.record("gen_ai.agent.id", claim.target.as_str());
    if let Some(id) = conversation(&claim.body) {
        span.record("gen_ai.conversation.id", id);
    }
}

/// The message's `conversationId`.
fn conversation(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ConversationField {
        conversation_id: Option<String>,
    }
    serde_json::from_slice::<ConversationField>(body).ok()?.conversation_id
}

/// The span of one attempt by a transport. Other transports than HTTP name their span by the conventions for messaging.
pub(super) fn send(mode: DeliveryMode, url: Option<&str>, attempt: i32) -> Span {
    if let Some(url) = url {
        return post(url, attempt);
    }
    tracing::debug_span!(
        "handoff.publish",
        otel.name = format!("send {}", mode.as_str()),
        otel.kind = "producer",
        otel.status_code = Empty,
        messaging.system = mode.as_str(),
        messaging.operation.type = "send",
        error.type = Empty,
    )
}

fn post(url: &str, attempt: i32) -> Span {
    let span = tracing::debug_span!(
        "http.post",
        otel.name = "POST",
        otel.kind = "client",
        otel.status_code = Empty,
        http.request.method = "POST",
        http.request.resend_count = Empty,
        http.response.status_code = Empty,
        server.address = Empty,
        server.port = Empty,
        error.type = Empty,
    );
    if telemetry::exporting() {
        // No path and no query: either may be a secret.
        if let Ok(url) = url::Url::parse(url) {
            span.record("server.address", url.host_str().map(display));
            span.record("server.port", url.port_or_known_default());
        }
        if attempt > 1 {
            span.record("http.request.resend_count", attempt - 1);
        }
    }
    span
}

/// The trace headers of a request: under its own span where spans are exported, otherwise as received.
pub(super) fn outbound(claim: &DeliveryClaim, span: &Span) -> (String, Option<String>) {
    let came = claim.trace().map(|context| context.parent);
    let parent = match (telemetry::own(span), came) {
        (Some(own), Some(came)) => own.of_trace(&came).to_string(),
        (Some(parent), None) | (None, Some(parent)) => parent.to_string(),
        (None, None) => claim.traceparent.clone(),
    };
    (parent, Some(claim.tracestate.clone()).filter(|state| !state.is_empty()))
}

/// Records the outcome in the delivery's span.
pub(super) fn conclude(tried: &AttemptOutcome) {
    let span = Span::current();
    span.record("handoff.outcome", tried.label());
    if let AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure) = tried {
        span.record("error.type", failure.class.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// Records the answer's status in the request's span.
pub(super) fn answered(status: u16) {
    let span = Span::current();
    span.record("http.response.status_code", status);
    if status >= 400 {
        span.record("error.type", status);
        span.record("otel.status_code", "ERROR");
    }
}

/// Records in the request's span that no complete answer came.
pub(super) fn broke(failure: &AttemptFailure) {
    let span = Span::current();
    span.record("error.type", failure.class.as_str());
    span.record("otel.status_code", "ERROR");
}
