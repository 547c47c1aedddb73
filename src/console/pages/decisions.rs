//! `/console/decisions`: escalations, with the decision on the same page.

use axum::extract::Path;
use axum::response::Response;

use super::super::acts;
use super::super::desk::{Desk, Fields, Refusal};
use super::super::form::Form;
use super::super::sheet::{Cell, Content, Facts, Sheet, Table};
use super::super::text;
use super::handoff::message_parts;
use super::{ROWS, agent, chosen, handoff_id, paged, task};

pub(crate) async fn list(desk: Desk) -> Response {
    let page = make_list(&desk).await;
    desk.answer(page)
}

async fn make_list(desk: &Desk) -> Result<Sheet, Refusal> {
    let status = match desk.query.get("status") {
        "" => "OPEN",
        "ALL" => "",
        said => said,
    };
    let pairs = [
        ("status", status),
        ("taskId", desk.query.get("taskId")),
        ("cursor", desk.query.get("cursor")),
        ("limit", ROWS),
    ];
    let answer = desk.get(&["escalations"], &pairs).await?;
    let columns = [
        ("escalationId", "Decision"),
        ("status", "Status"),
        ("reason", "Why"),
        ("fromAgent", "From"),
        ("toAgent", "To"),
        ("taskId", "Task"),
        ("openedAt", "Since"),
        ("timeoutAt", "Ends"),
    ];
    let table =
        Table::of(&columns, "No decision fits.").rows(answer.list("items").iter().map(|item| {
            vec![
                Cell::id(item.get("escalationId")).to(&["decisions", item.text("escalationId")]),
                Cell::status(item.get("status")),
                Cell::excerpt(item.get("reason"), 80),
                agent(item.get("fromAgent")),
                agent(item.get("toAgent")),
                task(item.get("taskId")),
                Cell::time(item.get("openedAt"), desk.now, ""),
                Cell::time(item.get("timeoutAt"), desk.now, ""),
            ]
        }));
    let words = ["OPEN", "RESOLVED", "TIMED_OUT", "ALL"];
    let mut frame = desk.frame("decisions", "Decisions", &[]);
    frame.live = true;
    Ok(Sheet::new(frame)
        .buttons([desk.may("resolve-many", &[])])
        .filters(vec![chosen(desk, "status", "Status", &words)])
        .part("decisions", "", Content::Table(paged(desk, table, &answer))))
}

pub(crate) async fn page(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make(&desk, &id).await;
    desk.answer(page)
}

/// Why a person is asked.
fn cause(reason: &str) -> String {
    match reason {
        "HUMAN_TARGET" => "By the contract of this edge a person decides.".to_owned(),
        other => format!("Opened for {}.", text::visible(other)),
    }
}

async fn make(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let item = desk.get(&["escalations", id], &[]).await?;
    let (task_id, handoff) = (item.text("taskId"), item.text("handoffId"));
    let cost = desk.get(&["tasks", task_id], &[]).await.unwrap_or_default();
    let hop = match handoff {
        "" => super::super::json::Json::Null,
        id => desk.get(&["handoffs", id], &[("include", "message")]).await.unwrap_or_default(),
    };
    let open = item.text("status") == "OPEN";
    let from = text::visible(item.text("fromAgent"));
    let mut frame = desk.frame(
        "decisions",
        format!("{from} asks for a decision"),
        &[("Decisions", &["decisions"])],
    );
    task_id.clone_into(&mut frame.watched);
    frame.live = open;
    let outcome = match item.text("defaultAction") {
        "resume" => "the task goes on by itself",
        _ => "the handoff becomes a dead letter",
    };
    let facts = Facts::of(vec![
        ("From", agent(item.get("fromAgent"))),
        ("To", agent(item.get("toAgent"))),
        ("Task", task(item.get("taskId"))),
        ("Handoff", handoff_id(item.get("handoffId"))),
        ("Since", Cell::time(item.get("openedAt"), desk.now, "")),
        ("Spent so far", Cell::money(cost.get("costSpentSoFarUSD"))),
        ("Left to spend", Cell::money(cost.get("costBudgetRemainingUSD"))),
        (
            "Without a decision",
            Cell::said(if open {
                format!("{outcome} {}", text::relative(item.text("timeoutAt"), desk.now))
            } else {
                String::new()
            }),
        ),
        ("Decision", Cell::text(item.get("resolution"))),
        ("Decided by", Cell::code(item.get("resolvedBy"))),
        ("Decided", Cell::time(item.get("resolvedAt"), desk.now, "")),
    ]);
    let mut sheet = Sheet::new(frame)
        .status(Cell::status(item.get("status")))
        .lead(cause(item.text("reason")))
        .part("facts", "The question", Content::Facts(facts));
    let act = acts::named("resolve").filter(|act| open && act.rights.allow(desk.rights()));
    if let Some(act) = act {
        let back = Fields(vec![("back".to_owned(), desk.here_with(&[]))]);
        let mut form = Form::of(desk, act, &[id], &back);
        "Your decision".clone_into(&mut form.title);
        sheet = sheet.part("decide", "", Content::Ask(form));
    }
    if !hop.get("message").is_null() {
        let parts = message_parts(hop.get("message"), &[]);
        sheet = sheet.part("message", "The handoff", Content::Quotes(parts)).fold();
    }
    Ok(sheet)
}
