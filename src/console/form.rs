//! The form of an action: its fields, the request that it makes, and the same as commands.

use std::fmt::Write as _;

use url::form_urlencoded;

use super::acts::{Act, Field, Kind, Verb};
use super::desk::{Desk, Fields};
use super::json::Json;
use super::text;
use crate::doors::front::ApiRequest;

/// A field as drawn.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) hint: &'static str,
    pub(super) value: String,
    pub(super) required: bool,
    /// `line`, `number`, `long` or `choice`.
    pub(super) kind: &'static str,
    pub(super) options: Vec<(&'static str, &'static str)>,
}

impl Drawn {
    /// Whether a choice has this value.
    pub(super) fn is(&self, word: &str) -> bool {
        self.value == word
    }
}

/// A form as drawn.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) action: String,
    pub(super) title: String,
    pub(super) explain: &'static str,
    pub(super) fields: Vec<Drawn>,
    pub(super) submit: &'static str,
    pub(super) tone: &'static str,
    /// Whether the form offers a dry run.
    pub(super) dry: bool,
    pub(super) csrf: String,
    pub(super) back: String,
    pub(super) curl: String,
    pub(super) command: String,
}

impl serde::Serialize for Form {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.title)
    }
}

impl Form {
    /// The form of an action on these objects, with these values in it.
    pub(super) fn of(desk: &Desk, act: &'static Act, of: &[&str], values: &Fields) -> Self {
        let mut pairs: Vec<(&str, &str)> = of.iter().map(|id| ("of", *id)).collect();
        let back = values.get("back").to_owned();
        pairs.push(("back", &back));
        let objects: Vec<String> = of.iter().map(|id| text::visible(id)).collect();
        let title = if objects.is_empty() {
            act.title.to_owned()
        } else {
            format!("{} {}", act.title, objects.join(", "))
        };
        let shown = |field: &&Field| !matches!(field.kind, Kind::Fixed(_));
        Self {
            action: super::frame::link(&["do", act.name], &pairs),
            title,
            explain: act.explain,
            fields: act.fields.iter().filter(shown).map(|field| drawn(field, values)).collect(),
            submit: act.button,
            tone: act.tone,
            dry: act.dry,
            csrf: desk.csrf().to_owned(),
            back: if back.starts_with("/console") { back } else { "/console".to_owned() },
            curl: curl(act, of, values),
            command: command(act, of, values),
        }
    }
}

fn drawn(field: &'static Field, values: &Fields) -> Drawn {
    let value = match field.kind {
        Kind::Lines => values.all(field.name).collect::<Vec<_>>().join("\n"),
        _ => values.get(field.name).to_owned(),
    };
    let (kind, options) = match field.kind {
        Kind::Line | Kind::Moment | Kind::Fixed(_) => ("line", vec![]),
        Kind::Number => ("number", vec![]),
        Kind::Lines | Kind::Json => ("long", vec![]),
        Kind::Choice(options) => ("choice", options.to_vec()),
    };
    let (name, label, hint, required) = (field.name, field.label, field.hint, field.required);
    Drawn { name, label, hint, value, required, kind, options }
}

/// A value that a field cannot take.
pub(super) struct BadValue(pub(super) String);

/// The value of a field as JSON; `None` where nothing was given.
fn value(field: &Field, values: &Fields) -> Result<Option<Json>, BadValue> {
    let given = values.get(field.name);
    let bad = |why: &str| Err(BadValue(format!("{}: {why}", field.label)));
    match field.kind {
        Kind::Fixed(text) => Ok(Some(Json::parse(text.as_bytes()))),
        Kind::Lines => {
            let lines = values.all(field.name).flat_map(str::lines).map(str::trim);
            let items: Vec<Json> = lines.filter(|line| !line.is_empty()).map(Json::from).collect();
            Ok((!items.is_empty()).then_some(Json::List(items)))
        }
        _ if given.is_empty() && field.required => bad("needed"),
        _ if given.is_empty() => Ok(None),
        Kind::Number => match Json::parse(given.as_bytes()) {
            number @ Json::Number(_) => Ok(Some(number)),
            _ => bad("a number, such as 2.50"),
        },
        Kind::Json => match serde_json::from_str::<&serde_json::value::RawValue>(given) {
            Ok(_) => Ok(Some(Json::parse(given.as_bytes()))),
            Err(err) => bad(&format!("not JSON: {err}")),
        },
        Kind::Moment => Ok(Some(Json::from(text::moment(given).as_ref()))),
        Kind::Line | Kind::Choice(_) => Ok(Some(Json::from(given))),
    }
}

