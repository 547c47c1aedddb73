//! The kinds of facts that a summary must not lose.

use serde::{Deserialize, Serialize};

/// The kinds of facts, the most needed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FactKind {
    /// An obligation or a prohibition: modal verbs, orders and their negations.
    Constraint,
    /// A warning, a risk, a flag.
    Flag,
    /// A correction of an earlier statement.
    Change,
    /// A promise to do something.
    Commitment,
    /// A decision, with its reason where one is given.
    Decision,
    /// An open question, or a decision that is not taken yet.
    OpenDecision,
    /// Why something is so.
    Reason,
    /// An amount of money, a percentage.
    Amount,
    /// A date or a time.
    Date,
    /// An identifier, an address.
    Id,
    Number,
}

impl FactKind {
    /// All kinds, the most needed first.
    pub const ALL: [Self; 11] = [
        Self::Constraint,
        Self::Flag,
        Self::Change,
        Self::Commitment,
        Self::Decision,
        Self::OpenDecision,
        Self::Reason,
        Self::Amount,
        Self::Date,
        Self::Id,
        Self::Number,
    ];

    /// Whether the fact is a whole sentence.
    #[must_use]
    pub const fn is_statement(self) -> bool {
        !matches!(self, Self::Amount | Self::Date | Self::Id | Self::Number)
    }
}
