//! The contracts of a tenant, found by edge.
//!
//! Of each contract the highest version rules. For an edge the most specific contract rules: one that
//! names both agents by id before one that names the source by id and the target by type, then the
//! other way round, then one of two types (ruling X15); of equals the first id. A message's `contractId`
//! goes before all that, if that contract speaks of the edge; an older version (`id@1.1.0`) rules only
//! where `contracts.accept_pinned` says so. A contract past its sunset gives way to its replacement.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use semver::Version;
use serde_json::Value;

use super::enforce::CompiledContract;
use super::read::is_tool_name;
use super::{Contract, SchemaRef};
use handoffd_domain::agent::Agent;
use handoffd_domain::handoff_tool::ContractTool;
use handoffd_domain::ids::Micros;

/// The contracts of a tenant at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    by_id: BTreeMap<String, BTreeMap<Version, Arc<CompiledContract>>>,
    by_edge: HashMap<(String, String), Vec<Arc<CompiledContract>>>,
    has_schemas: bool,
    /// Contracts that rule no edge, with the reason. The gate refuses a message on an edge of such a contract.
    withheld: BTreeMap<String, String>,
}

impl Catalog {
    /// Indexes contracts; all versions of each.
    #[must_use]
    pub fn new(contracts: Vec<Arc<CompiledContract>>) -> Self {
        let mut catalog = Self::default();
        for ready in contracts {
            let contract = ready.contract();
            catalog.has_schemas |= contract.payload.schema.is_some();
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

    /// Whether any contract has a payload schema: against one, a small message can take long.
    #[must_use]
    pub const fn has_schemas(&self) -> bool {
        self.has_schemas
    }

    /// One version of a contract; the highest where `version` is `None`.
    #[must_use]
    pub fn find(&self, id: &str, version: Option<&Version>) -> Option<&Arc<CompiledContract>> {
        let versions = self.by_id.get(id)?;
        match version {
            Some(version) => versions.get(version),
            None => versions.values().next_back(),
        }
    }

    /// The versions of a contract, oldest first.
    pub fn versions(&self, id: &str) -> impl Iterator<Item = &Arc<CompiledContract>> {
        self.by_id.get(id).into_iter().flat_map(BTreeMap::values)
    }

    /// The highest version of each contract, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CompiledContract>> {
        self.by_id.values().filter_map(|versions| versions.values().next_back())
    }

    /// The tools that the contracts in force name for handoffs of an agent, by contract.
    #[must_use]
    pub fn tools_of(&self, agent: &Agent, at: Micros) -> Vec<ContractTool> {
        self.iter()
            .map(|ready| ready.contract())
            .filter(|contract| {
                contract.source == agent.agent_id.as_str() || contract.source == agent.agent_type
            })
            .filter(|contract| !contract.has_ended(at.seconds()))
            .filter_map(|contract| {
                let name = contract.trigger.tool_call.clone()?;
                is_tool_name(&name).then(|| ContractTool {
                    name,
                    contract: contract.id.clone(),
                    intent: contract.trigger.intent.clone(),
                    target: contract.target.clone(),
                })
            })
            .collect()
    }

    /// All versions of all contracts.
    pub fn all(&self) -> impl Iterator<Item = &Arc<CompiledContract>> {
        self.by_id.values().flat_map(BTreeMap::values)
    }

    /// Creation time of the newest version, by the clock of the broker that stored it.
    #[must_use]
    pub fn newest(&self) -> Option<Micros> {
        self.all().map(|ready| ready.created_at()).max()
    }

    /// A catalog with further versions; a version that exists is replaced.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = Arc<CompiledContract>>) -> Self {
        let withheld = self.withheld.clone();
        Self { withheld, ..Self::new(self.all().cloned().chain(more).collect()) }
    }

