//! Register an agent, with its key.

use crate::ledger::agents::about;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use handoffd_domain::event::Subscriber;
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::events::CursorChange;
use handoffd_store::store::{AgentRow, BatchState, KeyRow};

/// An agent to register.
#[derive(Debug, Clone)]
pub struct CreateAgent {
    pub row: AgentRow,
    pub key: KeyRow,
}

impl Command for CreateAgent {
    type Reply = AgentRow;
    const NAME: &'static str = "create_agent";
    const CHANGES_STATES: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.agent(&self.row.agent.agent_id);
    }

    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let id = &self.row.agent.agent_id;
        if state.agents.contains_key(&(call.tenant.clone(), id.clone())) {
            return Err(LedgerError::Conflict(format!("agent {id} exists")));
        }
        let mut changes = vec![
            Change::Agent(self.row.clone()),
            Change::Key(self.key.clone()),
            about(call, RecordKind::AgentCreated, Some(id)),
        ];
        if self.row.agent.callback_url.is_some() {
            let cursor = (call.tenant.clone(), Subscriber::Agent(id.clone()));
            changes.push(Change::Cursor(cursor, CursorChange::Start(None)));
        }
        Ok((changes, self.row.clone()))
    }
}
