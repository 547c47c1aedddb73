//! Dead letters: handoffs that only a person releases or discards (specification §5).

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterStatus {
    /// The dead letter waits for a person.
    Open,
    /// A person released it: its handoff was delivered.
    Released,
    /// A person discarded it.
    Discarded,
}

impl DeadLetterStatus {
    pub const ALL: [Self; 3] = [Self::Open, Self::Released, Self::Discarded];

    /// The status on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Released => "RELEASED",
            Self::Discarded => "DISCARDED",
        }
    }

    /// Reads a status back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}
