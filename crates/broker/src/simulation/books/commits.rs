//! Invariants of tasks and handoffs at each commit.

use std::collections::BTreeSet;

use super::{Books, Ended, HandoffEntry, TaskEntry, short};
use handoffd_domain::group::{GroupStatus, branch_id};
use handoffd_domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_evidence::record::{ActorRole, RecordDraft, RecordKind};
use handoffd_store::store::{OutboxRow, Writes};

/// Whether the table of handoffs leads from one state to the other in one step.
fn leads(from: HandoffStatus, to: HandoffStatus) -> bool {
    from == to || HandoffEvent::ALL.into_iter().any(|event| from.next(event) == Ok(to))
}

/// Whether the table of tasks leads from one state to the other at all: a batch takes several steps.
fn reaches(from: TaskStatus, to: TaskStatus) -> bool {
    let mut known = BTreeSet::from([from]);
    let mut new = vec![from];
    while let Some(status) = new.pop() {
        let next = TaskEvent::ALL.into_iter().filter_map(|event| status.next(event).ok());
        new.extend(next.filter(|status| known.insert(*status)));
    }
    known.contains(&to)
}

impl Books {
    /// Checks a committed batch.
    pub(super) fn wrote(&mut self, writes: &Writes) {
        for (handoff, new) in writes.handoffs.values() {
            self.know(handoff, *new);
        }
        self.chunks_written(writes);
        // Records come in the order in which things were decided: each is one step of the table.
        for draft in &writes.records {
            if let Some(id) = draft.handoff_id {
                self.compressed(id, draft);
                self.step(id, draft);
            }
        }
        for (handoff, _) in writes.handoffs.values() {
            self.stands(handoff);
            self.stream_stands(handoff);
            self.measured(handoff);
        }
        for row in &writes.idempotency {
            if self.keys.insert(row.key.clone(), row.handoff_id).is_some() {
                self.violate(|| format!("the key {} was used twice", row.key));
            }
        }
        for row in writes.escalations.values() {
            if row.is_open() {
                self.open_escalations.insert(row.id, row.task_id);
            } else {
                self.open_escalations.remove(&row.id);
            }
        }
        for ((_, id), row) in &writes.outbox {
            self.outbox_moves(*id, row.as_ref());
        }
        for (task, new) in writes.tasks.values() {
            self.task_moves(task, *new, &writes.records);
        }
    }

    /// Enters a handoff before its records are read.
    fn know(&mut self, handoff: &Handoff, new: bool) {
        let id = handoff.id;
        if self.handoffs.contains_key(&id) == new {
            self.violate(|| format!("{} is new and known, or neither", short(id)));
        }
        self.handoffs.entry(id).or_insert_with(|| HandoffEntry {
            task: handoff.task_id,
            target: handoff.target.clone(),
            status: if handoff.status == HandoffStatus::DeadLettered {
                HandoffStatus::DeadLettered
            } else {
                HandoffStatus::Pending
            },
            due: false,
            token: 0,
            idempotent: handoff.idempotent,
            to_compress: false,
            commits: 0,
            releases: 0,
            acceptances: 0,
            questions: (0, 0),
        });
    }

    fn step(&mut self, id: HandoffId, draft: &RecordDraft) {
        // A settlement speaks as the receiver, without a key.
        let settled = draft.actor.role == ActorRole::Agent && draft.actor.key_id.is_none();
        let verdict =
            matches!(draft.kind, RecordKind::Accepted | RecordKind::Rejected | RecordKind::Failed);
        if settled && verdict && self.under_way(id) {
            self.violate(|| {
                let kind = draft.kind.as_str();
                format!(
                    "{} was settled as {kind} while its current attempt is under way",
                    short(id)
                )
            });
        }
        let Some(entry) = self.handoffs.get_mut(&id) else {
            // A refusal names a handoff that is not kept.
            return;
        };
        match draft.kind {
            RecordKind::Handoff => entry.commits += 1,
            RecordKind::Released => entry.releases += 1,
            RecordKind::Accepted => entry.acceptances += 1,
            RecordKind::InputRequested => entry.questions.0 += 1,
            RecordKind::InputProvided => entry.questions.1 += 1,
            _ => {}
        }
        let from = entry.status;
        let to = draft.status.and_then(HandoffStatus::parse).unwrap_or(from);
        entry.status = to;
        let (commits, acceptances, releases) = (entry.commits, entry.acceptances, entry.releases);
        let (task, questions) = (entry.task, entry.questions);
        self.one_question(id, draft, questions);
        if !leads(from, to) {
            self.violate(|| {
                format!("{} went from {} to {}", short(id), from.as_str(), to.as_str())
            });
        }
        if commits > 1 + releases || acceptances > 1 + releases {
            self.violate(|| {
                format!(
                    "{} was committed {commits} times and accepted {acceptances} times",
                    short(id)
                )
            });
        }
        if draft.kind == RecordKind::Accepted {
            self.accepted(task, id);
        }
    }

