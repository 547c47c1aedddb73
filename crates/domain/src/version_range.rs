//! Ranges of semantic versions as npm writes them (specification §2.1, §4.1; ruling X15): which versions of a
//! role will do, and which versions of the message schema an agent takes.
//!
//! `||` between alternatives, blanks (or Cargo's comma) between comparators that must all hold, `^`, `~`, `>=`,
//! `<=`, `>`, `<`, `=`, `1.2 - 2`, and `x`, `X` or `*` for any number. A bare version is that version alone; a
//! partial one means all that begin so (`1.5` is `1.5.x`). A pre-release fits only where a comparator names a
//! pre-release of the same three numbers. The `semver` crate gives the meaning of a single comparator.

use std::fmt;
use std::str::FromStr;

use semver::{Comparator, Op, Prerelease, Version, VersionReq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest text of a range, in bytes (as in the message schemas).
const MAX_TEXT: usize = 256;
/// Most comparators of one range, so that a text of 256 bytes costs no more than it looks.
const MAX_COMPARATORS: usize = 64;

/// A range of versions, with the text it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    alternatives: Vec<VersionReq>,
}

/// The text is not a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a range of semantic versions like `>=1.5.0` or `^1.5 || ^2.0`")]
pub struct NoRange;

impl VersionRange {
    /// Whether that version fits. The version's build metadata counts for nothing.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|range| range.matches(version))
    }

    /// Whether it excludes no release: `*` is among its alternatives.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.alternatives.iter().any(|range| range.comparators.is_empty())
    }

    /// The text as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for VersionRange {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        String::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for VersionRange {}

impl Serialize for VersionRange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for VersionRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for VersionRange {
    type Err = NoRange;
    fn from_str(text: &str) -> Result<Self, NoRange> {
        if text.len() > MAX_TEXT || text.trim().is_empty() {
            return Err(NoRange);
        }
        let alternatives =
            text.split("||").map(alternative).collect::<Option<Vec<_>>>().ok_or(NoRange)?;
        let comparators: usize = alternatives.iter().map(|range| range.comparators.len()).sum();
        if comparators > MAX_COMPARATORS {
            return Err(NoRange);
        }
        Ok(Self { text: text.to_owned(), alternatives })
    }
}

/// Comparators that must all hold; none of them for `*`. An alternative without text is `*`, as in npm.
fn alternative(text: &str) -> Option<VersionReq> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [from, "-", to] = words[..] {
        let bounds = [comparator(Op::GreaterEq, from)?, comparator(Op::LessEq, to)?];
        return Some(VersionReq { comparators: bounds.into_iter().flatten().collect() });
    }
    let mut comparators = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (op, after) = operator(rest);
        let after = after.trim_start();
        let end = after.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(after.len());
        let (version, next) = after.split_at(end);
        comparators.extend(comparator(op, version)?);
        rest = next.trim_start();
        if let Some(more) = rest.strip_prefix(',') {
            rest = more.trim_start();
            if rest.is_empty() {
                return None;
            }
        }
    }
    Some(VersionReq { comparators })
}

fn operator(text: &str) -> (Op, &str) {
    let operators = [
        (">=", Op::GreaterEq),
        ("<=", Op::LessEq),
        ("~>", Op::Tilde),
        (">", Op::Greater),
        ("<", Op::Less),
        ("=", Op::Exact),
        ("~", Op::Tilde),
        ("^", Op::Caret),
    ];
    operators
        .into_iter()
        .find_map(|(sign, op)| text.strip_prefix(sign).map(|rest| (op, rest)))
        .unwrap_or((Op::Exact, text))
}

/// One comparator; `Some(None)` for one that excludes nothing, `None` if it is not a version.
#[expect(clippy::option_option, reason = "absent, and without effect, differ")]
fn comparator(op: Op, text: &str) -> Option<Option<Comparator>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = match text.split_once('+') {
        Some((version, build)) => {
            semver::BuildMetadata::new(build).ok().filter(|build| !build.is_empty())?;
            version
        }
        None => text,
    };
    let (numbers, pre) = match text.split_once('-') {
        Some((numbers, pre)) => (numbers, Prerelease::new(pre).ok().filter(|pre| !pre.is_empty())?),
        None => (text, Prerelease::EMPTY),
    };
    let parts = numbers.split('.').map(number).collect::<Option<Vec<_>>>()?;
    let (major, minor, patch) = match parts[..] {
        [major] => (major, None, None),
        [major, minor] => (major, minor, None),
        [major, minor, patch] => (major, minor, patch),
        _ => return None,
    };
    let Some(major) = major else {
        // Nothing is above or below any version.
        let nothing = matches!(op, Op::Greater | Op::Less);
        let zero = Comparator {
            op: Op::Less,
            major: 0,
            minor: Some(0),
            patch: Some(0),
            pre: Prerelease::new("0").ok()?,
        };
        return Some(nothing.then_some(zero));
    };
    // Every part after an `x` counts as an `x`.
    let patch = patch.filter(|_| minor.is_some());
    if patch.is_none() && !pre.is_empty() {
        return None;
    }
    Some(Some(Comparator { op, major, minor, patch, pre }))
}

