//! The shape that the sources move to: typed replies, short handlers, one reader of roles, no circle of files.
//!
//! Each constant is the number of places that are left. A test fails when there are more, and when there are fewer than the
//! constant says, so that the figure only falls. `HANDOFFD_LIST_SHAPE=1` lists the places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Callers that match on the reply of a command and have an arm for the reply of another command.
const MISMATCHES: usize = 0;

/// Functions of a route with more than [`LONGEST`] lines.
const LONG_HANDLERS: usize = 0;

/// The lines that the function of a route may have, from its signature to its closing brace.
const LONGEST: usize = 40;

/// Lines that read a caller's role, outside of the files that answer for it.
const ROLES: usize = 0;

/// The files that answer for a caller's role: the reader, the extractors, and the login, which writes it into a session.
const READ_ROLES: [&str; 3] = [
    "crates/broker/src/reader.rs",
    "src/http/auth.rs",
    "crates/broker/src/console_sessions/mod.rs",
];

/// Files of doors that name the ledger's commands. A file that makes a command decides: it has a use case in it.
const USE_CASES: usize = 0;

/// Lines of doors that run the safety scan.
const SCANS: usize = 0;

/// The folders of doors: each translates a request into a use case of the broker, and the answer back.
const DOORS: [&str; 3] = ["src/http", "src/doors", "src/console"];

/// The files that bring messages of queues to the broker.
const QUEUES: [&str; 2] = ["src/doors/queues.rs", "src/app/transports.rs"];

/// The folders whose files may not import each other in a circle, and the files that do.
const CIRCLES: [(&str, usize); 5] = [
    ("crates/broker/src/ledger", 0),
    ("crates/store/src/store", 1),
    ("crates/store/src/store/sqlite", 0),
    ("crates/store/src/store/postgres", 0),
    ("crates/store/src/store/tables", 0),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust sources below a folder, without those of unit tests, in the order of their paths.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// A source without its comments and its unit tests; each line keeps its number.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source");
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines =
        text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn place(path: &Path, line: usize) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    format!("{}:{line}", path.display())
}

/// The lines with one of some texts, in the sources of some folders.
fn lines_with(folders: &[&str], texts: &[&str], except: &[&str]) -> Vec<String> {
    let mut places = Vec::new();
    for path in folders.iter().flat_map(|folder| sources(&root().join(folder))) {
        if except.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        for (index, line) in code(&path).lines().enumerate() {
            if texts.iter().any(|text| line.contains(text)) {
                places.push(place(&path, index + 1));
            }
        }
    }
    places
}

#[track_caller]
fn hold(subject: &str, places: &[String], figure: usize) {
    if std::env::var_os("HANDOFFD_LIST_SHAPE").is_some() {
        println!("{subject}: {}\n  {}", places.len(), places.join("\n  "));
    }
    let places_now = places.len();
    assert!(
        places_now <= figure,
        "{subject}: {places_now}, and tests/house/shape.rs allows {figure}:\n  {}",
        places.join("\n  ")
    );
    assert!(
        places_now == figure,
        "{subject}: {places_now}. Lower the figure {figure} in tests/house/shape.rs"
    );
}

#[test]
fn no_caller_gains_an_arm_for_the_reply_of_another_command() {
    let arms = lines_with(
        &["crates/broker/src", "src"],
        &["Problem::unexpected(", "unexpected reply"],
        &["src/http/problem.rs"],
    );
    hold("arms for another command's reply", &arms, MISMATCHES);
}

#[test]
fn one_reader_answers_for_roles() {
    let roles = ["principal.role", "caller.role", "visitor.role"];
    let reads = lines_with(&["src", "crates/broker/src"], &roles, &READ_ROLES);
    hold("reads of a caller's role", &reads, ROLES);
}

#[test]
fn doors_gain_no_use_case() {
    let mut files = Vec::new();
    for path in DOORS.iter().flat_map(|folder| sources(&root().join(folder))) {
        let code = code(&path);
        if let Some(line) = code.lines().position(|line| line.contains("ledger::commands")) {
            files.push(place(&path, line + 1));
        }
    }
    hold("files of doors that make commands", &files, USE_CASES);
    let scan = ["scanner.report", "policies.part", "PolicyContext"];
    hold("lines of doors that scan", &lines_with(&DOORS, &scan, &[]), SCANS);
}

