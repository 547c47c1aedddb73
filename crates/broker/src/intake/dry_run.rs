//! `POST /handoffs/validate`: what the gate and the ledger would say, without a trace in either.
//!
//! A sender asks before it submits. A receiver asks about what it was sent (seed 000 §6.1): who signed it, and
//! whether budget and lineage hold, was judged when it was committed, so of a message that is in the books word for
//! word the stages from the schema on are run again, for this receiver. One that differs from what is in the books was
//! changed on its way.

use serde::Deserialize;
use serde_json::Value;

use super::refusal::no_part;
use super::{Body, INLINE_LIMIT, Intake, IntakeError, OpinionTime, redacted};
use crate::archive::{ContentState, Contents};
use crate::directory::Principal;
use crate::ledger::reply::LedgerError;
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::group::{Group, branch_id};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, HandoffId};
use handoffd_domain::json;
use handoffd_domain::message::Message;
use handoffd_domain::warning::Warning;
use handoffd_gate::schema::older::MessageForm;
use handoffd_gate::{GateLookup, GateVerdict};
use handoffd_store::store::{HandoffKey, StoreError};

/// The result of a dry run: the warnings of a message that would pass, or all failures.
type Outcome = Result<Vec<Warning>, Vec<Failure>>;

/// Sender and id that an unchecked body claims.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claimed {
    from_agent: ClaimedAgent,
    handoff_id: Option<HandoffId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimedAgent {
    agent_id: AgentId,
}

/// The stored state of a message that a receiver asks about.
enum Kept {
    /// Nothing: it was not submitted, or to another agent.
    Unknown,
    /// Submitted with these bytes.
    Same(Box<Value>),
    /// Another message was submitted under its id.
    Differs,
}

