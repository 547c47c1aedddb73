//! `caps`: rolling caps of a tenant or an agent, and their usage.
//!
//! A row, and how it changes:
//!
//! - `caps`: a rolling cap of a tenant or an agent, and its usage as JSON. Updated.

use crate::store::driver::in_memory;

use crate::store::query::{Row, Statement};
use crate::store::rows::{get, micros, parse, unreadable};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::cap::{Cap, CapKey, Window};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::money::Usd;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("caps", "SELECT, INSERT, UPDATE, DELETE")];

table! {
    CAPS: Cap = "caps" by 3 {
        "tenant" Text: |cap| &cap.tenant,
        "agent_id" Text: |cap| of(cap.agent.as_ref()),
        "window_s" Long: |cap| cap.window.seconds(),
        "usd_nanos" Long: |cap| cap.usd.map(|usd| usd.0),
        "mark" Long: |cap| cap.mark,
        "books" Text: |cap| cap.usage.to_text(),
        "updated_at" Long: |cap| cap.updated_at,
    }
}

/// The agent as its column has it: empty for the tenant's own caps.
pub(in crate::store) fn of(agent: Option<&AgentId>) -> &str {
    agent.map_or("", AgentId::as_str)
}

fn decode(row: &dyn Row) -> Result<Cap> {
    let agent: String = get(row, "agent_id")?;
    let agent = if agent.is_empty() { None } else { Some(parse(row, "agent_id")?) };
    Ok(Cap {
        tenant: parse(row, "tenant")?,
        agent,
        window: Window::of_seconds(get(row, "window_s")?)
            .map_err(|err| unreadable("window_s", err))?,
        usd: get::<Option<i64>>(row, "usd_nanos")?.map(Usd),
        mark: get(row, "mark")?,
        usage: serde_json::from_str(get(row, "books")?).map_err(|err| unreadable("books", err))?,
        updated_at: micros(row, "updated_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let cap = decode(row)?;
    state.caps.insert(cap.key(), cap);
    Ok(())
}

/// Deletes a cap that was lifted.
pub(in crate::store) fn lift((tenant, agent, window): &CapKey) -> Statement<'static> {
    Statement::new("DELETE FROM caps WHERE tenant = $1 AND agent_id = $2 AND window_s = $3")
        .bind(tenant.to_string())
        .bind(of(agent.as_ref()).to_owned())
        .bind(window.seconds())
}

impl Store {
    /// Tenants that have caps, or spending under the default caps.
    pub async fn list_capped(&self) -> Result<Vec<TenantId>> {
        in_memory!(self, db => db.list_capped());
        let capped = Statement::new("SELECT DISTINCT tenant FROM caps");
        self.list(capped, |row| parse(row, "tenant")).await
    }

    /// A tenant's caps: its own first, then by agent; each by window.
    pub async fn list_caps(&self, tenant: &TenantId) -> Result<Vec<Cap>> {
        in_memory!(self, db => db.list_caps(tenant));
        let text =
            format!("SELECT {} FROM caps WHERE tenant = $1 ORDER BY agent_id, window_s", CAPS.list);
        self.list(Statement::new(text).bind(tenant), decode).await
    }

    /// The tenant's own caps and those of the given agents, without locks.
    pub async fn list_caps_of(&self, tenant: &TenantId, agents: &[AgentId]) -> Result<Vec<Cap>> {
        in_memory!(self, db => db.list_caps_of(tenant, agents));
        let text = format!(
            "SELECT {} FROM caps WHERE tenant = $1 AND {} ORDER BY agent_id, window_s",
            CAPS.list,
            self.dialect().is_among("agent_id", "$2"),
        );
        let whose = std::iter::once("").chain(agents.iter().map(AgentId::as_str));
        self.list(Statement::new(text).bind(tenant).bind_list(whose), decode).await
    }
}
