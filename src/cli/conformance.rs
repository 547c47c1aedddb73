//! `handoffd conformance`: what happened, held against the contracts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args as ClapArgs;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::answer::answer;
use super::lint::{SchemaFolders, gather, read_registry, with_schema};
use super::{Exit, Output};
use crate::app::{Access, open_archive, open_store};
use handoffd_broker::archive::Contents;
use handoffd_broker::config::Config;
use handoffd_broker::directory::shelf;
use handoffd_domain::canonical;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::bundle::read_log;
use handoffd_evidence::commitment::unpack;
use handoffd_gate::contract::catalog::Catalog;
use handoffd_gate::contract::conformance::{
    ConformanceFinding, ConformanceReplay, ConformanceReport,
};
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::contract::shelf::{SchemaName, SchemaRegistry};
use handoffd_gate::contract::{DefectKind, read};
use handoffd_store::store::{ContentStorage, Store, StoredRecord};

/// Records read at once.
const PAGE: i64 = 512;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A log that `handoffd export --log` wrote, instead of the database
    #[arg(value_name = "LOG")]
    file: Option<PathBuf>,
    /// Contracts in YAML or JSON, or folders of them, instead of those that the log or the database has
    #[arg(long, value_name = "PATH")]
    contracts: Vec<PathBuf>,
    /// Agents with their types, in YAML or JSON: for contracts that name types
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Whose log, of the database; the configured tenant's unless said
    #[arg(long, conflicts_with = "file")]
    tenant: Option<TenantId>,
}

/// Replays; prints a report.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let report = match &args.file {
        Some(file) => of_file(file, &args),
        None => of_database(&args, &config).await,
    };
    match report {
        Ok(report) => {
            let text = match output {
                Output::Json => report.json().to_string(),
                Output::Text => render(&report),
            };
            answer(&text, if report.has_errors() { Exit::No } else { Exit::Success })
        }
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

/// The inputs of the command line: the contracts, if it names some, and the types of agents.
fn given(
    args: &Args,
    shelf: &SchemaRegistry,
) -> Result<(Option<Catalog>, BTreeMap<String, String>), String> {
    let registry = args.registry.as_deref().map(read_registry).transpose()?.unwrap_or_default();
    let types = registry.agents.into_iter();
    let types = types.filter_map(|agent| Some((agent.agent_id, agent.agent_type?))).collect();
    if args.contracts.is_empty() {
        return Ok((None, types));
    }
    let mut contracts = Vec::new();
    for subject in gather(&args.contracts, &SchemaFolders::default())? {
        let document = subject.document.map_err(|err| format!("{}: {err}", subject.file))?;
        let document = with_schema(document, Path::new(&subject.file));
        contracts
            .push(written(&document, shelf).map_err(|why| format!("{}: {why}", subject.file))?);
    }
    Ok((Some(Catalog::new(contracts)), types))
}

/// A contract from a file: what could not be put is not judged by.
fn written(document: &Document, shelf: &SchemaRegistry) -> Result<Arc<CompiledContract>, String> {
    let (_, faults) = read(document);
    match faults.iter().find(|fault| fault.kind == DefectKind::Invalid) {
        Some(fault) => Err(format!("{}: {}", fault.pointer, fault.message)),
        None => Ok(ready(document, shelf)),
    }
}

/// A contract as the broker makes it ready. A stored contract is in force even if the broker would refuse it today.
fn ready(document: &Document, shelf: &SchemaRegistry) -> Arc<CompiledContract> {
    let (mut contract, _) = read(document);
    shelf.complete(&mut contract);
    let doc = canonical::to_vec(document.value());
    let sha256 = hex::encode(Sha256::digest(&doc));
    let doc = String::from_utf8_lossy(&doc).into_owned();
    Arc::new(CompiledContract::new(contract, doc, sha256, Micros(0)))
}

/// An exported log: once for its contracts, and once for its handoffs.
fn of_file(file: &Path, args: &Args) -> Result<ConformanceReport, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let whole = |visit: &mut dyn FnMut(&Value, Option<&Value>)| {
        let read = read_log(file, |record, content| visit(record, content));
        let read = read.map_err(|err| err.to_string())?;
        read.map(|_| ()).map_err(|fault| wrong(&format!("{}: {}", fault.fault, fault.detail)))
    };
    let (mut put, mut parties, mut shelf) = (Vec::new(), Vec::new(), SchemaRegistry::default());
    whole(&mut |record, content| {
        let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str);
        if text("/kind") == Some("CONTRACT_PUT") {
            put.extend(content.map(|document| Document::from_value(document.clone())));
        }
        if let (Some("PAYLOAD_SCHEMA_PUT"), Some(content)) = (text("/kind"), content) {
            let (id, version) = (text("/payloadSchema/id"), text("/payloadSchema/version"));
            let name = id.zip(version).and_then(|(id, version)| SchemaName::new(id, version).ok());
            if let Some((name, schema)) = name.zip(content.get("schema")) {
                shelf.put(name, schema.clone());
            }
        }
        if let (Some(id), Some(kind)) = (text("/toAgent/agentId"), text("/toAgent/agentType")) {
            parties.push((id.to_owned(), kind.to_owned()));
        }
    })?;
    let (catalog, mut types) = given(args, &shelf)?;
    for (id, kind) in parties {
        types.entry(id).or_insert(kind);
    }
    let catalog = if let Some(catalog) = catalog {
        catalog
    } else {
        Catalog::new(put.iter().map(|document| ready(document, &shelf)).collect())
    };
    let mut replay = ConformanceReplay::new(&catalog, types);
    whole(&mut |record, content| replay.record(record, content))?;
    Ok(replay.finish())
}