impl Intake {
    /// Runs the gate and writes nothing, for the agent that the principal names: the sender of the message, or
    /// its receiver.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn validate(
        &self,
        principal: &Principal,
        contents: &Contents,
        body: Body,
    ) -> Result<Outcome, IntakeError> {
        let bytes = body.bytes.clone();
        let peek = move || serde_json::from_slice::<Claimed>(&bytes).ok();
        let claimed = if body.bytes.len() > INLINE_LIMIT {
            tokio::task::spawn_blocking(peek).await.ok().flatten()
        } else {
            peek()
        };
        let (claimed, asking) = match (claimed, principal.agent.clone()) {
            (Some(claimed), Some(asking)) if claimed.from_agent.agent_id != asking => {
                (claimed, asking)
            }
            _ => return self.for_sender(principal, None, body).await,
        };
        let sender = claimed.from_agent.agent_id;
        let as_sender = Principal { agent: Some(sender), ..principal.clone() };
        match self.kept(principal, &asking, claimed.handoff_id, contents, &body).await? {
            Kept::Unknown => self.for_sender(&as_sender, Some(asking), body).await,
            Kept::Same(message) => self.received(&as_sender, asking, *message, body).await,
            Kept::Differs => Ok(Err(vec![Failure::new(
                Stage::Identity,
                Code::Conflict,
                "",
                "the message is not the one that was submitted under its handoffId",
            )])),
        }
    }

    /// As if it were submitted now.
    async fn for_sender(
        &self,
        principal: &Principal,
        receiver: Option<AgentId>,
        body: Body,
    ) -> Result<Outcome, IntakeError> {
        // A caller that names itself as the receiver of a message that was never submitted learns nothing of the task.
        let reads = receiver.is_some();
        let verdict = self.judge_for(principal, receiver, body).await?;
        Ok(match self.with_second_opinion(principal, verdict, OpinionTime::MayBeAfter).await?.0 {
            GateVerdict::Pass(passed) if reads => Ok(passed.warnings),
            GateVerdict::Refused(refused) if reads => Err(refused.failures),
            GateVerdict::Pass(passed)
                if self.is_stranger(&principal.tenant, &passed.message).await? =>
            {
                Err(vec![no_part()])
            }
            GateVerdict::Pass(passed) if passed.group.is_some() => {
                let branches = passed.group.as_ref().map_or(&[][..], |group| &group.branches);
                let failures =
                    self.guarded_group(&principal.tenant, &passed.message, branches).await?;
                if failures.is_empty() { Ok(passed.warnings) } else { Err(failures) }
            }
            GateVerdict::Pass(passed) => {
                let failures = self
                    .guarded(
                        &principal.tenant,
                        &passed.message,
                        &passed.target,
                        (passed.contract.as_ref(), &passed.others),
                    )
                    .await?;
                if failures.is_empty() { Ok(passed.warnings) } else { Err(failures) }
            }
            GateVerdict::Malformed(failure) => Err(vec![failure]),
            GateVerdict::Refused(refused) => Err(self.all_failures(principal, &refused).await?),
        })
    }

    /// The stages from the schema on over a message that was committed and delivered.
    async fn received(
        &self,
        sender: &Principal,
        receiver: AgentId,
        message: Value,
        body: Body,
    ) -> Result<Outcome, IntakeError> {
        let agents = self.directory.agents(&sender.tenant).await?;
        let contracts = self.directory.contracts(&sender.tenant).await?;
        let (gate, redaction) = (self.gate.clone(), self.redaction.clone());
        let (tenant, caller, at) = (sender.tenant.clone(), sender.agent.clone(), self.clock.now());
        let large = body.bytes.len() > INLINE_LIMIT || contracts.has_schemas();
        let run = move || {
            let lookup = GateLookup {
                tenant: &tenant,
                at,
                caller: caller.as_ref(),
                receiver: Some(&receiver),
                roster: &agents.roster,
                contracts: &contracts,
                signing_secrets: &[],
            };
            let verdict = redacted(gate.again(message, &lookup), &redaction);
            drop(body);
            verdict
        };
        let verdict = if large {
            let running = tokio::task::spawn_blocking(run);
            running.await.map_err(|err| LedgerError::Internal(err.to_string()))?
        } else {
            run()
        };
        Ok(match self.with_second_opinion(sender, verdict, OpinionTime::MayBeAfter).await?.0 {
            GateVerdict::Pass(passed) => Ok(passed.warnings),
            GateVerdict::Malformed(failure) => Err(vec![failure]),
            GateVerdict::Refused(refused) => Err(refused.failures),
        })
    }

    /// The handoff to an agent, of a message to several receivers.
    async fn branch_to(
        &self,
        (tenant, id): &HandoffKey,
        receiver: &AgentId,
    ) -> Result<Option<Handoff>, StoreError> {
        let find = async |id| self.store.find_handoff(&(tenant.clone(), id)).await;
        let Some(first) = find(branch_id(*id, 0)).await? else { return Ok(None) };
        let task = self.store.find_task(&(tenant.clone(), first.task_id)).await?;
        let group = task.as_ref().and_then(|task| task.course.group(*id));
        for branch in group.into_iter().flat_map(Group::handoffs) {
            let found = find(branch).await?.filter(|one| one.target == *receiver);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Looks for the message in the books, as its receiver got it.
    async fn kept(
        &self,
        principal: &Principal,
        receiver: &AgentId,
        id: Option<HandoffId>,
        contents: &Contents,
        body: &Body,
    ) -> Result<Kept, IntakeError> {
        let away = |err: StoreError| IntakeError::from(std::sync::Arc::new(err));
        let Some(id) = id else { return Ok(Kept::Unknown) };
        let key = (principal.tenant.clone(), id);
        let mut handoff = self.store.find_handoff(&key).await.map_err(away)?;
        if handoff.is_none() {
            handoff = self.branch_to(&key, receiver).await.map_err(away)?;
        }
        let Some(content) =
            handoff.filter(|one| one.target == *receiver).and_then(|one| one.content_id)
        else {
            return Ok(Kept::Unknown);
        };
        let found = contents.find(&principal.tenant, content).await.map_err(away)?;
        let ContentState::Whole(bytes) = found else { return Ok(Kept::Unknown) };
        let agents = self.directory.agents(&principal.tenant).await?;
        let agent = agents.roster.find(receiver).cloned();
        let (gate, body) = (self.gate.clone(), body.clone());
        let comparing = tokio::task::spawn_blocking(move || {
            let came = json::parse(&body.bytes).ok().filter(Value::is_object)?;
            let stored: Value = serde_json::from_slice(&bytes).ok()?;
            let older =
                agent.and_then(|agent: Agent| match gate.schemas.form_for(&stored, &agent) {
                    Ok(MessageForm::Older(older)) => Some(older.message),
                    _ => None,
                });
            let kept = shown(&came)?;
            let same = kept == bytes || older.is_some_and(|older| shown(&older) == Some(kept));
            Some(if same { Kept::Same(Box::new(came)) } else { Kept::Differs })
        });
        let compared = comparing.await.map_err(|err| LedgerError::Internal(err.to_string()))?;
        // The gate names a body that is not JSON.
        Ok(compared.unwrap_or(Kept::Unknown))
    }
}

/// A message as it is kept beside the log: canonical, without checkpoint and personal data.
fn shown(message: &Value) -> Option<Vec<u8>> {
    let canonical = CanonicalObject::from_value(message)?;
    Message::new(message.clone(), canonical).ok().map(|message| message.content())
}
