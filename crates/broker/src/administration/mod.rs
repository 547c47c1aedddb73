//! Administration of a tenant: its agents with their allowlists, keys, caps, contracts, payload schemas and subscriptions. A use
//! case checks a change, and the ledger carries it out.

use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::config::Config;
use crate::console_sessions::ConsoleSessions;
use crate::directory::Principal;
use crate::intake::refused::misfit;
use crate::intake::{Intake, Refusal, actor};
use crate::ledger::command::Call;
use crate::ledger::commands::Queued;
use crate::ledger::reply::LedgerError;
use crate::transport::DeliveryTypes;
use handoffd_domain::failure::{Code, Failure};
use handoffd_domain::ids::Micros;
use handoffd_domain::warning::{Warning, WarningCode};

pub mod agents;
pub mod allowlist;
pub mod candidates;
pub mod caps;
pub mod contracts;
mod credentials;
pub mod keys;
pub mod payload_schemas;
pub mod subscriptions;

/// Why the egress guard would not call a URL, as far as the URL alone tells; `None` where it would. The guard belongs to
/// delivery, which this room does not know: the composition root passes the check.
pub type Endpoints = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A size for work that takes long whatever its input has, as the compiling of a schema does.
const OWN_THREAD: usize = usize::MAX;

/// The longest that a rotated secret stays valid, in seconds: a year.
const MOST_OVERLAP_S: u64 = 365 * 86_400;

/// The parts of the broker that administration needs.
#[derive(Clone, Copy)]
pub struct Administration<'a> {
    pub intake: &'a Intake,
    /// The transports that agents may be registered with.
    pub delivery_types: &'a dyn DeliveryTypes,
    /// Checks URLs at registration.
    pub endpoints: &'a Endpoints,
    /// Logins at the console.
    pub sessions: &'a ConsoleSessions,
    pub config: &'a Config,
}

/// A secret in the place of another one.
#[derive(Debug)]
pub struct RotatedSecret {
    pub secret: Zeroizing<String>,
    /// Until when the old one counts too.
    pub old_valid_until: Micros,
}

impl Administration<'_> {
    fn now(&self) -> Micros {
        self.intake.clock.now()
    }

    /// Gives a caller's command to the ledger.
    async fn carry_out<C: Queued>(
        &self,
        principal: &Principal,
        at: Micros,
        command: C,
    ) -> Result<C::Reply, LedgerError> {
        let call = Call { tenant: principal.tenant.clone(), at, actor: actor(principal) };
        self.intake.ledger.handle(call, command).await
    }

    /// The warning about a URL that the egress guard refuses.
    fn refused_endpoint(&self, pointer: &str, url: &str) -> Option<Warning> {
        let why = (self.endpoints)(url)?;
        let message = format!("nothing is sent there: {why} (see HANDOFFD_EGRESS_ALLOW)");
        Some(Warning::new(WarningCode::EndpointRefused, pointer, message))
    }

    /// Until when a secret that is replaced now stays valid.
    fn valid_until(&self, overlap_s: Option<u64>) -> Result<Micros, Failure> {
        let overlap = overlap(overlap_s, self.config.auth.rotation_overlap_s)?;
        Ok(self.now().plus(overlap))
    }
}

/// How long a rotated secret stays valid: as the request states, else as the settings do.
fn overlap(stated: Option<u64>, setting: u64) -> Result<Duration, Failure> {
    let seconds = stated.unwrap_or(setting).min(MOST_OVERLAP_S);
    if stated.is_some_and(|stated| stated > seconds) {
        let why = format!("must be at most {MOST_OVERLAP_S}, a year");
        return Err(misfit("/overlapSeconds", why));
    }
    Ok(Duration::from_secs(seconds))
}

/// A secret cannot be sealed under the master key.
fn sealing<E>(_: E) -> Refusal {
    Refusal::because(Code::Internal, "a secret could not be sealed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_secret_stays_valid_for_a_year_at_most() {
        let rows = [
            (None, 60, Some(60)),
            (None, u64::MAX, Some(MOST_OVERLAP_S)),
            (Some(0), 60, Some(0)),
            (Some(MOST_OVERLAP_S), 60, Some(MOST_OVERLAP_S)),
            (Some(MOST_OVERLAP_S + 1), 60, None),
        ];
        for (stated, setting, seconds) in rows {
            let overlap = overlap(stated, setting);
            let pointer = overlap.as_ref().err().map(|failure| failure.pointer.as_str());
            assert_eq!(pointer, seconds.is_none().then_some("/overlapSeconds"), "{stated:?}");
            assert_eq!(overlap.ok(), seconds.map(Duration::from_secs), "{stated:?}");
        }
    }
}
