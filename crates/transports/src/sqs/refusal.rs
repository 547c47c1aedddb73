//! The meaning of an SQS error for an attempt. Pure.

use std::time::Duration;

use super::client::{CallError, Refusal};
use handoffd_broker::transport::{AttemptFailure, AttemptOutcome, FailureClass};

/// The pause that a throttled attempt asks for: SQS names none, and counts requests by the second.
const THROTTLED: Duration = Duration::from_secs(2);

/// Members of an agent's delivery, as failures name them.
pub mod fields {
    pub const QUEUE: &str = "/delivery/config/queueUrl";
    pub const REGION: &str = "/delivery/config/region";
    pub const SIZE: &str = "/delivery/config/maxMessageBytes";
    pub const CREDENTIALS: &str = "/delivery/credentials";
    pub const KEY_ID: &str = "/delivery/credentials/accessKeyId";
    pub const SECRET: &str = "/delivery/credentials/secretAccessKey";
    pub const TOKEN: &str = "/delivery/credentials/sessionToken";
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
                AttemptOutcome::Failed(failure.at(fields::QUEUE))
            }
            Self::Transport(failure) => AttemptOutcome::Away(failure),
            Self::Credentials(why) => AttemptOutcome::Away(
                AttemptFailure::unreached(
                    FailureClass::Unauthorized,
                    format!("there are no credentials to sign with: {why}"),
                )
                .at(fields::CREDENTIALS),
            ),
            Self::Refused(refusal) => refusal.outcome(),
        }
    }

    /// The failure of an operation other than an attempt.
    #[must_use]
    pub fn failure(self) -> AttemptFailure {
        match self.outcome() {
            AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure) => failure,
            _ => AttemptFailure::unreached(FailureClass::Status, "SQS throttles the broker"),
        }
    }

    /// Whether repeating the same request may bring another answer: its outcome is unknown.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        match self {
            Self::Transport(failure) => failure.reached,
            Self::Credentials(_) => false,
            Self::Refused(refusal) => refusal.status >= 500,
        }
    }
}

impl Refusal {
    fn outcome(&self) -> AttemptOutcome {
        if self.is_throttling() {
            return AttemptOutcome::Busy { retry_after: Some(THROTTLED), reached: false };
        }
        let (class, field) = self.cause();
        let failure = AttemptFailure {
            // SQS keeps nothing of a request that it refuses; after an error of its own it may.
            reached: self.status >= 500,
            status: Some(self.status),
            field,
            ..AttemptFailure::unreached(class, self.sentence(class))
        }
        .answered(&format!("{}: {}", self.code, self.message));
        match class {
            FailureClass::Unauthorized | FailureClass::Missing | FailureClass::Status => {
                AttemptOutcome::Away(failure)
            }
            _ => AttemptOutcome::Failed(failure),
        }
    }

    fn is_throttling(&self) -> bool {
        ["Throttl", "OverLimit", "RequestLimitExceeded", "TooManyRequests"]
            .iter()
            .any(|part| self.code.contains(part))
    }

    /// The class of the failure, and the setting that causes it.
    fn cause(&self) -> (FailureClass, Option<&'static str>) {
        use FailureClass::{BodyTooLarge, Missing, Refused, Status, Unauthorized};
        let says = |part: &str| self.message.contains(part);
        match self.code.as_str() {
            "InvalidClientTokenId" | "UnrecognizedClientException" | "InvalidAccessKeyId" => {
                (Unauthorized, Some(fields::KEY_ID))
            }
            // The broker's clock or the queue's is wrong; no setting of the agent helps.
            "RequestExpired" => (Unauthorized, None),
            "SignatureDoesNotMatch" | "InvalidSignatureException" | "IncompleteSignature"
                if says("Signature expired") || says("not yet current") =>
            {
                (Unauthorized, None)
            }
            "SignatureDoesNotMatch" | "InvalidSignatureException" | "IncompleteSignature"
                if says("valid region") =>
            {
                (Unauthorized, Some(fields::REGION))
            }
            "SignatureDoesNotMatch" | "InvalidSignatureException" | "IncompleteSignature" => {
                (Unauthorized, Some(fields::SECRET))
            }
            "ExpiredToken" | "ExpiredTokenException" | "InvalidToken" => {
                (Unauthorized, Some(fields::TOKEN))
            }
            code if code.starts_with("Kms") => (Unauthorized, Some(fields::QUEUE)),
            code if code.starts_with("AccessDenied")
                || code.starts_with("MissingAuthenticationToken")
                || matches!(code, "NotAuthorized" | "OptInRequired" | "InvalidSecurity") =>
            {
                (Unauthorized, Some(fields::CREDENTIALS))
            }
            code if code.contains("QueueDoesNotExist")
                || code.contains("NonExistentQueue")
                || matches!(code, "QueueDeletedRecently" | "InvalidAddress") =>
            {
                (Missing, Some(fields::QUEUE))
            }
            _ if says("must be shorter than") || self.status == 413 => {
                (BodyTooLarge, Some(fields::SIZE))
            }
            _ if self.status >= 500 => (Status, None),
            _ => (Refused, None),
        }
    }

