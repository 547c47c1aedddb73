//! `agents`: an agent as JSON, and its sealed secrets.
//!
//! A row, and how it changes:
//!
//! - `agents`: an agent as JSON, and its sealed secrets. Updated.
//! - `agent_changes`: the number of changes that a tenant's agents have seen, and the number at which each agent
//!   changed last; by trigger. Updated.
//! - `paused_agents`: a paused agent; by trigger. Deleted when that ends.

use crate::store::driver::in_memory;
use crate::store::query::{Row, Statement, Texts, unreadable};
use crate::store::rows::{get, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{AgentRow, BatchState, Result, Store};
use handoffd_domain::ids::{AgentId, TenantId};

/// Rights of the serving role. Triggers keep the other two, as the owner.
pub(super) const RIGHTS: Rights = &[
    ("agents", "SELECT, INSERT, UPDATE, DELETE"),
    ("agent_changes", "SELECT"),
    ("paused_agents", "SELECT"),
];

/// The columns, as a statement lists them.
pub(in crate::store) const AGENT: &str = AGENTS.list;

table! {
    AGENTS: AgentRow = "agents" by 2 {
        "tenant" Text: |row| &row.tenant,
        "agent_id" Text: |row| &row.agent.agent_id,
        // Plain data, whose JSON cannot fail.
        "doc" Text: |row| serde_json::to_string(&row.agent).unwrap_or_default(),
        "secrets" Text: |row| &row.secrets,
        "created_at" Long: |row| row.created_at,
        "updated_at" Long: |row| row.updated_at,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<AgentRow> {
    let mut agent: handoffd_domain::agent::Agent =
        serde_json::from_str(get(row, "doc")?).map_err(|err| unreadable("doc", err))?;
    // The row is found by its column, whatever the document says.
    agent.agent_id = parse(row, "agent_id")?;
    Ok(AgentRow {
        tenant: parse(row, "tenant")?,
        agent,
        secrets: get(row, "secrets")?,
        created_at: micros(row, "created_at")?,
        updated_at: micros(row, "updated_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.agents.insert((row.tenant.clone(), row.agent.agent_id.clone()), row);
    Ok(())
}

/// An agent row joined to its change; `None` for a deleted agent.
fn changed(row: &dyn Row) -> Result<(AgentId, Option<AgentRow>)> {
    let there = get::<Option<&str>>(row, "doc")?.is_some();
    Ok((parse(row, "agent_id")?, if there { Some(decode(row)?) } else { None }))
}

/// The sealed secrets of all rows, with `id`; locked where the database locks rows.
pub(in crate::store) const SECRETS: Texts = Texts {
    sqlite: "SELECT tenant, agent_id AS id, secrets FROM agents ORDER BY tenant, agent_id",
    postgres: "SELECT tenant, agent_id AS id, secrets FROM agents ORDER BY tenant, agent_id FOR UPDATE",
};

/// Replaces the sealed secrets of an agent.
pub(in crate::store) fn set_secrets(
    tenant: &TenantId,
    id: String,
    secrets: String,
) -> Statement<'static> {
    let set = Statement::new("UPDATE agents SET secrets = $1 WHERE tenant = $2 AND agent_id = $3");
    set.bind(secrets).bind(tenant.to_string()).bind(id)
}

impl Store {
    /// All agents of a tenant, by id.
    pub async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>> {
        in_memory!(self, db => db.list_agents(tenant));
        let text = format!("SELECT {AGENT} FROM agents WHERE tenant = $1 ORDER BY agent_id");
        self.list(Statement::new(text).bind(tenant), decode).await
    }

    /// Number of changes of a tenant's agents by any broker.
    pub async fn count_agent_changes(&self, tenant: &TenantId) -> Result<i64> {
        in_memory!(self, db => db.count_agent_changes(tenant));
        let count = Statement::new(
            "SELECT revision FROM agent_changes WHERE tenant = $1 AND agent_id = ''",
        );
        Ok(self.find(count.bind(tenant), |row| get(row, "revision")).await?.unwrap_or(0))
    }

    /// Agents changed after that number of changes, by id, with their current row; `None` for a deleted one.
    /// Later changes may be included.
    pub async fn list_changed_agents(
        &self,
        tenant: &TenantId,
        after: i64,
    ) -> Result<Vec<(AgentId, Option<AgentRow>)>> {
        in_memory!(self, db => db.list_changed_agents(tenant, after));
        let list = Statement::new(
            "SELECT c.tenant, c.agent_id, a.doc, a.secrets, a.created_at, a.updated_at \
             FROM agent_changes AS c LEFT JOIN agents AS a USING (tenant, agent_id) \
             WHERE c.tenant = $1 AND c.revision > $2 AND c.agent_id <> '' ORDER BY c.agent_id",
        );
        self.list(list.bind(tenant).bind(after), changed).await
    }
}
