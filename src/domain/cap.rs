//! Rolling caps: what a tenant, or one of its agents, may spend within a window that moves on. Pure.
//!
//! Against a cap counts what was spent within its window, and what open handoffs have reserved, however
//! long ago. So what is reserved under a cap can be spent under it at any time:
//!
//! `spent within the window + reserved ≤ cap`
//!
//! holds after each handoff that is let through, and neither time passing nor an amount that turns from
//! reserved into spent can break it. What an agent spends beyond what it was handed is counted when it
//! says so: it is gone, and no cap brings it back.
//!
//! A cap may hold tokens, too. No message says how many its receiver may spend, so none are reserved: they
//! count once they are stated, whether the cap holds any now or not, and a cap that is used up lets no
//! handoff through until some left its window. What was under way then may still exceed it.
//!
//! The window moves in steps of a sixtieth of its length: an amount counts for the whole window, and up
//! to one step longer. Time in these books does not go back, whatever a broker's clock says.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failure::{Code, Failure, Stage};
use super::funds::Funds;
use super::ids::{AgentId, Micros, TenantId};
use super::money::{Usd, nanos};

pub mod room;
mod tokens;

/// Where a message asks for the money.
const REMAINING: &str = "/costTracking/costBudgetRemainingUSD";
/// Where it says what tokens were spent.
const TOKENS: &str = "/costTracking/tokenSpent";

/// Steps in which a window moves.
const STEPS: i64 = 60;
const SECOND: i64 = 1_000_000;
/// A minute and 31 days, in seconds.
const SHORTEST: u32 = 60;
const LONGEST: u32 = 31 * 86_400;

/// How long what was spent counts: a minute to 31 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(u32);

/// Why a text is no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a window is an ISO 8601 duration from PT1M to P31D in weeks, days, hours, minutes or seconds, such as PT1H, P1D or P7D"
)]
pub struct NoWindow;

impl Window {
    /// From whole seconds.
    ///
    /// # Errors
    /// [`NoWindow`] where it is too short or too long.
    pub fn of_seconds(seconds: i64) -> Result<Self, NoWindow> {
        let seconds = u32::try_from(seconds).map_err(|_| NoWindow)?;
        if (SHORTEST..=LONGEST).contains(&seconds) { Ok(Self(seconds)) } else { Err(NoWindow) }
    }

    /// In whole seconds.
    #[must_use]
    pub fn seconds(self) -> i64 {
        i64::from(self.0)
    }

    const fn micros(self) -> i64 {
        self.0 as i64 * SECOND
    }

    const fn step(self) -> i64 {
        self.micros() / STEPS
    }
}

impl FromStr for Window {
    type Err = NoWindow;

    /// `P[nW][nD][T[nH][nM][nS]]`, whole numbers, at least one of them.
    fn from_str(text: &str) -> Result<Self, NoWindow> {
        let rest = text.strip_prefix('P').ok_or(NoWindow)?;
        let (days, times) = match rest.split_once('T') {
            Some((_, "")) => return Err(NoWindow),
            Some((days, times)) => (days, times),
            None => (rest, ""),
        };
        let mut seconds = 0_i64;
        for (mut part, units) in [
            (days, &[('W', 604_800), ('D', 86_400)][..]),
            (times, &[('H', 3_600), ('M', 60), ('S', 1)]),
        ] {
            for (unit, worth) in units {
                let Some((number, after)) = part.split_once(*unit) else { continue };
                let plain = (1..=7).contains(&number.len())
                    && number.bytes().all(|byte| byte.is_ascii_digit());
                let number: i64 = number.parse().ok().filter(|_| plain).ok_or(NoWindow)?;
                seconds += number * worth;
                part = after;
            }
            if !part.is_empty() {
                return Err(NoWindow);
            }
        }
        Self::of_seconds(seconds)
    }
}

impl fmt::Display for Window {
    /// In days, hours, minutes and seconds, as far as there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0 / 86_400, self.0 % 86_400);
        f.write_str("P")?;
        if days > 0 {
            write!(f, "{days}D")?;
        }
        if rest > 0 {
            f.write_str("T")?;
        }
        for (count, unit) in [(rest / 3_600, 'H'), (rest % 3_600 / 60, 'M'), (rest % 60, 'S')] {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Whose spending: a tenant's as a whole, or one agent's.
pub type Scope = (TenantId, Option<AgentId>);
/// Names a cap.
pub type CapKey = (TenantId, Option<AgentId>, Window);

/// What may count within a window, by the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// How long what was spent counts.
    pub window: Window,
    /// How much money.
    pub usd: Option<Usd>,
    /// How many tokens.
    pub tokens: Option<u64>,
}

/// The most windows that have default caps.
pub const MAX_DEFAULTS: usize = 4;

/// The most tokens of a cap: every number up to it is exact in JSON (RFC 8785).
pub const MAX_TOKENS: u64 = (1 << 53) - 1;

/// Caps that hold where an operator set none for that window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaults {
    /// For each tenant.
    pub tenant: [Option<Limit>; MAX_DEFAULTS],
    /// For each agent.
    pub agent: [Option<Limit>; MAX_DEFAULTS],
}

