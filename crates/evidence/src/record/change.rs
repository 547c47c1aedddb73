//! The changes that an administrative record states: ids, roles and the names of changed members, never a value.

use serde::{Deserialize, Serialize};

/// An object whose state steers the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateObject {
    Agent,
    Key,
    LegalHold,
    Cap,
    Subscription,
    Contract,
    PayloadSchema,
}

impl StateObject {
    /// The name in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Key => "key",
            Self::LegalHold => "legalHold",
            Self::Cap => "cap",
            Self::Subscription => "subscription",
            Self::Contract => "contract",
            Self::PayloadSchema => "payloadSchema",
        }
    }

    /// The name in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::LegalHold => "legal hold",
            Self::PayloadSchema => "payload schema",
            other => other.as_str(),
        }
    }
}

/// One object that a record changed. Its whole new state is in the record's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeFacts {
    pub object: StateObject,
    /// The object's id. Of a cap its window, behind the agent's id where it is an agent's.
    pub id: String,
    /// The role of a key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<String>,
    /// Names of the members that changed; empty for an object that was made.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changed: Vec<String>,
    /// The object was removed.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub removed: bool,
}

/// The facts of a `STATE_ADOPTED` record: so many objects had no committed state, and have the one in the record's
/// content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionFacts {
    /// How many objects.
    pub objects: u64,
    /// The log's size when their rows were read: a record from there on that is about one of them counts instead.
    pub as_of: i64,
}
