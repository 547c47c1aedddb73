//! The policies about safety findings as settings say them.

use crate::config::{Safety, SafetyException, SafetyMode};
use handoffd_gate::safety::policy::{FindingMode, Policies, PolicyException};

/// The effect of a finding, as the gate calls it.
#[must_use]
pub const fn mode(mode: SafetyMode) -> FindingMode {
    match mode {
        SafetyMode::Enforce => FindingMode::Enforce,
        SafetyMode::Observe => FindingMode::Observe,
        SafetyMode::Allow => FindingMode::Allow,
    }
}

/// An exception, as the gate knows it.
#[must_use]
pub fn exception(one: &SafetyException) -> PolicyException {
    PolicyException {
        tenant: one.tenant.clone(),
        agent: one.agent.clone(),
        to: one.to.clone(),
        field: one.field.clone(),
        rules: one.rules.clone(),
        mode: mode(one.mode),
        orders: one.orders,
        until: one.until,
    }
}

#[must_use]
pub fn policies(settings: &Safety) -> Policies {
    Policies {
        default: mode(settings.mode),
        orders: settings.orders,
        exceptions: settings.exceptions.iter().map(exception).collect(),
    }
}
