//! What a task may spend: the books of one task tree. Pure.
//!
//! A handoff that is committed reserves what it says remains, out of what its sender was handed; so
//! children that run side by side share what their parent had, and never get more of it together.
//! When a handoff ends, what its receiver spent is counted and the rest goes back to where it came
//! from. At any time what was granted is what was spent, what is reserved and what is free:
//!
//! `granted = spent + Σ left of the open reserves + free`
//!
//! The figures that agents state are cumulative along the path from the task's beginning to the
//! sender; what somebody spent is the difference to what it stated before on the same reserve, or to
//! what it was handed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::handoff::Cost;
use super::ids::{AgentId, HandoffId};
use super::money::{Usd, nanos};

/// Reserves of handoffs that have ended are kept up to this number, for what is handed on late and for
/// the report; the oldest go first. As many as the default limit of hops.
const MAX_ENDED: usize = 32;

/// Money and tokens: cumulative, or a sum. Kept as `[nano-dollars, read, written]`; the names are what older
/// versions wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Tally {
    /// US dollars.
    #[serde(rename = "u", with = "nanos")]
    pub usd: Usd,
    /// Tokens read.
    #[serde(rename = "p")]
    pub prompt: u64,
    /// Tokens written.
    #[serde(rename = "c")]
    pub completion: u64,
}

impl Tally {
    /// What a message or a verdict states.
    #[must_use]
    pub const fn of(cost: &Cost) -> Self {
        Self { usd: cost.spent, prompt: cost.prompt_tokens, completion: cost.completion_tokens }
    }

    /// What was added since; never less than nothing.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            usd: Usd(self.usd.minus(before.usd).0.max(0)),
            prompt: self.prompt.saturating_sub(before.prompt),
            completion: self.completion.saturating_sub(before.completion),
        }
    }

    /// The sum.
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

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.usd.0, self.prompt, self.completion).serialize(to)
    }
}

/// What one handoff set aside for its receiver. Kept as an array of its fields in this order, as a task has
/// one for each handoff that is open; the names are what older versions wrote.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Reserve {
    /// The handoff.
    #[serde(rename = "h")]
    pub handoff: HandoffId,
    /// The handoff out of whose reserve it was taken; none: out of what the task began with.
    #[serde(rename = "f", default)]
    pub from: Option<HandoffId>,
    /// Who sent.
    #[serde(rename = "s")]
    pub source: AgentId,
    /// Who may spend it.
    #[serde(rename = "t")]
    pub holder: AgentId,
    /// Not ended yet.
    #[serde(rename = "o")]
    pub open: bool,
    /// What its holder has neither spent nor handed on; nothing once it ended.
    #[serde(rename = "l", with = "nanos")]
    pub left: Usd,
    /// The highest cumulative figures that were stated on it.
    #[serde(rename = "m")]
    pub stated: Tally,
    /// What the sender had spent when it handed off, since it was last heard of.
    #[serde(rename = "b")]
    pub before: Tally,
    /// What the receiver said at the end that it spent besides.
    #[serde(rename = "e")]
    pub after: Tally,
    /// The caps against which it counts ([`super::cap::Cap::mark`]).
    #[serde(rename = "k", default)]
    pub marks: Vec<i64>,
}

impl Serialize for Reserve {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { handoff, from, source, holder, open, left, stated, before, after, marks } = self;
        (handoff, from, source, holder, open, left.0, stated, before, after, marks).serialize(to)
    }
}

/// The books of one task tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Funds {
    /// Who began the task.
    pub opener: AgentId,
    /// Siblings may not get more than their parent has; else what is short is granted.
    pub strict: bool,
    /// The first message named the budget of the whole task: its opener brings in no more.
    pub declared: bool,
    /// What may be spent in all.
    #[serde(with = "nanos")]
    pub granted: Usd,
    /// What was spent in all; never falls.
    #[serde(with = "nanos")]
    pub spent: Usd,
    /// Neither spent nor reserved. Below nothing where agents spent more than they were given.
    #[serde(with = "nanos")]
    pub free: Usd,
    /// The highest cumulative figures stated by who was handed nothing.
    pub stated: Tally,
    /// What each agent spent.
    pub agents: BTreeMap<AgentId, Tally>,
    /// Reserves, in the order of their commits.
    pub reserves: Vec<Reserve>,
}

/// A handoff that wants its part.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The handoff before it, as its sender says.
    pub parent: Option<HandoffId>,
    /// Who sends.
    pub source: &'a AgentId,
    /// What its message states.
    pub cost: &'a Cost,
}

