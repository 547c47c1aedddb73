//! The budget of one task tree. Pure.
//!
//! A committed handoff reserves its stated remaining budget out of its sender's budget; so children that run side
//! by side share their parent's budget and never get more in total. At a handoff's end its receiver's spending is
//! counted, and the rest returns to its source. At any time the granted amount equals the sum of the spent,
//! reserved and free amounts:
//!
//! `granted = spent + Σ left of the open reserves + free`
//!
//! The figures that agents state are cumulative along the path from the task's beginning to the sender; an agent's
//! spending is the difference to its previous statement on the same reserve, or to what it was given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::handoff::Cost;
use super::ids::{AgentId, HandoffId};
use super::money::{Usd, nanos};

/// Most reserves of ended handoffs kept, for late handoffs and for the report; the oldest are dropped first. Equal to
/// the default limit of hops.
const MAX_ENDED: usize = 32;

/// Money and tokens: cumulative, or a sum. Serialized as `[nano-dollars, read, written]`; the member names are those
/// of older versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Spending {
    #[serde(rename = "u", with = "nanos")]
    pub usd: Usd,
    #[serde(rename = "p")]
    pub prompt: u64,
    #[serde(rename = "c")]
    pub completion: u64,
}

impl Spending {
    /// The figures stated in a message or a verdict.
    #[must_use]
    pub const fn of(cost: &Cost) -> Self {
        Self { usd: cost.spent, prompt: cost.prompt_tokens, completion: cost.completion_tokens }
    }

    /// The increase since `before`, at least zero.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            usd: Usd(self.usd.minus(before.usd).0.max(0)),
            prompt: self.prompt.saturating_sub(before.prompt),
            completion: self.completion.saturating_sub(before.completion),
        }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            usd: self.usd.plus(other.usd),
            prompt: self.prompt.saturating_add(other.prompt),
            completion: self.completion.saturating_add(other.completion),
        }
    }

    /// The larger of each figure.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            usd: self.usd.max(other.usd),
            prompt: self.prompt.max(other.prompt),
            completion: self.completion.max(other.completion),
        }
    }
}

impl Serialize for Spending {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.usd.0, self.prompt, self.completion).serialize(to)
    }
}

/// The budget reserved for a handoff's receiver. Serialized as an array of its fields in this order, as a task has
/// one for each open handoff; the member names are those of older versions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Reservation {
    #[serde(rename = "h")]
    pub handoff: HandoffId,
    /// The handoff from whose reserve this one was taken; none for the task's initial budget.
    #[serde(rename = "f", default)]
    pub from: Option<HandoffId>,
    #[serde(rename = "s")]
    pub source: AgentId,
    /// The receiver, who may spend it.
    #[serde(rename = "t")]
    pub holder: AgentId,
    /// Whether the handoff has not ended.
    #[serde(rename = "o")]
    pub open: bool,
    /// The amount that the holder has neither spent nor handed on; zero after the end.
    #[serde(rename = "l", with = "nanos")]
    pub left: Usd,
    /// The highest cumulative figures stated on it, and what was spent since on handoffs that took their part of it
    /// and ended: the holder's next figures begin there.
    #[serde(rename = "m")]
    pub stated: Spending,
    /// The sender's spending since its last statement, as of the handoff.
    #[serde(rename = "b")]
    pub before: Spending,
    /// The receiver's final spending beyond earlier statements.
    #[serde(rename = "e")]
    pub after: Spending,
    /// The caps it counts against ([`super::cap::Cap::mark`]).
    #[serde(rename = "k", default)]
    pub marks: Vec<i64>,
}

impl Serialize for Reservation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { handoff, from, source, holder, open, left, stated, before, after, marks } = self;
        (handoff, from, source, holder, open, left.0, stated, before, after, marks).serialize(to)
    }
}

/// The budget of one task tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Funds {
    /// The agent that began the task.
    pub opener: AgentId,
    /// Whether siblings may not exceed their parent's budget; otherwise a shortage is granted.
    pub strict: bool,
    /// Whether the first message stated the budget of the whole task: its opener then adds no more.
    pub declared: bool,
    /// Total budget.
    #[serde(with = "nanos")]
    pub granted: Usd,
    /// Total spending; never decreases.
    #[serde(with = "nanos")]
    pub spent: Usd,
    /// The amount neither spent nor reserved. Negative where agents overspent.
    #[serde(with = "nanos")]
    pub free: Usd,
    /// The same of agents without a reserve.
    pub stated: Spending,
    pub agents: BTreeMap<AgentId, Spending>,
    /// Reserves in the order of commits.
    pub reserves: Vec<Reservation>,
}

