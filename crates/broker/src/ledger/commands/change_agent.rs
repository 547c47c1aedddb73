//! Change or remove an agent.

use crate::ledger::agents::about;
use crate::ledger::command::{Call, Command, Freed};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use handoffd_domain::agent::{AgentSpec, Failing, Target};
use handoffd_domain::event::{Event, EventType, Subscriber};
use handoffd_domain::ids::AgentId;
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::events::CursorChange;
use handoffd_store::store::{AgentRow, BatchState};

#[derive(Debug, Clone)]
pub struct ChangeAgent {
    pub agent: AgentId,
    pub change: AgentChange,
}

/// A change of an agent.
#[derive(Debug, Clone)]
pub enum AgentChange {
    /// Set what the patch names, and its sealed credentials with it.
    Patch {
        spec: Box<AgentSpec>,
        /// Set where the patch names a delivery.
        secrets: Option<SecretsChange>,
    },
    SetTargets(Vec<Target>),
    AddTarget(Target),
    /// Take one entry out.
    RemoveTarget(Target),
    /// Replace its sealed secrets, if they still are what the caller saw.
    Secrets(SecretsChange),
    /// Its endpoint answered 410: disable it, if it still is that one.
    DisableDelivery {
        /// The address of the failed attempt or of the answer.
        address: String,
    },
    /// Its endpoint fails again and again, if it still is that one: say so, at 100 % disable it.
    Failing {
        /// The address of the failed attempt or of the answer.
        address: String,
        /// How far it is.
        step: Failing,
    },
    /// Its endpoint answers again, if it still is that one.
    Answers {
        /// The address of the failed attempt or of the answer.
        address: String,
    },
    Delete,
}

/// Sealed secrets to replace, if they still are what the caller saw.
#[derive(Debug, Clone)]
pub struct SecretsChange {
    pub from: String,
    /// As they will be.
    pub to: String,
}

