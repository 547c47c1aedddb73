//! Every answer of the suite is held against the OpenAPI document: the operation tells of its status and media
//! type, and the body is what the schema says. That is more than the document promises to clients: objects have no
//! member that it does not name, and lists of words that are open to clients no word that it does not name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::{PatternOptions, Validator};
use reqwest::Method;
use serde_json::{Map, Value, json};

static DOCUMENT: LazyLock<Document> = LazyLock::new(Document::load);

/// The document, prepared.
struct Document {
    /// Path as segments, and by method what it answers: by status or `default`, by media type, the schema.
    operations: Vec<(Vec<String>, HashMap<Method, Operation>)>,
    components: Value,
    /// Compiled schemas of answers, by their text.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

struct Operation {
    id: String,
    answers: HashMap<String, HashMap<String, Value>>,
}

/// Holds an answer against the document; `method` is none where the caller does not tell it. Paths that the
/// document does not have (pages for people) are left alone.
pub fn check(method: Option<&Method>, path: &str, status: u16, media: &str, text: &str) {
    let document = &*DOCUMENT;
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let found =
        document.operations.iter().filter(|(template, _)| fits(template, &segments)).min_by_key(
            |(template, _)| template.iter().filter(|part| part.starts_with('{')).count(),
        );
    let Some((_, methods)) = found else { return };
    let mut faults = Vec::new();
    for (known, operation) in methods {
        if method.is_none_or(|method| method == known) {
            match document.holds(operation, status, media, text) {
                Ok(()) => return,
                Err(fault) => faults.push(format!("{}: {fault}", operation.id)),
            }
        }
    }
    let excused = faults.is_empty();
    assert!(excused, "not as docs/openapi.json says: {status} {media} {faults:#?}\n{text}");
}

fn fits(template: &[String], segments: &[&str]) -> bool {
    // The last parameter of a tile's path spans segments.
    let spans = template.last().is_some_and(|last| last == "{path}");
    let as_long = template.len() == segments.len() || (spans && segments.len() > template.len());
    let fit = |(part, segment): (&String, &&str)| part.starts_with('{') || part == segment;
    as_long && template.iter().zip(segments).all(fit)
}

impl Document {
    fn load() -> Self {
        let published = handoffd::http::router::openapi().to_pretty_json().unwrap();
        let mut document: Value = serde_json::from_str(&published).unwrap();
        let shared = document["components"]["responses"].clone();
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let segments = path.trim_start_matches('/').split('/').map(str::to_owned).collect();
            let methods = item.as_object().unwrap().iter().map(|(method, operation)| {
                let method = method.to_uppercase().parse().unwrap();
                (method, Operation::of(operation, &shared))
            });
            operations.push((segments, methods.collect()));
        }
        let mut schemas = document["components"]["schemas"].take();
        strict(&mut schemas);
        let components = json!({ "schemas": schemas });
        Self { operations, components, validators: Mutex::default() }
    }

    fn holds(&self, of: &Operation, status: u16, media: &str, text: &str) -> Result<(), String> {
        let told = of.answers.get(&status.to_string());
        // A status that the document does not describe may only be a refusal.
        let told = told.or_else(|| of.answers.get("default").filter(|_| status >= 400));
        let told = told.ok_or("no such status")?;
        if text.is_empty() && told.is_empty() {
            return Ok(());
        }
        let plain = media.split(';').next().unwrap_or_default().trim();
        let schema = told.get(plain).ok_or_else(|| format!("no such media type: {media}"))?;
        if !plain.ends_with("json") {
            return Ok(());
        }
        let Ok(body) = serde_json::from_str(text) else { return Err("no JSON".to_owned()) };
        let faults: Vec<String> = self
            .validator(schema)
            .iter_errors(&body)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    fn validator(&self, schema: &Value) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap();
        let made = validators.entry(schema.to_string()).or_insert_with(|| {
            let mut whole = schema.clone();
            whole["components"] = self.components.clone();
            let made = jsonschema::draft202012::options()
                .offline()
                .with_pattern_options(PatternOptions::regex())
                .should_validate_formats(true)
                .build(&whole);
            Arc::new(made.unwrap())
        });
        Arc::clone(made)
    }
}

impl Operation {
    fn of(operation: &Value, shared: &Value) -> Self {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        let answers = operation["responses"].as_object().unwrap().iter().map(|(status, answer)| {
            let name = answer["$ref"].as_str().map(|name| name.rsplit('/').next().unwrap());
            let answer = name.map_or(answer, |name| &shared[name]);
            let content = answer["content"].as_object().cloned().unwrap_or_default();
            let media = content.into_iter().map(|(media, mut content)| {
                let plain = media.split(';').next().unwrap().to_owned();
                (plain, content["schema"].take())
            });
            (status.clone(), media.collect())
        });
        Self { id, answers: answers.collect() }
    }
}

/// Closes what is open to clients only: members that are not named, words that are not known.
fn strict(schemas: &mut Value) {
    let mut parts = HashSet::new();
    parts_of(schemas, &mut parts);
    for (name, schema) in schemas.as_object_mut().unwrap() {
        let part = parts.contains(&format!("#/components/schemas/{name}"));
        close(schema, part);
    }
}

/// Schemas that others are made of: those stay open.
fn parts_of(schema: &Value, parts: &mut HashSet<String>) {
    match schema {
        Value::Array(all) => all.iter().for_each(|one| parts_of(one, parts)),
        Value::Object(object) => {
            let all = object.get("allOf").and_then(Value::as_array).into_iter().flatten();
            parts.extend(all.filter_map(|one| one["$ref"].as_str().map(str::to_owned)));
            object.values().for_each(|one| parts_of(one, parts));
        }
        _ => {}
    }
}

fn close(schema: &mut Value, part: bool) {
    let Some(object) = schema.as_object_mut() else {
        if let Some(all) = schema.as_array_mut() {
            for one in all.iter_mut() {
                close(one, false);
            }
        }
        return;
    };
    if let Some(Value::Array(choice)) = object.get("anyOf")
        && let [known, any] = choice.as_slice()
        && known.get("enum").is_some()
        && *any == json!({ "type": "string" })
    {
        let known = known.clone();
        object.insert("anyOf".to_owned(), json!([known]));
    }
    if !part && object.contains_key("allOf") {
        object.insert("unevaluatedProperties".to_owned(), json!(false));
    }
    if !part && object.contains_key("properties") && !object.contains_key("additionalProperties") {
        object.insert("additionalProperties".to_owned(), json!(false));
    }
    let combined = object.contains_key("allOf");
    for (name, inner) in object.iter_mut() {
        match name.as_str() {
            "properties" => members(inner),
            "allOf" if combined => {
                inner.as_array_mut().unwrap().iter_mut().for_each(|one| close(one, true));
            }
            "examples" | "default" | "enum" => {}
            _ => close(inner, false),
        }
    }
}

fn members(properties: &mut Value) {
    let all: &mut Map<String, Value> = properties.as_object_mut().unwrap();
    all.values_mut().for_each(|one| close(one, false));
}
