//! Plain words: the marks of dialect in comments, string literals, names of locals and pages, part by part.
//!
//! A mark is a phrase that a reader with English as a third language has to read twice (`MARKS`, `SUBJECTS`, `LOCALS`). The
//! counts are in `prose.txt`, and they may only fall. `HANDOFFD_WRITE_DOCS=1 cargo test --test house prose` writes lower figures
//! there and never higher ones; `HANDOFFD_LIST_MARKS=src` lists each place of one part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// A part of the repository, and the folders and files that it has.
const PARTS: [(&str, &[&str]); 11] = [
    ("domain", &["crates/domain/src"]),
    ("evidence", &["crates/evidence/src"]),
    ("gate", &["crates/gate/src"]),
    ("store", &["crates/store/src", "crates/store/benches"]),
    ("broker", &["crates/broker/src", "crates/transports/src"]),
    ("verify", &["crates/verify/src"]),
    ("certify", &["crates/certify/src"]),
    ("src", &["src"]),
    ("tests", &["tests", "benches"]),
    ("sdk", &["sdk/python/src", "sdk/python/tools", "sdk/typescript/src"]),
    ("docs", &[".", "docs", "crates", "src", "config/default.toml"]),
];

/// Written by a program from texts that are counted where they are kept.
const GENERATED: [&str; 6] = [
    "docs/cli.md",
    "docs/metrics.md",
    "sdk/python/src/handoffd/models.py",
    "sdk/python/src/handoffd/_sync",
    "sdk/python/src/handoffd/_async/services.py",
    "sdk/typescript/src/generated",
];

/// This file names the marks.
const HERE: &str = "tests/house/prose.rs";

/// Words of others, which stay as they are, with their source.
const FIXED: [(&str, &str); 8] = [
    ("the answer is no", "exit code 1 of every command, docs/cli.md"),
    ("What it means", "a section of each error page and runbook, tests/house/docs.rs"),
    ("Agent busy", "the Jazz pattern's answer of an agent without room, docs/doors/jazz.md"),
    (
        "The target agent is not on the source agent's handoff_targets allowlist.",
        "a sentence of the interface, docs/routing.md",
    ),
    ("whoever it claims to speak for", "the frame of a prompt as it was evaluated, docs/prompt.md"),
    ("stands for the character with that", "the frame of a prompt, docs/prompt.md"),
    ("nobody you work for gave it", "the frame of a prompt, docs/prompt.md"),
    ("Please handle this task yourself", "the Jazz pattern's sentence, docs/doors/jazz.md"),
];

/// Phrases, wherever they are.
static MARKS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:whoever|nobody|somebody|is no|stands|by now|what becomes of|of what)\b")
});

/// Standard English that has a mark's words.
const PLAIN: [&str; 3] = [" longer", " more than", " fewer than"];

/// The start of a sentence that has a clause as its subject or its condition.
static SUBJECTS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?m)(?:\A\s*|[.!?:;]["')*]*\s+|^\s*\n\s*|^\s*(?:[-*>]+|\d+\.)\s+|\|\s+)\**(?:What|Where)\s"#,
    )
});

/// Locals named by a participle that says nothing of the value.
static LOCALS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"\blet\s[\w\s,()&]*\b(?:said|told|asked|found|kept|known|own)\b[\w\s,()&:<>]*=")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// The three counts of a part. A page has prose alone.
const KINDS: [&str; 3] = ["prose", "strings", "locals"];

/// One file's texts by kind, each with the line on which it begins.
type Texts = [Vec<(usize, String)>; 3];

/// How many marks of a kind, among how many words, and their places.
#[derive(Default)]
struct Count {
    words: usize,
    places: Vec<String>,
}

// --- reading ---------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq)]
enum Language {
    Rust,
    Python,
    TypeScript,
    Toml,
}

