//! Create a subscription to events.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::subscriptions::record;
use handoffd_domain::event::{Position, Subscriber};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::events::{CursorChange, SubscriptionRow};

/// A subscription to make.
#[derive(Debug, Clone)]
pub struct CreateSubscription {
    pub row: SubscriptionRow,
    /// The place behind which it is told; behind the record of it where there is none.
    pub from: Option<Position>,
    /// The content of the record.
    pub content: RecordContent,
}

impl Command for CreateSubscription {
    type Reply = SubscriptionRow;
    const NAME: &'static str = "create_subscription";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.subscription(self.row.id);
    }

    /// Makes a subscription; it gets the events after a place, or after the record of it.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let row = &self.row;
        if state.subscriptions.contains_key(&(call.tenant.clone(), row.id)) {
            return Err(LedgerError::Conflict(format!("subscription {} exists", row.id)));
        }
        let cursor = (call.tenant.clone(), Subscriber::Subscription(row.id));
        let mut changes = vec![
            Change::Subscription(Box::new(row.clone())),
            Change::Record(Box::new(record(call, RecordKind::SubscriptionCreated, &self.content))),
            Change::Cursor(cursor.clone(), CursorChange::Start(self.from)),
        ];
        if !row.subscription.enabled {
            changes.push(Change::Cursor(cursor, CursorChange::Active(false)));
        }
        Ok((changes, row.clone()))
    }
}
