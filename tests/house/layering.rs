//! Imports point down only.
//!
//! Cargo keeps the crates apart: domain, evidence and gate know neither sqlx, tokio nor axum, and none knows one above it. Within a
//! crate, and for the doors, the tables below rule. Reads all sources, finds every path that starts at the crate root (`crate::x`, also in groups
//! and through `super::super`), and fails on an edge that the tables below do not let through.
//! The tables are the rule. A new room needs a line here and a row in the README of its crate.
//!
//! Comments, strings and code under `#[cfg(test)]` do not count: a doc link may point up, and a
//! unit test may use whatever it needs.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// A room: a module directly below the crate root. The modules of a crate of [`PURE`] are one room, which has the crate's name.
struct Room {
    name: &'static str,
    /// It may import from rooms of a lower rank; never from another room of the same rank.
    rank: u8,
    /// If given, only these rooms, whatever their rank.
    only: Option<&'static [&'static str]>,
    why: &'static str,
}

const fn room(name: &'static str, rank: u8, why: &'static str) -> Room {
    Room { name, rank, only: None, why }
}

const fn narrow(
    name: &'static str,
    rank: u8,
    only: &'static [&'static str],
    why: &'static str,
) -> Room {
    Room { name, rank, only: Some(only), why }
}

const ROOMS: &[Room] = &[
    narrow("domain", 0, &[], "plain data and total functions; all others speak in its terms"),
    narrow("fault", 0, &[], "steps at which a test ends the process, wherever they are needed"),
    narrow("clock", 1, &["domain"], "time, ids and randomness: all that is not repeatable"),
    narrow(
        "config",
        3,
        &["domain", "vault"],
        "settings are read once, and know none of their users",
    ),
    narrow(
        "evidence",
        1,
        &["domain"],
        "the verifier recomputes from bytes alone, sharing no state (nor a clock) with the writer",
    ),
    narrow(
        "contract",
        1,
        &["domain"],
        "a contract's text to its rules and findings: pure, and used by gate, linter and API alike",
    ),
    narrow(
        "context",
        1,
        &["domain"],
        "a message against a window of tokens: pure, and quick enough for the gate",
    ),
    narrow(
        "relevance",
        1,
        &["domain"],
        "the agents that fit a text, from what is registered of them alone: pure",
    ),
    narrow("account", 1, &["domain"], "what a task cost, from records alone: pure"),
    room("costs", 5, "what many tasks cost: pure, and read from the records"),
    room("attention", 6, "all that waits in a tenant: pure, and read from the store"),
    room("why", 5, "why a task does not go on: pure, and read from the store"),
    narrow(
        "vault",
        2,
        &["domain", "clock"],
        "secrets are sealed and opened here, and nowhere kept",
    ),
    narrow(
        "gate",
        2,
        &["domain", "contract", "context"],
        "each stage is pure: same message, same answer",
    ),
    narrow(
        "prompt",
        3,
        &["domain", "gate"],
        "a message as one user turn, from the message alone: pure",
    ),
    narrow(
        "sw4rm",
        3,
        &["domain", "gate"],
        "SW4RM's request, context and words: pure, for its door and for deliveries in its form",
    ),
    narrow("blame", 1, &["domain"], "who wrote a value, from a task's messages alone: pure"),
    narrow("report", 1, &["domain"], "a trace as one page, from the trace's JSON alone: pure"),
    narrow("web_keys", 1, &[], "keys that others publish, from their JSON alone: pure"),
    narrow("metrics", 2, &["domain"], "anyone may count, so counting may know hardly anyone"),
    narrow("telemetry", 2, &["domain"], "set up before anything else exists"),
    narrow("rotation", 0, &[], "queues served in turn, for submissions and for deliveries: pure"),
    narrow("lifecycle", 4, &["clock", "config"], "stopping must not depend on what is stopped"),
    room("store", 2, "the narrow waist: the databases, and nothing of why something is written"),
    room("directory", 3, "keys and agents as looked up for each request, over the store"),
    narrow(
        "reader",
        4,
        &["domain", "evidence", "directory", "store"],
        "who may see: each use case and each door asks it, and it asks the caller's role",
    ),
    room("tree", 4, "proofs and receipts, from the tiles that the store keeps"),
    narrow(
        "archive",
        4,
        &["domain", "fault", "clock", "evidence", "config", "metrics", "store"],
        "the cold tier: moves contents between the store and an object store, and reads them back",
    ),
    room(
        "audit",
        5,
        "the verifier's reading side: it takes a log out of the store, and trusts none of it",
    ),
    room("feed", 4, "events as they are told to the outside, over the store"),
    room("trace", 5, "a task's trace as one stream, and its evidence recomputed on the way"),
    room(
        "administration",
        6,
        "changes of agents, keys, caps, contracts, schemas and subscriptions: checked, then a command to the ledger",
    ),
    room("dead_letters", 6, "decisions of people on dead letters, one or many, through intake"),
    room("inbox", 6, "claims of pull receivers, each made ready and leased by the ledger"),
    room(
        "bundle",
        6,
        "the regulator's bundle and its offline verifier: they share a form and hash functions",
    ),
    narrow(
        "claim_check",
        3,
        &["domain", "vault"],
        "a signed link to a body: dispatch makes it, http opens it",
    ),
    narrow(
        "receivers",
        3,
        &["domain", "store"],
        "what is noticed of receivers: ledger, dispatch and http note it, a task writes it",
    ),
    narrow(
        "judged",
        4,
        &["domain", "evidence", "store"],
        "what a message's records say of its safety: http shows it, dispatch tells an agent of it",
    ),
    narrow(
        "early_replies",
        4,
        &["domain", "store"],
        "a reply on its way to the attempt that waits for it: http offers it, dispatch takes it",
    ),
    narrow(
        "transport",
        3,
        &["domain", "vault", "store"],
        "the contract with a transport: an attempt, its outcomes, and who takes what comes in",
    ),
    narrow(
        "egress",
        4,
        &["domain", "transport"],
        "the guard of every call to the outside, and the client that asks it",
    ),
    room("console_sessions", 5, "logins of people by a key, over the store and the directory"),
    room("ledger", 4, "the only write path: it knows the store, and no transport"),
    room("intake", 5, "from a sender's bytes through the gate to a command"),
    room("dispatch", 6, "sends what is committed; its outcomes go back as commands to the ledger"),
    narrow(
        "descriptions",
        5,
        &["domain", "transport"],
        "the settings of each transport as data, for the command line too",
    ),
    narrow("connections", 5, &["transport"], "open connections, shared by equal settings"),
    narrow("exchange", 5, &["egress", "transport"], "one exchange with a server that speaks HTTP"),
    narrow(
        "left_out",
        5,
        &["domain", "config", "transport"],
        "the modes that a build leaves out, and the settings that need one",
    ),
    narrow("inbound", 5, &["transport"], "messages that a server sends, handed to a sink in order"),
    narrow("text", 5, &["domain", "transport"], "bodies on transports that carry text: pure"),
    narrow(
        "servers",
        6,
        &["domain", "egress", "transport", "descriptions"],
        "addresses of queues under the egress rules, and TLS to them",
    ),
    narrow("redis", 7, QUEUE, "delivery by Redis Streams"),
    narrow("nats", 7, QUEUE, "delivery by NATS JetStream"),
    narrow("amqp", 7, QUEUE, "delivery by AMQP 0-9-1"),
    narrow("sqs", 7, QUEUE, "delivery by Amazon SQS"),
    narrow("temporal", 7, QUEUE, "delivery by signals to Temporal workflows"),
    narrow(
        "a2a",
        7,
        &[
            "domain",
            "clock",
            "fault",
            "vault",
            "gate",
            "prompt",
            "store",
            "judged",
            "web_keys",
            "egress",
            "transport",
            "descriptions",
        ],
        "the client of remote A2A agents: it shows the safety records of a message, which it reads",
    ),
    room(
        "states",
        6,
        "rows against the states that the log commits to, while a broker serves: over audit and ledger",
    ),
    room("brokers", 5, "who else lives, and what the silent ones held"),
    room(
        "erasure",
        5,
        "a person's data, from the request to the certificate: commands and clean files",
    ),
    room("recovery", 5, "the sweeper: what timed out becomes a command"),
    narrow(
        "compress",
        5,
        &[
            "domain",
            "fault",
            "clock",
            "context",
            "directory",
            "evidence",
            "ledger",
            "metrics",
            "store",
        ],
        "a message made smaller before an attempt: a command to the ledger, whatever transport follows",
    ),
    narrow(
        "summarizer",
        7,
        &["domain", "config", "compress", "egress", "gate"],
        "the model that condenses turns, through the egress guard",
    ),
    narrow(
        "classifier",
        7,
        &["domain", "config", "gate", "intake", "egress"],
        "the second opinion: what intake asks for, through the egress guard",
    ),
    narrow(
        "opinions",
        7,
        &[
            "domain", "fault", "clock", "evidence", "archive", "intake", "dispatch", "ledger",
            "store",
        ],
        "second opinions after the commit: a message as it is kept to the classifier, its answer to the ledger",
    ),
    narrow(
        "matcher",
        7,
        &["domain", "config", "directory", "egress"],
        "ranks agents for a task by asking outside, through the egress guard",
    ),
    narrow(
        "issuer",
        7,
        &["domain", "config", "directory", "egress", "store", "web_keys"],
        "callers by tokens of an OAuth issuer, whose keys come through the egress guard",
    ),
    room("retention", 6, "what is past its time, page by page: commands, segments and clean files"),
    room("witness", 7, "publishes tree heads outside the database, and checks it against them"),
    room("http", 7, "extract, call one use case, respond; the ledger is where it meets dispatch"),
    room(
        "simulation",
        7,
        "tests only: the rooms below under a seeded world; nothing of it is shipped",
    ),
    narrow(
        "doors",
        8,
        &[
            "administration",
            "domain",
            "clock",
            "evidence",
            "gate",
            "sw4rm",
            "metrics",
            "directory",
            "reader",
            "config",
            "transport",
            "intake",
            "a2a",
            "http",
            "store",
            "issuer",
            "dispatch",
            "ledger",
        ],
        "other protocols: a mapping to the API's requests and back, over the API's own router",
    ),
    room("console", 9, "pages for people over the API's own router: it asks the API and no store"),
    room("app", 10, "the composition root joins all of it, so nothing below may know it"),
    room("cli", 11, "one file a command, on top of the assembled app"),
    room("lib", 12, "the map: modules only, so that no room hides behind a re-export"),
    narrow("main", 12, &["cli"], "parse, call cli, the only exit"),
];

