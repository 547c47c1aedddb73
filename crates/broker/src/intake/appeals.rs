//! Appeals: from a dead letter to the command that delivers it after all, or that keeps it.

use serde_json::Value;

use super::draft::{ruling, subtasks};
use super::{Intake, IntakeError, actor};
use crate::directory::Principal;
use crate::ledger::command::{Command, Discard, Kind, LedgerError, Release, Reply, content};
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::canonical;
use handoffd_core::domain::dead_letter::DeadLetterStatus;
use handoffd_core::domain::failure::{Failure, Stage};
use handoffd_core::domain::handoff::{Handoff, Priority};
use handoffd_core::domain::ids::HandoffId;
use handoffd_core::domain::residency::Residency;
use handoffd_core::gate::{GateLookup, GateVerdict, PassedMessage};
use handoffd_store::store::{DeadLetterRow, StoreError};

/// What a person says of a dead letter.
#[derive(Debug, Clone)]
pub struct Appeal {
    /// Why it may be delivered, in words.
    pub reason: String,
    /// Findings to waive: each a pointer, `CODE:pointer`, or `rule:name` for a safety rule.
    pub waive: Vec<String>,
    /// An entry that names none of the findings is an error.
    pub strict: bool,
    /// Say what would happen, and change nothing.
    pub dry_run: bool,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The dead letter as it is now.
    pub row: DeadLetterRow,
    /// Its handoff.
    pub handoff: Handoff,
    /// What keeps it.
    pub refused: Vec<Failure>,
}

/// Whether an entry of `waive` names a finding.
fn names(entry: &str, finding: &Failure) -> bool {
    if let Some(rule) = entry.strip_prefix("rule:") {
        return finding.stage == Stage::Safety && finding.rule.as_deref() == Some(rule);
    }
    entry == finding.pointer
        || entry
            .strip_prefix(finding.code.as_str())
            .and_then(|rest| rest.strip_prefix(':'))
            .is_some_and(|pointer| pointer == finding.pointer)
}

impl Intake {
    async fn dead_letter(
        &self,
        principal: &Principal,
        id: HandoffId,
    ) -> Result<(DeadLetterRow, Handoff), IntakeError> {
        let key = (principal.tenant.clone(), id);
        let row = self.store.find_dead_letter(&key).await.map_err(away)?;
        let row = row.ok_or(LedgerError::NotFound("dead letter"))?;
        if row.status != DeadLetterStatus::Open {
            let why = format!("this dead letter was {} before", row.status.as_str());
            return Err(LedgerError::Conflict(why).into());
        }
        let handoff = self.store.find_handoff(&key).await.map_err(away)?;
        Ok((row, handoff.ok_or(LedgerError::NotFound("dead letter"))?))
    }

    /// Judges a dead letter afresh and delivers it, if nothing is found but what was waived by name:
    /// a finding counts as waived only if it was found before, word for word. `kept` is the message as
    /// stored, wherever it is stored.
    ///
    /// # Errors
    /// [`IntakeError`]; nothing was written then.
    pub async fn release(
        &self,
        principal: &Principal,
        id: HandoffId,
        appeal: &Appeal,
        kept: Option<Value>,
    ) -> Result<Decided, IntakeError> {
        let (row, handoff) = self.dead_letter(principal, id).await?;
        for (place, entry) in appeal.waive.iter().enumerate() {
            if appeal.strict && !row.failures.iter().any(|finding| names(entry, finding)) {
                return Err(LedgerError::Invalid(
                    format!("/waive/{place}"),
                    "no finding of this dead letter is named so: give its pointer, CODE:pointer, or rule:name".to_owned(),
                )
                .into());
            }
        }
        let named = |finding: &Failure| {
            row.failures.iter().any(|kept| finding.repeats(kept))
                && appeal.waive.iter().any(|entry| names(entry, finding))
        };
        let value = self.message_of(&handoff, kept).await?;
        let agents = self.directory.agents(&principal.tenant).await?;
        let contracts = self.directory.contracts(&principal.tenant).await?;
        let lookup = GateLookup {
            tenant: &principal.tenant,
            at: self.clock.now(),
            caller: Some(&handoff.source),
            receiver: None,
            roster: &agents.roster,
            signing_secrets: &[],
            contracts: &contracts,
        };
        let (message, target, contract, mut failures) = match self.gate.again(value, &lookup) {
            GateVerdict::Pass(passed) => {
                let PassedMessage { message, target, contract, .. } = *passed;
                (Some(message), Some(target), contract, Vec::new())
            }
            GateVerdict::Refused(refused) => {
                (refused.message, refused.target, refused.contract, refused.failures)
            }
            GateVerdict::Malformed(failure) => (None, None, None, vec![failure]),
        };
        if let (Some(message), Some(target)) = (&message, &target) {
            let guarded =
                self.guarded(&principal.tenant, message, target, contract.as_ref()).await?;
            failures.extend(guarded);
        }
        let routed = message.as_ref().zip(target.as_ref());
        let (waived, refused): (Vec<_>, Vec<_>) = failures
            .into_iter()
            // Without a receiver there is nothing to waive.
            .partition(|finding| {
                let waivable = match finding.stage {
                    Stage::Route => routed.is_some(),
                    // Nobody can say who somebody else is.
                    Stage::Identity => false,
                    _ => true,
                };
                waivable && named(finding)
            });
        if appeal.dry_run {
            return Ok(Decided { row, handoff, refused });
        }
        let now = self.clock.now();
        let words = serde_json::json!({
            "reason": appeal.reason, "waived": waived, "refused": refused,
        });
        let fit = refused.is_empty();
        let release = match routed {
            Some((message, target)) => Release {
                handoff_id: id,
                task_id: handoff.task_id,
                source: handoff.source.clone(),
                parent_id: handoff.parent_id,
                ruling: ruling(
                    contract.as_ref().map(|ready| ready.policy().clone()).unwrap_or_default(),
                    &agents,
                    message,
                    target,
                ),
                target: Agent::clone(target),
                priority: message.envelope().priority,
                subtasks: subtasks(message),
                // Also where a person waived the refusal of one.
                residency: Residency::facts(
                    self.gate
                        .residency
                        .crossings(agents.roster.find(&handoff.source), Some(target)),
                ),
                waived,
                refused,
                content: content(&canonical::to_vec(&words), now),
            },
            None => Release {
                handoff_id: id,
                task_id: handoff.task_id,
                source: handoff.source.clone(),
                parent_id: handoff.parent_id,
                ruling: None,
                target: Agent::new(handoff.target.clone()),
                priority: Priority::Normal,
                subtasks: Vec::new(),
                residency: None,
                waived,
                refused,
                content: content(&canonical::to_vec(&words), now),
            },
        };
        let kind = if fit && routed.is_some() {
            Kind::Release(Box::new(release))
        } else {
            Kind::KeepDeadLetter(Box::new(release))
        };
        self.decide_letter(principal, now, kind).await
    }

