//! The planner's statistics, and whether its plans may be cached.
//!
//! A new table has no statistics until the server's own autovacuum, once a minute. Until then the planner may read
//! all of a tenant's handoffs to find one, since an index that begins with the tenant seems as good as another.
//!
//! Planning for one handoff takes longer than executing. A cached plan is made for ten rows: for a table that was
//! small at that time it may read the whole table, and continue so while the table grows, until it is analysed. So
//! plans are cached once the tables are known to be large, and not during a backlog: the outbox is usually empty, and
//! its statistics are meaningless.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use super::failure::failed;
use crate::store::{Needs, Result};

/// For so many handoffs a plan that was made for ten is as good as their own: it looks each of them up.
const MOST: usize = 64;

/// Rows of which the planner has to know, so that it looks ten of them up rather than read all.
const LARGE: f32 = 1_000.0;

/// Waiting handoffs up to which reading them all does no harm.
const BACKLOG: i64 = 1_000;

/// By how much a table that is not known to be large has to grow for another look: 64 KiB of one that is new.
const GROWN: i64 = 4;
const NEW_PAGES: i64 = 2;

/// Tables that grow with every handoff, and whether they can be looked at: their owner may.
const TABLES: &str = "SELECT oid::regclass::text, reltuples, relpages::bigint, \
       pg_relation_size(oid) / current_setting('block_size')::bigint, \
       pg_has_role(relowner, 'USAGE') \
     FROM pg_class WHERE oid IN ('tasks'::regclass, 'handoffs'::regclass, 'task_edges'::regclass, \
       'contents'::regclass, 'checkpoints'::regclass, 'events'::regclass, 'idempotency_keys'::regclass)";

/// Tables, among [`TABLES`], in which every handoff is looked up.
const LOOKED_UP: [&str; 3] = ["tasks", "handoffs", "task_edges"];
const KEYED: &str = "idempotency_keys";

const WAITING: &str = "SELECT count(*) FROM (SELECT FROM outbox LIMIT $1) AS o";

/// A table's statistics and its current size.
#[derive(Debug)]
struct TableStatistics {
    name: String,
    /// Negative where the table was never analysed.
    rows: f32,
    pages: i64,
    now: i64,
    own: bool,
}

impl TableStatistics {
    fn has_outgrown(&self) -> bool {
        self.own && self.rows < LARGE && self.now >= GROWN * self.pages.max(NEW_PAGES)
    }
}

/// Planning of a batch's statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanCaching {
    /// Anew for each execution, for the actual number of rows.
    Fitted,
    /// Once a connection, for any number of rows, and anew where a table was analysed since. Left to itself the
    /// server never keeps such a plan, as it takes ten rows for more than the one that there is.
    Kept,
}

/// The findings of the last check.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// The tables in which every handoff is looked up are known to be large, and there is no backlog.
    kept: AtomicBool,
    /// The idempotency keys' table is known to be large.
    keyed: AtomicBool,
}

impl Statistics {
    /// See [`crate::store::Store::tend`].
    pub(super) async fn tend(&self, pool: &PgPool) -> Result<()> {
        let rows = sqlx::query_as(TABLES).fetch_all(pool).await.map_err(failed)?;
        let table = |(name, rows, pages, now, own)| TableStatistics { name, rows, pages, now, own };
        let tables: Vec<TableStatistics> = rows.into_iter().map(table).collect();
        for table in tables.iter().filter(|table| table.has_outgrown()) {
            let sql = AssertSqlSafe(format!("ANALYZE {}", table.name));
            sqlx::raw_sql(sql).execute(pool).await.map_err(failed)?;
        }
        let waiting = sqlx::query_scalar(WAITING).bind(BACKLOG);
        self.decide(&tables, waiting.fetch_one(pool).await.map_err(failed)?);
        Ok(())
    }

    fn decide(&self, tables: &[TableStatistics], waiting: i64) {
        let large = |name: &str| tables.iter().any(|one| one.name == name && one.rows >= LARGE);
        let kept = waiting < BACKLOG && LOOKED_UP.into_iter().all(large);
        self.kept.store(kept, Ordering::Relaxed);
        self.keyed.store(kept && large(KEYED), Ordering::Relaxed);
    }

