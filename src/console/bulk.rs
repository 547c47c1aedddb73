//! Actions by filter, a part at a time: a trial names those that fit, each posted form decides on some of them, and its page
//! offers to go on. Nothing is kept between: the form has what is left.

use std::collections::HashSet;

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;

use super::acts::{self, Act, Field, Kind};
use super::desk::{Desk, Fields, Refusal};
use super::form::{self, BadValue};
use super::frame::{Flash, link};
use super::json::Json;
use super::pages::answers;
use super::sheet::{Content, Sheet};
use super::text;
use crate::doors::front::ApiRequest;

/// Decisions a second unless said, as the API has it.
const RATE: usize = 50;
/// Most decisions of a form: a few seconds.
const MOST: usize = 200;
/// Most items that a page repeats because they were not done.
const BAD: usize = 50;
/// Items that were not done, at which no more are looked for: the form repeats their ids.
const MOST_BAD: usize = 500;

/// The form that goes on, and how far it is.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct More {
    #[serde(skip)]
    pub(super) action: String,
    #[serde(skip)]
    pub(super) csrf: String,
    #[serde(skip)]
    pub(super) hidden: Vec<(String, String)>,
    #[serde(skip)]
    pub(super) stop: String,
    pub(super) decided: usize,
    pub(super) of: usize,
    /// Whether more fit than are counted so far.
    pub(super) more: bool,
    pub(super) failed: usize,
    pub(super) per_second: usize,
}

/// The result of the parts before, as the form has it.
struct Course {
    left: Vec<String>,
    /// Those that were not done, each with its reason.
    bad: Vec<String>,
    decided: usize,
    of: usize,
    failed: usize,
    /// Decisions a second of the last part.
    per_second: usize,
    more: bool,
}

