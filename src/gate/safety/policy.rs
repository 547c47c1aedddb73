//! What a finding is worth: whether it refuses a handoff, is recorded and let pass, or does not count.
//! Exceptions are scoped (tenant, sender, edge, field, rule) and may have an end.

use crate::domain::ids::{AgentId, Micros, TenantId};

use super::{Finding, Rule};

/// What becomes of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It refuses the handoff, which becomes a dead letter.
    #[default]
    Enforce,
    /// It is recorded with the handoff, which passes.
    Observe,
    /// It does not count.
    Allow,
}

/// A rule about findings. What is not named is not asked for.
#[derive(Debug, Clone, Default)]
pub struct Exception {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// From this sender.
    pub agent: Option<AgentId>,
    /// To this receiver.
    pub to: Option<AgentId>,
    /// In fields whose JSON pointer is this, or lies below it.
    pub field: Option<String>,
    /// By these rules or families; all where there are none.
    pub rules: Vec<String>,
    /// What then becomes of it.
    pub mode: Mode,
    /// From when on it no longer holds.
    pub until: Option<Micros>,
}

/// All of them, in order.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// Where nothing else is said.
    pub default: Mode,
    /// The last that fits a finding decides.
    pub exceptions: Vec<Exception>,
}

/// Whose message is judged, and when.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The sender.
    pub agent: &'a AgentId,
    /// The receiver, where the route was found.
    pub to: Option<&'a AgentId>,
    /// Now.
    pub at: Micros,
}

impl Exception {
    fn fits(&self, case: &Case<'_>, finding: &Finding) -> bool {
        let same = |own: &Option<AgentId>, other: Option<&AgentId>| {
            own.as_ref().is_none_or(|own| other == Some(own))
        };
        let below = |field: &String| {
            finding
                .pointer
                .strip_prefix(field.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.until.is_none_or(|until| case.at < until)
            && self.tenant.as_ref().is_none_or(|own| own == case.tenant)
            && same(&self.agent, Some(case.agent))
            && same(&self.to, case.to)
            && self.field.as_ref().is_none_or(below)
            && (self.rules.is_empty()
                || self.rules.iter().any(|name| *name == finding.rule || *name == finding.family))
    }
}

impl Policies {
    /// Parts findings in those that refuse and those that are recorded.
    #[must_use]
    pub fn part(&self, case: &Case<'_>, findings: Vec<Finding>) -> (Vec<Finding>, Vec<Finding>) {
        let mut enforced = Vec::new();
        let mut observed = Vec::new();
        for finding in findings {
            let fit = self.exceptions.iter().rev().find(|one| one.fits(case, &finding));
            match fit.map_or(self.default, |one| one.mode) {
                Mode::Enforce => enforced.push(finding),
                Mode::Observe => observed.push(finding),
                Mode::Allow => {}
            }
        }
        (enforced, observed)
    }

    /// What a second opinion is worth: as a finding of the rule `classifier` anywhere.
    #[must_use]
    pub fn of_classifier(&self, case: &Case<'_>, finding: &Finding) -> Mode {
        let fit = self.exceptions.iter().rev().find(|one| one.fits(case, finding));
        fit.map_or(self.default, |one| one.mode)
    }

    /// The first name in an exception that neither a rule nor a family of `rules` (nor the
    /// classifier) has.
    #[must_use]
    pub fn unknown<'a>(&'a self, rules: &[Rule]) -> Option<&'a str> {
        let known = |name: &str| {
            name == CLASSIFIER || rules.iter().any(|rule| rule.id == name || rule.family == name)
        };
        self.exceptions
            .iter()
            .flat_map(|one| &one.rules)
            .map(String::as_str)
            .find(|one| !known(one))
    }
}

/// The rule by whose name the external classifier's findings go.
pub const CLASSIFIER: &str = "classifier";

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, pointer: &str) -> Finding {
        Finding {
            rule: rule.to_owned(),
            family: "override".to_owned(),
            pointer: pointer.to_owned(),
            offset: 0,
            excerpt: String::new(),
        }
    }

    fn parted(policies: &Policies, pointer: &str, at: i64) -> (usize, usize) {
        let (tenant, agent, to) =
            ("t".parse().unwrap(), "a".parse().unwrap(), "b".parse().unwrap());
        let case = Case { tenant: &tenant, agent: &agent, to: Some(&to), at: Micros(at) };
        let (enforced, observed) = policies.part(&case, vec![finding("ignore", pointer)]);
        (enforced.len(), observed.len())
    }

    fn with(exception: Exception) -> Policies {
        Policies { default: Mode::Enforce, exceptions: vec![exception] }
    }

    #[test]
    fn a_finding_refuses_unless_something_else_is_said() {
        assert_eq!(parted(&Policies::default(), "/x", 0), (1, 0));
        let observing = Policies { default: Mode::Observe, exceptions: Vec::new() };
        assert_eq!(parted(&observing, "/x", 0), (0, 1));
    }

    #[test]
    fn an_exception_holds_for_what_it_names_only() {
        let observe = || Exception { mode: Mode::Observe, ..Exception::default() };
        let some = |name: &str| Some(name.parse().unwrap());
        for (exception, fits) in [
            (observe(), true),
            (Exception { tenant: Some("t".parse().unwrap()), ..observe() }, true),
            (Exception { tenant: Some("u".parse().unwrap()), ..observe() }, false),
            (Exception { agent: some("a"), to: some("b"), ..observe() }, true),
            (Exception { agent: some("b"), ..observe() }, false),
            (Exception { to: some("a"), ..observe() }, false),
            (Exception { field: Some("/state".to_owned()), ..observe() }, true),
            (Exception { field: Some("/sta".to_owned()), ..observe() }, false),
            (Exception { rules: vec!["override".to_owned()], ..observe() }, true),
            (Exception { rules: vec!["ignore".to_owned()], ..observe() }, true),
            (Exception { rules: vec!["other".to_owned()], ..observe() }, false),
        ] {
            let expected = if fits { (0, 1) } else { (1, 0) };
            assert_eq!(parted(&with(exception.clone()), "/state/x", 0), expected, "{exception:?}");
        }
    }

    #[test]
    fn an_exception_ends() {
        let exception =
            Exception { mode: Mode::Allow, until: Some(Micros(10)), ..Exception::default() };
        assert_eq!(parted(&with(exception.clone()), "/x", 9), (0, 0));
        assert_eq!(parted(&with(exception), "/x", 10), (1, 0));
    }

    #[test]
    fn the_last_exception_that_fits_decides() {
        let mut policies = with(Exception { mode: Mode::Allow, ..Exception::default() });
        policies.exceptions.push(Exception {
            field: Some("/x".to_owned()),
            mode: Mode::Enforce,
            ..Exception::default()
        });
        assert_eq!(parted(&policies, "/x", 0), (1, 0));
        assert_eq!(parted(&policies, "/y", 0), (0, 0));
    }

    #[test]
    fn a_name_that_no_rule_has_is_found() {
        let policies = with(Exception { rules: vec!["nobody".to_owned()], ..Exception::default() });
        assert_eq!(policies.unknown(&[]), Some("nobody"));
        let policies =
            with(Exception { rules: vec![CLASSIFIER.to_owned()], ..Exception::default() });
        assert_eq!(policies.unknown(&[]), None);
    }
}
