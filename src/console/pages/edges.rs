//! `/console/edges`: the agents to which an agent may hand off, and the contracts of these edges.

use std::collections::BTreeSet;

use axum::extract::Path;
use axum::response::Response;

use super::super::acts;
use super::super::desk::{Desk, Fields, Refusal};
use super::super::diff;
use super::super::form::Form;
use super::super::json::Json;
use super::super::sheet::{Cell, Content, Matrix, Quote, Sheet, Table};
use super::super::text;
use super::{agent, typed};

/// Agents up to which the edges are drawn as squares too.
const SQUARE: usize = 24;
/// Rows of the table of edges.
const MOST: usize = 200;

pub(crate) async fn page(desk: Desk) -> Response {
    let page = make(&desk).await;
    desk.answer(page)
}

async fn make(desk: &Desk) -> Result<Sheet, Refusal> {
    let answer = desk.get(&["allowlist"], &[]).await?;
    let contracts = desk.get(&["contracts"], &[]).await?;
    let (of, target) = (desk.query.get("source"), desk.query.get("target"));
    let edges: Vec<&Json> = answer
        .list("edges")
        .iter()
        .filter(|edge| edge.text("source").contains(of) && edge.text("target").contains(target))
        .collect();
    let mut sheet = Sheet::new(desk.frame("edges", "Edges and contracts", &[]))
        .buttons([desk.may("add-edge", &[]), desk.may("put-contract", &[])])
        .filters(vec![typed(desk, "source", "From", ""), typed(desk, "target", "To", "")]);
    if let Some(matrix) = matrix(&edges) {
        sheet = sheet.part("matrix", "Who may hand off to whom", Content::Matrix(matrix));
    }
    sheet = sheet.part("edges", "Edges", Content::Table(table(desk, &edges)));
    if edges.len() > MOST {
        sheet =
            sheet.note(format!("The first {MOST} of {}; narrow them by the filters.", edges.len()));
    }
    sheet = sheet.part("contracts", "Contracts", Content::Table(contract_table(&contracts)));
    for name in ["lint", "what-if"] {
        let act = acts::named(name).filter(|act| act.rights.allow(desk.rights()));
        if let Some(act) = act {
            let back = Fields(vec![("back".to_owned(), desk.here_with(&[]))]);
            sheet = sheet
                .part(act.name, act.title, Content::Ask(Form::of(desk, act, &[], &back)))
                .fold();
        }
    }
    Ok(sheet)
}

fn table(desk: &Desk, edges: &[&Json]) -> Table {
    let columns = [
        ("source", "From"),
        ("target", "To"),
        ("resolved", "Reaches"),
        ("state", ""),
        ("remove", ""),
    ];
    let empty = "No edge: no agent may hand off to another yet.";
    Table::of(&columns, empty).rows(edges.iter().take(MOST).map(|edge| {
        let (source, target) = (edge.text("source"), edge.text("target"));
        let reached: Vec<&str> = edge.list("resolved").iter().map(Json::as_text).collect();
        let state = if edge.flag("unknown") {
            Cell::mark("No such agent", "warn")
        } else {
            Cell::default()
        };
        let remove = desk.may("remove-edge", &[source, target]);
        vec![
            agent(edge.get("source")),
            Cell::text(edge.get("target")),
            Cell::said(text::short(&text::visible(&reached.join(", ")), 80)),
            state,
            remove.map_or_else(Cell::default, |button| Cell::said("Remove…").linked(button.href)),
        ]
    }))
}

/// Senders by receivers, where they are few enough to be read.
fn matrix(edges: &[&Json]) -> Option<Matrix> {
    let reached = |edge: &Json| -> Vec<String> {
        edge.list("resolved").iter().map(|id| id.as_text().to_owned()).collect()
    };
    let sources: BTreeSet<String> =
        edges.iter().map(|edge| edge.text("source").to_owned()).collect();
    let targets: BTreeSet<String> = edges.iter().flat_map(|edge| reached(edge)).collect();
    if sources.is_empty() || targets.is_empty() || sources.len() > SQUARE || targets.len() > SQUARE
    {
        return None;
    }
    let allowed: BTreeSet<(String, String)> = edges
        .iter()
        .flat_map(|edge| {
            reached(edge).into_iter().map(|target| (edge.text("source").to_owned(), target))
        })
        .collect();
    let row = |source: &String| {
        let cells = targets.iter().map(|target| {
            if allowed.contains(&(source.clone(), target.clone())) {
                Cell::mark("yes", "good").titled(text::visible(&format!("{source} → {target}")))
            } else {
                Cell::said("no")
            }
        });
        (text::visible(source), cells.collect())
    };
    Some(Matrix {
        rows: sources.iter().map(row).collect(),
        targets: targets.iter().map(|target| text::visible(target)).collect(),
    })
}

