//! Rolling caps: spending limits of a tenant or an agent within a moving window. Pure.
//!
//! A cap counts the spending within its window and the reserves of open handoffs, however old. So whatever is
//! reserved under a cap can be spent under it at any time:
//!
//! `spent within the window + reserved ≤ cap`
//!
//! holds after each accepted handoff, and neither time nor a change from reserved to spent can break it. An
//! agent's overspending is counted when it is stated: the money is gone, and no cap brings it back.
//!
//! A cap may limit tokens, too. No message states how many tokens its receiver may spend, so none are reserved:
//! tokens count once stated, whether or not a cap limits them now, and an exhausted cap accepts no handoff until some
//! left its window. Handoffs under way at that time may still exceed it.
//!
//! The window moves in steps of a sixtieth of its length: an amount counts for the whole window, and up to one
//! step longer. Time in a cap's usage does not go back, whatever a broker's clock says.

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

/// Pointer of the requested money in a message.
const REMAINING: &str = "/costTracking/costBudgetRemainingUSD";
/// Pointer of the spent tokens in a message.
const TOKENS: &str = "/costTracking/tokenSpent";

/// Steps of a window.
const STEPS: i64 = 60;
const SECOND: i64 = 1_000_000;
/// Shortest and longest window: a minute and 31 days, in seconds.
const SHORTEST: u32 = 60;
const LONGEST: u32 = 31 * 86_400;

/// Length of a cap's window: a minute to 31 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(u32);

/// The text is not a valid window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a window is an ISO 8601 duration from PT1M to P31D in weeks, days, hours, minutes or seconds, such as PT1H, P1D or P7D"
)]
pub struct WindowError;

impl Window {
    /// A window of whole seconds.
    ///
    /// # Errors
    /// [`WindowError`] where it is too short or too long.
    pub fn of_seconds(seconds: i64) -> Result<Self, WindowError> {
        let seconds = u32::try_from(seconds).map_err(|_| WindowError)?;
        if (SHORTEST..=LONGEST).contains(&seconds) { Ok(Self(seconds)) } else { Err(WindowError) }
    }

    /// Length in seconds.
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
    type Err = WindowError;

    /// Parses `P[nW][nD][T[nH][nM][nS]]`, whole numbers, at least one of them.
    fn from_str(text: &str) -> Result<Self, WindowError> {
        let rest = text.strip_prefix('P').ok_or(WindowError)?;
        let (days, times) = match rest.split_once('T') {
            Some((_, "")) => return Err(WindowError),
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
                let number: i64 = number.parse().ok().filter(|_| plain).ok_or(WindowError)?;
                seconds += number * worth;
                part = after;
            }
            if !part.is_empty() {
                return Err(WindowError);
            }
        }
        Self::of_seconds(seconds)
    }
}

impl fmt::Display for Window {
    /// Writes days, hours, minutes and seconds, without zero parts.
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

/// The spending a cap counts: a whole tenant's, or one agent's.
pub type CapScope = (TenantId, Option<AgentId>);
/// Key of a cap: scope and window.
pub type CapKey = (TenantId, Option<AgentId>, Window);

/// A default limit by the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapLimit {
    /// Length of the window.
    pub window: Window,
    pub usd: Option<Usd>,
    pub tokens: Option<u64>,
}

/// Most windows with default caps.
pub const MAX_DEFAULTS: usize = 4;

/// Largest token limit: every number up to it is exact in JSON (RFC 8785).
pub const MAX_TOKENS: u64 = (1 << 53) - 1;

/// Default caps, where an operator set none for the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defaults {
    pub tenant: [Option<CapLimit>; MAX_DEFAULTS],
    pub agent: [Option<CapLimit>; MAX_DEFAULTS],
}

impl Defaults {
    /// The defaults for agents, or for tenants.
    pub fn of(&self, agent: bool) -> impl Iterator<Item = CapLimit> {
        (if agent { self.agent } else { self.tenant }).into_iter().flatten()
    }