/// Puts a value into an object, under names between slashes.
fn put(into: &mut Json, path: &str, value: Json) {
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    if !matches!(into, Json::Object(_)) {
        *into = Json::Object(vec![]);
    }
    let Json::Object(members) = into else { return };
    let index = members.iter().position(|(one, _)| one == name).unwrap_or_else(|| {
        members.push((name.to_owned(), Json::Null));
        members.len() - 1
    });
    if rest.is_empty() {
        members[index].1 = value;
    } else {
        put(&mut members[index].1, rest, value);
    }
}

/// The body of an action's request.
///
/// # Errors
/// [`BadValue`] for a field that cannot be read.
pub(super) fn body(act: &Act, values: &Fields, dry: bool) -> Result<Json, BadValue> {
    let mut body = Json::Object(vec![]);
    for place in act.always {
        put(&mut body, place, Json::Object(vec![]));
    }
    for field in act.fields.iter().filter(|field| field.place != "-") {
        match value(field, values)? {
            Some(whole) if field.place.is_empty() => body = whole,
            Some(value) => put(&mut body, field.place, value),
            None => {}
        }
    }
    if dry {
        put(&mut body, "dryRun", Json::Bool(true));
    }
    Ok(body)
}

pub(super) fn segments<'a>(act: &'a Act, of: &[&'a str], values: &'a Fields) -> Vec<&'a str> {
    let mut objects = of.iter();
    let mut segment = |part: &&'a str| match *part {
        "{}" => objects.next().copied().unwrap_or_default(),
        named if named.starts_with('{') => values.get(named.trim_matches(['{', '}'])),
        plain => plain,
    };
    act.path.iter().map(&mut segment).collect()
}

/// The request of an action.
///
/// # Errors
/// [`BadValue`] for a field that cannot be read.
pub(super) fn request(
    act: &Act,
    of: &[&str],
    values: &Fields,
    dry: bool,
) -> Result<ApiRequest, BadValue> {
    let segments = segments(act, of, values);
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(BadValue("an id is missing".to_owned()));
    }
    let body = body(act, values, dry)?;
    Ok(match act.method {
        Verb::Put => ApiRequest::put(&segments, body),
        Verb::Patch => ApiRequest::patch(&segments, body),
        Verb::Delete if act.fields.is_empty() => ApiRequest::delete(&segments),
        Verb::Delete => ApiRequest::delete(&segments).saying(body),
        Verb::Post if act.bare => ApiRequest::post_bare(&segments),
        Verb::Post => ApiRequest::post(&segments, body),
    })
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", text::visible(word).replace('\'', r"'\''"))
}

/// The same action by curl. Required fields without a value are shown as `…`.
fn curl(act: &Act, of: &[&str], values: &Fields) -> String {
    let complete = filled(act, values);
    let segments = segments(act, of, &complete);
    let path: Vec<String> = segments
        .iter()
        .map(|segment| form_urlencoded::byte_serialize(segment.as_bytes()).collect())
        .collect();
    let mut out = format!(
        "curl -X {} \"$HANDOFFD_URL/{}\" -H \"Authorization: Bearer $HANDOFFD_API_KEY\"",
        act.method.as_str(),
        path.join("/")
    );
    let body = body(act, &complete, false).unwrap_or_default();
    if !act.bare && !body.is_empty() {
        let body = serde_json::to_string(&body).unwrap_or_default();
        let _ = write!(out, " -H 'Content-Type: application/json' -d {}", quoted(&body));
    }
    out
}

