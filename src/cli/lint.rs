//! `handoffd lint PATH…`: contracts in files and folders, against a registry or the agents of a running
//! broker; `handoffd lint --broker`: the contracts that a broker holds. Registered payload schemas are looked
//! for in a folder, or asked of the broker.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;

use serde::Deserialize;
use serde_json::Value;

use super::answer::answer;
use super::client::{Client, ClientError, Reach, Request};
use super::plain::plain;
use super::{Exit, Form};
use handoffd_broker::config::Config;
use handoffd_domain::agent::Agent;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::level::Level;
use handoffd_gate::contract::lint::{
    LintContext, LintReport, LintSubject, SchemaFile, Severity, lint, schema_name, schema_path,
};
use handoffd_gate::contract::registry::Registry;
use handoffd_gate::contract::shelf::SchemaName;
use handoffd_gate::contract::{Contract, read as read_contract, report, whole};
use handoffd_store::clock::{Clock, SystemClock};

/// The most files of one run, and folders within folders.
const MAX_FILES: usize = 100_000;
const MAX_DEPTH: usize = 32;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Contracts in YAML or JSON, or folders of them
    #[arg(required_unless_present = "broker", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Agents, permissions and reviewed schemas, in YAML or JSON
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Registered payload schemas, as ID@VERSION.json; unless said, a folder `schemas` beside the contract
    /// or the registry
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
    /// The least level that each contract must reach: L1, L2 or L3; exit 1 where one does not
    #[arg(long, value_name = "LEVEL")]
    level: Option<Level>,
    /// Lint what a running broker holds, against its agents; with PATH, these contracts against its
    /// agents and contracts
    #[arg(long)]
    broker: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Why the lint could not run.
#[derive(Debug)]
enum LintError {
    Files(String),
    Broker(ClientError),
}

impl std::fmt::Display for LintError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Files(why) => f.write_str(why),
            Self::Broker(err) => err.fmt(f),
        }
    }
}

impl LintError {
    /// A no is what a linter says of contracts; whatever kept it from them is another matter.
    const fn exit(&self) -> Exit {
        match self {
            Self::Broker(ClientError::Usage(_)) => Exit::Usage,
            _ => Exit::Unreachable,
        }
    }
}

impl From<String> for LintError {
    fn from(why: String) -> Self {
        Self::Files(why)
    }
}

impl From<ClientError> for LintError {
    fn from(err: ClientError) -> Self {
        Self::Broker(err)
    }
}

/// Lints; prints a report for each contract.
pub(super) async fn run(args: Args, config: Config, form: Form) -> Exit {
    match examine(&args, &config).await {
        Ok(reports) => {
            let below = below(&reports, args.level);
            let bad = below.is_some() || reports.iter().any(LintReport::has_errors);
            let exit = answer(&shown(&reports, form), if bad { Exit::No } else { Exit::Success });
            // Standard output is the report's.
            if let Some(told) = below {
                eprintln!("handoffd: {told}");
            }
            exit
        }
        Err(why) => {
            eprintln!("handoffd: {why}");
            why.exit()
        }
    }
}

/// The contracts that do not reach a level, in a sentence.
fn below(reports: &[LintReport], least: Option<Level>) -> Option<String> {
    let least = least?;
    let names: Vec<&str> = reports
        .iter()
        .filter(|report| report.level < Some(least))
        .map(|report| report.id.as_deref().unwrap_or(&report.file))
        .collect();
    (!names.is_empty()).then(|| format!("below {}: {}", least.as_str(), names.join(", ")))
}

async fn examine(args: &Args, config: &Config) -> Result<Vec<LintReport>, LintError> {
    let registry = args.registry.as_deref().map(read_registry).transpose()?;
    let schemas = SchemaFolders::of(args)?;
    let mut subjects =
        if args.paths.is_empty() { Vec::new() } else { gather(&args.paths, &schemas)? };
    let now = Some(SystemClock::default().now().seconds());
    if !args.broker {
        let around = LintContext { registry: registry.as_ref(), now, ..LintContext::default() };
        return Ok(lint(&subjects, around));
    }
    let client = reach(&args.reach, config)?;
    let mut held = BrokerContracts::ask(&client).await?;
    for subject in subjects.iter_mut().chain(&mut held.contracts) {
        ask_schema(&client, subject).await?;
    }
    let registry = registry.unwrap_or(held.registry);
    let around = LintContext { registry: Some(&registry), now, ..LintContext::default() };
    if subjects.is_empty() {
        return Ok(lint(&held.contracts, around));
    }
    let contracts: Vec<Contract> = held.contracts.iter().filter_map(contract).collect();
    let contracts: Vec<&Contract> = contracts.iter().collect();
    Ok(lint(&subjects, LintContext { in_force: &contracts, versions: &contracts, ..around }))
}

