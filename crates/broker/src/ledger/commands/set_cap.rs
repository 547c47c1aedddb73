//! Set or remove a rolling cap.

use crate::ledger::caps::mark;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use handoffd_domain::cap::{Cap, CapKey, Unit, Window};
use handoffd_domain::ids::AgentId;
use handoffd_domain::money::Usd;
use handoffd_evidence::record::{RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::BatchState;

/// The money or tokens that a tenant or an agent may spend within a window.
#[derive(Debug, Clone)]
pub struct SetCap {
    /// Whose; none: the whole tenant's.
    pub agent: Option<AgentId>,
    /// How long what was spent counts.
    pub window: Window,
    /// The change of the cap.
    pub change: CapChange,
    /// The request in words.
    pub content: RecordContent,
}

/// The change of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapChange {
    /// So much may count; what is not said stays as it is.
    Set { usd: Option<Usd>, tokens: Option<u64> },
    /// It is taken away, or what it holds of one unit.
    Remove(Option<Unit>),
}

impl Command for SetCap {
    type Reply = Option<Box<Cap>>;
    const NAME: &'static str = "set_cap";
    const CHANGES_STATES: bool = true;
    const CHANGES_CAPS: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.cap_scope(self.agent.clone());
    }

    /// Sets a cap, or takes one away. If the settings have one for that window, it counts again then, over
    /// the same account.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let key: CapKey = (call.tenant.clone(), self.agent.clone(), self.window);
        let stored = state.caps.get(&key);
        let mut draft = RecordDraft::new(
            call.tenant.clone(),
            RecordKind::BudgetChanged,
            call.at,
            call.actor.clone(),
        );
        draft.content = Some(self.content.clone());
        let recorded = Change::Record(Box::new(draft));
        match self.change {
            CapChange::Remove(unit) => {
                let limits = |cap: &Cap| (cap.usd.is_some(), cap.tokens().is_some());
                let stored = stored.filter(|cap| match (unit, limits(cap)) {
                    (None, (usd, tokens)) => usd || tokens,
                    (Some(Unit::Usd), (usd, _)) => usd,
                    (Some(Unit::Tokens), (_, tokens)) => tokens,
                });
                let mut cap = stored.ok_or(LedgerError::NotFound("cap"))?.clone();
                if unit != Some(Unit::Tokens) {
                    cap.usd = None;
                }
                if unit != Some(Unit::Usd) {
                    cap.set_tokens(None);
                }
                cap.updated_at = call.at;
                let defaults = &context.rules.caps;
                let holds = cap.limit(defaults).is_some() || cap.token_limit(defaults).is_some();
                let change = if holds { Change::Cap(Box::new(cap)) } else { Change::NoCap(key) };
                Ok((vec![change, recorded], None))
            }
            CapChange::Set { usd, tokens } => {
                let begin = || Cap::new(key, None, mark(context), call.at);
                let mut cap = stored.cloned().unwrap_or_else(begin);
                let before = (cap.usd, cap.tokens());
                cap.usd = usd.or(cap.usd);
                cap.set_tokens(tokens.or(cap.tokens()));
                if (cap.usd, cap.tokens()) == before {
                    return Ok((Vec::new(), Some(Box::new(cap))));
                }
                cap.updated_at = call.at;
                Ok((vec![Change::Cap(Box::new(cap.clone())), recorded], Some(Box::new(cap))))
            }
        }
    }
}