    /// The receiver of `id` has taken it. If it holds another handoff of the task with a later token, it goes on to
    /// run the task by that.
    fn accepted(&mut self, task: TaskId, id: HandoffId) {
        let (Some(entry), Some(taken)) = (self.tasks.get_mut(&task), self.handoffs.get(&id)) else {
            return;
        };
        let later =
            entry.accepted.and_then(|before| self.handoffs.get(&before)).is_some_and(|one| {
                one.status.is_held() && one.target == taken.target && one.token > taken.token
            });
        if !later {
            entry.accepted = Some(id);
        }
    }

    /// Checks that one question is open at most, that each is recorded once, and that its answer follows it.
    fn one_question(&mut self, id: HandoffId, draft: &RecordDraft, (asked, answered): (u32, u32)) {
        let put = self.asked.get(&id).copied().unwrap_or_default();
        let expected = match draft.kind {
            RecordKind::InputRequested => answered + 1,
            RecordKind::InputProvided => answered,
            _ => return,
        };
        if asked != expected || draft.question != Some(asked) || asked > put {
            let said = draft.question;
            self.violate(|| {
                format!(
                    "{} has {asked} questions and {answered} answers of {put} asked: {said:?}",
                    short(id)
                )
            });
        }
    }

    /// Whether the attempt counted in the outbox has left its broker and has not ended there.
    fn under_way(&self, id: HandoffId) -> bool {
        let token = self.handoffs.get(&id).map_or(0, |entry| entry.token);
        let attempt = self.outbox.get(&id).map_or(0, |row| row.attempt);
        self.attempts.get(&(id, token, attempt)) == Some(&None::<Ended>)
    }

    fn stands(&mut self, handoff: &Handoff) {
        let (id, token) = (handoff.id, handoff.fencing_token);
        let Some(entry) = self.handoffs.get_mut(&id) else { return };
        let (recorded, before) = (entry.status, entry.token);
        entry.status = handoff.status;
        entry.due = handoff.deadline_at.is_some();
        entry.token = token;
        entry.target = handoff.target.clone();
        if handoff.status == HandoffStatus::InputRequired && handoff.deadline_at.is_none() {
            self.violate(|| format!("the question of {} waits for ever", short(id)));
        }
        if recorded != handoff.status {
            self.violate(|| {
                let status = handoff.status.as_str();
                format!("{} is {status}, its records say {}", short(id), recorded.as_str())
            });
        }
        if token < before {
            self.violate(|| format!("the token of {} fell from {before} to {token}", short(id)));
        }
        if token != before {
            let fence = self.tasks.get(&handoff.task_id).map_or(0, |task| task.fence);
            let other = self.tokens.insert((handoff.task_id, token), id);
            if token <= fence || other.is_some_and(|other| other != id) {
                self.violate(|| format!("token {token} of {} was given out before", short(id)));
            }
        }
    }

    fn outbox_moves(&mut self, id: HandoffId, row: Option<&OutboxRow>) {
        let held =
            self.outbox.get(&id).and_then(|was| Some((was.attempt, was.claimed_by.clone()?)));
        if let (Some((attempt, holder)), Some(row)) = (held, row)
            && row.claimed_by.is_none()
            && row.attempt == attempt
            && self.under_way(id)
        {
            self.violate(|| {
                format!("the claim of {holder} on {} was freed under attempt {attempt}", short(id))
            });
        }
        match row {
            Some(row) => self.outbox.insert(id, row.clone()),
            None => self.outbox.remove(&id),
        };
    }

