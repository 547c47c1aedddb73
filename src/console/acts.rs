//! The actions of the pages: each is asked on a page of its own before its request to the API is made.

use super::bulk;
use super::desk::{Desk, Fields, Refusal, Sent};
use super::form::{self, BadValue, Form};
use super::frame::{Flash, link};
use super::json::Json;
use super::pages::answers;
use super::sheet::{Content, Sheet};
use super::{problem, text};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use url::form_urlencoded;

mod table;

pub(super) use table::{Act, ActRights, Field, Kind, Verb, named, of_remedy};

/// The page that asks before an action.
pub(super) async fn ask(desk: Desk, Path(name): Path<String>) -> Response {
    let Some(act) = named(&name) else {
        return desk.refused(&Refusal::unknown("This action does not exist."));
    };
    if !act.rights.allow(desk.rights()) {
        return desk.refused(&not_yours());
    }
    desk.page(StatusCode::OK, &page(&desk, act, &desk.query))
}

fn not_yours() -> Refusal {
    let words = Json::from("Your role may read this, and not change it.");
    let problem = Json::Object(vec![("detail".to_owned(), words)]);
    Refusal { status: StatusCode::FORBIDDEN, problem }
}

/// The form of an action, with these values.
fn page(desk: &Desk, act: &'static Act, values: &Fields) -> Sheet {
    let of: Vec<&str> = desk.query.all("of").collect();
    let mut values = values.clone();
    values.0.push(("back".to_owned(), desk.query.get("back").to_owned()));
    let form = Form::of(desk, act, &objects(act, &of), &values);
    let section = link(&[act.section()], &[]);
    let mut frame = desk.frame(act.section(), act.title, &[]);
    let above =
        frame.places().find(|place| place.section == act.section()).map(|place| place.label);
    if let Some(label) = above {
        frame.crumbs.push((section, label.to_owned()));
    }
    Sheet::new(frame).part("form", "", Content::Ask(form))
}

/// The ids that fill the path of an action. A bulk action takes its ids as a field.
fn objects<'a>(act: &Act, of: &[&'a str]) -> Vec<&'a str> {
    let wanted = act.path.iter().filter(|part| **part == "{}").count();
    of.iter().copied().take(wanted).collect()
}

/// Carries an action out, or tries it.
pub(super) async fn carry_out(Path(name): Path<String>, sent: Sent) -> Response {
    let Sent { desk, fields } = sent;
    let Some(act) = named(&name) else {
        return desk.refused(&Refusal::unknown("This action does not exist."));
    };
    let of: Vec<&str> = desk.query.all("of").collect();
    let dry = act.dry && !fields.get("dry").is_empty();
    if act.dry && !dry {
        return bulk::carry_on(&desk, act, &fields).await;
    }
    let request = match form::request(act, &objects(act, &of), &fields, dry) {
        Ok(request) => request,
        Err(BadValue(why)) => return again(&desk, act, &fields, &bad_value(&why)),
    };
    match desk.send(request).await {
        Err(refusal) => again(&desk, act, &fields, &refusal),
        Ok(answer) if act.shows => shown(&desk, act, &fields, &answer, dry),
        Ok(_) => Desk::back(&done(&desk, act, &form::segments(act, &objects(act, &of), &fields))),
    }
}

/// The page after an action, with its name and, where it can be taken back, its objects.
fn done(desk: &Desk, act: &Act, segments: &[&str]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("done", act.name);
    let objects = act.path.iter().zip(segments).filter(|(part, _)| part.starts_with('{'));
    for (_, id) in objects.filter(|_| !act.undo.is_empty()) {
        query.append_pair("did", id);
    }
    let section = link(&[act.section()], &[]);
    let back = desk.query.get("back");
    let back = if back.is_empty() { section.as_str() } else { back };
    let mark = if back.contains('?') { '&' } else { '?' };
    format!("{back}{mark}{}", query.finish())
}

pub(super) fn bad_value(why: &str) -> Refusal {
    let problem = Json::Object(vec![("detail".to_owned(), Json::from(why))]);
    Refusal { status: StatusCode::UNPROCESSABLE_ENTITY, problem }
}

/// The form again, with the refusal above it.
pub(super) fn again(
    desk: &Desk,
    act: &'static Act,
    fields: &Fields,
    refusal: &Refusal,
) -> Response {
    if !act.rights.allow(desk.rights()) {
        return desk.refused(refusal);
    }
    let mut sheet = page(desk, act, fields);
    let words = text::visible(refusal.problem.text("detail"));
    sheet.frame.flash = Some(Flash { words, tone: "bad", undo: None });
    if let Some(failures) = problem::failures(refusal) {
        sheet = sheet.part("failures", "Findings", failures);
    }
    desk.page(refusal.status, &sheet)
}

/// The answer as a page; after a dry run with the form, to go on.
fn shown(desk: &Desk, act: &'static Act, fields: &Fields, answer: &Json, dry: bool) -> Response {
    let mut sheet = if dry || act.rights == ActRights::Readers || act.name == "what-if" {
        page(desk, act, fields)
    } else {
        let frame = desk.frame(act.section(), act.title, &[]);
        Sheet::new(frame)
    };
    if dry {
        let words = "A dry run: nothing was changed.".to_owned();
        sheet.frame.flash = Some(Flash { words, tone: "good", undo: None });
    }
    sheet = answers::parts(desk, sheet, answer);
    let back = super::sheet::Button {
        label: "Back".to_owned(),
        href: match desk.query.get("back") {
            back if back.starts_with("/console") => back.to_owned(),
            _ => link(&[act.section()], &[]),
        },
        tone: "",
    };
    desk.page(StatusCode::OK, &sheet.buttons([Some(back)]))
}
