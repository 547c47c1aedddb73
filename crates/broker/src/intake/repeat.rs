//! Repeats under a contract's dedupe key: whether the first use still counts.

use std::sync::Arc;

use super::{Answer, Intake, IntakeError};
use crate::directory::Principal;
use crate::ledger::reply::LedgerError;
use handoffd_core::contract::enforce::CompiledContract;
use handoffd_core::domain::handoff::{Handoff, HandoffStatus};
use handoffd_core::domain::ids::{HandoffId, TenantId};
use handoffd_core::domain::task::TaskStatus;
use handoffd_core::domain::warning::Warning;
use handoffd_store::store::{HandoffFilter, StoreError};

/// Handoffs read at once.
const PAGE: i64 = 500;

/// How often a use that was over may be renewed before its repeat is told so.
pub(super) const RENEWALS: usize = 3;

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
    /// accepted, or a person is asked what becomes of it.
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
        Ok(Answer::Submitted {
            handoff,
            record: None,
            replayed: true,
            repeated: true,
            contract,
            watch: None,
            warnings,
        })
    }
}