    /// Whether some contract rules nothing.
    #[must_use]
    pub fn withholds(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// The same, with contracts that rule nothing, each with the reason.
    #[must_use]
    pub fn withholding(self, withheld: BTreeMap<String, String>) -> Self {
        Self { withheld, ..self }
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
                    Arc::new(CompiledContract::new(contract, doc, sha256, ready.created_at()))
                }
                _ => Arc::clone(ready),
            }
        });
        let contracts = contracts.collect();
        found.then(|| Self { withheld: self.withheld.clone(), ..Self::new(contracts) })
    }

    /// Which contract rules a handoff from `source` to `target`.
    ///
    /// # Errors
    /// The contract that is named has no such version, is not in force, or speaks of another edge; or the
    /// contract of the edge is past its sunset.
    pub fn ruling(
        &self,
        source: &Agent,
        target: &Agent,
        asked: RulingRequest<'_>,
    ) -> Result<Option<&Arc<CompiledContract>>, RulingError> {
        let named = asked.named.filter(|named| self.knows(named));
        let found = match named {
            Some(named) => Some(self.named(source, target, named, asked.pinned)?),
            None => self.of_edge(source, target),
        };
        let Some(ready) = found else { return Ok(None) };
        let contract = ready.contract();
        if let Some(why) = self.withheld.get(&contract.id) {
            return Err(RulingError {
                clause: "evidence",
                why: format!(
                    "contract `{}` is not what the log commits to ({why}), and nothing passes under it until an operator \
                     has mended it",
                    contract.id
                ),
            });
        }
        if !contract.has_ended(asked.at.seconds()) {
            return Ok(Some(ready));
        }
        let next = contract.deprecation.as_ref().and_then(|word| word.replacement_id.as_deref());
        let heir = next.and_then(|next| self.find(next, None)).filter(|heir| {
            let heir = heir.contract();
            speaks_of(heir, source, target) && !heir.has_ended(asked.at.seconds())
        });
        match heir {
            // Who names no contract follows what the edge has now.
            Some(heir) if named.is_none() => Ok(Some(heir)),
            _ => Err(RulingError {
                clause: "deprecation.sunset",
                why: match next {
                    Some(next) => {
                        format!("contract {contract} is past its sunset; `{next}` takes its place")
                    }
                    None => {
                        format!("contract {contract} is past its sunset, and names no replacement")
                    }
                },
            }),
        }
    }

    fn of_edge(&self, source: &Agent, target: &Agent) -> Option<&Arc<CompiledContract>> {
        let (source_id, target_id) = (source.agent_id.as_str(), target.agent_id.as_str());
        let edges = [
            (source_id, target_id),
            (source_id, target.agent_type.as_str()),
            (source.agent_type.as_str(), target_id),
            (source.agent_type.as_str(), target.agent_type.as_str()),
        ];
        edges.into_iter().find_map(|(from, to)| {
            self.by_edge.get(&(from.to_owned(), to.to_owned())).and_then(|found| found.first())
        })
    }

    /// Whether a contract has this name, with or without a version.
    #[must_use]
    pub fn knows(&self, named: &str) -> bool {
        self.by_id.contains_key(named.split('@').next().unwrap_or_default())
    }

    /// Whether the contract of this name, with or without a version, is about the edge.
    #[must_use]
    pub fn declares(&self, named: &str, source: &Agent, target: &Agent) -> bool {
        let id = named.split('@').next().unwrap_or_default();
        self.find(id, None).is_some_and(|ready| speaks_of(ready.contract(), source, target))
    }

    fn named(
        &self,
        source: &Agent,
        target: &Agent,
        named: &str,
        pinned: PinnedVersionRule,
    ) -> Result<&Arc<CompiledContract>, RulingError> {
        let wrong = |clause, why| RulingError { clause, why };
        let (id, version) = match named.split_once('@') {
            Some((id, version)) => (
                id,
                Some(Version::parse(version).map_err(|_| {
                    wrong("version", format!("`{version}` is not a version of a contract"))
                })?),
            ),
            None => (named, None),
        };
        let missing = || wrong("version", format!("contract `{named}` does not exist"));
        let current = self.find(id, None).ok_or_else(missing)?;
        let ready = match version {
            None => current,
            Some(version) => {
                let asked = self.find(id, Some(&version)).ok_or_else(missing)?;
                match pinned {
                    PinnedVersionRule::Accepted => asked,
                    PinnedVersionRule::Ignored => current,
                    PinnedVersionRule::Refused if version == current.contract().version() => {
                        current
                    }
                    PinnedVersionRule::Refused => {
                        let now = current.contract().version();
                        let why = format!("`{named}` is not in force; {id} rules in version {now}");
                        return Err(wrong("version", why));
                    }
                }
            }
        };
        let contract = ready.contract();
        if speaks_of(contract, source, target) {
            return Ok(ready);
        }
        let why = format!(
            "contract `{named}` is about {} → {}, not about {} → {}",
            contract.source, contract.target, source.agent_id, target.agent_id
        );
        Err(wrong("contractId", why))
    }
}

/// A sender's reference to a contract, and the time of the request.
#[derive(Debug, Clone, Copy)]
pub struct RulingRequest<'a> {
    /// The message's `contractId`.
    pub named: Option<&'a str>,
    /// The rule for a version in `named`.
    pub pinned: PinnedVersionRule,
    /// The time of the request.
    pub at: Micros,
}

/// The rule for a version that a sender names and that is not in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PinnedVersionRule {
    /// The handoff is refused.
    #[default]
    Refused,
    /// That version rules.
    Accepted,
    /// The version in force rules: for a message that was judged before.
    Ignored,
}

/// Why no contract can rule the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulingError {
    /// Name of the clause that refuses.
    pub clause: &'static str,
    /// The reason, as a sentence.
    pub why: String,
}

