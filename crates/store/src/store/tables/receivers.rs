//! `receivers_seen`, `receiver_breakers`, `receiver_windows`: receivers as brokers notice them. They steer nothing.
//!
//! A broker writes what it noticed since its last write, so that rows of several brokers add up.
//!
//! A row, and how it changes:
//!
//! - `receivers_seen`: a receiver: the last poll, success and failure that any broker noticed. Updated; deleted with
//!   the agent, by trigger.
//! - `receiver_breakers`: the circuit breaker that a broker has for a receiver, from its first opening on. Updated;
//!   deleted with the broker's row in `brokers`, and with the agent.
//! - `receiver_windows`: five minutes of a receiver: attempts, failures, time-outs, durations by size. Added to;
//!   deleted after a day, and with the agent.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::store::query::{Dialect, Row, Statement, unreadable};
use crate::store::rows::{get, micros, micros_opt, parse, state_opt};
use crate::store::table::Rights;
use crate::store::{ReceiverKey, Result, Store};
use handoffd_domain::histogram::Histogram;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::receiver::{AttemptCounts, BreakerState, Windows};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[
    ("receivers_seen", "SELECT, INSERT, UPDATE, DELETE"),
    ("receiver_breakers", "SELECT, INSERT, UPDATE, DELETE"),
    ("receiver_windows", "SELECT, INSERT, UPDATE, DELETE"),
];

/// The last that any broker noticed of a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenReceiver {
    /// Its last request for its inbox.
    pub last_poll_at: Option<Micros>,
    /// The last attempt that it answered; where it pulls, its last verdict.
    pub last_success_at: Option<Micros>,
    pub last_failure_at: Option<Micros>,
    /// Code of the last failure.
    pub last_failure: Option<String>,
}

/// The circuit breaker that a broker has for a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerRow {
    pub receiver: ReceiverKey,
    pub broker: String,
    /// `None` where nothing was tried for long after its cool-down.
    pub state: Option<BreakerState>,
    /// When it left the state closed, or came back to it.
    pub since: Micros,
    /// Code of the last failure that this broker saw.
    pub reason: Option<String>,
}

/// All that a broker noticed since its last write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiverNotes {
    pub seen: BTreeMap<ReceiverKey, SeenReceiver>,
    pub breakers: Vec<BreakerRow>,
    /// Counts that are added to those in the store.
    pub windows: BTreeMap<ReceiverKey, Windows>,
}

/// The deletion of the breakers of all brokers.
pub(in crate::store) const FORGET_BREAKERS: &str = "DELETE FROM receiver_breakers";

/// The deletion of the breakers of the broker `$1`.
pub(in crate::store) const FORGET_BREAKERS_OF: &str =
    "DELETE FROM receiver_breakers WHERE broker = $1";

/// The source of rows that are given as `$1`, a JSON list of lists.
const fn given(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "json_each($1)",
        Dialect::Postgres => "json_array_elements($1::json) AS n(value)",
    }
}

/// Adds up two JSON lists of counts, item by item.
const fn added(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => {
            "(SELECT json_group_array(o.value + (excluded.durations ->> o.key)) \
              FROM json_each(w.durations) AS o)"
        }
        Dialect::Postgres => {
            "(SELECT json_agg(o.value::bigint + n.value::bigint ORDER BY o.place)::text \
              FROM json_array_elements_text(w.durations::json) WITH ORDINALITY AS o(value, place) \
              JOIN json_array_elements_text(excluded.durations::json) WITH ORDINALITY AS n(value, place) \
                ON n.place = o.place)"
        }
    }
}

/// The later of a column and its new value.
fn later(column: &str) -> String {
    format!(
        "{column} = CASE WHEN s.{column} IS NULL OR excluded.{column} > s.{column} \
         THEN excluded.{column} ELSE s.{column} END"
    )
}

