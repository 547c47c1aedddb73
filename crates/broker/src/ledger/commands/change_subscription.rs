//! Change or remove a subscription.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::subscriptions::record;
use handoffd_domain::event::{Position, Subscriber, SubscriptionSpec};
use handoffd_domain::ids::SubscriptionId;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::events::{CursorChange, SubscriptionRow};

#[derive(Debug, Clone)]
pub struct ChangeSubscription {
    pub id: SubscriptionId,
    pub change: SubscriptionChange,
    /// The content of the record.
    pub content: RecordContent,
}

/// A change of a subscription.
#[derive(Debug, Clone)]
pub enum SubscriptionChange {
    /// Set what the patch names.
    Patch(Box<SubscriptionSpec>),
    /// Replace its sealed secrets, if they still are what the caller saw.
    Secrets {
        from: String,
        /// As they will be.
        to: String,
    },
    /// Sends it the events behind that place once more.
    Replay(Position),
    Delete,
}

impl Command for ChangeSubscription {
    type Reply = Option<SubscriptionRow>;
    const NAME: &'static str = "change_subscription";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.subscription(self.id);
    }

    /// Changes or removes a subscription.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.id);
        let before = state.subscriptions.get(&key).ok_or(LedgerError::NotFound("subscription"))?;
        let cursor = (call.tenant.clone(), Subscriber::Subscription(self.id));
        let mut row = before.clone();
        let (kind, moved) = match &self.change {
            SubscriptionChange::Patch(spec) => {
                row.subscription = spec
                    .apply(&row.subscription)
                    .map_err(|(pointer, message)| LedgerError::Invalid(pointer, message))?;
                // A new address is tried at once, whatever was wrong with the old one.
                let stirs = row.subscription.enabled != before.subscription.enabled
                    || row.subscription.url != before.subscription.url;
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
                let draft = record(call, RecordKind::SubscriptionReplayed, &self.content);
                let changes = vec![
                    Change::Record(Box::new(draft)),
                    Change::Cursor(cursor, CursorChange::Rewind(*to)),
                ];
                return Ok((changes, Some(row)));
            }
            SubscriptionChange::Delete => {
                let draft = record(call, RecordKind::SubscriptionDeleted, &self.content);
                let changes = vec![
                    Change::NoSubscription(key),
                    Change::Record(Box::new(draft)),
                    Change::Cursor(cursor, CursorChange::Remove),
                ];
                return Ok((changes, None));
            }
        };
        if row == *before {
            return Ok((Vec::new(), Some(row)));
        }
        row.updated_at = call.at;
        let mut changes = vec![
            Change::Subscription(Box::new(row.clone())),
            Change::Record(Box::new(record(call, kind, &self.content))),
        ];
        changes.extend(moved.map(|change| Change::Cursor(cursor, change)));
        Ok((changes, Some(row)))
    }
}
