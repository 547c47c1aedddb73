//! Decisions on dead letters, one or many at a bounded rate. A release reads the message wherever it is stored, and
//! the intake judges it afresh.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::archive::Contents;
use crate::directory::Principal;
use crate::intake::{Appeal, Intake, IntakeError};
use crate::ledger::reply::DeadLetterReply;
use handoffd_domain::failure::Failure;
use handoffd_domain::ids::{HandoffId, TenantId};
use handoffd_store::store::{DeadLetterFilter, StoreError};

/// The most dead letters that one call decides on.
pub const MAX_BULK: usize = 1_000;

/// Rows read at once.
const PAGE: i64 = 500;

/// Reasons for which a dead letter is not decided on.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The intake or the ledger refuses; nothing was written.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The store or the archive cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A decision on each of many dead letters.
#[derive(Debug, Clone)]
pub enum BulkDecision {
    /// Delivers those in which the gate finds nothing but what the appeal waives.
    Release(Appeal),
    /// Closes them without delivery.
    Discard {
        /// Reason, kept with each record.
        reason: String,
        /// Whether to change nothing and only report.
        dry_run: bool,
    },
}

impl BulkDecision {
    const fn dry_run(&self) -> bool {
        match self {
            Self::Release(appeal) => appeal.dry_run,
            Self::Discard { dry_run, .. } => *dry_run,
        }
    }
}

/// The dead letters that a bulk decision takes.
#[derive(Debug, Default)]
pub struct DeadLetterSelection {
    /// Conditions that each of them meets.
    pub filter: DeadLetterFilter,
    /// Candidates; `None` selects from all.
    pub ids: Option<Vec<HandoffId>>,
}

/// The result of a bulk decision.
#[derive(Debug, Default)]
pub struct BulkOutcome {
    /// Number of dead letters that the selection takes, at most [`MAX_BULK`].
    pub matched: usize,
    /// More fit than one call takes, or the broker stopped in between.
    pub more: bool,
    /// Each dead letter decided on, with the failures that keep it.
    pub items: Vec<(HandoffId, Result<Vec<Failure>, DecisionError>)>,
}

/// Decides on dead letters.
#[derive(Clone, Copy)]
pub struct DeadLetterDesk<'a> {
    /// Runs the gate on a released message, and commits the decision.
    pub intake: &'a Intake,
    /// Reads messages from the database or the archive.
    pub contents: &'a Contents,
}

impl DeadLetterDesk<'_> {
    /// Releases one dead letter, or reports what keeps it.
    ///
    /// # Errors
    /// [`DecisionError`]; nothing was written then.
    pub async fn release(
        &self,
        principal: &Principal,
        id: HandoffId,
        appeal: &Appeal,
    ) -> Result<DeadLetterReply, DecisionError> {
        let kept = self.message(&principal.tenant, id).await?;
        Ok(self.intake.release(principal, id, appeal, kept).await?)
    }

    /// Decides on each selected dead letter, `rate` a second; ends early when the broker stops. A dry run is slowed down
    /// only where it asks the classifier. One that fails does not end the others.
    ///
    /// # Errors
    /// [`StoreError`]: the selection cannot be read; nothing was decided then.
    pub async fn decide_many(
        &self,
        principal: &Principal,
        selection: &DeadLetterSelection,
        decision: &BulkDecision,
        rate: u32,
        stopping: &CancellationToken,
    ) -> Result<BulkOutcome, StoreError> {
        let (ids, more) = self.select(&principal.tenant, selection).await?;
        let mut outcome = BulkOutcome { matched: ids.len(), more, items: Vec::new() };
        let mut pace = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let asks = matches!(decision, BulkDecision::Release(_)) && self.intake.asks_a_classifier();
        for id in ids {
            if asks || !decision.dry_run() {
                tokio::select! {
                    _ = pace.tick() => {}
                    () = stopping.cancelled() => {
                        outcome.more = true;
                        break;
                    }
                }
            }
            outcome.items.push((id, self.decide(principal, id, decision).await));
        }
        Ok(outcome)
    }

    /// Decides on one; returns the failures that keep it.
    async fn decide(
        &self,
        principal: &Principal,
        id: HandoffId,
        decision: &BulkDecision,
    ) -> Result<Vec<Failure>, DecisionError> {
        let decided = match decision {
            BulkDecision::Release(appeal) => self.release(principal, id, appeal).await?,
            BulkDecision::Discard { reason, dry_run } => {
                self.intake.discard(principal, id, reason, *dry_run).await?
            }
        };
        Ok(decided.refused)
    }

    /// The message as stored.
    async fn message(&self, tenant: &TenantId, id: HandoffId) -> Result<Option<Value>, StoreError> {
        let handoff = self.intake.store.find_handoff(&(tenant.clone(), id)).await?;
        match handoff.and_then(|handoff| handoff.content_id) {
            Some(content) => self.contents.find_json(tenant, content).await,
            None => Ok(None),
        }
    }

    /// The ids of a selection, newest first, at most [`MAX_BULK`], and whether more fit.
    async fn select(
        &self,
        tenant: &TenantId,
        selection: &DeadLetterSelection,
    ) -> Result<(Vec<HandoffId>, bool), StoreError> {
        let DeadLetterSelection { filter, ids } = selection;
        let store = &self.intake.store;
        if let Some(ids) = ids {
            let mut selected = Vec::with_capacity(ids.len());
            // One that is named twice counts once, at its first place.
            let mut seen = HashSet::new();
            for id in ids.iter().filter(|id| seen.insert(**id)) {
                let row = store.find_dead_letter(&(tenant.clone(), *id)).await?;
                selected.extend(row.filter(|row| filter.takes(row)).map(|row| row.handoff_id));
            }
            return Ok((selected, false));
        }
        let (mut selected, mut after) = (Vec::new(), None);
        while selected.len() <= MAX_BULK {
            let page = store.list_dead_letters(tenant, filter, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.created_at, last.handoff_id.to_string()));
            selected.extend(page.iter().map(|row| row.handoff_id));
        }
        let more = selected.len() > MAX_BULK;
        selected.truncate(MAX_BULK);
        Ok((selected, more))
    }
}