/// The rooms that a transport may use: the contract with the broker, the egress guard, and what transports share.
const QUEUE: &[&str] = &[
    "domain",
    "gate",
    "config",
    "egress",
    "transport",
    "descriptions",
    "connections",
    "exchange",
    "inbound",
    "text",
    "servers",
];

/// The rooms of `crates/transports`, which `http` never imports.
const TRANSPORTS: &[&str] = &[
    "a2a",
    "amqp",
    "connections",
    "descriptions",
    "exchange",
    "inbound",
    "left_out",
    "nats",
    "redis",
    "servers",
    "sqs",
    "temporal",
    "text",
];

/// The crates whose modules are one room with the crate's name, and the modules of each that are rooms of their own.
const PURE: [(&str, &[&str]); 3] = [
    ("domain", &["attention", "why"]),
    ("evidence", &["account", "blame", "bundle", "costs", "report"]),
    ("gate", &["context", "contract", "prompt", "relevance", "sw4rm"]),
];

/// Edges that no change of ranks may ever open.
const NEVER: &[(&str, &str, &str)] = &[
    ("http", "dispatch", "a handler that sends would bypass the commit"),
    ("http", "egress", "a handler that calls out would bypass the commit"),
    ("dispatch", "http", "deliveries must go on when no sender can submit"),
    ("recovery", "http", "a time-out is a command to the ledger, not a request"),
    ("cli", "doors", "a command calls the use case; requests are the only way through a door"),
    ("cli", "http", "a command calls the use case; requests are the only way through a handler"),
];