/// A handoff's request for budget.
#[derive(Debug, Clone, Copy)]
pub struct FundsRequest<'a> {
    /// The parent handoff, as stated by the sender.
    pub parent: Option<HandoffId>,
    pub source: &'a AgentId,
    /// The cost stated in the message.
    pub cost: &'a Cost,
}

/// The budget is too small for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the message asks for {asked} USD: {remaining} USD to remain and {spends} USD spent since; {left} USD are left for it: of the {granted} USD of this task {spent} USD were spent, and {reserved} USD are reserved by handoffs that are still open"
)]
pub struct Shortage {
    /// Total amount requested.
    pub asked: Usd,
    /// Requested amount for the receiver.
    pub remaining: Usd,
    /// Requested amount for the sender's spending since its last statement.
    pub spends: Usd,
    /// The amount available to the sender.
    pub left: Usd,
    /// The task's total budget.
    pub granted: Usd,
    /// The task's spending.
    pub spent: Usd,
    /// The amount reserved by open handoffs.
    pub reserved: Usd,
}

/// The source of a handoff's budget, and the base of its figures.
#[derive(Debug, Clone, Copy)]
struct FundsSource {
    /// Index of an open reserve; none for the free amount.
    from: Option<usize>,
    /// The reserve under which the sender has the task, open or not; none: the task's own.
    under: Option<HandoffId>,
    /// The reserve on which its sender stated figures before; none: those of the task.
    base: Option<usize>,
    /// Whether the sender brings the budget: it began the task, and has no reserve.
    root: bool,
}

impl Funds {
    /// Opens the budget for a task's first handoff, before that handoff reserves its part.
    #[must_use]
    pub fn open(
        opener: &AgentId,
        cost: &Cost,
        declared: Option<Usd>,
        topped_up: Usd,
        strict: bool,
    ) -> Self {
        let remaining = Usd(cost.remaining.0.max(0));
        let stated = Usd(cost.spent.0.max(0));
        let granted = declared.unwrap_or(stated.plus(remaining)).plus(topped_up);
        Self {
            opener: opener.clone(),
            strict,
            declared: declared.is_some(),
            granted,
            // The opener's spending counts when its handoff takes its part.
            spent: Usd(0),
            free: granted,
            stated: Spending::default(),
            agents: BTreeMap::new(),
            reserves: Vec::new(),
        }
    }

    /// Serialized form: JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain data with text keys: it always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The amount reserved by open handoffs.
    #[must_use]
    pub fn reserved(&self) -> Usd {
        self.reserves.iter().fold(Usd(0), |sum, one| sum.plus(one.left))
    }

    fn find(&self, handoff: HandoffId) -> Option<usize> {
        self.reserves.iter().position(|one| one.handoff == handoff)
    }

    /// The spending of a handoff's sender since its last statement, as of the handoff.
    #[must_use]
    pub fn before(&self, handoff: HandoffId) -> Option<Spending> {
        self.find(handoff).map(|at| self.reserves[at].before)
    }

    /// The handoff under which this one's sender holds the task: the open handoff from which this one took its
    /// part.
    #[must_use]
    pub fn incoming(&self, handoff: HandoffId) -> Option<HandoffId> {
        let own = &self.reserves[self.find(handoff)?];
        let from = &self.reserves[self.find(own.from?)?];
        (from.open && from.holder == own.source).then_some(from.handoff)
    }

    /// The nearest open handoff whose receiver handed on what became this one: directly, or over receivers that
    /// handed it on in turn.
    #[must_use]
    pub fn above(&self, handoff: HandoffId) -> Option<HandoffId> {
        let mut own = &self.reserves[self.find(handoff)?];
        // As many steps as there are reserves, whatever they say of each other.
        for _ in 0..self.reserves.len() {
            let from = &self.reserves[self.find(own.from?)?];
            if from.holder != own.source {
                return None;
            }
            if from.open {
                return Some(from.handoff);
            }
            own = from;
        }
        None
    }

