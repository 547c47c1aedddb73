//! The table form of the commands for operators: a resource has a name, actions and columns. Arguments, requests,
//! pages, tables, help and completions are derived from these tables.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::Value;

use crate::cli::client::Request;

/// A collection of the API.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: &'static str,
    /// One line of help.
    pub(super) about: &'static str,
    pub(super) actions: &'static [Action],
}

/// HTTP methods of the API.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    /// As a request has it.
    pub(super) fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}

/// Values by argument name; the content for a file.
#[derive(Debug, Default)]
pub(super) struct ArgValues(pub(super) BTreeMap<&'static str, Vec<String>>);

impl ArgValues {
    /// Everything that was said under a name.
    pub(super) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The first value given under a name.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.all(name).first().map(String::as_str)
    }
}

#[derive(Debug)]
pub(super) struct Action {
    pub(super) name: &'static str,
    /// One line of help.
    pub(super) about: &'static str,
    pub(super) verb: Verb,
    /// The request's path; the argument of that name replaces `{name}`.
    pub(super) path: &'static str,
    pub(super) args: &'static [Arg],
    /// Body members that the action itself implies, as pointers and texts.
    pub(super) fixed: &'static [(&'static str, &'static str)],
    /// Builds the request from the arguments.
    pub(super) plan: fn(&Action, &ArgValues) -> Result<Request, String>,
    /// Form of the printed answer.
    pub(super) shape: Shape,
    /// Whether the answer is a success; otherwise the command exits with 1.
    pub(super) well: fn(&Value) -> bool,
    /// Pagination of the answer.
    pub(super) pages: Option<Pages>,
    /// Whether the action accepts `--watch`.
    pub(super) watch: bool,
    /// The question that a person answers before the action begins: it cannot be undone, and it changes many objects.
    pub(super) asks: Option<&'static str>,
    /// Whether the action goes on until all that fit are decided on, and by which trial it finds them.
    pub(super) parts: Option<Parts>,
}

/// How an action on many finds its objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Path of the request whose dry run names those that fit, and judges nothing.
    pub(super) trial: &'static str,
    /// Member of an item with its id.
    pub(super) id: &'static str,
}

/// Pagination of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    /// Query parameter of the next page.
    pub(super) parameter: &'static str,
    /// Reads the value of that parameter from a page; `None` on the last.
    pub(super) next: fn(&Value) -> Option<String>,
}

/// Pages with `nextCursor`, as almost all lists.
pub(super) const CURSOR: Option<Pages> = Some(Pages {
    parameter: "cursor",
    next: |page| page.get("nextCursor").and_then(Value::as_str).map(str::to_owned),
});

/// The form in which an answer is printed.
#[derive(Debug)]
pub(super) enum Shape {
    /// A table of the list at the pointer, and other values of the answer as a last line.
    Rows {
        /// Pointer to the list.
        at: &'static str,
        /// Columns of the table.
        columns: &'static [Column],
        /// Values of the last line.
        foot: &'static [Column],
    },
    /// Every member, one a line.
    One,
    /// A fixed text, for an answer without content.
    Done(&'static str),
}

/// A heading, and the pointer to its value in a row.
#[derive(Debug)]
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str);

/// An argument of an action.
#[derive(Debug)]
pub(super) struct Arg {
    /// Name of the option, or of the positional argument in capitals.
    pub(super) name: &'static str,
    /// One line of help.
    pub(super) help: &'static str,
    /// Whether the argument is positional.
    pub(super) positional: bool,
    /// Whether the argument is required.
    pub(super) required: bool,
    /// Type of the value.
    pub(super) kind: Kind,
    /// Part of the request that takes the value.
    pub(super) goes: ArgTarget,
    /// A body member that the argument implies, as pointer and text.
    pub(super) implies: Option<(&'static str, &'static str)>,
}

/// Type of an argument's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A number, not below zero.
    Number,
    /// A whole number, not below zero.
    Whole,
    /// `true` or `false`.
    Truth,
    /// A flag without a value.
    Flag,
    /// One of these values.
    Choice(&'static [&'static str]),
    List,
    /// A file's content; `-` is the standard input.
    File,
    /// `KEY=VALUE` of a transport's fields, or `KEY=@FILE`.
    Fields,
    /// A contract's file, with the payload schema that it names as a file beside it.
    Contract,
}

/// Part of the request that takes an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgTarget {
    Path,
    Query(&'static str),
    /// The body member at this pointer.
    Body(&'static str),
    /// The whole body, a JSON object.
    Whole,
    /// The action's plan places the value.
    Plan,
}

impl Arg {
    const fn new(name: &'static str, help: &'static str, kind: Kind, goes: ArgTarget) -> Self {
        Self { name, help, positional: false, required: false, kind, goes, implies: None }
    }

    /// A segment of the path, said first.
    pub(super) const fn path(name: &'static str, help: &'static str) -> Self {
        let arg = Self::new(name, help, Kind::Text, ArgTarget::Path);
        Self { positional: true, required: true, ..arg }
    }

    pub(super) const fn query(
        name: &'static str,
        parameter: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self::new(name, help, kind, ArgTarget::Query(parameter))
    }

    /// A member of the body.
    pub(super) const fn body(
        name: &'static str,
        pointer: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self::new(name, help, kind, ArgTarget::Body(pointer))
    }

    /// The body, from a file.
    pub(super) const fn file(help: &'static str) -> Self {
        Self::new("file", help, Kind::File, ArgTarget::Whole)
    }

    /// An argument that the plan of the action needs.
    pub(super) const fn planned(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self::new(name, help, kind, ArgTarget::Plan)
    }

    pub(super) const fn needed(self) -> Self {
        Self { required: true, ..self }
    }

    /// The same, said by its place.
    pub(super) const fn placed(self) -> Self {
        Self { positional: true, ..self }
    }
}

/// Why a person decided so: every decision asks for it.
pub(super) const REASON: Arg =
    Arg::body("reason", "/reason", Kind::Text, "Why; it is kept with the record").needed();

/// Of whom a list is asked.
pub(super) const USER_REF: Arg = Arg::query(
    "user-ref",
    "userRef",
    Kind::Text,
    "For the user with this reference (handoffd data-subjects ref)",
);
