//! The rows that a command reads. The store loads and locks them for the whole batch before any command is decided.

use super::contracts::{self, Repeat};
use handoffd_domain::group::branch_id;
use handoffd_domain::ids::{
    AgentId, ErasureId, ExecutionId, HandoffId, SubscriptionId, TaskId, TenantId,
};
use handoffd_store::store::contracts::ContractKey;
use handoffd_store::store::erasure::{PageNeed, PurgeNeed, SubjectRef};
use handoffd_store::store::{Needs, TaskKey};

/// The batch's needs, with the tenant of the command that adds to them.
#[derive(Debug)]
pub struct Rows<'a> {
    tenant: &'a TenantId,
    needs: &'a mut Needs,
}

impl<'a> Rows<'a> {
    pub(super) fn new(tenant: &'a TenantId, needs: &'a mut Needs) -> Self {
        Self { tenant, needs }
    }

    fn task_key(&self, id: TaskId) -> TaskKey {
        (self.tenant.clone(), id)
    }

    pub(super) fn task(&mut self, id: TaskId) {
        self.needs.tasks.insert(self.task_key(id));
    }

    /// A task with its edges and its open handoffs.
    pub(super) fn whole_task(&mut self, id: TaskId) {
        self.task(id);
        self.edges(id);
        self.open(id);
    }

    pub(super) fn edges(&mut self, id: TaskId) {
        self.needs.edges.insert(self.task_key(id));
    }

    pub(super) fn open(&mut self, id: TaskId) {
        self.needs.open.insert(self.task_key(id));
    }

    /// A handoff with its task.
    pub(super) fn handoff(&mut self, task_id: TaskId, id: HandoffId) {
        self.task(task_id);
        self.handoffs([id]);
    }

    /// Handoffs without their tasks.
    pub(super) fn handoffs(&mut self, ids: impl IntoIterator<Item = HandoffId>) {
        let ids = ids.into_iter().map(|id| (self.tenant.clone(), id));
        self.needs.handoffs.extend(ids);
    }

    /// The first branch of a group of that id: by it a message to many that comes again is known, and another one
    /// under its id.
    pub(super) fn first_branch(&mut self, id: HandoffId) {
        self.handoffs([branch_id(id, 0)]);
    }

    /// The handoffs that reached an agent on a task.
    pub(super) fn lineage(&mut self, task: TaskId, agent: &AgentId, parent: Option<HandoffId>) {
        self.needs.lineage.insert((self.task_key(task), agent.clone(), parent));
    }

    pub(super) fn accepted(&mut self, task_id: TaskId, id: HandoffId) {
        self.needs.accepted.insert((self.task_key(task_id), id));
    }

    pub(super) fn run(&mut self, task_id: TaskId, run: ExecutionId, agent: &AgentId) {
        self.needs.runs.insert(((self.tenant.clone(), task_id, run), agent.clone()));
    }

    pub(super) fn refused_task(&mut self, id: TaskId, by: &AgentId) {
        self.needs.refused_tasks.insert((self.tenant.clone(), id, by.clone()));
    }

    pub(super) fn opinion(&mut self, id: HandoffId) {
        self.needs.opinions.insert((self.tenant.clone(), id));
    }

    pub(super) fn agent(&mut self, id: &AgentId) {
        self.needs.agents.insert((self.tenant.clone(), id.clone()));
    }

    pub(super) fn dead_letter(&mut self, id: HandoffId) {
        self.needs.dead_letters.insert((self.tenant.clone(), id));
    }

    pub(super) fn idempotency(&mut self, agent: &AgentId, key: Option<&String>) {
        let key = key.map(|key| (self.tenant.clone(), agent.clone(), key.clone()));
        self.needs.idempotency.extend(key);
    }

    /// The last use of a dedupe key.
    pub(super) fn repeat(&mut self, repeat: Option<&Repeat>) {
        self.needs.repeats.extend(contracts::repeat_key(self.tenant, repeat));
    }

    /// The caps of the tenant and of the agents that receive or spend by a command that moves money.
    pub(super) fn caps<'b>(&mut self, parties: impl IntoIterator<Item = &'b AgentId>) {
        let caps = self.needs.caps.entry(self.tenant.clone()).or_default();
        caps.extend(parties.into_iter().cloned());
    }

    /// All caps of one agent, or of the tenant.
    pub(super) fn cap_scope(&mut self, agent: Option<AgentId>) {
        self.needs.cap_scopes.insert((self.tenant.clone(), agent));
    }

    pub(super) fn contract(&mut self, key: ContractKey) {
        self.needs.contracts.insert(key);
    }

    /// All versions of a payload schema.
    pub(super) fn payload_schema(&mut self, id: String) {
        self.needs.payload_schemas.insert((self.tenant.clone(), id));
    }

    pub(super) fn subscription(&mut self, id: SubscriptionId) {
        self.needs.subscriptions.insert((self.tenant.clone(), id));
    }

    pub(super) fn key(&mut self, id: String) {
        self.needs.keys.insert((self.tenant.clone(), id));
    }

    pub(super) fn hold(&mut self, id: String) {
        self.needs.erasure.holds.insert((self.tenant.clone(), id));
    }

    pub(super) fn subject(&mut self, subject: SubjectRef) {
        self.needs.erasure.subjects.insert(subject);
    }

    /// An erasure with the next page of its data.
    pub(super) fn erasure_page(&mut self, id: ErasureId, page: PageNeed) {
        self.needs.erasure.pages.insert((self.tenant.clone(), id), page);
    }

    /// An erasure without data.
    pub(super) fn erasure(&mut self, id: ErasureId) {
        let none = PageNeed { upto: 0, limit: 0 };
        self.needs.erasure.pages.entry((self.tenant.clone(), id)).or_insert(none);
    }

    pub(super) fn purge(&mut self, need: PurgeNeed) {
        self.needs.erasure.purges.insert(self.tenant.clone(), need);
    }
}
