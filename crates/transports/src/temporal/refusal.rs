//! The meaning of a Temporal error for an attempt. Pure.

use std::time::Duration;

use super::client::{CallError, Refusal};
use handoffd_broker::transport::{AttemptFailure, AttemptOutcome, FailureClass};

/// The pause that a limited attempt asks for: Temporal names none, and counts requests by the second.
const LIMITED: Duration = Duration::from_secs(2);

/// Members of an agent's delivery, as failures name them.
pub mod fields {
    pub const ADDRESS: &str = "/delivery/config/address";
    pub const NAMESPACE: &str = "/delivery/config/namespace";
    pub const WORKFLOW_TYPE: &str = "/delivery/config/workflowType";
    pub const TASK_QUEUE: &str = "/delivery/config/taskQueue";
    pub const WORKFLOW_ID: &str = "/delivery/config/workflowId";
    pub const REPLY_TO: &str = "/delivery/config/replyTo";
    pub const CREDENTIALS: &str = "/delivery/credentials";
    pub const API_KEY: &str = "/delivery/credentials/apiKey";
}

/// Codes of gRPC.
mod code {
    pub(super) const INVALID_ARGUMENT: i64 = 3;
    pub(super) const NOT_FOUND: i64 = 5;
    pub(super) const ALREADY_EXISTS: i64 = 6;
    pub(super) const PERMISSION_DENIED: i64 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i64 = 8;
    pub(super) const FAILED_PRECONDITION: i64 = 9;
    pub(super) const UNIMPLEMENTED: i64 = 12;
    pub(super) const UNAUTHENTICATED: i64 = 16;
}

impl CallError {
    /// The outcome of an attempt that ended so.
    #[must_use]
    pub fn outcome(self) -> AttemptOutcome {
        match self {
            // The guard's refusal is permanent.
            Self::Transport(failure)
                if matches!(failure.class, FailureClass::Egress | FailureClass::Request) =>
            {
                AttemptOutcome::Failed(failure.at(fields::ADDRESS))
            }
            Self::Transport(failure) => AttemptOutcome::Away(failure),
            Self::Key => AttemptOutcome::Away(
                AttemptFailure::unreached(
                    FailureClass::Unauthorized,
                    "the API key holds characters that a header cannot carry",
                )
                .at(fields::API_KEY),
            ),
            Self::Refused(refusal) => refusal.outcome(),
        }
    }

    /// The failure of an operation other than an attempt.
    #[must_use]
    pub fn failure(self) -> AttemptFailure {
        match self.outcome() {
            AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure) => failure,
            _ => {
                AttemptFailure::unreached(FailureClass::Status, "Temporal limits the broker's rate")
            }
        }
    }

    /// Whether the outcome of the request is unknown: the same request again brings it to light.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Transport(failure) => failure.reached,
            Self::Key => false,
            Self::Refused(refusal) => refusal.is_unknown(),
        }
    }
}

impl Refusal {
    /// Whether the refusal is of the broker or its namespace, and not of one workflow.
    #[must_use]
    pub fn is_general(&self) -> bool {
        matches!(
            self.code,
            code::UNAUTHENTICATED | code::PERMISSION_DENIED | code::RESOURCE_EXHAUSTED
        ) || self.kind == "NamespaceNotFoundFailure"
    }

    /// Whether Temporal may have done what was asked.
    fn is_unknown(&self) -> bool {
        !matches!(
            self.code,
            code::INVALID_ARGUMENT
                | code::NOT_FOUND
                | code::ALREADY_EXISTS
                | code::PERMISSION_DENIED
                | code::RESOURCE_EXHAUSTED
                | code::FAILED_PRECONDITION
                | code::UNIMPLEMENTED
                | code::UNAUTHENTICATED
        )
    }

    fn outcome(&self) -> AttemptOutcome {
        if self.code == code::RESOURCE_EXHAUSTED {
            return AttemptOutcome::Busy { retry_after: Some(LIMITED), reached: false };
        }
        let (class, field) = self.cause();
        let failure = AttemptFailure {
            reached: self.is_unknown(),
            status: Some(self.status),
            field,
            ..AttemptFailure::unreached(class, sentence(class))
        }
        .answered(&format!("{}: {}", self.code, self.message));
        match class {
            FailureClass::Unauthorized | FailureClass::Missing | FailureClass::Status => {
                AttemptOutcome::Away(failure)
            }
            _ => AttemptOutcome::Failed(failure),
        }
    }

