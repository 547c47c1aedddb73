//! Appeals: from a dead letter to the command that delivers it after all, or that keeps it.

use std::sync::Arc;

use serde_json::Value;

use super::draft::{repeat_of, ruling, subtasks};
use super::opinion::OpinionTime;
use super::repeat::{FirstUse, RENEWALS};
use super::{Intake, IntakeError, actor, groups};
use crate::directory::{Agents, Principal};
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{Discard, KeepDeadLetter, Queued, Release, ReleaseGroup};
use crate::ledger::reply::{DeadLetterReply, LedgerError};
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::{Failure, Stage};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, HandoffId, Micros};
use handoffd_domain::message::Message;
use handoffd_domain::personal;
use handoffd_domain::policy::CLASSIFIER;
use handoffd_domain::residency::ResidencyRules;
use handoffd_domain::window::ContextFacts;
use handoffd_evidence::record::SafetyFacts;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::{
    GateLookup, GateVerdict, OtherEdges, PassedGroup, PassedMessage, RefusedMessage, budget,
};
use handoffd_store::store::{DeadLetterRow, StoreError};

/// A person's decision on a dead letter.
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

/// A kept message under the rules of now.
struct RejudgedMessage {
    /// The message with its receiver, where it has one.
    routed: Option<(Message, Arc<Agent>)>,
    contract: Option<Arc<CompiledContract>>,
    /// The other edges that it may take.
    others: OtherEdges,
    context: Option<ContextFacts>,
    /// The receivers of a message to many, where each was found.
    group: Option<PassedGroup>,
    /// Rules that observe or mark the message, and the classifier's verdict on it.
    safety: Option<SafetyFacts>,
    failures: Vec<Failure>,
}

impl Appeal {
    /// Refuses an entry that names none of the dead letter's findings, where that is an error.
    fn names_findings(&self, row: &DeadLetterRow) -> Result<(), LedgerError> {
        let stray = self
            .waive
            .iter()
            .position(|entry| !row.failures.iter().any(|finding| names(entry, finding)));
        match stray.filter(|_| self.strict) {
            Some(place) => Err(LedgerError::Invalid(
                format!("/waive/{place}"),
                "no finding of this dead letter is named so: give its pointer, CODE:pointer, or rule:name".to_owned(),
            )),
            None => Ok(()),
        }
    }

