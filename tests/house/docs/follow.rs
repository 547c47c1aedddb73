//! The suite follows every command, query, metric, setting and link of the README, docs and runbooks: the program's own parser
//! reads commands (and the suite runs harmless ones), a running broker answers queries of the OpenAPI document, metrics and
//! settings exist, links lead to a page. A page that names something that is not there fails, with the place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use regex::Regex;
use serde_json::Value;

mod names;

use names::{unknown_metrics, unknown_settings};

/// A page, and what of it is prose, inline code and fenced code.
struct Page {
    name: String,
    prose: String,
    spans: Vec<String>,
    fences: Vec<Fence>,
}

struct Fence {
    language: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// The README of each crate, docs and runbooks, and the pages for contributors. The change log describes the past.
fn pages() -> Vec<Page> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found: Vec<PathBuf> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "src/README.md",
        "crates/domain/README.md",
        "crates/evidence/README.md",
        "crates/gate/README.md",
        "crates/store/README.md",
        "crates/broker/README.md",
        "crates/transports/README.md",
        "crates/verify/README.md",
        "crates/certify/README.md",
    ]
    .map(|name| root().join(name))
    .into();
    below(&root().join("docs"), &mut found);
    found.sort();
    assert!(found.len() > 60, "the documentation has pages");
    let name = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
    found.iter().map(|path| page(&name(path), &read(path))).collect()
}

fn page(name: &str, text: &str) -> Page {
    let mut page =
        Page { name: name.to_owned(), prose: String::new(), spans: Vec::new(), fences: Vec::new() };
    let mut fence: Option<Fence> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), &mut fence) {
            (Some(_), Some(_)) => page.fences.extend(fence.take()),
            (Some(language), None) => {
                fence = Some(Fence { language: language.trim().to_owned(), text: String::new() });
            }
            (None, Some(fence)) => fence.text.extend([line, "\n"]),
            // Four spaces begin code, too.
            (None, None)
                if line.starts_with("    ") && !line.trim_start().starts_with(['-', '*', '|']) =>
            {
                page.fences
                    .push(Fence { language: "sh".to_owned(), text: format!("{}\n", line.trim()) });
            }
            (None, None) => page.prose.extend([line, "\n"]),
        }
    }
    // A span may go over the end of a line.
    page.spans = SPAN.captures_iter(&page.prose).map(|found| found[1].replace('\n', " ")).collect();
    page
}

