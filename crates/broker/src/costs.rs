//! Costs within a window, of a task or for a user, by day, edge and agent: read from the records, added up by
//! [`handoffd_evidence::costs`].
//!
//! A record never changes, so neither does the sum of a block of them. A broker remembers the sums of whole blocks: the second
//! look at a day reads the records at its two ends alone.

mod blocks;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use blocks::{Block, Blocks};
use handoffd_domain::ids::{HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::costs::{CostFacts, CostFilter, CostTable, Edge};
use handoffd_store::store::{HandoffFilter, Store, StoreError, StoredRecord};

/// Records read at once.
const PAGE: i64 = 1_000;

/// Records of one remembered sum: both ends of a window read as many at most, some 10 ms each.
pub const COST_BLOCK: i64 = 4 * PAGE;

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

/// Reasons for a missing table.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// The question is too large for one answer.
    #[error("too much to read for one answer: {0}")]
    TooMuch(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Adds up costs, and remembers the sums of blocks.
pub struct Costs {
    store: Arc<Store>,
    blocks: Blocks,
}

impl Costs {
    /// Remembers sums of `block` records each.
    #[must_use]
    pub fn new(store: Arc<Store>, block: i64) -> Self {
        Self { store, blocks: Blocks::new(block) }
    }

    /// Adds up the costs that the query asks for.
    ///
    /// # Errors
    /// [`CostError`].
    pub async fn table(
        &self,
        tenant: &TenantId,
        query: &CostQuery,
    ) -> Result<CostTable, CostError> {
        self.store.settle_log(tenant).await?;
        let mut reading = Reading {
            store: &self.store,
            blocks: &self.blocks,
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
}

struct Reading<'a> {
    store: &'a Store,
    blocks: &'a Blocks,
    tenant: &'a TenantId,
    query: &'a CostQuery,
    /// The handoffs that count; `None` for all.
    handoffs: Option<HashSet<String>>,
    edges: HashMap<String, Edge>,
    table: CostTable,
    read: i64,
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
            self.count(page.len())?;
            self.add(&page).await?;
        }
    }

    /// All records of the window: whole blocks by their sums, the records at its ends one by one.
    async fn of_window(&mut self) -> Result<(), CostError> {
        let size = self.store.find_head(self.tenant).await?.map_or(0, |head| head.size);
        let mut from = self.start(size).await?;
        let end = self.query.until.0.saturating_add(SKEW_US);
        while from < size {
            let until = self.blocks.end(from).min(size);
            if self.blocks.is_whole(from, size) {
                let block = self.block(from).await?;
                if block.is_within(self.query.from..self.query.until) {
                    self.table.merge(&block.sums);
                    from = until;
                    continue;
                }
            }
            let mut is_past = false;
            while from < until {
                let page = self.page(from, until).await?;
                let Some(last) = page.last() else { return Ok(()) };
                from = last.leaf_index + 1;
                self.add(&page).await?;
                is_past |= page.iter().any(|record| record.recorded_at.0 >= end);
            }
            if is_past {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The sums of the block that begins here.
    async fn block(&mut self, first: i64) -> Result<Arc<Block>, CostError> {
        if let Some(block) = self.blocks.find(self.tenant, first).await {
            return Ok(block);
        }
        let mut block = Block::default();
        let until = self.blocks.end(first);
        let mut from = first;
        while from < until {
            let page = self.page(from, until).await?;
            let Some(last) = page.last() else { break };
            from = last.leaf_index + 1;
            for record in &page {
                block.note(record.recorded_at);
                let facts = CostFacts::read(&record.body);
                if let Some(edge) = self.edge(record, &facts).await? {
                    block.sums.take(record.recorded_at, edge, &facts);
                }
            }
        }
        let block = Arc::new(block);
        // A log that gave fewer than its head has is read again the next time.
        if from == until {
            self.blocks.remember(self.tenant, first, Arc::clone(&block)).await;
        }
        Ok(block)
    }

    /// Records from one place on, before another, `PAGE` at most.
    async fn page(&mut self, from: i64, until: i64) -> Result<Vec<StoredRecord>, CostError> {
        let limit = PAGE.min(until - from);
        let page = self.store.list_records(self.tenant, None, from, limit, false).await?;
        self.count(page.len())?;
        Ok(page)
    }

    fn count(&mut self, records: usize) -> Result<(), CostError> {
        self.read += i64::try_from(records).unwrap_or(i64::MAX);
        if self.read > MAX_RECORDS {
            let why = format!("more than {MAX_RECORDS} records; ask for a shorter window");
            return Err(CostError::TooMuch(why));
        }
        Ok(())
    }

    /// A place before which every record is earlier than the window, found by halves.
    async fn start(&self, size: i64) -> Result<i64, StoreError> {
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
        for record in page {
            let facts = CostFacts::read(&record.body);
            let Some(edge) = self.edge(record, &facts).await? else { continue };
            let at = record.recorded_at;
            if (self.query.from..self.query.until).contains(&at) {
                self.table.take(at, edge, &facts);
            }
        }
        Ok(())
    }

    /// The edge of a record that counts.
    async fn edge(
        &mut self,
        record: &StoredRecord,
        facts: &CostFacts,
    ) -> Result<Option<Edge>, StoreError> {
        let Some(id) = &record.handoff_id else { return Ok(None) };
        if self.handoffs.as_ref().is_some_and(|wanted| !wanted.contains(id)) || !facts.counts() {
            return Ok(None);
        }
        match facts.edge() {
            Some(edge) => {
                self.edges.insert(id.clone(), edge.clone());
                Ok(Some(edge))
            }
            None => self.edge_of(id).await,
        }
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
