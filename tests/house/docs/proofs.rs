//! A statement in the pages that time can make false carries its proof: "not built" names the file that would end it, a
//! measured figure is in a section that names the command or the code behind it.
//!
//! The documentation of 0.3.0 called built parts "not built" and gave a release's size of an earlier build (finding T of 0.3.0).

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

static UNBUILT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b[Nn]ot (?:yet )?built\b|\bNot there yet\b"));

/// The end of a statement that is true until then: a path in this repository, or `-` in a sentence
/// that explains the mark.
static UNTIL: LazyLock<Regex> = LazyLock::new(|| pattern(r"<!-- until: (\S+) -->"));

/// A number with a unit that only a measurement gives.
static FIGURE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d[\d .,]*\s?(?:MB|GB|µs|ms|/s|records/s|% of a core)(?:[^\w]|$)"));

/// A script, a benchmark, a test, a command or a source file: what a reader runs or opens to see the figure again.
static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"scripts/|tests/|benches/|crates/|src/|cargo (?:bench|test)|make \w+|performance\.md|`handoffd |pgbench",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown page that users read, without the changelog, whose statements are about their version.
fn pages() -> Vec<(String, String)> {
    fn walk(folder: &Path, pages: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                walk(&path, pages);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let mut paths = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    walk(&root().join("docs"), &mut paths);
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a readable page");
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            (name, text)
        })
        .collect()
}

/// The lines that call something unbuilt without a mark, or under a mark whose path exists.
fn false_claims(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    text.lines()
        .filter(|line| UNBUILT.is_match(line))
        .filter(|line| {
            UNTIL.captures(line).is_none_or(|until| &until[1] != "-" && exists(&until[1]))
        })
        .map(str::to_owned)
        .collect()
}

/// The headings of the sections that have a measured figure and no source of it.
fn unsourced_figures(text: &str) -> Vec<String> {
    let mut sections: Vec<Vec<&str>> = vec![vec![]];
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if !fenced && line.starts_with('#') {
            sections.push(vec![]);
        }
        sections.last_mut().expect("a section").push(line);
    }
    sections
        .into_iter()
        .filter(|lines| {
            let section = lines.join("\n");
            FIGURE.is_match(&section) && !SOURCE.is_match(&section)
        })
        .map(|lines| lines.first().copied().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_page_calls_nothing_unbuilt_that_is_there() {
    for (page, text) in pages() {
        let wrong = false_claims(&text, |path| root().join(path).exists());
        assert!(
            wrong.is_empty(),
            "{page}: each of these lines needs `<!-- until: PATH -->`, whose path is not there: {wrong:#?}"
        );
    }
}

#[test]
fn a_measured_figure_names_its_source() {
    const MEASURED: [&str; 8] = [
        "README.md",
        "docs/performance.md",
        "docs/drill.md",
        "docs/scale.md",
        "docs/safety.md",
        "docs/reliability.md",
        "docs/context.md",
        "docs/decisions/",
    ];
    for (page, text) in pages() {
        if MEASURED.iter().any(|measured| page.starts_with(measured)) {
            let wrong = unsourced_figures(&text);
            assert!(
                wrong.is_empty(),
                "{page}: these sections give a figure without its source: {wrong:?}"
            );
        }
    }
}

#[test]
fn a_false_claim_and_a_bare_figure_are_found() {
    let built = |path: &str| path == "src/console";
    assert_eq!(false_claims("Not built: Kafka.", built).len(), 1);
    assert_eq!(
        false_claims("Not there yet: a console. <!-- until: src/console -->", built).len(),
        1
    );
    assert!(false_claims("Not built: Kafka. <!-- until: src/kafka.rs -->", built).is_empty());
    assert_eq!(unsourced_figures("## Size\n\nA release is 72 MB.\n"), ["## Size"]);
    assert!(unsourced_figures("## Size\n\n`scripts/release`: a release is 42 MB.\n").is_empty());
}
