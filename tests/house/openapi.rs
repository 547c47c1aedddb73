//! The published document is the one in the repository, and it is whole.

use std::path::{Path, PathBuf};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json")
}

fn committed() -> String {
    std::fs::read_to_string(path()).expect("docs/openapi.json")
}

#[test]
fn the_committed_document_is_what_the_code_publishes() {
    let published = handoffd::http::router::openapi().to_pretty_json().expect("serialisable");
    if std::env::var_os("HANDOFFD_WRITE_DOCS").is_some() {
        std::fs::write(path(), format!("{published}\n")).expect("a writable document");
    }
    assert!(
        committed().trim() == published.trim(),
        "docs/openapi.json has drifted: HANDOFFD_WRITE_DOCS=1 cargo test --test house openapi"
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
            let keys = operation.get("security").unwrap_or(&document["security"]);
            let keys = keys.as_array().expect("a list");
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

/// Places of schemas below one that have no type.
fn untyped(schema: &serde_json::Value, place: &str, found: &mut Vec<String>) {
    use serde_json::Value;
    match schema {
        Value::Array(all) => all.iter().for_each(|one| untyped(one, place, found)),
        Value::Object(object) => {
            let says = ["properties", "additionalProperties", "allOf", "anyOf", "$ref"];
            if object.get("type").is_some_and(|kind| kind == "object")
                && !says.iter().any(|key| object.contains_key(*key))
            {
                found.push(place.to_owned());
            }
            for (name, one) in object {
                untyped(one, &format!("{place}/{name}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_answer_and_every_body_has_a_schema_of_its_own() {
    let document: serde_json::Value = serde_json::from_str(&committed()).expect("JSON");
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let answers = operation["responses"].as_object().unwrap().iter();
            let answers = answers.filter(|(status, _)| status.starts_with('2'));
            let bodies = answers.map(|(_, answer)| answer).chain(operation.get("requestBody"));
            for (media, content) in bodies.filter_map(|body| body["content"].as_object()).flatten()
            {
                let named = content.pointer("/schema/$ref").is_some();
                assert!(named || !media.ends_with("json"), "{method} {path} {media}");
            }
        }
    }
    untyped(&document["components"]["schemas"], "", &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_two_types_share_a_component() {
    // utoipa takes the last of those that have the same name, and says nothing.
    let mut names = std::collections::BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src"), root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("readable").map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let mut name = None;
            let mut derives = false;
            for line in text.lines().map(str::trim) {
                derives |= line.contains("ToSchema") && !line.starts_with("use ");
                if let Some(given) = line.strip_prefix("#[schema(as = ") {
                    name = given.split([')', ',']).next().map(str::to_owned);
                }
                let item = line.strip_prefix("pub struct ").or(line.strip_prefix("pub enum "));
                if let Some(item) = item {
                    let end = |c: char| !c.is_alphanumeric() && c != '_';
                    let own = item.split(end).next().unwrap_or_default().to_owned();
                    if std::mem::take(&mut derives) {
                        let name = name.take().unwrap_or(own);
                        let other = names.insert(name.clone(), path.clone());
                        assert_eq!(other, None, "{name} is a component twice");
                    }
                    name = None;
                }
            }
        }
    }
}
