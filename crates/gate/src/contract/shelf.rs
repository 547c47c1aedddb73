//! Payload schemas that are registered, as contracts name them: `registry:refund-handoff@1.2.0`. Always
//! one version, so that a contract's version says which schema ruled.

use std::collections::HashMap;
use std::fmt;

use semver::Version;
use serde_json::Value;

use super::read::is_kebab;
use super::{Contract, SchemaRef};

/// The prefix of a name in the registry.
const REGISTRY: &str = "registry:";

/// Names one version of a registered payload schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaName {
    /// Its id, kebab-case.
    pub id: String,
    pub version: Version,
}

impl SchemaName {
    /// A name from its parts.
    ///
    /// # Errors
    /// A sentence: the id is not kebab-case, or the version is none.
    pub fn new(id: &str, version: &str) -> Result<Self, String> {
        if !is_kebab(id) {
            return Err("a schema's id must be kebab-case, at most 128 characters".to_owned());
        }
        let wrong = || "a schema's version must be a semantic version like `1.2.0`".to_owned();
        let version: Version = version.parse().map_err(|_| wrong())?;
        if !version.build.is_empty() || version.to_string().len() > 64 {
            return Err(
                "a schema's version has no build metadata, and 64 characters at most".to_owned()
            );
        }
        Ok(Self { id: id.to_owned(), version })
    }

    /// Reads what `payload.schema` says; `None` where it names no registered schema.
    ///
    /// # Errors
    /// A sentence for the caller if the text behind `registry:` is not a valid name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let name = text.strip_prefix(REGISTRY)?;
        Some(match name.split_once('@') {
            Some((id, version)) => Self::new(id, version),
            None => Err("say which version: `registry:refund-handoff@1.2.0`".to_owned()),
        })
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{REGISTRY}{}@{}", self.id, self.version)
    }
}

/// Registered schemas, by name and version.
#[derive(Debug, Clone, Default)]
pub struct SchemaRegistry(HashMap<SchemaName, Value>);

impl SchemaRegistry {
    /// Whether a document may name a registered schema: looked for before the registry is read.
    #[must_use]
    pub fn is_asked(document: &str) -> bool {
        document.contains("\"registry:")
    }

    pub fn put(&mut self, name: SchemaName, schema: Value) {
        self.0.insert(name, schema);
    }

    /// Whether a schema has this name.
    #[must_use]
    pub fn has(&self, name: &SchemaName) -> bool {
        self.0.contains_key(name)
    }

    #[must_use]
    pub fn find(&self, name: &SchemaName) -> Option<&Value> {
        self.0.get(name)
    }

    /// Gives a contract the schema that it names, as if it had brought it along.
    pub fn complete(&self, contract: &mut Contract) {
        let Some(SchemaRef::Named(text)) = &contract.payload.schema else { return };
        if let Some(Ok(name)) = SchemaName::parse(text)
            && let Some(schema) = self.0.get(&name)
        {
            contract.schemas.insert(text.clone(), schema.clone());
        }
    }
}

impl Contract {
    #[must_use]
    pub fn registered_schema(&self) -> Option<SchemaName> {
        match &self.payload.schema {
            Some(SchemaRef::Named(text)) => SchemaName::parse(text)?.ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_registered_schema_is_named_with_its_version() {
        let name = SchemaName::parse("registry:refund-handoff@1.2.0").unwrap().unwrap();
        assert_eq!(
            (name.id.as_str(), name.version.to_string()),
            ("refund-handoff", "1.2.0".to_owned())
        );
        assert_eq!(name.to_string(), "registry:refund-handoff@1.2.0");
        assert!(SchemaName::parse("./schemas/refund-handoff@1.2.0.json").is_none());
        for (wrong, part) in [
            ("registry:refund-handoff", "which version"),
            ("registry:Refund@1.0.0", "kebab"),
            ("registry:refund@1.0", "semantic version"),
            ("registry:refund@1.0.0+build", "build metadata"),
        ] {
            let why = SchemaName::parse(wrong).unwrap().unwrap_err();
            assert!(why.contains(part), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_contract_gets_the_schema_that_it_names_and_no_other() {
        let mut shelf = SchemaRegistry::default();
        shelf.put(SchemaName::new("refund", "1.0.0").unwrap(), json!({"type": "object"}));
        let mut contract = Contract::default();
        for (named, found) in [
            ("registry:refund@1.0.0", true),
            ("registry:refund@1.0.1", false),
            ("refund@1.0.0", false),
        ] {
            contract.payload.schema = Some(SchemaRef::Named(named.to_owned()));
            contract.schemas.clear();
            shelf.complete(&mut contract);
            assert_eq!(contract.local_schema().is_some(), found, "{named}");
        }
    }
}
