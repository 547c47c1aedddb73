//! The values of an agent's settings and credentials, and the identity of a connection that is made by them.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Values of a description's fields.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields(Map<String, Value>);

impl std::fmt::Debug for Fields {
    /// Names alone: values may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(values: Map<String, Value>) -> Self {
        Self(values)
    }
}

impl Fields {
    /// A text, URL, choice or PEM document.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// The values by their keys.
    #[must_use]
    pub fn map(&self) -> &Map<String, Value> {
        &self.0
    }

    #[must_use]
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.0.get(key)?.as_i64()
    }

    /// A boolean; `false` where it is not given.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// All but the fields of these keys.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        Self(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// A text that is equal for equal values of all fields.
    #[must_use]
    pub fn whole(&self) -> Zeroizing<String> {
        Zeroizing::new(serde_json::to_string(&self.0).unwrap_or_default())
    }

    /// A text by which connections are told apart: equal for equal values of these keys.
    #[must_use]
    pub fn identity(&self, keys: &[&str]) -> Zeroizing<String> {
        let values: Vec<_> = keys.iter().map(|key| self.0.get(*key)).collect();
        Zeroizing::new(serde_json::to_string(&values).unwrap_or_default())
    }
}

/// Identifies a connection: the hash of everything that it depends on, secrets included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionKey([u8; 32]);

impl ConnectionKey {
    #[must_use]
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        Self(hash.finalize().into())
    }
}