    /// The class of the failure, and the setting that causes it.
    fn cause(&self) -> (FailureClass, Option<&'static str>) {
        use FailureClass::{BodyTooLarge, Missing, Refused, Status, Unauthorized};
        let message = self.message.to_ascii_lowercase();
        let says = |part: &str| message.contains(part);
        match self.code {
            code::UNAUTHENTICATED => (Unauthorized, Some(fields::API_KEY)),
            code::PERMISSION_DENIED => (Unauthorized, Some(fields::CREDENTIALS)),
            code::NOT_FOUND if self.kind == "NamespaceNotFoundFailure" => {
                (Missing, Some(fields::NAMESPACE))
            }
            code::NOT_FOUND | code::UNIMPLEMENTED => (Missing, Some(fields::ADDRESS)),
            code::INVALID_ARGUMENT if says("size exceeds limit") || says("body too large") => {
                (BodyTooLarge, None)
            }
            code::INVALID_ARGUMENT if says("task queue") || says("taskqueue") => {
                (Refused, Some(fields::TASK_QUEUE))
            }
            code::INVALID_ARGUMENT if says("workflowid") => (Refused, Some(fields::WORKFLOW_ID)),
            code::INVALID_ARGUMENT if says("workflow type") || says("workflowtype") => {
                (Refused, Some(fields::WORKFLOW_TYPE))
            }
            code::INVALID_ARGUMENT | code::ALREADY_EXISTS | code::FAILED_PRECONDITION => {
                (Refused, None)
            }
            _ => (Status, None),
        }
    }
}

const fn sentence(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Unauthorized => {
            "Temporal refused the broker's credentials, or the request to them"
        }
        FailureClass::Missing => {
            "the namespace does not exist, or the address is not of Temporal's HTTP API"
        }
        FailureClass::BodyTooLarge => "the message is larger than Temporal takes",
        FailureClass::Status => "Temporal failed",
        _ => "Temporal refused the signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i64, kind: &str, message: &str) -> AttemptOutcome {
        let (kind, message) = (kind.to_owned(), message.to_owned());
        CallError::Refused(Refusal { status: 400, code, kind, message }).outcome()
    }

    #[test]
    fn a_limited_rate_is_a_busy_server() {
        let outcome = refused(8, "ResourceExhaustedFailure", "namespace rate limit exceeded");
        assert!(matches!(outcome, AttemptOutcome::Busy { retry_after: Some(_), reached: false }));
    }

    #[test]
    fn what_an_operator_can_mend_is_waited_for() {
        for (code, kind, field, reached) in [
            (16, "", Some(fields::API_KEY), false),
            (7, "PermissionDeniedFailure", Some(fields::CREDENTIALS), false),
            (5, "NamespaceNotFoundFailure", Some(fields::NAMESPACE), false),
            (5, "", Some(fields::ADDRESS), false),
            (14, "", None, true),
            (4, "", None, true),
            (13, "", None, true),
        ] {
            let AttemptOutcome::Away(failure) = refused(code, kind, "why") else {
                panic!("{code} is not waited for");
            };
            assert_eq!((failure.field, failure.reached), (field, reached), "{code}");
            assert_eq!(failure.answered, Some(format!("{code}: why")));
        }
    }

    #[test]
    fn a_refused_signal_is_a_failed_attempt() {
        for (code, message, class, field) in [
            (3, "Blob data size exceeds limit.", FailureClass::BodyTooLarge, None),
            (3, "http: request body too large", FailureClass::BodyTooLarge, None),
            (3, "workflow type not set", FailureClass::Refused, Some(fields::WORKFLOW_TYPE)),
            (3, "WorkflowId exceeds maximum", FailureClass::Refused, Some(fields::WORKFLOW_ID)),
            (3, "missing task queue name", FailureClass::Refused, Some(fields::TASK_QUEUE)),
            (9, "workflow is closing", FailureClass::Refused, None),
        ] {
            let AttemptOutcome::Failed(failure) = refused(code, "", message) else {
                panic!("{code} is waited for");
            };
            assert_eq!((failure.class, failure.field, failure.reached), (class, field, false));
        }
    }
}
