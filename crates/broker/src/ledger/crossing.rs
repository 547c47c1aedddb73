//! The commit of a handoff: fencing token, budget, edge, outbox row, record and event. A submission, the release of
//! a dead letter and a handoff to another agent after a failure commit the same way.

use super::call::Call;
use super::context::Context;
use super::draft::{draft_of, publish};
use super::loaded::edges_of;
use super::plan::Change;
use super::returns;
use super::submission::{draw, suspend_lease};
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::handoff::{Handoff, Priority};
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_domain::progress::{Edge, Hop, passed};
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::task::Task;
use handoffd_evidence::record::{Actor, RecordDraft, RecordKind, RecordParty};
use handoffd_store::store::{BatchState, OutboxRow};

/// Completed subtasks of a handoff that no message of its own states.
const UNSTATED: i64 = -1;

/// The origin of a handoff.
pub(super) enum CrossingOrigin<'a> {
    Message {
        /// Subtasks with a result in the message.
        subtasks: &'a [u64],
    },
    /// A handoff that failed.
    Failed {
        id: HandoffId,
        /// The task's edges, with the failure counted.
        edges: Vec<&'a Edge>,
        /// The code of the recovery.
        reason: &'static str,
    },
}

/// The commit of one handoff.
pub(super) struct HandoffCrossing<'a> {
    pub(super) state: &'a BatchState,
    pub(super) call: &'a Call,
    pub(super) context: &'a Context,
    pub(super) origin: CrossingOrigin<'a>,
    pub(super) priority: Priority,
    /// The place in the task's order of delivery; `None`: after all handoffs before it.
    pub(super) seq: Option<i64>,
}

impl HandoffCrossing<'_> {
    /// Commits the handoff on its task. `draft` is its record, as far as the message or the failed handoff fills it;
    /// the caller writes the task.
    pub(super) fn cross(
        self,
        task: &mut Task,
        handoff: &mut Handoff,
        mut draft: RecordDraft,
    ) -> Vec<Change> {
        let Self { state, call, context, origin, priority, seq } = self;
        let mut changes = Vec::with_capacity(8);
        task.fence += 1;
        task.handoffs += 1;
        task.updated_at = call.at;
        handoff.fencing_token = task.fence;
        handoff.topped_up = task.topped_up;
        handoff.clock = context.offered(handoff.clock, call.at, handoff.mode);
        let mut recovery = None;
        let (edges, completed, claim) = match origin {
            CrossingOrigin::Message { subtasks } => {
                returns::inherit(state, call, handoff);
                changes.extend(returns::take_out(call, task, Some(&handoff.source)));
                draw(task, handoff);
                task.state_cost(&handoff.cost);
                changes.extend(suspend_lease(state, call, task, handoff.id));
                task.course.see(subtasks);
                // The first of its task goes out at once where the dispatcher has a slot for it; any other
                // waits for those before it.
                let claim = context.claim.as_ref().filter(|_| task.undelivered == 0);
                (edges_of(state, call, task.id), task.course.progress(&[]), claim)
            }
            CrossingOrigin::Failed { id, edges, reason } => {
                if let Some(funds) = &mut task.funds {
                    funds.pass_on(id, handoff.id, &handoff.target, &handoff.cost);
                }
                recovery = Some(reason);
                draft.reason = Some(reason.to_owned());
                (edges, UNSTATED, None)
            }
        };
        task.undelivered += 1;
        handoff.attempts = i32::from(claim.is_some());
        let hop = Hop { source: &handoff.source, target: &handoff.target, completed };
        changes.push(Change::Edge(passed(&edges, hop, task, &handoff.cost, call.at)));
        changes.push(Change::Outbox(OutboxRow {
            tenant: call.tenant.clone(),
            handoff_id: handoff.id,
            task_id: handoff.task_id,
            seq: seq.unwrap_or(task.handoffs),
            target: handoff.target.clone(),
            mode: handoff.mode,
            priority,
            // At once, whatever another broker's clock says.
            visible_at: claim.map_or(Micros(0), |claim| claim.until),
            attempt: handoff.attempts,
            busy: 0,
            claimed_by: claim.map(|claim| claim.broker.clone()),
            created_at: call.at,
        }));
        if handoff.is_streaming() {
            changes.push(Change::StreamLine((call.tenant.clone(), handoff.id)));
        }
        draft.cost = Some(handoff.cost);
        draft.spent = task.funds.as_ref().and_then(|funds| funds.before(handoff.id));
        draft.checkpoint_commitment = handoff.checkpoint_commitment;
        changes.push(Change::Handoff(handoff.clone()));
        changes.push(Change::Record(Box::new(draft)));
        let mut event = Event::of_handoff(EventType::HandoffOccurred, handoff, call.at);
        if let Some(recovery) = recovery {
            event = event.with("reason", recovery);
        }
        changes.push(publish(event));
        changes
    }
}

/// The record of a handoff whose message an earlier record holds: the broker is its actor.
pub(super) fn resent(
    call: &Call,
    handoff: &Handoff,
    residency: Option<ResidencyFacts>,
) -> RecordDraft {
    let mut draft = draft_of(call, RecordKind::Handoff, handoff);
    draft.actor = Actor::broker();
    draft.from = Some(RecordParty {
        agent_id: Some(handoff.source.clone()),
        agent_version: Some(handoff.source_version.clone()),
        execution_id: Some(handoff.source_execution),
        ..RecordParty::default()
    });
    draft.to = Some(RecordParty {
        agent_id: Some(handoff.target.clone()),
        agent_type: Some(handoff.target_type.clone()),
        agent_version: Some(handoff.target_version.clone()),
        ..RecordParty::default()
    });
    draft.residency = residency;
    draft.context = handoff.context;
    draft.shared = handoff.content_id.zip(handoff.commitment);
    draft
}
