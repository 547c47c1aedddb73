//! The envelope: what every transport sends beside a message's body, as headers of its own kind.

use std::borrow::Cow;

use super::standard_webhooks::{WebhookSecret, signature};
use handoffd_domain::ids::{HandoffId, TaskId};

/// The headers of one attempt, and the secrets that sign it.
#[derive(Clone)]
pub struct Envelope {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// From 1.
    pub attempt: u32,
    /// Verdicts carry it back.
    pub fencing_token: i64,
    /// `traceparent`, W3C Trace Context.
    pub traceparent: Option<String>,
    /// `tracestate`, W3C Trace Context.
    pub tracestate: Option<String>,
    /// The name of the channel on which the receiver may answer.
    pub reply_to: Option<String>,
    /// Time of the attempt in Unix seconds.
    pub timestamp_s: i64,
    /// Signing secrets of the receiver, at least one; two during a rotation.
    pub secrets: Vec<WebhookSecret>,
    /// The place of the whole body, if a document replaces it.
    pub claim_check: Option<String>,
    /// Content coding of the sent body.
    pub coding: Option<&'static str>,
    /// Set for a test, which is not a handoff.
    pub test: bool,
}

/// Names of the headers, in the spelling of every transport that allows it.
pub mod names {
    pub const HANDOFF_ID: &str = "Handoff-Id";
    pub const TASK_ID: &str = "Handoff-Task-Id";
    pub const ATTEMPT: &str = "Handoff-Attempt";
    pub const FENCING_TOKEN: &str = "Handoff-Fencing-Token";
    pub const DEDUPLICATION_ID: &str = "Handoff-Deduplication-Id";
    pub const REPLY_TO: &str = "Handoff-Reply-To";
    pub const CLAIM_CHECK: &str = "Handoff-Claim-Check";
    pub const CONTENT_ENCODING: &str = "Content-Encoding";
    pub const TEST: &str = "Handoff-Test";
    pub const TRACEPARENT: &str = "traceparent";
    pub const TRACESTATE: &str = "tracestate";
    pub const WEBHOOK_ID: &str = "webhook-id";
    pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
    pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";
}

impl Envelope {
    /// The id by which a transport drops repeats of one attempt: `{handoffId}.{attempt}`.
    #[must_use]
    pub fn deduplication_id(&self) -> String {
        format!("{}.{}", self.handoff_id, self.attempt)
    }

    /// The same without the secrets that sign it.
    #[must_use]
    pub fn unsigned(&self) -> Self {
        Self {
            handoff_id: self.handoff_id,
            task_id: self.task_id,
            attempt: self.attempt,
            fencing_token: self.fencing_token,
            traceparent: self.traceparent.clone(),
            tracestate: self.tracestate.clone(),
            reply_to: self.reply_to.clone(),
            timestamp_s: self.timestamp_s,
            secrets: Vec::new(),
            claim_check: self.claim_check.clone(),
            coding: self.coding,
            test: self.test,
        }
    }

    /// `webhook-signature` over the body as the receiver reads it: decoded, and fetched if a claim check replaces it.
    #[must_use]
    pub fn signature(&self, body: &[u8]) -> String {
        signature(&self.secrets, &self.handoff_id.to_string(), self.timestamp_s, body)
    }

    /// All headers for a body, which is the message as signed. Values hold visible ASCII only, except `tracestate`,
    /// which may hold spaces.
    #[must_use]
    pub fn headers(&self, body: &[u8]) -> Vec<(&'static str, Cow<'_, str>)> {
        let id = self.handoff_id.to_string();
        let mut headers: Vec<(&'static str, Cow<'_, str>)> = vec![
            (names::HANDOFF_ID, id.clone().into()),
            (names::TASK_ID, self.task_id.to_string().into()),
            (names::ATTEMPT, self.attempt.to_string().into()),
            (names::FENCING_TOKEN, self.fencing_token.to_string().into()),
            (names::DEDUPLICATION_ID, self.deduplication_id().into()),
            (names::WEBHOOK_ID, id.into()),
            (names::WEBHOOK_TIMESTAMP, self.timestamp_s.to_string().into()),
            (names::WEBHOOK_SIGNATURE, self.signature(body).into()),
        ];
        let optional = [
            (names::TRACEPARENT, self.traceparent.as_deref()),
            (names::TRACESTATE, self.tracestate.as_deref()),
            (names::REPLY_TO, self.reply_to.as_deref()),
            (names::CLAIM_CHECK, self.claim_check.as_deref()),
            (names::CONTENT_ENCODING, self.coding),
            (names::TEST, self.test.then_some("true")),
        ];
        headers
            .extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?.into()))));
        headers
    }
}