// --- reading Rust, as far as paths need it --------------------------------------------------

#[derive(Debug, PartialEq)]
struct Token {
    text: String,
    line: usize,
}

/// Identifiers, `::` and single punctuation marks; comments and literals are left out.
fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < chars.len() {
        let start = i;
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                while i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            '"' => i = string_end(&chars, i + 1),
            // 'x' and '\n' are characters; 'x without a closing quote is a lifetime.
            '\'' if at(i + 1) == '\\' => {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            '\'' if at(i + 2) == '\'' => i += 3,
            ':' if at(i + 1) == ':' => {
                found.push(Token { text: "::".to_owned(), line });
                i += 2;
            }
            c if word(c) => {
                while word(at(i)) {
                    i += 1;
                }
                let text: String = chars[start..i].iter().collect();
                let prefix = matches!(text.as_str(), "r" | "br" | "cr");
                let hashes = chars[i..].iter().take_while(|&&c| c == '#').count();
                if prefix && at(i + hashes) == '"' {
                    i = raw_string_end(&chars, i + hashes + 1, hashes);
                } else if text == "r" && hashes == 1 {
                    i += 1; // r#name: the name comes as the next token
                } else {
                    found.push(Token { text, line });
                }
            }
            c => {
                if !c.is_whitespace() {
                    found.push(Token { text: c.to_string(), line });
                }
                i += 1;
            }
        }
        line += chars[start..i.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    found
}

fn string_end(chars: &[char], mut i: usize) -> usize {
    while let Some(c) = chars.get(i) {
        match c {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    i
}

fn raw_string_end(chars: &[char], mut i: usize, hashes: usize) -> usize {
    while i < chars.len() {
        let close = chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count();
        if chars[i] == '"' && close == hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    i
}

/// Drops each item under `#[cfg(test)]`: to its closing brace, or its semicolon.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let starts_here = |rest: &[Token]| {
        rest.len() >= ATTRIBUTE.len() && rest.iter().zip(ATTRIBUTE).all(|(t, text)| t.text == text)
    };
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while !rest.is_empty() {
        if starts_here(rest) {
            let (mut depth, mut i) = (0_usize, ATTRIBUTE.len());
            while let Some(token) = rest.get(i) {
                i += 1;
                match token.text.as_str() {
                    "{" | "(" | "[" => depth += 1,
                    "}" | ")" | "]" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 && matches!(token.text.as_str(), ";" | "}") {
                    break;
                }
            }
            rest = &rest[i..];
        } else {
            kept.push(Token { text: rest[0].text.clone(), line: rest[0].line });
            rest = &rest[1..];
        }
    }
    kept
}

/// The names under which a path begins at a crate's root.
const ROOTS: [&str; 8] = [
    "crate",
    "handoffd",
    "handoffd_domain",
    "handoffd_evidence",
    "handoffd_gate",
    "handoffd_store",
    "handoffd_broker",
    "handoffd_transports",
];

/// The room of a module at a crate's root.
fn room_of<'a>(home: &str, module: &'a str) -> &'a str {
    match PURE.iter().find(|(name, _)| *name == home) {
        Some((name, rooms)) if !rooms.contains(&module) => name,
        _ => module,
    }
}

/// The rooms that a file of the crate `home` refers to, with the line: `crate::x`, `crate::{x, y::z}`,
/// `super::super::x` where that many steps reach the root, and `handoffd::x`, `handoffd_domain::x` from other crates.
fn root_references(tokens: &[Token], home: &str, depth: usize) -> Vec<(String, usize)> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let continues_a_path = i > 0 && text(i - 1) == "::";
        let mut end = i;
        let mut steps = 0;
        if !continues_a_path && ROOTS.contains(&text(i)) && text(i + 1) == "::" {
            (end, steps) = (i + 2, depth);
        } else if !continues_a_path && text(i) == "super" {
            while text(end) == "super" && text(end + 1) == "::" {
                (end, steps) = (end + 2, steps + 1);
            }
        }
        if end > i && steps >= depth {
            let home = text(i).strip_prefix("handoffd_").unwrap_or(home);
            let mut nesting = 0_usize;
            let mut expects_name = true;
            loop {
                match text(end) {
                    "{" => nesting += 1,
                    "}" => nesting = nesting.saturating_sub(1),
                    "," if nesting == 1 => expects_name = true,
                    "" => break,
                    name if expects_name && nesting <= 1 => {
                        if name != "self" {
                            found.push((room_of(home, name).to_owned(), tokens[end].line));
                        }
                        expects_name = false;
                    }
                    _ => {}
                }
                end += 1;
                if nesting == 0 {
                    break;
                }
            }
        }
        i = end.max(i + 1);
    }
    found
}