impl Defaults {
    /// Those of a tenant, or of an agent.
    pub fn of(&self, agent: bool) -> impl Iterator<Item = Limit> {
        (if agent { self.agent } else { self.tenant }).into_iter().flatten()
    }

    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.tenant.iter().chain(&self.agent).any(Option::is_some)
    }
}

/// What counts against a cap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// Nano-dollars spent, by step of the window: the step `n` begins at `n` times its length.
    #[serde(rename = "s")]
    spent: BTreeMap<i64, i64>,
    /// What open handoffs have reserved.
    #[serde(rename = "r", with = "nanos")]
    reserved: Usd,
    /// The latest time that was entered.
    #[serde(rename = "t")]
    last: Micros,
    /// How many tokens may count, as an operator set it.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// Tokens spent, by step of the window.
    #[serde(rename = "k", default, skip_serializing_if = "BTreeMap::is_empty")]
    tokens: BTreeMap<i64, u64>,
}

/// What a cap holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Money.
    Usd,
    /// Tokens, read and written.
    Tokens,
}

/// A cap with its books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    /// Its organisation.
    pub tenant: TenantId,
    /// Whose; none: the whole tenant's.
    pub agent: Option<AgentId>,
    /// How long what was spent counts.
    pub window: Window,
    /// The money, as an operator set it; none: the default of the settings, if there is one. Tokens stand
    /// in the books ([`Cap::tokens`]).
    pub usd: Option<Usd>,
    /// What reserves that count here are marked with; a cap that is set anew after its removal has
    /// another.
    pub mark: i64,
    /// What counts.
    pub books: Books,
    /// When something changed.
    pub updated_at: Micros,
}

/// What a command adds to what counts; below nothing where it takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charge {
    /// Spent.
    pub spent: Usd,
    /// Reserved.
    pub reserved: Usd,
    /// Tokens spent.
    pub tokens: u64,
}

impl Charge {
    /// The money of both together.
    #[must_use]
    pub const fn total(self) -> Usd {
        self.spent.plus(self.reserved)
    }
}

/// A cap has no room for what is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// "tenant …" or "agent …".
    pub whose: String,
    /// It is an agent's cap.
    pub of_agent: bool,
    /// How long what was spent counts.
    pub window: Window,
    /// Of what there is too little.
    pub lack: Lack,
    /// When enough will have left the window, if nothing else is spent; none: what is reserved leaves no
    /// room whatever the time.
    pub frees: Option<Micros>,
    /// How long that is.
    pub wait: Option<Duration>,
}

/// Of what there is too little, in the numbers of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Money.
    Usd {
        /// What may count.
        cap: Usd,
        /// What was spent within the window.
        spent: Usd,
        /// What is reserved.
        reserved: Usd,
        /// What is left; never less than nothing.
        left: Usd,
        /// What is asked for.
        asked: Usd,
    },
    /// Tokens: all are spent.
    Tokens {
        /// How many may count.
        cap: u64,
        /// How many were spent within the window.
        spent: u64,
    },
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whose, window, .. } = self;
        match self.lack {
            Lack::Usd { cap, spent, reserved, left, asked } => write!(
                f,
                "the handoff asks for {asked} USD more; the cap of {whose} is {cap} USD in {window}, of which {spent} USD were spent in that time and {reserved} USD are reserved by open handoffs: {left} USD are left"
            )?,
            Lack::Tokens { cap, spent } => write!(
                f,
                "the handoff would have tokens spent; the cap of {whose} is {cap} tokens in {window}, and {spent} were spent in that time: none are left"
            )?,
        }
        match self.frees {
            Some(at) => write!(f, "; enough is free again at {}", at.rfc3339()),
            None => Ok(()),
        }
    }
}

