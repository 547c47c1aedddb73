//! The operators' tools: the page of metrics lists the metrics that the code registers, the rules use
//! metrics that exist, and each alert has its runbook.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use handoffd::metrics::Metrics;

const HEAD: &str = "# Metrics

The metrics that a broker serves at `GET /metrics` (on its own listener if `server.metrics_listen` is set), for Prometheus. Names after its
conventions, base units, labels from bounded sets. Histograms have `_bucket`, `_sum` and `_count`. A counter with labels
appears with its first count, but for those that alerts ask for, which begin with 0, so that an alert sees the first.
A submission is counted once, after the ledger's word. `transport` is how a handoff is delivered
(`webhook`, `pull` or another of `GET /transports`); a handoff is in `handoff_latency_seconds` when it is accepted, and with the broker's and the receiver's
share of that time in two more. This page is made from the code: `HANDOFFD_WRITE_DOCS=1 cargo test --test house watching`.

Alerting rules are in [config/prometheus/rules.yml](../config/prometheus/rules.yml), with a
[runbook](runbooks/README.md) each.

| metric | kind | labels | |
|---|---|---|---|
";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

fn metrics() -> Metrics {
    Metrics::new().expect("no two share a name")
}

#[test]
fn the_page_of_metrics_is_what_the_code_registers() {
    let mut page = HEAD.to_owned();
    for one in metrics().described() {
        let labels: Vec<_> = one.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{}` | {} | {} | {} |", one.name, one.kind, labels.join(", "), one.help)
            .expect("a string takes all");
    }
    let path = root().join("docs/metrics.md");
    if std::env::var_os("HANDOFFD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("a writable page");
    }
    assert!(read(&path) == page, "docs/metrics.md is not up to date; its head says how to make it");
}

#[test]
fn names_follow_prometheus_conventions() {
    for one in metrics().described() {
        let name = one.name.as_str();
        assert!(name.starts_with("handoff_"), "{name}");
        assert_eq!(one.kind == "counter", name.ends_with("_total"), "{name} is a {}", one.kind);
        assert!(one.help.ends_with('.'), "{name}: `{}`", one.help);
        let of_time = ["_ms", "_millis", "_us", "_micros", "_minutes"];
        assert!(!of_time.iter().any(|unit| name.ends_with(unit)), "{name}: seconds are the unit");
    }
}

/// The words of a rule file that look like metrics of ours.
fn used(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| word.starts_with("handoff_"))
        .map(str::to_owned)
        .collect()
}

/// The names under which Prometheus has our instruments.
fn series() -> BTreeSet<String> {
    metrics()
        .described()
        .iter()
        .flat_map(|one| match one.kind {
            "histogram" => {
                ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", one.name)).to_vec()
            }
            _ => vec![one.name.clone()],
        })
        .collect()
}

#[test]
fn rules_use_metrics_that_there_are() {
    let known = series();
    let folder = root().join("config/prometheus");
    for file in ["rules.yml", "rules_test.yml"] {
        let used = used(&read(&folder.join(file)));
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
        assert!(used.len() > 10, "{file}: {used:?}");
    }
}

/// The names of the alerts, as they stand in the rules.
fn alerts() -> BTreeSet<String> {
    let rules = read(&root().join("config/prometheus/rules.yml"));
    rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_alert_has_a_runbook_and_a_test_and_every_runbook_an_alert() {
    let folder = root().join("docs/runbooks");
    let pages: BTreeSet<String> = std::fs::read_dir(&folder)
        .expect("docs/runbooks is there")
        .filter_map(|entry| {
            let path = entry.expect("a readable entry").path();
            path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
        })
        .filter(|stem| stem != "README")
        .collect();
    assert_eq!(pages, alerts(), "left: docs/runbooks/*.md; right: the rules");
    let index = read(&folder.join("README.md"));
    let cases = read(&root().join("config/prometheus/rules_test.yml"));
    for alert in alerts() {
        assert!(index.contains(&format!("[{alert}]({alert}.md)")), "{alert} is not in the index");
        assert!(cases.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
        let page = read(&folder.join(format!("{alert}.md")));
        for section in ["**What it means.**", "## Look", "## Do"] {
            assert!(page.contains(section), "{alert}: {section}");
        }
    }
}

/// The vectors whose increase an alert asks for, each with the alert's expression.
fn increases() -> Vec<(String, String)> {
    let rules = read(&root().join("config/prometheus/rules.yml"));
    let expressions = rules.split("- alert: ").skip(1).map(|rule| {
        let expression = rule.split("expr:").nth(1).expect("an expression");
        expression.split("for:").next().unwrap_or_default().to_owned()
    });
    let of = |expression: String| {
        let parts = expression.split("increase(").skip(1);
        let vectors = parts.map(|rest| rest.split('[').next().unwrap_or_default().to_owned());
        vectors.map(|vector| (vector, expression.clone())).collect::<Vec<_>>()
    };
    expressions.flat_map(of).collect()
}

/// Finding O5 of 0.3.0, driven again: the first 500 of a route raised no alert.
#[test]
fn an_alert_sees_the_count_with_which_a_series_begins() {
    let fresh = metrics().render().expect("text");
    let all = increases();
    assert!(all.len() > 8, "{all:?}");
    for (vector, expression) in all {
        let name = vector.split('{').next().unwrap_or_default();
        let from_zero = fresh
            .lines()
            .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
        let looks_back = expression.contains("unless") && expression.contains("offset");
        assert!(
            from_zero || looks_back,
            "{name} appears with its first count, of which `increase` sees nothing: let it begin with 0 (`Instruments::begin`)"
        );
    }
}

#[test]
fn every_panel_of_the_dashboard_asks_for_metrics_that_there_are() {
    let text = read(&root().join("config/grafana/dashboards/handoffd.json"));
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let known = series();
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut shown = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().expect("a title");
        let targets = panel["targets"].as_array().expect("queries");
        assert!(!targets.is_empty(), "{title} asks for nothing");
        for target in targets {
            let used = used(target["expr"].as_str().expect("a query"));
            let unknown: Vec<_> = used.difference(&known).collect();
            assert!(unknown.is_empty(), "{title}: {unknown:?}");
            shown.extend(used);
        }
    }
    assert!(shown.len() > 25, "{shown:?}");
}