// --- judging --------------------------------------------------------------------------------

/// The faults of one file. `path` is relative to the repository, with `/` between its parts.
fn faults(path: &str, source: &str) -> Vec<String> {
    let (home, module) = path.rsplit_once("src/").unwrap_or(("", path));
    let home = home.trim_start_matches("crates/").trim_end_matches('/');
    let module: Vec<&str> = module
        .trim_end_matches(".rs")
        .split('/')
        .filter(|part| !matches!(*part, "mod" | "lib"))
        .collect();
    if module.last() == Some(&"tests") {
        return Vec::new();
    }
    let name = room_of(home, module.first().copied().unwrap_or("lib"));
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        return vec![format!(
            "{path}:1: `{name}` has no rank; give it a line in tests/house/layering.rs, and a row in the README of its crate"
        )];
    };
    let tokens = without_tests(&tokens(source));
    let mut faults = Vec::new();
    let depth = if matches!(name, "lib" | "main") { 0 } else { module.len() };
    for (target, line) in root_references(&tokens, home, depth) {
        if target == room.name {
            continue;
        }
        let place = format!("{path}:{line}: `{name}` must not use `{target}`");
        let Some(other) = ROOMS.iter().find(|room| room.name == target) else {
            let lib = ROOMS.iter().find(|room| room.name == "lib").map_or("", |lib| lib.why);
            faults.push(format!("{place} of the crate root: lib.rs is {lib}"));
            continue;
        };
        if let Some((_, _, why)) =
            NEVER.iter().find(|(from, to, _)| (*from, *to) == (name, other.name))
        {
            faults.push(format!("{place}: {why}"));
        } else if name == "http" && TRANSPORTS.contains(&other.name) {
            faults.push(format!("{place}: http and the transports meet in the ledger"));
        } else if room.only.is_some_and(|only| !only.contains(&other.name)) {
            let only = room.only.unwrap_or_default().join(", ");
            let only = if only.is_empty() { "no other room" } else { &only };
            faults.push(format!("{place}: it may use {only} ({})", room.why));
        } else if other.rank >= room.rank {
            faults.push(format!(
                "{place}: imports point down, and {} (rank {}) is not below {} (rank {}): {}",
                other.name, other.rank, room.name, room.rank, other.why
            ));
        }
    }
    faults
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable source folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn imports_point_down_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "crates/domain/src", "crates/evidence/src", "crates/gate/src"] {
        rust_files(&root.join(folder), &mut files);
    }
    for folder in ["crates/store/src", "crates/broker/src", "crates/transports/src"] {
        rust_files(&root.join(folder), &mut files);
    }
    files.sort();
    let mut report = String::new();
    for file in &files {
        let source = std::fs::read_to_string(file).expect("a readable source file");
        let path = file.strip_prefix(root).expect("below the repository").components();
        let path: Vec<_> = path.map(|part| part.as_os_str().to_string_lossy()).collect();
        for fault in faults(&path.join("/"), &source) {
            writeln!(report, "{fault}").expect("writing to a string");
        }
    }
    assert!(report.is_empty(), "imports point up:\n{report}");
}

