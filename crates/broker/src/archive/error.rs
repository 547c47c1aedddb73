//! The errors of the archive.

use handoffd_store::store::StoreError;
use handoffd_store::store::cold::ColdError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ArchiveError {
    /// The settings name no archive, or an invalid one.
    #[error("{0}")]
    Config(String),
    /// The object does not exist.
    #[error("the archive has no {0}")]
    Missing(String),
    /// The object's bytes differ from those written.
    #[error("the archive's {0} is damaged")]
    Damaged(String),
    /// The archive cannot be reached, read or written. Retry later.
    #[error("the archive is not available: {0}")]
    Away(String),
    /// Another broker is archiving this tenant.
    #[error("another broker archives tenant {0}")]
    Busy(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ArchiveError {
    /// The failure as reported to a reader of a content.
    #[must_use]
    pub const fn fault(&self) -> ColdError {
        match self {
            Self::Missing(_) => ColdError::Missing,
            Self::Damaged(_) => ColdError::Damaged,
            _ => ColdError::Away,
        }
    }
}
