//! `/console/keys`: API keys, for admins.

use axum::response::Response;

use super::super::desk::{Desk, Refusal};
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Sheet, Table};
use super::agent;

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

/// A key's id by its two ends: ids of one moment begin alike.
fn shortened(id: &Json) -> Cell {
    let mut cell = Cell::code(id);
    if cell.shown.len() > 24 && cell.shown.is_ascii() {
        let end = cell.shown.split_off(cell.shown.len() - 8);
        cell.title = format!("{}{end}", cell.shown);
        cell.shown.truncate(8);
        cell.shown = format!("{}…{end}", cell.shown);
    }
    cell
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let answer = desk.get(&["keys"], &[]).await?;
    let columns = [
        ("keyId", "Key"),
        ("role", "Role"),
        ("agentId", "Agent"),
        ("label", "Label"),
        ("lastUsedAt", "Last used"),
        ("expiresAt", "Expires"),
        ("createdAt", "Made"),
        ("revoke", ""),
    ];
    let table = Table::of(&columns, "No keys yet.").rows(answer.list("items").iter().map(|key| {
        let revoke = desk.may("revoke-key", &[key.text("keyId")]);
        vec![
            shortened(key.get("keyId")),
            Cell::text(key.get("role")),
            agent(key.get("agentId")),
            Cell::excerpt(key.get("label"), 40),
            Cell::time(key.get("lastUsedAt"), desk.now, "never"),
            Cell::time(key.get("expiresAt"), desk.now, "never"),
            Cell::time(key.get("createdAt"), desk.now, ""),
            revoke.map_or_else(Cell::default, |button| Cell::said("Revoke…").linked(button.href)),
        ]
    }));
    Ok(Sheet::new(desk.frame("keys", "Keys", &[])).buttons([desk.may("create-key", &[])]).part(
        "keys",
        "",
        Content::Table(table),
    ))
}