    /// The planning for a batch with these needs. Plans are cached only for tables that every handoff needs; the
    /// size of other tables is unknown.
    pub(super) fn plans(&self, needs: &Needs) -> PlanCaching {
        // Named one by one, so that a new field cannot be forgotten.
        let Needs {
            tasks,
            handoffs,
            // Both are handoffs of tasks that are asked for.
            accepted: _,
            lineage: _,
            edges: _,
            open,
            dead_letters,
            runs: _,
            idempotency,
            agents,
            keys,
            subscriptions,
            contracts,
            payload_schemas,
            refused_tasks,
            repeats,
            caps: _,
            cap_scopes,
            opinions,
            erasure,
        } = needs;
        let usual = open.is_empty()
            && dead_letters.is_empty()
            && agents.is_empty()
            && keys.is_empty()
            && subscriptions.is_empty()
            && contracts.is_empty()
            && payload_schemas.is_empty()
            && refused_tasks.is_empty()
            && repeats.is_empty()
            && cap_scopes.is_empty()
            && opinions.is_empty()
            && erasure.tenants().is_empty();
        let few = (1..=MOST).contains(&handoffs.len()) && tasks.len() <= MOST;
        let known = if idempotency.is_empty() { &self.kept } else { &self.keyed };
        if usual && few && known.load(Ordering::Relaxed) {
            PlanCaching::Kept
        } else {
            PlanCaching::Fitted
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use handoffd_domain::ids::{HandoffId, TaskId, TenantId};

    fn table(name: &str, rows: f32, pages: i64, now: i64) -> TableStatistics {
        TableStatistics { name: name.to_owned(), rows, pages, now, own: true }
    }

    fn tenant() -> TenantId {
        "default".parse().expect("an id")
    }

    fn needs(handoffs: u128) -> Needs {
        let mut needs = Needs::default();
        for n in 0..handoffs {
            needs.tasks.insert((tenant(), TaskId(Uuid::from_u128(n))));
            needs.handoffs.insert((tenant(), HandoffId(Uuid::from_u128(n))));
        }
        needs
    }

    fn known(idempotency: f32, waiting: i64) -> Statistics {
        let tables = [
            table("tasks", 1_000.0, 30, 30),
            table("handoffs", 5e6, 500_000, 500_000),
            table("task_edges", 1_000.0, 10, 10),
            table("idempotency_keys", idempotency, 10, 10),
        ];
        let statistics = Statistics::default();
        statistics.decide(&tables, waiting);
        statistics
    }

    #[test]
    fn a_table_is_looked_at_when_it_has_grown_and_until_it_is_known_to_be_large() {
        assert!(!table("tasks", -1.0, 0, 7).has_outgrown(), "too little to tell anything");
        assert!(table("tasks", -1.0, 0, 8).has_outgrown());
        assert!(!table("tasks", 200.0, 8, 31).has_outgrown());
        assert!(table("tasks", 200.0, 8, 32).has_outgrown());
        assert!(
            !table("tasks", 1_000.0, 32, 5_000).has_outgrown(),
            "the server's own look will do"
        );
        let foreign = TableStatistics { own: false, ..table("tasks", -1.0, 0, 8) };
        assert!(!foreign.has_outgrown());
    }

    #[test]
    fn plans_are_kept_for_tens_of_handoffs_over_large_tables() {
        let statistics = known(-1.0, 0);
        assert_eq!(statistics.plans(&needs(1)), PlanCaching::Kept);
        assert_eq!(statistics.plans(&needs(64)), PlanCaching::Kept);
        assert_eq!(statistics.plans(&needs(65)), PlanCaching::Fitted);
        assert_eq!(statistics.plans(&needs(0)), PlanCaching::Fitted);
        assert_eq!(
            Statistics::default().plans(&needs(1)),
            PlanCaching::Fitted,
            "no statistics were read"
        );
    }

    #[test]
    fn no_plan_is_kept_under_a_backlog_or_over_a_table_that_may_be_small() {
        assert_eq!(known(-1.0, 999).plans(&needs(1)), PlanCaching::Kept);
        assert_eq!(known(-1.0, 1_000).plans(&needs(1)), PlanCaching::Fitted);
        let mut keyed = needs(1);
        keyed.idempotency.insert((tenant(), "a".parse().expect("an id"), "key".to_owned()));
        assert_eq!(known(10.0, 0).plans(&keyed), PlanCaching::Fitted);
        assert_eq!(known(1_000.0, 0).plans(&keyed), PlanCaching::Kept);
        let mut rare = needs(1);
        rare.open.insert((tenant(), TaskId(Uuid::from_u128(1))));
        assert_eq!(known(1_000.0, 0).plans(&rare), PlanCaching::Fitted);
    }
}