    /// Whether a finding is waived: it was found before, word for word, and an entry names it. Of the classifier only the
    /// rule repeats: asked once more, a model may give another label.
    fn waives(&self, finding: &Failure, row: &DeadLetterRow) -> bool {
        let by_classifier =
            |one: &Failure| one.stage == Stage::Safety && one.rule.as_deref() == Some(CLASSIFIER);
        row.failures.iter().any(|kept| {
            if by_classifier(finding) && by_classifier(kept) {
                return self.waive.iter().any(|entry| names(entry, kept));
            }
            finding.repeats(kept) && self.waive.iter().any(|entry| names(entry, finding))
        })
    }
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
    ) -> Result<DeadLetterReply, IntakeError> {
        let (row, handoff) = self.dead_letter(principal, id).await?;
        appeal.names_findings(&row)?;
        let value = self.message_of(&handoff, kept).await?;
        let agents = self.directory.agents(&principal.tenant).await?;
        let judged = self.judged_again(principal, &agents, &handoff.source, value).await?;
        let RejudgedMessage { routed, contract, others, context, group, safety, failures } = judged;
        let (waived, refused): (Vec<_>, Vec<_>) = failures.into_iter().partition(|finding| {
            let waivable = match finding.stage {
                // A list asks no person.
                Stage::Contract if group.is_some() => {
                    finding.rule.as_deref() != Some("human_in_loop")
                }
                // Without a receiver there is nothing to waive.
                Stage::Route => routed.is_some(),
                // No operator can decide who the sender is.
                Stage::Identity => false,
                _ => true,
            };
            waivable && appeal.waives(finding, &row)
        });
        if appeal.dry_run {
            return Ok(DeadLetterReply { row, handoff, refused });
        }
        let now = self.clock.now();
        let words = serde_json::json!({
            "reason": appeal.reason, "waived": waived, "refused": refused,
        });
        let content = content(&canonical::to_vec(&words), now);
        let mut release = match (routed, group) {
            (Some((message, _)), Some(group)) if refused.is_empty() => {
                let group =
                    groups::released(principal, &agents, &message, &group, safety, &handoff, now);
                let task_id = handoff.task_id;
                let release = ReleaseGroup { handoff_id: id, task_id, group, waived, content };
                return self.decide_letter(principal, now, release).await;
            }
            (Some((message, target)), None) if refused.is_empty() => {
                let policy = contract.map(|ready| ready.policy().clone()).unwrap_or_default();
                let source = agents.roster.find(&handoff.source);
                Release {
                    handoff_id: id,
                    task_id: handoff.task_id,
                    source: handoff.source.clone(),
                    parent_id: handoff.parent_id,
                    idempotent: policy.idempotent,
                    declared_budget: budget::declared(message.value()),
                    repeat: repeat_of(&policy, &message),
                    // A release counts for no strategy: the door counted the refusal.
                    ruling: ruling(policy, others, &agents, &message, &target, None),
                    target: Agent::clone(&target),
                    priority: message.envelope().priority,
                    subtasks: subtasks(&message),
                    // Also where a person waived the refusal of one.
                    residency: ResidencyRules::facts(
                        self.gate.residency.crossings(source, Some(&target)),
                    ),
                    context,
                    safety,
                    waived,
                    content,
                }
            }
            _ => {
                let task_id = handoff.task_id;
                let keep = KeepDeadLetter { handoff_id: id, task_id, waived, refused, content };
                return self.decide_letter(principal, now, keep).await;
            }
        };
        for _ in 0..RENEWALS {
            let decided = self.decide_letter(principal, now, release.clone()).await;
            let Err(IntakeError::Ledger(LedgerError::Repeat { first, seen_at })) = decided else {
                return decided;
            };
            if !matches!(self.first_use(&principal.tenant, first).await?, FirstUse::Over) {
                return decided;
            }
            if let Some(repeat) = &mut release.repeat {
                repeat.over = Some((first, seen_at));
            }
        }
        self.decide_letter(principal, now, release).await
    }

    /// The gate's and the ledger's findings on a kept message, as the rules are now.
    async fn judged_again(
        &self,
        principal: &Principal,
        agents: &Agents,
        source: &AgentId,
        value: Value,
    ) -> Result<RejudgedMessage, IntakeError> {
        let contracts = self.directory.contracts(&principal.tenant).await?;
        let lookup = GateLookup {
            tenant: &principal.tenant,
            at: self.clock.now(),
            caller: Some(source),
            receiver: None,
            roster: &agents.roster,
            signing_secrets: &[],
            contracts: &contracts,
        };
        let verdict =
            self.beside_earlier(&principal.tenant, self.gate.again(value, &lookup)).await?;
        let (verdict, mut safety) =
            self.with_second_opinion(principal, verdict, OpinionTime::Before).await?;
        let (message, target, contract, others, context, group, mut failures) = match verdict {
            GateVerdict::Pass(passed) => {
                let PassedMessage { message, target, contract, others, context, group, .. } =
                    *passed;
                (Some(message), Some(target), contract, others, context, group, Vec::new())
            }
            GateVerdict::Refused(mut refused) => {
                if safety.is_none() {
                    // A person may waive these, so the rest is still read.
                    let (more, facts) = self.read_on(principal, &refused).await?;
                    refused.failures.extend(more);
                    safety = facts;
                }
                let RefusedMessage {
                    message,
                    target,
                    contract,
                    others,
                    context,
                    failures,
                    group,
                    ..
                } = *refused;
                let first = group.as_ref().and_then(|group| group.branches.first());
                let target = target.or_else(|| first.map(|branch| Arc::clone(&branch.target)));
                (message, target, contract, others, context, group, failures)
            }
            GateVerdict::Malformed(failure) => {
                (None, None, None, OtherEdges::default(), None, None, vec![failure])
            }
        };
        let routed = message.zip(target);
        failures.extend(match (&routed, &group) {
            (Some((message, _)), Some(group)) => {
                self.guarded_group(&principal.tenant, message, &group.branches).await?
            }
            (Some((message, target)), None) => {
                let edges = (contract.as_ref(), &others);
                self.guarded(&principal.tenant, message, target, edges).await?
            }
            (None, _) => Vec::new(),
        });
        Ok(RejudgedMessage { routed, contract, others, context, group, safety, failures })
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
    ) -> Result<DeadLetterReply, IntakeError> {
        let (row, handoff) = self.dead_letter(principal, id).await?;
        if dry_run {
            return Ok(DeadLetterReply { row, handoff, refused: Vec::new() });
        }
        let now = self.clock.now();
        let words = serde_json::json!({ "reason": reason });
        let discard = Discard {
            handoff_id: id,
            task_id: handoff.task_id,
            content: content(&canonical::to_vec(&words), now),
        };
        self.decide_letter(principal, now, discard).await
    }

    async fn decide_letter(
        &self,
        principal: &Principal,
        at: Micros,
        command: impl Queued<Reply = DeadLetterReply>,
    ) -> Result<DeadLetterReply, IntakeError> {
        let call = Call { tenant: principal.tenant.clone(), at, actor: actor(principal) };
        Ok(self.ledger.handle(call, command).await?)
    }

    /// A kept message as it was submitted, as far as it is still there.
    pub(super) async fn message_of(
        &self,
        handoff: &Handoff,
        kept: Option<Value>,
    ) -> Result<Value, IntakeError> {
        let gone = || LedgerError::Conflict("the message was erased".to_owned());
        let value = kept.ok_or_else(gone)?;
        let key = (handoff.tenant.clone(), handoff.origin.unwrap_or(handoff.id));
        let data = self.store.list_personal_data(&key).await.map_err(away)?;
        if data.is_empty() {
            return Ok(value);
        }
        let whole = personal::whole(&canonical::to_vec(&value), &data, false);
        let unread = |err: serde_json::Error| LedgerError::Internal(err.to_string());
        Ok(serde_json::from_slice(&whole).map_err(unread)?)
    }
}

fn away(err: StoreError) -> IntakeError {
    Arc::new(err).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::failure::Code;

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