#[test]
fn no_rank_is_above_what_it_may_use() {
    for room in ROOMS {
        for other in room.only.unwrap_or_default() {
            let other = ROOMS.iter().find(|candidate| candidate.name == *other);
            let other = other.expect("`only` names rooms that exist");
            assert!(
                other.rank < room.rank,
                "{} may use {}, which is not below",
                room.name,
                other.name
            );
        }
    }
    assert!(TRANSPORTS.iter().all(|name| ROOMS.iter().any(|room| room.name == *name)));
    for (from, to, _) in NEVER {
        assert!([from, to].iter().all(|name| ROOMS.iter().any(|room| room.name == **name)));
    }
}

/// The checker itself: what it must find, and what it must let pass.
#[test]
fn the_checker_sees_what_it_should() {
    let caught = [
        ("crates/domain/src/task.rs", "use handoffd_store::store::Store;"),
        ("crates/domain/src/task.rs", "fn f() { crate::why::waits() }"),
        ("crates/domain/src/agent/spec.rs", "use super::super::why::Wait;"),
        ("crates/domain/src/task.rs", "use crate::{\n    ids::{Id, store},\n    why::Wait,\n};"),
        ("crates/domain/src/lib.rs", "use handoffd_evidence::record::Record;"),
        ("crates/evidence/src/verify/mod.rs", "use handoffd_store::clock::Clock;"),
        ("crates/evidence/src/record.rs", "use crate::bundle::read;"),
        ("crates/gate/src/safety/rules.rs", "use handoffd_broker::config::Config;"),
        ("crates/gate/src/contract/read.rs", "use crate::schema::Schemas;"),
        ("crates/gate/src/contract/read.rs", "use crate::Gate;"),
        ("crates/gate/src/lib.rs", "use handoffd_evidence::record::Record;"),
        ("crates/broker/src/config/mod.rs", "use handoffd_gate::Gate;"),
        ("src/http/tasks.rs", "use crate::dispatch::Dispatcher;"),
        ("src/http/tasks.rs", "use handoffd_broker::dispatch::Dispatcher;"),
        ("src/http/tasks.rs", "use handoffd_broker::egress::GuardedClient;"),
        ("src/http/tasks.rs", "use handoffd_transports::redis::RedisTransport;"),
        ("crates/transports/src/redis/server.rs", "use handoffd_broker::ledger::Ledger;"),
        ("crates/transports/src/redis/server.rs", "use super::super::nats::NatsTransport;"),
        ("crates/broker/src/dispatch/inbox.rs", "use crate::http::Problem;"),
        ("src/http/tasks.rs", "use crate::app::App;"),
        ("src/cli/export.rs", "use crate::http::bundle::make;"),
        ("src/app.rs", "use crate::cli::Cli;"),
        ("src/app.rs", "use crate::Ledger;"),
        ("src/app.rs", "use crate::*;"),
        ("src/main.rs", "fn main() { handoffd::app::run(); }"),
        ("src/novel.rs", ""),
        ("crates/domain/src/lib.rs", "#[cfg(test)]\nmod tests;\nuse handoffd_store::store::Store;"),
        (
            "crates/domain/src/ids.rs",
            "fn f<'a>(x: &'a str) -> char { '\"' }\nuse crate::why::Wait;",
        ),
        (
            "crates/domain/src/ids.rs",
            "const C: &str = r#\"\"#; use crate::why::Wait; const D: &str = \"\";",
        ),
    ];
    for (path, source) in caught {
        assert_eq!(faults(path, source).len(), 1, "{path}: {source}: {:?}", faults(path, source));
    }
    let let_pass = [
        ("crates/domain/src/task.rs", "use crate::ids::TaskId; use super::message::Message;"),
        ("crates/domain/src/why.rs", "use crate::{ids::TaskId, task::Task};"),
        (
            "crates/domain/src/task.rs",
            "/// See [`handoffd_store::store::Store`].\n// crate::why\nstruct Task;",
        ),
        (
            "crates/domain/src/task.rs",
            "/* /* crate::why */ use sqlx::Row; */ const S: &str = \"crate::why\";",
        ),
        (
            "crates/domain/src/task.rs",
            "#[cfg(test)]\nmod tests { use crate::why::Wait; #[tokio::test] fn f() {} }",
        ),
        ("crates/gate/src/tests.rs", "use handoffd_store::store::Store;"),
        (
            "crates/gate/src/safety/rules.rs",
            "use super::super::verdict; use crate::contract::Contract; use handoffd_domain::json;",
        ),
        ("crates/gate/src/prompt/result.rs", "use crate::{Gate, schema::older::MessageForm};"),
        ("crates/evidence/src/bundle/walk.rs", "use crate::{account::Account, merkle::Hash};"),
        (
            "crates/broker/src/ledger/mod.rs",
            "use handoffd_domain::failure::{Code, dispatch}; use handoffd_store::store::{self, Store};",
        ),
        ("crates/broker/src/ledger/mod.rs", "use handoffd_gate::{self, Gate};"),
        ("crates/store/src/store/sqlite/mod.rs", "use sqlx::Row; use crate::clock::Clock;"),
        (
            "crates/broker/src/dispatch/webhook.rs",
            "use http::StatusCode; use crate::ledger::Ledger;",
        ),
        (
            "crates/transports/src/redis/server.rs",
            "use ::redis::Cmd; use super::super::servers; use crate::inbound::drain;",
        ),
        ("src/main.rs", "use handoffd::cli; fn main() { handoffd::cli::run(); }"),
        ("src/lib.rs", "pub mod domain;\npub mod store;"),
    ];
    for (path, source) in let_pass {
        assert_eq!(faults(path, source), Vec::<String>::new(), "{path}: {source}");
    }
}

#[test]
fn a_fault_names_its_line_and_the_reason() {
    let found = faults(
        "src/http/tasks.rs",
        "\n\nuse handoffd_broker::{\n  directory,\n  dispatch::Dispatcher,\n};\n",
    );
    assert_eq!(
        found,
        [
            "src/http/tasks.rs:5: `http` must not use `dispatch`: a handler that sends would bypass the commit"
        ]
    );
}
