//! Checks of a contract against what is registered: its schema, its agents and their permissions.

use super::LintedContract;
use super::checks::ContractFindings;
use super::subject::SchemaFile;
use crate::contract::level::{ReviewEvidence, is_url};
use crate::contract::registry::Registry;
use crate::contract::shelf::SchemaName;
use crate::contract::{Contract, SchemaRef};
use handoffd_domain::policy::Recovery;

impl ContractFindings<'_> {
    /// Finds the schema, and holds it against its reviews.
    pub(super) fn review(
        &mut self,
        one: &LintedContract<'_>,
        registry: Option<&Registry>,
    ) -> ReviewEvidence {
        let mut outside = ReviewEvidence::default();
        let pointer = "/payload/schema";
        let name = match &one.contract.payload.schema {
            None => return outside,
            Some(SchemaRef::Inline(_)) => None,
            Some(SchemaRef::Named(name)) => Some(name),
        };
        let shown = name.map_or("the schema", String::as_str);
        let found = match &one.schema {
            SchemaFile::Enforceable(found) => found,
            SchemaFile::NotLooked => {
                let why = if is_url(shown) {
                    "is a URL: a frozen schema lies in a file, in `schemas`, or in the registry"
                } else {
                    "is not a file, is not among `schemas`, and is not registered: it cannot be enforced"
                };
                self.add("schema-drift", pointer, format!("`{shown}` {why}"));
                return outside;
            }
            SchemaFile::Unchecked(hint) => {
                let why = format!("`{shown}` was not checked: {hint}");
                self.add("unchecked-schema", pointer, why);
                return outside;
            }
            SchemaFile::Unfit(why) => {
                self.add("schema-drift", pointer, format!("`{shown}`: {why}"));
                return outside;
            }
            SchemaFile::Missing => {
                let why = match SchemaName::parse(shown) {
                    Some(_) => format!("`{shown}` is not registered"),
                    None => format!("the file `{shown}` does not exist"),
                };
                self.add("schema-drift", pointer, why);
                return outside;
            }
        };
        let changed = |by: &str, then: &str| {
            let now = found.sha256();
            format!("`{shown}` has changed since {by}: sha256 is {now}, and was {then}")
        };
        match name.and_then(|name| registry.and_then(|registry| registry.reviewed(name))) {
            Some(then) if found.has(then) => outside.frozen = true,
            Some(then) => {
                self.add("schema-drift", pointer, changed("the last review", then));
            }
            None => {}
        }
        for review in &one.contract.reviews {
            let (Some(_), Some(then)) = (review.at, &review.sha256) else { continue };
            if found.has(then) {
                (outside.frozen, outside.signed) = (true, true);
            } else {
                let why = changed(&format!("{} reviewed it", review.name), then);
                self.add("schema-drift", "/reviewed_by", why);
            }
        }
        outside
    }

    /// Checks that each party that gets control after a failure is a registered agent.
    pub(super) fn ways(&mut self, contract: &Contract, registry: &Registry) {
        let recovery = &contract.recovery;
        let ways = [
            ("/recovery/on_reject", &recovery.on_reject),
            ("/recovery/on_timeout", &recovery.on_timeout),
            ("/recovery/on_error", &recovery.on_error),
        ];
        let resume = contract.human.as_ref().and_then(|human| human.how.resume_as.as_ref());
        let named = ways.iter().filter_map(|(pointer, way)| match way {
            Some(Recovery::Agent(id)) => Some((*pointer, id)),
            _ => None,
        });
        for (pointer, id) in named.chain(resume.map(|id| ("/human_in_the_loop/resume_as", id))) {
            if !registry.agents.iter().any(|agent| agent.agent_id == id.as_str()) {
                let why = format!("no agent of the registry has the id `{id}`");
                self.add("orphan-recovery", pointer, why);
            }
        }
        let supervised = ways.iter().find(|(_, way)| *way == &Some(Recovery::Supervisor));
        let parties = [&contract.source, &contract.target];
        let mut agents = parties.into_iter().flat_map(|name| registry.named(name)).peekable();
        if let Some((pointer, _)) = supervised
            && registry.supervisors
            && agents.peek().is_some()
            && !agents.any(|agent| {
                agent
                    .supervisor_id
                    .as_ref()
                    .is_some_and(|id| registry.agents.iter().any(|other| other.agent_id == *id))
            })
        {
            let why = format!(
                "neither {} nor {} has a `supervisorId` that is registered: the task goes back to its source",
                contract.source, contract.target
            );
            self.add("no-supervisor", pointer, why);
        }
    }

    pub(super) fn target(&mut self, contract: &Contract, registry: &Registry) {
        let target = &contract.target;
        if !target.is_empty() && registry.named(target).next().is_none() {
            self.add(
                "orphan-target",
                "/target",
                format!("no agent of the registry has the id or type `{target}`"),
            );
        }
    }

    pub(super) fn reach(&mut self, contract: &Contract, registry: &Registry) {
        let (source, target) = (&contract.source, &contract.target);
        if source.is_empty() || target.is_empty() {
            return;
        }
        let target_type = registry.named(target).find_map(|agent| agent.agent_type.as_deref());
        let tool_call = contract.trigger.tool_call.as_deref();
        let mut sources = registry.named(source).peekable();
        let unknown = sources.peek().is_none();
        if sources.any(|agent| agent.exposes(target, target_type, tool_call)) {
            return;
        }
        let pointer =
            if contract.trigger.tool_call.is_some() { "/trigger/tool_call" } else { "/trigger" };
        let why = match (unknown, tool_call) {
            (true, _) => format!("the source `{source}` is not in the registry"),
            (false, Some(tool)) => {
                format!("`{source}` has no tool `{tool}`, and no prompt that leads to {target}")
            }
            (false, None) => format!("`{source}` has no tool and no prompt that lead to {target}"),
        };
        self.add("unreachable-handoff", if unknown { "/source" } else { pointer }, why);
    }

    pub(super) fn permission(&mut self, contract: &Contract, registry: &Registry) {
        if let (Some(rule), Some(known)) =
            (&contract.acceptance.permission_check, &registry.permissions)
            && !known.contains(rule)
        {
            self.add(
                "permission-mismatch",
                "/acceptance_criteria/permission_check",
                format!("`{rule}` is not declared in the permission registry"),
            );
        }
    }
}
