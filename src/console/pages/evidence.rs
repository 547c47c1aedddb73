//! `/console/evidence`: tree heads in and outside the database, the newest records, erasures, and legal holds.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::frame::link;
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Facts, Quote, Sheet, Table};
use super::super::text;
use super::{agent, handoff_id, task};

/// Records of a page.
const RECORDS: i64 = 50;

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let head = desk.get(&["audit", "tree-head"], &[]).await.unwrap_or_default();
    let keys = desk.get(&["audit", "keys"], &[]).await.unwrap_or_default();
    let heads = desk.get(&["audit", "heads"], &[]).await.unwrap_or_default();
    // Holds name persons, and codes of erasures may.
    let (holds, erasures) = if desk.reads_contents() {
        let pairs = [("limit", "50"), ("cursor", desk.query.get("erasures"))];
        let holds = desk.get(&["legal-holds"], &pairs[..1]).await?;
        (holds, desk.get(&["erasures"], &pairs).await?)
    } else {
        (Json::Null, Json::Null)
    };
    let size = head.count("treeSize");
    let last = (size - RECORDS).max(0);
    let from = desk.query.get("from").parse().unwrap_or(last).clamp(0, size.max(0));
    let (start, limit) = (from.to_string(), RECORDS.to_string());
    let pairs = [("from", start.as_str()), ("limit", limit.as_str())];
    let records = desk.get(&["audit", "records"], &pairs).await.unwrap_or_default();
    let figures = Facts(vec![
        ("Records", Cell::number(head.get("treeSize"))),
        ("Root hash", Cell::excerpt(head.get("rootHash"), 8)),
        ("Keys", Cell::count(keys.list("keys").len())),
        ("Holds", Cell::count(holds.list("items").len())),
        ("Last check", last_check(desk, &heads)),
    ]);
    let mut table = records_table(desk, &records);
    if from > 0 {
        table.next = desk.here_with(&[("from", &(from - RECORDS).max(0).to_string())]);
    }
    if from < last {
        table.first = desk.here_with(&[("from", "")]);
    }
    let signed = Quote::of("Signed note", head.text("treeHead"));
    Ok(Sheet::new(desk.frame("evidence", "Evidence", &[]))
        .lead("The log is an append-only Merkle tree. A bundle of a task checks offline by handoffd verify.")
        .part("head", "", Content::Figures(figures))
        .part("treeHead", "Tree head", Content::Quotes(vec![signed]))
        .part("heads", "Heads outside the database", Content::Table(head_table(desk, &heads)))
        .part("records", "Records", Content::Table(table))
        .part("erasures", "Erasures", Content::Table(erasure_table(desk, &erasures)))
        .part("holds", "Legal holds", Content::Table(hold_table(desk, &holds)))
        .with([desk.may("place-hold", &[])])
        .part("keys", "Keys of the log", Content::Table(key_table(desk, &keys))))
}

/// The latest time at which the log was found to continue a head outside the database.
fn last_check(desk: &Desk, heads: &Json) -> Cell {
    let places = heads.list("places").iter().filter(|place| place.count("treeSize") > 0);
    let newest = places.max_by_key(|place| text::micros(place.text("checkedAt")));
    newest.map_or_else(
        || Cell::said("None"),
        |place| Cell::time(place.get("checkedAt"), desk.now, ""),
    )
}

fn head_table(desk: &Desk, heads: &Json) -> Table {
    let columns =
        [("kind", "Place"), ("treeSize", "Records"), ("state", ""), ("checkedAt", "Checked")];
    let empty = "No tree head has been published since the broker's start.";
    let places = heads.list("places").iter().map(|place| {
        let state = match (place.flag("late"), place.count("treeSize")) {
            (true, _) => Cell::mark("Late", "bad"),
            (false, 0) => Cell::mark("Waits", "warn"),
            _ => Cell::mark("Continues", "good"),
        };
        let checked = Cell::time(place.get("checkedAt"), desk.now, "");
        vec![Cell::text(place.get("kind")), Cell::number(place.get("treeSize")), state, checked]
    });
    let witnessed = heads.get("witnessed");
    let witnesses = witnessed.list("witnesses").iter().map(|name| {
        let size = Cell::number(witnessed.get("treeSize"));
        vec![Cell::code(name), size, Cell::mark("Cosigned", "good"), Cell::default()]
    });
    Table::of(&columns, empty).rows(places.chain(witnesses))
}

