//! The effects of a commit: metrics, log lines, and wake-ups of tasks that wait for it.

use std::sync::Arc;

use super::command::Freed;
use super::commands::AnyReply;
use super::reply::{HandoffReply, LedgerError, SubmissionReply};
use super::{Committed, Job, LedgerAnswer, Outgoing, ReservedSlot, Shared};
use crate::metrics::Metrics;
use handoffd_domain::cap::Defaults;
use handoffd_domain::event::EventType;
use handoffd_domain::group::{GroupFacts, GroupStatus};
use handoffd_domain::handoff::{Handoff, HandoffDraft, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::stream;
use handoffd_evidence::record::{ClassifierFacts, RecordDraft, RecordKind};
use handoffd_store::fault::Step;
use handoffd_store::store::events::CursorKey;
use handoffd_store::store::{DeliveryClaim, HandoffKey, ReceiverKey, Writes};

/// The events that one batch has to count, log and signal once it is durable.
#[derive(Default)]
pub(super) struct CommitEffects {
    events: Vec<(TenantId, EventType)>,
    records: Vec<RecordNote>,
    /// Agents with a return in their inbox.
    returned: Vec<ReceiverKey>,
    /// Handoffs with new numbers in their streams.
    chunks: Vec<HandoffKey>,
    /// How streams ended, and how many began.
    streams_ended: Vec<&'static str>,
    streams_opened: u64,
    /// How full the written caps are, by scope and unit, as shares of one.
    cap_use: Vec<([&'static str; 2], f64)>,
    /// Subscribers that came, went or were moved.
    subscribers: Vec<CursorKey>,
    /// Whether a second opinion is due.
    opinions: bool,
}

impl CommitEffects {
    pub(super) fn of(writes: &Writes, caps: &Defaults, at: Micros) -> Self {
        let rows = writes.returns.values().flatten();
        let events = writes.events.iter().map(|(_, event)| (event.tenant.clone(), event.kind));
        Self {
            events: events.collect(),
            records: writes.records.iter().map(|draft| RecordNote::of(draft, writes)).collect(),
            returned: rows.map(|row| (row.tenant.clone(), row.agent.clone())).collect(),
            chunks: writes.chunks.iter().map(|row| (row.tenant.clone(), row.handoff_id)).collect(),
            streams_ended: writes
                .chunks
                .iter()
                .filter_map(|row| Some(stream::outcome(row.ends?, row.reason.as_deref())))
                .collect(),
            streams_opened: writes.stream_lines.len() as u64,
            cap_use: cap_use(writes, caps, at),
            subscribers: writes.cursors.iter().map(|write| write.key.clone()).collect(),
            opinions: writes.opinions.values().any(Option::is_some),
        }
    }

    /// The named steps of fault tests that this batch comes to within its transaction.
    pub(super) fn steps_within(&self) -> impl Iterator<Item = Step> {
        self.steps().map(|(within, _)| within)
    }

    /// The named steps of fault tests that this batch comes to after its commit.
    pub(super) fn steps_after(&self) -> impl Iterator<Item = Step> {
        self.steps().map(|(_, after)| after)
    }

    fn steps(&self) -> impl Iterator<Item = (Step, Step)> {
        let rolls_back = self.has(|note| note.kind == RecordKind::RolledBack);
        let forks = self.has(|note| note.forks);
        let joins = self.has(|note| note.kind == RecordKind::GroupEnded);
        [
            (rolls_back, (Step::RollbackDecided, Step::RollbackDone)),
            (forks, (Step::GroupDecided, Step::GroupDone)),
            (joins, (Step::JoinDecided, Step::JoinDone)),
            (!self.chunks.is_empty(), (Step::ChunkDecided, Step::ChunkDone)),
            (!self.streams_ended.is_empty(), (Step::StreamEndDecided, Step::StreamEndDone)),
        ]
        .into_iter()
        .filter_map(|(comes, steps)| comes.then_some(steps))
    }

    fn has(&self, is: impl Fn(&RecordNote) -> bool) -> bool {
        self.records.iter().any(is)
    }
}

/// How full the caps are that a batch writes.
fn cap_use(writes: &Writes, defaults: &Defaults, at: Micros) -> Vec<([&'static str; 2], f64)> {
    let caps = writes.caps.values().flatten();
    caps.flat_map(|cap| {
        let scope = if cap.agent.is_some() { "agent" } else { "tenant" };
        let usd = cap.limit(defaults).filter(|limit| limit.0 > 0);
        let usd = usd.map(|limit| ([scope, "usd"], cap.used(at).as_f64() / limit.as_f64()));
        let tokens = cap.token_limit(defaults).filter(|limit| *limit > 0);
        let tokens =
            tokens.map(|limit| ([scope, "tokens"], cap.spent_tokens(at) as f64 / limit as f64));
        usd.into_iter().chain(tokens)
    })
    .collect()
}

impl Shared {
    /// Counts and logs a committed batch, and wakes the readers of its events and inboxes.
    pub(super) fn committed(&self, effects: &CommitEffects) {
        for (tenant, kind) in &effects.events {
            self.metrics.events.with_label_values(&[kind.as_str()]).inc();
            self.feeds.readers.wake(tenant, || ());
        }
        if !effects.events.is_empty() {
            self.feeds.publisher.notify_one();
        }
        for subscriber in &effects.subscribers {
            self.feeds.served.wake(subscriber, || ());
        }
        if !effects.subscribers.is_empty() {
            self.feeds.subscribers.notify_one();
        }
        if effects.opinions {
            self.feeds.opinions.notify_one();
        }
        for receiver in &effects.returned {
            self.wake_inbox(receiver);
        }
        self.metrics.streams_opened.inc_by(effects.streams_opened);
        for outcome in &effects.streams_ended {
            self.metrics.streams_ended.with_label_values(&[outcome]).inc();
        }
        for key in &effects.chunks {
            self.feeds.streams.wake(key, || ());
        }
        if !effects.chunks.is_empty() {
            self.feeds.lines.notify_one();
        }
        for (labels, share) in &effects.cap_use {
            self.metrics.cap_use.with_label_values(labels).observe(*share);
        }
        for note in &effects.records {
            count_record(&self.metrics, note.kind);
            if let Some(group) = note.group {
                let outcome = group.outcome.map_or("", GroupStatus::as_str);
                self.metrics.groups.with_label_values(&[group.join.kind(), outcome]).inc();
            }
            if let Some(opinion) = &note.opinion {
                self.metrics.classifier_verdicts.with_label_values(&[&opinion.verdict]).inc();
            }
            if let Some(handoff) = &note.moved {
                self.metrics.count_transition(handoff);
            }
            note.warn();
        }
    }

    /// Counts one command's outcome, hands its handoff to the dispatcher, wakes its waiters and answers its caller.
    pub(super) fn after(&self, job: Job, answer: Result<Committed<AnyReply>, LedgerError>) {
        let reply = answer.as_ref().ok().map(|committed| &committed.reply);
        let submission = reply.and_then(AnyReply::submission);
        if let Some(SubmissionReply::Handoff { handoff, replayed: false }) = submission
            && handoff.status == HandoffStatus::Pending
        {
            self.metrics.count_emitted(handoff);
            audit_line(handoff);
        }
        if let Some(SubmissionReply::Group { handoffs, replayed: false, .. }) = submission {
            for handoff in handoffs {
                self.metrics.count_emitted(handoff);
                audit_line(handoff);
                let receiver = (handoff.tenant.clone(), handoff.target.clone());
                if handoff.mode.is_pushed() {
                    self.outbound.nudge(&receiver);
                } else {
                    self.wake_inbox(&receiver);
                }
            }
        }
        let bounced = matches!(answer, Err(LedgerError::NotHolder));
        let returned = bounced.then(|| job.outgoing.clone()).flatten();
        if let Some(handoff) = job.command.delivers() {
            let lost = matches!(answer, Err(LedgerError::Unavailable));
            self.dispatch(handoff, job.slot, job.outgoing, (submission, lost));
        }
        if job.command.changes_caps() {
            // Also after an error: an unanswered commit may be durable.
            self.capped.forget();
        }
        let undone = matches!(submission, Some(SubmissionReply::Refused { undone: Some(_), .. }));
        let more = reply.and_then(AnyReply::handoff).is_some_and(|reply| self.moved(reply));
        let frees = if undone || more { Some(Freed::Anywhere) } else { job.command.frees(reply) };
        if frees == Some(Freed::Anywhere) {
            // The next receiver may be any agent, at any broker.
            self.outbound.nudge_all();
        }
        if frees.is_some() {
            self.signal_claimable();
        }
        // Its span ends before the caller's does.
        drop(job.span);
        // The command is carried out whether or not its caller still waits.
        let returned = returned.map(|outgoing| (job.call, job.command, outgoing));
        let _ = job.answer.send(LedgerAnswer { result: answer, returned });
    }

    /// Follows a handoff that a command moved. Returns whether more of its task can be claimed now.
    fn moved(&self, reply: &HandoffReply) -> bool {
        let HandoffReply { handoff, more, repeated, latency, .. } = reply;
        if handoff.status != HandoffStatus::Pending {
            let key = (handoff.tenant.clone(), handoff.id);
            self.waiters.wake(&key, || Some(Arc::new(handoff.clone())));
            if let Some(place) = handoff.branch() {
                self.waiters.wake(&(handoff.tenant.clone(), place.id), || None);
            }
        }
        if !repeated {
            audit_line(handoff);
            self.receivers.moved(handoff, latency.whole.is_some());
        }
        self.metrics.observe_latency(handoff, latency);
        *more
    }

    /// Wakes the polls of an inbox here, or signals the other brokers.
    fn wake_inbox(&self, receiver: &ReceiverKey) {
        if !self.inboxes.wake(receiver, || ()) {
            self.signals.beyond.notify_one();
        }
    }

    /// Signals that any inbox, here or at another broker, may have something to claim.
    fn signal_claimable(&self) {
        self.signals.freed.notify_one();
        self.signals.beyond.notify_one();
    }

    /// Uses or releases the reserved slot of a submission, and wakes the receiver of the committed handoff.
    fn dispatch(
        &self,
        draft: &HandoffDraft,
        slot: Option<ReservedSlot>,
        outgoing: Option<Outgoing>,
        (reply, lost): (Option<&SubmissionReply>, bool),
    ) {
        let slot = slot.map(|reserved| reserved.slot);
        let receiver = (draft.tenant.clone(), draft.target.clone());
        let fresh = match reply {
            Some(SubmissionReply::Handoff { handoff, replayed: false }) => Some(handoff),
            _ => None,
        };
        match (fresh, slot, outgoing) {
            // Only the first waiting handoff of a task may use the slot.
            (Some(handoff), Some(slot), Some(outgoing)) if handoff.attempts == 1 => {
                let edge = handoff.ruling.as_ref().map(|ruling| &ruling.edge);
                let claim = DeliveryClaim {
                    tenant: handoff.tenant.clone(),
                    handoff_id: handoff.id,
                    task_id: handoff.task_id,
                    target: handoff.target.clone(),
                    attempt: 1,
                    fencing_token: handoff.fencing_token,
                    idempotent: handoff.idempotent,
                    unsettled: false,
                    busy: 0,
                    deadline_at: handoff.deadline_at,
                    to_person: handoff.ruling.as_ref().is_some_and(|one| one.is_to_person()),
                    max_retries: edge.and_then(|edge| edge.max_retries),
                    verdict_ms: edge.and_then(|edge| edge.timeout_ms),
                    traceparent: handoff.traceparent.clone(),
                    tracestate: handoff.tracestate.clone(),
                    span: handoff.span.clone(),
                    context: handoff.context,
                    compressed: false,
                    body: outgoing.body,
                    personal: outgoing.personal,
                };
                self.outbound.deliver(slot, claim);
            }
            (Some(handoff), slot, _) => {
                if let Some(slot) = slot {
                    self.outbound.release(slot, &receiver, false);
                }
                match (handoff.status, handoff.mode.is_pushed()) {
                    (HandoffStatus::Pending, true) => self.outbound.nudge(&receiver),
                    (HandoffStatus::Pending, false) => self.wake_inbox(&receiver),
                    _ => {}
                }
            }
            (None, Some(slot), _) => {
                self.outbound.release(slot, &receiver, lost);
            }
            (None, None, _) => {}
        }
    }
}

/// The ids and codes of a record that metrics and logs use.
struct RecordNote {
    kind: RecordKind,
    incident: Option<Incident>,
    /// The handoff with the status that it reached.
    moved: Option<Box<Handoff>>,
    /// The result of a group.
    group: Option<GroupFacts>,
    /// Whether it commits a branch of a group.
    forks: bool,
    /// The recorded opinion of the external classifier.
    opinion: Option<ClassifierFacts>,
}

/// A rollback, escalation, dead letter, or a message that a classifier calls unsafe.
struct Incident {
    tenant: TenantId,
    task: Option<TaskId>,
    handoff: Option<HandoffId>,
    source: Option<AgentId>,
    target: Option<AgentId>,
    reason: Option<String>,
}

impl RecordNote {
    fn of(draft: &RecordDraft, writes: &Writes) -> Self {
        let incident = matches!(
            draft.kind,
            RecordKind::RolledBack | RecordKind::Escalated | RecordKind::DeadLettered
        );
        let unsafe_text =
            draft.opinion.as_ref().is_some_and(|one| one.verdict == ClassifierFacts::UNSAFE);
        let incident = (incident || unsafe_text).then(|| {
            let key = draft.handoff_id.map(|id| (draft.tenant.clone(), id));
            let row = key.and_then(|key| writes.handoffs.get(&key)).map(|(row, _)| row);
            Incident {
                tenant: draft.tenant.clone(),
                task: draft.task_id,
                handoff: draft.handoff_id,
                source: row.map(|row| row.source.clone()),
                target: row.map(|row| row.target.clone()),
                reason: draft.reason.clone().or_else(|| draft.opinion.as_ref()?.label.clone()),
            }
        });
        let moved = reached(draft.kind).and_then(|status| {
            let key = draft.handoff_id.map(|id| (draft.tenant.clone(), id))?;
            let (row, _) = writes.handoffs.get(&key)?;
            // A later command of the batch may have moved it on.
            let ended_at = row.ended_at.filter(|_| status.is_final());
            Some(Box::new(Handoff { status, ended_at, ..row.clone() }))
        });
        let group = draft.group.filter(|_| draft.kind == RecordKind::GroupEnded);
        let forks = draft.kind == RecordKind::Handoff && draft.group.is_some();
        Self { kind: draft.kind, incident, moved, group, forks, opinion: draft.opinion.clone() }
    }

    /// A line for each incident.
    fn warn(&self) {
        let Some(Incident { tenant, task, handoff, source, target, reason }) = &self.incident
        else {
            return;
        };
        tracing::warn!(
            event = self.kind.as_str(),
            tenant = %tenant,
            task_id = task.map(|id| id.to_string()),
            handoff_id = handoff.map(|id| id.to_string()),
            source_agent_id = source.as_ref().map(AgentId::as_str),
            target_agent_id = target.as_ref().map(AgentId::as_str),
            reason = reason.as_deref(),
            "a handoff went wrong"
        );
    }
}

/// The line under a contract's `audit_event` (seed 002 §4.1): emit, accept, reject, complete, and how it ended.
fn audit_line(handoff: &Handoff) {
    if let Some(name) = handoff.audit_event() {
        tracing::info!(
            audit_event = name,
            handoff_id = %handoff.id,
            task_id = %handoff.task_id,
            source_agent_id = %handoff.source,
            target_agent_id = %handoff.target,
            status = handoff.status.as_str(),
            "contract event"
        );
    }
}

/// The status that a handoff reached by a record of this kind: each is counted once, whatever command wrote it.
const fn reached(kind: RecordKind) -> Option<HandoffStatus> {
    match kind {
        RecordKind::Accepted => Some(HandoffStatus::Accepted),
        RecordKind::Rejected => Some(HandoffStatus::Rejected),
        RecordKind::InputRequested => Some(HandoffStatus::InputRequired),
        RecordKind::Completed => Some(HandoffStatus::Completed),
        RecordKind::Failed => Some(HandoffStatus::Failed),
        RecordKind::Expired => Some(HandoffStatus::Expired),
        RecordKind::Canceled => Some(HandoffStatus::Canceled),
        _ => None,
    }
}

/// Counts records of a kind that no other metric counts.
fn count_record(metrics: &Metrics, kind: RecordKind) {
    let decided = |result: &str| metrics.dead_letter_decisions.with_label_values(&[result]).inc();
    match kind {
        RecordKind::DeadLettered => metrics.dead_letters_total.inc(),
        RecordKind::RolledBack => metrics.rollbacks.inc(),
        RecordKind::InputRequested => metrics.questions.with_label_values(&["asked"]).inc(),
        RecordKind::InputProvided => metrics.questions.with_label_values(&["answered"]).inc(),
        RecordKind::Escalated => metrics.escalations_total.inc(),
        RecordKind::EscalationResolved => metrics.escalations_resolved.inc(),
        RecordKind::Released => decided("released"),
        RecordKind::ReleaseRefused => decided("refused"),
        RecordKind::Discarded => decided("discarded"),
        _ => {}
    }
}