/// A number without leading zeros, or `None` inside for any.
#[expect(clippy::option_option, reason = "any number, and no number, differ")]
fn number(text: &str) -> Option<Option<u64>> {
    if matches!(text, "x" | "X" | "*") {
        return Some(None);
    }
    let plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(range: &str, version: &str) -> bool {
        let range: VersionRange = range.parse().unwrap_or_else(|_| panic!("{range}"));
        range.matches(&version.parse().unwrap())
    }

    #[test]
    fn f5_6_a_range_means_what_npm_says() {
        for (range, inside, outside) in [
            ("1.5.0", &["1.5.0", "1.5.0+b"][..], &["1.5.1", "1.6.0", "2.0.0"][..]),
            ("=1.5.0", &["1.5.0"], &["1.5.1"]),
            ("v1.5.0", &["1.5.0"], &["1.5.1"]),
            ("1.5", &["1.5.0", "1.5.9"], &["1.6.0"]),
            ("1", &["1.0.0", "1.9.9"], &["2.0.0"]),
            ("1.x", &["1.0.0", "1.9.9"], &["2.0.0"]),
            ("1.2.x", &["1.2.9"], &["1.3.0"]),
            ("1.x.3", &["1.9.9"], &["2.0.0"]),
            ("*", &["0.0.1", "9.9.9"], &["1.0.0-rc.1"]),
            (">=1.5.0", &["1.5.0", "2.0.0"], &["1.4.9", "2.0.0-rc.1"]),
            (">= 1.5.0 < 2.0.0", &["1.6.2"], &["2.0.0"]),
            (">=1.5.0, <2.0.0", &["1.6.2"], &["2.0.0"]),
            (">=1.5.0 <2", &["1.6.2"], &["2.0.0"]),
            (">1.5", &["1.6.0"], &["1.5.9"]),
            ("<=1.5", &["1.5.9", "0.1.0"], &["1.6.0"]),
            (">=*", &["3.0.0"], &[]),
            ("<*", &[], &["0.0.0", "3.0.0"]),
            ("^1.2.3", &["1.2.3", "1.9.0"], &["2.0.0", "1.2.2"]),
            ("^0.2.3", &["0.2.9"], &["0.3.0"]),
            ("^0.0.3", &["0.0.3"], &["0.0.4"]),
            ("~1.2.3", &["1.2.9"], &["1.3.0"]),
            ("~>1.2", &["1.2.9"], &["1.3.0"]),
            ("~1", &["1.9.0"], &["2.0.0"]),
            ("1.2.3 - 2.3", &["1.2.3", "2.3.9"], &["1.2.2", "2.4.0"]),
            ("1.2 - 2.3.4", &["1.2.0", "2.3.4"], &["2.3.5"]),
            ("^1.5 || ^3", &["1.6.0", "3.1.0"], &["2.0.0", "4.0.0"]),
            ("1.2.3||2.x", &["1.2.3", "2.7.0"], &["1.2.4"]),
        ] {
            for version in inside {
                assert!(fits(range, version), "{range} takes {version}");
            }
            for version in outside {
                assert!(!fits(range, version), "{range} does not take {version}");
            }
        }
    }

    #[test]
    fn f5_6_a_pre_release_fits_only_where_it_was_asked_for() {
        assert!(!fits(">=1.0.0", "2.0.0-rc.1") && !fits("*", "2.0.0-rc.1"));
        assert!(fits(">=2.0.0-rc.1", "2.0.0-rc.2") && fits(">=2.0.0-rc.1", "2.0.0"));
        assert!(!fits(">=2.0.0-rc.1", "2.1.0-rc.1"));
        assert!(fits("2.0.0-rc.1", "2.0.0-rc.1") && !fits("2.0.0-rc.1", "2.0.0"));
        assert!(fits("^1 || 2.0.0-rc.1", "2.0.0-rc.1"));
    }

    #[test]
    fn what_is_no_range_is_refused_and_what_is_keeps_its_text() {
        for text in [
            "",
            " ",
            "latest",
            ">=",
            "1.2.3.4",
            "a || b",
            "01.2",
            "1..2",
            "=>1",
            "1.5,",
            "1.2-rc",
            "1.2.3-",
            "1.2.3+",
            "1 - 2 - 3",
            "^1 |2",
            "1.2.3 -",
            "-1",
        ] {
            assert_eq!(text.parse::<VersionRange>(), Err(NoRange), "{text}");
        }
        let long = ["1.2.3"; 60].join("||");
        assert_eq!(long.parse::<VersionRange>(), Err(NoRange));
        let range: VersionRange = "^1.5 || ^2.0".parse().unwrap();
        assert_eq!(serde_json::to_string(&range).unwrap(), "\"^1.5 || ^2.0\"");
        assert!(!range.is_any() && "*".parse::<VersionRange>().unwrap().is_any());
    }
}
