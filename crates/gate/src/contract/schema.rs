//! Payload schemas: JSON Schema, compiled without any look-up outside of the document itself.

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::cost::{Graph, MOST, MOST_OF_MANY, Places, TooCostly};

/// The largest schema, in bytes as JSON.
const MAX_SCHEMA: usize = 128 * 1024;

/// A payload schema that was compiled, with what it costs.
#[derive(Debug)]
pub struct PayloadSchema {
    validator: Validator,
    places: Places,
}

/// The result of checking a value against a payload schema.
#[derive(Debug)]
pub enum SchemaVerdict {
    Fits,
    /// It does not fit; the first faults. None where to tell them would cost too much.
    Unfit(Vec<ValidationError<'static>>),
    /// To look at it would cost too much: nothing is known of it.
    TooCostly,
}

/// Why a value was not looked at, as a sentence's end.
pub const TOO_COSTLY: &str = "has more in it than the schema is held against: a shorter one, or a schema with fewer alternatives, is checked";

impl PayloadSchema {
    /// Whether a value fits. For values of a test's own size: nothing bounds the cost.
    #[cfg(test)]
    pub(crate) fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// Judges a value, and tells `most` of its faults. `document` is the schema's own.
    #[must_use]
    pub fn judge(&self, document: &Value, value: &Value, most: usize) -> SchemaVerdict {
        if !self.places.can_be_judged(value) {
            return SchemaVerdict::TooCostly;
        }
        if self.validator.is_valid(value) {
            return SchemaVerdict::Fits;
        }
        let can_be_told = Graph::of(document).is_ok_and(|graph| graph.can_be_told(value));
        let faults = can_be_told.then(|| {
            self.validator.iter_errors(value).take(most).map(ValidationError::to_owned).collect()
        });
        SchemaVerdict::Unfit(faults.unwrap_or_default())
    }
}

/// Compiles a schema that was taken before. It is held to what a message may cost, and no more to what a new schema may.
///
/// # Errors
/// As [`compile`].
pub fn compile_known(schema: &Value) -> Result<PayloadSchema, String> {
    compiled(schema, false)
}

/// Compiles a schema; a `$ref` leads only within it.
///
/// # Errors
/// A sentence for the caller: the document is not a schema, is too large, refers outside itself, or would cost too much.
pub fn compile(schema: &Value) -> Result<PayloadSchema, String> {
    compiled(schema, true)
}

fn compiled(schema: &Value, is_new: bool) -> Result<PayloadSchema, String> {
    if !schema.is_object() {
        return Err("a payload schema is a JSON Schema object".to_owned());
    }
    let size = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    if size > MAX_SCHEMA {
        return Err(format!("a payload schema may take {MAX_SCHEMA} bytes as JSON"));
    }
    if let Some(reference) = outside(schema) {
        let shown: String = reference.chars().take(120).collect();
        return Err(format!(
            "`$ref` to `{shown}` leads outside of the schema; a frozen schema refers only to itself"
        ));
    }
    let graph = Graph::of(schema)?;
    let limited = graph.places(if is_new { MOST } else { u64::MAX }).and_then(|places| {
        if is_new {
            graph.check_many(&places)?;
        }
        Ok(places)
    });
    let places = limited.map_err(|TooCostly { part, limit }| {
        let whose = if limit == MOST_OF_MANY { "each of many values" } else { "one value" };
        format!(
            "`{part}` would take more than {limit} looks at {whose} of a message, with what applies beside it: a \
             definition that names another one twice doubles what it costs"
        )
    })?;
    let validator = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .build(schema)
        .map_err(|err| {
            let why: String = err.to_string().chars().take(200).collect();
            format!("the payload schema cannot be compiled: {why}")
        })?;
    Ok(PayloadSchema { validator, places })
}

/// The first `$ref` or `$dynamicRef` that leads outside of the schema.
#[must_use]
pub fn outside(schema: &Value) -> Option<&str> {
    let own = schema.get("$id").and_then(Value::as_str).unwrap_or_default();
    search(schema, own)
}

fn search<'a>(value: &'a Value, own: &str) -> Option<&'a str> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| search(item, own)),
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let reference =
                matches!(name.as_str(), "$ref" | "$dynamicRef").then(|| member.as_str()).flatten();
            match reference {
                Some(to) if to.starts_with('#') || (!own.is_empty() && to.starts_with(own)) => None,
                Some(to) => Some(to),
                // The members of `enum` and `const` are data.
                None if matches!(name.as_str(), "enum" | "const" | "examples" | "default") => None,
                None => search(member, own),
            }
        }),
        _ => None,
    }
}

/// The names that a schema speaks of at its top level, also through `allOf` and the like.
#[must_use]
pub fn names(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(schema, schema, &mut found, 8);
    found.sort();
    found.dedup();
    found
}

fn collect(schema: &Value, root: &Value, found: &mut Vec<String>, depth: u8) {
    let Some(next) = depth.checked_sub(1) else { return };
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        found.extend(properties.keys().cloned());
    }
    if let Some(required) = schema.get("required").and_then(Value::as_array) {
        found.extend(required.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for part in schema.get(name).and_then(Value::as_array).into_iter().flatten() {
            collect(part, root, found, next);
        }
    }
    for name in ["if", "then", "else", "not"] {
        if let Some(part) = schema.get(name) {
            collect(part, root, found, next);
        }
    }
    let local = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
    if let Some(part) = local.and_then(|pointer| root.pointer(pointer)) {
        collect(part, root, found, next);
    }
}

/// The names that a schema requires of every payload: at its top level, and through `allOf` and
/// references.
#[must_use]
pub fn required(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    demanded(schema, schema, &mut found, 8);
    found
}

fn demanded(schema: &Value, root: &Value, found: &mut Vec<String>, depth: u8) {
    let Some(next) = depth.checked_sub(1) else { return };
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    found.extend(names.filter_map(Value::as_str).map(str::to_owned));
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        demanded(part, root, found, next);
    }
    let local = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
    if let Some(part) = local.and_then(|pointer| root.pointer(pointer)) {
        demanded(part, root, found, next);
    }
}

/// Whether the schema takes the property `name` as an array.
#[must_use]
pub fn wants_array(schema: &Value, name: &str) -> bool {
    let kind =
        schema.get("properties").and_then(|all| all.get(name)).and_then(|one| one.get("type"));
    match kind {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => {
            kinds.iter().any(|kind| kind == "array") && kinds.iter().all(|kind| kind != "object")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn c33_a_schema_refers_only_to_itself() {
        let local =
            json!({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}});
        assert!(compile(&local).is_ok());
        for outside in ["https://x.example/s.json", "other.json", "file:///etc/passwd"] {
            let schema = json!({"properties": {"x": {"$ref": outside}}});
            assert!(compile(&schema).unwrap_err().contains("outside"), "{outside}");
        }
        assert!(compile(&json!({"type": 7})).is_err());
        assert!(compile(&json!("text")).is_err());
    }

    #[test]
    fn names_are_found_through_references() {
        let schema = json!({
            "required": ["a"], "allOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/more"}],
            "$defs": {"more": {"properties": {"c": {}}, "$ref": "#/$defs/more"}},
        });
        assert_eq!(names(&schema), ["a", "b", "c"]);
    }
}
