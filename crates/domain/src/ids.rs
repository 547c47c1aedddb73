//! Identifiers. Each is a type of its own, so that a task's id cannot stand where a handoff's is due.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {rule}")]
pub struct IdError {
    what: &'static str,
    rule: &'static str,
}

/// Microseconds since the Unix epoch: the one form of time in the store and in commands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Micros(pub i64);

impl Micros {
    /// This instant moved by a duration.
    #[must_use]
    pub fn plus(self, by: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_micros(
            u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0),
        )
    }

    /// RFC 3339 in UTC with microseconds, e.g. `2026-11-21T06:18:41.123456Z`.
    #[must_use]
    pub fn rfc3339(self) -> String {
        let format = time::macros::format_description!(
            "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z"
        );
        time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000)
            .ok()
            .and_then(|at| at.format(&format).ok())
            .unwrap_or_else(|| format!("{}us", self.0))
    }

    /// Reads a time in RFC 3339; a fraction below a microsecond is cut.
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let format = &time::format_description::well_known::Rfc3339;
        let at = time::OffsetDateTime::parse(text, format).ok()?;
        i64::try_from(at.unix_timestamp_nanos() / 1_000).ok().map(Self)
    }

    /// Whole seconds since the epoch.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| IdError { what: $what, rule: "must be a UUID" })
            }
        }
    };
}

uuid_id!(
    /// One handoff (seed 000 §5.2 `handoffId`).
    HandoffId,
    "handoffId"
);
uuid_id!(
    /// The task of the handoffs (seed 000 §5.2 `taskId`).
    TaskId,
    "taskId"
);
uuid_id!(
    /// One run of an agent (seed 000 §5.2 `fromAgent.executionId`).
    ExecutionId,
    "executionId"
);
uuid_id!(
    /// A stored content: what a record commits to, kept apart from it so that it can be erased.
    ContentId,
    "contentId"
);
uuid_id!(
    /// An operator's subscription to events.
    SubscriptionId,
    "subscriptionId"
);
uuid_id!(
    /// One login of a person at the console.
    SessionId,
    "sessionId"
);
uuid_id!(
    /// One erasure of a data subject.
    ErasureId,
    "erasureId"
);

uuid_id!(
    /// A question that waits for a person.
    EscalationId,
    "escalationId"
);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $extra:literal, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let mut bytes = text.bytes();
                let legal = text.len() <= $max
                    && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
                    && bytes.all(|b| b.is_ascii_alphanumeric() || $extra.contains(&b))
                    && !text.starts_with("type:");
                if legal {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(IdError { what: $what, rule: $rule })
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id!(
    /// An organisation. Every other id lives inside one.
    TenantId,
    "tenant",
    64,
    b"-_",
    "must be 1 to 64 letters, digits, '-' or '_', beginning with a letter or digit"
);
text_id!(
    /// An agent, unique within its tenant.
    AgentId,
    "agentId",
    128,
    b"._:@-",
    "must be 1 to 128 letters, digits or any of . _ : @ -, beginning with a letter or digit, and not begin with 'type:'"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_ids_are_plain_and_never_look_like_a_type_reference() {
        for good in ["a", "legal-analysis-agent", "urn:agent:7", "A.b_c@d"] {
            assert!(good.parse::<AgentId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "type:risk", "a b", "a/b", "ä", &"x".repeat(129), "a\0"] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn time_is_written_in_utc_with_microseconds() {
        assert_eq!(Micros(1_763_705_921_123_456).rfc3339(), "2025-11-21T06:18:41.123456Z");
        assert_eq!(Micros(5).since(Micros(9)), std::time::Duration::ZERO);
    }
}