/// Whether a contract declares the edge, by ids or types.
#[must_use]
pub fn speaks_of(contract: &Contract, source: &Agent, target: &Agent) -> bool {
    let is =
        |name: &str, agent: &Agent| name == agent.agent_id.as_str() || name == agent.agent_type;
    is(&contract.source, source) && is(&contract.target, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Deprecation;

    fn ready(id: &str, version: &str, source: &str, target: &str) -> Arc<CompiledContract> {
        let contract = Contract {
            id: id.to_owned(),
            version: Some(version.parse().unwrap()),
            source: source.to_owned(),
            target: target.to_owned(),
            ..Contract::default()
        };
        Arc::new(CompiledContract::new(contract, String::new(), String::new(), Micros(0)))
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
            Arc::new(CompiledContract::new(contract, String::new(), String::new(), Micros(0)))
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
    fn f3_4_a_contract_past_its_sunset_gives_way_to_its_replacement_or_refuses() {
        let ended = |replacement: Option<&str>| {
            let mut contract = ready("old", "1.0.0", "a", "b").contract().clone();
            let replacement_id = replacement.map(str::to_owned);
            contract.deprecation =
                Some(Deprecation { since: None, sunset: Some(100), replacement_id });
            Arc::new(CompiledContract::new(contract, String::new(), String::new(), Micros(0)))
        };
        let (a, b) = (agent("a", "x"), agent("b", "y"));
        let rules = |catalog: &Catalog, named: Option<&str>, seconds: i64| {
            let at = Micros(seconds * 1_000_000);
            let asked = RulingRequest { named, pinned: PinnedVersionRule::Refused, at };
            let found = catalog.ruling(&a, &b, asked);
            found.map(|found| found.map(|ready| ready.contract().id.clone())).map_err(|no| no.why)
        };
        let heir = Catalog::new(vec![ended(Some("next")), ready("next", "1.0.0", "a", "b")]);
        assert_eq!(rules(&heir, Some("old"), 99), Ok(Some("old".to_owned())));
        assert_eq!(rules(&heir, None, 100), Ok(Some("next".to_owned())));
        assert!(rules(&heir, Some("old"), 100).unwrap_err().contains("`next` takes its place"));
        let elsewhere = Catalog::new(vec![ended(Some("next")), ready("next", "1.0.0", "a", "c")]);
        assert!(rules(&elsewhere, None, 100).unwrap_err().contains("`next`"));
        assert!(rules(&Catalog::new(vec![ended(None)]), None, 100).is_err());
    }

    #[test]
    fn x15_the_most_specific_contract_rules_in_its_highest_version() {
        let catalog = Catalog::new(vec![
            ready("roles", "2.0.0", "triage", "refund"),
            ready("roles", "10.0.0", "triage", "refund"),
            ready("to-one", "1.0.0", "triage", "refund-2"),
            ready("exact", "1.0.0", "triage-1", "refund-2"),
        ]);
        let asked =
            |source: &Agent, target: &Agent, named: Option<&str>, pinned: PinnedVersionRule| {
                catalog
                    .ruling(source, target, RulingRequest { named, pinned, at: Micros(0) })
                    .map(|found| found.map(|ready| ready.contract().to_string()))
                    .map_err(|no| no.why)
            };
        let rules = |source: &Agent, target: &Agent, named: Option<&str>| {
            asked(source, target, named, PinnedVersionRule::Refused)
        };
        let (t1, t2) = (agent("triage-1", "triage"), agent("triage-2", "triage"));
        let (r1, r2) = (agent("refund-1", "refund"), agent("refund-2", "refund"));
        assert_eq!(rules(&t2, &r1, None), Ok(Some("roles 10.0.0".to_owned())));
        assert_eq!(rules(&t2, &r2, None), Ok(Some("to-one 1.0.0".to_owned())));
        assert_eq!(rules(&t1, &r2, None), Ok(Some("exact 1.0.0".to_owned())));
        assert_eq!(rules(&r1, &t1, None), Ok(None));
        let old = Some("roles@2.0.0");
        assert!(rules(&t1, &r2, old).unwrap_err().contains("rules in version 10.0.0"));
        assert_eq!(
            asked(&t1, &r2, old, PinnedVersionRule::Accepted),
            Ok(Some("roles 2.0.0".to_owned()))
        );
        let now = Ok(Some("roles 10.0.0".to_owned()));
        assert_eq!(asked(&t1, &r2, old, PinnedVersionRule::Ignored), now);
        assert_eq!(rules(&t1, &r2, Some("roles@10.0.0")), now);
        assert!(rules(&r1, &t1, Some("roles")).unwrap_err().contains("is about"));
        assert!(rules(&t1, &r1, Some("roles@3.0.0")).unwrap_err().contains("does not exist"));
        assert_eq!(rules(&t1, &r1, Some("other")), Ok(Some("roles 10.0.0".to_owned())));
    }
}