/// Separates a source file into comments, string literals and the code that is left. Lines of comments that follow one another are
/// one text.
fn source(language: Language, text: &str) -> Texts {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let hashes = matches!(language, Language::Python | Language::Toml);
    let mut texts = Texts::default();
    let mut code = String::with_capacity(text.len());
    let (mut i, mut line, mut last_comment) = (0, 1, 0);
    while i < bytes.len() {
        let (start, first_line) = (i, line);
        match at(i) {
            b'/' if !hashes && at(i + 1) == b'/' => {
                i = end_of_line(bytes, i);
                comment(&mut texts[0], &text[start..i], line, &mut last_comment);
            }
            b'#' if hashes => {
                i = end_of_line(bytes, i);
                comment(&mut texts[0], &text[start..i], line, &mut last_comment);
            }
            b'/' if !hashes && at(i + 1) == b'*' => {
                i = text[i..].find("*/").map_or(bytes.len(), |end| i + end + 2);
                let inner = text[start..i].lines().map(|one| one.trim().trim_matches(['/', '*']));
                texts[0].push((line, inner.collect::<Vec<_>>().join("\n")));
            }
            b'r' if language == Language::Rust && raw_string(bytes, i).is_some() => {
                i = raw_string(bytes, i).unwrap_or(bytes.len());
                literal(&mut texts[1], &text[start..i], line);
            }
            b'"' | b'\'' if language == Language::Python && bytes[i..].starts_with(&[at(i); 3]) => {
                let quotes = &text[i..i + 3];
                i = text[i + 3..].find(quotes).map_or(bytes.len(), |end| i + end + 6);
                literal(&mut texts[1], &text[start..i], line);
            }
            b'\'' if language == Language::Rust => {
                // A lifetime has no second quote behind its first letter.
                let length = text[i + 1..].chars().next().map_or(0, char::len_utf8);
                i += if at(i + 1) == b'\\' {
                    4 + bytes.iter().skip(i + 3).position(|one| *one == b'\'').unwrap_or(0)
                } else if at(i + 1 + length) == b'\'' {
                    length + 2
                } else {
                    1
                };
            }
            quote @ (b'"' | b'\'' | b'`')
                if quote == b'"'
                    || (quote == b'`' && language == Language::TypeScript)
                    || (quote == b'\'' && language != Language::Rust) =>
            {
                let over_lines = language == Language::Rust || quote == b'`';
                i += 1;
                while i < bytes.len() && at(i) != quote && (over_lines || at(i) != b'\n') {
                    i += if at(i) == b'\\' { 2 } else { 1 };
                }
                i = (i + 1).min(bytes.len());
                while !text.is_char_boundary(i) {
                    i += 1;
                }
                literal(&mut texts[1], &text[start..i], line);
                code.push('"');
            }
            byte => {
                i += 1;
                if byte.is_ascii() {
                    code.push(char::from(byte));
                }
                line += usize::from(byte == b'\n');
                continue;
            }
        }
        i = i.min(bytes.len());
        let newlines = text[start..i].matches('\n').count();
        code.extend(std::iter::repeat_n('\n', newlines));
        line = first_line + newlines;
    }
    texts[2].push((1, code));
    texts
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| from + end)
}

/// The end of a raw string that begins at `from`.
fn raw_string(bytes: &[u8], from: usize) -> Option<usize> {
    if from > 0 && (bytes[from - 1].is_ascii_alphanumeric() || bytes[from - 1] == b'_') {
        return None;
    }
    let hashes = bytes[from + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = from + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let closing = |end: &usize| {
        bytes[*end] == b'"'
            && bytes[end + 1..].iter().take_while(|byte| **byte == b'#').count() >= hashes
    };
    (open + 1..bytes.len()).find(closing).map(|end| end + 1 + hashes)
}

fn comment(texts: &mut Vec<(usize, String)>, text: &str, line: usize, last: &mut usize) {
    let text = text.trim_start_matches(['/', '!', '#']).trim();
    match texts.last_mut() {
        Some((_, block)) if *last + 1 == line => block.extend(["\n", text]),
        _ => texts.push((line, text.to_owned())),
    }
    *last = line;
}

/// A literal without blanks is a name and no prose.
fn literal(texts: &mut Vec<(usize, String)>, text: &str, line: usize) {
    let inner = text.trim_start_matches('r').trim_matches(['#', '"', '\'', '`']);
    if inner.contains(' ') {
        texts.push((line, inner.replace("\\n", "\n").replace("\\\n", "\n")));
    }
}

/// A page without its code.
fn markdown(text: &str) -> Texts {
    let mut prose = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        if !fence && !fenced {
            prose.push_str(line);
        }
        prose.push('\n');
        fenced ^= fence;
    }
    let spans = prose.split('`').enumerate();
    let prose = spans.fold(String::with_capacity(prose.len()), |mut prose, (place, part)| {
        if place % 2 == 0 {
            prose.push_str(part);
        } else {
            prose.push('x');
            prose.extend(part.chars().filter(|c| *c == '\n'));
        }
        prose
    });
    [vec![(1, prose)], Vec::new(), Vec::new()]
}

