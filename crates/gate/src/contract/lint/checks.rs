//! Checks of a contract by itself and beside others.

use std::collections::BTreeSet;

use super::rules::rule;
use super::{LintContext, LintFinding, LintedContract};
use crate::contract::document::Document;
use crate::contract::registry::Registry;
use crate::contract::{Contract, ContractDefect, DefectKind, HistoryStrategy, payload, versions};

/// The findings on one document.
pub(super) struct ContractFindings<'a> {
    pub(super) document: &'a Document,
    pub(super) findings: Vec<LintFinding>,
}

impl ContractFindings<'_> {
    pub(super) fn add(&mut self, name: &'static str, pointer: &str, message: String) {
        self.findings.push(LintFinding {
            rule: rule(name),
            place: self.document.place(pointer),
            pointer: pointer.to_owned(),
            message,
        });
    }

    pub(super) fn faults(&mut self, faults: &[ContractDefect]) {
        for fault in faults {
            let name = match fault.kind {
                DefectKind::Invalid => "invalid-clause",
                DefectKind::Missing => "missing-clause",
                DefectKind::MissingRecovery => "missing-recovery",
                DefectKind::Unknown => "unknown-field",
                DefectKind::Noted(name) => name,
            };
            self.add(name, &fault.pointer, fault.message.clone());
        }
    }

    pub(super) fn duplicates(&mut self, one: &LintedContract<'_>, all: &[LintedContract<'_>]) {
        let same = |other: &&LintedContract<'_>| {
            other.at < one.at
                && other.contract.id == one.contract.id
                && other.contract.version() == one.contract.version()
        };
        if !one.contract.id.is_empty() && all.iter().any(|other| same(&other)) {
            self.add(
                "duplicate-id",
                "/id",
                format!("`{}` is another contract's id as well", one.contract),
            );
        }
    }

    /// From the target over all contracts: does a path lead back to the source?
    pub(super) fn loops(
        &mut self,
        contract: &Contract,
        edges: &[(String, String)],
        registry: Option<&Registry>,
    ) {
        if contract.recovery.loop_guard.is_some()
            || contract.source.is_empty()
            || contract.target.is_empty()
        {
            return;
        }
        let same = |a: &str, b: &str| registry.map_or(a == b, |registry| registry.same(a, b));
        let mut reached = vec![contract.target.as_str()];
        let mut seen: BTreeSet<&str> = reached.iter().copied().collect();
        while let Some(at) = reached.pop() {
            if same(at, &contract.source) {
                self.add(
                    "loop-risk",
                    if self.document.value().get("recovery").is_some() {
                        "/recovery"
                    } else {
                        "/target"
                    },
                    format!(
                        "`loop_guard` is absent, and a path leads from {} back to {}",
                        contract.target, contract.source
                    ),
                );
                return;
            }
            for (_, to) in edges.iter().filter(|(from, _)| same(from, at)) {
                if seen.insert(to.as_str()) {
                    reached.push(to.as_str());
                }
            }
        }
    }

    /// An agent's handoff to itself is under no contract.
    pub(super) fn rules_itself(&mut self, contract: &Contract) {
        if !contract.source.is_empty() && contract.source == contract.target {
            let why = format!(
                "source and target are both {}: it rules between two agents of that type, and no handoff of one agent to itself",
                contract.source
            );
            self.add("without-effect", "/target", why);
        }
    }

    pub(super) fn retries(&mut self, contract: &Contract) {
        let idempotent = contract.idempotency.as_ref().and_then(|stated| stated.idempotent);
        let retries = contract.recovery.max_retries.unwrap_or(0);
        if idempotent == Some(false) && retries > 0 {
            self.add(
                "retry-non-idempotent",
                "/recovery/max_retries",
                format!(
                    "the handoff is not idempotent, and `max_retries` is {retries}: it must be 0"
                ),
            );
        }
    }

    pub(super) fn history(&mut self, contract: &Contract) {
        /// Names under which a payload carries a whole conversation.
        const WHOLE: [&str; 7] = [
            "history",
            "messages",
            "transcript",
            "conversation",
            "conversation_history",
            "full_history",
            "conversation_history_verbatim",
        ];
        let pointer = "/payload/history_strategy";
        match contract.payload.history_strategy {
            Some(HistoryStrategy::Full) => {
                if contract.payload.history_justification.is_none()
                    && self.document.comment(pointer).is_none()
                {
                    self.add(
                        "full-history",
                        pointer,
                        "`history_strategy: full` without a comment that says why a summary is not enough".to_owned(),
                    );
                }
            }
            Some(_) => {}
            None => {
                let names = contract.payload.required.iter().flatten();
                let whole = names.filter(|name| {
                    let name = name.strip_prefix("payload.").unwrap_or(name);
                    WHOLE.contains(&payload::snake(name).as_str())
                });
                if let Some(name) = whole.map(String::as_str).next() {
                    self.add(
                        "full-history",
                        "/payload/required",
                        format!("the payload carries `{name}` without a `history_strategy`"),
                    );
                }
            }
        }
    }

    /// The highest version below this one: what it breaks of that moves the major (seed 002 §4.2).
    pub(super) fn before(
        &mut self,
        one: &LintedContract<'_>,
        all: &[LintedContract<'_>],
        held: &[&Contract],
    ) {
        let version = one.contract.version();
        let others = all.iter().map(|other| &other.contract).chain(held.iter().copied());
        let before = others
            .filter(|other| {
                other.id == one.contract.id
                    && other.version() < version
                    && (other.version().pre.is_empty() || !version.pre.is_empty())
            })
            .max_by_key(|other| other.version());
        let Some(before) = before else { return };
        let then = before.version();
        if versions::may_break(&then, &version) {
            return;
        }
        for versions::BreakingChange { pointer, what } in versions::breaks(before, &one.contract) {
            let why =
                format!("{version} breaks {then} ({what}): a breaking change moves the major");
            self.add("breaking-change", pointer, why);
        }
    }

    /// Reports a deprecated contract whose sunset is past, or whose replacement does not exist.
    pub(super) fn ending(
        &mut self,
        one: &LintedContract<'_>,
        all: &[LintedContract<'_>],
        around: LintContext<'_>,
    ) {
        let Some(word) = &one.contract.deprecation else { return };
        if around.now.is_some_and(|now| one.contract.has_ended(now)) {
            let next = word
                .replacement_id
                .as_deref()
                .map_or_else(String::new, |next| format!("; `{next}` takes its place"));
            let why =
                format!("the sunset is past: every handoff under this contract is refused{next}");
            self.add("past-sunset", "/deprecation", why);
        }
        if let Some(next) = &word.replacement_id {
            let others = all.iter().map(|other| &other.contract);
            let others = others.chain(around.in_force.iter().copied());
            if !others.into_iter().any(|other| other.id == *next && other.id != one.contract.id) {
                let why = format!("no contract is called `{next}`");
                self.add("unknown-replacement", "/deprecation/replacement_id", why);
            }
        }
    }

    /// A tool that leads to two receivers is offered for the first contract by id.
    pub(super) fn tools(
        &mut self,
        one: &LintedContract<'_>,
        all: &[LintedContract<'_>],
        in_force: &[&Contract],
    ) {
        let Some(tool) = &one.contract.trigger.tool_call else { return };
        let others = all.iter().map(|other| &other.contract).chain(in_force.iter().copied());
        let first = others
            .filter(|other| {
                other.source == one.contract.source
                    && other.id < one.contract.id
                    && other.target != one.contract.target
                    && other.trigger.tool_call.as_ref() == Some(tool)
            })
            .min_by(|a, b| a.id.cmp(&b.id));
        if let Some(first) = first {
            let why = format!(
                "`{tool}` of `{}` leads to {} already: the tool endpoint offers that one",
                first.id, first.target
            );
            self.add("without-effect", "/trigger/tool_call", why);
        }
    }
}
