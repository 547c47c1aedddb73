//! Policy on safety findings: a finding refuses a handoff, is recorded only, or is ignored. Exceptions are scoped
//! (tenant, sender, edge, field, rule) and may end.

use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::policy::{CLASSIFIER, Orders};

use super::{Rule, SafetyFinding};

/// The effect of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingMode {
    /// The handoff is refused and becomes a dead letter.
    #[default]
    Enforce,
    /// The finding is recorded, and the handoff passes.
    Observe,
    /// The finding is ignored.
    Allow,
}

/// An exception for matching findings; an absent field matches all.
#[derive(Debug, Clone, Default)]
pub struct PolicyException {
    pub tenant: Option<TenantId>,
    pub agent: Option<AgentId>,
    pub to: Option<AgentId>,
    /// JSON pointer of the field; fields below match too.
    pub field: Option<String>,
    /// Names of rules or families; empty for all.
    pub rules: Vec<String>,
    /// The effect on matching findings.
    pub mode: FindingMode,
    /// The effect on matching marks; `None`: [`FindingMode::Allow`] drops them, and another mode says nothing of them.
    pub orders: Option<Orders>,
    /// End of the exception.
    pub until: Option<Micros>,
}

/// The default effect, and the exceptions in order.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// The effect without a matching exception.
    pub default: FindingMode,
    /// The effect on marks where neither an exception nor the contract nor the receiver says.
    pub orders: Orders,
    /// Exceptions; the last match decides.
    pub exceptions: Vec<PolicyException>,
}

/// The message under judgement and the time.
#[derive(Debug, Clone, Copy)]
pub struct PolicyContext<'a> {
    pub tenant: &'a TenantId,
    pub agent: &'a AgentId,
    /// The receiving agent, where the route was resolved.
    pub to: Option<&'a AgentId>,
    /// The time of the check.
    pub at: Micros,
}

impl PolicyException {
    /// Whether the exception holds for this message, at this time.
    fn is_about(&self, case: &PolicyContext<'_>) -> bool {
        let same = |own: &Option<AgentId>, other: Option<&AgentId>| {
            own.as_ref().is_none_or(|own| other == Some(own))
        };
        self.until.is_none_or(|until| case.at < until)
            && self.tenant.as_ref().is_none_or(|own| own == case.tenant)
            && same(&self.agent, Some(case.agent))
            && same(&self.to, case.to)
    }

