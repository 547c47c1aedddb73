//! Tell a subscriber no more.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::subscriptions::record;
use handoffd_domain::event::{Alert, Event, EventType, Subscriber};
use handoffd_domain::ids::AgentId;
use handoffd_evidence::record::{RecordContent, RecordKind, RecordParty};
use handoffd_store::store::BatchState;
use handoffd_store::store::events::{CursorChange, SubscriptionRow};

/// A subscriber that is no longer told.
#[derive(Debug, Clone)]
pub struct DisableSubscriber {
    pub subscriber: Subscriber,
    /// The URL that failed; if it has changed meanwhile, the command does nothing.
    pub url: String,
    /// The reason, a code.
    pub reason: &'static str,
    /// The content of the record.
    pub content: RecordContent,
}

impl Command for DisableSubscriber {
    type Reply = ();
    const NAME: &'static str = "disable_subscriber";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        match &self.subscriber {
            Subscriber::Subscription(id) => rows.subscription(*id),
            Subscriber::Agent(agent) => rows.agent(agent),
        }
    }

    /// Stops telling a subscriber whose endpoint is gone or has failed for too long.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let mut draft = record(call, RecordKind::SubscriptionDisabled, &self.content);
        draft.reason = Some(self.reason.to_owned());
        let (row, event) = match &self.subscriber {
            Subscriber::Subscription(id) => {
                let stored = state.subscriptions.get(&(call.tenant.clone(), *id));
                let Some(mut row) = stored
                    .filter(|row| row.subscription.enabled && row.subscription.url == self.url)
                    .cloned()
                else {
                    return Ok((Vec::new(), ()));
                };
                row.subscription.enabled = false;
                row.subscription.disabled_reason = Some(self.reason.to_owned());
                row.updated_at = call.at;
                let event = Event::new(EventType::AlertRaised, call.tenant.clone(), call.at)
                    .with("alert", Alert::SubscriptionDisabled.as_str())
                    .with("subscriptionId", id.to_string());
                (Some(row), event)
            }
            Subscriber::Agent(agent) => {
                let stored = state.agents.get(&(call.tenant.clone(), agent.clone()));
                if stored.is_none_or(|row| row.agent.callback_url.as_ref() != Some(&self.url)) {
                    return Ok((Vec::new(), ()));
                }
                draft.to = Some(party(agent));
                let kind = EventType::EndpointDisabled;
                let event = Event::of_agent(kind, call.tenant.clone(), agent, call.at)
                    .with("endpoint", "callback");
                (None, event)
            }
        };
        let cursor = (call.tenant.clone(), self.subscriber.clone());
        let mut changes: Vec<Change> = row
            .map(|row: SubscriptionRow| Change::Subscription(Box::new(row)))
            .into_iter()
            .collect();
        changes.push(Change::Record(Box::new(draft)));
        changes.push(Change::Cursor(cursor, CursorChange::Active(false)));
        changes.push(publish(event.with("reason", self.reason)));
        Ok((changes, ()))
    }
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