    /// Whether any default is set.
    #[must_use]
    pub fn any(&self) -> bool {
        self.tenant.iter().chain(&self.agent).any(Option::is_some)
    }
}

/// The usage counted against a cap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapUsage {
    /// Nano-dollars spent, by step of the window: step `n` begins at `n` times its length.
    #[serde(rename = "s")]
    spent: BTreeMap<i64, i64>,
    /// The reserves of open handoffs.
    #[serde(rename = "r", with = "nanos")]
    reserved: Usd,
    /// The latest time of an entry.
    #[serde(rename = "t")]
    last: Micros,
    /// Token limit set by an operator.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// Tokens spent, by step of the window.
    #[serde(rename = "k", default, skip_serializing_if = "BTreeMap::is_empty")]
    tokens: BTreeMap<i64, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Money in US dollars.
    Usd,
    /// Tokens, read and written.
    Tokens,
}

/// A cap with its usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    pub tenant: TenantId,
    /// The agent; none for the whole tenant.
    pub agent: Option<AgentId>,
    /// Length of the window.
    pub window: Window,
    /// Limit of money set by an operator; none for the default. The token limit is in the usage
    /// ([`Cap::tokens`]).
    pub usd: Option<Usd>,
    /// The mark of reserves that count here; a cap set again after its removal has another one.
    pub mark: i64,
    pub usage: CapUsage,
    /// Time of the last change.
    pub updated_at: Micros,
}

/// A command's change of usage; negative where it decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charge {
    pub spent: Usd,
    pub reserved: Usd,
    pub tokens: u64,
}

impl Charge {
    /// Money spent and reserved.
    #[must_use]
    pub const fn total(self) -> Usd {
        self.spent.plus(self.reserved)
    }
}

/// A cap has no room for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapExceeded {
    /// "tenant …" or "agent …".
    pub whose: String,
    /// Whether it is an agent's cap.
    pub of_agent: bool,
    /// Length of the window.
    pub window: Window,
    /// The missing amount.
    pub lack: CapShortage,
    /// Time at which enough will have left the window, without further spending; none where reserves alone exceed
    /// the cap.
    pub frees: Option<Micros>,
    /// Duration until that time.
    pub wait: Option<Duration>,
}

/// The exceeded limit, with the amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapShortage {
    Usd {
        cap: Usd,
        /// Spent within the window.
        spent: Usd,
        /// Reserved by open handoffs.
        reserved: Usd,
        /// Remaining room, at least zero.
        left: Usd,
        /// The requested amount.
        asked: Usd,
    },
    /// All tokens are spent.
    Tokens {
        cap: u64,
        /// Spent within the window.
        spent: u64,
    },
}

