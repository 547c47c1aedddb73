//! Citations open: each section of the specification or of a seed that sources, tests and pages name has its heading in
//! `docs/specification/`, and each requirement's id has its row there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// The headings and rows of `docs/specification/`.
#[derive(Default)]
struct Specification {
    /// `§2.2`, `Seed 000 §6.1`, `Seed 003`.
    headings: BTreeSet<String>,
    /// `A36`, each as often as it has a row.
    rows: Vec<Row>,
}

struct Row {
    id: String,
    state: String,
    place: String,
}

static SPECIFICATION: LazyLock<Specification> = LazyLock::new(|| {
    let section = pattern(r"(?m)^#+ (§\d+(?:\.\d+)*) ");
    let seed = pattern(r"(?m)^#+ (Seed \d{3}(?: §\d+(?:\.\d+)*)?)(?::|$)");
    let row =
        pattern(r#"(?m)^\| <a id="([a-z]\d+)"></a>([A-Z]\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$"#);
    let mut found = Specification::default();
    for entry in std::fs::read_dir(root().join("docs/specification")).expect("a folder") {
        let text = read(&entry.expect("a readable entry").path());
        for heading in section.captures_iter(&text).chain(seed.captures_iter(&text)) {
            assert!(found.headings.insert(heading[1].to_owned()), "{} is there twice", &heading[1]);
        }
        found.rows.extend(row.captures_iter(&text).map(|row| {
            assert_eq!(row[1], row[2].to_lowercase(), "the anchor is the id");
            Row { id: row[2].to_owned(), state: row[3].to_owned(), place: row[4].to_owned() }
        }));
    }
    found
});

/// How works, sections and ids are cited.
struct Patterns {
    /// A citation may go over the end of a comment's line.
    line_end: Regex,
    work: Regex,
    /// The end of a sentence or bracket, or another work that is cited by sections.
    end: Regex,
    section: Regex,
    id: Regex,
    named: Regex,
    bracketed: Regex,
    test: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| Patterns {
    line_end: pattern(r"\s*\n[ \t]*(?://[/!]?|--|#+|\*)?[ \t]*"),
    work: pattern(r"(?i)\b(?:specification|seed (00\d))\b"),
    end: pattern(r"(?i)[;)|]|\. |\bspecification\b|\bseed 00\d|\bRFC \d|\bVersioning\b"),
    section: pattern(r"(?:§|\bsection )(\d+(?:\.\d+)*)"),
    id: pattern(r"[A-EX]\d{1,3}"),
    named: pattern(r"(?i:\b(?:rulings?|requirements?|inventory)) ([A-EX]\d{1,3})\b"),
    bracketed: pattern(r"\(([A-EX]\d{1,3}(?:(?:, | and |–)[A-EX]\d{1,3})*)\)"),
    test: pattern(r"\bfn ([a-ex]\d{1,3})_"),
});

/// Everything that a text cites, as headings and ids.
fn citations(text: &str) -> Vec<String> {
    let Patterns { line_end, work, end, section, id, named, bracketed, test } = &*PATTERNS;
    let joined = line_end.replace_all(text, " ");
    let mut cited = Vec::new();
    for found in work.captures_iter(&joined) {
        let after = &joined[found.get(0).expect("the whole").end()..];
        let after: String = after.chars().take(120).collect();
        let within = end.find(&after).map_or(after.as_str(), |end| &after[..end.start()]);
        let sections = section.captures_iter(within).map(|one| one[1].to_owned());
        match found.get(1) {
            None => cited.extend(sections.map(|one| format!("§{one}"))),
            Some(seed) => {
                let seed = format!("Seed {}", seed.as_str());
                cited.extend(sections.map(|one| format!("{seed} §{one}")));
                cited.push(seed);
            }
        }
    }
    for list in named.captures_iter(&joined).chain(bracketed.captures_iter(&joined)) {
        cited.extend(id.find_iter(&list[1]).map(|one| one.as_str().to_owned()));
    }
    cited.extend(test.captures_iter(&joined).map(|one| one[1].to_uppercase()));
    cited
}

fn is_there(citation: &str) -> bool {
    SPECIFICATION.headings.contains(citation)
        || SPECIFICATION.rows.iter().any(|row| row.id == citation)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let cites = path.extension().is_some_and(|end| end == "rs" || end == "md" || end == "sql");
        if path.is_dir() {
            files(&path, found);
        } else if cites && !path.ends_with("citations.rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_citation_opens() {
    let mut found = ["README.md", "ARCHITECTURE.md"].map(|name| root().join(name)).to_vec();
    for folder in ["src", "crates", "tests", "benches", "migrations", "docs"] {
        files(&root().join(folder), &mut found);
    }
    let mut count = 0;
    let mut faults = Vec::new();
    for path in found {
        for citation in citations(&read(&path)) {
            count += 1;
            if !is_there(&citation) {
                faults.push(format!("{}: {citation} opens nothing", path.display()));
            }
        }
    }
    assert!(count > 150, "{count} citations are found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_requirement_has_one_row_with_its_state_and_place() {
    let ids: Vec<&str> = SPECIFICATION.rows.iter().map(|row| row.id.as_str()).collect();
    let all: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(all.len(), ids.len(), "an id is there twice");
    for (letter, last) in [("A", 119), ("B", 24), ("C", 50), ("D", 13), ("E", 26), ("X", 21)] {
        for number in 1..=last {
            let id = format!("{letter}{number}");
            assert!(all.contains(id.as_str()), "{id} has no row");
        }
    }
    for row in &SPECIFICATION.rows {
        let has_duty = match row.state.as_str() {
            "held" | "part" | "not yet" => true,
            "information" => false,
            other => panic!("{}: `{other}` is not a state", row.id),
        };
        assert!(!has_duty || row.place.contains("]("), "{}: no place is named", row.id);
    }
}

#[test]
fn the_states_are_counted_as_they_are() {
    let page = read(&root().join("docs/specification/requirements.md"));
    for state in ["held", "part", "not yet", "information"] {
        let count = SPECIFICATION.rows.iter().filter(|row| row.state == state).count();
        let line = page.lines().find(|line| line.starts_with(&format!("| {state} |")));
        assert!(
            line.is_some_and(|line| line.ends_with(&format!("| {count} |"))),
            "{state}: {count}"
        );
    }
}

#[test]
fn every_section_is_in_the_table() {
    let table = read(&root().join("docs/specification/README.md"));
    for section in SPECIFICATION.headings.iter().filter(|heading| heading.starts_with('§')) {
        assert!(table.contains(&format!("| {section} |")), "{section} is not in the table");
    }
}

#[test]
fn a_citation_that_opens_nothing_is_found() {
    let text = "/// (specification §2.2 stages 5 and 6,\n/// §99.1; RFC 9110 §15), seed 000 §6.1 and §77. (Ruling X6; A36)\n\
                fn a999_none() {} // (A1, B99)";
    let cited = citations(text);
    let wrong: Vec<&str> = cited.iter().map(String::as_str).filter(|one| !is_there(one)).collect();
    assert_eq!(wrong, ["§99.1", "Seed 000 §77", "B99", "A999"]);
    assert!(cited.iter().any(|one| one == "X6"), "{cited:?}");
}
