//! Deliver a dead letter to several receivers after all.

use crate::ledger::command::{Call, Command, Freed};
use crate::ledger::context::Context;
use crate::ledger::dead_letters::{decided, open, refuse_again};
use crate::ledger::draft::draft_of;
use crate::ledger::groups;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::DeadLetterReply;
use crate::ledger::submission::SubmitGroup;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::Failure;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_evidence::record::{RecordContent, RecordKind};
use handoffd_store::store::BatchState;

/// An upheld appeal about a message to several receivers: its group is committed as at its submission.
#[derive(Debug, Clone)]
pub struct ReleaseGroup {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    /// The group, under the dead letter's id.
    pub group: SubmitGroup,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// The appeal: reason and waived findings.
    pub content: RecordContent,
}

impl Command for ReleaseGroup {
    type Reply = DeadLetterReply;
    const NAME: &'static str = "release_group";
    const ASKS_CAPS: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        self.group.read(rows);
        rows.handoff(self.task_id, self.handoff_id);
        rows.dead_letter(self.handoff_id);
    }

    /// An appeal about a message to several receivers was upheld: its group is committed as at a submission, all branches or
    /// none. The dead letter's own handoff stays one; the group's branches are handoffs of their own.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let ReleaseGroup { group, waived, content, .. } = self;
        let (row, handoff, task) = open(state, call, self.task_id, self.handoff_id)?;
        let mut task = task.clone();
        let committed =
            groups::release(state, call, context, (&mut task, handoff), (group, waived))?;
        let changes = match committed {
            Ok(changes) => changes,
            Err(refused) => {
                return Ok(refuse_again(call, row, handoff, (waived, refused), content));
            }
        };
        let mut decision = draft_of(call, RecordKind::Released, handoff);
        decision.content = Some(content.clone());
        decision.reason = Some(row.reason.clone());
        let row = decided(call, row, DeadLetterStatus::Released);
        let mut all = vec![Change::Record(Box::new(decision))];
        all.extend(changes);
        all.extend([Change::Task(task), Change::DeadLetter(row.clone())]);
        let handoff = handoff.clone();
        Ok((all, DeadLetterReply { row, handoff, refused: Vec::new() }))
    }

    fn frees(&self, reply: Option<&Self::Reply>) -> Option<Freed> {
        let reply = reply?;
        (reply.row.status == DeadLetterStatus::Released).then_some(Freed::Anywhere)
    }
}