    fn sentence(&self, class: FailureClass) -> String {
        let what = match class {
            FailureClass::Unauthorized => {
                "SQS refused the broker's credentials, or the action to them"
            }
            FailureClass::Missing => "the queue does not exist",
            FailureClass::BodyTooLarge => "the message is larger than the queue takes",
            FailureClass::Status => "SQS failed",
            _ => "SQS refused the message",
        };
        format!("{what} ({})", self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, message: &str) -> AttemptOutcome {
        let (code, message) = (code.to_owned(), message.to_owned());
        CallError::Refused(Refusal { status, code, message }).outcome()
    }

    #[test]
    fn throttling_is_a_busy_queue() {
        for code in
            ["RequestThrottled", "ThrottlingException", "KmsThrottled", "OverLimit", "Throttling"]
        {
            assert!(
                matches!(
                    refused(400, code, ""),
                    AttemptOutcome::Busy { retry_after: Some(_), reached: false }
                ),
                "{code}"
            );
        }
    }

    #[test]
    fn refused_credentials_and_missing_queues_wait_and_name_the_field() {
        for (code, message, field) in [
            ("InvalidClientTokenId", "The security token is invalid", Some(fields::KEY_ID)),
            ("UnrecognizedClientException", "", Some(fields::KEY_ID)),
            ("SignatureDoesNotMatch", "does not match the signature", Some(fields::SECRET)),
            (
                "InvalidSignatureException",
                "should be scoped to a valid region",
                Some(fields::REGION),
            ),
            ("InvalidSignatureException", "Signature expired: it is earlier", None),
            ("ExpiredTokenException", "", Some(fields::TOKEN)),
            ("AccessDenied", "User is not authorized", Some(fields::CREDENTIALS)),
            ("AccessDeniedException", "", Some(fields::CREDENTIALS)),
            ("KmsAccessDenied", "", Some(fields::QUEUE)),
            ("QueueDoesNotExist", "", Some(fields::QUEUE)),
            ("InternalError", "", None),
        ] {
            let status = if code == "InternalError" { 500 } else { 400 };
            let AttemptOutcome::Away(failure) = refused(status, code, message) else {
                panic!("{code} does not wait");
            };
            assert_eq!(failure.field, field, "{code}");
            assert_eq!(failure.reached, status == 500, "{code}");
            assert_eq!(failure.answered, Some(format!("{code}: {message}")));
        }
    }

    #[test]
    fn a_refused_message_is_a_failed_attempt() {
        for (code, message, class) in [
            ("InvalidMessageContents", "Invalid characters", FailureClass::Refused),
            (
                "InvalidParameterValue",
                "Reason: Message must be shorter than 262144 bytes.",
                FailureClass::BodyTooLarge,
            ),
            ("UnsupportedOperation", "", FailureClass::Refused),
        ] {
            let AttemptOutcome::Failed(failure) = refused(400, code, message) else {
                panic!("{code} waits");
            };
            assert_eq!((failure.class, failure.reached), (class, false), "{code}");
        }
    }

    #[test]
    fn a_server_away_is_waited_for_and_a_refused_address_is_not() {
        let connect = AttemptFailure::unreached(FailureClass::Connect, "no connection");
        assert!(!CallError::Transport(connect.clone()).is_unknown());
        let AttemptOutcome::Away(failure) = CallError::Transport(connect).outcome() else {
            panic!("it is not waited for");
        };
        assert!(!failure.reached);
        let egress = AttemptFailure::unreached(FailureClass::Egress, "loopback");
        let AttemptOutcome::Failed(failure) = CallError::Transport(egress).outcome() else {
            panic!("it is waited for");
        };
        assert_eq!(failure.field, Some(fields::QUEUE));
    }
}
