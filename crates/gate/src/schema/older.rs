//! The older form of a message, for a receiver that takes only older minor versions (specification §2.1; ruling A34).
//!
//! A minor version adds optional fields. The receiver does not need the fields that a schema document marks with `x-droppable`,
//! because the broker acts on them or also sends them beside the message. Without those fields a message may
//! fit the older minor. If it uses anything else of the newer one, it has no older form.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{CompiledSchema, MAJOR, SchemaFailures, Schemas, VERSIONS, parse_version};
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical;
use handoffd_domain::version_range::VersionRange;

/// The reason of a handoff that fails because its receiver takes no form of its message.
pub const SCHEMA_UNREADABLE: &str = "SCHEMA_UNREADABLE";

/// The form in which an agent receives a message.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageForm {
    /// The message as submitted.
    Original,
    /// The message in an older minor version.
    Older(OlderForm),
}

/// A message in an older minor version.
#[derive(Debug, Clone, PartialEq)]
pub struct OlderForm {
    /// The version, one of [`VERSIONS`].
    pub version: &'static str,
    pub message: Value,
    /// Names of the omitted top-level fields.
    pub dropped: Vec<String>,
}

/// Why no form of the message suits the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormError {
    /// The agent accepts neither the message's minor nor an older one.
    NoVersion,
    /// The message uses a field that the newest minor of the agent does not have; the first such pointer.
    Field(&'static str, String),
}

/// The minor of the message's version, if the major is known.
fn minor_of(message: &Value) -> Option<u32> {
    let claimed = message.get("schemaVersion")?.as_str()?;
    parse_version(claimed).filter(|(major, _)| *major == MAJOR).map(|(_, minor)| minor)
}

/// Whether a range includes this minor; patch versions do not count.
pub(super) fn takes(range: &VersionRange, minor: u32) -> bool {
    range.matches(&semver::Version::new(u64::from(MAJOR), u64::from(minor), 0))
}

impl Schemas {
    /// The form in which an agent gets a message that is valid under its own schema.
    ///
    /// # Errors
    /// [`FormError`].
    pub fn form_for(&self, message: &Value, agent: &Agent) -> Result<MessageForm, FormError> {
        let Some(range) = &agent.schema_versions else { return Ok(MessageForm::Original) };
        let Some(minor) = minor_of(message) else { return Ok(MessageForm::Original) };
        if takes(range, minor) {
            return Ok(MessageForm::Original);
        }
        let below = usize::try_from(minor).unwrap_or(usize::MAX).min(VERSIONS.len());
        let at = (0..below)
            .rev()
            .find(|at| takes(range, u32::try_from(*at).unwrap_or(u32::MAX)))
            .ok_or(FormError::NoVersion)?;
        let older = self.older(message, &self.known[at], agent.is_entitled(), &agent.agent_type);
        match self.lacking(&older.message, &self.known[at], message, minor) {
            None => Ok(MessageForm::Older(older)),
            Some(pointer) => Err(FormError::Field(VERSIONS[at], pointer)),
        }
    }

    /// The delivered bytes of a message in canonical form: as they are, or those of the older form.
    ///
    /// # Errors
    /// [`FormError`].
    pub fn delivered(&self, message: Bytes, agent: &Agent) -> Result<Bytes, FormError> {
        if agent.schema_versions.is_none() {
            return Ok(message);
        }
        let Ok(value) = serde_json::from_slice::<Value>(&message) else { return Ok(message) };
        Ok(match self.form_for(&value, agent)? {
            MessageForm::Original => message,
            MessageForm::Older(older) => canonical::to_vec(&older.message).into(),
        })
    }

    fn older(
        &self,
        message: &Value,
        to: &CompiledSchema,
        entitled: bool,
        agent_type: &str,
    ) -> OlderForm {
        let mut message = message.clone();
        let mut dropped = Vec::new();
        if let Some(members) = message.as_object_mut() {
            members.retain(|name, _| {
                let apart = name == "personalDataPayload" && !entitled;
                let keep =
                    to.names.contains(name) || !(apart || self.open.droppable.contains(name));
                // No receiver gets the checkpoint, and only an entitled one gets personal data: neither counts as dropped.
                if !keep && !apart && name != "checkpoint" {
                    dropped.push(name.clone());
                }
                keep
            });
            // An older minor has another value for it, or no field; the summary itself says which turns it replaces.
            if members.get("historyStrategy").is_some_and(|said| said == "compressed") {
                if to.names.iter().any(|name| name == "historyStrategy") {
                    members.insert("historyStrategy".to_owned(), json!("summary"));
                } else {
                    members.remove("historyStrategy");
                    dropped.push("historyStrategy".to_owned());
                }
            }
            members.insert("schemaVersion".to_owned(), json!(to.version));
        }
        // The receiver is already chosen, so its own role fills a role that the older schema requires.
        if let Some(target) = message.get_mut("toAgent").and_then(Value::as_object_mut) {
            for (name, value) in [("agentType", agent_type), ("agentVersion", "*")] {
                if to.of_target.iter().any(|required| required == name) {
                    target.entry(name).or_insert_with(|| json!(value));
                }
            }
        }
        OlderForm { version: to.version, message, dropped }
    }