/// There is not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the message asks for {asked} USD: {remaining} USD to remain and {spends} USD spent since; {left} USD are left for it: of the {granted} USD of this task {spent} USD were spent, and {reserved} USD are reserved by handoffs that are still open"
)]
pub struct Shortage {
    /// What is asked for in all.
    pub asked: Usd,
    /// Of it, what the receiver is to have.
    pub remaining: Usd,
    /// Of it, what the sender spent since it was last heard of.
    pub spends: Usd,
    /// What the sender could ask for.
    pub left: Usd,
    /// What the task may spend in all.
    pub granted: Usd,
    /// What it has spent.
    pub spent: Usd,
    /// What is reserved.
    pub reserved: Usd,
}

/// Where a handoff takes its part from, and against what its figures are measured.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// An open reserve; none: what is free.
    from: Option<usize>,
    /// The reserve under which the sender has the task, open or not; none: the task's own.
    under: Option<HandoffId>,
    /// The reserve on which its sender stated figures before; none: those of the task.
    base: Option<usize>,
    /// Its sender brings the money along: it began the task, and was handed nothing.
    root: bool,
}

impl Funds {
    /// The books as the first handoff of a task opens them, before it takes its part.
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
            // What the opener spent is counted when its handoff takes its part.
            spent: Usd(0),
            free: granted,
            stated: Tally::default(),
            agents: BTreeMap::new(),
            reserves: Vec::new(),
        }
    }

    /// As it is kept: JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain data with text keys: it always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What is reserved by handoffs that have not ended.
    #[must_use]
    pub fn reserved(&self) -> Usd {
        self.reserves.iter().fold(Usd(0), |sum, one| sum.plus(one.left))
    }

    fn find(&self, handoff: HandoffId) -> Option<usize> {
        self.reserves.iter().position(|one| one.handoff == handoff)
    }

    /// What the sender of a handoff had spent when it handed off, since it was last heard of.
    #[must_use]
    pub fn before(&self, handoff: HandoffId) -> Option<Tally> {
        self.find(handoff).map(|at| self.reserves[at].before)
    }

    /// The handoff under which the sender of this one holds the task: it is open, and this one took its
    /// part out of it.
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

    /// Who gave an agent the last of what it was given, where no handoff is open any more.
    #[must_use]
    pub fn done_for(&self, holder: &AgentId) -> Option<&AgentId> {
        let last = self.reserves.iter().rfind(|one| one.holder == *holder)?;
        self.reserves.iter().all(|one| !one.open).then_some(&last.source)
    }

    /// Whether a handoff holds a reserve.
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

    /// The parent's reserve, where the sender holds it or held it; where the sender sent the parent
    /// itself, that of which the parent was taken. Who began the task and follows nothing: what is free.
    /// Any other without such a parent: the fullest reserve that the sender holds, else what is free.
    fn place(&self, parent: Option<HandoffId>, source: &AgentId) -> Place {
        if parent.is_none() && self.opener == *source {
            return Place { from: None, under: None, base: None, root: true };
        }
        if let Some(at) = parent.and_then(|id| self.find(id)) {
            let known = &self.reserves[at];
            if known.holder == *source {
                let from = if known.open { Some(at) } else { self.open_above(known.from) };
                return Place { from, under: parent, base: Some(at), root: false };
            }
            if known.source == *source {
                let base = known.from.and_then(|id| self.find(id));
                let root = known.from.is_none() && self.opener == *source;
                return Place { from: self.open_above(known.from), under: known.from, base, root };
            }
        }
        let held = self.reserves.iter().enumerate();
        let fullest = held
            .filter(|(_, one)| one.open && one.holder == *source)
            .max_by_key(|(_, one)| one.left)
            .map(|(at, _)| at);
        let under = fullest.map(|at| self.reserves[at].handoff);
        let root = fullest.is_none() && self.opener == *source;
        Place { from: fullest, under, base: fullest, root }
    }

    fn left_at(&self, from: Option<usize>) -> Usd {
        let own = from.map_or(Usd(0), |at| self.reserves[at].left);
        own.plus(Usd(self.free.0.max(0)))
    }

    fn stated_at(&self, base: Option<usize>) -> Tally {
        base.map_or(self.stated, |at| self.reserves[at].stated)
    }

    /// Whether a sender is given what it brings along, and not what it was handed.
    #[must_use]
    pub fn is_declared_root(&self, parent: Option<HandoffId>, source: &AgentId) -> bool {
        self.declared && self.place(parent, source).root
    }

    /// What the sender spent by now, since it was last heard of.
    #[must_use]
    pub fn spends(&self, ask: Ask<'_>) -> Tally {
        let place = self.place(ask.parent, ask.source);
        Tally::of(ask.cost).since(self.stated_at(place.base))
    }

    /// Whether there is enough for it.
    ///
    /// # Errors
    /// [`Shortage`], with what is asked and what is left.
    pub fn check(&self, ask: Ask<'_>) -> Result<(), Shortage> {
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

    /// Takes a handoff's part and counts what its sender spent; what is short is granted. Whether it
    /// may be short is [`Funds::check`]'s to say, before.
    pub fn draw(&mut self, handoff: HandoffId, holder: &AgentId, ask: Ask<'_>) {
        // One that was kept for a person, and is released, begins anew.
        self.reserves.retain(|one| one.handoff != handoff);
        let place = self.place(ask.parent, ask.source);
        let (now, before) = (Tally::of(ask.cost), self.spends(ask));
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
        self.reserves.push(Reserve {
            handoff,
            from: place.under,
            source: ask.source.clone(),
            holder: holder.clone(),
            open: true,
            left: remaining,
            stated: now,
            before,
            after: Tally::default(),
            marks: Vec::new(),
        });
        self.forget();
    }

    /// A handoff ended. What its receiver spent in the end is counted, where it says so, and the rest
    /// goes back to where it came from. Says what was counted.
    pub fn settle(&mut self, handoff: HandoffId, said: Option<Tally>) -> Tally {
        let Some(at) = self.find(handoff).filter(|at| self.reserves[*at].open) else {
            return Tally::default();
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

    /// The receiver of a handoff that ended when it handed on says what it spent by now: it holds nothing
    /// any more, so that goes off what its sender holds. Says what was counted.
    pub fn settle_late(&mut self, handoff: HandoffId, said: Option<Tally>) -> Tally {
        let Some(at) = self.find(handoff).filter(|at| !self.reserves[*at].open) else {
            return Tally::default();
        };
        let pays = self.open_above(self.reserves[at].from);
        self.end(at, pays, said)
    }

    /// Counts what a receiver says at the end that it spent, out of an open reserve or of what is free.
    fn end(&mut self, at: usize, pays: Option<usize>, said: Option<Tally>) -> Tally {
        let one = &mut self.reserves[at];
        let after = said.map_or(Tally::default(), |said| said.since(one.stated));
        one.stated = one.stated.max(said.unwrap_or_default());
        one.after = one.after.plus(after);
        let holder = one.holder.clone();
        self.take(pays, after.usd);
        self.count(&holder, after);
        after
    }

    /// Another handoff stands in for one that ended: it gets what that had, as far as it is there.
    pub fn pass_on(&mut self, ended: HandoffId, handoff: HandoffId, holder: &AgentId, cost: &Cost) {
        let Some(known) = self.find(ended).map(|at| self.reserves[at].clone()) else { return };
        let from = self.open_above(known.from);
        let wanted = Usd(cost.remaining.0.max(0));
        let left = wanted.min(self.left_at(from));
        self.take(from, left);
        self.reserves.push(Reserve {
            handoff,
            from: known.from,
            source: known.source,
            holder: holder.clone(),
            open: true,
            left,
            stated: Tally::of(cost),
            before: Tally::default(),
            after: Tally::default(),
            marks: Vec::new(),
        });
        self.forget();
    }

    /// Marks reserves that were not open before with the caps of their holders.
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

    /// Takes from an open reserve what a cap has no room for; it is free for the task.
    pub fn trim(&mut self, handoff: HandoffId, by: Usd) {
        if let Some(at) = self.find(handoff) {
            let part = by.min(self.reserves[at].left);
            self.reserves[at].left = self.reserves[at].left.minus(part);
            self.free = self.free.plus(part);
        }
    }

    /// An operator adds to it.
    pub fn top_up(&mut self, add: Usd) {
        self.granted = self.granted.plus(add);
        self.free = self.free.plus(add);
    }

    /// Takes an amount out of a reserve, and what that does not have out of what is free.
    fn take(&mut self, from: Option<usize>, amount: Usd) {
        let own = from.map_or(Usd(0), |at| {
            let part = amount.min(self.reserves[at].left);
            self.reserves[at].left = self.reserves[at].left.minus(part);
            part
        });
        self.free = self.free.minus(amount.minus(own));
    }

    fn count(&mut self, agent: &AgentId, added: Tally) {
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
