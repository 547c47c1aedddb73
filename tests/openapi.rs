//! The published document is the one in the repository, and it is whole.

use std::path::Path;

fn committed() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    std::fs::read_to_string(path).expect("docs/openapi.json")
}

#[test]
fn the_committed_document_is_what_the_code_publishes() {
    let published = handoffd::http::router::openapi().to_pretty_json().expect("serialisable");
    assert!(
        committed().trim() == published.trim(),
        "docs/openapi.json has drifted: run `cargo run -- openapi > docs/openapi.json`"
    );
}

#[test]
fn every_operation_has_a_name_a_summary_and_its_refusals() {
    let document: serde_json::Value = serde_json::from_str(&committed()).expect("JSON");
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut names = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place = format!("{method} {path}");
            let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
            assert!(!name.is_empty() && names.insert(name), "{place}: operationId");
            assert!(operation["summary"].is_string(), "{place}: summary");
            let keys = operation["security"].as_array().cloned().unwrap_or_default();
            if keys.iter().any(|one| one.as_object().is_some_and(|schemes| !schemes.is_empty())) {
                assert!(operation["responses"].get("401").is_some(), "{place}: 401");
            }
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            if parameters.iter().any(|one| one["in"] == "query") {
                assert!(operation["responses"].get("400").is_some(), "{place}: 400");
            }
        }
    }
}
