//! Legal holds, and requests to erase a person's data.

use serde_json::json;

use super::refused::Refusal;
use super::{Intake, actor};
use crate::directory::Principal;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{PlaceHold, ReleaseHold, RequestErasure};
use crate::ledger::reply::{ErasureReply, HoldReply};
use handoffd_domain::canonical;
use handoffd_domain::ids::{ErasureId, Micros, TaskId};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_evidence::commitment::{CommitmentSubject, commit};
use handoffd_evidence::erasure::ErasureScope;
use handoffd_store::clock;
use handoffd_store::store::erasure::{HoldRow, SubjectRef};

/// A hold as a request brings it: on a person or on a task.
#[derive(Debug)]
pub struct HoldRequest {
    /// The id that its caller chose.
    pub id: String,
    pub subject: Option<SubjectRef>,
    pub task_id: Option<TaskId>,
    pub reason: String,
}

/// A request to erase a person's data.
#[derive(Debug)]
pub struct ErasureWish {
    pub scope: ErasureScope,
    /// Why: a code.
    pub reason: String,
    /// The caller's own reference.
    pub requested_by: Option<String>,
    pub note: Option<String>,
}

impl Intake {
    /// Places a legal hold; the same again changes nothing.
    ///
    /// # Errors
    /// The id holds, or held, something else.
    pub async fn place_hold(
        &self,
        principal: &Principal,
        request: HoldRequest,
    ) -> Result<(HoldReply, Vec<Warning>), Refusal> {
        let HoldRequest { id, subject, task_id, reason } = request;
        let tenant = &principal.tenant;
        let commitment = subject.as_ref().map(|held| {
            let salt = self.vault.subject_salt(tenant, &format!("hold/{id}"), &held.id);
            commit(CommitmentSubject::DataSubject, &salt, held.id.as_bytes())
        });
        let now = self.clock.now();
        let words = json!({ "holdId": id, "reason": reason });
        let row = HoldRow {
            tenant: tenant.clone(),
            id,
            subject_key: subject.as_ref().map(|held| held.key),
            subject_id: subject.map(|held| held.id),
            task_id,
            reason,
            placed_at: now,
            released_at: None,
        };
        let warning = self.holds_nothing(&row).await?;
        let content = content(&canonical::to_vec(&words), now);
        let place = PlaceHold { row, commitment, content };
        let reply = self.ledger.handle(called(principal, now), place).await?;
        Ok((reply, warning.into_iter().collect()))
    }

    /// Warns of a hold on an id under which nothing is stored yet.
    async fn holds_nothing(&self, hold: &HoldRow) -> Result<Option<Warning>, Refusal> {
        let (pointer, is_there) = match (&hold.task_id, &hold.subject_id) {
            (Some(task), _) => {
                let task = self.store.find_task(&(hold.tenant.clone(), *task)).await?;
                ("/taskId", task.is_some())
            }
            (None, Some(subject)) => {
                let held = self.store.list_held(&hold.tenant, subject, None, 1).await?;
                ("/subjectId", !held.is_empty())
            }
            (None, None) => return Ok(None),
        };
        let why = "there is nothing under this id yet; the hold is placed, and keeps data that comes under it";
        Ok((!is_there).then(|| Warning::new(WarningCode::NothingHeld, pointer, why)))
    }

    /// Releases a legal hold.
    ///
    /// # Errors
    /// The ledger refuses: there is none of that id.
    pub async fn release_hold(
        &self,
        principal: &Principal,
        id: String,
        reason: &str,
    ) -> Result<HoldReply, Refusal> {
        let now = self.clock.now();
        let words = json!({ "holdId": id, "reason": reason });
        let content = content(&canonical::to_vec(&words), now);
        Ok(self.ledger.handle(called(principal, now), ReleaseHold { id, content }).await?)
    }

    /// Asks for the erasure of a person's data.
    ///
    /// # Errors
    /// A legal hold forbids it, nothing is held on the person, or an erasure of a narrower scope came before.
    pub async fn request_erasure(
        &self,
        principal: &Principal,
        subject: &SubjectRef,
        wish: ErasureWish,
    ) -> Result<ErasureReply, Refusal> {
        let ErasureWish { scope, reason, requested_by, note } = wish;
        let now = self.clock.now();
        let id = ErasureId(clock::time_ordered_id(now));
        let words = json!({ "erasureId": id, "requestedBy": requested_by, "note": note });
        let salt = self.vault.subject_salt(&subject.tenant, &id.to_string(), &subject.id);
        let request = RequestErasure {
            subject: subject.clone(),
            id,
            commitment: commit(CommitmentSubject::DataSubject, &salt, subject.id.as_bytes()),
            scope,
            reason,
            content: content(&canonical::to_vec(&words), now),
        };
        Ok(self.ledger.handle(called(principal, now), request).await?)
    }
}

fn called(principal: &Principal, at: Micros) -> Call {
    Call { tenant: principal.tenant.clone(), at, actor: actor(principal) }
}