impl fmt::Display for CapExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whose, window, .. } = self;
        match self.lack {
            CapShortage::Usd { cap, spent, reserved, left, asked } => write!(
                f,
                "the handoff asks for {asked} USD more; the cap of {whose} is {cap} USD in {window}, of which {spent} USD were spent in that time and {reserved} USD are reserved by open handoffs: {left} USD are left"
            )?,
            CapShortage::Tokens { cap, spent } => write!(
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
    /// A cap without usage.
    #[must_use]
    pub fn new((tenant, agent, window): CapKey, usd: Option<Usd>, mark: i64, at: Micros) -> Self {
        let usage = CapUsage::default();
        Self { tenant, agent, window, usd, mark, usage, updated_at: at }
    }

    #[must_use]
    pub fn key(&self) -> CapKey {
        (self.tenant.clone(), self.agent.clone(), self.window)
    }

    /// The effective limit of money: the operator's, or the default for the window. `None` means no limit.
    #[must_use]
    pub fn limit(&self, defaults: &Defaults) -> Option<Usd> {
        self.usd.or_else(|| self.default_of(defaults)?.usd)
    }

    fn default_of(&self, defaults: &Defaults) -> Option<CapLimit> {
        defaults.of(self.agent.is_some()).find(|limit| limit.window == self.window)
    }

    /// Spending within the window that ends at `at`.
    #[must_use]
    pub fn spent(&self, at: Micros) -> Usd {
        let first = self.first(at);
        Usd(self.usage.spent.range(first..).fold(0, |sum, (_, usd)| sum.saturating_add(*usd)))
    }

    /// The reserves of open handoffs.
    #[must_use]
    pub const fn reserved(&self) -> Usd {
        self.usage.reserved
    }

    /// Total usage at `at`.
    #[must_use]
    pub fn used(&self, at: Micros) -> Usd {
        self.spent(at).plus(self.usage.reserved)
    }

    /// The first step that still counts: the one whose end has not left the window.
    fn first(&self, at: Micros) -> i64 {
        let begins = at.max(self.usage.last).0.saturating_sub(self.window.micros());
        begins.div_euclid(self.window.step())
    }

    /// The usage added by a task's change: new spending, and the increase of reserves that count here.
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

    /// Adds a command's charge.
    pub fn enter(&mut self, charge: Charge, at: Micros) {
        let now = at.max(self.usage.last);
        let first = self.first(now);
        self.usage.last = now;
        self.usage.spent = self.usage.spent.split_off(&first);
        self.usage.tokens = self.usage.tokens.split_off(&first);
        if charge.spent > Usd(0) {
            let step = now.0.div_euclid(self.window.step());
            let sum = self.usage.spent.entry(step).or_default();
            *sum = sum.saturating_add(charge.spent.0);
        }
        if charge.tokens > 0 {
            let step = now.0.div_euclid(self.window.step());
            let sum = self.usage.tokens.entry(step).or_default();
            *sum = sum.saturating_add(charge.tokens);
        }
        self.usage.reserved = Usd(self.usage.reserved.plus(charge.reserved).0.max(0));
        self.updated_at = at;
    }

    /// The amount by which a charge exceeds the room; `None` where it fits, or decreases usage.
    #[must_use]
    pub fn excess(&self, limit: Usd, charge: Charge, at: Micros) -> Option<Usd> {
        let asked = charge.total();
        let over = self.used(at).plus(asked).minus(limit);
        (asked > Usd(0) && over > Usd(0)).then(|| over.min(asked))
    }

    /// The refusal of a charge that does not fit.
    #[must_use]
    pub fn over(&self, limit: Usd, charge: Charge, at: Micros) -> CapExceeded {
        let asked = charge.total();
        let (spent, reserved) = (self.spent(at), self.usage.reserved);
        let mut lacking = self.used(at).plus(asked).minus(limit);
        let leaving = self.usage.spent.range(self.first(at)..).find(|(_, usd)| {
            lacking = lacking.minus(Usd(**usd));
            lacking <= Usd(0)
        });
        let frees = leaving.map(|(step, _)| self.leaves(*step));
        let left = Usd(limit.minus(spent.plus(reserved)).0.max(0));
        self.refusal(CapShortage::Usd { cap: limit, spent, reserved, left, asked }, frees, at)
    }

    /// The time at which a step's spending leaves the window.
    fn leaves(&self, step: i64) -> Micros {
        let ends = step.saturating_add(1).saturating_mul(self.window.step());
        Micros(ends.saturating_add(self.window.micros()))
    }

    fn refusal(&self, lack: CapShortage, frees: Option<Micros>, at: Micros) -> CapExceeded {
        CapExceeded {
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

impl CapExceeded {
    /// The refusal as a gate failure, with the message's pointer and the amounts.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let pointer = match self.lack {
            CapShortage::Usd { .. } => REMAINING,
            CapShortage::Tokens { .. } => TOKENS,
        };
        Failure::new(Stage::Budget, Code::BudgetExhausted, pointer, self.to_string())
    }
}

impl CapUsage {
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain data with number keys: it always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
