//! Decisions on agents and keys: who may do what is evidence too.

use super::command::{AgentChange, ChangeAgent, Command, CreateAgent, LedgerError, Reply};
use super::decide::Decision;
use super::plan::Change;
use crate::domain::ids::AgentId;
use crate::evidence::record::{Draft, Party, RecordKind};
use crate::store::{KeyRow, State};

/// The most entries that one allowlist may have.
const MAX_TARGETS: usize = 10_000;

fn about(command: &Command, kind: RecordKind, agent: Option<&AgentId>) -> Change {
    let mut draft = Draft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
    draft.to = agent.map(|id| Party {
        agent_id: Some(id.clone()),
        agent_type: None,
        agent_version: None,
        execution_id: None,
    });
    Change::Record(Box::new(draft))
}

/// Registers an agent.
pub(super) fn create(state: &State, command: &Command, create: &CreateAgent) -> Decision {
    let id = &create.row.agent.agent_id;
    if state.agents.contains_key(&(command.tenant.clone(), id.clone())) {
        return Err(LedgerError::Conflict(format!("agent {id} exists")));
    }
    Ok((
        vec![
            Change::Agent(create.row.clone()),
            Change::Key(create.key.clone()),
            about(command, RecordKind::AgentCreated, Some(id)),
        ],
        Reply::Agent(create.row.clone()),
    ))
}

/// Changes or removes an agent.
pub(super) fn change(state: &State, command: &Command, change: &ChangeAgent) -> Decision {
    let key = (command.tenant.clone(), change.agent.clone());
    let known = state.agents.get(&key).ok_or(LedgerError::NotFound("agent"))?;
    let mut row = known.clone();
    let mut kind = RecordKind::AgentUpdated;
    match &change.change {
        AgentChange::Patch(spec) => {
            row.agent = spec
                .apply(&row.agent)
                .map_err(|(pointer, message)| LedgerError::Invalid(pointer, message))?;
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
        AgentChange::Secrets { from, to } => {
            if row.secrets != *from {
                return Err(LedgerError::Conflict(
                    "the agent's secrets were changed meanwhile".to_owned(),
                ));
            }
            row.secrets.clone_from(to);
            kind = RecordKind::SecretRotated;
        }
        AgentChange::DisableDelivery { url } => {
            if row.agent.delivery.url.as_ref() != Some(url) {
                return Ok((Vec::new(), Reply::Agent(row)));
            }
            row.agent.delivery.disabled = true;
            kind = RecordKind::EndpointDisabled;
        }
        AgentChange::Delete => {
            return Ok((
                vec![
                    Change::NoAgent(key),
                    about(command, RecordKind::AgentDeleted, Some(&change.agent)),
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
    Ok((
        vec![Change::Agent(row.clone()), about(command, kind, Some(&change.agent))],
        Reply::Agent(row),
    ))
}

/// Makes a key.
pub(super) fn create_key(command: &Command, row: &KeyRow) -> (Vec<Change>, Reply) {
    (
        vec![Change::Key(row.clone()), about(command, RecordKind::KeyCreated, row.agent.as_ref())],
        Reply::Key(row.clone()),
    )
}

/// Revokes a key; revoking it again changes nothing.
pub(super) fn revoke_key(state: &State, command: &Command, key_id: &str) -> Decision {
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
