//! All that a run cannot repeat: the time and new ids. The kit drives other people's brokers, so nothing steps its clock.

#![allow(
    clippy::disallowed_methods,
    reason = "the one place of the kit that asks for time and ids"
)]

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

/// A new id, version 4.
pub(crate) fn id() -> Uuid {
    Uuid::new_v4()
}

/// The time as RFC 3339.
pub(crate) fn timestamp() -> String {
    OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default()
}