/// The contracts and agents of a broker.
struct BrokerContracts {
    /// Its contracts, each in its highest version.
    contracts: Vec<LintSubject>,
    /// Its agents, as a linter sees them.
    registry: Registry,
}

fn reach(reach: &Reach, config: &Config) -> Result<Client, ClientError> {
    let key = std::env::var("HANDOFFD_API_KEY").ok().filter(|key| !key.is_empty());
    Client::new(reach, key, config)
}

/// Asks a broker for the registered schema that was not found in a file.
async fn ask_schema(client: &Client, subject: &mut LintSubject) -> Result<(), ClientError> {
    if !matches!(subject.schema, SchemaFile::Unchecked(_)) {
        return Ok(());
    }
    let Some(SchemaName { id, version }) = subject.document.as_ref().ok().and_then(schema_name)
    else {
        return Ok(());
    };
    let version = version.to_string();
    subject.schema = match client.call(&Request::get(&["schemas", "payloads", &id, &version])).await
    {
        Ok(shown) => SchemaFile::registered(&shown["schema"])
            .unwrap_or_else(|why| SchemaFile::Unfit(format!("the broker's is none: {why}"))),
        Err(ClientError::Refused(refusal)) if refusal.status == 404 => SchemaFile::Missing,
        Err(err) => return Err(err),
    };
    Ok(())
}

impl BrokerContracts {
    async fn ask(client: &Client) -> Result<Self, ClientError> {
        let agents = client.call(&Request::get(&["agents"])).await?;
        let agents: Vec<Agent> = items(&agents)
            .iter()
            .map(Agent::deserialize)
            .collect::<Result<_, _>>()
            .map_err(|err| {
                ClientError::Unreachable(format!("an agent of this broker cannot be read: {err}"))
            })?;
        let contracts = client.call(&Request::get(&["contracts"])).await?;
        Ok(Self {
            contracts: items(&contracts).iter().map(held).collect(),
            registry: Registry::of(&agents),
        })
    }
}

fn items(page: &Value) -> &[Value] {
    page.get("items").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A contract of a broker, placed in its document as it is printed: indented JSON without the broker's
/// own `meta`.
fn held(shown: &Value) -> LintSubject {
    let mut value = shown.clone();
    if let Some(clauses) = value.as_object_mut() {
        clauses.remove("meta");
    }
    let text = |name: &str| plain(value.get(name).and_then(Value::as_str).unwrap_or("?"));
    let file = format!("contracts/{}@{}", text("id"), text("version"));
    // A contract that the broker took as a compact text may be too large when it is indented.
    let document = Document::parse(&format!("{value:#}"))
        .unwrap_or_else(|_| Document::from_value(value.clone()));
    let schema = match schema_name(&document) {
        Some(_) => SchemaFile::Unchecked("not asked for".to_owned()),
        None => SchemaFile::NotLooked,
    };
    LintSubject { file, document: Ok(document), schema }
}

fn contract(subject: &LintSubject) -> Option<Contract> {
    Some(read_contract(subject.document.as_ref().ok()?).0)
}

/// A payload schema beside the contract's file goes along with it.
pub(in crate::cli) fn with_schema(document: Document, file: &Path) -> Document {
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    whole::with_schema(document, |name| std::fs::read(folder.join(name)).ok())
}

/// The contracts in files and folders; at least one.
pub(super) fn gather(
    paths: &[PathBuf],
    schemas: &SchemaFolders,
) -> Result<Vec<LintSubject>, String> {
    let mut subjects = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut files = Vec::new();
            walk(path, &mut files, MAX_DEPTH)?;
            files.sort();
            for file in files {
                // A folder holds more than contracts: what does not look like one is passed over.
                let subject = subject(&file, schemas)?;
                let wanted = if let Ok(document) = &subject.document {
                    looks_like_a_contract(document)
                } else {
                    let text = read(&file)?;
                    ["source", "target", "recovery"].iter().all(|word| text.contains(word))
                };
                if wanted {
                    subjects.push(subject);
                }
            }
        } else {
            subjects.push(subject(path, schemas)?);
        }
    }
    if subjects.is_empty() {
        return Err("the named files have no contract".to_owned());
    }
    Ok(subjects)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read(path)
        .map_err(|err| format!("{}: {err}", path.display()))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn read_registry(path: &Path) -> Result<Registry, String> {
    let broken = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let document = Document::parse_large(&read(path)?).map_err(|err| broken(&err))?;
    serde_json::from_value(document.value().clone()).map_err(|err| broken(&err))
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>, depth: usize) -> Result<(), String> {
    let entries =
        std::fs::read_dir(folder).map_err(|err| format!("{}: {err}", folder.display()))?;
    for entry in entries {
        let entry = entry.map_err(|err| format!("{}: {err}", folder.display()))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|err| format!("{}: {err}", path.display()))?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if kind.is_dir() && !hidden && depth > 0 {
            walk(&path, files, depth - 1)?;
        } else if !kind.is_dir() && !hidden && is_document(&path) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(format!("{}: more than {MAX_FILES} files", folder.display()));
        }
    }
    Ok(())
}