#[test]
fn a_queue_brings_its_messages_to_the_broker_and_not_to_http() {
    for file in QUEUES {
        let code = code(&root().join(file));
        let names_http =
            code.lines().position(|line| names_below(line, "crate::").contains(&"http"));
        assert_eq!(names_http, None, "{file}: a queue's message takes a use case of the broker");
    }
}

/// The functions of routes in a source, with their first line and the number of their lines.
fn handlers(code: &str) -> Vec<(usize, usize)> {
    let mut handlers = Vec::new();
    let mut is_route = false;
    let mut start = None;
    for (index, line) in code.lines().enumerate() {
        is_route |= line.starts_with("#[utoipa::path(");
        if is_route && line.contains("fn ") && !line.starts_with(' ') {
            (start, is_route) = (Some(index + 1), false);
        }
        if line == "}"
            && let Some(first) = start.take()
        {
            handlers.push((first, index + 2 - first));
        }
    }
    handlers
}

#[test]
fn handlers_are_short() {
    let mut long = Vec::new();
    for path in sources(&root().join("src/http")) {
        for (first, lines) in handlers(&code(&path)) {
            if lines > LONGEST {
                long.push(format!("{} has {lines} lines", place(&path, first)));
            }
        }
    }
    hold("handlers of more than 40 lines", &long, LONG_HANDLERS);
}

/// The names directly below a path's prefix: `a` and `b` of `super::a::C` and `super::{a::C, b}`.
fn names_below<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let is_longer =
            code[..at].ends_with(|char: char| char == ':' || char == '_' || char.is_alphanumeric());
        if is_longer {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(word(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, char) in group.char_indices() {
            if begins && !char.is_whitespace() {
                names.push(word(&group[at..]));
                begins = false;
            }
            match char {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                _ => {}
            }
        }
    }
    names
}

fn word(text: &str) -> &str {
    let end = text.find(|char: char| char != '_' && !char.is_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

/// The files of a folder that reach themselves through imports of their siblings. An import through the folder's `mod.rs`
/// does not count.
fn in_circles(folder: &str) -> Vec<String> {
    let modules = folder.split_once("/src/").map_or("", |(_, path)| path).replace('/', "::");
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let files = sources(&root().join(folder));
    let is_sibling = |path: &&PathBuf| path.parent() == Some(&root().join(folder));
    for path in files.iter().filter(is_sibling).filter(|path| !path.ends_with("mod.rs")) {
        let code = code(path);
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let mut names = names_below(&code, "super::");
        names.extend(names_below(&code, &format!("crate::{modules}::")));
        imports.insert(name.to_owned(), names.into_iter().map(str::to_owned).collect());
    }
    circular(&imports)
}

/// The names that reach themselves.
fn circular(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reaches_itself = |name: &&String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![*name];
        while let Some(file) = next.pop() {
            for other in imports.get(file).into_iter().flatten() {
                if imports.contains_key(other) && reached.insert(other) {
                    next.push(other);
                }
            }
        }
        reached.contains(name)
    };
    let has_others = |name: &&String| reaches_itself(name);
    imports.keys().filter(has_others).cloned().collect()
}

#[test]
fn files_of_the_ledger_and_the_store_gain_no_circle() {
    for (folder, figure) in CIRCLES {
        hold(&format!("files in circles of {folder}"), &in_circles(folder), figure);
    }
}

#[test]
fn the_counters_count() {
    assert_eq!(
        names_below("use super::{a::{B, c}, d};\nlet x = super::e::f(); my_super::g", "super::"),
        ["a", "d", "e"]
    );
    let edge = |from: &str, to: &[&str]| {
        (from.to_owned(), to.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>())
    };
    let imports = BTreeMap::from([edge("a", &["b", "Type"]), edge("b", &["a"]), edge("c", &["a"])]);
    assert_eq!(circular(&imports), ["a", "b"]);
    let source = "#[utoipa::path(\n    get,\n)]\nasync fn one() {\n    two();\n}\nfn two() {\n}\n";
    assert_eq!(handlers(source), [(4, 3)]);
}
