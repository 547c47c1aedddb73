//! `/console/tasks` and `/console/handoffs`: lists whose filters are their address.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::sheet::{Cell, Content, Filter, Sheet, Table};
use super::{ROWS, agent, chosen, handoff_id, looked_back, paged, task, typed};

const STATUSES: [&str; 7] =
    ["", "RUNNING", "PENDING_HANDOFF", "HANDING_OFF", "ESCALATED", "COMPLETED", "CANCELED"];
const FILTERS: [&str; 7] =
    ["status", "from", "to", "spentAtLeastUSD", "leftAtMostUSD", "userRef", "cursor"];

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let mut pairs: Vec<_> = FILTERS.iter().map(|name| (*name, desk.query.get(name))).collect();
    pairs.push(("limit", ROWS));
    let answer = desk.get(&["tasks"], &pairs).await?;
    let columns = [
        ("taskId", "Task"),
        ("status", "Status"),
        ("holder", "Held by"),
        ("handoffs", "Handoffs#"),
        ("failures", "Failures#"),
        ("costSpentSoFarUSD", "Spent#"),
        ("costBudgetRemainingUSD", "Left#"),
        ("updatedAt", "Changed"),
        ("createdAt", "Begun"),
    ];
    let all = answer.get("lookedBackTo").is_empty();
    let empty = if all {
        "No task fits. Tasks begin with their first handoff."
    } else {
        "None of these fits."
    };
    let table = Table::of(&columns, empty).rows(answer.list("items").iter().map(|item| {
        let failures = Cell::number(item.get("failures"));
        let failed = failures.shown != "0";
        vec![
            task(item.get("taskId")),
            Cell::status(item.get("status")),
            agent(item.get("holder")),
            Cell::number(item.get("handoffs")),
            if failed { failures.toned("bad") } else { failures },
            Cell::money(item.get("costSpentSoFarUSD")),
            Cell::money(item.get("costBudgetRemainingUSD")),
            Cell::time(item.get("updatedAt"), desk.now, ""),
            Cell::time(item.get("createdAt"), desk.now, ""),
        ]
    }));
    let filled: Vec<(&str, &str)> = ["status", "from", "to", "userRef"]
        .iter()
        .map(|name| (*name, desk.query.get(name)))
        .collect();
    let mut frame = desk.frame("tasks", "Tasks", &[]);
    frame.live = true;
    Ok(Sheet::new(frame)
        .buttons([desk.may_with("cancel-tasks", &[], &filled)])
        .filters(filters(desk))
        .part("tasks", "", Content::Table(paged(desk, table, &answer)))
        .note(looked_back(desk, &answer, "tasks")))
}

fn filters(desk: &Desk) -> Vec<Filter> {
    vec![
        chosen(desk, "status", "Status", &STATUSES),
        typed(desk, "from", "Begun from", "2026-11-28"),
        typed(desk, "to", "until", "2026-11-29"),
        typed(desk, "spentAtLeastUSD", "Spent at least", "10"),
        typed(desk, "leftAtMostUSD", "Left at most", "0"),
        typed(desk, "userRef", "User reference", ""),
    ]
}

const HANDOFF_FILTERS: [&str; 9] = [
    "status",
    "taskId",
    "conversationId",
    "fromAgent",
    "toAgent",
    "from",
    "to",
    "userRef",
    "cursor",
];
const HANDOFF_STATUSES: [&str; 10] = [
    "",
    "PENDING",
    "ACCEPTED",
    "INPUT_REQUIRED",
    "COMPLETED",
    "REJECTED",
    "EXPIRED",
    "FAILED",
    "DEAD_LETTERED",
    "CANCELED",
];

pub(crate) async fn handoffs(desk: Desk) -> Response {
    let page = make_handoffs(&desk).await;
    desk.answer(page)
}

async fn make_handoffs(desk: &Desk) -> Result<Sheet, Refusal> {
    let mut pairs: Vec<_> =
        HANDOFF_FILTERS.iter().map(|name| (*name, desk.query.get(name))).collect();
    pairs.push(("limit", ROWS));
    let answer = desk.get(&["handoffs"], &pairs).await?;
    let columns = [
        ("handoffId", "Handoff"),
        ("status", "Status"),
        ("fromAgent", "From"),
        ("toAgent", "To"),
        ("taskId", "Task"),
        ("attempts", "Attempts#"),
        ("durationMs", "Took#"),
        ("createdAt", "Committed"),
    ];
    let all = answer.get("lookedBackTo").is_empty();
    let empty = if all { "No handoff fits." } else { "None of these fits." };
    let table = Table::of(&columns, empty).rows(answer.list("items").iter().map(|item| {
        vec![
            handoff_id(item.get("handoffId")),
            Cell::status(item.get("status")),
            agent(item.at("fromAgent/agentId")),
            agent(item.at("toAgent/agentId")),
            task(item.get("taskId")),
            Cell::number(item.get("attempts")),
            Cell::millis(item.get("durationMs")),
            Cell::time(item.get("createdAt"), desk.now, ""),
        ]
    }));
    let filters = vec![
        chosen(desk, "status", "Status", &HANDOFF_STATUSES),
        typed(desk, "fromAgent", "From agent", ""),
        typed(desk, "toAgent", "To agent", ""),
        typed(desk, "conversationId", "Conversation", ""),
        typed(desk, "from", "Committed from", "2026-11-28T00:00:00Z"),
        typed(desk, "to", "until", "2026-11-29T00:00:00Z"),
    ];
    let mut frame = desk.frame("tasks", "Handoffs", &[("Tasks", &["tasks"])]);
    frame.live = true;
    let table = Content::Table(paged(desk, table, &answer));
    let note = looked_back(desk, &answer, "handoffs");
    Ok(Sheet::new(frame).filters(filters).part("handoffs", "", table).note(note))
}
