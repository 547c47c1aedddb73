//! Translation of arguments to a request. Pure: files are read before.

use serde_json::{Map, Value, json};

use super::resource::{Action, Arg, ArgTarget, ArgValues, Kind, Shape, Verb};
use crate::cli::client::{Body, Request};

impl Action {
    /// The defaults of most actions: a GET without arguments.
    pub(super) const READ: Self = Self {
        name: "",
        about: "",
        verb: Verb::Get,
        path: "",
        args: &[],
        fixed: &[],
        plan: plain,
        shape: Shape::One,
        well: |_| true,
        pages: None,
        watch: false,
        asks: None,
        parts: None,
    };
}

/// The request of an action that is no more than its table.
pub(super) fn plain(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let mut body = None;
    for arg in action.args.iter().filter(|arg| arg.goes == ArgTarget::Whole) {
        if let Some(text) = given.one(arg.name) {
            let value: Value = serde_json::from_str(text)
                .map_err(|err| format!("--{} is not JSON: {err}", arg.name))?;
            if !value.is_object() {
                return Err(format!("--{} is not a JSON object", arg.name));
            }
            body = Some(value);
        }
    }
    for (pointer, text) in action.fixed {
        let value = match *text {
            "[]" => json!([]),
            text => json!(text),
        };
        set(body.get_or_insert_with(|| json!({})), pointer, value);
    }
    for arg in action.args {
        if let (ArgTarget::Body(pointer), Some(value)) = (arg.goes, value(arg, given)) {
            let body = body.get_or_insert_with(|| json!({}));
            set(body, pointer, value);
            if let Some((pointer, text)) = arg.implies {
                set(body, pointer, json!(text));
            }
        }
    }
    // A body that may be empty is an object all the same.
    let takes =
        action.args.iter().any(|arg| matches!(arg.goes, ArgTarget::Body(_) | ArgTarget::Whole));
    if takes && body.is_none() {
        body = Some(json!({}));
    }
    addressed(action, given, body.map(Body::Json))
}

/// The action's request with this body.
pub(super) fn addressed(
    action: &Action,
    given: &ArgValues,
    body: Option<Body>,
) -> Result<Request, String> {
    let query = action.args.iter().filter_map(|arg| match arg.goes {
        ArgTarget::Query(parameter) => Some((parameter, given.all(arg.name))),
        _ => None,
    });
    let query = query
        .flat_map(|(parameter, said)| said.iter().map(|one| (parameter.to_owned(), one.clone())));
    Ok(Request {
        method: action.verb.method(),
        path: path(action.path, |name| given.one(name))?,
        query: query.collect(),
        body,
        patience: None,
    })
}

/// A path's segments, with `{name}` as said.
///
/// # Errors
/// What is said cannot be a segment.
pub(super) fn path<'a>(
    template: &str,
    said: impl Fn(&str) -> Option<&'a str>,
) -> Result<Vec<String>, String> {
    let segment = |part: &str| {
        let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
            return Ok(part.to_owned());
        };
        // A URL has no such segments: they would lead to another resource.
        match said(name) {
            Some(text) if !matches!(text, "" | "." | "..") => Ok(text.to_owned()),
            text => Err(format!(
                "`{}` is not a possible {}",
                text.unwrap_or_default(),
                name.to_lowercase()
            )),
        }
    };
    template.trim_start_matches('/').split('/').map(segment).collect()
}

/// The given value, as JSON.
fn value(arg: &Arg, given: &ArgValues) -> Option<Value> {
    let said = given.all(arg.name);
    let first = said.first()?;
    Some(match arg.kind {
        Kind::List => json!(said),
        Kind::Fields => super::delivery_fields::object(said),
        Kind::Flag => json!(true),
        Kind::Truth => json!(first == "true"),
        // Both were looked at when they were parsed.
        Kind::Number => serde_json::from_str(first).ok()?,
        Kind::Whole => json!(first.parse::<u64>().ok()?),
        Kind::Text | Kind::Choice(_) | Kind::File | Kind::Contract => json!(first),
    })
}

/// Sets a member of a body, and what it lies in.
fn set(body: &mut Value, pointer: &str, value: Value) {
    let mut at = body;
    for name in pointer.trim_start_matches('/').split('/') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[name];
    }
    *at = value;
}

#[cfg(test)]
mod tests {

    use super::super::resource::Verb;
    use super::*;

    const ACTION: Action = Action {
        verb: Verb::Post,
        path: "/things/{THING}/parts",
        args: &[
            Arg::path("THING", ""),
            Arg::file(""),
            Arg::body("size", "/at/size", Kind::Number, ""),
            Arg::body("tag", "/tags", Kind::List, ""),
            Arg::query("state", "st", Kind::Text, ""),
        ],
        fixed: &[("/kind", "part"), ("/none", "[]")],
        ..Action::READ
    };

    fn given(said: &[(&'static str, &str)]) -> ArgValues {
        let mut given = ArgValues::default();
        for (name, text) in said {
            given.0.entry(name).or_default().push((*text).to_owned());
        }
        given
    }

    #[test]
    fn what_is_said_lies_over_the_file_and_goes_where_the_table_says() {
        let said = [
            ("THING", "a/b"),
            ("file", r#"{"at":{"size":1,"place":"x"},"kind":"?"}"#),
            ("size", "2.50"),
            ("tag", "t"),
            ("tag", "u"),
            ("state", "x&y"),
        ];
        let request = plain(&ACTION, &given(&said)).unwrap();
        assert_eq!(request.path, ["things", "a/b", "parts"]);
        assert_eq!(request.query, [("st".to_owned(), "x&y".to_owned())]);
        let body = json!({
            "at": { "size": 2.5, "place": "x" }, "kind": "part", "none": [], "tags": ["t", "u"],
        });
        assert_eq!(request.body, Some(Body::Json(body)));
    }

    #[test]
    fn what_cannot_be_sent_is_told_apart() {
        for thing in ["", ".", ".."] {
            let why = plain(&ACTION, &given(&[("THING", thing)])).unwrap_err();
            assert!(why.contains("is not a possible thing"), "{why}");
        }
        for (file, part) in [("{", "is not JSON"), ("[]", "is not a JSON object")] {
            let why = plain(&ACTION, &given(&[("THING", "x"), ("file", file)])).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