    /// The first place at which the older form violates its schema. A part that violates the message's own
    /// schema as well (for example a marker in the place of a personal value) does not count.
    fn lacking(
        &self,
        older: &Value,
        to: &CompiledSchema,
        message: &Value,
        minor: u32,
    ) -> Option<String> {
        if to.validator().is_valid(older) {
            return None;
        }
        let pointers = |compiled: &CompiledSchema, message: &Value| {
            let mut found = SchemaFailures::default();
            self.collect(compiled, message, &mut found);
            found.failures.into_iter().map(|failure| failure.pointer).collect::<Vec<_>>()
        };
        let own = self.compiled(minor);
        let already = pointers(own, message);
        pointers(to, older).into_iter().find(|pointer| !already.contains(pointer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::agent::PERSONAL_DATA_PERMISSION;

    fn initial() -> Value {
        let text = include_str!("../../../../tests/vectors/messages/initial.json");
        serde_json::from_str(text).unwrap()
    }

    /// Fields of 2.0, and fields that a receiver does not need.
    fn plain() -> Value {
        let mut message = initial();
        for name in [
            "conversationId",
            "reason",
            "historyStrategy",
            "taskSummary",
            "maxIterations",
            "metadata",
            "extensions",
        ] {
            message.as_object_mut().unwrap().remove(name);
        }
        message
    }

    fn reader(range: &str) -> Agent {
        let mut agent = Agent::new("legal-1".parse().unwrap());
        agent.agent_type = "legal-analysis-agent".to_owned();
        agent.schema_versions = Some(range.parse().unwrap());
        agent
    }

    #[test]
    fn f5_5_a_message_without_what_is_new_has_an_older_form() {
        let schemas = Schemas::new();
        let MessageForm::Older(older) = schemas.form_for(&plain(), &reader("2.0")).unwrap() else {
            panic!("2.1 is not in 2.0")
        };
        assert_eq!((older.version, &older.message["schemaVersion"]), ("2.0", &json!("2.0")));
        assert_eq!(older.dropped, ["capabilitiesRequired", "priority", "receiverList"]);
        assert!(schemas.check(&older.message).is_ok());
        for range in ["2.x", "^2.0", "2.0 || 2.1", ">=2.1"] {
            assert_eq!(
                schemas.form_for(&plain(), &reader(range)),
                Ok(MessageForm::Original),
                "{range}"
            );
        }
        assert_eq!(
            schemas.form_for(&plain(), &Agent::new("any".parse().unwrap())),
            Ok(MessageForm::Original)
        );
    }

    #[test]
    fn f5_5_what_the_older_minor_lacks_and_the_work_needs_is_not_left_out() {
        let schemas = Schemas::new();
        for (name, value) in [
            ("toolState", json!({ "cursor": 7 })),
            ("taskSummary", json!("short")),
            ("provenance", json!({ "from": "x" })),
        ] {
            let mut message = plain();
            message[name] = value;
            let found = schemas.form_for(&message, &reader("2.0"));
            assert_eq!(found, Err(FormError::Field("2.0", format!("/{name}"))));
        }
        let mut entitled = reader("2.0");
        entitled.permissions.push(PERSONAL_DATA_PERMISSION.to_owned());
        let found = schemas.form_for(&plain(), &entitled);
        assert_eq!(found, Err(FormError::Field("2.0", "/personalDataPayload".to_owned())));
        let mut later = plain();
        later["schemaVersion"] = json!("2.9");
        later["somethingNew"] = json!(1);
        assert!(matches!(schemas.form_for(&later, &reader("<2.9")), Err(FormError::Field(_, _))));
        assert_eq!(schemas.form_for(&later, &reader("^2")), Ok(MessageForm::Original));
    }

    #[test]
    fn f5_5_an_agent_of_newer_minors_only_is_not_sent_an_older_message() {
        let mut message = plain();
        message["schemaVersion"] = json!("2.0");
        let found = Schemas::new().form_for(&message, &reader(">=2.1"));
        assert_eq!(found, Err(FormError::NoVersion));
    }

    #[test]
    fn f5_5_the_older_form_names_a_role_and_keeps_markers() {
        let schemas = Schemas::new();
        let mut message = plain();
        message["toAgent"] = json!({ "agentId": "legal-1" });
        message["taskDescription"] = json!({ "$personal": { "ordinal": 0 } });
        let MessageForm::Older(older) = schemas.form_for(&message, &reader("~2.0")).unwrap() else {
            panic!("2.1 is not in ~2.0")
        };
        let role = json!({ "agentId": "legal-1", "agentType": "legal-analysis-agent", "agentVersion": "*" });
        assert_eq!(older.message["toAgent"], role);
        let bytes = Bytes::from(canonical::to_vec(&message));
        let delivered = schemas.delivered(bytes.clone(), &reader("~2.0")).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&delivered).unwrap(), older.message);
        assert_eq!(schemas.delivered(bytes.clone(), &reader("2")).unwrap(), bytes);
    }
}
