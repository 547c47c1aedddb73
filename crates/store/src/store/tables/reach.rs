//! How far a list of tasks or handoffs looks for one page, where no index serves its filter.

use crate::store::driver::in_memory;
use std::fmt::Write as _;

use uuid::Uuid;

use crate::store::query::{IntoValue, Row, Statement};
use crate::store::rows::get;
use crate::store::{Cursor, HandoffFilter, Result, Store, TaskFilter};
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_domain::task::TaskStatus;

/// Which rows a list reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// All, newest first, until the page is full.
    #[default]
    Whole,
    /// All that fit, found by the index of one condition and then sorted: few rows have it.
    Few,
    /// Only rows at this place or newer, each looked at.
    DownTo(Cursor),
    /// All that are left, each looked at: no more than one page may cost.
    Rest,
}

impl Reach {
    /// The place down to which the list looks, where it does not look at all.
    #[must_use]
    pub const fn end(&self) -> Option<&Cursor> {
        if let Self::DownTo(place) = self { Some(place) } else { None }
    }

    /// Whether the page looks at rows one by one.
    #[must_use]
    pub const fn walks(&self) -> bool {
        matches!(self, Self::DownTo(_) | Self::Rest)
    }
}

/// Rows that one page may cost.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Rows that are all read and sorted.
    pub few: i64,
    /// Rows that are looked at one by one.
    pub looked_at: i64,
    /// The same of tasks whose handoffs are looked at too.
    pub opened: i64,
}

/// Some ten milliseconds of reading each.
pub const BOUNDS: Bounds = Bounds { few: 5_000, looked_at: 20_000, opened: 4_000 };

/// A statement in the making: a text, and a value for each of its places.
struct Text<'a>(Statement<'a>);

impl<'a> Text<'a> {
    fn new(text: &str, tenant: &'a TenantId) -> Self {
        Self(Statement::new(format!("{text} WHERE tenant = $1")).bind(tenant))
    }

    /// Adds text that ends before a value, and the value.
    fn and(mut self, text: &str, value: impl IntoValue<'a>) -> Self {
        let place = self.0.values.len() + 1;
        let _ = write!(self.0.text.to_mut(), " {text} ${place}");
        self.0 = self.0.bind(value);
        self
    }

    fn and_if(self, text: &str, value: Option<impl IntoValue<'a>>) -> Self {
        match value {
            Some(value) => self.and(text, value),
            None => self,
        }
    }
}

/// The place down to which a page looks. An agent reads it in the cursor, and the row may be another agent's: it gets no id then.
/// The page looks at all rows of that time, and the next one goes on with those before it.
fn down_to((at, id): Cursor, is_of_party: bool) -> Reach {
    Reach::DownTo((at, if is_of_party { Uuid::nil().to_string() } else { id }))
}

/// Counts the rows that meet a condition with an index of its own, up to one more than are few.
fn count_few(source: Text<'_>, few: i64) -> Statement<'_> {
    let mut counted = source.and("LIMIT", few.saturating_add(1)).0;
    counted.text = format!("SELECT count(*) AS found FROM ({}) AS few", counted.text).into();
    counted
}

/// Begins to read the places of a table's rows: the names are those of the table, of its time and of its id.
fn places<'a>([table, time, id]: [&str; 3], tenant: &'a TenantId) -> Text<'a> {
    Text::new(&format!("SELECT {time} AS at, {id} AS id FROM {table}"), tenant)
}

/// The place of the last row that a page looks at, if there are so many.
fn end<'a>(
    [_, time, id]: [&str; 3],
    mut text: Text<'a>,
    (from, until): (Option<Micros>, Option<Micros>),
    after: Option<&'a Cursor>,
    looked_at: i64,
) -> Statement<'a> {
    text = text.and_if(&format!("AND {time} >="), from).and_if(&format!("AND {time} <"), until);
    if let Some((at, last)) = after {
        text = text.and(&format!("AND ({time}, {id}) < ("), *at).and(",", last);
        text.0.text.to_mut().push(')');
    }
    let _ = write!(text.0.text.to_mut(), " ORDER BY {time} DESC, {id} DESC LIMIT 1");
    text.and("OFFSET", looked_at.saturating_sub(1).max(0)).0
}

fn place(row: &dyn Row) -> Result<Cursor> {
    Ok((Micros(get(row, "at")?), get(row, "id")?))
}

