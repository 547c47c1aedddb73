//! The schema stage (seed 000 §5.2, §6.1, §14.3; specification §2.1 and §2.2 stage 3).
//!
//! The schemas are the JSON Schema 2020-12 documents under `schemas/handoff/`, each compiled once, with
//! formats asserted, without any look-up outside the binary and with patterns in linear time. Rules
//! that a schema cannot express (versions and ranges of versions) are checked here as well.
//!
//! Messages name what was expected and never repeat content from below `/personalDataPayload` or
//! `/checkpoint`.

mod messages;
pub mod older;
mod receivers;

use std::collections::BTreeSet;
use std::collections::HashSet;
use std::sync::OnceLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, ValidationOptions, Validator};
use semver::Version;
use serde_json::Value;

use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::json::push_segment;
use handoffd_domain::message::FAN_OUT_MINOR;
pub use handoffd_domain::message::SCHEMA_VERSIONS as VERSIONS;
use handoffd_domain::personal;
use handoffd_domain::version_range::VersionRange;
use messages::{MAX_ECHO, MAX_NAME, nearest, sentence, shown};

/// The major version that all known versions share.
const MAJOR: u32 = 2;

const DOCUMENTS: &[&str] = &[
    include_str!("../assets/handoff-2.0.json"),
    include_str!("../assets/handoff-2.1.json"),
    include_str!("../assets/handoff-2.2.json"),
];

/// The pointer to the schema version of a message.
const VERSION: &str = "/schemaVersion";

/// At most this many failures are reported for one message.
pub const MAX_FAILURES: usize = 100;

/// Of an array longer than the schema allows, only so many items are looked at for further errors.
const SAMPLE_ITEMS: usize = 100;

/// The text of a schema document by its version (`"2.0"`, or with any patch number), as it is served.
#[must_use]
pub fn document(version: &str) -> Option<&'static str> {
    let (_, minor) = parse_version(version).filter(|(major, _)| *major == MAJOR)?;
    DOCUMENTS.get(usize::try_from(minor).ok()?).copied()
}

/// The version a message claims, and the schema it was held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaVersion {
    /// Always 2 for a message that passed.
    pub major: u32,
    /// The minor the message claims; it may be newer than any that is known here.
    pub minor: u32,
    /// The entry of [`VERSIONS`] that the message was validated against.
    pub validated_against: &'static str,
}

struct CompiledSchema {
    version: &'static str,
    text: &'static str,
    /// Open at the top level, and for any `schemaVersion`.
    open: bool,
    /// Some 400 KB each, and most senders use one version: compiled by the first message of its own.
    validator: OnceLock<Validator>,
    /// Its top-level fields.
    names: Vec<String>,
    /// Those that may be left out for a receiver that takes older minors only.
    droppable: Vec<String>,
    /// Members that it requires of `toAgent`.
    of_target: Vec<String>,
}

impl CompiledSchema {
    fn new(version: &'static str, text: &'static str, open: bool) -> Self {
        let schema = parsed(text, open);
        let properties: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        let names = properties.iter().map(|(name, _)| (*name).clone()).collect();
        let droppable = properties
            .iter()
            .filter(|(_, property)| property["x-droppable"] == Value::Bool(true))
            .map(|(name, _)| (*name).clone())
            .collect();
        let required = schema["properties"]["toAgent"]["required"].as_array();
        let of_target = required
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        let validator = OnceLock::new();
        Self { version, text, open, validator, names, droppable, of_target }
    }

    /// Takes some milliseconds where the schema is not compiled yet.
    fn validator(&self) -> &Validator {
        self.validator.get_or_init(|| {
            jsonschema::draft202012::options()
                .offline()
                .with_pattern_options(PatternOptions::regex())
                .should_validate_formats(true)
                .build(&parsed(self.text, self.open))
                .expect("the compiled-in schemas are valid, as the tests of this file prove")
        })
    }
}

