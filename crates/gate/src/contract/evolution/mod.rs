//! How payload schemas change: what a new version breaks and for whom, and which version number that
//! asks for (seed 000 §14.3). Pure.
//!
//! Two sides live with a schema. **Senders** made their payloads for the old version: what the old
//! version describes must pass under the new one. **Receivers** read by the old version: what they rely
//! on (a property, its type, that it is there) must be found in payloads made by the new one; what they
//! do not know they are taken to ignore. The comparison errs on the safe side: what cannot be shown to
//! be harmless counts as breaking.

mod assess;
mod compare;
#[cfg(test)]
mod tests;

pub use assess::{Assessment, SchemaRelease, VersionDefect, assess};
pub use compare::compare;

/// The part of a version number that a change increments, from least to greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bump {
    /// Descriptions changed only.
    Patch,
    /// The schema allows more than before.
    Minor,
    /// The change breaks a side.
    Major,
}

impl Bump {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
        }
    }
}

/// A party that depends on a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Senders, which create payloads for the old version.
    Senders,
    /// Receivers, which read payloads by the old version.
    Receivers,
}

impl Side {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Senders => "senders",
            Self::Receivers => "receivers",
        }
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A property that may be left out is described anew.
    PropertyAdded,
    /// A property is no longer described.
    PropertyRemoved,
    /// A property must be there from now on.
    RequiredAdded,
    /// A property may be left out from now on.
    RequiredRemoved,
    /// The allowed types differ.
    TypeChanged,
    /// The schema allows less than before.
    Narrowed,
    /// The schema allows more than before.
    Widened,
    /// The effect cannot be determined.
    Incomparable,
    /// The property is marked as deprecated.
    Deprecated,
    /// Titles, descriptions, examples or defaults changed.
    Annotation,
}

impl Kind {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PropertyAdded => "property-added",
            Self::PropertyRemoved => "property-removed",
            Self::RequiredAdded => "required-added",
            Self::RequiredRemoved => "required-removed",
            Self::TypeChanged => "type-changed",
            Self::Narrowed => "narrowed",
            Self::Widened => "widened",
            Self::Incomparable => "incomparable",
            Self::Deprecated => "deprecated",
            Self::Annotation => "annotation",
        }
    }

    /// The version part that this kind increments.
    #[must_use]
    pub const fn needs(self) -> Bump {
        match self {
            Self::PropertyRemoved
            | Self::RequiredAdded
            | Self::RequiredRemoved
            | Self::TypeChanged
            | Self::Narrowed
            | Self::Incomparable => Bump::Major,
            Self::PropertyAdded | Self::Widened | Self::Deprecated => Bump::Minor,
            Self::Annotation => Bump::Patch,
        }
    }
}

/// One change between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// RFC 6901 pointer into the new schema; into the old one for what is no longer there.
    pub pointer: String,
    pub kind: Kind,
    pub breaks: &'static [Side],
    /// The reason as a sentence.
    pub reason: String,
    /// The old version marks this property, or one around it, as `deprecated`.
    pub announced: bool,
}
