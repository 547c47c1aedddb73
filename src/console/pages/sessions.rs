//! `/console/sessions`: who is logged in.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Sheet, Table};
use super::{ROWS, paged};

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let pairs = [("limit", ROWS), ("cursor", desk.query.get("cursor"))];
    let answer = desk.get(&["sessions"], &pairs).await?;
    let columns = [
        ("sessionId", "Session"),
        ("role", "Role"),
        ("keyId", "Key"),
        ("userAgent", "Browser"),
        ("lastSeenAt", "Last seen"),
        ("createdAt", "Begun"),
        ("expiresAt", "Ends"),
        ("end", ""),
    ];
    let table = Table::of(&columns, "No session is open.").rows(answer.list("items").iter().map(
        |item: &Json| {
            let id = item.text("sessionId");
            let current = id == desk.session();
            let end = desk.may("end-session", &[id]).filter(|_| !current);
            vec![
                Cell::id(item.get("sessionId")),
                Cell::text(item.get("role")),
                Cell::code(item.get("keyId")),
                Cell::excerpt(item.get("userAgent"), 60),
                Cell::time(item.get("lastSeenAt"), desk.now, ""),
                Cell::time(item.get("createdAt"), desk.now, ""),
                Cell::time(item.get("expiresAt"), desk.now, ""),
                match end {
                    Some(button) => Cell::said("End…").linked(button.href),
                    None if current => Cell::mark("This one", "good"),
                    None => Cell::default(),
                },
            ]
        },
    ));
    let mut sheet = Sheet::new(desk.frame("sessions", "Sessions", &[]))
        .lead("A session ends by itself; ending one here takes effect at its next request.")
        .part("sessions", "", Content::Table(paged(desk, table, &answer)));
    sheet.everywhere = true;
    Ok(sheet)
}
