//! The pages that the broker's answers point to are there, and show what the broker says.

use std::{collections::BTreeSet, path::PathBuf};

use handoffd_domain::failure::Code;
use handoffd_domain::warning::WarningCode;
use serde_json::Value;

#[path = "../outside/list.rs"]
mod outside;

mod citations;
mod follow;
mod proofs;

const SECTIONS: [&str; 3] = ["## What it means", "## What the sender can do", "## Example"];

/// RFC 9457, and what the specification (§2.4) adds to it.
const MEMBERS: [&str; 10] = [
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "reason",
    "failures",
    "requestId",
    "error",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/errors")
}

fn page(code: Code) -> String {
    let path = folder().join(format!("{code}.md"));
    std::fs::read_to_string(&path)
        .unwrap_or_else(|fault| panic!("{code} needs a page, {}: {fault}", path.display()))
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let codes: BTreeSet<String> = Code::ALL.iter().map(ToString::to_string).collect();
    let pages: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("docs/errors is there")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .filter(|stem| stem != "README")
        .collect();
    assert_eq!(pages, codes, "left: docs/errors/*.md; right: the registry of codes");
}

/// A test of the API changes all columns but these.
#[test]
fn each_column_outside_has_its_reason() {
    let list = outside::list();
    assert!(list.iter().any(|one| one.has("pulse")), "the list is read");
    for outside::Outside { table, why, .. } in list {
        assert!(why.len() > 5, "{table}: a reason");
    }
}

#[test]
fn every_warning_has_its_row() {
    let path = folder().with_file_name("warnings.md");
    let text = std::fs::read_to_string(path).expect("docs/warnings.md is there");
    let rows: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(code, _)| code)
        .filter(|code| code.chars().all(|sign| sign.is_ascii_uppercase() || sign == '_'))
        .collect();
    let codes: BTreeSet<&str> = WarningCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(rows, codes, "left: docs/warnings.md; right: the registry of warnings");
}

#[test]
fn every_page_has_its_sections_in_order() {
    for code in Code::ALL {
        let text = page(code);
        let title = text.lines().next().unwrap_or_default();
        assert!(title.starts_with(&format!("# {code}")), "{code}: the title is `{title}`");
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, SECTIONS, "{code}: its sections");
    }
}

#[test]
fn every_example_is_a_problem_of_its_code() {
    for code in Code::ALL {
        let text = page(code);
        let examples: Vec<&str> = text
            .split("```json\n")
            .skip(1)
            .filter_map(|rest| rest.split_once("```").map(|(example, _)| example))
            .collect();
        assert!(!examples.is_empty(), "{code}: no example");
        for example in examples {
            let problem: Value = serde_json::from_str(example)
                .unwrap_or_else(|fault| panic!("{code}: the example is not JSON: {fault}"));
            let members: BTreeSet<&str> =
                problem.as_object().expect("an object").keys().map(String::as_str).collect();
            assert_eq!(members, BTreeSet::from(MEMBERS), "{code}: the example's members");
            assert_eq!(problem["code"], code.as_str());
            assert_eq!(problem["reason"], code.as_str());
            assert_eq!(problem["type"], format!("/docs/errors/{code}"));
            assert_eq!(problem["error"]["code"], code.as_str());
            assert_eq!(problem["error"]["status"], problem["status"], "{code}");
            assert_eq!(problem["error"]["message"], problem["detail"], "{code}");
            let status = problem["status"].as_u64().expect("a status is a number").to_string();
            let heading = text.lines().find(|line| line.starts_with("Status: "));
            let heading = heading.unwrap_or_else(|| panic!("{code}: no `Status:` line"));
            assert!(heading.contains(&status), "{code}: {status} is not in `{heading}`");
            for failure in problem["failures"].as_array().expect("failures is a list") {
                let known = failure["code"].as_str().and_then(Code::parse);
                assert!(known.is_some(), "{code}: {failure}");
                serde_json::from_value::<handoffd_domain::failure::Failure>(failure.clone())
                    .unwrap_or_else(|fault| panic!("{code}: {failure} is not a failure: {fault}"));
            }
        }
    }
}

#[test]
fn the_index_lists_every_code() {
    let index = std::fs::read_to_string(folder().join("README.md")).expect("an index");
    for code in Code::ALL {
        assert!(index.contains(&format!("[{code}]({code}.md)")), "{code} is not in the index");
    }
}
