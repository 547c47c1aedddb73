//! What was spent within a window, on a task or for a user, by day, edge and agent: read from the records, added up by
//! [`handoffd_core::costs`].

use std::collections::{HashMap, HashSet};

use handoffd_core::costs::{CostFacts, CostFilter, CostTable, Edge};
use handoffd_core::domain::ids::{HandoffId, Micros, TaskId, TenantId};
use handoffd_store::store::{HandoffFilter, Store, StoreError, StoredRecord};

/// Records read at once.
const PAGE: i64 = 1_000;

/// The most records that one request reads.
pub const MAX_RECORDS: i64 = 1_000_000;

/// The most handoffs of a user that one request looks at.
pub const MAX_HANDOFFS: usize = 50_000;

/// Tasks whose records are read at once.
const TASKS: usize = 200;

/// How far the clocks of brokers may be apart: places and times of records run alike but for that.
const SKEW_US: i64 = 5_000_000;

/// Which records count.
#[derive(Debug, Clone)]
pub struct CostQuery {
    /// From this time on.
    pub from: Micros,
    /// Before this time.
    pub until: Micros,
    /// Only of this task.
    pub task: Option<TaskId>,
    /// Only of handoffs for the user with this reference.
    pub user: Option<String>,
    /// Which agents and edges.
    pub of: CostFilter,
}

/// Reasons for which there is no table.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// The question is too large for one answer.
    #[error("too much to read for one answer: {0}")]
    TooMuch(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Reading<'a> {
    store: &'a dyn Store,
    tenant: &'a TenantId,
    query: &'a CostQuery,
    /// The handoffs that count; `None` for all.
    handoffs: Option<HashSet<String>>,
    edges: HashMap<String, Edge>,
    table: CostTable,
    read: i64,
}

/// Adds up what was spent.
///
/// # Errors
/// [`CostError`].
pub async fn table(
    store: &dyn Store,
    tenant: &TenantId,
    query: &CostQuery,
) -> Result<CostTable, CostError> {
    store.settle_log(tenant).await?;
    let mut reading = Reading {
        store,
        tenant,
        query,
        handoffs: None,
        edges: HashMap::new(),
        table: CostTable::new(query.of.clone()),
        read: 0,
    };
    match (&query.user, query.task) {
        (Some(user), task) => {
            let tasks = reading.of_user(user, task).await?;
            for some in tasks.chunks(TASKS) {
                reading.of_tasks(some).await?;
            }
        }
        (None, Some(task)) => reading.of_tasks(&[task]).await?,
        (None, None) => reading.of_window().await?,
    }
    Ok(reading.table)
}

impl Reading<'_> {
    /// The tasks of a user's handoffs; from then on these handoffs alone count.
    async fn of_user(
        &mut self,
        user: &str,
        task_id: Option<TaskId>,
    ) -> Result<Vec<TaskId>, CostError> {
        let user = Some(user.to_owned());
        let filter = HandoffFilter { user, task_id, ..HandoffFilter::default() };
        let (mut ids, mut tasks, mut after) = (HashSet::new(), HashSet::new(), None);
        loop {
            let page = self.store.list_handoffs(self.tenant, &filter, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.created_at, last.id.to_string()));
            ids.extend(page.iter().map(|one| one.id.to_string()));
            tasks.extend(page.iter().map(|one| one.task_id));
            if ids.len() > MAX_HANDOFFS {
                let why = format!("the user has more than {MAX_HANDOFFS} handoffs");
                return Err(CostError::TooMuch(why));
            }
        }
        self.handoffs = Some(ids);
        Ok(tasks.into_iter().collect())
    }

    async fn of_tasks(&mut self, tasks: &[TaskId]) -> Result<(), CostError> {
        let mut from = 0;
        loop {
            let page = self.store.list_task_records(self.tenant, tasks, from, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.leaf_index + 1;
            self.add(&page).await?;
        }
    }

    /// All records of the window.
    async fn of_window(&mut self) -> Result<(), CostError> {
        let mut from = self.start().await?;
        let end = self.query.until.0.saturating_add(SKEW_US);
        loop {
            let page = self.store.list_records(self.tenant, None, from, PAGE, false).await?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.leaf_index + 1;
            self.add(&page).await?;
            if page.iter().any(|record| record.recorded_at.0 >= end) {
                return Ok(());
            }
        }
    }

    /// A place before which every record is earlier than the window, found by halves.
    async fn start(&self) -> Result<i64, StoreError> {
        let size = self.store.find_head(self.tenant).await?.map_or(0, |head| head.size);
        let early = self.query.from.0.saturating_sub(SKEW_US);
        let (mut low, mut high) = (0, size);
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.store.list_records(self.tenant, None, middle, 1, false).await?;
            match found.first() {
                Some(record) if record.recorded_at.0 < early => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    async fn add(&mut self, page: &[StoredRecord]) -> Result<(), CostError> {
        self.read += i64::try_from(page.len()).unwrap_or(i64::MAX);
        if self.read > MAX_RECORDS {
            let why = format!("more than {MAX_RECORDS} records; ask for a shorter window");
            return Err(CostError::TooMuch(why));
        }
        for record in page {
            let Some(id) = &record.handoff_id else { continue };
            if self.handoffs.as_ref().is_some_and(|wanted| !wanted.contains(id)) {
                continue;
            }
            let facts = CostFacts::read(&record.body);
            if !facts.counts() {
                continue;
            }
            if let Some(edge) = facts.edge() {
                self.edges.insert(id.clone(), edge);
            }
            let at = record.recorded_at;
            if !(self.query.from..self.query.until).contains(&at) {
                continue;
            }
            if let Some(edge) = self.edge_of(id).await? {
                self.table.take(at, edge, &facts);
            }
        }
        Ok(())
    }

    /// The edge of a handoff whose own record is before the window: its row has it.
    async fn edge_of(&mut self, id: &str) -> Result<Option<Edge>, StoreError> {
        if let Some(edge) = self.edges.get(id) {
            return Ok(Some(edge.clone()));
        }
        let Ok(key) = id.parse::<HandoffId>() else { return Ok(None) };
        let row = self.store.find_handoff(&(self.tenant.clone(), key)).await?;
        let edge = row.map(|row| (row.source.to_string(), row.target.to_string()));
        if let Some(edge) = &edge {
            self.edges.insert(id.to_owned(), edge.clone());
        }
        Ok(edge)
    }
}
