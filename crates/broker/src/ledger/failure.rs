//! How a handoff fails, as a value: the receiver says no, no word came in time, or an attempt had no success.

use handoffd_domain::escalation::EscalationOutcome;
use handoffd_domain::funds::Spending;
use handoffd_domain::handoff::HandoffEvent;
use handoffd_domain::ruling::Trigger;
use handoffd_evidence::record::{RecordContent, RecordKind};

/// A failed end of a handoff.
pub(super) struct HandoffFailure<'a> {
    pub(super) event: HandoffEvent,
    pub(super) kind: RecordKind,
    pub(super) trigger: Trigger,
    pub(super) reason: &'a str,
    pub(super) content: Option<&'a RecordContent>,
    /// Cumulative spending until then, as the receiver states it.
    pub(super) spent: Option<Spending>,
}

impl HandoffFailure<'_> {
    /// The outcome of an escalation that the failing handoff is.
    pub(super) const fn outcome(&self) -> EscalationOutcome {
        match self.kind {
            RecordKind::Rejected => EscalationOutcome::Rejected,
            RecordKind::Expired => EscalationOutcome::Expired,
            _ => EscalationOutcome::Failed,
        }
    }
}

/// No word in time.
pub(super) const fn expired(reason: &str, trigger: Trigger) -> HandoffFailure<'_> {
    HandoffFailure {
        event: HandoffEvent::Expire,
        kind: RecordKind::Expired,
        trigger,
        reason,
        content: None,
        spent: None,
    }
}

/// The receiver, or the broker for it, says no.
pub(super) const fn rejected<'a>(
    reason: &'a str,
    content: Option<&'a RecordContent>,
) -> HandoffFailure<'a> {
    HandoffFailure {
        event: HandoffEvent::Reject,
        kind: RecordKind::Rejected,
        trigger: Trigger::Reject,
        reason,
        content,
        spent: None,
    }
}

pub(super) const fn failed<'a>(
    reason: &'a str,
    content: Option<&'a RecordContent>,
) -> HandoffFailure<'a> {
    HandoffFailure {
        event: HandoffEvent::Fail,
        kind: RecordKind::Failed,
        trigger: Trigger::Error,
        reason,
        content,
        spent: None,
    }
}
