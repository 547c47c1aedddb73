//! The OpenAPI document as published: what the handlers state, and what holds for all of them, said once. That is
//! the keys, the answers that any operation may give, the formats of members by their names, and the schemas of
//! messages and events, from the very files that the gate and the feed work with.

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

use super::{examples, once, problem};
use handoffd_broker::feed;
use handoffd_domain::event::EventType;
use handoffd_gate::schema;

#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Published(Value);

impl Published {
    /// The document as indented JSON.
    ///
    /// # Errors
    /// Never: it is JSON already.
    pub fn to_pretty_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.0)
    }
}

/// Members that hold a UUID, wherever they stand.
const UUIDS: &[&str] = &[
    "handoffId",
    "taskId",
    "parentHandoffId",
    "successorId",
    "executionId",
    "subscriptionId",
    "erasureId",
    "escalationId",
    "eventId",
    "sessionId",
    "deadLetterId",
];

/// Members that hold a time and do not end in `At`.
const TIMES: &[&str] =
    &["at", "claimedUntil", "oldValidUntil", "verdictBy", "failingSince", "time"];

/// Components beside whose members there may be others, of anybody's choosing or of other versions; so are all whose
/// name begins with `Record`.
const OPEN: &[&str] = &[
    "TraceRecord",
    "ContractView",
    "CompleteTaskBody",
    "AcceptBody",
    "RejectBody",
    "HeartbeatBody",
    "CompleteBody",
    "FailBody",
    "SaidErrorObject",
    "SaidCost",
];

/// Operations whose answers come from memory or need no store.
const STATIC: &[&str] = &["livez", "metrics"];

/// Makes the published document from the handlers' descriptions.
#[must_use]
pub fn published(stated: &OpenApi) -> Published {
    let mut document = serde_json::to_value(stated).unwrap_or_default();
    let components = &mut document["components"];
    components["responses"] = problem::shared();
    if let Some(schemas) = components["schemas"].as_object_mut() {
        for (name, schema) in schemas.iter_mut() {
            complete(schema);
            let object = schema.as_object_mut().filter(|schema| schema.contains_key("properties"));
            let open = OPEN.contains(&name.as_str())
                || (name.starts_with("Record") && !name.ends_with("View"));
            if let (Some(object), true) = (object, open) {
                object.insert("additionalProperties".to_owned(), json!(true));
            }
        }
        messages(schemas);
        events(schemas);
    }
    if let Some(paths) = document["paths"].as_object_mut() {
        *paths = std::mem::take(paths)
            .into_iter()
            // OpenAPI has no mark for a parameter that spans segments.
            .map(|(path, item)| (path.replace("{*", "{"), item))
            .collect();
        for (path, item) in paths.iter_mut() {
            for (method, one) in item.as_object_mut().into_iter().flatten() {
                if once::takes_key(method, path) {
                    key(one);
                }
                operation(one);
            }
        }
    }
    Published(document)
}

/// Adds the parameter `Idempotency-Key` to an operation that changes something by POST, and what is answered to a repeat.
fn key(operation: &mut Value) {
    let name = "Idempotency-Key";
    if operation["parameters"].is_null() {
        operation["parameters"] = json!([]);
    }
    let Some(parameters) = operation["parameters"].as_array_mut() else { return };
    if !parameters.iter().any(|parameter| parameter["name"] == name) {
        parameters.push(json!({
            "name": name,
            "in": "header",
            "description": "1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day",
            "required": false,
            "schema": { "type": ["string", "null"] },
        }));
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let conflict =
        "The first request under this Idempotency-Key is under way, or its end is not known";
    responses.entry("409").or_insert_with(|| json!({ "description": conflict }));
    let other = "The Idempotency-Key was used for another request";
    responses.entry("422").or_insert_with(|| json!({ "description": other }));
}

/// Adds to an operation what all operations share.
fn operation(operation: &mut Value) {
    complete(&mut operation["responses"]);
    let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let open = operation["security"].as_array().is_some_and(|all| all.iter().all(is_empty));
    if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
        for parameter in parameters {
            let member = parameter["name"].as_str().unwrap_or_default().to_owned();
            format(&member, &mut parameter["schema"]);
        }
    }
    if let Some(body) = operation.pointer_mut("/requestBody/content/application~1json")
        && let Some(examples) = examples::of(&name)
    {
        body["examples"] = examples;
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, response) in responses.iter_mut() {
        let told = response.get("$ref").is_some() || response.get("content").is_some();
        if status.starts_with(['4', '5']) && !told {
            response["content"] = problem::content();
        }
    }
    if !open {
        responses.entry("401").or_insert_with(|| problem::reference("NoKey"));
    }
    if !STATIC.contains(&name.as_str()) {
        responses.entry("503").or_insert_with(|| problem::reference("Away"));
    }
    responses.entry("default").or_insert_with(|| problem::reference("Refused"));
}

fn is_empty(scheme: &Value) -> bool {
    scheme.as_object().is_some_and(Map::is_empty)
}

/// Adds what a schema does not state because its members' names do, there and in all schemas within it.
fn complete(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(complete),
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                for (name, property) in properties {
                    format(name, property);
                }
            }
            open_list(object);
            // An untagged choice: what fits one may fit another too.
            if let Some(choice) = object.remove("oneOf") {
                object.insert("anyOf".to_owned(), choice);
            }
            bytes(object);
            let free = object.get("type").is_some_and(|kind| is_type(kind, "object"))
                && !["properties", "additionalProperties", "allOf", "anyOf", "oneOf"]
                    .iter()
                    .any(|key| object.contains_key(*key));
            if free {
                object.insert("additionalProperties".to_owned(), json!(true));
            }
            object.values_mut().for_each(complete);
        }
        _ => {}
    }
}