async fn of_database(args: &Args, config: &Config) -> Result<ConformanceReport, String> {
    let archive = open_archive(config).map_err(|err| err.to_string())?;
    let store = open_store(config, Access::Beside).await.map_err(|err| err.to_string())?;
    let contents = archive.contents(Arc::clone(&store));
    let tenant = args.tenant.as_ref().unwrap_or(&config.auth.tenant);
    let report = replay(&store, &contents, tenant, args).await;
    store.close().await;
    report
}

async fn replay(
    store: &Store,
    contents: &Contents,
    tenant: &TenantId,
    args: &Args,
) -> Result<ConformanceReport, String> {
    let schemas = store.list_payload_schemas(tenant, None).await.map_err(|err| err.to_string())?;
    let shelf = shelf(&schemas).map_err(|err| err.to_string())?;
    let (catalog, mut types) = given(args, &shelf)?;
    if store.find_head(tenant).await.map_err(|err| err.to_string())?.is_none() {
        return Err(format!("tenant {tenant} has no log"));
    }
    for row in store.list_agents(tenant).await.map_err(|err| err.to_string())? {
        types.entry(row.agent.agent_id.to_string()).or_insert(row.agent.agent_type);
    }
    let catalog = if let Some(catalog) = catalog {
        catalog
    } else {
        let rows = store.list_contracts(tenant, None).await.map_err(|err| err.to_string())?;
        let contracts = rows.iter().map(|row| {
            let wrong = |err| format!("{} {}: {err}", row.id, row.version);
            let document = Document::parse(&row.doc).map_err(wrong)?;
            Ok(ready(&document, &shelf))
        });
        Catalog::new(contracts.collect::<Result<_, String>>()?)
    };
    let mut replay = ConformanceReplay::new(&catalog, types);
    let mut from = 0;
    loop {
        let page = contents.list_records(tenant, None, from, PAGE).await;
        let page = page.map_err(|err| err.to_string())?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for stored in &page {
            let record: Value = serde_json::from_slice(&stored.body)
                .map_err(|err| format!("record {}: {err}", stored.leaf_index))?;
            replay.record(&record, message_of(stored).as_ref());
        }
    }
    Ok(replay.finish())
}

/// A record's content, where it is there and can be read.
fn message_of(stored: &StoredRecord) -> Option<Value> {
    match &stored.content.as_ref()?.kept {
        ContentStorage::Hot(_, codec, bytes) => {
            serde_json::from_slice(&unpack(*codec, bytes).ok()?).ok()
        }
        _ => None,
    }
}

/// For people: a line for each finding, then the counts.
fn render(report: &ConformanceReport) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for ConformanceFinding {
        rule,
        severity,
        contract,
        edge,
        message,
        handoffs,
        first_leaf_index,
        ..
    } in &report.findings
    {
        let about = match (contract, edge) {
            (Some(contract), _) => contract.clone(),
            (None, Some([source, target])) => format!("{source} → {target}"),
            (None, None) => String::new(),
        };
        let _ = write!(out, "{severity} {rule}: {about}: {message}");
        let _ = match first_leaf_index {
            Some(leaf) => writeln!(out, " ({handoffs} handoffs, the first is record {leaf})"),
            None => writeln!(out),
        };
    }
    let word = if report.has_errors() { "DOES NOT CONFORM" } else { "conforms" };
    let _ = writeln!(
        out,
        "{word}: {} handoffs in {} records, {} contracts; {} messages held against theirs, {} not seen; {} clauses not asked",
        report.handoffs,
        report.records,
        report.contracts,
        report.messages,
        report.unseen,
        report.unasked,
    );
    out
}
