//! Add to a task's budget.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::tasks::{draft_of, task_of};
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::ids::TaskId;
use handoffd_domain::money::Usd;
use handoffd_domain::task::Task;
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// An addition to a task's budget.
#[derive(Debug, Clone)]
pub struct TopUp {
    pub task_id: TaskId,
    pub add: Usd,
    /// How much and why, in words.
    pub content: RecordContent,
}

impl Command for TopUp {
    type Reply = Task;
    const NAME: &'static str = "top_up";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.task(self.task_id);
    }

    /// Adds to a task's budget.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let mut task = task_of(state, call, self.task_id)?;
        if task.status.is_final() {
            return Err(LedgerError::Conflict("the task has ended".to_owned()));
        }
        let most = Usd(i64::MAX);
        if task.topped_up.plus(self.add) == most || task.remaining.plus(self.add) == most {
            let why = "the task's budget would be more than an amount can say".to_owned();
            return Err(LedgerError::Invalid("/addUSD".to_owned(), why));
        }
        task.topped_up = task.topped_up.plus(self.add);
        task.remaining = task.remaining.plus(self.add);
        if let Some(funds) = &mut task.funds {
            funds.top_up(self.add);
        }
        task.updated_at = call.at;
        let draft = draft_of(call, RecordKind::BudgetChanged, &task, Some(&self.content));
        let event = Event::of_task(EventType::TaskBudgetChanged, &task, call.at)
            .with("addedUSD", self.add.as_f64())
            .with("remainingUSD", task.left().as_f64());
        let changes =
            vec![Change::Task(task.clone()), Change::Record(Box::new(draft)), publish(event)];
        Ok((changes, task))
    }
}
