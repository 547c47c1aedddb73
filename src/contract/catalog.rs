//! The contracts of a tenant, found by edge.
//!
//! Of each contract the highest version rules. For an edge the most specific contract rules: one that
//! names both agents by id before one that names the source by id and the target by type, then the
//! other way round, then one of two types (ruling X15); of equals the first id. A message's `contractId`
//! goes before all that, also for an older version (`id@1.1.0`), if that contract speaks of the edge; a
//! name that the broker does not know is the sender's own business.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use semver::Version;
use serde_json::Value;

use super::SchemaRef;
use super::enforce::Ready;
use crate::domain::agent::Agent;
use crate::domain::ids::Micros;

/// The contracts at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    by_id: BTreeMap<String, BTreeMap<Version, Arc<Ready>>>,
    by_edge: HashMap<(String, String), Vec<Arc<Ready>>>,
}

impl Catalog {
    /// Indexes contracts; all versions of each.
    #[must_use]
    pub fn new(contracts: Vec<Arc<Ready>>) -> Self {
        let mut catalog = Self::default();
        for ready in contracts {
            let contract = ready.contract();
            let versions = catalog.by_id.entry(contract.id.clone()).or_default();
            versions.insert(contract.version(), ready);
        }
        for latest in catalog.by_id.values().filter_map(|versions| versions.values().next_back()) {
            let contract = latest.contract();
            let edge = (contract.source.clone(), contract.target.clone());
            catalog.by_edge.entry(edge).or_default().push(Arc::clone(latest));
        }
        catalog
    }

    /// One version; the highest where none is named.
    #[must_use]
    pub fn find(&self, id: &str, version: Option<&Version>) -> Option<&Arc<Ready>> {
        let versions = self.by_id.get(id)?;
        match version {
            Some(version) => versions.get(version),
            None => versions.values().next_back(),
        }
    }

    /// The versions of a contract, oldest first.
    pub fn versions(&self, id: &str) -> impl Iterator<Item = &Arc<Ready>> {
        self.by_id.get(id).into_iter().flat_map(BTreeMap::values)
    }