static SPAN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([^`]+)`").expect("a pattern"));

/// Fails with all that was found, and each with its page.
fn none(faults: &[String], what: &str) {
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

// --- links --------------------------------------------------------------------------------

/// As code forges make an anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = Regex::new(r"\[([^\]]*)\]\([^)]*\)")
        .expect("a pattern")
        .replace_all(heading, "$1")
        .to_lowercase();
    text.trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn broken_links(page: &Page) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    let outside = Regex::new(r"^[a-z]+:").expect("a pattern");
    let here = root().join(&page.name);
    let mut faults = Vec::new();
    for found in link.captures_iter(&page.prose) {
        let target = &found[1];
        if outside.is_match(target) {
            continue;
        }
        let (file, part) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() {
            here.clone()
        } else {
            here.parent().expect("a folder").join(file)
        };
        if !path.exists() {
            faults.push(format!("{}: {target} leads nowhere", page.name));
        } else if !part.is_empty() && path.extension().is_some_and(|extension| extension == "md") {
            let there = self::page("", &read(&path));
            let headings = there.prose.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
            let named = there.prose.contains(&format!("<a id=\"{part}\"></a>"));
            if !named && !anchors.any(|one| one == part) {
                faults.push(format!("{}: {target}: no such heading", page.name));
            }
        }
    }
    faults
}

#[test]
fn f4_5_every_link_and_anchor_leads_somewhere() {
    let faults: Vec<_> = pages().iter().flat_map(broken_links).collect();
    none(&faults, "links");
}

#[test]
fn f4_5_every_document_that_the_sources_name_is_there() {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                files(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let document = Regex::new(r"\bdocs/[A-Za-z0-9_/-]+\.(?:md|json)\b").expect("a pattern");
    let mut found =
        ["docker-compose.yml", "Dockerfile", "Makefile"].map(|name| root().join(name)).to_vec();
    for folder in
        ["src", "crates", "tests", "config", "migrations", "schemas", "scripts", "benches"]
    {
        files(&root().join(folder), &mut found);
    }
    let mut faults = Vec::new();
    for path in found.iter().filter(|path| !path.ends_with("follow.rs")) {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        for named in document.find_iter(&text) {
            if !root().join(named.as_str()).exists() {
                faults.push(format!("{}: {} is not there", path.display(), named.as_str()));
            }
        }
    }
    none(&faults, "documents");
}

// --- commands -----------------------------------------------------------------------------

/// The words of a shell line, without quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            _ => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// The commands of a fence: one for each line and each part of a pipe, continued lines joined, comments gone.
fn shell(text: &str) -> Vec<Vec<String>> {
    let comment = Regex::new(r"(^|\s)#.*$").expect("a pattern");
    let parts = Regex::new(r"\|\||&&|;|\||\$\(").expect("a pattern");
    let assignment = Regex::new(r"^[A-Z_][A-Z0-9_]*=").expect("a pattern");
    let joined = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in joined.lines() {
        let line = comment.replace(line, "");
        for part in parts.split(&line) {
            let mut words = words(part.trim_start_matches("$ ").trim_end_matches(')'));
            while words.first().is_some_and(|word| assignment.is_match(word) || word == "export") {
                words.remove(0);
            }
            words.truncate(
                words
                    .iter()
                    .position(|word| matches!(word.as_str(), ">" | ">>" | "<" | "&"))
                    .unwrap_or(words.len()),
            );
            words.retain(|word| !word.starts_with("2>"));
            if !words.is_empty() {
                commands.push(words);
            }
        }
    }
    commands
}

/// The words after the program's name, where a command is the program's.
fn own(words: &[String]) -> Option<Vec<String>> {
    let program = words.first()?;
    if program == "handoffd" || program.ends_with("/handoffd") {
        return Some(words[1..].to_vec());
    }
    let is_run = words.len() > 1 && program == "cargo" && words[1] == "run";
    let after = words.iter().position(|word| word == "--")?;
    is_run.then(|| words[after + 1..].to_vec())
}

/// Tells whether a word names a value that the reader puts in: `FILE`, `T`, `"$TASK"`, `…`, `<id>`.
fn is_placeholder(word: &str) -> bool {
    word.contains(['$', '…', '<', '{']) || word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// The fault in a command's words. `shown`: it is a command in full; else required arguments may be missing.
fn misparsed(given: &[String], shown: bool) -> Option<String> {
    let one_of = |word: &String| word.split('|').next().unwrap_or_default().to_owned();
    let plain: Vec<String> = given
        .iter()
        .map(|word| word.trim_matches(['[', ']', '…', ',', '.']).to_owned())
        .map(|word| if word.is_empty() { "X".to_owned() } else { word })
        .map(|word| if shown { word } else { one_of(&word) })
        .collect();
    let err = handoffd::cli::command()
        .try_get_matches_from(std::iter::once("handoffd".to_owned()).chain(plain.clone()))
        .err()?;
    match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::WrongNumberOfValues
        // Optional words that are shown together need not go together.
        | ErrorKind::ArgumentConflict
            if !shown =>
        {
            None
        }
        ErrorKind::InvalidSubcommand if plain.first().is_some_and(|word| word == "help") => None,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation
            if plain.iter().any(|word| is_placeholder(word)) =>
        {
            None
        }
        _ => Some(err.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// Every command of ours on a page, and whether it is there in full.
fn commands(page: &Page) -> Vec<(Vec<String>, bool)> {
    let fenced = page
        .fences
        .iter()
        .filter(|fence| ["sh", "bash", "console", ""].contains(&fence.language.as_str()))
        .flat_map(|fence| shell(&fence.text))
        .filter_map(|words| Some((own(&words)?, true)));
    let named = page
        .spans
        .iter()
        .flat_map(|span| shell(&span.replace("\\|", "|").replace(" | ", "\n")))
        .filter_map(|words| Some((own(&words)?, false)));
    fenced.chain(named).collect()
}

fn misparsed_commands(page: &Page) -> Vec<String> {
    commands(page)
        .into_iter()
        .filter_map(|(words, shown)| {
            let why = misparsed(&words, shown)?;
            Some(format!("{}: handoffd {}: {why}", page.name, words.join(" ")))
        })
        .collect()
}

#[test]
fn f4_5_every_command_that_is_shown_parses() {
    let pages = pages();
    let count: usize = pages.iter().map(|page| commands(page).len()).sum();
    assert!(count > 150, "{count} commands are found");
    let faults: Vec<_> = pages.iter().flat_map(misparsed_commands).collect();
    none(&faults, "commands");
}

/// The texts in which the broker proposes commands to an operator.
const REMEDIES: [&str; 3] = ["attention.rs", "attention/noticed.rs", "why.rs"];

#[test]
fn every_command_that_a_remedy_proposes_parses_in_full() {
    let proposed = Regex::new(r#""handoffd ([^"]+)""#).unwrap();
    let inserted = Regex::new(r"\{option\}|\{\w+\}").unwrap();
    let fault = |text: &str| {
        let words: Vec<String> = inserted
            .replace_all(text, |found: &regex::Captures| match &found[0] {
                "{option}" => String::new(),
                "{window}" => "day".to_owned(),
                _ => "6e1f0c39-3f4c-4a8e-9a53-0c4f2b9d7c10".to_owned(),
            })
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Some(format!("handoffd {text}: {}", misparsed(&words, true)?))
    };
    let texts = REMEDIES.map(|name| read(&root().join("crates/domain/src").join(name)));
    let all: Vec<&str> = texts
        .iter()
        .flat_map(|text| proposed.captures_iter(text))
        .map(|found| found.get(1).map_or("", |one| one.as_str()))
        .collect();
    assert!(all.len() > 20, "{} commands are found", all.len());
    let faults: Vec<_> = all.into_iter().filter_map(fault).collect();
    none(&faults, "commands of remedies");
}

/// Commands that read no more than files of the repository, and write to standard output alone.
const HARMLESS: [&str; 5] = ["openapi", "completions", "lint", "validate", "scan"];

#[test]
fn f4_5_commands_that_are_harmless_run_as_they_are_shown() {
    let mut ran = BTreeSet::new();
    for page in pages() {
        for (words, shown) in commands(&page) {
            let files = words.iter().filter(|word| word.contains('/'));
            let there =
                files.clone().count() > 0 && files.clone().all(|file| root().join(file).exists());
            let alone =
                ["openapi", "completions"].contains(&words.first().map_or("", String::as_str));
            let harmless = words.first().is_some_and(|word| HARMLESS.contains(&word.as_str()));
            if !shown || !harmless || !(there || alone) || !ran.insert(words.clone()) {
                continue;
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
            command.args(&words).current_dir(root()).env_remove("HANDOFFD_WRITE_DOCS");
            let done = command.output().expect("it runs");
            // 1 is an answer: a finding.
            assert!(
                matches!(done.status.code(), Some(0 | 1)),
                "{}: {words:?}: {done:?}",
                page.name
            );
        }
    }
    assert!(ran.len() >= 2, "{ran:?}");
}

/// Scripts, `make` targets, tests and benchmarks that a page names.
fn missing_doors(page: &Page) -> Vec<String> {
    let makefile = read(&root().join("Makefile"));
    let targets: BTreeSet<&str> =
        makefile.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    let manifest = ["Cargo.toml", "crates/gate/Cargo.toml", "crates/store/Cargo.toml"];
    let manifest = manifest.map(|path| read(&root().join(path))).concat();
    let mut faults = Vec::new();
    let mut miss = |what: String| faults.push(format!("{}: {what}", page.name));
    let fenced = page.fences.iter().flat_map(|fence| shell(&fence.text));
    let spans = page.spans.iter().flat_map(|span| shell(span));
    for words in fenced.chain(spans) {
        if words[0].starts_with("scripts/") && !root().join(&words[0]).exists() {
            miss(format!("no {}", words[0]));
        }
        if words[0] == "make"
            && words.get(1).is_some_and(|target| !targets.contains(target.as_str()))
        {
            miss(format!("make has no {}", words[1]));
        }
        for pair in words.windows(2) {
            let name = pair[1].trim_matches(['…', ',']);
            if name.is_empty() || is_placeholder(name) {
                continue;
            }
            let test = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")];
            if pair[0] == "--test" && !test.iter().any(|file| root().join(file).exists()) {
                miss(format!("no test {name}"));
            }
            if pair[0] == "--bench" && !manifest.contains(&format!("name = \"{name}\"")) {
                miss(format!("no benchmark {name}"));
            }
        }
    }
    faults
}

#[test]
fn f4_5_scripts_targets_tests_and_benchmarks_are_there() {
    let faults: Vec<_> = pages().iter().flat_map(missing_doors).collect();
    none(&faults, "doors");
}

// --- queries ------------------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Query {
    method: String,
    path: String,
    /// Names and values; a value may be empty, or stand for something else.
    parameters: Vec<(String, String)>,
}

static API: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(&read(&root().join("docs/openapi.json")))
        .expect("docs/openapi.json is JSON")
});

fn queries(page: &Page) -> Vec<Query> {
    let named = Regex::new(r"\b(GET|POST|PUT|PATCH|DELETE) (/[^\s`,;)\\]*)").expect("a pattern");
    let fenced = page.fences.iter().map(|fence| fence.text.as_str());
    let texts = page.spans.iter().map(String::as_str).chain(fenced);
    let mut found: Vec<Query> = texts
        .flat_map(|text| named.captures_iter(text))
        .map(|found| query(&found[1], &found[2]))
        .collect();
    let curls = page.fences.iter().flat_map(|fence| shell(&fence.text));
    found.extend(curls.filter(|words| words[0] == "curl").filter_map(|words| curl(&words)));
    found
}

fn query(method: &str, target: &str) -> Query {
    let (path, rest) = target.split_once('?').unwrap_or((target, ""));
    let pairs = rest.split('&').filter(|pair| !pair.is_empty());
    let parameters = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    Query {
        method: method.to_lowercase(),
        path: path.trim_end_matches(['.', ':', '…']).to_owned(),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

/// The request of a `curl` line.
fn curl(words: &[String]) -> Option<Query> {
    let address =
        Regex::new(r"^(?:https?://[^/]+|\$\{?[A-Z]+\}?|\$[A-Z]+)(/.*)?$").expect("a pattern");
    let target = words
        .iter()
        .skip(1)
        .find_map(|word| Some(address.captures(word)?.get(1)?.as_str().to_owned()))?;
    let said = words.windows(2).find(|pair| ["-X", "--request"].contains(&pair[0].as_str()));
    let sends = words
        .iter()
        .any(|word| ["-d", "--data", "--json", "--data-binary"].contains(&word.as_str()));
    let method = said.map_or(if sends { "POST" } else { "GET" }, |pair| pair[1].as_str());
    Some(query(method, &target))
}

fn operation(query: &Query) -> Option<&'static Value> {
    let paths = API["paths"].as_object().expect("paths");
    paths
        .iter()
        .filter(|(template, _)| fits(template, &query.path))
        .find_map(|(_, item)| item.get(&query.method))
}

fn fits(template: &str, path: &str) -> bool {
    let (parts, asked): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    parts.len() == asked.len()
        && parts.iter().zip(&asked).all(|(part, asked)| part.starts_with('{') || part == asked)
}

/// Routes of doors with paths of the broker's own making, which are not in the document.
static ADAPTERS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let route = Regex::new(r#""(/adapters/[^"]+)""#).expect("a pattern");
    let doors = std::fs::read_dir(root().join("src/doors")).expect("a readable folder");
    let rooms = doors.map(|entry| entry.expect("a readable entry").path().join("mod.rs"));
    let sources = rooms.filter(|path| path.exists()).map(|path| read(&path));
    sources
        .flat_map(|text| {
            route.captures_iter(&text).map(|found| found[1].to_owned()).collect::<Vec<_>>()
        })
        .collect()
});

/// Paths that are not in the document: what it is itself served by, and pages for browsers.
const PAGES: [&str; 5] = ["/metrics", "/livez", "/readyz", "/docs", "/openapi.json"];

fn unknown_queries(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for query in queries(page) {
        if PAGES.contains(&query.path.as_str()) || query.path == "/" || query.path.contains("…") {
            continue;
        }
        let shown = format!("{}: {} {}", page.name, query.method.to_uppercase(), query.path);
        if query.path.starts_with("/adapters/") {
            if !ADAPTERS.iter().any(|template| fits(template, &query.path)) {
                faults.push(format!("{shown} is not a route of a door"));
            }
            continue;
        }
        let Some(operation) = operation(&query) else {
            faults.push(format!("{shown} is not in the OpenAPI document"));
            continue;
        };
        let known: BTreeSet<&str> = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| one["in"] == "query")
            .filter_map(|one| one["name"].as_str())
            .collect();
        for (name, _) in query.parameters.iter().filter(|(name, _)| !known.contains(name.as_str()))
        {
            faults.push(format!("{shown}: no parameter {name}"));
        }
    }
    faults
}

#[test]
fn f4_5_every_query_that_is_shown_is_in_the_openapi_document() {
    let pages = pages();
    let count: usize = pages.iter().map(|page| queries(page).len()).sum();
    assert!(count > 80, "{count} queries are found");
    let faults: Vec<_> = pages.iter().flat_map(unknown_queries).collect();
    none(&faults, "queries");
}

/// The address of a query with a value in each parameter; `None` if the test knows no value for one of them.
fn asked(query: &Query) -> Option<String> {
    const ID: &str = "0190c2a4-0000-4000-8000-000000000001";
    let path: Vec<&str> = query
        .path
        .split('/')
        .map(|part| {
            if part.starts_with('{') || is_placeholder(part) && !part.is_empty() {
                ID
            } else {
                part
            }
        })
        .collect();
    let mut address = path.join("/");
    for (place, (name, value)) in query.parameters.iter().enumerate() {
        let value = match (name.as_str(), value.as_str()) {
            ("pointer", "…") => "/currentState",
            ("capability", "…") => "search",
            (_, "") => return None,
            (_, value) if value.contains(['…', '$', '{']) => return None,
            // One of several.
            (_, value) => value.split('|').next().unwrap_or(value),
        };
        let _ = write!(address, "{}{name}={value}", if place == 0 { '?' } else { '&' });
    }
    Some(address)
}

/// Asks a broker for each; returns what it does not understand.
async fn misunderstood(queries: impl Iterator<Item = (String, Query)>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = "a-key-for-the-documents-test";
    let settings = [
        ("HANDOFFD_SERVER__DATA_DIR", folder.path().to_str().expect("a path")),
        ("HANDOFFD_LISTEN", "127.0.0.1:0"),
        ("HANDOFFD_ADMIN_KEY", key),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = handoffd::config::Config::load(None, settings).expect("settings");
    let broker = handoffd::app::start(config).await.expect("a broker");
    #[expect(
        clippy::disallowed_methods,
        reason = "the broker under test is asked, and no other service"
    )]
    let client = reqwest::Client::new();
    let mut faults = Vec::new();
    for (page, query) in queries {
        let Some(address) = asked(&query) else { continue };
        // Places in a log that is longer than this one.
        if query.path.starts_with("/audit/proofs") {
            continue;
        }
        // The test does not send requests that stream or wait.
        if address.contains("wait=")
            || query.path.ends_with("/stream")
            || query.path.ends_with("/events") && query.parameters.is_empty()
        {
            continue;
        }
        let url = format!("http://{}{address}", broker.address);
        let answer = client.get(url).bearer_auth(key).send().await.expect("an answer");
        if matches!(answer.status().as_u16(), 400 | 405 | 406 | 422) {
            let status = answer.status();
            let why: Value = answer.json().await.unwrap_or_default();
            faults.push(format!("{page}: GET {address}: {status}: {}", why["detail"]));
        }
    }
    broker.stop().await;
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn f4_5_a_broker_understands_every_query_that_reads() {
    let shown: BTreeMap<String, (String, Query)> = pages()
        .iter()
        .flat_map(|page| queries(page).into_iter().map(|query| (page.name.clone(), query)))
        .filter(|(_, query)| query.method == "get" && !query.parameters.is_empty())
        .map(|(page, query)| (format!("{query:?}"), (page, query)))
        .collect();
    assert!(shown.len() >= 8, "{shown:?}");
    none(&misunderstood(shown.into_values()).await, "queries");
}

// --- that these can fail ------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn f4_5_what_was_wrong_is_found() {
    let page = page(
        "docs/wrong.md",
        "Check `metrics.listen` and `HANDOFFD_LEDGER__BATHC`. See [it](decisions/0011-a-separate-audit-database.md), \
         [there](stores.md#no-such-heading), `handoffd verfy`, `handoffd verify --no-such`, `GET /tasks?status=PENDING`, \
         `GET /tasks?state=RUNNING`, `GET /task`, `sum(rate(handoff_rejection_total[5m]))`, `make dril`, `scripts/none`.\n\
         ```sh\nhandoffd key create --role nobody | cat\ncurl -X PUT http://127.0.0.1:8080/handoffs\ncargo test --test none\n```\n\
         ```toml\n[retention]\nhot_day = 3\n```\n",
    );
    assert_eq!(broken_links(&page).len(), 2, "{:?}", broken_links(&page));
    assert_eq!(misparsed_commands(&page).len(), 3, "{:?}", misparsed_commands(&page));
    assert_eq!(missing_doors(&page).len(), 3, "{:?}", missing_doors(&page));
    assert_eq!(unknown_queries(&page).len(), 3, "{:?}", unknown_queries(&page));
    assert_eq!(unknown_metrics(&page).len(), 1, "{:?}", unknown_metrics(&page));
    assert_eq!(unknown_settings(&page).len(), 3, "{:?}", unknown_settings(&page));
    let shown = queries(&page).into_iter().filter(|query| query.parameters.len() == 1);
    let faults = misunderstood(shown.map(|query| (page.name.clone(), query))).await;
    assert!(faults.iter().any(|fault| fault.contains("/tasks?status=PENDING")), "{faults:?}");
}
