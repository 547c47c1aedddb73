//! Pages about refusals, and HTML as an answer.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::desk::{Desk, Refusal};
use super::frame::link;
use super::sheet::{Button, Cell, Content, Facts, Sheet, Table};
use super::text;

/// A template as an answer.
pub(super) fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => {
            (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
        }
        Err(err) => {
            tracing::error!(%err, "a page of the console cannot be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

const fn title(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "Not found",
        403 => "Not yours to do",
        400 | 422 => "Refused",
        409 => "It has changed",
        429 | 503 => "The broker is busy",
        _ => "It did not work",
    }
}

/// The failures of a problem as a table.
pub(super) fn failures(refusal: &Refusal) -> Option<Content> {
    let failures = refusal.problem.list("failures");
    let columns = [("code", "Code"), ("pointer", "Place"), ("message", "Message")];
    let table = Table::of(&columns, "").rows(failures.iter().map(|failure| {
        vec![
            Cell::status(failure.get("code")).toned("bad"),
            Cell::code(failure.get("pointer")),
            Cell::excerpt(failure.get("message"), 400),
        ]
    }));
    (!failures.is_empty()).then_some(Content::Table(table))
}

/// The page of a refusal.
pub(super) fn page(desk: &Desk, refusal: &Refusal) -> Sheet {
    let problem = &refusal.problem;
    let detail = match problem.text("detail") {
        "" => "The broker gave no reason.".to_owned(),
        detail => text::sentence(detail),
    };
    let facts = vec![
        ("Status", Cell::said(refusal.status.to_string())),
        ("Code", Cell::code(problem.get("code"))),
        ("Request", Cell::code(problem.get("requestId"))),
    ];
    let mut sheet = Sheet::new(desk.frame("none", title(refusal.status), &[])).lead(detail).part(
        "problem",
        "",
        Content::Facts(Facts::of(facts)),
    );
    let home = Button { label: "To the first page".to_owned(), href: link(&[], &[]), tone: "" };
    sheet = sheet.buttons([Some(home)]);
    if let Some(failures) = failures(refusal) {
        sheet = sheet.part("failures", "Findings", failures);
    }
    sheet
}
