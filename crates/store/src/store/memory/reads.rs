//! Named queries on rows.

use std::collections::HashMap;

use crate::store::{
    CheckpointCursor, CheckpointPlace, CheckpointRow, Cursor, DeadLetterFilter, DeadLetterRow,
    Depths, EscalationFilter, HandoffFilter, KeyRow, MOST_OPEN, RunKey, TaskFilter, TaskKey,
};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::Escalation;
use handoffd_domain::handoff::{CheckpointRef, Handoff};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::task::Task;

use super::tables::Tables;

/// A page after a cursor, newest first.
fn newest<'a, T: Clone + 'a>(
    rows: impl Iterator<Item = &'a T>,
    place: impl Fn(&T) -> Cursor,
    after: Option<&Cursor>,
    limit: i64,
) -> Vec<T> {
    let mut found: Vec<_> = rows
        .map(|row| (place(row), row))
        .filter(|(place, _)| after.is_none_or(|after| place < after))
        .collect();
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    let limit = usize::try_from(limit).unwrap_or(0);
    found.into_iter().take(limit).map(|(_, row)| row.clone()).collect()
}

/// Whether a value equals the filter's, if that is set.
fn is<T: PartialEq>(wanted: Option<&T>, found: &T) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

impl Tables {
    pub(super) fn list_keys(&self, tenant: &TenantId) -> Vec<KeyRow> {
        let own = self.keys.values().filter(|row| row.tenant == *tenant);
        let mut rows: Vec<_> = own.cloned().collect();
        rows.sort_by(|a, b| (a.created_at, &a.key_id).cmp(&(b.created_at, &b.key_id)));
        rows
    }

    pub(super) fn count_open(&self, tenant: &TenantId) -> HashMap<AgentId, i64> {
        let mut open = HashMap::new();
        for handoff in self.handoffs.values() {
            if handoff.tenant == *tenant && !handoff.status.is_final() {
                let counted: &mut i64 = open.entry(handoff.target.clone()).or_default();
                *counted = MOST_OPEN.min(*counted + 1);
            }
        }
        open
    }

    pub(super) fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Vec<Handoff> {
        let HandoffFilter {
            task_id,
            status,
            source,
            target,
            conversation,
            party,
            from,
            until,
            user,
            // Few rows are in memory: all are read.
            reach: _,
        } = filter;
        let wanted = self.handoffs.values().filter(|one| {
            one.tenant == *tenant
                && is(task_id.as_ref(), &one.task_id)
                && is(status.as_ref(), &one.status)
                && user.as_ref().is_none_or(|user| one.user_ref.as_ref() == Some(user))
                && conversation.as_ref().is_none_or(|id| one.conversation_id.as_ref() == Some(id))
                && is(source.as_ref(), &one.source)
                && is(target.as_ref(), &one.target)
                && from.is_none_or(|from| one.created_at >= from)
                && until.is_none_or(|until| one.created_at < until)
                && (is(party.as_ref(), &one.source) || is(party.as_ref(), &one.target))
        });
        newest(wanted, |one| (one.created_at, one.id.to_string()), after, limit)
    }

    pub(super) fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Vec<Task> {
        let has_part = |task: &Task, agent: &AgentId| {
            task.holder == *agent
                || self.handoffs.values().any(|one| {
                    one.tenant == task.tenant
                        && one.task_id == task.id
                        && (one.source == *agent || one.target == *agent)
                })
        };
        let for_user = |task: &Task, user: &String| {
            self.handoffs.values().any(|one| {
                one.tenant == task.tenant
                    && one.task_id == task.id
                    && one.user_ref.as_ref() == Some(user)
            })
        };
        let wanted = self.tasks.values().filter(|task| {
            task.tenant == *tenant
                && is(filter.status.as_ref(), &task.status)
                && filter.from.is_none_or(|from| task.created_at >= from)
                && filter.until.is_none_or(|until| task.created_at < until)
                && filter.left_at_most.is_none_or(|left| task.left() <= left)
                && filter.spent_at_least.is_none_or(|spent| task.cost() >= spent)
                && filter.user.as_ref().is_none_or(|user| for_user(task, user))
                && filter.party.as_ref().is_none_or(|agent| has_part(task, agent))
        });
        newest(wanted, |task| (task.created_at, task.id.to_string()), after, limit)
    }