impl Command for ChangeAgent {
    type Reply = Option<AgentRow>;
    const NAME: &'static str = "change_agent";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.agent(&self.agent);
    }

    /// Changes or removes an agent.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.agent.clone());
        let known = state.agents.get(&key).ok_or(LedgerError::NotFound("agent"))?;
        let mut row = known.clone();
        let mut kind = RecordKind::AgentUpdated;
        match &self.change {
            AgentChange::Patch { spec, secrets } => {
                row.agent = spec
                    .apply(&row.agent)
                    .map_err(|(pointer, message)| LedgerError::Invalid(pointer, message))?;
                if let Some(SecretsChange { from, to }) = secrets {
                    if row.secrets != *from {
                        return Err(secrets_changed());
                    }
                    row.secrets.clone_from(to);
                }
            }
            AgentChange::SetTargets(targets) => {
                let mut seen = std::collections::BTreeSet::new();
                row.agent.handoff_targets =
                    targets.iter().filter(|target| seen.insert(*target)).cloned().collect();
            }
            AgentChange::AddTarget(target) => {
                if !row.agent.handoff_targets.contains(target) {
                    row.agent.handoff_targets.push(target.clone());
                }
            }
            AgentChange::RemoveTarget(target) => {
                let before = row.agent.handoff_targets.len();
                row.agent.handoff_targets.retain(|known| known != target);
                if row.agent.handoff_targets.len() == before {
                    return Err(LedgerError::NotFound("handoff target"));
                }
            }
            AgentChange::Secrets(SecretsChange { from, to }) => {
                if row.secrets != *from {
                    return Err(secrets_changed());
                }
                row.secrets.clone_from(to);
                kind = RecordKind::SecretRotated;
            }
            AgentChange::DisableDelivery { address } => {
                if row.agent.delivery.address() != *address {
                    return Ok((Vec::new(), Some(row)));
                }
                row.agent.delivery.disabled = true;
                kind = RecordKind::EndpointDisabled;
            }
            AgentChange::Failing { address, step } => {
                let delivery = &mut row.agent.delivery;
                // Another broker may have said as much.
                let known = delivery.failing.is_some_and(|failing| failing.percent >= step.percent);
                if known || delivery.disabled || delivery.address() != *address {
                    return Ok((Vec::new(), Some(row)));
                }
                delivery.failing = Some(*step);
                delivery.disabled = step.percent >= 100;
                kind = if delivery.disabled {
                    RecordKind::EndpointDisabled
                } else {
                    RecordKind::EndpointFailing
                };
            }
            AgentChange::Answers { address } => {
                let delivery = &mut row.agent.delivery;
                if delivery.disabled || delivery.address() != *address {
                    return Ok((Vec::new(), Some(row)));
                }
                delivery.failing = None;
                kind = RecordKind::EndpointRecovered;
            }
            AgentChange::Delete => {
                let cursor = (call.tenant.clone(), Subscriber::Agent(self.agent.clone()));
                return Ok((
                    vec![
                        Change::NoAgent(key),
                        about(call, RecordKind::AgentDeleted, Some(&self.agent)),
                        Change::Cursor(cursor, CursorChange::Remove),
                    ],
                    None,
                ));
            }
        }
        if row.agent.handoff_targets.len() > MAX_TARGETS {
            return Err(LedgerError::Invalid(
                "/handoffTargets".to_owned(),
                format!("at most {MAX_TARGETS} entries"),
            ));
        }
        if row == *known {
            return Ok((Vec::new(), Some(row)));
        }
        row.updated_at = call.at;
        let mut changes = vec![Change::Agent(row.clone()), about(call, kind, Some(&self.agent))];
        if row.agent.delivery.mode != known.agent.delivery.mode {
            changes.push(Change::Retarget(key, row.agent.delivery.mode, call.at));
        }
        changes.extend(alerts(call, self).into_iter().map(publish));
        changes.extend(follow(call, &self.agent, known, &row));
        Ok((changes, Some(row)))
    }

    fn frees(&self, reply: Option<&Self::Reply>) -> Option<Freed> {
        // The mode of its deliveries may differ, and its waiting handoffs moved with it.
        reply.map(|_| Freed::Anywhere)
    }
}

/// The most entries that one allowlist may have.
const MAX_TARGETS: usize = 10_000;

fn secrets_changed() -> LedgerError {
    LedgerError::Conflict("the agent's secrets were changed meanwhile".to_owned())
}

/// The events about an endpoint for operators.
fn alerts(call: &Call, change: &ChangeAgent) -> Vec<Event> {
    let alert = |kind, reason| {
        Event::of_agent(kind, call.tenant.clone(), &change.agent, call.at)
            .with("endpoint", "delivery")
            .with("reason", reason)
    };
    match &change.change {
        AgentChange::DisableDelivery { .. } => {
            vec![alert(EventType::EndpointDisabled, "ENDPOINT_GONE")]
        }
        AgentChange::Failing { step, .. } => {
            let failing = alert(EventType::EndpointFailing, "ENDPOINT_FAILING")
                .with("percent", step.percent)
                .with("failures", step.failures);
            let disabled = (step.percent >= 100)
                .then(|| alert(EventType::EndpointDisabled, "ENDPOINT_FAILING"));
            std::iter::once(failing).chain(disabled).collect()
        }
        _ => Vec::new(),
    }
}

/// An agent with a `callbackUrl` is told of events from when it was set.
fn follow(call: &Call, id: &AgentId, was: &AgentRow, is: &AgentRow) -> Option<Change> {
    if was.agent.callback_url == is.agent.callback_url {
        return None;
    }
    let change = match is.agent.callback_url {
        Some(_) => CursorChange::Start(None),
        None => CursorChange::Remove,
    };
    Some(Change::Cursor((call.tenant.clone(), Subscriber::Agent(id.clone())), change))
}
