//! The metrics and the settings that pages name.

use std::collections::BTreeSet;

use handoffd::metrics::Metrics;
use handoffd_domain::event::EventType;
use regex::Regex;
use serde_json::Value;

use super::{Page, none, pages, read, root};

/// The names under which Prometheus has what the broker registers.
fn series() -> BTreeSet<String> {
    let metrics = Metrics::new().expect("no two share a name");
    let ends = |kind: &str| {
        if kind == "histogram" { &["", "_bucket", "_sum", "_count"][..] } else { &[""] }
    };
    metrics
        .described()
        .iter()
        .flat_map(|one| ends(one.kind).iter().map(move |end| format!("{}{end}", one.name)))
        .collect()
}

/// Words that begin as metrics do, and are fields, columns, keys or ids.
const NO_METRICS: [&str; 12] = [
    "handoff_id",
    "handoff_to_specialist",
    "handoff_targets",
    "handoff_summary",
    "handoff_tool",
    "handoff_started",
    "handoff_completed",
    "handoff_and_verdict",
    "handoff_pb2",
    "handoff_lag",
    "handoff_status",
    "handoff_context",
];

/// A page of an SDK: its names with dots and underscores are those of Python and TypeScript.
fn is_of_an_sdk(page: &Page) -> bool {
    page.name.starts_with("docs/sdk/")
}

pub(super) fn unknown_metrics(page: &Page) -> Vec<String> {
    let word = Regex::new(r"\bhandoff_[a-z][a-z0-9_]*").expect("a pattern");
    let known = series();
    let rules = read(&root().join("config/prometheus/rules.yml"));
    let texts = page
        .spans
        .iter()
        .map(String::as_str)
        .chain(page.fences.iter().map(|fence| fence.text.as_str()));
    let mut faults = BTreeSet::new();
    for text in texts {
        for found in word.find_iter(text) {
            let name = found.as_str();
            let after = &text[found.end()..];
            // A file, a family (`handoff_archive_…`), a recorded name.
            let other = after.starts_with(".rs")
                || after.starts_with('(')
                || name.ends_with('_')
                || after.starts_with('…');
            if !known.contains(name)
                && !other
                && !NO_METRICS.contains(&name)
                && !rules.contains(&format!("record: {name}"))
            {
                faults.insert(format!("{}: no metric {name}", page.name));
            }
        }
    }
    faults.into_iter().collect()
}

#[test]
fn f4_5_every_metric_that_is_named_is_counted() {
    let faults: Vec<_> =
        pages().iter().filter(|page| !is_of_an_sdk(page)).flat_map(unknown_metrics).collect();
    none(&faults, "metrics");
}

/// Dotted names that are no settings: tables, members of answers, names of spans' attributes.
const NO_SETTINGS: [&str; 22] = [
    "config.handoff_targets",
    "deprecation.sunset",
    "observability.audit_event",
    "audit.records",
    "audit.log_heads",
    "audit.nodes",
    "audit.tree_keys",
    "audit.identity",
    "tasks.fence",
    "delivery.config",
    "delivery.credentials",
    "delivery.failing",
    "delivery.mode",
    "delivery.format",
    "delivery.url",
    "candidate.contract",
    "candidate.safety",
    "candidate.schema",
    "verification.unavailable",
    "verification.purged",
    "span.trace_id",
    "checkpoint.state",
];

/// Kinds of files that dotted names end in.
const FILES: [&str; 12] =
    ["rs", "toml", "json", "jsonl", "html", "key", "md", "py", "sql", "yml", "yaml", "zst"];

/// The configuration in a settings file.
fn settings(text: &str) -> config::Config {
    let file = config::File::from_str(text, config::FileFormat::Toml);
    config::Config::builder().add_source(file).build().expect("TOML")
}

fn is_setting(defaults: &config::Config, name: &str) -> bool {
    defaults.get::<config::Value>(name).is_ok()
}

pub(super) fn unknown_settings(page: &Page) -> Vec<String> {
    let dotted = Regex::new(r"^[a-z_]+(?:\.[a-z_0-9]+)+$").expect("a pattern");
    let variable = Regex::new(r"\bHANDOFFD_([A-Z0-9]+(?:_[A-Z0-9]+)*__[A-Z0-9_]*[A-Z0-9])\b")
        .expect("a pattern");
    let defaults = settings(&read(&root().join("config/default.toml")));
    let mut faults = Vec::new();
    // These name what traces and contracts call things; settings there are followed by their section.
    let own_words = ["docs/tracing.md", "docs/contracts.md"].contains(&page.name.as_str());
    for span in page.spans.iter().filter(|span| dotted.is_match(span)) {
        let file = span.rsplit('.').next().is_some_and(|end| FILES.contains(&end));
        let event = EventType::ALL.iter().any(|one| one.to_string() == *span)
            || span == "agent.handoff.occurred";
        let known = is_setting(&defaults, span) || NO_SETTINGS.contains(&span.as_str());
        if !known && !file && !event && !own_words {
            faults.push(format!("{}: {span} is not a setting", page.name));
        }
    }
    let fenced = page.fences.iter().map(|fence| fence.text.as_str());
    for text in page.spans.iter().map(String::as_str).chain(fenced) {
        for found in variable.captures_iter(text) {
            let name = found[1].to_lowercase().replace("__", ".");
            if !is_setting(&defaults, &name) {
                faults.push(format!("{}: HANDOFFD_{} is not a setting", page.name, &found[1]));
            }
        }
    }
    for fence in page.fences.iter().filter(|fence| fence.language == "toml") {
        let shown: Value = settings(&fence.text).try_deserialize().expect("a table");
        for (section, value) in shown.as_object().into_iter().flatten() {
            for key in value.as_object().into_iter().flat_map(serde_json::Map::keys) {
                let name = format!("{section}.{key}");
                if !is_setting(&defaults, &name) {
                    faults.push(format!("{}: {name} is not a setting", page.name));
                }
            }
        }
    }
    faults
}

#[test]
fn f4_5_every_setting_that_is_named_is_in_the_defaults() {
    let faults: Vec<_> =
        pages().iter().filter(|page| !is_of_an_sdk(page)).flat_map(unknown_settings).collect();
    none(&faults, "settings");
}