/// Whether a schema's `type` is this one, or this one and null.
fn is_type(kind: &Value, name: &str) -> bool {
    match kind {
        Value::String(kind) => kind == name,
        Value::Array(kinds) => kinds.iter().all(|kind| kind == name || kind == "null"),
        _ => false,
    }
}

/// Sets the format that a member's name implies.
fn format(name: &str, property: &mut Value) {
    let Some(property) = property.as_object_mut() else { return };
    let text = property.get("type").is_some_and(|kind| is_type(kind, "string"));
    if !text || property.contains_key("format") || property.contains_key("enum") {
        return;
    }
    let format = if UUIDS.contains(&name) {
        "uuid"
    } else if name.ends_with("At") || TIMES.contains(&name) {
        "date-time"
    } else {
        return;
    };
    property.insert("format".to_owned(), json!(format));
}

/// Lists of words are open: a later version may have more.
fn open_list(schema: &mut Map<String, Value>) {
    if schema.get("type") != Some(&json!("string")) || schema.contains_key("anyOf") {
        return;
    }
    // The inner half of a list that is open already has neither.
    if !schema.contains_key("description") && !schema.contains_key("default") {
        return;
    }
    if let Some(known) = schema.remove("enum") {
        schema.remove("type");
        let known = json!([{ "type": "string", "enum": known }, { "type": "string" }]);
        schema.insert("anyOf".to_owned(), known);
    }
}

/// A body of bytes is text to the document: utoipa tells it as a list of numbers.
fn bytes(media: &mut Map<String, Value>) {
    for (name, media) in media.iter_mut() {
        let binary = name.starts_with("application/")
            && media.pointer("/schema/type") == Some(&json!("array"));
        if binary && !name.contains("json") {
            media["schema"] = json!({ "type": "string", "format": "binary" });
        }
    }
}

/// The schemas of messages: one component a version, and one that is any of them.
fn messages(schemas: &mut Map<String, Value>) {
    let mut versions = Vec::new();
    // The newest first: generators take the first that fits.
    for version in schema::VERSIONS.iter().rev() {
        let name = format!("HandoffMessage{}", version.replace('.', "_"));
        let text = schema::document(version).unwrap_or_default();
        import(schemas, &name, "Message", text);
        versions.push(json!({ "$ref": format!("#/components/schemas/{name}") }));
    }
    let any = json!({
        "title": "Handoff message",
        "description": "A handoff message, in any version of its schema that the broker takes.",
        "anyOf": versions,
    });
    schemas.insert("HandoffMessage".to_owned(), any);
}

/// The schemas of events: one component a type, and one that is any of them in either format.
fn events(schemas: &mut Map<String, Value>) {
    let mut types = Vec::new();
    for kind in EventType::ALL {
        let name: String = kind.as_str().split(['.', '_']).map(capital).collect();
        let name = format!("{name}Event");
        import(schemas, &name, "Event", feed::schema(*kind));
        types.push(json!({ "$ref": format!("#/components/schemas/{name}") }));
    }
    let standard = json!({ "description": "An event in the standard format.", "anyOf": types });
    schemas.insert("StandardEvent".to_owned(), standard);
    let any = json!({
        "description": "An event, in the format that was asked for.",
        "anyOf": [
            { "$ref": "#/components/schemas/StandardEvent" },
            { "$ref": "#/components/schemas/CloudEvent" },
        ],
    });
    schemas.insert("Event".to_owned(), any);
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_uppercase() + rest
}

/// Takes a JSON Schema document in as a component, and its definitions as components under `prefix`.
fn import(schemas: &mut Map<String, Value>, name: &str, prefix: &str, text: &str) {
    let mut document: Value = serde_json::from_str(text).unwrap_or_default();
    refer(&mut document, prefix);
    let Some(object) = document.as_object_mut() else { return };
    object.remove("$schema");
    object.remove("$id");
    object.remove("title");
    if let Some(Value::Object(definitions)) = object.remove("$defs") {
        for (definition, schema) in definitions {
            schemas.insert(format!("{prefix}{}", capital(&definition)), schema);
        }
    }
    complete_free(&mut document);
    schemas.insert(name.to_owned(), document);
}

/// Points references to a document's own definitions at the components that they become.
fn refer(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(|one| refer(one, prefix)),
        Value::Object(object) => {
            let target = object.get("$ref").and_then(Value::as_str);
            if let Some(definition) = target.and_then(|target| target.strip_prefix("#/$defs/")) {
                let target = format!("#/components/schemas/{prefix}{}", capital(definition));
                object.insert("$ref".to_owned(), json!(target));
            }
            object.values_mut().for_each(|one| refer(one, prefix));
        }
        _ => {}
    }
}

/// Marks objects that accept any members.
fn complete_free(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(complete_free),
        Value::Object(object) => {
            if object.get("type") == Some(&json!("object"))
                && !object.contains_key("additionalProperties")
            {
                object.insert("additionalProperties".to_owned(), json!(true));
            }
            object.values_mut().for_each(complete_free);
        }
        _ => {}
    }
}
