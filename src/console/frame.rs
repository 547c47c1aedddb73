//! The frame of each page: navigation, breadcrumbs, theme, and messages about the last action.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded::Serializer;

use handoffd_broker::reader::Rights;

/// Characters of a path segment that stay as they are.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An address below `/console`, of segments and parameters that are not encoded. Parameters without a value are left out.
pub(super) fn link(segments: &[&str], pairs: &[(&str, &str)]) -> String {
    let mut out = "/console".to_owned();
    for segment in segments {
        out.push('/');
        out.extend(utf8_percent_encode(segment, SEGMENT));
    }
    let mut query = Serializer::new(String::new());
    let mut any = false;
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
        any = true;
    }
    if any { format!("{out}?{}", query.finish()) } else { out }
}

/// The colours of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Theme {
    /// As the browser prefers.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(super) const COOKIE: &'static str = "handoffd_theme";

    pub(super) fn named(name: &str) -> Self {
        match name {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// A page of the navigation.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// First segment of its address; empty for the home page.
    pub(super) section: &'static str,
    pub(super) label: &'static str,
    /// The key that leads there after `g`.
    pub(super) key: &'static str,
    /// The heading above it; empty where the one before goes on.
    pub(super) group: &'static str,
    roles: Roles,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Roles {
    All,
    Operators,
    Admins,
}

impl Place {
    pub(super) fn href(&self) -> String {
        if self.section.is_empty() { "/console".to_owned() } else { link(&[self.section], &[]) }
    }
}

const fn place(section: &'static str, label: &'static str, key: &'static str) -> Place {
    Place { section, label, key, group: "", roles: Roles::All }
}

const fn first(group: &'static str, place: Place) -> Place {
    Place { group, ..place }
}

const PLACES: [Place; 12] = [
    first("Now", place("", "Needs attention", "a")),
    place("tasks", "Tasks", "t"),
    place("dead-letters", "Dead letters", "d"),
    place("decisions", "Decisions", "e"),
    first("Traffic", place("receivers", "Receivers", "r")),
    place("refusals", "Refusals", "f"),
    place("costs", "Costs", "c"),
    first("Rules", place("edges", "Edges and contracts", "w")),
    place("evidence", "Evidence", "v"),
    first("Access", place("subscriptions", "Subscriptions", "s")),
    Place { roles: Roles::Admins, ..place("keys", "Keys", "k") },
    Place { roles: Roles::Operators, ..place("sessions", "Sessions", "l") },
];

/// A message about the last action.
#[derive(Debug, Clone)]
pub(super) struct Flash {
    pub(super) words: String,
    /// `good` or `bad`.
    pub(super) tone: &'static str,
    /// The action that takes it back: its address and name.
    pub(super) undo: Option<(String, String)>,
}

pub(super) struct Frame {
    pub(super) title: String,
    /// The section of the navigation that is open.
    pub(super) section: &'static str,
    /// Pages above this one: address and name.
    pub(super) crumbs: Vec<(String, String)>,
    pub(super) theme: Theme,
    pub(super) csrf: String,
    /// This page's own address, with its query.
    pub(super) here: String,
    /// The same as JSON.
    pub(super) as_json: String,
    pub(super) flash: Option<Flash>,
    pub(super) rights: Rights,
    pub(super) tenant: String,
    /// Time of the page, RFC 3339: later events make it stale.
    pub(super) since: String,
    /// The task whose events make the page stale; empty for any.
    pub(super) watched: String,
    /// Whether events make the page stale at all.
    pub(super) live: bool,
    pub(super) css: &'static str,
    pub(super) js: &'static str,
}

impl Frame {
    pub(super) fn places(&self) -> impl Iterator<Item = &'static Place> + '_ {
        PLACES.iter().filter(|place| match place.roles {
            Roles::All => true,
            Roles::Operators => self.rights.operates(),
            Roles::Admins => self.rights.administers(),
        })
    }

    pub(super) const fn role_name(&self) -> &'static str {
        self.rights.role_name()
    }

    /// Whether the visitor reads no contents.
    pub(super) const fn is_metadata_only(&self) -> bool {
        !self.rights.reads_contents()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_segments_and_parameters_that_were_given() {
        assert_eq!(link(&[], &[]), "/console");
        assert_eq!(link(&["tasks", "a/../b c"], &[]), "/console/tasks/a%2F..%2Fb%20c");
        assert_eq!(link(&["t"], &[("a", "1&b=2"), ("c", "")]), "/console/t?a=1%26b%3D2");
    }
}
