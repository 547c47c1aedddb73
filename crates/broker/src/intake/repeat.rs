//! Repeats under a contract's dedupe key: whether the first use still counts.

use std::sync::Arc;

use serde_json::Value;

use super::{Answer, Intake, IntakeError, Refusal, SubmittedHandoff};
use crate::archive::Contents;
use crate::directory::Principal;
use crate::ledger::reply::LedgerError;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, TenantId};
use handoffd_domain::task::TaskStatus;
use handoffd_domain::warning::Warning;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_store::store::{HandoffFilter, StoreError};

/// Handoffs read at once.
const PAGE: i64 = 500;

/// How often a use that was over may be renewed before its repeat is told so.
pub(super) const RENEWALS: usize = 3;

/// The place of a message's digest of the step that it is.
const STEP_DIGEST: &str = "/extensions/handoffd/stepDigest";

/// The digest of a message's step; a longer text is not one.
fn step_digest(message: &Value) -> Option<&str> {
    message.pointer(STEP_DIGEST)?.as_str().filter(|digest| digest.len() <= 100)
}

/// The first use of a dedupe value.
pub(super) enum FirstUse {
    /// Its handoff, and all that stood in for it, ended badly or is gone: the value is free.
    Over,
    Counts(Box<Handoff>),
}

/// Whether a handoff is open, or did what it was for.
const fn counts(status: HandoffStatus) -> bool {
    match status {
        HandoffStatus::Pending
        | HandoffStatus::Accepted
        | HandoffStatus::InputRequired
        | HandoffStatus::Completed
        | HandoffStatus::NoOp => true,
        HandoffStatus::Rejected
        | HandoffStatus::Expired
        | HandoffStatus::Failed
        | HandoffStatus::Canceled
        | HandoffStatus::DeadLettered => false,
    }
}

impl Intake {
    /// Whether the first use of a dedupe value still counts: while its handoff, or one in its place, is open or was
    /// accepted, or a person is asked about it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn first_use(
        &self,
        tenant: &TenantId,
        first: HandoffId,
    ) -> Result<FirstUse, IntakeError> {
        let away = |err: StoreError| IntakeError::from(Arc::new(err));
        let found = self.store.find_handoff(&(tenant.clone(), first)).await.map_err(away)?;
        let Some(handoff) = found else { return Ok(FirstUse::Over) };
        if counts(handoff.status) {
            return Ok(FirstUse::Counts(Box::new(handoff)));
        }
        let key = (tenant.clone(), handoff.task_id);
        let task = self.store.find_task(&key).await.map_err(away)?;
        if task.is_some_and(|task| task.status == TaskStatus::Escalated) {
            return Ok(FirstUse::Counts(Box::new(handoff)));
        }
        let filter = HandoffFilter { task_id: Some(handoff.task_id), ..HandoffFilter::default() };
        let mut after = None;
        loop {
            let page = self.store.list_handoffs(tenant, &filter, after.as_ref(), PAGE).await;
            let page = page.map_err(away)?;
            let Some(last) = page.last() else { return Ok(FirstUse::Over) };
            after = Some((last.created_at, last.id.to_string()));
            if page.iter().any(|one| one.origin == Some(first) && counts(one.status)) {
                return Ok(FirstUse::Counts(Box::new(handoff)));
            }
        }
    }

    /// The answer to a repeat: the first handoff, to the agent that sent it.
    pub(super) fn answer_with_first(
        principal: &Principal,
        handoff: Box<Handoff>,
        contract: Option<Arc<CompiledContract>>,
        warnings: Vec<Warning>,
    ) -> Result<Answer, IntakeError> {
        if principal.agent.as_ref() != Some(&handoff.source) {
            let named =
                contract.map_or_else(String::new, |ready| format!(" of {}", ready.contract()));
            let why =
                format!("another agent handed off with the same value of the dedupe key{named}");
            return Err(LedgerError::Conflict(why).into());
        }
        Ok(Answer::Submitted(SubmittedHandoff {
            handoff,
            record: None,
            replayed: true,
            repeated: true,
            contract,
            watch: None,
            warnings,
        }))
    }

    /// The digest of the step that an SDK wrote into the message of a handoff, for its sender alone: by it a sender tells a step
    /// that it repeats from another one of the same name.
    ///
    /// # Errors
    /// When the store or the archive cannot be read.
    pub async fn stored_step_digest(
        &self,
        principal: &Principal,
        contents: &Contents,
        id: HandoffId,
    ) -> Result<Option<Box<str>>, Refusal> {
        let handoff = self.store.find_handoff(&(principal.tenant.clone(), id)).await?;
        let sent = handoff.filter(|handoff| principal.reader().is_sender(handoff));
        let Some(content) = sent.and_then(|handoff| handoff.content_id) else { return Ok(None) };
        let message = contents.find_json(&principal.tenant, content).await?;
        Ok(message.as_ref().and_then(step_digest).map(Box::from))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_digest_of_a_step_is_a_short_text() {
        let message =
            |digest: Value| json!({ "extensions": { "handoffd": { "stepDigest": digest } } });
        assert_eq!(step_digest(&message(json!("ab12"))), Some("ab12"));
        for other in [json!("a".repeat(101)), json!(7), json!({ "a": 1 }), Value::Null] {
            assert_eq!(step_digest(&message(other)), None);
        }
        assert_eq!(step_digest(&json!({})), None);
    }
}