fn parsed(text: &str, open: bool) -> Value {
    let mut schema: Value =
        serde_json::from_str(text).expect("the compiled-in schemas are JSON, as the tests prove");
    if open {
        schema["additionalProperties"] = Value::Bool(true);
        schema["properties"]["schemaVersion"] = serde_json::json!({"type": "string"});
    }
    schema
}

/// All schemas. Build one and share it; checking takes `&self`.
pub struct Schemas {
    /// As in [`VERSIONS`].
    known: Vec<CompiledSchema>,
    /// The newest known schema, open at the top level and for any `schemaVersion`: for newer minors.
    open: CompiledSchema,
}

impl std::fmt::Debug for Schemas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schemas").field("known", &VERSIONS).finish_non_exhaustive()
    }
}

impl Default for Schemas {
    fn default() -> Self {
        Self::new()
    }
}

impl Schemas {
    #[must_use]
    pub fn new() -> Self {
        let documents = VERSIONS.iter().zip(DOCUMENTS);
        let known: Vec<_> =
            documents.map(|(version, text)| CompiledSchema::new(version, text, false)).collect();
        let newest = known.last().expect("there is a schema");
        let open = CompiledSchema::new(newest.version, newest.text, true);
        Self { known, open }
    }

    /// Checks a message against the schema of the version it claims.
    ///
    /// A known minor is held strictly to its own schema. A newer minor is held to the newest known
    /// one with unknown top-level fields let through. Another major, or a `schemaVersion` that is
    /// missing or malformed, fails at `/schemaVersion`.
    ///
    /// # Errors
    ///
    /// [`Code::SchemaInvalid`] failures, one for each thing wrong, at most [`MAX_FAILURES`]. The pointer
    /// of a missing or unknown field is that field's own path.
    pub fn check(&self, message: &Value) -> Result<SchemaVersion, Vec<Failure>> {
        let claimed = match message.get("schemaVersion") {
            None => None,
            Some(value) => value
                .as_str()
                .map_or(Some(Err(value)), |text| Some(parse_version(text).ok_or(value))),
        };
        let mut found = SchemaFailures::default();
        let (compiled, minor) = match claimed {
            Some(Ok((MAJOR, minor))) => (self.compiled(minor), minor),
            Some(Ok((major, _))) => {
                let message = format!(
                    "Schema major version {major} is not supported; this broker takes {}.",
                    VERSIONS.join(" and ")
                );
                return Err(vec![invalid(VERSION.to_owned(), message)]);
            }
            Some(Err(value)) => {
                found.add(
                    VERSION.to_owned(),
                    format!(
                        "`schemaVersion` must be a string like `{}`{}.",
                        VERSIONS.last().unwrap_or(&""),
                        shown(value)
                    ),
                );
                (&self.open, 0)
            }
            None => (&self.open, 0),
        };
        self.collect(compiled, message, &mut found);
        semantic(message, &mut found);
        if minor >= FAN_OUT_MINOR {
            for (pointer, what) in receivers::check(message) {
                found.add(pointer, what);
            }
        }
        if found.failures.is_empty() {
            Ok(SchemaVersion { major: MAJOR, minor, validated_against: compiled.version })
        } else {
            Err(found.failures)
        }
    }

    /// The schema for messages of that minor.
    fn compiled(&self, minor: u32) -> &CompiledSchema {
        let known = usize::try_from(minor).ok().and_then(|minor| self.known.get(minor));
        known.unwrap_or(&self.open)
    }

    fn collect(&self, compiled: &CompiledSchema, message: &Value, found: &mut SchemaFailures) {
        if compiled.validator().is_valid(message) {
            return;
        }
        let sample = sampled(message, &compiled.names, found);
        for error in compiled.validator().iter_errors(sample.as_ref().unwrap_or(message)) {
            if found.failures.len() >= MAX_FAILURES {
                return;
            }
            self.explain(compiled, &error, found);
        }
    }

