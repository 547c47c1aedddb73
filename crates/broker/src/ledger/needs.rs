//! The rows that a command reads. The store loads and locks them for the whole batch before any command is decided.

use super::command::{
    AppendChunk, Command, Kind, Outcome, Refuse, Release, Settle, StreamEnd, Submit, SubmitGroup,
    Verdict, VerdictKind,
};
use super::contracts;
use handoffd_core::domain::event::Subscriber;
use handoffd_core::domain::group::branch_id;
use handoffd_core::domain::ids::{AgentId, ExecutionId, HandoffId, TaskId, TenantId};
use handoffd_store::store::erasure::PageNeed;
use handoffd_store::store::{Needs, TaskKey};

/// Adds the rows that a command reads to those of its batch.
pub fn needs(command: &Command, needs: &mut Needs) {
    let mut rows = CommandNeeds { tenant: &command.tenant, needs };
    rows.caps(&command.kind);
    match &command.kind {
        Kind::Submit(submit) => rows.submission(command, submit),
        Kind::SubmitGroup(group) => rows.group(command, group),
        Kind::ReleaseGroup(release) => {
            rows.group(command, &release.group);
            rows.handoff(release.task_id, release.handoff_id);
            rows.dead_letter(release.handoff_id);
        }
        Kind::Refuse(refuse) => rows.refusal(command, refuse),
        Kind::Verdict(verdict) => rows.verdict(verdict),
        Kind::Ask(ask) => rows.handoff(ask.task_id, ask.handoff_id),
        Kind::Answer(answer) => rows.handoff(answer.task_id, answer.handoff_id),
        Kind::Settle(settle) => rows.settlement(settle),
        Kind::Compress(compress) => rows.handoff(compress.task_id, compress.handoff_id),
        Kind::RecordOpinion(opinion) => {
            rows.handoff(opinion.task_id, opinion.handoff_id);
            rows.needs.opinions.insert((command.tenant.clone(), opinion.handoff_id));
        }
        Kind::Chunk(chunk) => rows.chunk(chunk),
        Kind::RefuseChunk(refused) => rows.handoff(refused.task_id, refused.handoff_id),
        Kind::Lease(lease) => rows.handoff(lease.task_id, lease.handoff_id),
        Kind::TakeOver(take) => rows.handoff(take.task_id, take.handoff_id),
        Kind::Expire(expire) => {
            rows.handoff(expire.task_id, expire.handoff_id);
            rows.whole_task(expire.task_id);
        }
        Kind::PutCheckpoint(put) => {
            rows.task(put.task_id);
            rows.run(put.task_id, put.execution_id, &put.agent);
            if let Some((handoff_id, _)) = put.fence {
                rows.handoff(put.task_id, handoff_id);
            }
        }
        Kind::CompleteTask(complete) => rows.whole_task(complete.task_id),
        Kind::CancelTask(cancel) => rows.whole_task(cancel.task_id),
        Kind::TopUp(top_up) => rows.task(top_up.task_id),
        Kind::RestoreCheckpoint(restore) => rows.task(restore.task_id),
        Kind::Resolve(resolve) => {
            rows.whole_task(resolve.task_id);
            let tenant = &command.tenant;
            rows.needs.handoffs.extend(resolve.handoff_id.map(|id| (tenant.clone(), id)));
            for id in &resolve.agents {
                rows.agent(id);
            }
        }
        Kind::Release(release) => rows.appeal(command, release),
        Kind::KeepDeadLetter(keep) => {
            rows.handoff(keep.task_id, keep.handoff_id);
            rows.dead_letter(keep.handoff_id);
        }
        Kind::Discard(discard) => {
            rows.handoff(discard.task_id, discard.handoff_id);
            rows.dead_letter(discard.handoff_id);
        }
        Kind::CreateAgent(create) => rows.agent(&create.row.agent.agent_id),
        Kind::ChangeAgent(change) => rows.agent(&change.agent),
        Kind::DisableSubscriber(disable) => match &disable.subscriber {
            Subscriber::Subscription(id) => {
                rows.needs.subscriptions.insert((command.tenant.clone(), *id));
            }
            Subscriber::Agent(agent) => rows.agent(agent),
        },
        _ => administration(command, rows.needs),
    }
}

