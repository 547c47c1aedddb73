//! The clauses that a contract may have.

use serde_json::Value;

use super::values::ObjectCursor;
use super::{ContractReader, DefectKind, MAX_TIME_MS, RECOMMENDED, WITHOUT_EFFECT};
use crate::contract::{Deprecation, HumanClause, Idempotency, Observability, Review, agent_id};
use handoffd_domain::policy::{HumanTarget, Moment, Orders};

impl ContractReader {
    /// Names a block that is absent as one that is empty is named.
    fn advise(&mut self, root: &ObjectCursor<'_>, name: &str, why: &str) {
        if root.get(name).is_none() {
            self.fault(RECOMMENDED, format!("/{name}"), format!("`{name}` is absent: {why}"));
        }
    }

    pub(super) fn observability(&mut self, root: &ObjectCursor<'_>) -> Option<Observability> {
        self.advise(root, "observability", "traces, audit and metrics do not name the edge");
        let at = self.object(root, "observability")?;
        self.unknown(&at, &["trace_id_field", "audit_event", "metrics"]);
        let trace_id_field = self.dotted(&at, "trace_id_field");
        if at.get("trace_id_field").is_none() {
            let why = "`observability.trace_id_field` is absent";
            self.fault(RECOMMENDED, "/observability", why.to_owned());
        }
        // It goes into records, which cannot be erased: a name, no sentence.
        let audit_event = self.text(&at, "audit_event").filter(|name| {
            let well = is_event_name(name);
            if !well {
                let why = "`audit_event` must be a name: letters, digits, `.`, `_`, `:` and `-`, 128 at most";
                self.invalid("/observability/audit_event", why.to_owned());
            }
            well
        });
        let metrics = self.names(&at, "metrics").unwrap_or_default();
        for (place, name) in metrics.iter().enumerate() {
            if !is_event_name(name) {
                let why =
                    "a metric must be a name: letters, digits, `.`, `_`, `:` and `-`, 128 at most";
                self.invalid(format!("/observability/metrics/{place}"), why.to_owned());
            } else if Moment::of_metric(name).is_none() {
                let kind = DefectKind::Noted("unknown-metric");
                let why = format!(
                    "no moment of a handoff is called `{name}`: each handoff that is committed counts"
                );
                self.fault(kind, format!("/observability/metrics/{place}"), why);
            }
        }
        let metrics = metrics.into_iter().filter(|name| is_event_name(name)).collect();
        Some(Observability { trace_id_field, audit_event, metrics })
    }

    pub(super) fn idempotency(&mut self, root: &ObjectCursor<'_>) -> Option<Idempotency> {
        self.advise(root, "idempotency", "it may be sent again, and repeats are not told");
        let at = self.object(root, "idempotency")?;
        self.unknown(&at, &["idempotent", "dedupe_key", "replay_window_ms"]);
        let dedupe_key = self.dotted(&at, "dedupe_key");
        let replay_window_ms = self.number(&at, "replay_window_ms", 1, MAX_TIME_MS);
        for (name, other) in
            [("dedupe_key", "replay_window_ms"), ("replay_window_ms", "dedupe_key")]
        {
            if at.get(name).is_some() && at.get(other).is_none() {
                let why = format!("`{name}` without `{other}` drops no repeat");
                self.fault(WITHOUT_EFFECT, at.pointer(name), why);
            }
        }
        for name in ["idempotent", "dedupe_key"] {
            let silent = name == "dedupe_key"
                && (at.get("idempotent").and_then(Value::as_bool) == Some(false)
                    || at.get("replay_window_ms").is_some());
            if at.get(name).is_none() && !silent {
                let why = format!("`idempotency.{name}` is absent");
                self.fault(RECOMMENDED, "/idempotency", why);
            }
        }
        Some(Idempotency { idempotent: self.flag(&at, "idempotent"), dedupe_key, replay_window_ms })
    }

    pub(super) fn human(&mut self, root: &ObjectCursor<'_>) -> Option<HumanClause> {
        let human = self.human_clause(root);
        if let Some(HumanClause { target: true, how }) = &human {
            let said = [
                ("channel", how.channel.is_some()),
                ("timeout_ms", how.timeout_ms.is_some()),
                ("resume_as", how.resume_as.is_some()),
            ];
            let absent: Vec<&str> =
                said.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
            if !absent.is_empty() {
                let at = if root.get("human_in_the_loop").is_some() {
                    "/human_in_the_loop"
                } else {
                    "/human_target"
                };
                let why =
                    format!("the target may be a person, and {} is not said", absent.join(", "));
                self.fault(RECOMMENDED, at, why);
            }
        }
        human
    }