    /// Ends a dead letter: it will not be delivered.
    ///
    /// # Errors
    /// [`IntakeError`]; nothing was written then.
    pub async fn discard(
        &self,
        principal: &Principal,
        id: HandoffId,
        reason: &str,
        dry_run: bool,
    ) -> Result<Decided, IntakeError> {
        let (row, handoff) = self.dead_letter(principal, id).await?;
        if dry_run {
            return Ok(Decided { row, handoff, refused: Vec::new() });
        }
        let now = self.clock.now();
        let words = serde_json::json!({ "reason": reason });
        let kind = Kind::Discard(Box::new(Discard {
            handoff_id: id,
            task_id: handoff.task_id,
            content: content(&canonical::to_vec(&words), now),
        }));
        self.decide_letter(principal, now, kind).await
    }

    async fn decide_letter(
        &self,
        principal: &Principal,
        now: handoffd_core::domain::ids::Micros,
        kind: Kind,
    ) -> Result<Decided, IntakeError> {
        let reply = self
            .ledger
            .handle(Command {
                tenant: principal.tenant.clone(),
                at: now,
                actor: actor(principal),
                kind,
            })
            .await?;
        match reply {
            Reply::DeadLetter { row, handoff, refused } => Ok(Decided { row, handoff, refused }),
            other => Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into()),
        }
    }

    /// A kept message as it was submitted, as far as it is still there.
    pub(super) async fn message_of(
        &self,
        handoff: &Handoff,
        kept: Option<Value>,
    ) -> Result<Value, IntakeError> {
        let gone = || LedgerError::Conflict("the message was erased".to_owned());
        let mut value = kept.ok_or_else(gone)?;
        let key = (handoff.tenant.clone(), handoff.origin.unwrap_or(handoff.id));
        let personal = self.store.list_personal_data(&key).await.map_err(away)?;
        let subjects: Vec<Value> =
            personal.iter().filter_map(|datum| serde_json::from_slice(datum).ok()).collect();
        if let Some(object) = value.as_object_mut()
            && !subjects.is_empty()
        {
            let payload = serde_json::json!({ "subjects": subjects });
            object.insert("personalDataPayload".to_owned(), payload);
        }
        Ok(value)
    }
}

fn away(err: StoreError) -> IntakeError {
    std::sync::Arc::new(err).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_core::domain::failure::Code;

    #[test]
    fn a_finding_is_named_by_place_by_code_and_place_or_by_rule() {
        let finding = Failure::new(
            Stage::Safety,
            Code::SafetyViolation,
            "/taskDescription",
            "The text is unsafe.",
        )
        .of_rule("ignore-previous");
        for entry in
            ["/taskDescription", "SAFETY_VIOLATION:/taskDescription", "rule:ignore-previous"]
        {
            assert!(names(entry, &finding), "{entry}");
        }
        for entry in ["", "/task", "rule:ignore", "rule:", "FORBIDDEN:/taskDescription", "*"] {
            assert!(!names(entry, &finding), "{entry}");
        }
    }
}