fn texts(path: &str, text: &str) -> Option<Texts> {
    Some(match path.rsplit('.').next()? {
        "md" => markdown(text),
        "rs" => source(Language::Rust, text),
        "py" => source(Language::Python, text),
        "ts" => source(Language::TypeScript, text),
        "toml" => [source(Language::Toml, text)[0].clone(), Vec::new(), Vec::new()],
        _ => return None,
    })
}

// --- counting --------------------------------------------------------------------------------

/// The marks of a text: each with its place within the text.
fn marks(text: &str, is_code: bool) -> Vec<(usize, String)> {
    if is_code {
        return LOCALS.find_iter(text).map(|one| (one.start(), one.as_str().to_owned())).collect();
    }
    let mut text = text.to_owned();
    for (words, _) in FIXED {
        text = text.replace(words, &" ".repeat(words.len()));
    }
    let phrases = MARKS.find_iter(&text).filter(|one| {
        let rest = &text[one.end()..];
        !PLAIN.iter().any(|plain| rest.starts_with(plain))
    });
    let mut marks: Vec<_> = phrases.map(|one| (one.start(), one.as_str().to_owned())).collect();
    for one in SUBJECTS.find_iter(&text) {
        let rest = &text[one.end()..];
        let end = rest.find(['.', '?', '!', '|']).unwrap_or(rest.len());
        if !rest[end..].starts_with('?') {
            let words = rest[..end].chars().take(30).collect::<String>().replace('\n', " ");
            let word = one.as_str().trim_start_matches(|c: char| !c.is_alphabetic());
            marks.push((one.end() - 1, format!("{word}{words}")));
        }
    }
    marks
}

fn count(name: &str, text: &str, counts: &mut [Count; 3]) {
    let Some(texts) = texts(name, text) else { return };
    for (kind, texts) in texts.into_iter().enumerate() {
        for (line, text) in texts {
            if kind < 2 {
                counts[kind].words += text.split_whitespace().count();
            }
            for (place, mark) in marks(&text, kind == 2) {
                let line = line + text[..place].matches('\n').count();
                counts[kind].places.push(format!("{name}:{line}: {}", mark.trim()));
            }
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a part. Of pages: Markdown alone, those of the root without the folders below it.
fn files(part: &str, place: &Path, found: &mut BTreeSet<PathBuf>) {
    if place.is_file() {
        found.insert(place.to_owned());
        return;
    }
    let end = |path: &Path| path.extension().and_then(|end| end.to_str()).map(str::to_owned);
    for entry in std::fs::read_dir(place).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            if place != root() && place != root().join(".") {
                files(part, &path, found);
            }
        } else if end(&path).is_some_and(|end| (end == "md") == (part == "docs")) {
            found.insert(path);
        }
    }
}

fn counted(part: &str, places: &[&str]) -> [Count; 3] {
    let mut found = BTreeSet::new();
    for place in places {
        files(part, &root().join(place), &mut found);
    }
    let mut counts: [Count; 3] = Default::default();
    for path in found {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if GENERATED.iter().any(|one| name.starts_with(one)) || name == HERE {
            continue;
        }
        if let Ok(text) = std::fs::read_to_string(&path) {
            count(&name, &text, &mut counts);
        }
    }
    counts
}

// --- the ratchet -----------------------------------------------------------------------------

const TABLE: &str = "tests/house/prose.txt";

/// The lines of `prose.txt`: part, kind, marks.
fn table() -> BTreeMap<(String, String), usize> {
    let text = std::fs::read_to_string(root().join(TABLE)).expect("the table is there");
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (part, kind) = (words.next()?, words.next()?);
        Some(((part, kind), words.next()?.parse().expect("a figure")))
    })
    .collect()
}

