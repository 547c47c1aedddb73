//! A forecast of the ledger's answer to a message, from a look without its locks: for a dry run, and for a
//! refusal that names everything at once. It is not a promise: other commits in the meantime count.

use std::sync::Arc;

use super::draft::{requires_checkpoint, ruling, subtasks};
use super::{Intake, IntakeError};
use handoffd_domain::agent::Agent;
use handoffd_domain::cap::room::{self, CapRequest};
use handoffd_domain::cap::{CapExceeded, CapScope};
use handoffd_domain::failure::Failure;
use handoffd_domain::funds::{Funds, FundsRequest};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::lineage;
use handoffd_domain::message::Message;
use handoffd_domain::money::Usd;
use handoffd_domain::progress::{Hop, LoopLimits, check_budget, check_loop, short};
use handoffd_domain::task::Task;
use handoffd_gate::completeness::no_checkpoint;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::{OtherEdges, budget};
use handoffd_store::clock;
use handoffd_store::store::{HandoffFilter, Result, TaskKey};

/// Handoffs read at once.
const PAGE: i64 = 500;

impl Intake {
    /// Checks of the parent, the loop guard, the budget relay and the rolling caps.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn guarded(
        &self,
        tenant: &TenantId,
        message: &Message,
        target: &Agent,
        (contract, others): (Option<&Arc<CompiledContract>>, &OtherEdges),
    ) -> std::result::Result<Vec<Failure>, IntakeError> {
        let envelope = message.envelope();
        let source = &envelope.from_agent.agent_id;
        if target.agent_id == *source {
            return Ok(Vec::new());
        }
        let mut failures = Vec::new();
        let away = |err| IntakeError::from(Arc::new(err));
        let key = (tenant.clone(), envelope.task_id);
        let task = self.store.find_task(&key).await.map_err(away)?;
        let (mut edges, mut reached) = (Vec::new(), Vec::new());
        if task.is_some() {
            edges = self.store.list_edges(&key).await.map_err(away)?;
            reached = self.reached(&key, source).await.map_err(away)?;
        }
        let found = envelope.parent_handoff_id;
        let lineage =
            lineage::check(task.as_ref(), found, source, &reached.iter().collect::<Vec<_>>());
        let parent = match &lineage {
            Ok(()) => found,
            Err(mismatch) => mismatch.expected,
        };
        let parent = reached.iter().find(|one| Some(one.id) == parent);
        failures.extend(lineage.err().map(|mismatch| mismatch.failure));
        let edges: Vec<_> = edges.iter().collect();
        let agents = self.directory.agents(tenant).await?;
        let policy = contract.map(|ready| ready.policy().clone()).unwrap_or_default();
        if requires_checkpoint(&policy, others, &agents, source) && message.checkpoint().is_none() {
            let run = (tenant.clone(), envelope.task_id, envelope.from_agent.execution_id);
            if self.store.find_checkpoint(&run, Some(source), None).await.map_err(away)?.is_none() {
                failures.push(no_checkpoint());
            }
        }
        let ruling = ruling(policy, OtherEdges::default(), &agents, message, target, None);
        let ruling = ruling.unwrap_or_default();
        let limits = LoopLimits {
            max_hops: self.rules.max_hops,
            max_edge_repeats: self.rules.max_edge_repeats,
            contract: ruling.edge.loop_guard.as_ref(),
        };
        let course = task.as_ref().map(|task| task.course.clone()).unwrap_or_default();
        let completed = course.progress(&subtasks(message));
        let hop = Hop { source, target: &target.agent_id, completed };
        let cost = &envelope.cost_tracking;
        let mut relay = check_budget(task.as_ref(), &edges, parent, source, cost);
        let opened = self.opened(task.as_ref(), message);
        relay.extend(opened.as_ref().and_then(|funds| short(funds, None, source, cost)));
        // Impossible amounts have no charge to hold against a cap.
        if relay.is_empty() && cost.remaining > Usd(0) {
            let before = task.as_ref().and_then(|task| task.funds.as_deref());
            let books = (before, opened.as_ref());
            let over = self.over_a_cap(tenant, message, &target.agent_id, books).await;
            relay.extend(over.map_err(away)?.as_ref().map(CapExceeded::failure));
        }
        failures.extend(relay);
        failures.extend(check_loop(task.as_ref(), &edges, hop, limits));
        Ok(failures)
    }

    /// The handoffs of a task that reached an agent.
    async fn reached(&self, task: &TaskKey, agent: &AgentId) -> Result<Vec<Handoff>> {
        let filter = HandoffFilter {
            task_id: Some(task.1),
            target: Some(agent.clone()),
            ..HandoffFilter::default()
        };
        let (mut reached, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list_handoffs(&task.0, &filter, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(reached) };
            after = Some((last.created_at, last.id.to_string()));
            reached.extend(page.into_iter().filter(|one| lineage::reached(one, agent)));
        }
    }

    /// The books of a task that this message begins.
    pub(super) fn opened(&self, task: Option<&Task>, message: &Message) -> Option<Funds> {
        if task.is_some_and(|task| task.handoffs > 0 || task.funds.is_some()) {
            return None;
        }
        let envelope = message.envelope();
        let declared = budget::declared(message.value());
        let topped_up = task.map_or(Usd(0), |task| task.topped_up);
        let (source, cost) = (&envelope.from_agent.agent_id, &envelope.cost_tracking);
        Some(Funds::open(source, cost, declared, topped_up, self.rules.reserve))
    }

    /// The cap that has no room for it now; of the task's books there are those that are kept, or those
    /// that it begins.
    async fn over_a_cap(
        &self,
        tenant: &TenantId,
        message: &Message,
        target: &AgentId,
        (before, opened): (Option<&Funds>, Option<&Funds>),
    ) -> Result<Option<CapExceeded>> {
        let Some(books) = opened.or(before) else { return Ok(None) };
        let envelope = message.envelope();
        let source = &envelope.from_agent.agent_id;
        let held = books.reserves.iter().map(|one| &one.holder);
        let mut agents: Vec<AgentId> = held.chain([source, target]).cloned().collect();
        agents.sort_unstable();
        agents.dedup();
        let kept = self.store.list_caps_of(tenant, &agents).await?;
        let whole: CapScope = (tenant.clone(), None);
        let mut scopes: Vec<CapScope> =
            agents.into_iter().map(|agent| (tenant.clone(), Some(agent))).collect();
        scopes.push(whole);
        let (defaults, at) = (&self.rules.caps, self.clock.now());
        let mark = i64::from_be_bytes(clock::random());
        let caps = room::in_force(kept, &scopes, defaults, (mark, at));
        let (parent, cost) = (envelope.parent_handoff_id, &envelope.cost_tracking);
        let ask = FundsRequest { parent, source, cost };
        let wanted = CapRequest { handoff: envelope.handoff_id, holder: target, ask };
        Ok(room::lacking(&caps, (defaults, at), (before, books), wanted))
    }
}