impl Cap {
    /// A cap of which nothing is used.
    #[must_use]
    pub fn new((tenant, agent, window): CapKey, usd: Option<Usd>, mark: i64, at: Micros) -> Self {
        let books = Books::default();
        Self { tenant, agent, window, usd, mark, books, updated_at: at }
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> CapKey {
        (self.tenant.clone(), self.agent.clone(), self.window)
    }

    /// What may count: as set, or as the settings have it for such a window. None: nothing limits it.
    #[must_use]
    pub fn limit(&self, defaults: &Defaults) -> Option<Usd> {
        self.usd.or_else(|| self.default_of(defaults)?.usd)
    }

    fn default_of(&self, defaults: &Defaults) -> Option<Limit> {
        defaults.of(self.agent.is_some()).find(|limit| limit.window == self.window)
    }

    /// What was spent within the window that ends at that time.
    #[must_use]
    pub fn spent(&self, at: Micros) -> Usd {
        let first = self.first(at);
        Usd(self.books.spent.range(first..).fold(0, |sum, (_, usd)| sum.saturating_add(*usd)))
    }

    /// What open handoffs have reserved.
    #[must_use]
    pub const fn reserved(&self) -> Usd {
        self.books.reserved
    }

    /// All that counts at that time.
    #[must_use]
    pub fn used(&self, at: Micros) -> Usd {
        self.spent(at).plus(self.books.reserved)
    }

    /// The first step that still counts: the last whose end has not left the window.
    fn first(&self, at: Micros) -> i64 {
        let begins = at.max(self.books.last).0.saturating_sub(self.window.micros());
        begins.div_euclid(self.window.step())
    }

    /// What a task's change adds: what was spent since, and what the reserves that count here have more.
    #[must_use]
    pub fn charge(&self, before: Option<&Funds>, after: &Funds) -> Charge {
        let spent = |funds: &Funds| match &self.agent {
            None => funds.spent,
            Some(agent) => funds.agents.get(agent).map_or(Usd(0), |sum| sum.usd),
        };
        let reserved = |funds: &Funds| {
            let own = funds.reserves.iter().filter(|one| {
                one.marks.contains(&self.mark)
                    && self.agent.as_ref().is_none_or(|agent| one.holder == *agent)
            });
            own.fold(Usd(0), |sum, one| sum.plus(one.left))
        };
        let (was_spent, was_reserved) =
            before.map_or((Usd(0), Usd(0)), |funds| (spent(funds), reserved(funds)));
        Charge {
            spent: spent(after).minus(was_spent),
            reserved: reserved(after).minus(was_reserved),
            tokens: self.tokens_since(before, after),
        }
    }

    /// Enters what a command adds.
    pub fn enter(&mut self, charge: Charge, at: Micros) {
        let now = at.max(self.books.last);
        let first = self.first(now);
        self.books.last = now;
        self.books.spent = self.books.spent.split_off(&first);
        self.books.tokens = self.books.tokens.split_off(&first);
        if charge.spent > Usd(0) {
            let step = now.0.div_euclid(self.window.step());
            let sum = self.books.spent.entry(step).or_default();
            *sum = sum.saturating_add(charge.spent.0);
        }
        if charge.tokens > 0 {
            let step = now.0.div_euclid(self.window.step());
            let sum = self.books.tokens.entry(step).or_default();
            *sum = sum.saturating_add(charge.tokens);
        }
        self.books.reserved = Usd(self.books.reserved.plus(charge.reserved).0.max(0));
        self.updated_at = at;
    }

    /// How much more than there is room for a charge would be; none where it fits, or takes away.
    #[must_use]
    pub fn excess(&self, limit: Usd, charge: Charge, at: Micros) -> Option<Usd> {
        let asked = charge.total();
        let over = self.used(at).plus(asked).minus(limit);
        (asked > Usd(0) && over > Usd(0)).then(|| over.min(asked))
    }

    /// What there is to say where a charge does not fit.
    #[must_use]
    pub fn over(&self, limit: Usd, charge: Charge, at: Micros) -> Over {
        let asked = charge.total();
        let (spent, reserved) = (self.spent(at), self.books.reserved);
        let mut lacking = self.used(at).plus(asked).minus(limit);
        let leaving = self.books.spent.range(self.first(at)..).find(|(_, usd)| {
            lacking = lacking.minus(Usd(**usd));
            lacking <= Usd(0)
        });
        let frees = leaving.map(|(step, _)| self.leaves(*step));
        let left = Usd(limit.minus(spent.plus(reserved)).0.max(0));
        self.refusal(Lack::Usd { cap: limit, spent, reserved, left, asked }, frees, at)
    }

    /// When what was spent in a step leaves the window.
    fn leaves(&self, step: i64) -> Micros {
        let ends = step.saturating_add(1).saturating_mul(self.window.step());
        Micros(ends.saturating_add(self.window.micros()))
    }

    fn refusal(&self, lack: Lack, frees: Option<Micros>, at: Micros) -> Over {
        Over {
            whose: match &self.agent {
                None => format!("tenant {}", self.tenant),
                Some(agent) => format!("agent {agent}"),
            },
            of_agent: self.agent.is_some(),
            window: self.window,
            lack,
            frees,
            wait: frees.map(|frees| frees.since(at)),
        }
    }
}

impl Over {
    /// A refusal's words: where a message speaks of it, and both sides' numbers.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let pointer = match self.lack {
            Lack::Usd { .. } => REMAINING,
            Lack::Tokens { .. } => TOKENS,
        };
        Failure::new(Stage::Budget, Code::BudgetExhausted, pointer, self.to_string())
    }
}

impl Books {
    /// As they are kept.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain data with number keys: it always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
