//! The rules of versions: what a new version may be called, given what it changes, and what must have
//! gone before (seed 000 §14.3).
//!
//! A version is held against the highest release below it and, where it is put between two, against the
//! lowest release above it. Pre-releases are held against releases, and nothing is held against them.
//! Before 1.0.0 a breaking change moves the minor, anything else the patch, and nothing need be announced
//! (Semantic Versioning 2.0.0 §4 leaves that time free; this is what package managers make of it).

use semver::Version;
use serde_json::Value;

use super::{Bump, Change, Kind, compare};

/// A released version of a schema.
#[derive(Debug, Clone)]
pub struct SchemaRelease {
    pub version: Version,
    pub schema: Value,
}

/// The assessment of a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// The release to which the version was compared; `None` for the first.
    pub against: Option<Version>,
    /// The changes from that release.
    pub changes: Vec<Change>,
    /// The version part that the changes require; `None` without a comparison.
    pub needs: Option<Bump>,
    /// The lowest version that satisfies the rules.
    pub next: Version,
    /// Violated rules; empty where the version may be registered.
    pub faults: Vec<VersionDefect>,
}

/// A violated version rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionDefect {
    /// `/version`, `/migration`, or a place in `/schema`.
    pub pointer: String,
    /// The violation as a sentence.
    pub message: String,
}

fn fault(pointer: impl Into<String>, message: impl Into<String>) -> VersionDefect {
    VersionDefect { pointer: pointer.into(), message: message.into() }
}

/// Holds a new version against those that are there. Without a `version`, against the highest release,
/// and only what any number would have to answer for is said. `migration`: there are words on what
/// senders have to do.
#[must_use]
pub fn assess(
    known: &[SchemaRelease],
    version: Option<&Version>,
    schema: &Value,
    migration: bool,
) -> Assessment {
    let releases = || known.iter().filter(|one| one.version.pre.is_empty());
    let below = releases()
        .filter(|one| version.is_none_or(|version| one.version < *version))
        .max_by(|one, other| one.version.cmp(&other.version));
    let mut faults = Vec::new();
    let Some(before) = below else {
        let first = Assessment {
            against: None,
            changes: Vec::new(),
            needs: None,
            next: version.cloned().unwrap_or(Version::new(1, 0, 0)),
            faults,
        };
        return between(first, releases(), version, schema);
    };
    let changes = compare(&before.schema, schema);
    let needs = changes.iter().map(|change| change.kind.needs()).max().unwrap_or(Bump::Patch);
    if let Some(version) = version {
        let stated = stated(&before.version, version);
        if stated < needs {
            let next = next(&before.version, needs);
            faults.push(fault(
                "/version",
                format!(
                    "what changes since {} needs a new {} version: {next} or higher, not {version}",
                    before.version,
                    needs.as_str()
                ),
            ));
            let beyond = changes.iter().filter(|change| change.kind.needs() > stated);
            faults.extend(beyond.map(|change| {
                fault(
                    format!("/schema{}", change.pointer),
                    format!(
                        "{} ({}): {}",
                        change.kind.as_str(),
                        change.kind.needs().as_str(),
                        change.reason
                    ),
                )
            }));
        }
    }
    if before.version.major > 0 {
        faults.extend(unannounced(&changes, &before.version));
        let asks = changes.iter().find(|change| change.kind == Kind::RequiredAdded);
        if let Some(change) = asks.filter(|_| !migration) {
            faults.push(fault(
                "/migration",
                format!("say what senders have to do, for {}", change.reason),
            ));
        }
    }
    let held = Assessment {
        against: Some(before.version.clone()),
        next: next(&before.version, needs),
        changes,
        needs: Some(needs),
        faults,
    };
    between(held, releases(), version, schema)
}

/// A field that is removed or changes its type must have been marked `deprecated` in an earlier release.
fn unannounced<'a>(
    changes: &'a [Change],
    before: &'a Version,
) -> impl Iterator<Item = VersionDefect> + 'a {
    changes
        .iter()
        .filter(|change| matches!(change.kind, Kind::PropertyRemoved | Kind::TypeChanged))
        .filter(|change| !change.announced)
        .map(move |change| {
            fault(
                format!("/schema{}", change.pointer),
                format!(
                    "{} without notice: mark it `deprecated: true` in a minor release after {before} first",
                    change.kind.as_str()
                ),
            )
        })
}

/// A release below others must not leave the next one with a number that is too low.
fn between<'a>(
    mut assessment: Assessment,
    releases: impl Iterator<Item = &'a SchemaRelease>,
    version: Option<&Version>,
    schema: &Value,
) -> Assessment {
    let Some(version) = version.filter(|version| version.pre.is_empty()) else { return assessment };
    let after = releases
        .filter(|one| one.version > *version)
        .min_by(|one, other| one.version.cmp(&other.version));
    let Some(after) = after else { return assessment };
    let changes = compare(schema, &after.schema);
    let needs = changes.iter().map(|change| change.kind.needs()).max().unwrap_or(Bump::Patch);
    if stated(version, &after.version) < needs {
        assessment.faults.push(fault(
            "/version",
            format!(
                "it would stand before {}, whose changes since would need a new {} version",
                after.version,
                needs.as_str()
            ),
        ));
    }
    assessment
}

/// The part of the version number that differs. Before 1.0.0 a minor release counts as a major one.
fn stated(before: &Version, after: &Version) -> Bump {
    let young = before.major == 0 && after.major == 0;
    if before.major != after.major || (young && before.minor != after.minor) {
        Bump::Major
    } else if young || before.minor != after.minor {
        Bump::Minor
    } else {
        Bump::Patch
    }
}

/// The least release after `before` that moves this part.
fn next(before: &Version, needs: Bump) -> Version {
    let Version { major, minor, patch, .. } = *before;
    match (major, needs) {
        (0, Bump::Major) => Version::new(0, minor + 1, 0),
        (0, _) | (_, Bump::Patch) => Version::new(major, minor, patch + 1),
        (_, Bump::Major) => Version::new(major + 1, 0, 0),
        (_, Bump::Minor) => Version::new(major, minor + 1, 0),
    }
}