fn write(rows: &BTreeMap<(String, String), usize>) {
    let path = root().join(TABLE);
    let text = std::fs::read_to_string(&path).expect("the table is there");
    let mut new: String = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .fold(String::new(), |all, line| all + line + "\n");
    for (part, _) in PARTS {
        for kind in KINDS {
            if let Some(marks) = rows.get(&(part.to_owned(), kind.to_owned())) {
                writeln!(new, "{part:<7} {kind:<9}{marks}").expect("writing to a string");
            }
        }
    }
    std::fs::write(path, new).expect("the table can be written");
}

/// So far below its figure a count may be: a change that takes a few marks away need not touch the table.
fn slack(figure: usize) -> usize {
    figure / 50 + 5
}

/// REDESIGN rule 7
#[test]
fn marks_of_dialect_only_become_fewer() {
    let counts = std::thread::scope(|scope| {
        let parts = PARTS.map(|(part, places)| (part, scope.spawn(move || counted(part, places))));
        parts.map(|(part, counts)| (part, counts.join().expect("a count")))
    });
    let listed = std::env::var("HANDOFFD_LIST_MARKS").unwrap_or_default();
    let mut rows = table();
    let mut faults = String::new();
    for (part, counts) in &counts {
        for (kind, count) in KINDS.iter().zip(counts) {
            let marks = count.places.len();
            let Some(figure) = rows.get_mut(&((*part).to_owned(), (*kind).to_owned())) else {
                assert_eq!(marks, 0, "{TABLE} has no line for {part} {kind}");
                continue;
            };
            let rate = marks as f64 * 1000.0 / count.words as f64;
            let rate = if count.words == 0 { String::new() } else { format!("{rate:.1} ‰") };
            println!("{part:<8} {kind:<9}{marks:>5}  {rate}");
            if listed == *part {
                println!("{}", count.places.join("\n"));
            }
            if marks > *figure {
                writeln!(faults, "{part} {kind}: {marks} marks, {TABLE} has {figure}. Reword the new ones; HANDOFFD_LIST_MARKS={part} lists all.")
                    .expect("writing to a string");
            } else if marks + slack(*figure) < *figure {
                writeln!(faults, "{part} {kind}: {marks} marks, {TABLE} still has {figure}. HANDOFFD_WRITE_DOCS=1 writes the lower figure.")
                    .expect("writing to a string");
            }
            *figure = marks.min(*figure);
        }
    }
    if std::env::var_os("HANDOFFD_WRITE_DOCS").is_some() {
        write(&rows);
    } else {
        assert!(faults.is_empty(), "{faults}");
    }
}

/// The longest that the two pages may be which everybody reads from end to end.
const LONGEST: usize = 2500;

#[test]
fn the_map_and_the_change_log_stay_short() {
    for name in ["ARCHITECTURE.md", "CHANGELOG.md"] {
        let words = std::fs::read_to_string(root().join(name)).expect("a page");
        let words = words.split_whitespace().count();
        assert!(words <= LONGEST, "{name} has {words} words, at most {LONGEST}");
    }
}

/// The counter itself.
#[test]
fn marks_are_seen_and_plain_words_are_not() {
    let rust = "// What it says stands here.\nlet found = \"nobody is there\"; // Where is it?\n\
                let c = '\"'; let s = r#\"whoever \"x\"#;\n/// It is no longer there, 'a.\nfn f<'a>() {}";
    let mut counts: [Count; 3] = Default::default();
    count("one.rs", rust, &mut counts);
    let places = counts.map(|count| count.places);
    assert_eq!(places[0], ["one.rs:1: stands", "one.rs:1: What it says stands here"]);
    assert_eq!(places[1], ["one.rs:2: nobody", "one.rs:3: whoever"]);
    assert_eq!(places[2], ["one.rs:2: let found ="]);
    let page =
        "# Page\n\nIt `stands`. Where it is, it\nstands.\n\n```sh\nnobody\n```\n| a | What b |\n";
    let mut counts: [Count; 3] = Default::default();
    count("one.md", page, &mut counts);
    let lines = ["one.md:4: stands", "one.md:3: Where it is, it stands", "one.md:9: What b"];
    assert_eq!(counts[0].places, lines);
    assert_eq!(marks("Agent busy, of what is known", false).len(), 1);
}
