//! Decisions on agents and keys: who may do what is evidence too.

use super::command::{
    AgentChange, ChangeAgent, Command, CreateAgent, LedgerError, Reply, SecretsChange,
};
use super::draft::publish;
use super::plan::{Change, Decision};
use handoffd_core::domain::event::{Event, EventType, Subscriber};
use handoffd_core::domain::ids::AgentId;
use handoffd_core::evidence::record::{RecordContent, RecordDraft, RecordKind, RecordParty};
use handoffd_store::store::events::CursorChange;
use handoffd_store::store::{AgentRow, BatchState, KeyRow};

/// The most entries that one allowlist may have.
const MAX_TARGETS: usize = 10_000;

fn about(command: &Command, kind: RecordKind, agent: Option<&AgentId>) -> Change {
    let mut draft =
        RecordDraft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
    draft.to = agent.map(|id| RecordParty {
        agent_id: Some(id.clone()),
        agent_type: None,
        agent_version: None,
        execution_id: None,
        registered_version: None,
    });
    Change::Record(Box::new(draft))
}

pub(super) fn create(state: &BatchState, command: &Command, create: &CreateAgent) -> Decision {
    let id = &create.row.agent.agent_id;
    if state.agents.contains_key(&(command.tenant.clone(), id.clone())) {
        return Err(LedgerError::Conflict(format!("agent {id} exists")));
    }
    let mut changes = vec![
        Change::Agent(create.row.clone()),
        Change::Key(create.key.clone()),
        about(command, RecordKind::AgentCreated, Some(id)),
    ];
    if create.row.agent.callback_url.is_some() {
        let cursor = (command.tenant.clone(), Subscriber::Agent(id.clone()));
        changes.push(Change::Cursor(cursor, CursorChange::Start(None)));
    }
    Ok((changes, Reply::Agent(create.row.clone())))
}

/// Changes or removes an agent.
pub(super) fn change(state: &BatchState, command: &Command, change: &ChangeAgent) -> Decision {
    let key = (command.tenant.clone(), change.agent.clone());
    let known = state.agents.get(&key).ok_or(LedgerError::NotFound("agent"))?;
    let mut row = known.clone();
    let mut kind = RecordKind::AgentUpdated;
    match &change.change {
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
                return Ok((Vec::new(), Reply::Agent(row)));
            }
            row.agent.delivery.disabled = true;
            kind = RecordKind::EndpointDisabled;
        }
        AgentChange::Failing { address, step } => {
            let delivery = &mut row.agent.delivery;
            // Another broker may have said as much.
            let known = delivery.failing.is_some_and(|failing| failing.percent >= step.percent);
            if known || delivery.disabled || delivery.address() != *address {
                return Ok((Vec::new(), Reply::Agent(row)));
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
                return Ok((Vec::new(), Reply::Agent(row)));
            }
            delivery.failing = None;
            kind = RecordKind::EndpointRecovered;
        }
        AgentChange::Delete => {
            let cursor = (command.tenant.clone(), Subscriber::Agent(change.agent.clone()));
            return Ok((
                vec![
                    Change::NoAgent(key),
                    about(command, RecordKind::AgentDeleted, Some(&change.agent)),
                    Change::Cursor(cursor, CursorChange::Remove),
                ],
                Reply::Deleted,
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
        return Ok((Vec::new(), Reply::Agent(row)));
    }
    row.updated_at = command.at;
    let mut changes = vec![Change::Agent(row.clone()), about(command, kind, Some(&change.agent))];
    if row.agent.delivery.mode != known.agent.delivery.mode {
        changes.push(Change::Retarget(key, row.agent.delivery.mode, command.at));
    }
    changes.extend(alerts(command, change).into_iter().map(publish));
    changes.extend(follow(command, &change.agent, known, &row));
    Ok((changes, Reply::Agent(row)))
}

fn secrets_changed() -> LedgerError {
    LedgerError::Conflict("the agent's secrets were changed meanwhile".to_owned())
}

/// What operators are told of an endpoint.
fn alerts(command: &Command, change: &ChangeAgent) -> Vec<Event> {
    let alert = |kind, reason| {
        Event::of_agent(kind, command.tenant.clone(), &change.agent, command.at)
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
fn follow(command: &Command, id: &AgentId, was: &AgentRow, is: &AgentRow) -> Option<Change> {
    if was.agent.callback_url == is.agent.callback_url {
        return None;
    }
    let change = match is.agent.callback_url {
        Some(_) => CursorChange::Start(None),
        None => CursorChange::Remove,
    };
    Some(Change::Cursor((command.tenant.clone(), Subscriber::Agent(id.clone())), change))
}

pub(super) fn create_key(command: &Command, row: &KeyRow) -> (Vec<Change>, Reply) {
    (
        vec![Change::Key(row.clone()), about(command, RecordKind::KeyCreated, row.agent.as_ref())],
        Reply::Key(row.clone()),
    )
}

/// Records that tree heads are signed with another key from here on, or that secrets are sealed under another. The record is
/// covered by heads of both keys that sign: who trusts the old one learns the new one from it.
pub(super) fn change_of_keys(
    command: &Command,
    kind: RecordKind,
    content: &RecordContent,
) -> (Vec<Change>, Reply) {
    let mut draft =
        RecordDraft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
    draft.content = Some(content.clone());
    (vec![Change::Record(Box::new(draft))], Reply::Recorded)
}

/// Revokes a key; revoking it again changes nothing.
pub(super) fn revoke_key(state: &BatchState, command: &Command, key_id: &str) -> Decision {
    let mut row = state
        .keys
        .get(&(command.tenant.clone(), key_id.to_owned()))
        .cloned()
        .ok_or(LedgerError::NotFound("key"))?;
    if row.expires_at.is_some_and(|at| at <= command.at) {
        return Ok((Vec::new(), Reply::Key(row)));
    }
    row.expires_at = Some(command.at);
    let record = about(command, RecordKind::KeyRevoked, row.agent.as_ref());
    Ok((vec![Change::Key(row.clone()), record], Reply::Key(row)))
}