    /// The highest version of each contract, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Ready>> {
        self.by_id.values().filter_map(|versions| versions.values().next_back())
    }

    /// All versions of all contracts.
    fn all(&self) -> impl Iterator<Item = &Arc<Ready>> {
        self.by_id.values().flat_map(BTreeMap::values)
    }

    /// When the newest was put, by the clock of whoever put it.
    #[must_use]
    pub fn newest(&self) -> Option<Micros> {
        self.all().map(|ready| ready.created_at()).max()
    }

    /// The same with more, or with these in the places of their versions.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = Arc<Ready>>) -> Self {
        Self::new(self.all().cloned().chain(more).collect())
    }

    /// The same with another payload schema wherever a contract names the registered one with that id, in
    /// whatever version; `None` where no contract does.
    #[must_use]
    pub fn with_schema(&self, id: &str, schema: &Value) -> Option<Self> {
        let mut found = false;
        let contracts = self.all().map(|ready| {
            let contract = ready.contract();
            match (&contract.payload.schema, contract.registered_schema()) {
                (Some(SchemaRef::Named(name)), Some(named)) if named.id == id => {
                    found = true;
                    let mut contract = contract.clone();
                    contract.schemas.insert(name.clone(), schema.clone());
                    let (doc, sha256) = (ready.doc().to_owned(), ready.sha256().to_owned());
                    Arc::new(Ready::new(contract, doc, sha256, ready.created_at()))
                }
                _ => Arc::clone(ready),
            }
        });
        let contracts = contracts.collect();
        found.then(|| Self::new(contracts))
    }

    /// Which contract rules a handoff from `source` to `target`; `named` is the message's `contractId`.
    ///
    /// # Errors
    /// A sentence: the contract that is named has no such version, or speaks of another edge.
    pub fn ruling(
        &self,
        source: &Agent,
        target: &Agent,
        named: Option<&str>,
    ) -> Result<Option<&Arc<Ready>>, String> {
        if let Some(named) = named.filter(|named| self.knows(named)) {
            return self.named(source, target, named).map(Some);
        }
        let (source_id, target_id) = (source.agent_id.as_str(), target.agent_id.as_str());
        let edges = [
            (source_id, target_id),
            (source_id, target.agent_type.as_str()),
            (source.agent_type.as_str(), target_id),
            (source.agent_type.as_str(), target.agent_type.as_str()),
        ];
        Ok(edges.into_iter().find_map(|(from, to)| {
            self.by_edge.get(&(from.to_owned(), to.to_owned())).and_then(|found| found.first())
        }))
    }

    fn knows(&self, named: &str) -> bool {
        self.by_id.contains_key(named.split('@').next().unwrap_or_default())
    }

    fn named(&self, source: &Agent, target: &Agent, named: &str) -> Result<&Arc<Ready>, String> {
        let (id, version) = match named.split_once('@') {
            Some((id, version)) => (
                id,
                Some(
                    Version::parse(version)
                        .map_err(|_| format!("`{version}` is no version of a contract"))?,
                ),
            ),
            None => (named, None),
        };
        let ready = self
            .find(id, version.as_ref())
            .ok_or_else(|| format!("there is no contract `{named}`"))?;
        let contract = ready.contract();
        let is =
            |name: &str, agent: &Agent| name == agent.agent_id.as_str() || name == agent.agent_type;
        if is(&contract.source, source) && is(&contract.target, target) {
            return Ok(ready);
        }
        Err(format!(
            "contract `{named}` is about {} → {}, not about {} → {}",
            contract.source, contract.target, source.agent_id, target.agent_id
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;
    use crate::domain::ids::Micros;

    fn ready(id: &str, version: &str, source: &str, target: &str) -> Arc<Ready> {
        let contract = Contract {
            id: id.to_owned(),
            version: Some(version.parse().unwrap()),
            source: source.to_owned(),
            target: target.to_owned(),
            ..Contract::default()
        };
        Arc::new(Ready::new(contract, String::new(), String::new(), Micros(0)))
    }

    fn agent(id: &str, kind: &str) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.agent_type = kind.to_owned();
        agent
    }

    #[test]
    fn a_schema_takes_the_place_of_the_one_that_contracts_name() {
        let named = |id: &str, schema: &str| {
            let mut contract = ready(id, "1.0.0", "a", "b").contract().clone();
            contract.payload.schema = Some(SchemaRef::Named(schema.to_owned()));
            Arc::new(Ready::new(contract, String::new(), String::new(), Micros(0)))
        };
        let catalog = Catalog::new(vec![
            named("one", "registry:refund@1.0.0"),
            named("two", "registry:refund@2.0.0"),
            named("other", "registry:order@1.0.0"),
        ]);
        let schema = serde_json::json!({ "type": "object" });
        let changed = catalog.with_schema("refund", &schema).unwrap();
        let has =
            |id: &str| changed.find(id, None).unwrap().contract().local_schema() == Some(&schema);
        assert_eq!((has("one"), has("two"), has("other")), (true, true, false));
        assert!(catalog.find("one", None).unwrap().contract().local_schema().is_none());
        assert!(catalog.with_schema("unknown", &schema).is_none());
        let more = catalog.with([ready("one", "1.1.0", "a", "b")]);
        assert_eq!(more.find("one", None).unwrap().contract().version().to_string(), "1.1.0");
        assert_eq!(more.versions("one").count(), 2);
    }

    #[test]
    fn x15_the_most_specific_contract_rules_in_its_highest_version() {
        let catalog = Catalog::new(vec![
            ready("roles", "2.0.0", "triage", "refund"),
            ready("roles", "10.0.0", "triage", "refund"),
            ready("to-one", "1.0.0", "triage", "refund-2"),
            ready("exact", "1.0.0", "triage-1", "refund-2"),
        ]);
        let rules = |source: &Agent, target: &Agent, named: Option<&str>| {
            catalog
                .ruling(source, target, named)
                .map(|found| found.map(|ready| ready.contract().to_string()))
        };
        let (t1, t2) = (agent("triage-1", "triage"), agent("triage-2", "triage"));
        let (r1, r2) = (agent("refund-1", "refund"), agent("refund-2", "refund"));
        assert_eq!(rules(&t2, &r1, None), Ok(Some("roles 10.0.0".to_owned())));
        assert_eq!(rules(&t2, &r2, None), Ok(Some("to-one 1.0.0".to_owned())));
        assert_eq!(rules(&t1, &r2, None), Ok(Some("exact 1.0.0".to_owned())));
        assert_eq!(rules(&r1, &t1, None), Ok(None));
        assert_eq!(rules(&t1, &r2, Some("roles@2.0.0")), Ok(Some("roles 2.0.0".to_owned())));
        assert!(rules(&r1, &t1, Some("roles")).unwrap_err().contains("is about"));
        assert!(rules(&t1, &r1, Some("roles@3.0.0")).unwrap_err().contains("no contract"));
        assert_eq!(rules(&t1, &r1, Some("other")), Ok(Some("roles 10.0.0".to_owned())));
    }
}
