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

/// An object that an administrative record changed: its id and the names of the changed members. The values are in the record's
/// content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordChange))]
#[serde(rename_all = "camelCase")]
pub struct ChangeFacts {
    /// The kind of object: `agent`, `key`, `legalHold`, `cap`, `subscription`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub object: StateObject,
    /// Its id; of a cap its window, behind the agent's id where it is an agent's.
    pub id: String,
    /// The role of a key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub role: Option<String>,
    /// Names of the members that changed; absent where it was made or removed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changed: Vec<String>,
    /// Whether it was removed.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub removed: bool,
}

/// Rows that had no committed state, and have one from this record on.
// That state is in the content of the `STATE_ADOPTED` record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordAdoption))]
#[serde(rename_all = "camelCase")]
pub struct AdoptionFacts {
    /// How many objects.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub objects: u64,
    /// The log's size when their rows were read.
    // A record from there on that is about one of them counts instead.
    pub as_of: i64,
}