    pub(super) fn list_dead_letters(
        &self,
        tenant: &TenantId,
        filter: &DeadLetterFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Vec<DeadLetterRow> {
        let own = self.dead_letters.values();
        let wanted = own.filter(|row| row.tenant == *tenant && filter.takes(row));
        newest(wanted, |row| (row.created_at, row.handoff_id.to_string()), after, limit)
    }

    pub(super) fn list_escalations(
        &self,
        tenant: &TenantId,
        filter: &EscalationFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Vec<Escalation> {
        let wanted = self.escalations.values().filter(|row| {
            row.tenant == *tenant
                && is(filter.status.as_ref(), &row.status)
                && is(filter.task_id.as_ref(), &row.task_id)
        });
        newest(wanted, |row| (row.created_at, row.id.to_string()), after, limit)
    }

    pub(super) fn list_overdue_escalations(&self, now: Micros, limit: i64) -> Vec<Escalation> {
        let late = self.escalations.values().filter(|row| row.is_open() && row.timeout_at <= now);
        let mut rows: Vec<_> = late.cloned().collect();
        rows.sort_by_key(|row| (row.timeout_at, row.id));
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        rows
    }

    pub(super) fn list_overdue(&self, now: Micros, limit: i64) -> Vec<Handoff> {
        let late = self.handoffs.values().filter(|one| {
            !one.status.is_final() && one.deadline_at.is_some_and(|deadline| deadline <= now)
        });
        let mut rows: Vec<_> = late.cloned().collect();
        rows.sort_by_key(|one| (one.deadline_at, one.id));
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        rows
    }

    pub(super) fn find_checkpoint(
        &self,
        run: &RunKey,
        agent: Option<&AgentId>,
        seq: Option<i64>,
    ) -> Option<CheckpointRow> {
        let of_run = self.checkpoints.range((run.clone(), i64::MIN)..=(run.clone(), i64::MAX));
        let wanted =
            |row: &CheckpointRow| is(agent, &row.agent) && seq.is_none_or(|seq| row.at.seq == seq);
        of_run.rev().map(|(_, row)| row).find(|row| wanted(row)).cloned()
    }

    pub(super) fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Vec<CheckpointRow> {
        let place = |row: &CheckpointRow| (row.created_at, row.at.execution_id, row.at.seq);
        let own = self.checkpoints.values().filter(|row| {
            row.tenant == key.0
                && row.task_id == key.1
                && is(agent, &row.agent)
                && after.is_none_or(|after| place(row) < *after)
        });
        let mut rows: Vec<_> = own.cloned().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        rows
    }

    pub(super) fn list_checkpoint_places(
        &self,
        key: &TaskKey,
        after: Option<CheckpointRef>,
        limit: i64,
    ) -> Vec<CheckpointPlace> {
        let behind = self.checkpoints.values().filter(|row| {
            row.tenant == key.0 && row.task_id == key.1 && after.is_none_or(|after| row.at > after)
        });
        let mut places: Vec<_> = behind.map(|row| (row.at, row.part.commitment)).collect();
        places.sort_unstable();
        places.truncate(usize::try_from(limit).unwrap_or(0));
        places
    }

    pub(super) fn depths(&self) -> Depths {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        Depths {
            outbox: count(self.outbox.len()),
            oldest: self.outbox.values().map(|row| row.created_at).min(),
            dead_letters: count(
                self.dead_letters
                    .values()
                    .filter(|row| row.status == DeadLetterStatus::Open)
                    .count(),
            ),
            escalations: count(self.escalations.values().filter(|row| row.is_open()).count()),
            idle_tasks: 0,
            opinions: count(self.opinions.len()),
            records: self.logs.values().map(|log| log.head.size).sum(),
        }
    }
}
