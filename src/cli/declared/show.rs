//! Plans and outcomes for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::carry::{CarryError, Outcome};
use super::check::Findings;
use super::files::Declared;
use super::object::Key;
use super::plan::{Action, Difference, Plan, Step};
use crate::cli::plain::{json as plain_json, plain};

/// Longest value in the text of a plan, in characters.
const MAX_SHOWN: usize = 100;

/// A plan for people.
pub(super) fn text(plan: &Plan, declared: &Declared, findings: &Findings) -> String {
    let mut out = String::new();
    for step in &plan.steps {
        let file = declared.file(step.key()).map(|file| format!("  ({})", file.display()));
        let mark = match step.action {
            Action::Create => '+',
            Action::Update => '~',
            Action::Remove => '-',
            Action::Conflict(_) => '!',
        };
        let _ = writeln!(
            out,
            "{mark} {}{}",
            plain(&step.key().to_string()),
            plain(&file.unwrap_or_default())
        );
        if let Action::Conflict(why) = &step.action {
            let _ = writeln!(out, "    {}", plain(why));
        }
        for one in &step.differences {
            let shown = |value: &Option<Value>| value.as_ref().map_or("(default)".into(), brief);
            let (from, to) = (shown(&one.from), shown(&one.to));
            let _ = writeln!(out, "    {}: {from} -> {to}", plain(&one.pointer));
        }
    }
    for key in &plan.kept {
        let _ = writeln!(
            out,
            "! {}\n    is not declared and cannot be removed: a broker keeps every version",
            plain(&key.to_string())
        );
    }
    for (key, (pointer, why)) in &findings.warnings {
        let _ = writeln!(out, "warning: {} at {}: {why}", plain(&key.to_string()), plain(pointer));
    }
    let count = |name: &str| plan.steps.iter().filter(|step| step.action.name() == name).count();
    let _ = write!(
        out,
        "{} to create, {} to change, {} to remove; {} as declared",
        count("create"),
        count("update"),
        count("remove"),
        plan.same
    );
    match count("conflict") {
        0 => {}
        conflicts => _ = write!(out, "; {conflicts} in conflict"),
    }
    match plan.undeclared.len() {
        0 => out.push('\n'),
        more => {
            let names: Vec<String> = plan.undeclared.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                out,
                "; {more} not declared, and left alone: {}",
                plain(&names.join(", "))
            );
        }
    }
    out
}

fn brief(value: &Value) -> String {
    let text = plain_json(value, false);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn named(key: &Key) -> Value {
    let mut named = json!({ "kind": key.kind.name(), "name": key.name });
    if let Some(version) = &key.version {
        named["version"] = json!(version.to_string());
    }
    named
}

/// A plan for programs.
pub(super) fn value(plan: &Plan, declared: &Declared, findings: &Findings) -> Value {
    let names = |keys: &[Key]| keys.iter().map(named).collect::<Vec<_>>();
    let warning = |(key, (pointer, why)): &(Key, (String, String))| {
        let mut one = named(key);
        one["pointer"] = json!(pointer);
        one["message"] = json!(why);
        one
    };
    json!({
        "drift": plan.is_drift(),
        "steps": plan.steps.iter().map(|one| step(one, declared)).collect::<Vec<_>>(),
        "same": plan.same,
        "undeclared": names(&plan.undeclared),
        "kept": names(&plan.kept),
        "warnings": findings.warnings.iter().map(warning).collect::<Vec<_>>(),
    })
}

fn step(step: &Step, declared: &Declared) -> Value {
    let mut shown = named(step.key());
    shown["action"] = json!(step.action.name());
    if let Some(file) = declared.file(step.key()) {
        shown["file"] = json!(file.display().to_string());
    }
    if let Action::Conflict(why) = &step.action {
        shown["reason"] = json!(why);
    }
    let difference = |one: &Difference| {
        let mut shown = json!({ "pointer": one.pointer });
        if let Some(from) = &one.from {
            shown["from"] = from.clone();
        }
        if let Some(to) = &one.to {
            shown["to"] = to.clone();
        }
        shown
    };
    if !step.differences.is_empty() {
        shown["differences"] = step.differences.iter().map(difference).collect();
    }
    shown
}

/// The result of a plan, for programs.
pub(super) fn outcome_value(outcome: &Outcome) -> Value {
    let steps = |steps: &[(&'static str, Key)]| -> Vec<Value> {
        steps.iter().map(|(action, key)| acted(action, key)).collect()
    };
    let warning = |(key, words): &(Key, Value)| {
        let mut one = named(key);
        one["warning"] = words.clone();
        one
    };
    let mut shown = json!({
        "done": steps(&outcome.done),
        "notDone": steps(&outcome.left),
        "warnings": outcome.warnings.iter().map(warning).collect::<Vec<_>>(),
    });
    if let Some((action, key, err)) = &outcome.failed {
        let mut failed = acted(action, key);
        failed["reason"] = json!(reason(err));
        shown["failed"] = failed;
    }
    shown
}

fn acted(action: &str, key: &Key) -> Value {
    let mut one = named(key);
    one["action"] = json!(action);
    one
}

pub(super) fn reason(err: &CarryError) -> String {
    match err {
        CarryError::Api(err) => err.to_string(),
        CarryError::Secrets(why) => format!(
            "the broker made it, and its secrets could not be kept: {why}; rotate them (`handoffd agents rotate-secret`, `handoffd keys create`)"
        ),
    }
}

/// The result of a plan, for people.
pub(super) fn outcome_text(outcome: &Outcome) -> String {
    let mut out = String::new();
    for (key, words) in &outcome.warnings {
        let text = |name: &str| {
            plain(words.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned()
        };
        let _ = writeln!(
            out,
            "warning: {} at {}: {} ({})",
            plain(&key.to_string()),
            text("pointer"),
            text("message"),
            text("code")
        );
    }
    let steps = |steps: &[(&'static str, Key)]| {
        let all: Vec<String> =
            steps.iter().map(|(action, key)| format!("{action} {key}")).collect();
        if all.is_empty() { "nothing".to_owned() } else { plain(&all.join(", ")).into_owned() }
    };
    match &outcome.failed {
        None => _ = writeln!(out, "{} done", outcome.done.len()),
        Some((action, key, err)) => {
            let _ = writeln!(out, "failed: {action} {}: {}", plain(&key.to_string()), reason(err));
            let _ = writeln!(out, "done before: {}", steps(&outcome.done));
            let _ = writeln!(out, "not done: {}", steps(&outcome.left));
            let _ = writeln!(out, "the next run goes on from here");
        }
    }
    out
}