fn erasure_table(desk: &Desk, erasures: &Json) -> Table {
    let columns = [
        ("erasureId", "Erasure"),
        ("status", "Status"),
        ("scope", "Scope"),
        ("reason", "Reason"),
        ("erased", "Erased"),
        ("requestedAt", "Asked for"),
        ("erasedAt", "Done"),
        ("leafIndex", "Certified by"),
    ];
    let rows = erasures.list("items").iter().map(|erasure| {
        let erased = ["personalData", "contents", "checkpoints"];
        let erased: i64 = erased.iter().map(|name| erasure.get("erased").count(name)).sum();
        let leaf = erasure.get("leafIndex");
        let record = link(&["evidence"], &[("from", leaf.as_text())]);
        vec![
            Cell::id(erasure.get("erasureId")),
            Cell::status(erasure.get("status")),
            Cell::text(erasure.get("scope")),
            Cell::code(erasure.get("reason")),
            Cell::said(erased.to_string()),
            Cell::time(erasure.get("requestedAt"), desk.now, ""),
            Cell::time(erasure.get("erasedAt"), desk.now, ""),
            if leaf.is_null() { Cell::default() } else { Cell::number(leaf).linked(record) },
        ]
    });
    let mut table = Table::of(&columns, "Nothing has been erased.").rows(rows);
    let cursor = erasures.text("nextCursor");
    if !cursor.is_empty() {
        table.next = desk.here_with(&[("erasures", cursor)]);
    }
    table
}

fn records_table(desk: &Desk, records: &Json) -> Table {
    let columns = [
        ("leafIndex", "Leaf#"),
        ("kind", "Kind"),
        ("actor", "By"),
        ("taskId", "Task"),
        ("handoffId", "Handoff"),
        ("recordHash", "Hash"),
        ("time", "When"),
    ];
    let newest = records.list("records").iter().rev();
    Table::of(&columns, "The log is empty.").rows(newest.map(|view| {
        let record = view.get("record");
        let actor = match record.at("actor/agentId") {
            Json::Null => Cell::text(record.at("actor/role")),
            id => agent(id),
        };
        vec![
            Cell::number(view.get("leafIndex")),
            Cell::status(record.get("kind")).toned("calm"),
            actor,
            task(record.get("taskId")),
            handoff_id(record.get("handoffId")),
            Cell::excerpt(view.get("recordHash"), 20).titled(view.text("recordHash")),
            Cell::time(record.get("time"), desk.now, ""),
        ]
    }))
}

fn hold_table(desk: &Desk, holds: &Json) -> Table {
    let columns = [
        ("holdId", "Hold"),
        ("taskId", "Task"),
        ("subject", "Person"),
        ("reason", "Reason"),
        ("placedAt", "Placed"),
        ("releasedAt", "Released"),
        ("release", ""),
    ];
    Table::of(&columns, "No hold is in force.").rows(holds.list("items").iter().map(|hold| {
        let open = hold.get("releasedAt").is_null();
        let button = desk.may("release-hold", &[hold.text("holdId")]).filter(|_| open);
        vec![
            Cell::code(hold.get("holdId")),
            task(hold.get("taskId")),
            Cell::text(hold.get("subjectId")),
            Cell::excerpt(hold.get("reason"), 80),
            Cell::time(hold.get("placedAt"), desk.now, ""),
            Cell::time(hold.get("releasedAt"), desk.now, "in force"),
            button.map_or_else(Cell::default, |button| Cell::said("Release…").linked(button.href)),
        ]
    }))
}

fn key_table(desk: &Desk, keys: &Json) -> Table {
    let columns =
        [("key", "Public key"), ("current", ""), ("createdAt", "Made"), ("retiredAt", "Retired")];
    Table::of(&columns, "The log has no key.").rows(keys.list("keys").iter().map(|key| {
        let current = if key.flag("current") {
            Cell::mark("Signs now", "good")
        } else {
            Cell::mark("Retired", "calm")
        };
        vec![
            Cell::code(key.get("key")),
            current,
            Cell::time(key.get("createdAt"), desk.now, ""),
            Cell::time(key.get("retiredAt"), desk.now, ""),
        ]
    }))
}