fn is_document(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| {
        ["yaml", "yml", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// It names an edge, or has at least two of a contract's clauses.
fn looks_like_a_contract(document: &Document) -> bool {
    let has = |name: &str| document.value().get(name).is_some();
    let clauses = ["trigger", "payload", "acceptance_criteria", "recovery", "idempotency"];
    (has("source") && has("target")) || clauses.into_iter().filter(|name| has(name)).count() >= 2
}

/// The folders that are searched for files of registered payload schemas.
#[derive(Debug, Default)]
pub(super) struct SchemaFolders {
    /// Here, and nowhere else.
    named: Option<PathBuf>,
    /// The folder of the registry file.
    registry: Option<PathBuf>,
}

impl SchemaFolders {
    /// The folder of schemas beside contracts and the registry.
    const FOLDER: &str = "schemas";

    fn of(args: &Args) -> Result<Self, String> {
        if let Some(folder) = args.schemas.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("{}: no such folder", folder.display()));
        }
        let registry = args.registry.as_deref().and_then(Path::parent).map(Path::to_owned);
        Ok(Self { named: args.schemas.clone(), registry })
    }

    fn find(&self, name: &SchemaName, contract: &Path) -> Result<SchemaFile, String> {
        let file = format!("{}@{}.json", name.id, name.version);
        let beside = [Some(contract), self.registry.as_deref()].into_iter().flatten();
        let folders: Vec<PathBuf> = self.named.as_ref().map_or_else(
            || beside.map(|folder| folder.join(Self::FOLDER)).collect(),
            |folder| vec![folder.clone()],
        );
        let Some(path) =
            folders.iter().map(|folder| folder.join(&file)).find(|path| path.is_file())
        else {
            return Ok(match &self.named {
                Some(folder) => SchemaFile::Unfit(format!(
                    "the file `{}` does not exist",
                    folder.join(&file).display()
                )),
                None => SchemaFile::Unchecked(format!(
                    "`{}/{file}` does not exist beside the contract or the registry; name a folder with --schemas, or ask a broker with --broker",
                    Self::FOLDER
                )),
            });
        };
        let document = serde_json::from_str(&read(&path)?).map_err(|err| err.to_string());
        Ok(document.and_then(|document| SchemaFile::registered(&document)).unwrap_or_else(|why| {
            SchemaFile::Unfit(format!("`{}` could not be registered: {why}", path.display()))
        }))
    }
}

fn subject(path: &Path, schemas: &SchemaFolders) -> Result<LintSubject, String> {
    let document = Document::parse(&read(path)?);
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let schema = match document.as_ref() {
        Err(_) => SchemaFile::NotLooked,
        Ok(document) => match (schema_path(document), schema_name(document)) {
            (Some(name), _) => match std::fs::read(folder.join(name)) {
                Ok(bytes) => SchemaFile::found(name, &bytes),
                Err(_) => SchemaFile::Missing,
            },
            (None, Some(name)) => schemas.find(&name, folder)?,
            (None, None) => SchemaFile::NotLooked,
        },
    };
    Ok(LintSubject { file: path.display().to_string(), document, schema })
}

fn shown(reports: &[LintReport], form: Form) -> String {
    match form {
        Form::Json => report::json(reports).to_string(),
        Form::Sarif => report::sarif(reports, env!("CARGO_PKG_VERSION")).to_string(),
        Form::Text => render(reports),
    }
}

/// For people: `file:line:column: severity rule: message`, then the level.
fn render(reports: &[LintReport]) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for report in reports {
        for finding in &report.findings {
            let _ = writeln!(
                out,
                "{}:{}:{}: {} {}: {}",
                report.file,
                finding.place.line,
                finding.place.column,
                finding.rule.severity.as_str(),
                finding.rule.name,
                finding.message,
            );
        }
        let id = report.id.as_deref().unwrap_or("?");
        let level = report.level.map_or("below L1", handoffd_gate::contract::level::Level::as_str);
        let next = match report.missing.as_slice() {
            [] => String::new(),
            missing => format!("; missing for the next level: {}", missing.join(", ")),
        };
        let _ = writeln!(out, "{}: {id}: {level}{next}", report.file);
    }
    let count = |severity| {
        reports
            .iter()
            .flat_map(|report| &report.findings)
            .filter(|one| one.rule.severity == severity)
            .count()
    };
    let _ = writeln!(
        out,
        "{} contracts, {} errors, {} warnings",
        reports.len(),
        count(Severity::Error),
        count(Severity::Warning)
    );
    out
}