fn note_seen(dialect: Dialect, seen: &BTreeMap<ReceiverKey, SeenReceiver>) -> Statement<'static> {
    let at = |at: Option<Micros>| at.map(|at| at.0);
    let rows: Vec<Value> = seen
        .iter()
        .map(|((tenant, agent), row)| {
            json!([
                tenant.as_str(),
                agent.as_str(),
                at(row.last_poll_at),
                at(row.last_success_at),
                at(row.last_failure_at),
                row.last_failure
            ])
        })
        .collect();
    let text = format!(
        "INSERT INTO receivers_seen AS s \
           (tenant, agent_id, last_poll_at, last_success_at, last_failure_at, last_failure) \
         SELECT value ->> 0, value ->> 1, CAST(value ->> 2 AS bigint), CAST(value ->> 3 AS bigint), \
           CAST(value ->> 4 AS bigint), value ->> 5 FROM {} WHERE TRUE \
         ON CONFLICT (tenant, agent_id) DO UPDATE SET {}, {}, \
           last_failure = CASE WHEN s.last_failure_at IS NULL OR excluded.last_failure_at > s.last_failure_at \
             THEN excluded.last_failure ELSE s.last_failure END, {}",
        given(dialect),
        later("last_poll_at"),
        later("last_success_at"),
        later("last_failure_at"),
    );
    Statement::new(text).bind(Value::Array(rows).to_string())
}

fn note_breakers(dialect: Dialect, breakers: &[BreakerRow]) -> Statement<'static> {
    let rows: Vec<Value> = breakers
        .iter()
        .map(|row| {
            let (tenant, agent) = &row.receiver;
            let state = row.state.map(BreakerState::as_str);
            json!([tenant.as_str(), agent.as_str(), row.broker, state, row.since.0, row.reason])
        })
        .collect();
    let text = format!(
        "INSERT INTO receiver_breakers AS b (tenant, agent_id, broker, state, since, reason) \
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, CAST(value ->> 4 AS bigint), value ->> 5 \
         FROM {} WHERE TRUE \
         ON CONFLICT (tenant, agent_id, broker) DO UPDATE SET state = excluded.state, since = excluded.since, \
           reason = COALESCE(excluded.reason, b.reason)",
        given(dialect),
    );
    Statement::new(text).bind(Value::Array(rows).to_string())
}

fn note_windows(dialect: Dialect, windows: &BTreeMap<ReceiverKey, Windows>) -> Statement<'static> {
    let each = windows.iter().flat_map(|(receiver, windows)| {
        windows.iter().map(move |(at, counts)| (receiver, *at, counts))
    });
    let rows: Vec<Value> = each
        .map(|((tenant, agent), at, counts)| {
            let AttemptCounts { attempts, failures, timeouts, durations } = counts;
            let durations = json!(&durations.counts()[..]);
            json!([tenant.as_str(), agent.as_str(), at.0, attempts, failures, timeouts, durations])
        })
        .collect();
    let text = format!(
        "INSERT INTO receiver_windows AS w \
           (tenant, agent_id, begins_at, attempts, failures, timeouts, durations) \
         SELECT value ->> 0, value ->> 1, CAST(value ->> 2 AS bigint), CAST(value ->> 3 AS bigint), \
           CAST(value ->> 4 AS bigint), CAST(value ->> 5 AS bigint), value ->> 6 FROM {} WHERE TRUE \
         ON CONFLICT (tenant, agent_id, begins_at) DO UPDATE SET attempts = w.attempts + excluded.attempts, \
           failures = w.failures + excluded.failures, timeouts = w.timeouts + excluded.timeouts, \
           durations = {}",
        given(dialect),
        added(dialect),
    );
    Statement::new(text).bind(Value::Array(rows).to_string())
}

fn seen(row: &dyn Row) -> Result<(AgentId, SeenReceiver)> {
    let seen = SeenReceiver {
        last_poll_at: micros_opt(row, "last_poll_at")?,
        last_success_at: micros_opt(row, "last_success_at")?,
        last_failure_at: micros_opt(row, "last_failure_at")?,
        last_failure: get(row, "last_failure")?,
    };
    Ok((parse(row, "agent_id")?, seen))
}

fn breaker(row: &dyn Row) -> Result<BreakerRow> {
    Ok(BreakerRow {
        receiver: (parse(row, "tenant")?, parse(row, "agent_id")?),
        broker: get(row, "broker")?,
        state: state_opt(row, "state", BreakerState::parse)?,
        since: micros(row, "since")?,
        reason: get(row, "reason")?,
    })
}

fn count(row: &dyn Row, column: &str) -> Result<u64> {
    let number: i64 = get(row, column)?;
    u64::try_from(number).map_err(|err| unreadable(column, err))
}

