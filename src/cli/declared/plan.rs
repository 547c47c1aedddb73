//! The difference between declared objects and those of a broker, as steps. Pure.

use serde_json::{Map, Value, json};

use super::object::{Key, Kind, Object, Objects};
use handoffd_domain::failure::escaped;

/// A step from the broker's object to the declared one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    Create,
    Update,
    Remove,
    /// A difference that no request can settle, with the reason.
    Conflict(String),
}

impl Action {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Remove => "remove",
            Self::Conflict(_) => "conflict",
        }
    }
}

/// One member that differs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    pub(super) pointer: String,
    /// The broker's value; none where the member is absent.
    pub(super) from: Option<Value>,
    /// The declared value.
    pub(super) to: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) have: Option<Object>,
    pub(super) want: Option<Object>,
    pub(super) differences: Vec<Difference>,
}

impl Step {
    pub(super) fn key(&self) -> &Key {
        match (&self.want, &self.have) {
            (Some(object), _) | (None, Some(object)) => &object.key,
            (None, None) => unreachable!("a step has an object"),
        }
    }
}

/// The steps, in the order in which they are carried out, and the objects that are left alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// How many objects are as they are declared.
    pub(super) same: usize,
    /// Objects of the broker that are not declared, and stay.
    pub(super) undeclared: Vec<Key>,
    /// Among them, with pruning: versions that a broker never takes away.
    pub(super) kept: Vec<Key>,
}

impl Plan {
    pub(super) fn conflicts(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| matches!(step.action, Action::Conflict(_)))
    }

    /// Whether the broker differs from the files.
    pub(super) fn is_drift(&self) -> bool {
        !self.steps.is_empty() || !self.kept.is_empty()
    }
}

/// Plans; with `prune`, objects that are not declared are removed.
pub(super) fn plan(have: &Objects, want: &Objects, prune: bool) -> Plan {
    let mut plan = Plan::default();
    for (key, wanted) in want {
        match step(have.get(key), wanted, have, want) {
            Some(step) => plan.steps.push(step),
            None => plan.same += 1,
        }
    }
    let mut undeclared: Vec<&Object> = have
        .iter()
        .filter(|(key, object)| !want.contains_key(key) && !is_idle(object))
        .filter(|(key, _)| !is_history(key, want))
        .map(|(_, object)| object)
        .collect();
    if !prune {
        plan.undeclared = undeclared.into_iter().map(|object| object.key.clone()).collect();
        return plan;
    }
    // An allowlist goes with its agent.
    let goes = |name: &str| {
        let agent = Key::new(Kind::Agent, name);
        have.contains_key(&agent) && !want.contains_key(&agent)
    };
    undeclared.retain(|object| object.key.kind != Kind::Allowlist || !goes(&object.key.name));
    for object in undeclared.into_iter().rev() {
        if object.key.kind.is_versioned() {
            plan.kept.push(object.key.clone());
            continue;
        }
        plan.steps.push(Step {
            action: Action::Remove,
            have: Some(object.clone()),
            want: None,
            differences: Vec::new(),
        });
    }
    plan.kept.reverse();
    plan
}

/// Every agent begins with an allowlist that permits nothing.
fn is_idle(object: &Object) -> bool {
    object.key.kind == Kind::Allowlist
        && object.body.get("handoffTargets").is_some_and(|targets| *targets == json!([]))
}

/// An earlier version of a declared contract or schema: the broker keeps it, and it rules nothing new.
fn is_history(key: &Key, want: &Objects) -> bool {
    key.kind.is_versioned()
        && want.keys().any(|other| {
            other.kind == key.kind && other.name == key.name && other.version > key.version
        })
}

fn step(have: Option<&Object>, want: &Object, held: &Objects, declared: &Objects) -> Option<Step> {
    let made = |action, differences| {
        Some(Step { action, have: have.cloned(), want: Some(want.clone()), differences })
    };
    if let Some(why) = overruled(&want.key, held, declared) {
        return made(Action::Conflict(why), Vec::new());
    }
    let Some(before) = have else {
        return if is_idle(want) { None } else { made(Action::Create, Vec::new()) };
    };
    let mut before = before.body.clone();
    if want.key.kind == Kind::Agent && !want.body.contains_key("state") {
        before.remove("state");
    }
    let differences = differences(&before, &want.body);
    let of_credentials = |one: &Difference| one.pointer == "/credentialsSet";
    match (differences.is_empty(), want.key.kind.is_versioned()) {
        (true, _) => None,
        (false, false) if differences.iter().any(of_credentials) => {
            let why = "a subscription keeps the credentials that it was made with: remove it (`handoffd subscriptions delete`), and the next run makes it anew";
            made(Action::Conflict(why.to_owned()), differences)
        }
        (false, false) => made(Action::Update, differences),
        (false, true) => {
            let why = "the broker has another content under this version, and keeps it: give this content a new version";
            made(Action::Conflict(why.to_owned()), differences)
        }
    }
}

/// The highest version of a contract rules its edge. A higher one that is not declared would rule in place of the declared.
fn overruled(key: &Key, held: &Objects, declared: &Objects) -> Option<String> {
    if key.kind != Kind::Contract {
        return None;
    }
    let highest = |objects: &Objects| {
        let versions = objects.keys().filter(|one| one.kind == key.kind && one.name == key.name);
        versions.filter_map(|one| one.version.clone()).max()
    };
    let rules = highest(held).filter(|rules| Some(rules) > highest(declared).as_ref())?;
    // Said of the highest that is declared: the others are its history.
    (key.version == highest(declared)).then(|| {
        format!("the broker has version {rules}, which rules in its place: declare that one (`handoffd dump` writes it), or a higher one")
    })
}

/// The members that differ, at the deepest place that both have.
pub(super) fn differences(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found.sort_by(|one, other| one.pointer.cmp(&other.pointer));
    found
}

fn compare(
    at: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    found: &mut Vec<Difference>,
) {
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    for name in gone.chain(after.keys()) {
        let pointer = format!("{at}/{}", escaped(name));
        match (before.get(name), after.get(name)) {
            (Some(Value::Object(from)), Some(Value::Object(to))) => {
                compare(&pointer, from, to, found);
            }
            (from, to) if from != to => {
                found.push(Difference { pointer, from: from.cloned(), to: to.cloned() });
            }
            _ => {}
        }
    }
}