/// How far a page looks that no index alone serves: to the end of the rows of `few`, if they are no more than its bound, else
/// to the place that `end` finds.
async fn reach(
    db: &Store,
    (few, most): (Option<Statement<'_>>, i64),
    end: Statement<'_>,
    is_of_party: bool,
) -> Result<Reach> {
    if let Some(few) = few {
        let counted: Option<i64> = db.find(few, |row| get(row, "found")).await?;
        if counted.is_some_and(|rows| rows <= most) {
            return Ok(Reach::Few);
        }
    }
    let end = db.find(end, place).await?;
    Ok(end.map_or(Reach::Rest, |end| down_to(end, is_of_party)))
}

/// The table whose rows lead to the tasks of a status.
pub(in crate::store) fn leader(status: Option<TaskStatus>) -> Option<&'static str> {
    status.map(|status| if status.is_final() { "closed_tasks" } else { "open_tasks" })
}

/// The few rows by which tasks may be found; `None` for a filter without such a condition.
fn few_tasks<'a>(tenant: &'a TenantId, filter: &'a TaskFilter) -> Option<Text<'a>> {
    match (&filter.user, filter.status) {
        (Some(user), _) => {
            Some(Text::new("SELECT 1 FROM handoffs", tenant).and("AND user_ref =", user))
        }
        (None, Some(TaskStatus::PendingHandoff)) => {
            Some(Text::new("SELECT 1 FROM waiting_tasks", tenant))
        }
        _ => None,
    }
}

/// Whether an index alone finds the rows of a page.
fn serves_tasks(filter: &TaskFilter) -> bool {
    let TaskFilter { status, party, left_at_most, spent_at_least, user, .. } = filter;
    let rest = party.is_some() || left_at_most.is_some() || spent_at_least.is_some();
    !rest && user.is_none() && status.is_none_or(TaskStatus::is_final)
}

/// The few rows by which handoffs may be found: those that are open.
fn few_handoffs<'a>(tenant: &'a TenantId, filter: &'a HandoffFilter) -> Option<Text<'a>> {
    filter.status.filter(|status| !status.is_final() && filter.user.is_none())?;
    let open = Text::new("SELECT 1 FROM handoffs", tenant);
    let mut open = open.and_if("AND target =", filter.target.as_ref());
    open.0.text.to_mut().push_str(" AND status IN ('PENDING', 'ACCEPTED')");
    Some(open)
}

/// Whether an index alone finds the rows of a page, or a task or a conversation has them all.
fn serves_handoffs(filter: &HandoffFilter) -> bool {
    let HandoffFilter { task_id, conversation, source, target, party, status, user, .. } = filter;
    let rest = source.is_some() || target.is_some() || party.is_some();
    let open = status.is_some_and(|status| !status.is_final());
    let of_user = user.is_some() && status.is_some();
    task_id.is_some() || conversation.is_some() || !(rest || open || of_user)
}

impl Store {
    /// How far the page of tasks after a cursor looks.
    pub async fn reach_of_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        bounds: Bounds,
    ) -> Result<Reach> {
        in_memory!(self, db => db.reach_of_tasks(tenant, filter, after, bounds));
        if serves_tasks(filter) {
            return Ok(Reach::Whole);
        }
        let few = few_tasks(tenant, filter).map(|few| count_few(few, bounds.few));
        let columns = match leader(filter.status) {
            Some(table) => [table, "begun_at", "task_id"],
            None => ["tasks", "created_at", "task_id"],
        };
        let ended = filter.status.filter(|status| status.is_final()).map(TaskStatus::as_str);
        let times = (filter.from, filter.until);
        let text = places(columns, tenant).and_if("AND closed_as =", ended);
        let opens = filter.user.is_some() || filter.party.is_some();
        let rows = if opens { bounds.opened } else { bounds.looked_at };
        let end = end(columns, text, times, after, rows);
        reach(self, (few, bounds.few), end, filter.party.is_some()).await
    }

    /// How far the page of handoffs after a cursor looks.
    pub async fn reach_of_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        bounds: Bounds,
    ) -> Result<Reach> {
        in_memory!(self, db => db.reach_of_handoffs(tenant, filter, after, bounds));
        if serves_handoffs(filter) {
            return Ok(Reach::Whole);
        }
        let few = few_handoffs(tenant, filter).map(|few| count_few(few, bounds.few));
        let ended = filter.status.filter(|status| status.is_final() && filter.user.is_none());
        let columns = ["handoffs", "created_at", "handoff_id"];
        let mut text = places(columns, tenant).and_if("AND user_ref =", filter.user.as_ref());
        if let Some(ended) = ended {
            text = text.and("AND status =", ended.stored());
            // In the text: the index of the closed ones serves a statement that says so.
            text.0.text.to_mut().push_str(" AND status NOT IN ('PENDING', 'ACCEPTED')");
        }
        let times = (filter.from, filter.until);
        let end = end(columns, text, times, after, bounds.looked_at);
        reach(self, (few, bounds.few), end, filter.party.is_some()).await
    }
}