fn window(row: &dyn Row) -> Result<(AgentId, Micros, AttemptCounts)> {
    let durations = serde_json::from_str::<Vec<u64>>(get(row, "durations")?)
        .map_err(|err| unreadable("durations", err))?;
    let durations = durations
        .try_into()
        .map_err(|list: Vec<u64>| unreadable("durations", format!("{} counts", list.len())))?;
    let counts = AttemptCounts {
        attempts: count(row, "attempts")?,
        failures: count(row, "failures")?,
        timeouts: count(row, "timeouts")?,
        durations: Histogram::of(durations),
    };
    Ok((parse(row, "agent_id")?, micros(row, "begins_at")?, counts))
}

impl Store {
    /// Writes what a broker noticed: one statement a table, none for an empty part. The windows come last: where an earlier
    /// statement fails, all of it may be repeated.
    pub async fn note_receivers(&self, notes: &ReceiverNotes) -> Result<()> {
        if !notes.seen.is_empty() {
            self.change(note_seen(self.dialect(), &notes.seen)).await?;
        }
        if !notes.breakers.is_empty() {
            self.change(note_breakers(self.dialect(), &notes.breakers)).await?;
        }
        if !notes.windows.is_empty() {
            self.change(note_windows(self.dialect(), &notes.windows)).await?;
        }
        Ok(())
    }

    /// The last that was noticed of these receivers.
    pub async fn list_seen(
        &self,
        tenant: &TenantId,
        agents: &[AgentId],
    ) -> Result<Vec<(AgentId, SeenReceiver)>> {
        let text = format!(
            "SELECT agent_id, last_poll_at, last_success_at, last_failure_at, last_failure \
             FROM receivers_seen WHERE tenant = $1 AND {}",
            self.dialect().is_among("agent_id", "$2")
        );
        let agents = agents.iter().map(AgentId::as_str);
        self.list(Statement::new(text).bind(tenant).bind_list(agents), seen).await
    }

    /// The breakers of brokers that live, where their state is known. `broker` is the one that asks.
    pub async fn list_breakers(&self, tenant: &TenantId, broker: &str) -> Result<Vec<BreakerRow>> {
        let list = Statement::new(
            "SELECT b.tenant, b.agent_id, b.broker, b.state, b.since, b.reason \
             FROM receiver_breakers AS b WHERE b.tenant = $1 AND b.state IS NOT NULL \
               AND (b.broker = $2 OR EXISTS (SELECT 1 FROM brokers AS l WHERE l.broker = b.broker)) \
             ORDER BY b.agent_id, b.broker",
        );
        self.list(list.bind(tenant).bind(broker), breaker).await
    }

    /// The windows of these receivers that begin at `since` or later.
    pub async fn list_windows(
        &self,
        tenant: &TenantId,
        agents: &[AgentId],
        since: Micros,
    ) -> Result<BTreeMap<AgentId, Windows>> {
        let text = format!(
            "SELECT agent_id, begins_at, attempts, failures, timeouts, durations FROM receiver_windows \
             WHERE tenant = $1 AND {} AND begins_at >= $3",
            self.dialect().is_among("agent_id", "$2")
        );
        let agents = agents.iter().map(AgentId::as_str);
        let list = Statement::new(text).bind(tenant).bind_list(agents).bind(since);
        let mut windows = BTreeMap::<AgentId, Windows>::new();
        for (agent, at, counts) in self.list(list, window).await? {
            windows.entry(agent).or_default().insert(at, counts);
        }
        Ok(windows)
    }

    /// Deletes windows that begin before `before`, and other rows of agents that are gone: a broker may write one after the
    /// deletion of its agent. Returns the number of rows.
    pub async fn forget_receivers(&self, before: Micros) -> Result<u64> {
        let windows = Statement::new("DELETE FROM receiver_windows WHERE begins_at < $1");
        let mut gone = self.change(windows.bind(before)).await?;
        for table in ["receivers_seen", "receiver_breakers"] {
            let text = format!(
                "DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM agents AS a \
                 WHERE a.tenant = {table}.tenant AND a.agent_id = {table}.agent_id)"
            );
            gone += self.change(Statement::new(text)).await?;
        }
        Ok(gone)
    }
}