    fn fits(&self, case: &PolicyContext<'_>, finding: &SafetyFinding) -> bool {
        let below = |field: &String| {
            finding
                .pointer
                .strip_prefix(field.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.is_about(case)
            && self.field.as_ref().is_none_or(below)
            && (self.rules.is_empty()
                || self.rules.iter().any(|name| *name == finding.rule || *name == finding.family))
    }
}

impl Policies {
    /// Splits findings into those that refuse and those that are recorded.
    #[must_use]
    pub fn part(
        &self,
        case: &PolicyContext<'_>,
        findings: Vec<SafetyFinding>,
    ) -> (Vec<SafetyFinding>, Vec<SafetyFinding>) {
        let mut enforced = Vec::new();
        let mut observed = Vec::new();
        for finding in findings {
            let fit = self.exceptions.iter().rev().find(|one| one.fits(case, &finding));
            match fit.map_or(self.default, |one| one.mode) {
                FindingMode::Enforce => enforced.push(finding),
                FindingMode::Observe => observed.push(finding),
                FindingMode::Allow => {}
            }
        }
        (enforced, observed)
    }

    /// Splits marks into those that refuse and those that are recorded. `said` is what the contract and the receiver
    /// say: the stricter of them holds. An exception outweighs both.
    #[must_use]
    pub fn part_marks(
        &self,
        case: &PolicyContext<'_>,
        marks: Vec<SafetyFinding>,
        said: impl IntoIterator<Item = [Option<Orders>; 2]>,
    ) -> (Vec<SafetyFinding>, Vec<SafetyFinding>) {
        let of_edge =
            |said: [Option<Orders>; 2]| said.into_iter().flatten().max().unwrap_or(self.orders);
        let usual = said.into_iter().map(of_edge).max().unwrap_or(self.orders);
        let mut refused = Vec::new();
        let mut marked = Vec::new();
        for mark in marks {
            let fit = self.exceptions.iter().rev().find(|one| one.fits(case, &mark));
            let excepted = fit.and_then(|one| match (one.orders, one.mode) {
                (Some(orders), _) => Some(orders),
                (None, FindingMode::Allow) => Some(Orders::Allow),
                (None, FindingMode::Enforce | FindingMode::Observe) => None,
            });
            match excepted.unwrap_or(usual) {
                Orders::Refuse => refused.push(mark),
                Orders::Mark => marked.push(mark),
                Orders::Allow => {}
            }
        }
        (refused, marked)
    }

    /// The effect of a classifier's finding: that of the rule `classifier` at any field.
    #[must_use]
    pub fn of_classifier(&self, case: &PolicyContext<'_>, finding: &SafetyFinding) -> FindingMode {
        let fit = self.exceptions.iter().rev().find(|one| one.fits(case, finding));
        fit.map_or(self.default, |one| one.mode)
    }

    /// Whether some finding of the classifier refuses the message: one of any label, at any field. Label and field are
    /// not known before the classifier answers, so an exception that names either counts as far as it may fit.
    #[must_use]
    pub fn classifier_may_refuse(&self, case: &PolicyContext<'_>) -> bool {
        for one in self.exceptions.iter().rev().filter(|one| one.is_about(case)) {
            let named = one.rules.is_empty() || one.rules.iter().any(|name| name == CLASSIFIER);
            let refuses = one.mode == FindingMode::Enforce;
            if refuses || (named && one.field.is_none()) {
                return refuses;
            }
        }
        self.default == FindingMode::Enforce
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

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, pointer: &str) -> SafetyFinding {
        SafetyFinding {
            rule: rule.to_owned(),
            family: "override".to_owned(),
            pointer: pointer.to_owned(),
            offset: 0,
            end: 0,
            excerpt: String::new(),
        }
    }

    fn parted(policies: &Policies, pointer: &str, at: i64) -> (usize, usize) {
        let (tenant, agent, to) =
            ("t".parse().unwrap(), "a".parse().unwrap(), "b".parse().unwrap());
        let case = PolicyContext { tenant: &tenant, agent: &agent, to: Some(&to), at: Micros(at) };
        let (enforced, observed) = policies.part(&case, vec![finding("ignore", pointer)]);
        (enforced.len(), observed.len())
    }

    fn with(exception: PolicyException) -> Policies {
        Policies { exceptions: vec![exception], ..Policies::default() }
    }

    #[test]
    fn a_finding_refuses_unless_something_else_is_said() {
        assert_eq!(parted(&Policies::default(), "/x", 0), (1, 0));
        let observing = Policies { default: FindingMode::Observe, ..Policies::default() };
        assert_eq!(parted(&observing, "/x", 0), (0, 1));
    }

    #[test]
    fn an_exception_holds_for_what_it_names_only() {
        let observe =
            || PolicyException { mode: FindingMode::Observe, ..PolicyException::default() };
        let some = |name: &str| Some(name.parse().unwrap());
        for (exception, fits) in [
            (observe(), true),
            (PolicyException { tenant: Some("t".parse().unwrap()), ..observe() }, true),
            (PolicyException { tenant: Some("u".parse().unwrap()), ..observe() }, false),
            (PolicyException { agent: some("a"), to: some("b"), ..observe() }, true),
            (PolicyException { agent: some("b"), ..observe() }, false),
            (PolicyException { to: some("a"), ..observe() }, false),
            (PolicyException { field: Some("/state".to_owned()), ..observe() }, true),
            (PolicyException { field: Some("/sta".to_owned()), ..observe() }, false),
            (PolicyException { rules: vec!["override".to_owned()], ..observe() }, true),
            (PolicyException { rules: vec!["ignore".to_owned()], ..observe() }, true),
            (PolicyException { rules: vec!["other".to_owned()], ..observe() }, false),
        ] {
            let expected = if fits { (0, 1) } else { (1, 0) };
            assert_eq!(parted(&with(exception.clone()), "/state/x", 0), expected, "{exception:?}");
        }
    }

    #[test]
    fn orders_are_what_the_strictest_party_says_and_an_exception_outweighs_it() {
        use Orders::{Allow, Mark, Refuse};
        let (tenant, agent) = ("t".parse().unwrap(), "a".parse().unwrap());
        let case = PolicyContext { tenant: &tenant, agent: &agent, to: None, at: Micros(0) };
        let parted = |policies: &Policies, said| {
            let (refused, marked) =
                policies.part_marks(&case, vec![finding("order", "/x")], [said]);
            (refused.len(), marked.len())
        };
        let policies = Policies::default();
        assert_eq!(parted(&policies, [None, None]), (0, 1));
        assert_eq!(parted(&policies, [Some(Refuse), None]), (1, 0));
        assert_eq!(parted(&policies, [Some(Allow), Some(Refuse)]), (1, 0));
        assert_eq!(parted(&policies, [Some(Allow), Some(Mark)]), (0, 1));
        assert_eq!(parted(&policies, [Some(Allow), None]), (0, 0));
        let strict = Policies { orders: Refuse, ..Policies::default() };
        assert_eq!(parted(&strict, [None, None]), (1, 0));
        assert_eq!(parted(&strict, [Some(Mark), None]), (0, 1));
        for (orders, mode, parts) in [
            (Some(Refuse), FindingMode::Observe, (1, 0)),
            (Some(Allow), FindingMode::Enforce, (0, 0)),
            (None, FindingMode::Allow, (0, 0)),
            (None, FindingMode::Enforce, (0, 1)),
        ] {
            let policies = with(PolicyException { mode, orders, ..PolicyException::default() });
            assert_eq!(parted(&policies, [Some(Mark), None]), parts, "{orders:?} {mode:?}");
        }
    }

    #[test]
    fn a_classifier_may_refuse_where_any_of_its_findings_would() {
        use FindingMode::{Allow, Enforce, Observe};
        let (tenant, agent, to) =
            ("t".parse().unwrap(), "a".parse().unwrap(), "b".parse().unwrap());
        let case = PolicyContext { tenant: &tenant, agent: &agent, to: Some(&to), at: Micros(5) };
        let of = |mode, rules: &[&str]| PolicyException {
            mode,
            rules: rules.iter().map(|name| (*name).to_owned()).collect(),
            ..PolicyException::default()
        };
        let field = |one| PolicyException { field: Some("/x".to_owned()), ..one };
        let other = |one| PolicyException { to: Some("c".parse().unwrap()), ..one };
        let over = |one| PolicyException { until: Some(Micros(5)), ..one };
        for (default, exceptions, refuses) in [
            (Enforce, vec![], true),
            (Observe, vec![], false),
            (Enforce, vec![of(Observe, &["classifier"])], false),
            (Enforce, vec![of(Allow, &[])], false),
            // It may answer with another place, or with another label.
            (Enforce, vec![field(of(Observe, &["classifier"]))], true),
            (Enforce, vec![of(Observe, &["override"])], true),
            (Observe, vec![of(Enforce, &["override"])], true),
            (Observe, vec![field(of(Enforce, &["classifier"]))], true),
            // The last that fits decides.
            (Observe, vec![of(Enforce, &["classifier"]), of(Observe, &["classifier"])], false),
            (Enforce, vec![of(Observe, &["classifier"]), of(Enforce, &["classifier"])], true),
            // Exceptions of other edges and other times are none.
            (Enforce, vec![other(of(Observe, &["classifier"]))], true),
            (Observe, vec![other(of(Enforce, &["classifier"]))], false),
            (Enforce, vec![over(of(Observe, &["classifier"]))], true),
        ] {
            let policies = Policies { default, exceptions, ..Policies::default() };
            assert_eq!(policies.classifier_may_refuse(&case), refuses, "{policies:?}");
        }
    }

    #[test]
    fn an_exception_ends() {
        let exception = PolicyException {
            mode: FindingMode::Allow,
            until: Some(Micros(10)),
            ..PolicyException::default()
        };
        assert_eq!(parted(&with(exception.clone()), "/x", 9), (0, 0));
        assert_eq!(parted(&with(exception), "/x", 10), (1, 0));
    }

    #[test]
    fn the_last_exception_that_fits_decides() {
        let mut policies =
            with(PolicyException { mode: FindingMode::Allow, ..PolicyException::default() });
        policies.exceptions.push(PolicyException {
            field: Some("/x".to_owned()),
            mode: FindingMode::Enforce,
            ..PolicyException::default()
        });
        assert_eq!(parted(&policies, "/x", 0), (1, 0));
        assert_eq!(parted(&policies, "/y", 0), (0, 0));
    }

    #[test]
    fn a_name_that_no_rule_has_is_found() {
        let policies = with(PolicyException {
            rules: vec!["nobody".to_owned()],
            ..PolicyException::default()
        });
        assert_eq!(policies.unknown(&[]), Some("nobody"));
        let policies = with(PolicyException {
            rules: vec![CLASSIFIER.to_owned()],
            ..PolicyException::default()
        });
        assert_eq!(policies.unknown(&[]), None);
    }
}
