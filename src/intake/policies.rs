//! The policies about safety findings as settings say them.

use crate::config::{SafetyException, SafetyMode};
use crate::gate::safety::policy::{Exception, Mode, Policies};

/// What becomes of a finding, as the gate calls it.
#[must_use]
pub const fn mode(mode: SafetyMode) -> Mode {
    match mode {
        SafetyMode::Enforce => Mode::Enforce,
        SafetyMode::Observe => Mode::Observe,
        SafetyMode::Allow => Mode::Allow,
    }
}

/// An exception, as the gate knows it.
#[must_use]
pub fn exception(one: &SafetyException) -> Exception {
    Exception {
        tenant: one.tenant.clone(),
        agent: one.agent.clone(),
        to: one.to.clone(),
        field: one.field.clone(),
        rules: one.rules.clone(),
        mode: mode(one.mode),
        until: one.until,
    }
}

/// Policies from settings.
#[must_use]
pub fn policies(default: SafetyMode, exceptions: &[SafetyException]) -> Policies {
    Policies { default: mode(default), exceptions: exceptions.iter().map(exception).collect() }
}
