//! References between objects, and the order of payload schemas: looked at before the first change. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::object::{Fault, Key, Kind, Object, Objects};
use super::plan::{Action, Plan, Step};
use super::read::{is_for_a_person, registered_schema};
use handoffd_gate::contract::evolution::{SchemaRelease, assess};
use handoffd_gate::contract::shelf::SchemaName;

/// The most versions of one schema whose order is searched for; the broker keeps 256.
const MAX_TRIES: usize = 2_000;

/// Faults of a plan, and members that are taken without full effect; each with its object.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    pub(super) faults: Vec<(Key, Fault)>,
    pub(super) warnings: Vec<(Key, Fault)>,
}

impl Findings {
    fn fault(&mut self, key: &Key, pointer: &str, why: String) {
        self.faults.push((key.clone(), (pointer.to_owned(), why)));
    }

    /// A name that has no effect.
    fn unknown(&mut self, key: &Key, pointer: &str, name: &str) {
        let why = format!("no agent is called `{name}`: without effect until one is");
        self.warnings.push((key.clone(), (pointer.to_owned(), why)));
    }
}

/// Checks a plan, and puts its payload schemas into an order in which the broker takes them.
pub(super) fn check(have: &Objects, want: &Objects, plan: &mut Plan) -> Findings {
    let mut findings = Findings::default();
    let names = Names::of(have, want, plan);
    for object in want.values() {
        references(object, &names, &mut findings);
    }
    for step in &plan.steps {
        if let (Action::Create, Kind::Contract, Some(object)) =
            (&step.action, step.key().kind, &step.want)
        {
            schema_of(object, have, want, &mut findings);
        }
    }
    order_schemas(have, plan, &mut findings);
    findings
}

