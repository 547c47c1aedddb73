//! Caps: the amount that a tenant and its agents may spend within a window (docs/budget.md).

use serde_json::{Value, json};

use super::Administration;
use crate::directory::Principal;
use crate::intake::Refusal;
use crate::intake::refused::misfit;
use crate::ledger::command::content;
use crate::ledger::commands::{CapChange, SetCap};
use handoffd_domain::canonical;
use handoffd_domain::cap::{Cap, CapLimit, MAX_TOKENS, Unit, Window};
use handoffd_domain::failure::Failure;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::money::Usd;
use handoffd_domain::warning::{Warning, WarningCode};

/// The scope of a cap: one agent or the whole tenant, and the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapScope {
    /// `None` for the whole tenant.
    pub agent: Option<AgentId>,
    pub window: Window,
}

impl Administration<'_> {
    /// Sets a cap. A limit that is not stated stays as it is.
    ///
    /// # Errors
    /// No limit is stated, one is too high, or no such agent exists.
    pub async fn set_cap(
        &self,
        principal: &Principal,
        scope: CapScope,
        usd: Option<Usd>,
        tokens: Option<u64>,
    ) -> Result<(Cap, Vec<Warning>), Refusal> {
        limits_fit(usd, tokens)?;
        if let Some(id) = &scope.agent {
            let agents = self.intake.directory.agents(&principal.tenant).await?;
            agents.row(id).ok_or(Refusal::NotFound("agent"))?;
        }
        let set = self.change_cap(principal, scope, CapChange::Set { usd, tokens }).await?;
        let cap = set.ok_or(Refusal::NotFound("cap"))?;
        let warnings = without_room(&cap, self.now());
        Ok((*cap, warnings))
    }

    /// Removes a cap, or its limit of one unit.
    ///
    /// # Errors
    /// No operator set such a cap.
    pub async fn remove_cap(
        &self,
        principal: &Principal,
        scope: CapScope,
        unit: Option<Unit>,
    ) -> Result<(), Refusal> {
        self.change_cap(principal, scope, CapChange::Remove(unit)).await?;
        Ok(())
    }

    /// The tenant's caps: those that operators set, and of the settings those of the tenant and of agents that spent something.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn caps(&self, tenant: &TenantId, now: Micros) -> Result<Vec<Cap>, Refusal> {
        let mut caps = self.intake.store.list_caps(tenant).await?;
        for CapLimit { window, .. } in self.intake.rules.caps.of(false) {
            if !caps.iter().any(|cap| cap.agent.is_none() && cap.window == window) {
                caps.push(Cap::new((tenant.clone(), None, window), None, 0, now));
            }
        }
        caps.sort_by_key(Cap::key);
        Ok(caps)
    }

    async fn change_cap(
        &self,
        principal: &Principal,
        scope: CapScope,
        change: CapChange,
    ) -> Result<Option<Box<Cap>>, Refusal> {
        let now = self.now();
        let content = content(&canonical::to_vec(&words(&scope, change)), now);
        let CapScope { agent, window } = scope;
        Ok(self.carry_out(principal, now, SetCap { agent, window, change, content }).await?)
    }
}

/// Checks that at least one limit is stated, and that it can be counted.
fn limits_fit(usd: Option<Usd>, tokens: Option<u64>) -> Result<(), Failure> {
    if tokens.is_some_and(|tokens| tokens > MAX_TOKENS) {
        return Err(misfit("/tokens", format!("{MAX_TOKENS} at most")));
    }
    if usd.is_none() && tokens.is_none() {
        return Err(misfit("", "say how much: usd, tokens or both"));
    }
    Ok(())
}

/// Warns of a limit under which nothing fits: the window has used it up already, or it is 0.
fn without_room(cap: &Cap, now: Micros) -> Vec<Warning> {
    let full = |pointer: &str| {
        Warning::new(
            WarningCode::NoRoom,
            pointer,
            "what counts in the window already reaches it: a handoff that adds to it is refused until some has left",
        )
    };
    let money = cap.usd.filter(|usd| cap.used(now) >= *usd).map(|_| full("/usd"));
    let tokens = cap.tokens().filter(|tokens| cap.spent_tokens(now) >= *tokens);
    money.into_iter().chain(tokens.map(|_| full("/tokens"))).collect()
}

/// A change of a cap as its record commits to it: a limit that is removed is null.
fn words(CapScope { agent, window }: &CapScope, change: CapChange) -> Value {
    let mut words = json!({ "agentId": agent, "window": window.to_string() });
    let (usd, tokens) = match change {
        CapChange::Set { usd, tokens } => {
            (usd.map(|usd| json!(usd.to_string())), tokens.map(|tokens| json!(tokens)))
        }
        CapChange::Remove(unit) => {
            let removed = |other: Unit| (unit != Some(other)).then_some(Value::Null);
            (removed(Unit::Tokens), removed(Unit::Usd))
        }
    };
    for (name, limit) in [("usd", usd), ("tokens", tokens)] {
        if let Some(limit) = limit {
            words[name] = limit;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> CapScope {
        CapScope { agent: Some("drafter".parse().unwrap()), window: "PT1H".parse().unwrap() }
    }

    #[test]
    fn a_cap_has_a_limit_that_can_be_counted() {
        let usd = Some("1.00".parse().unwrap());
        let rows = [
            (usd, None, None),
            (None, Some(MAX_TOKENS), None),
            (usd, Some(0), None),
            (usd, Some(MAX_TOKENS + 1), Some("/tokens")),
            (None, None, Some("")),
        ];
        for (usd, tokens, pointer) in rows {
            let failure = limits_fit(usd, tokens).err();
            let at = failure.as_ref().map(|failure| failure.pointer.as_str());
            assert_eq!(at, pointer, "{usd:?} {tokens:?}");
        }
    }

    #[test]
    fn the_record_of_a_change_states_each_limit_that_it_sets_or_removes() {
        let usd: Usd = "2.50".parse().unwrap();
        let money = usd.to_string();
        let rows = [
            (CapChange::Set { usd: Some(usd), tokens: None }, json!({ "usd": money })),
            (
                CapChange::Set { usd: Some(usd), tokens: Some(7) },
                json!({ "usd": money, "tokens": 7 }),
            ),
            (CapChange::Remove(None), json!({ "usd": null, "tokens": null })),
            (CapChange::Remove(Some(Unit::Usd)), json!({ "usd": null })),
            (CapChange::Remove(Some(Unit::Tokens)), json!({ "tokens": null })),
        ];
        for (change, mut limits) in rows {
            limits["agentId"] = json!("drafter");
            limits["window"] = json!("PT1H");
            assert_eq!(words(&scope(), change), limits, "{change:?}");
        }
    }

    #[test]
    fn a_limit_that_leaves_no_room_has_a_warning_at_its_pointer() {
        let key = ("t".parse().unwrap(), None, "PT1H".parse().unwrap());
        let mut cap = Cap::new(key, Some(Usd(0)), 0, Micros(0));
        let pointers = |cap: &Cap| -> Vec<String> {
            without_room(cap, Micros(1)).into_iter().map(|warning| warning.pointer).collect()
        };
        assert_eq!(pointers(&cap), ["/usd"]);
        cap.set_tokens(Some(0));
        assert_eq!(pointers(&cap), ["/usd", "/tokens"]);
        cap.usd = Some("1.00".parse().unwrap());
        cap.set_tokens(Some(1));
        assert!(pointers(&cap).is_empty());
    }
}