/// Values with a mark in each required field that has none.
fn filled(act: &Act, values: &Fields) -> Fields {
    let mut all = values.clone();
    for field in
        act.fields.iter().filter(|field| field.required && values.get(field.name).is_empty())
    {
        let mark = match field.kind {
            Kind::Number => "1",
            Kind::Json => "{}",
            Kind::Choice(options) => options.first().map_or("…", |(word, _)| *word),
            _ => "…",
        };
        all.0.push((field.name.to_owned(), mark.to_owned()));
    }
    all
}

/// The same action by the command line; empty where there is none.
fn command(act: &Act, of: &[&str], values: &Fields) -> String {
    if act.command.is_empty() {
        return String::new();
    }
    let mut out = format!("handoffd {}", act.command);
    for id in of {
        out.push(' ');
        out.push_str(&quoted(id));
    }
    let complete = filled(act, values);
    for field in act.fields.iter().filter(|field| !field.option.is_empty()) {
        for value in complete.all(field.name).filter(|value| !value.trim().is_empty()) {
            if field.option != "." {
                out.push(' ');
                out.push_str(field.option);
            }
            let value = match field.kind {
                Kind::Moment => text::moment(value),
                _ => value.trim().into(),
            };
            out.push(' ');
            out.push_str(&quoted(&value));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::acts;
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
    }

    #[test]
    fn a_form_makes_the_body_that_the_api_takes_and_the_same_commands() {
        let act = acts::named("top-up-task").unwrap();
        let values = fields(&[("addUSD", "2.50"), ("reason", "it's a retry")]);
        let body = body(act, &values, false).map_err(|BadValue(why)| why).unwrap();
        let body = serde_json::to_string(&body).unwrap();
        assert_eq!(body, r#"{"addUSD":2.50,"reason":"it's a retry"}"#);
        assert_eq!(
            command(act, &["t 1"], &values),
            r"handoffd tasks top-up 't 1' --add-usd 2.50 --reason 'it'\''s a retry'"
        );
        assert!(curl(act, &["t"], &values).contains(r#"-d '{"addUSD":2.50,"reason":"it'\''s"#));
    }

    #[test]
    fn a_time_without_an_offset_is_one_in_utc_in_body_and_command() {
        let act = acts::named("release-many").unwrap();
        let values = fields(&[("from", "2026-11-28 09:30"), ("to", "2026-11-29"), ("reason", "x")]);
        let body = body(act, &values, false).map_err(|BadValue(why)| why).unwrap();
        let body = serde_json::to_string(&body).unwrap();
        let (from, to) = ("2026-11-28T09:30:00Z", "2026-11-29T00:00:00Z");
        assert!(body.contains(&format!(r#""from":"{from}","to":"{to}""#)), "{body}");
        let command = command(act, &[], &values);
        assert!(command.contains(&format!("--after {from} --before {to}")), "{command}");
    }

    #[test]
    fn a_field_that_cannot_be_read_is_named() {
        let act = acts::named("top-up-task").unwrap();
        let bad = body(act, &fields(&[("addUSD", "much"), ("reason", "x")]), false);
        assert!(bad.is_err_and(|BadValue(why)| why.contains("number")));
        assert!(super::body(act, &fields(&[("addUSD", "1")]), false).is_err());
    }

    #[test]
    fn a_filter_is_an_object_of_the_fields_that_were_given() {
        let act = acts::named("cancel-tasks").unwrap();
        let values = fields(&[("holder", "b"), ("reason", "x"), ("status", "")]);
        let body = body(act, &values, true).map_err(|BadValue(why)| why).unwrap();
        assert_eq!(body.at("filter/holder").as_text(), "b");
        assert!(body.at("filter/status").is_null() && body.flag("dryRun"));
    }
}
