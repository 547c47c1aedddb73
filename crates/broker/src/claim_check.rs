//! Claim checks: signed links that expire, in the place of bodies that a transport does not carry (specification §12).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

use crate::vault::Vault;
use handoffd_domain::ids::{HandoffId, Micros, TenantId};

/// The attempt whose body a link opens, signed with the master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCheck {
    pub tenant: TenantId,
    pub handoff_id: HandoffId,
    /// The attempt that sent the link, and its fencing token: a body in SW4RM's form names both.
    pub attempt: i32,
    pub fencing_token: i64,
    /// End of the link's validity, in Unix seconds.
    pub expires_s: i64,
}

impl ClaimCheck {
    /// The last segment of the link's path: everyone who has it may read the body until it expires.
    #[must_use]
    pub fn token(&self, vault: &Vault) -> String {
        let said = self.said();
        let tag = vault.claim_tag(said.as_bytes());
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&said), URL_SAFE_NO_PAD.encode(tag))
    }

    /// Reads a token; `None` where it was not made with this master key, or has expired.
    #[must_use]
    pub fn read(token: &str, vault: &Vault, now: Micros) -> Option<Self> {
        let (said, tag) = token.split_once('.')?;
        let said = URL_SAFE_NO_PAD.decode(said).ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        if !bool::from(vault.claim_tag(&said).as_slice().ct_eq(&tag)) {
            return None;
        }
        let said = String::from_utf8(said).ok()?;
        let mut parts = said.split('\n');
        let check = Self {
            tenant: parts.next()?.parse().ok()?,
            handoff_id: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            fencing_token: parts.next()?.parse().ok()?,
            expires_s: parts.next()?.parse().ok()?,
        };
        (now.seconds() < check.expires_s).then_some(check)
    }

    fn said(&self) -> String {
        let Self { tenant, handoff_id, attempt, fencing_token, expires_s } = self;
        format!("{tenant}\n{handoff_id}\n{attempt}\n{fencing_token}\n{expires_s}")
    }
}

/// Signs the links that deliveries carry in the place of their body.
#[derive(Clone)]
pub struct ClaimLinks {
    pub vault: Vault,
    /// Address of the API without a slash at its end; empty: links are paths.
    pub base: String,
    /// Validity of a link.
    pub ttl: Duration,
}

impl ClaimLinks {
    /// The link to the body of an attempt, as its receiver gets it.
    #[must_use]
    pub fn link(
        &self,
        tenant: &TenantId,
        (handoff_id, attempt, fencing_token): (HandoffId, i32, i64),
        now: Micros,
    ) -> String {
        let expires_s = now.plus(self.ttl).seconds();
        let tenant = tenant.clone();
        let check = ClaimCheck { tenant, handoff_id, attempt, fencing_token, expires_s };
        format!("{}/claims/{}", self.base, check.token(&self.vault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_store::clock;

    #[test]
    fn a_link_opens_until_it_expires_and_for_its_handoff_alone() {
        let vault = Vault::from_base64(&Vault::new_master_key()).unwrap();
        let ttl = Duration::from_mins(1);
        let links = ClaimLinks { vault: vault.clone(), base: "https://h".to_owned(), ttl };
        let (tenant, id) = ("acme".parse().unwrap(), HandoffId(clock::random_id()));
        let at = |seconds: i64| Micros(seconds * 1_000_000);
        let link = links.link(&tenant, (id, 2, 7), at(100));
        let token = link.strip_prefix("https://h/claims/").unwrap();
        let read = ClaimCheck::read(token, &vault, at(159)).unwrap();
        let attempt = (read.handoff_id, read.attempt, read.fencing_token);
        assert_eq!((read.tenant, attempt), (tenant, (id, 2, 7)));
        assert_eq!(ClaimCheck::read(token, &vault, at(160)), None);
        let other = Vault::from_base64(&Vault::new_master_key()).unwrap();
        assert_eq!(ClaimCheck::read(token, &other, at(100)), None);
        let (said, tag) = token.split_once('.').unwrap();
        let forged =
            URL_SAFE_NO_PAD.encode(format!("acme\n{}\n2\n7\n160", HandoffId(clock::random_id())));
        assert_ne!(said, forged);
        assert_eq!(ClaimCheck::read(&format!("{forged}.{tag}"), &vault, at(100)), None);
        assert_eq!(ClaimCheck::read("x", &vault, at(100)), None);
    }
}