/// The agents that there are after the plan, and their types.
struct Names {
    agents: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl Names {
    fn of(have: &Objects, want: &Objects, plan: &Plan) -> Self {
        let removed: BTreeSet<&Key> =
            plan.steps.iter().filter(|step| step.action == Action::Remove).map(Step::key).collect();
        let held = have.values().filter(|object| !removed.contains(&object.key));
        let held = held.filter(|object| !want.contains_key(&object.key));
        let (mut agents, mut types) = (BTreeSet::new(), BTreeSet::new());
        for object in held.chain(want.values()).filter(|object| object.key.kind == Kind::Agent) {
            let id = object.key.name.clone();
            let kind = object.body.get("agentType").and_then(Value::as_str);
            types.insert(kind.unwrap_or(&id).to_owned());
            agents.insert(id);
        }
        Self { agents, types }
    }

    fn target(&self, target: &str) -> bool {
        match target.strip_prefix("type:") {
            Some(name) => self.types.contains(name),
            None => self.agents.contains(target),
        }
    }
}

fn references(object: &Object, names: &Names, findings: &mut Findings) {
    let key = &object.key;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match key.kind {
        Kind::Allowlist | Kind::Cap => {
            if let Some(id) = text(object.body.get("agentId"))
                && !names.agents.contains(&id)
            {
                let why = format!("agent `{id}` is neither declared nor on the broker");
                findings.fault(key, "/agentId", why);
            }
            let targets = object.body.get("handoffTargets").and_then(Value::as_array);
            for (place, target) in targets.into_iter().flatten().enumerate() {
                let target = target.as_str().unwrap_or_default();
                if !names.target(target) {
                    findings.unknown(key, &format!("/handoffTargets/{place}"), target);
                }
            }
        }
        Kind::Subscription => {
            let id = text(object.body.get("filter").and_then(|filter| filter.get("agentId")));
            if let Some(id) = id.filter(|id| !names.agents.contains(id)) {
                findings.unknown(key, "/filter/agentId", &id);
            }
        }
        Kind::Agent => {
            let id = text(object.body.get("supervisorId"));
            if let Some(id) = id.filter(|id| !names.agents.contains(id)) {
                findings.unknown(key, "/supervisorId", &id);
            }
        }
        Kind::Contract => {
            for name in ["source", "target"] {
                let person = name == "target" && is_for_a_person(object);
                let Some(id) = text(object.body.get(name)).filter(|_| !person) else { continue };
                let plain = id.strip_prefix("type:").unwrap_or(&id);
                if !names.agents.contains(plain) && !names.types.contains(plain) {
                    findings.unknown(key, &format!("/{name}"), plain);
                }
            }
        }
        Kind::PayloadSchema => {}
    }
}

fn schema_of(object: &Object, have: &Objects, want: &Objects, findings: &mut Findings) {
    const AT: &str = "/payload/schema";
    match registered_schema(object) {
        Some(Err(why)) => findings.fault(&object.key, AT, why),
        Some(Ok(SchemaName { id, version })) => {
            let key = Key { kind: Kind::PayloadSchema, name: id, version: Some(version) };
            if !have.contains_key(&key) && !want.contains_key(&key) {
                let why = format!("{key} is neither declared nor on the broker");
                findings.fault(&object.key, AT, why);
            }
        }
        None => {}
    }
}

fn release(object: &Object) -> Option<SchemaRelease> {
    let version = object.key.version.clone()?;
    Some(SchemaRelease { version, schema: object.body.get("schema")?.clone() })
}

/// A version is held against those that are there already, so that the order counts: by version where the broker takes them
/// so, else in the first order that it takes.
fn order_schemas(have: &Objects, plan: &mut Plan, findings: &mut Findings) {
    let is_new =
        |step: &Step| step.action == Action::Create && step.key().kind == Kind::PayloadSchema;
    let mut pending: BTreeMap<String, Vec<Object>> = BTreeMap::new();
    for step in plan.steps.iter().filter(|step| is_new(step)) {
        let object = step.want.clone();
        pending.entry(step.key().name.clone()).or_default().extend(object);
    }
    let mut ordered = Vec::new();
    for (name, objects) in pending {
        let held = have
            .values()
            .filter(|object| object.key.kind == Kind::PayloadSchema && object.key.name == name);
        let mut known: Vec<SchemaRelease> = held.filter_map(release).collect();
        let mut tries = 0;
        match admissible(&mut known, &objects, &mut tries) {
            Some(order) => ordered.extend(order.into_iter().map(|at| objects[at].key.clone())),
            None => refused(&mut known, &objects, findings),
        }
    }
    let place = |step: &Step| ordered.iter().position(|key| key == step.key());
    // Stable: the other steps keep their order, behind the new schemas.
    plan.steps.sort_by_key(|step| if is_new(step) { place(step) } else { Some(usize::MAX) });
}

fn takes(known: &[SchemaRelease], object: &Object) -> Vec<Fault> {
    let Some(new) = release(object) else { return Vec::new() };
    let migration = object.body.contains_key("migration");
    let assessed = assess(known, Some(&new.version), &new.schema, migration);
    assessed.faults.into_iter().map(|fault| (fault.pointer, fault.message)).collect()
}

/// An order of the objects in which each is taken: their places.
fn admissible(
    known: &mut Vec<SchemaRelease>,
    objects: &[Object],
    tries: &mut usize,
) -> Option<Vec<usize>> {
    let there = |known: &[SchemaRelease], object: &Object| {
        known.iter().any(|one| Some(&one.version) == object.key.version.as_ref())
    };
    let left: Vec<usize> = (0..objects.len()).filter(|at| !there(known, &objects[*at])).collect();
    if left.is_empty() {
        return Some(Vec::new());
    }
    for at in left {
        *tries += 1;
        if *tries > MAX_TRIES {
            return None;
        }
        if !takes(known, &objects[at]).is_empty() {
            continue;
        }
        known.extend(release(&objects[at]));
        if let Some(mut rest) = admissible(known, objects, tries) {
            rest.insert(0, at);
            return Some(rest);
        }
        known.pop();
    }
    None
}

/// The faults of the versions in their order by number.
fn refused(known: &mut Vec<SchemaRelease>, objects: &[Object], findings: &mut Findings) {
    for object in objects {
        for (pointer, why) in takes(known, object) {
            findings.fault(&object.key, &pointer, why);
        }
        known.extend(release(object));
    }
}
