//! The linter's input: a document, and the payload schema that it names, as far as it is available.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::contract::document::{Document, DocumentError};
use crate::contract::level::is_url;
use crate::contract::schema;
use crate::contract::shelf::SchemaName;
use handoffd_domain::canonical;

/// A document to lint.
#[derive(Debug)]
pub struct LintSubject {
    /// The file's displayed name.
    pub file: String,
    /// The document, or why there is none.
    pub document: Result<Document, DocumentError>,
    /// The payload schema that the document names, as far as it was found.
    pub schema: SchemaFile,
}

/// The result of looking for a payload schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum SchemaFile {
    /// No look-up took place: the contract embeds the schema, or names none.
    #[default]
    NotLooked,
    /// No such file exists, or no such schema is registered.
    Missing,
    /// The schema is registered but the registry is not available: the text names the remedy.
    Unchecked(String),
    /// The schema exists and cannot be enforced: file and reason.
    Unfit(String),
    /// The schema exists and can be enforced.
    Enforceable(Box<EnforceableSchema>),
}

/// A payload schema that can be enforced.
#[derive(Debug, Clone, PartialEq)]
pub struct EnforceableSchema {
    /// SHA-256 of its file, where it is one, and of its canonical form, in hexadecimal.
    hashes: Vec<String>,
    pub(super) document: Value,
}

impl EnforceableSchema {
    /// SHA-256 of its canonical form, as a broker shows it.
    pub(super) fn sha256(&self) -> &str {
        self.hashes.last().map_or("", String::as_str)
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        self.hashes.iter().any(|own| own.eq_ignore_ascii_case(hash))
    }
}

impl SchemaFile {
    /// A schema's file as read: JSON, or YAML.
    #[must_use]
    pub fn found(name: &str, bytes: &[u8]) -> Self {
        let parsed = schema_text(bytes).and_then(|document| Self::registered(&document));
        let document = match parsed {
            Ok(document) => document,
            Err(why) => return Self::Unfit(format!("`{name}` cannot be enforced: {why}")),
        };
        match document {
            Self::Enforceable(mut found) => {
                found.hashes.insert(0, hex::encode(Sha256::digest(bytes)));
                Self::Enforceable(found)
            }
            other => other,
        }
    }

    /// A schema's document. Its hash is that of the canonical form, as a broker shows it.
    ///
    /// # Errors
    /// Why it cannot be enforced, in a sentence.
    pub fn registered(document: &Value) -> Result<Self, String> {
        schema::compile(document)?;
        Ok(Self::of(document))
    }

    /// A schema that was compiled before.
    #[must_use]
    pub fn of(document: &Value) -> Self {
        let sha256 = hex::encode(Sha256::digest(canonical::to_vec(document)));
        Self::Enforceable(Box::new(EnforceableSchema {
            hashes: vec![sha256],
            document: document.clone(),
        }))
    }
}

/// The document of a schema's file: JSON, or YAML.
///
/// # Errors
/// Why it is neither, in a sentence.
pub(crate) fn schema_text(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).or_else(|err| {
        let text = String::from_utf8_lossy(bytes);
        let read = Document::parse(&text).map(|document| document.value().clone());
        read.map_err(|_| err.to_string())
    })
}

/// The registered schema that a document names.
#[must_use]
pub fn schema_name(document: &Document) -> Option<SchemaName> {
    SchemaName::parse(document.value().pointer("/payload/schema")?.as_str()?)?.ok()
}

/// The schema that a document names as a file: a path with a folder or an extension.
#[must_use]
pub fn schema_path(document: &Document) -> Option<&str> {
    let name = document.value().pointer("/payload/schema")?.as_str()?;
    let path_like = name.contains('/')
        || [".json", ".yaml", ".yml"].iter().any(|ending| name.to_lowercase().ends_with(ending));
    let plain = |text: &str| text.trim_start_matches("./").to_owned();
    let brought = document.value().get("schemas").and_then(Value::as_object);
    let local = brought.is_some_and(|all| all.keys().any(|own| plain(own) == plain(name)));
    let registered = SchemaName::parse(name).is_some();
    (path_like && !is_url(name) && !local && !registered).then_some(name)
}