/// Adds the one row that an administrative command reads.
fn administration(command: &Command, needs: &mut Needs) {
    let tenant = command.tenant.clone();
    match &command.kind {
        Kind::SetCap(set) => {
            needs.cap_scopes.insert((tenant, set.agent.clone()));
        }
        Kind::PutContract(put) => {
            needs.contracts.insert(put.row.key());
        }
        Kind::PutPayloadSchema(put) => {
            needs.payload_schemas.insert((tenant, put.row.id.clone()));
        }
        Kind::CreateSubscription(create) => {
            needs.subscriptions.insert((tenant, create.row.id));
        }
        Kind::ChangeSubscription(change) => {
            needs.subscriptions.insert((tenant, change.id));
        }
        Kind::CreateKey(row) => {
            needs.keys.insert((tenant, row.key_id.clone()));
        }
        Kind::RevokeKey { key_id } => {
            needs.keys.insert((tenant, key_id.clone()));
        }
        Kind::PlaceHold(place) => {
            needs.erasure.holds.insert((tenant, place.row.id.clone()));
        }
        Kind::ReleaseHold(release) => {
            needs.erasure.holds.insert((tenant, release.id.clone()));
        }
        Kind::RequestErasure(request) => {
            needs.erasure.subjects.insert(request.subject.clone());
        }
        Kind::Erase(next) => {
            needs.erasure.pages.insert((tenant, next.id), next.page);
        }
        Kind::FinishErasure(id) => {
            let none = PageNeed { upto: 0, limit: 0 };
            needs.erasure.pages.entry((tenant, *id)).or_insert(none);
        }
        Kind::Purge(next) => {
            needs.erasure.purges.insert(tenant, next.need);
        }
        _ => {}
    }
}

/// The handoff that a command commits, or may.
pub(super) fn submitted(kind: &Kind) -> Option<&Submit> {
    match kind {
        Kind::Submit(submit) => Some(submit),
        Kind::SubmitGroup(group) => Some(&group.base),
        Kind::ReleaseGroup(release) => Some(&release.group.base),
        Kind::Refuse(refuse) => refuse.recovery.as_deref(),
        _ => None,
    }
}

/// Whether a command may change what counts against the tenant's caps.
fn moves_money(kind: &Kind) -> bool {
    submitted(kind).is_some()
        || matches!(
            kind,
            Kind::Verdict(_)
                | Kind::Settle(_)
                | Kind::Expire(_)
                | Kind::CompleteTask(_)
                | Kind::CancelTask(_)
                | Kind::Resolve(_)
                | Kind::Release(_)
        )
        || matches!(kind, Kind::Chunk(chunk) if chunk.end.is_some())
}

/// The batch's needs, with the tenant of the command that adds to them.
struct CommandNeeds<'a> {
    tenant: &'a TenantId,
    needs: &'a mut Needs,
}