    /// Turns one error of the validator into failures.
    fn explain(
        &self,
        compiled: &CompiledSchema,
        error: &ValidationError<'_>,
        found: &mut SchemaFailures,
    ) {
        let at = error.instance_path().as_str();
        if at == VERSION && found.failures.iter().any(|failure| failure.pointer == VERSION) {
            // Said already, with what would be right.
            return;
        }
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let mut pointer = at.to_owned();
                push_segment(&mut pointer, name);
                found.add(pointer, format!("The required field `{name}` is missing."));
            }
            ValidationErrorKind::AdditionalProperties { unexpected } if at.is_empty() => {
                for name in unexpected.iter().take(MAX_FAILURES) {
                    let mut pointer = String::new();
                    if name.len() <= MAX_NAME {
                        push_segment(&mut pointer, name);
                    }
                    found.add(pointer, self.unknown_field(compiled, name));
                }
            }
            // The pattern beside it says the same, and which versions there are.
            ValidationErrorKind::Format { format } if format == "uuid" => {}
            kind => found.add(at.to_owned(), sentence(kind, at, error.instance())),
        }
    }

    fn unknown_field(&self, compiled: &CompiledSchema, name: &str) -> String {
        let echo: String = name.chars().take(MAX_ECHO).collect();
        let version = compiled.version;
        if let Some(other) =
            self.known.iter().find(|other| other.names.iter().any(|known| known == name))
        {
            return format!(
                "`{echo}` is a field of schema {}, not of {version}; set `schemaVersion` to `{}` to send it.",
                other.version, other.version
            );
        }
        match nearest(name, &compiled.names) {
            Some(known) => {
                format!("`{echo}` is not a field of schema {version}; did you mean `{known}`?")
            }
            None => format!("`{echo}` is not a field of schema {version}."),
        }
    }
}

/// The compiled schema of a small document, such as the arguments of a call; explains what is wrong in the words of the
/// schema stage.
#[derive(Debug)]
pub struct DocumentSchema {
    validator: Validator,
    names: Vec<String>,
}

impl DocumentSchema {
    /// Compiles a schema (JSON Schema 2020-12).
    ///
    /// # Errors
    /// The validator's words for a document that is not a schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        Self::compiled(jsonschema::draft202012::options(), schema)
    }

    /// The same for a schema of draft-07.
    ///
    /// # Errors
    /// As for [`DocumentSchema::new`].
    pub fn draft7(schema: &Value) -> Result<Self, String> {
        Self::compiled(jsonschema::draft7::options(), schema)
    }

    fn compiled(options: ValidationOptions, schema: &Value) -> Result<Self, String> {
        let validator = options
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(true)
            .build(schema)
            .map_err(|err| err.to_string())?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let names = properties.into_iter().flatten().map(|(name, _)| name.clone()).collect();
        Ok(Self { validator, names })
    }

    /// Defects of a document, at most [`MAX_FAILURES`].
    #[must_use]
    pub fn check(&self, document: &Value) -> Vec<Failure> {
        let mut found = SchemaFailures::default();
        if self.validator.is_valid(document) {
            return found.failures;
        }
        for error in self.validator.iter_errors(document).take(MAX_FAILURES) {
            let at = error.instance_path().as_str();
            match error.kind() {
                ValidationErrorKind::Required { property } => {
                    let name = property.as_str().unwrap_or_default();
                    let mut pointer = at.to_owned();
                    push_segment(&mut pointer, name);
                    found.add(pointer, format!("`{name}` is missing."));
                }
                ValidationErrorKind::AdditionalProperties { unexpected } => {
                    for name in unexpected.iter().take(MAX_FAILURES) {
                        let echo: String = name.chars().take(MAX_ECHO).collect();
                        let near = nearest(name, &self.names).filter(|_| at.is_empty());
                        let hint =
                            near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                        let mut pointer = at.to_owned();
                        if name.len() <= MAX_NAME {
                            push_segment(&mut pointer, name);
                        }
                        found.add(pointer, format!("`{echo}` is unknown here{hint}"));
                    }
                }
                kind => found.add(at.to_owned(), sentence(kind, at, error.instance())),
            }
        }
        found.failures
    }
}

/// Failures so far, each pair of pointer and sentence once.
#[derive(Default)]
struct SchemaFailures {
    failures: Vec<Failure>,
    seen: BTreeSet<(String, String)>,
}

