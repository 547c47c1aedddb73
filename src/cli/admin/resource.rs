//! The waist of the commands for operators: a resource is a name, actions and columns. Everything else
//! (arguments, requests, pages, tables, help, completions) follows from these tables.

use reqwest::Method;
use serde_json::Value;

use super::request::{self, Given};
use crate::cli::client::Request;

/// What the API keeps many of.
#[derive(Debug)]
pub(super) struct Resource {
    /// The command.
    pub(super) name: &'static str,
    /// One line of help.
    pub(super) about: &'static str,
    /// What can be done.
    pub(super) actions: &'static [Action],
}

/// The methods that the API has.
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

/// One thing to do.
#[derive(Debug)]
pub(super) struct Action {
    /// The subcommand.
    pub(super) name: &'static str,
    /// One line of help.
    pub(super) about: &'static str,
    /// The request's method.
    pub(super) verb: Verb,
    /// The request's path; `{name}` stands for the argument of that name.
    pub(super) path: &'static str,
    /// What can be said.
    pub(super) args: &'static [Arg],
    /// Body members that the action itself implies, as pointers and texts.
    pub(super) fixed: &'static [(&'static str, &'static str)],
    /// From what was said to the request.
    pub(super) plan: fn(&Action, &Given) -> Result<Request, String>,
    /// How the answer is shown.
    pub(super) shape: Shape,
    /// The answer is well; else the command ends with 1.
    pub(super) well: fn(&Value) -> bool,
    /// The answer is a page of many.
    pub(super) pages: Option<Pages>,
    /// It can be repeated until stopped.
    pub(super) watch: bool,
}

impl Action {
    /// What most actions are: a GET without arguments.
    pub(super) const READ: Self = Self {
        name: "",
        about: "",
        verb: Verb::Get,
        path: "",
        args: &[],
        fixed: &[],
        plan: request::plain,
        shape: Shape::One,
        well: |_| true,
        pages: None,
        watch: false,
    };
}

/// How to go on after a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    /// The parameter that asks for the next one.
    pub(super) parameter: &'static str,
    /// What it is, from the page; none on the last.
    pub(super) next: fn(&Value) -> Option<String>,
}

/// Pages with `nextCursor`, as almost all lists.
pub(super) const CURSOR: Option<Pages> = Some(Pages {
    parameter: "cursor",
    next: |page| page.get("nextCursor").and_then(Value::as_str).map(str::to_owned),
});

/// How an answer is shown to people.
#[derive(Debug)]
pub(super) enum Shape {
    /// A table of the list at the pointer, and what stands beside it as a last line.
    Rows {
        /// Where the list is.
        at: &'static str,
        /// What is shown of each.
        columns: &'static [Column],
        /// What is shown of the whole.
        foot: &'static [Column],
    },
    /// Every member, one a line.
    One,
    /// These words, for an answer without content.
    Done(&'static str),
}

/// A heading, and where its value stands in a row.
#[derive(Debug)]
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str);

/// Something to say.
#[derive(Debug)]
pub(super) struct Arg {
    /// Its name: of the option, or in capitals of the place.
    pub(super) name: &'static str,
    /// One line of help.
    pub(super) help: &'static str,
    /// Said by its place and not by `--name`.
    pub(super) positional: bool,
    /// It must be said.
    pub(super) required: bool,
    /// What it is.
    pub(super) kind: Kind,
    /// Where it goes.
    pub(super) goes: Goes,
    /// A member of the body, as pointer and text, that goes with it.
    pub(super) implies: Option<(&'static str, &'static str)>,
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text.
    Text,
    /// A number, not below zero.
    Number,
    /// A whole number, not below zero.
    Whole,
    /// `true` or `false`.
    Truth,
    /// Said or not.
    Flag,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Texts, by saying it several times.
    List,
    /// A file's content; `-` is the standard input.
    File,
    /// A contract's file, with the payload schema that it names as a file beside it.
    Contract,
}

/// Where an argument goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    /// Into the path, in the place of its name.
    Path,
    /// Into the query, as this parameter.
    Query(&'static str),
    /// Into the body, at this pointer.
    Body(&'static str),
    /// It is the body, a JSON object, under what goes there besides.
    Whole,
    /// The plan knows.
    Plan,
}

impl Arg {
    const fn new(name: &'static str, help: &'static str, kind: Kind, goes: Goes) -> Self {
        Self { name, help, positional: false, required: false, kind, goes, implies: None }
    }

    /// A segment of the path, said first.
    pub(super) const fn path(name: &'static str, help: &'static str) -> Self {
        let arg = Self::new(name, help, Kind::Text, Goes::Path);
        Self { positional: true, required: true, ..arg }
    }

    /// A parameter.
    pub(super) const fn query(
        name: &'static str,
        parameter: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self::new(name, help, kind, Goes::Query(parameter))
    }

    /// A member of the body.
    pub(super) const fn body(
        name: &'static str,
        pointer: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self::new(name, help, kind, Goes::Body(pointer))
    }

    /// The body, from a file.
    pub(super) const fn file(help: &'static str) -> Self {
        Self::new("file", help, Kind::File, Goes::Whole)
    }

    /// What the plan asks for.
    pub(super) const fn planned(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self::new(name, help, kind, Goes::Plan)
    }

    /// The same, needed.
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
