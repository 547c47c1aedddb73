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

pub use assess::{Assessment, Fault, Known, assess};
pub use compare::compare;

/// Which part of a version number a change moves, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bump {
    /// Words only.
    Patch,
    /// More is allowed than before.
    Minor,
    /// Somebody breaks.
    Major,
}

impl Bump {
    /// As written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
        }
    }
}

/// Who lives with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who makes payloads for the old version.
    Senders,
    /// Who reads payloads by the old version.
    Receivers,
}

impl Side {
    /// As written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Senders => "senders",
            Self::Receivers => "receivers",
        }
    }
}

/// What kind of change it is.
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
    /// Other types than before.
    TypeChanged,
    /// Less is allowed than before.
    Narrowed,
    /// More is allowed than before.
    Widened,
    /// It cannot be told what the change does.
    Incomparable,
    /// Marked as on its way out.
    Deprecated,
    /// Words for people: titles, descriptions, examples, defaults.
    Annotation,
}

impl Kind {
    /// As written.
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

    /// Which part of the version number it moves.
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

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// RFC 6901 pointer into the new schema; into the old one for what is no longer there.
    pub pointer: String,
    /// What kind it is.
    pub kind: Kind,
    /// Who breaks.
    pub breaks: &'static [Side],
    /// Why, in words.
    pub reason: String,
    /// The old version says of this place, or of one around it, that it is `deprecated`.
    pub announced: bool,
}