impl SchemaFailures {
    fn add(&mut self, pointer: String, message: String) {
        if self.failures.len() < MAX_FAILURES
            && self.seen.insert((pointer.clone(), message.clone()))
        {
            self.failures.push(invalid(pointer, message));
        }
    }
}

fn invalid(pointer: String, message: String) -> Failure {
    Failure::new(Stage::Schema, Code::SchemaInvalid, pointer, message)
}

/// Major and minor of `2.1` or `2.1.7`; digits without leading zeros.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let numbers = text
        .split('.')
        .map(|part| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit())
                && (part.len() == 1 || !part.starts_with('0'));
            if plain { part.parse().ok() } else { None }
        })
        .collect::<Option<Vec<u32>>>()?;
    match numbers[..] {
        [major, minor] | [major, minor, _] => Some((major, minor)),
        _ => None,
    }
}

/// A copy of the message in which arrays over the schema's limit are cut, so that ten megabytes of
/// bad items do not become as many errors; each cut is itself a failure. `names` are the schema's own
/// top-level fields. `None` if no array is so long.
fn sampled(message: &Value, names: &[String], found: &mut SchemaFailures) -> Option<Value> {
    const LIMIT: usize = 10_000; // `maxItems` of every array in the schemas
    let mut long: Vec<String> = Vec::new();
    for name in names {
        let items = message.get(name).and_then(Value::as_array);
        if items.is_some_and(|items| items.len() > LIMIT) {
            long.push(format!("/{name}"));
        }
    }
    for list in ["/personalDataPayload/subjects", "/personalDataPayload/pointers"] {
        if message.pointer(list).and_then(Value::as_array).is_some_and(|all| all.len() > LIMIT) {
            long.push(list.to_owned());
        }
    }
    if long.is_empty() {
        return None;
    }
    let mut copy = message.clone();
    for pointer in long {
        if let Some(items) = copy.pointer_mut(&pointer).and_then(Value::as_array_mut) {
            items.truncate(SAMPLE_ITEMS);
        }
        found.add(pointer, format!("Must have at most {LIMIT} items."));
    }
    Some(copy)
}

/// Checks that no schema can state: versions are semantic versions, ranges are ranges of them.
fn semantic(message: &Value, found: &mut SchemaFailures) {
    let from = "/fromAgent/agentVersion";
    if let Some(text) = message.pointer(from).and_then(Value::as_str)
        && !text.is_empty()
        && Version::parse(text).is_err()
    {
        let is = shown(&Value::from(text));
        found.add(from.to_owned(), format!("Must be a semantic version like `2.1.0`{is}."));
    }
    for (pointer, what) in personal::check(message) {
        found.add(pointer, what.to_owned());
    }
    let subtasks = message.get("completedSubtasks").and_then(Value::as_array);
    let mut named = HashSet::new();
    for (index, subtask) in subtasks.into_iter().flatten().enumerate() {
        if let Some(id) = subtask.get("subtaskId").and_then(Value::as_str)
            && !named.insert(id)
        {
            let why = "Each completed subtask is named once; this one was named before.".to_owned();
            found.add(format!("/completedSubtasks/{index}/subtaskId"), why);
        }
    }
    let mut range = |pointer: String, target: Option<&Value>| {
        if let Some(text) =
            target.and_then(|target| target.get("agentVersion")).and_then(Value::as_str)
            && !text.is_empty()
            && text.parse::<VersionRange>().is_err()
        {
            let is = shown(&Value::from(text));
            let what = "Must be a range of semantic versions like `>=1.5.0` or `^1.5 || ^2.0`";
            found.add(pointer, format!("{what}{is}."));
        }
    };
    range("/toAgent/agentVersion".to_owned(), message.get("toAgent"));
    let receivers = message.get("receiverList").and_then(Value::as_array);
    for (index, receiver) in receivers.into_iter().flatten().enumerate() {
        range(format!("/receiverList/{index}/agentVersion"), Some(receiver));
    }
}

#[cfg(test)]
mod redacted;
#[cfg(test)]
mod tests;