    /// Whether the receiver of an open handoff handed on, and what it handed on, or what that was handed on as,
    /// is open.
    #[must_use]
    pub fn is_handed_on(&self, handoff: HandoffId) -> bool {
        let mut open = self.reserves.iter().filter(|one| one.open);
        open.any(|one| self.above(one.handoff) == Some(handoff))
    }

    /// The agent that last gave an agent budget, once none of those handoffs is open.
    #[must_use]
    pub fn done_for(&self, holder: &AgentId) -> Option<&AgentId> {
        let last = self.reserves.iter().rfind(|one| one.holder == *holder)?;
        self.reserves.iter().all(|one| !one.open).then_some(&last.source)
    }

    /// The handoffs with an open reserve.
    pub fn open_handoffs(&self) -> impl Iterator<Item = HandoffId> + '_ {
        self.reserves.iter().filter(|one| one.open).map(|one| one.handoff)
    }

    /// Whether a handoff has an open reserve.
    #[must_use]
    pub fn is_open(&self, handoff: HandoffId) -> bool {
        self.find(handoff).is_some_and(|at| self.reserves[at].open)
    }

    /// The nearest open reserve from which this one was taken, directly or not.
    fn open_above(&self, mut from: Option<HandoffId>) -> Option<usize> {
        // As many steps as there are reserves, whatever they say of each other.
        for _ in 0..=self.reserves.len() {
            let place = self.find(from?)?;
            if self.reserves[place].open {
                return Some(place);
            }
            from = self.reserves[place].from;
        }
        None
    }

    /// The parent's reserve, if the sender holds or held it; if the sender sent the parent itself, the parent's
    /// source. For the opener without a parent: the free amount. Otherwise the largest reserve of the sender,
    /// else the free amount.
    fn place(&self, parent: Option<HandoffId>, source: &AgentId) -> FundsSource {
        if parent.is_none() && self.opener == *source {
            return FundsSource { from: None, under: None, base: None, root: true };
        }
        if let Some(at) = parent.and_then(|id| self.find(id)) {
            let known = &self.reserves[at];
            if known.holder == *source {
                let from = if known.open { Some(at) } else { self.open_above(known.from) };
                return FundsSource { from, under: parent, base: Some(at), root: false };
            }
            if known.source == *source {
                let base = known.from.and_then(|id| self.find(id));
                let root = known.from.is_none() && self.opener == *source;
                return FundsSource {
                    from: self.open_above(known.from),
                    under: known.from,
                    base,
                    root,
                };
            }
        }
        let held = self.reserves.iter().enumerate();
        let fullest = held
            .filter(|(_, one)| one.open && one.holder == *source)
            .max_by_key(|(_, one)| one.left)
            .map(|(at, _)| at);
        let under = fullest.map(|at| self.reserves[at].handoff);
        let root = fullest.is_none() && self.opener == *source;
        FundsSource { from: fullest, under, base: fullest, root }
    }

    fn left_at(&self, from: Option<usize>) -> Usd {
        let own = from.map_or(Usd(0), |at| self.reserves[at].left);
        own.plus(Usd(self.free.0.max(0)))
    }

    fn stated_at(&self, base: Option<usize>) -> Spending {
        base.map_or(self.stated, |at| self.reserves[at].stated)
    }

    /// Whether the sender brings its own budget instead of using a reserve.
    #[must_use]
    pub fn is_declared_root(&self, parent: Option<HandoffId>, source: &AgentId) -> bool {
        self.declared && self.place(parent, source).root
    }

    /// The sender's spending since its last statement.
    #[must_use]
    pub fn spends(&self, ask: FundsRequest<'_>) -> Spending {
        let place = self.place(ask.parent, ask.source);
        Spending::of(ask.cost).since(self.stated_at(place.base))
    }

    /// Checks that the budget suffices.
    ///
    /// # Errors
    /// [`Shortage`], with the requested and the available amounts.
    pub fn check(&self, ask: FundsRequest<'_>) -> Result<(), Shortage> {
        let place = self.place(ask.parent, ask.source);
        let spends = self.spends(ask).usd;
        let remaining = Usd(ask.cost.remaining.0.max(0));
        let asked = spends.plus(remaining);
        let left = self.left_at(place.from);
        let lends = !self.strict || (place.root && !self.declared);
        if asked <= left || lends {
            return Ok(());
        }
        let (granted, spent, reserved) = (self.granted, self.spent, self.reserved());
        Err(Shortage { asked, remaining, spends, left, granted, spent, reserved })
    }

    /// Reserves a handoff's part and counts its sender's spending; a shortage is granted. [`Funds::check`]
    /// decides beforehand whether a shortage is allowed.
    pub fn draw(&mut self, handoff: HandoffId, holder: &AgentId, ask: FundsRequest<'_>) {
        // One that was kept for a person, and is released, begins anew.
        self.reserves.retain(|one| one.handoff != handoff);
        let place = self.place(ask.parent, ask.source);
        let (now, before) = (Spending::of(ask.cost), self.spends(ask));
        let remaining = Usd(ask.cost.remaining.0.max(0));
        let short = before.usd.plus(remaining).minus(self.left_at(place.from));
        if short > Usd(0) {
            self.granted = self.granted.plus(short);
            self.free = self.free.plus(short);
        }
        let stated = self.stated_at(place.base).max(now);
        match place.base {
            Some(at) => self.reserves[at].stated = stated,
            None => self.stated = stated,
        }
        self.take(place.from, before.usd.plus(remaining));
        self.count(ask.source, before);
        if let Some(at) = place.base.filter(|at| !self.reserves[*at].open) {
            self.raise(self.reserves[at].from, before);
        }
        self.reserves.push(Reservation {
            handoff,
            from: place.under,
            source: ask.source.clone(),
            holder: holder.clone(),
            open: true,
            left: remaining,
            stated: now,
            before,
            after: Spending::default(),
            marks: Vec::new(),
        });
        self.forget();
    }

    /// Ends a handoff: counts its receiver's final spending, if stated, and returns the rest to its source.
    /// Returns the spending counted.
    pub fn settle(&mut self, handoff: HandoffId, said: Option<Spending>) -> Spending {
        let Some(at) = self.find(handoff).filter(|at| self.reserves[*at].open) else {
            return Spending::default();
        };
        let after = self.end(at, Some(at), said);
        let one = &mut self.reserves[at];
        one.open = false;
        let (rest, from) = (std::mem::take(&mut one.left), one.from);
        match self.open_above(from) {
            Some(above) => {
                let above = &mut self.reserves[above];
                above.left = above.left.plus(rest);
            }
            None => self.free = self.free.plus(rest),
        }
        after
    }

    /// A task came back to an agent by a completed handoff: what was stated on the way is behind that agent now, so
    /// its next figures, cumulative, begin there.
    pub fn come_back(&mut self, completed: HandoffId, to: &AgentId) {
        let Some(stated) = self.find(completed).map(|at| self.reserves[at].stated) else { return };
        match self.above(completed).and_then(|id| self.find(id)) {
            Some(at) => self.reserves[at].stated = self.reserves[at].stated.max(stated),
            None if self.opener == *to => self.stated = self.stated.max(stated),
            None => {}
        }
    }

    /// A handoff ended, well or badly: what was spent on it is behind the agents that handed the money on, so that
    /// their next figures, cumulative, begin there. While nothing else of the task is under way that is all that the
    /// task has cost, which `GET /tasks/{id}` shows; beside other handoffs it is what was spent below. `cost` is what
    /// the handoff's message stated.
    pub fn put_behind(&mut self, ended: HandoffId, cost: &Cost) {
        let Some(at) = self.find(ended) else { return };
        let one = &self.reserves[at];
        let (from, below) = (one.from, one.stated.since(Spending::of(cost)));
        self.raise(from, below);
    }

    /// Raises the figures from which the holders of a handoff's money go on: of each reserve above it, up to the
    /// nearest open one, or the task's.
    fn raise(&mut self, from: Option<HandoffId>, below: Spending) {
        let mut path = Vec::new();
        let mut next = from;
        while let Some(at) = next.and_then(|id| self.find(id)).filter(|at| !path.contains(at)) {
            path.push(at);
            next = self.reserves[at].from;
        }
        let alone =
            (0..self.reserves.len()).all(|at| !self.reserves[at].open || path.contains(&at));
        let shown = self.spent;
        let raised = |stated: &mut Spending| {
            let mut sum = stated.plus(below);
            sum.usd = if alone { shown } else { sum.usd.min(shown) };
            *stated = (*stated).max(sum);
        };
        for at in path {
            raised(&mut self.reserves[at].stated);
            if self.reserves[at].open {
                return;
            }
        }
        raised(&mut self.stated);
    }

    /// Whether what the sender holds pays for the request.
    #[must_use]
    pub fn covers(&self, ask: FundsRequest<'_>) -> bool {
        let place = self.place(ask.parent, ask.source);
        let own = match place.from {
            Some(at) if self.reserves[at].holder == *ask.source => self.reserves[at].left,
            None if place.root => self.free,
            _ => return false,
        };
        self.spends(ask).usd.plus(Usd(ask.cost.remaining.0.max(0))) <= own
    }

    /// The receiver of a handoff that ended when it handed on reports its spending late: it holds nothing
    /// any more, so the amount comes off its sender's share. Returns the counted amount.
    pub fn settle_late(&mut self, handoff: HandoffId, said: Option<Spending>) -> Spending {
        let Some(at) = self.find(handoff).filter(|at| !self.reserves[*at].open) else {
            return Spending::default();
        };
        let from = self.reserves[at].from;
        let after = self.end(at, self.open_above(from), said);
        self.raise(from, after);
        after
    }

    /// Counts a receiver's final spending, out of an open reserve or the free amount.
    fn end(&mut self, at: usize, pays: Option<usize>, said: Option<Spending>) -> Spending {
        let one = &mut self.reserves[at];
        let after = said.map_or(Spending::default(), |said| said.since(one.stated));
        one.stated = one.stated.max(said.unwrap_or_default());
        one.after = one.after.plus(after);
        let holder = one.holder.clone();
        self.take(pays, after.usd);
        self.count(&holder, after);
        after
    }

    /// Replaces an ended handoff by another, which reserves the same amount as far as it is available.
    pub fn pass_on(&mut self, ended: HandoffId, handoff: HandoffId, holder: &AgentId, cost: &Cost) {
        let Some(known) = self.find(ended).map(|at| self.reserves[at].clone()) else { return };
        let from = self.open_above(known.from);
        let wanted = Usd(cost.remaining.0.max(0));
        let left = wanted.min(self.left_at(from));
        self.take(from, left);
        self.reserves.push(Reservation {
            handoff,
            from: known.from,
            source: known.source,
            holder: holder.clone(),
            open: true,
            left,
            stated: Spending::of(cost),
            before: Spending::default(),
            after: Spending::default(),
            marks: Vec::new(),
        });
        self.forget();
    }

    /// Marks newly opened reserves with the caps of their holders.
    pub fn mark_new(&mut self, before: Option<&Self>, marks: impl Fn(&AgentId) -> Vec<i64>) {
        let known = |handoff| {
            before
                .is_some_and(|funds| funds.find(handoff).is_some_and(|at| funds.reserves[at].open))
        };
        for one in &mut self.reserves {
            if one.open && !known(one.handoff) {
                one.marks = marks(&one.holder);
            }
        }
    }

    /// Moves an amount for which a cap has no room from an open reserve to the free amount.
    pub fn trim(&mut self, handoff: HandoffId, by: Usd) {
        if let Some(at) = self.find(handoff) {
            let part = by.min(self.reserves[at].left);
            self.reserves[at].left = self.reserves[at].left.minus(part);
            self.free = self.free.plus(part);
        }
    }

    /// Adds an operator's amount to the budget.
    pub fn top_up(&mut self, add: Usd) {
        self.granted = self.granted.plus(add);
        self.free = self.free.plus(add);
    }

    /// Takes an amount from a reserve, and the rest from the free amount.
    fn take(&mut self, from: Option<usize>, amount: Usd) {
        let own = from.map_or(Usd(0), |at| {
            let part = amount.min(self.reserves[at].left);
            self.reserves[at].left = self.reserves[at].left.minus(part);
            part
        });
        self.free = self.free.minus(amount.minus(own));
    }

    fn count(&mut self, agent: &AgentId, added: Spending) {
        self.spent = self.spent.plus(added.usd);
        let sum = self.agents.entry(agent.clone()).or_default();
        *sum = sum.plus(added);
    }

    fn forget(&mut self) {
        let mut surplus =
            self.reserves.iter().filter(|one| !one.open).count().saturating_sub(MAX_ENDED);
        self.reserves.retain(|one| {
            let goes = surplus > 0 && !one.open;
            surplus -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests;