impl CommandNeeds<'_> {
    fn task_key(&self, id: TaskId) -> TaskKey {
        (self.tenant.clone(), id)
    }

    fn task(&mut self, id: TaskId) {
        self.needs.tasks.insert(self.task_key(id));
    }

    /// A task with its edges and its open handoffs.
    fn whole_task(&mut self, id: TaskId) {
        self.task(id);
        self.edges(id);
        self.open(id);
    }

    fn edges(&mut self, id: TaskId) {
        self.needs.edges.insert(self.task_key(id));
    }

    fn open(&mut self, id: TaskId) {
        self.needs.open.insert(self.task_key(id));
    }

    fn handoff(&mut self, task_id: TaskId, id: HandoffId) {
        self.task(task_id);
        self.needs.handoffs.insert((self.tenant.clone(), id));
    }

    /// A chunk that ends its stream badly reads what a failure reads.
    fn chunk(&mut self, chunk: &AppendChunk) {
        self.handoff(chunk.task_id, chunk.handoff_id);
        if matches!(chunk.end, Some(StreamEnd::Refused { .. } | StreamEnd::Aborted)) {
            self.edges(chunk.task_id);
            self.open(chunk.task_id);
        }
    }

    /// The first branch of a group of that id: by it a message to many that comes again is known, and another one
    /// under its id.
    fn first_branch(&mut self, id: HandoffId) {
        self.needs.handoffs.insert((self.tenant.clone(), branch_id(id, 0)));
    }

    fn run(&mut self, task_id: TaskId, run: ExecutionId, agent: &AgentId) {
        self.needs.runs.insert(((self.tenant.clone(), task_id, run), agent.clone()));
    }

    fn agent(&mut self, id: &AgentId) {
        self.needs.agents.insert((self.tenant.clone(), id.clone()));
    }

    fn dead_letter(&mut self, id: HandoffId) {
        self.needs.dead_letters.insert((self.tenant.clone(), id));
    }

    fn idempotency(&mut self, agent: &AgentId, key: Option<&String>) {
        let key = key.map(|key| (self.tenant.clone(), agent.clone(), key.clone()));
        self.needs.idempotency.extend(key);
    }

    /// The caps of the tenant and of the agents that receive or spend by the command.
    fn caps(&mut self, kind: &Kind) {
        if !moves_money(kind) {
            return;
        }
        let parties = self.needs.caps.entry(self.tenant.clone()).or_default();
        let branches = match kind {
            Kind::SubmitGroup(group) => &group.branches[..],
            Kind::ReleaseGroup(release) => &release.group.branches,
            _ => &[],
        };
        parties.extend(branches.iter().map(|branch| branch.handoff.target.clone()));
        if let Some(submit) = submitted(kind) {
            parties.extend([submit.handoff.source.clone(), submit.handoff.target.clone()]);
        } else if let Kind::Release(release) = kind {
            parties.insert(release.target.agent_id.clone());
        }
    }

    fn submission(&mut self, command: &Command, submit: &Submit) {
        let handoff = &submit.handoff;
        self.handoff(handoff.task_id, handoff.id);
        self.first_branch(handoff.id);
        self.needs.handoffs.extend(handoff.parent_id.map(|id| (self.tenant.clone(), id)));
        let task = self.task_key(handoff.task_id);
        self.needs.lineage.insert((task, handoff.source.clone(), handoff.parent_id));
        self.edges(handoff.task_id);
        self.run(handoff.task_id, handoff.source_execution, &handoff.source);
        self.needs.repeats.extend(contracts::repeat_key(command, submit.repeat.as_ref()));
        let answered = submit.repeat.as_ref().and_then(|repeat| repeat.answered);
        self.needs.handoffs.extend(answered.map(|(id, _)| (self.tenant.clone(), id)));
        self.idempotency(&handoff.source, submit.idempotency_key.as_ref());
    }

    fn group(&mut self, command: &Command, group: &SubmitGroup) {
        self.submission(command, &group.base);
        self.open(group.base.handoff.task_id);
        let ids = group.branches.iter().map(|branch| branch.handoff.id);
        self.needs.handoffs.extend(ids.map(|id| (command.tenant.clone(), id)));
    }

    fn refusal(&mut self, command: &Command, refuse: &Refuse) {
        if let (Some(task_id), Some(handoff_id)) = (refuse.task_id, refuse.handoff_id) {
            self.handoff(task_id, handoff_id);
            self.first_branch(handoff_id);
        }
        if let (Some(task_id), Some(counted)) = (refuse.task_id, &refuse.counted) {
            self.task(task_id);
            self.needs.refused_tasks.insert((self.tenant.clone(), task_id, counted.by.clone()));
            if let Some(run) = counted.run {
                self.run(task_id, run, &counted.by);
            }
        }
        if let Some(letter) = &refuse.dead_letter {
            let handoff = &letter.handoff;
            self.handoff(handoff.task_id, handoff.id);
            self.run(handoff.task_id, handoff.source_execution, &handoff.source);
            self.idempotency(&handoff.source, letter.idempotency_key.as_ref());
        }
        if let Some(submit) = &refuse.recovery {
            self.submission(command, submit);
            self.open(submit.handoff.task_id);
            let ruling = submit.handoff.ruling.as_ref();
            let others = ruling.map(|ruling| ruling.fallbacks()).unwrap_or_default();
            for id in &others {
                self.agent(id);
            }
        }
    }

    /// A failure reads the task's open handoffs too: they decide the state of the task.
    fn verdict(&mut self, verdict: &Verdict) {
        self.handoff(verdict.task_id, verdict.handoff_id);
        self.edges(verdict.task_id);
        match verdict.kind {
            VerdictKind::Accept | VerdictKind::Complete => {
                self.accepted(verdict.task_id, verdict.handoff_id);
            }
            VerdictKind::Reject(_) | VerdictKind::Fail(_) => self.open(verdict.task_id),
            VerdictKind::Heartbeat => {}
        }
    }

    fn settlement(&mut self, settle: &Settle) {
        self.handoff(settle.task_id, settle.handoff_id);
        self.edges(settle.task_id);
        match settle.outcome {
            Outcome::Accepted => self.accepted(settle.task_id, settle.handoff_id),
            Outcome::Rejected(_)
            | Outcome::GivenUp { .. }
            | Outcome::Expired
            | Outcome::Unclaimed => self.open(settle.task_id),
            Outcome::Received { .. }
            | Outcome::Retry { .. }
            | Outcome::Moved { .. }
            | Outcome::Held => {}
        }
    }

    fn accepted(&mut self, task_id: TaskId, id: HandoffId) {
        self.needs.accepted.insert((self.task_key(task_id), id));
    }

    fn appeal(&mut self, command: &Command, release: &Release) {
        self.handoff(release.task_id, release.handoff_id);
        self.needs.handoffs.extend(release.parent_id.map(|id| (self.tenant.clone(), id)));
        let task = self.task_key(release.task_id);
        self.needs.lineage.insert((task, release.source.clone(), release.parent_id));
        self.whole_task(release.task_id);
        self.dead_letter(release.handoff_id);
        self.needs.repeats.extend(contracts::repeat_key(command, release.repeat.as_ref()));
    }
}
