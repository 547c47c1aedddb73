//! Decisions on who is told of events.

use super::command::{
    ChangeSubscription, Command, CreateSubscription, DisableSubscriber, LedgerError, Reply,
    SubscriptionChange,
};
use super::draft::publish;
use super::plan::{Change, Decided, Decision};
use handoffd_core::domain::event::{Alert, Event, EventType, Subscriber};
use handoffd_core::domain::ids::AgentId;
use handoffd_core::evidence::record::{RecordContent, RecordDraft, RecordKind, RecordParty};
use handoffd_store::store::BatchState;
use handoffd_store::store::events::{CursorChange, SubscriptionRow};

fn record(command: &Command, kind: RecordKind, content: &RecordContent) -> RecordDraft {
    let mut draft =
        RecordDraft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
    draft.content = Some(content.clone());
    draft
}

/// Makes a subscription; it is told of what comes after a place, or after the record of it.
pub(super) fn create(
    state: &BatchState,
    command: &Command,
    create: &CreateSubscription,
) -> Decision {
    let row = &create.row;
    if state.subscriptions.contains_key(&(command.tenant.clone(), row.id)) {
        return Err(LedgerError::Conflict(format!("subscription {} exists", row.id)));
    }
    let cursor = (command.tenant.clone(), Subscriber::Subscription(row.id));
    let mut changes = vec![
        Change::Subscription(Box::new(row.clone())),
        Change::Record(Box::new(record(command, RecordKind::SubscriptionCreated, &create.content))),
        Change::Cursor(cursor.clone(), CursorChange::Start(create.from)),
    ];
    if !row.subscription.enabled {
        changes.push(Change::Cursor(cursor, CursorChange::Active(false)));
    }
    Ok((changes, Reply::Subscription(Box::new(row.clone()))))
}

/// Changes or removes a subscription.
pub(super) fn change(
    state: &BatchState,
    command: &Command,
    change: &ChangeSubscription,
) -> Decision {
    let key = (command.tenant.clone(), change.id);
    let known = state.subscriptions.get(&key).ok_or(LedgerError::NotFound("subscription"))?;
    let cursor = (command.tenant.clone(), Subscriber::Subscription(change.id));
    let mut row = known.clone();
    let (kind, moved) = match &change.change {
        SubscriptionChange::Patch(spec) => {
            row.subscription = spec
                .apply(&row.subscription)
                .map_err(|(pointer, message)| LedgerError::Invalid(pointer, message))?;
            // A new address is tried at once, whatever was wrong with the old one.
            let stirs = row.subscription.enabled != known.subscription.enabled
                || row.subscription.url != known.subscription.url;
            let active = CursorChange::Active(row.subscription.enabled);
            (RecordKind::SubscriptionUpdated, stirs.then_some(active))
        }
        SubscriptionChange::Secrets { from, to } => {
            if row.secrets != *from {
                let why = "the subscription's secrets were changed meanwhile";
                return Err(LedgerError::Conflict(why.to_owned()));
            }
            row.secrets.clone_from(to);
            (RecordKind::SecretRotated, None)
        }
        SubscriptionChange::Replay(to) => {
            let draft = record(command, RecordKind::SubscriptionReplayed, &change.content);
            let changes = vec![
                Change::Record(Box::new(draft)),
                Change::Cursor(cursor, CursorChange::Rewind(*to)),
            ];
            return Ok((changes, Reply::Subscription(Box::new(row))));
        }
        SubscriptionChange::Delete => {
            let draft = record(command, RecordKind::SubscriptionDeleted, &change.content);
            let changes = vec![
                Change::NoSubscription(key),
                Change::Record(Box::new(draft)),
                Change::Cursor(cursor, CursorChange::Remove),
            ];
            return Ok((changes, Reply::Deleted));
        }
    };
    if row == *known {
        return Ok((Vec::new(), Reply::Subscription(Box::new(row))));
    }
    row.updated_at = command.at;
    let mut changes = vec![
        Change::Subscription(Box::new(row.clone())),
        Change::Record(Box::new(record(command, kind, &change.content))),
    ];
    changes.extend(moved.map(|change| Change::Cursor(cursor, change)));
    Ok((changes, Reply::Subscription(Box::new(row))))
}

/// Stops telling a subscriber whose endpoint is gone or has failed for too long.
pub(super) fn disable(
    state: &BatchState,
    command: &Command,
    disable: &DisableSubscriber,
) -> Decided {
    let mut draft = record(command, RecordKind::SubscriptionDisabled, &disable.content);
    draft.reason = Some(disable.reason.to_owned());
    let (row, event) = match &disable.subscriber {
        Subscriber::Subscription(id) => {
            let known = state.subscriptions.get(&(command.tenant.clone(), *id));
            let Some(mut row) = known
                .filter(|row| row.subscription.enabled && row.subscription.url == disable.url)
                .cloned()
            else {
                return (Vec::new(), Reply::Done);
            };
            row.subscription.enabled = false;
            row.subscription.disabled_reason = Some(disable.reason.to_owned());
            row.updated_at = command.at;
            let event = Event::new(EventType::AlertRaised, command.tenant.clone(), command.at)
                .with("alert", Alert::SubscriptionDisabled.as_str())
                .with("subscriptionId", id.to_string());
            (Some(row), event)
        }
        Subscriber::Agent(agent) => {
            let known = state.agents.get(&(command.tenant.clone(), agent.clone()));
            if known.is_none_or(|row| row.agent.callback_url.as_ref() != Some(&disable.url)) {
                return (Vec::new(), Reply::Done);
            }
            draft.to = Some(party(agent));
            let kind = EventType::EndpointDisabled;
            let event = Event::of_agent(kind, command.tenant.clone(), agent, command.at)
                .with("endpoint", "callback");
            (None, event)
        }
    };
    let cursor = (command.tenant.clone(), disable.subscriber.clone());
    let mut changes: Vec<Change> =
        row.map(|row: SubscriptionRow| Change::Subscription(Box::new(row))).into_iter().collect();
    changes.push(Change::Record(Box::new(draft)));
    changes.push(Change::Cursor(cursor, CursorChange::Active(false)));
    changes.push(publish(event.with("reason", disable.reason)));
    (changes, Reply::Done)
}

fn party(agent: &AgentId) -> RecordParty {
    RecordParty {
        agent_id: Some(agent.clone()),
        agent_type: None,
        agent_version: None,
        execution_id: None,
        registered_version: None,
    }
}