    fn task_moves(&mut self, task: &Task, new: bool, records: &[RecordDraft]) {
        let id = task.id;
        let entry = TaskEntry {
            status: task.status,
            fence: task.fence,
            holder: task.holder.clone(),
            accepted: None,
            granted: Usd(0),
            topped_up: Usd(0),
        };
        let Some(before) = self.tasks.insert(id, entry) else {
            if !new {
                self.violate(|| format!("task {id} was changed before it was made"));
            }
            return self.task_stands(task, records);
        };
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.accepted = before.accepted;
            (entry.granted, entry.topped_up) = (before.granted, before.topped_up);
        }
        if task.fence < before.fence {
            self.violate(|| format!("the fence of task {id} fell to {}", task.fence));
        }
        if !reaches(before.status, task.status) {
            self.violate(|| {
                let (from, to) = (before.status.as_str(), task.status.as_str());
                format!("task {id} went from {from} to {to}")
            });
        }
        // It passes on by an acceptance, a person's word, or because its holder let something of it go.
        let decided = |draft: &RecordDraft| {
            let ended = draft.handoff_id.and_then(|id| self.handoffs.get(&id)).is_some_and(|one| {
                one.target == before.holder
                    && match draft.kind {
                        RecordKind::RolledBack | RecordKind::Returned => true,
                        // To a person, without a rollback before it.
                        RecordKind::Escalated => one.status.is_final(),
                        _ => false,
                    }
            });
            let passed =
                matches!(draft.kind, RecordKind::Accepted | RecordKind::EscalationResolved);
            draft.task_id == Some(id) && (passed || ended)
        };
        let holds = before
            .accepted
            .and_then(|id| self.handoffs.get(&id))
            .is_some_and(|held| held.status.is_held() && held.target == before.holder);
        if task.holder != before.holder && holds && !records.iter().any(decided) {
            let (from, to) = (&before.holder, &task.holder);
            self.violate(|| format!("task {id} was taken from {from}, who holds it, for {to}"));
        }
        self.task_stands(task, records);
    }

    /// Checks a task after each commit.
    fn task_stands(&mut self, task: &Task, records: &[RecordDraft]) {
        let id = task.id;
        let waiting = self.outbox.values().filter(|row| row.task_id == id).count();
        if i64::try_from(waiting) != Ok(task.undelivered) {
            let counted = task.undelivered;
            self.violate(|| format!("task {id} counts {counted} undelivered; {waiting} wait"));
        }
        let asked = self.open_escalations.values().filter(|of| **of == id).count();
        if asked != usize::from(task.status == TaskStatus::Escalated) {
            let status = task.status.as_str();
            self.violate(|| format!("task {id} is {status} with {asked} questions open"));
        }
        self.held_by_its_holder(id, task);
        self.funds_add_up(task);
        self.leases_run(task);
        self.groups_stand(task);
        self.grants_hold(task, records);
    }

    /// Records that a person releases the handoff regardless of its figures.
    pub(in crate::simulation) fn grants(&mut self, handoff: HandoffId) {
        self.granted.insert(handoff);
    }

    /// Checks that no message accounts for more than its task was granted, and that the grant rises by nothing but a
    /// message of the task's opener, a person's release or a top-up, and by no more than those state.
    fn grants_hold(&mut self, task: &Task, records: &[RecordDraft]) {
        let (Some(funds), Some(entry)) = (&task.funds, self.tasks.get_mut(&task.id)) else {
            return;
        };
        let (before, topped_up) = (entry.granted, entry.topped_up);
        (entry.granted, entry.topped_up) = (funds.granted, task.topped_up);
        let mut most = before.plus(task.topped_up.minus(topped_up));
        for draft in records {
            let sent = draft.task_id == Some(task.id) && draft.kind == RecordKind::Handoff;
            let Some(cost) = draft.cost.filter(|_| sent) else { continue };
            let says = cost.spent.plus(cost.remaining);
            let source = draft.from.as_ref().and_then(|from| from.agent_id.as_ref());
            let released = draft.handoff_id.is_some_and(|id| self.granted.contains(&id));
            if released || source == Some(&funds.opener) {
                most = most.plus(says);
            }
            if says > funds.granted {
                let (of, limit) = (draft.handoff_id.map(short).unwrap_or_default(), funds.granted);
                self.violate(|| format!("{of} accounts for {says} USD; there were {limit}"));
            }
        }
        if funds.granted > most {
            let (id, granted) = (task.id, funds.granted);
            self.violate(|| format!("task {id} was granted {granted} USD; {most} were given"));
        }
    }

    /// Checks that granted funds equal spent, reserved and free funds, that the spent amount never falls or exceeds
    /// the grant, and that exactly the working handoffs hold a reserve.
    fn funds_add_up(&mut self, task: &Task) {
        let id = task.id;
        let Some(funds) = &task.funds else {
            if task.handoffs > 0 {
                self.violate(|| format!("task {id} has handoffs and no books"));
            }
            return;
        };
        let reserved = funds.reserved();
        let sum = funds.spent.plus(reserved).plus(funds.free);
        if sum != funds.granted || funds.free < Usd(0) {
            self.violate(|| format!("the books of task {id} do not add up: {funds:?}"));
        }
        let spent = self.spent.insert(id, funds.spent).unwrap_or_default();
        if funds.spent < spent {
            self.violate(|| format!("task {id} had spent {spent}, and now {}", funds.spent));
        }
        let own = self.handoffs.iter().filter(|(_, one)| one.task == id && !one.status.is_final());
        let at_work: BTreeSet<HandoffId> = own.map(|(id, _)| *id).collect();
        let open = funds.reserves.iter().filter(|one| one.open);
        let holding: BTreeSet<HandoffId> = open.map(|one| one.handoff).collect();
        if at_work != holding {
            self.violate(|| format!("of task {id} {at_work:?} are open; {holding:?} hold money"));
        }
    }

    /// Checks that a lease runs exactly for the handoffs whose receivers work on them.
    fn leases_run(&mut self, task: &Task) {
        let Some(funds) = &task.funds else { return };
        if task.status.is_final() || task.status == TaskStatus::Escalated {
            return;
        }
        let wrong = self.handoffs.iter().find(|(id, one)| {
            one.task == task.id
                && one.status == HandoffStatus::Accepted
                && one.due == funds.is_handed_on(**id)
        });
        if let Some((id, due)) = wrong.map(|(id, one)| (*id, one.due)) {
            let runs = if due { "runs while what it handed on is open" } else { "does not run" };
            self.violate(|| format!("the lease of {} {runs}", short(id)));
        }
    }

    /// Checks that all branches of a group are there, that its sender has the task while it is open, and that a decided
    /// group stays decided, with nothing of it open.
    fn groups_stand(&mut self, task: &Task) {
        for group in &task.course.groups {
            let known = (0..group.of).all(|index| {
                let own = self.handoffs.get(&branch_id(group.id, index));
                own.is_some_and(|own| own.commits == 1)
            });
            if !known {
                self.violate(|| format!("{} has not all of its branches", short(group.id)));
            }
            let open = group
                .handoffs()
                .filter(|id| self.handoffs.get(id).is_some_and(|one| !one.status.is_final()));
            let open = open.count();
            if !group.status.is_final() {
                if task.holder != group.source {
                    self.violate(|| format!("{} is open, and not its sender's", short(group.id)));
                }
                continue;
            }
            if open > 0 && group.status != GroupStatus::Canceled {
                self.violate(|| format!("{} ended with {open} branches open", short(group.id)));
            }
            let before = self.ended_groups.insert(group.id, group.clone());
            if before.is_some_and(|before| before != *group) {
                self.violate(|| format!("{} was decided twice", short(group.id)));
            }
        }
    }

    /// Checks that the runner of a task has accepted it, with one acceptance per token.
    fn held_by_its_holder(&mut self, id: TaskId, task: &Task) {
        let mut own = self.handoffs.values().filter(|one| one.task == id);
        let has_it = own.any(|one| {
            one.target == task.holder
                && (one.status.is_held() || one.status == HandoffStatus::Completed)
        });
        let gathers = task.course.open_group().is_some();
        if task.status == TaskStatus::Running && !has_it && !gathers {
            let holder = &task.holder;
            self.violate(|| format!("task {id} runs with {holder}, who accepted none of it"));
        }
        let current = self
            .handoffs
            .values()
            .filter(|one| one.task == id && one.status.is_held() && one.token == task.fence);
        let current = current.count();
        if current > 1 {
            self.violate(|| format!("task {id} has {current} holders under one token"));
        }
    }
}