impl Course {
    fn of(fields: &Fields) -> Self {
        let lines = |name: &str| {
            let lines = fields.all(name).flat_map(str::lines).map(str::trim);
            lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        let number = |name: &str| fields.get(name).parse().unwrap_or(0);
        Self {
            left: lines("_left"),
            bad: lines("_bad"),
            decided: number("_decided"),
            of: number("_of"),
            failed: number("_failed"),
            per_second: 0,
            more: fields.get("_of").is_empty() || !fields.get("_more").is_empty(),
        }
    }

    /// Those that were not done, by their ids: a trial finds them again.
    fn is_known(&self, id: &str) -> bool {
        self.bad.iter().any(|line| line.split(' ').next() == Some(id))
    }

    /// Takes the answer to a part.
    fn take(&mut self, answer: &Json) {
        for item in answer.list("items") {
            self.decided += 1;
            if ["released", "discarded", "canceled", "resolved"].contains(&item.text("result")) {
                continue;
            }
            self.failed += 1;
            let why = [item.text("error"), item.text("result")];
            let why = why.into_iter().find(|why| !why.is_empty()).unwrap_or_default();
            let why = text::short(&why.replace(['\n', '\r'], " "), 80);
            self.bad.push(format!("{} {why}", id_of(item)));
        }
    }
}

fn id_of(item: &Json) -> &str {
    match item.text("id") {
        "" => item.text("handoffId"),
        id => id,
    }
}

/// Decides on the next part.
pub(super) async fn carry_on(desk: &Desk, act: &'static Act, fields: &Fields) -> Response {
    match next(desk, act, fields).await {
        Ok(page) => desk.page(StatusCode::OK, &page),
        Err(refusal) => acts::again(desk, act, fields, &refusal),
    }
}

async fn next(desk: &Desk, act: &'static Act, fields: &Fields) -> Result<Sheet, Refusal> {
    let bad_value = |BadValue(why)| acts::bad_value(&why);
    let mut course = Course::of(fields);
    if course.left.is_empty() && course.more {
        let answer = desk.send(trial(act, fields).map_err(bad_value)?).await?;
        let ids = answer.list("items").iter().map(id_of);
        let fresh: HashSet<&str> = ids.filter(|id| !course.is_known(id)).collect();
        let mut ids: Vec<String> = fresh.into_iter().map(str::to_owned).collect();
        ids.sort_unstable();
        course.more = answer.flag("more") && !ids.is_empty();
        course.of += ids.len();
        course.left = ids;
    }
    let rate = fields.get("ratePerSecond").parse().unwrap_or(RATE);
    let size = (rate * 2).clamp(1, MOST).min(course.left.len());
    let part: Vec<String> = course.left.drain(..size).collect();
    if !part.is_empty() {
        let mut values =
            Fields(fields.0.iter().filter(|(name, _)| name != "of").cloned().collect());
        values.0.push(("of".to_owned(), part.join("\n")));
        // The API takes a user or ids; the trial went by the user.
        values.0.retain(|(name, _)| name != "userRef");
        let began = Instant::now();
        let answer = desk.send(form::request(act, &[], &values, false).map_err(bad_value)?).await?;
        course.take(&answer);
        let seconds = began.elapsed().as_secs_f64().max(0.001);
        course.per_second = (part.len() as f64 / seconds) as usize;
        course.more = course.more && course.bad.len() < MOST_BAD;
    }
    Ok(page(desk, act, fields, &course))
}

/// The dry run that names those that fit. A trial of a release would ask the gate, and its classifier, about each.
fn trial(act: &'static Act, fields: &Fields) -> Result<ApiRequest, BadValue> {
    let mut body = form::body(act, fields, true)?;
    let mut path = act.path.to_vec();
    if let Json::Object(members) = &mut body {
        members.retain(|(name, _)| name != "waive");
    }
    if act.name == "release-many" {
        path = vec!["dead-letters", "discard"];
    }
    Ok(ApiRequest::post(&path, body))
}

fn page(desk: &Desk, act: &'static Act, fields: &Fields, course: &Course) -> Sheet {
    let mut frame = desk.frame(act.section(), act.title, &[]);
    let goes_on = !course.left.is_empty() || course.more;
    let (decided, of, failed) = (course.decided, course.of, course.failed);
    if !goes_on {
        let words = match (of, failed) {
            (0, _) => "Nothing fits: nothing was changed.".to_owned(),
            (_, 0) => format!("{} All {decided} that fit.", act.done),
            _ => format!("{} of {decided} are done; {failed} are not.", decided - failed),
        };
        frame.flash =
            Some(Flash { words, tone: if failed > 0 { "bad" } else { "good" }, undo: None });
    }
    let back = match desk.query.get("back") {
        back if back.starts_with("/console") => back.to_owned(),
        _ => link(&[act.section()], &[]),
    };
    let per_second = course.per_second;
    let rest: Vec<Json> =
        course.bad.iter().take(BAD).map(|line| Json::from(line.as_str())).collect();
    let facts = Json::Object(vec![
        ("matched".to_owned(), Json::Number(of.to_string())),
        ("decided".to_owned(), Json::Number(decided.to_string())),
        ("failed".to_owned(), Json::Number(failed.to_string())),
        ("perSecond".to_owned(), Json::Number(per_second.to_string())),
        ("notDone".to_owned(), Json::List(rest)),
    ]);
    let more = More {
        action: link(&["do", act.name], &[("back", &back)]),
        csrf: desk.csrf().to_owned(),
        hidden: hidden(act, fields, course),
        stop: back,
        decided,
        of,
        more: course.more,
        failed,
        per_second,
    };
    let mut sheet = Sheet::new(frame);
    if goes_on {
        sheet = sheet
            .part("progress", "Progress", Content::More(more))
            .note("Each part is recorded as it is done. To stop is to leave this page.");
    }
    answers::parts(desk, sheet, &facts)
}

/// The fields of the next form.
fn hidden(act: &'static Act, fields: &Fields, course: &Course) -> Vec<(String, String)> {
    let shown = |field: &&Field| !matches!(field.kind, Kind::Fixed(_)) && field.name != "of";
    let mut all: Vec<(String, String)> = Vec::new();
    for field in act.fields.iter().filter(shown) {
        let values = fields.all(field.name).filter(|value| !value.is_empty());
        all.extend(values.map(|value| (field.name.to_owned(), value.to_owned())));
    }
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    add("_left", course.left.join("\n"));
    add("_bad", course.bad.join("\n"));
    add("_decided", course.decided.to_string());
    add("_of", course.of.to_string());
    add("_failed", course.failed.to_string());
    add("_more", if course.more { "1" } else { "" }.to_owned());
    all
}