    fn human_clause(&mut self, root: &ObjectCursor<'_>) -> Option<HumanClause> {
        let stated = self.flag(root, "human_target");
        match root.get("human_in_the_loop") {
            None => stated.map(|target| HumanClause { target, how: HumanTarget::default() }),
            Some(Value::Bool(target)) => {
                Some(HumanClause { target: stated.unwrap_or(*target), how: HumanTarget::default() })
            }
            Some(Value::Object(object)) => {
                let at = ObjectCursor { object, pointer: "/human_in_the_loop".to_owned() };
                self.unknown(
                    &at,
                    &["human_target", "channel", "timeout_ms", "resume_as", "synthetic_agent"],
                );
                let target = self.flag(&at, "human_target").or(stated);
                if target.is_none() {
                    self.invalid(
                        "/human_in_the_loop",
                        "`human_in_the_loop` must say whether `human_target` is true".to_owned(),
                    );
                }
                let name =
                    if at.get("resume_as").is_some() { "resume_as" } else { "synthetic_agent" };
                let resume_as = self.text(&at, name).and_then(|text| {
                    let id = agent_id(&text);
                    if id.is_none() {
                        self.invalid(at.pointer(name), format!("`{name}` must be an agent's id"));
                    }
                    id
                });
                let how = HumanTarget {
                    channel: self.text(&at, "channel"),
                    timeout_ms: self.number(&at, "timeout_ms", 1, MAX_TIME_MS),
                    resume_as,
                    ..HumanTarget::default()
                };
                Some(HumanClause { target: target.unwrap_or(false), how })
            }
            Some(_) => {
                self.invalid(
                    "/human_in_the_loop",
                    "`human_in_the_loop` must be true, false or a mapping".to_owned(),
                );
                None
            }
        }
    }

    pub(super) fn deprecation(&mut self, root: &ObjectCursor<'_>) -> Option<Deprecation> {
        if matches!(root.get("deprecation")?, Value::Bool(false)) {
            return None;
        }
        let at = self.object(root, "deprecation")?;
        self.unknown(&at, &["since", "sunset", "sunset_date", "replacement_id", "reason"]);
        let sunset = if at.get("sunset").is_some() { "sunset" } else { "sunset_date" };
        for name in [sunset, "replacement_id"] {
            if at.get(name).is_none() {
                let name = if name == "sunset_date" { "sunset" } else { name };
                let why = format!("`deprecation.{name}` is absent");
                self.fault(RECOMMENDED, "/deprecation", why);
            }
        }
        Some(Deprecation {
            since: self.date(&at, "since"),
            sunset: self.date(&at, sunset),
            replacement_id: self.text(&at, "replacement_id"),
        })
    }

    pub(super) fn reviews(&mut self, root: &ObjectCursor<'_>) -> Vec<Review> {
        match root.get("reviewed_by") {
            None => Vec::new(),
            Some(Value::Array(entries)) => entries
                .iter()
                .enumerate()
                .filter_map(|(place, entry)| self.review(entry, format!("/reviewed_by/{place}")))
                .collect(),
            Some(entry) => self.review(entry, "/reviewed_by".to_owned()).into_iter().collect(),
        }
    }

    fn review(&mut self, entry: &Value, pointer: String) -> Option<Review> {
        let review = match entry {
            Value::String(name) if !name.trim().is_empty() => {
                Review { name: name.clone(), ..Review::default() }
            }
            Value::Object(object) => {
                let at = ObjectCursor { object, pointer: pointer.clone() };
                self.unknown(&at, &["name", "at", "sha256"]);
                let sha256 = self.text(&at, "sha256").and_then(|text| {
                    let hash = text.strip_prefix("sha256:").unwrap_or(&text);
                    let well = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
                    if !well {
                        let why = "`sha256` must be 64 hexadecimal digits";
                        self.invalid(at.pointer("sha256"), why.to_owned());
                    }
                    well.then(|| hash.to_ascii_lowercase())
                });
                let name = self.text(&at, "name").unwrap_or_default();
                Review { name, at: self.date(&at, "at"), sha256 }
            }
            _ => Review::default(),
        };
        if review.name.trim().is_empty() {
            self.invalid(pointer, "`reviewed_by` must name who reviewed".to_owned());
            return None;
        }
        if review.at.is_none() || review.sha256.is_none() {
            let why = "a reviewer's entry says who (`name`), when (`at`) and what (`sha256` of the payload schema); this one counts for no level";
            self.fault(DefectKind::Noted("unsigned-review"), pointer, why.to_owned());
        }
        Some(review)
    }

    pub(super) fn orders(&mut self, root: &ObjectCursor<'_>) -> Option<Orders> {
        let text = self.text(root, "orders")?;
        let orders = Orders::parse(&text);
        if orders.is_none() {
            self.invalid(root.pointer("orders"), "must be mark, refuse or allow".to_owned());
        }
        orders
    }
}

fn is_event_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
}