fn contract_table(contracts: &Json) -> Table {
    let columns = [
        ("id", "Contract"),
        ("version", "Version"),
        ("level", "Level"),
        ("source", "From"),
        ("target", "To"),
        ("deprecated", ""),
        ("createdAt", "Stored"),
    ];
    Table::of(&columns, "No contract is stored: edges are ruled by the settings alone.").rows(
        contracts.list("items").iter().map(|contract| {
            let deprecated = if contract.flag("meta/deprecated") {
                Cell::mark("Deprecated", "calm")
            } else {
                Cell::default()
            };
            vec![
                Cell::text(contract.get("id")).to(&["contracts", contract.text("id")]),
                Cell::text(contract.get("version")),
                Cell::text(contract.at("meta/level")),
                Cell::text(source(contract)),
                Cell::text(target(contract)),
                deprecated,
                Cell::text(contract.at("meta/createdAt")),
            ]
        }),
    )
}

fn source(contract: &Json) -> &Json {
    match contract.at("source/agent") {
        Json::Null => contract.get("source"),
        named => named,
    }
}

fn target(contract: &Json) -> &Json {
    match contract.at("target/agent") {
        Json::Null => contract.get("target"),
        named => named,
    }
}

pub(crate) async fn contract(desk: Desk, Path(id): Path<String>) -> Response {
    let page = make_contract(&desk, &id).await;
    desk.answer(page)
}

async fn make_contract(desk: &Desk, id: &str) -> Result<Sheet, Refusal> {
    let answer = desk.get(&["contracts", id], &[("version", desk.query.get("version"))]).await?;
    let frame = desk.frame("edges", text::visible(id), &[("Edges and contracts", &["edges"])]);
    let now = without_meta(&answer);
    let earlier = before(desk, id, &answer).await;
    let document = now.pretty();
    let columns =
        [("severity", "Severity"), ("rule", "Rule"), ("message", "Message"), ("line", "Line#")];
    let findings = Table::of(&columns, "Lint has nothing to say.").rows(
        answer.list("meta/findings").iter().map(|finding| {
            vec![
                Cell::status(finding.get("severity")),
                Cell::code(finding.get("rule")),
                Cell::excerpt(finding.get("message"), 300),
                Cell::number(finding.get("line")),
            ]
        }),
    );
    let versions = Table::of(&[("version", "Version")], "").rows(
        answer.list("meta/versions").iter().map(|version| {
            let to = desk.here_with(&[("version", version.as_text())]);
            vec![Cell::text(version).linked(to)]
        }),
    );
    let quote = Quote { folded: false, ..Quote::of("Document", &document) };
    let filled = [("contract", id), ("document", document.as_str())];
    // A document that does not fit an address is pasted by hand.
    let filled = if document.len() > 4_000 { &filled[..1] } else { &filled[..] };
    let level = match answer.text("meta/level") {
        "" => "no level".to_owned(),
        level => format!("level {}", text::visible(level)),
    };
    let mut sheet = Sheet::new(frame)
        .lead(format!("Version {}, {level}.", text::visible(answer.text("version"))))
        .buttons([
            desk.may_with("put-contract", &[], filled),
            desk.may_with("what-if", &[], &filled[1..]),
        ])
        .part("findings", "Lint", Content::Table(findings));
    if let Some((version, document)) = &earlier {
        let changed = diff::table(&diff::changes(document, &now), "The same.");
        let title = format!("Changed since {}", text::visible(version));
        sheet = sheet.part("changes", title, Content::Table(changed));
    }
    Ok(sheet.part("document", "Contract", Content::Quotes(vec![quote])).part(
        "versions",
        "Versions",
        Content::Table(versions),
    ))
}

/// A contract as it was put.
fn without_meta(answer: &Json) -> Json {
    let members = answer.members().iter();
    Json::Object(
        members.filter(|(name, _)| name != "meta" && name != "warnings").cloned().collect(),
    )
}

/// The version before the one that a page shows, and its document; none of the first.
async fn before(desk: &Desk, id: &str, answer: &Json) -> Option<(String, Json)> {
    let versions = answer.list("meta/versions");
    let shown = versions.iter().position(|one| one.as_text() == answer.text("version"))?;
    let version = versions.get(shown.checked_sub(1)?)?.as_text().to_owned();
    let earlier = desk.get(&["contracts", id], &[("version", &version)]).await.ok()?;
    Some((version, without_meta(&earlier)))
}
