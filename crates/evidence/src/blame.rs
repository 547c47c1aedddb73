//! Attribution of a value: the first hop, going back along a handoff's parents, that already had it. Pure. The input
//! is a task's `HANDOFF` and `STREAM_CLOSED` records in log order; only a hash of each hop's value is kept, so memory grows with the
//! number of hops alone.
//!
//! A value that equals the parent's was carried over, not written. An erased message on the way makes the answer
//! uncertain, since its value is unknown.

use std::collections::HashMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use handoffd_domain::canonical;

/// Members stored apart from the message.
const APART: [&str; 2] = ["checkpoint", "personalDataPayload"];

/// A JSON pointer into a message (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(String);

/// Reasons to reject a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// The text does not begin with a slash.
    #[error("a pointer begins with `/`, or is empty for the whole message (RFC 6901)")]
    NoSlash,
    /// A tilde is not followed by 0 or 1.
    #[error("in a pointer `~` is followed by `0` (for `~`) or `1` (for `/`) (RFC 6901)")]
    Tilde,
    /// The pointer leads to a member stored apart from the message.
    #[error(
        "checkpoints and personal data are kept apart from the message: no agent is blamed for them"
    )]
    Apart,
}

impl Pointer {
    /// Parses a pointer.
    ///
    /// # Errors
    /// [`PointerError`].
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(PointerError::NoSlash);
        }
        let mut after_tilde = text.split('~').skip(1);
        if !after_tilde.all(|rest| rest.starts_with(['0', '1'])) {
            return Err(PointerError::Tilde);
        }
        if text.split('/').nth(1).is_some_and(|member| APART.contains(&member)) {
            return Err(PointerError::Apart);
        }
        Ok(Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn find<'a>(&self, message: &'a Value) -> Option<&'a Value> {
        message.pointer(&self.0)
    }
}

/// The value at the pointer in a hop's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueState {
    /// A present value, as the SHA-256 of its RFC 8785 form.
    Value([u8; 32]),
    Absent,
    /// Unknown: the message was erased.
    Erased,
}

impl ValueState {
    /// The state for a message that is still stored.
    #[must_use]
    pub fn in_message(value: Option<&Value>) -> Self {
        value.map_or(Self::Absent, |value| {
            Self::Value(Sha256::digest(canonical::to_vec(value)).into())
        })
    }
}

/// A hop's effect on the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueChange {
    /// The hop added the value.
    Set,
    /// The hop replaced the value.
    Changed,
    /// The hop removed the value.
    Removed,
    /// Unknown: the message was erased.
    Erased,
}

impl ValueChange {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Erased => "erased",
        }
    }
}

struct BlameHop<T> {
    parent: Option<usize>,
    seen: ValueState,
    what: T,
}

/// A task's hops so far. `T` identifies a hop to the caller.
pub struct Blame<T> {
    hops: Vec<BlameHop<T>>,
    by_id: HashMap<String, usize>,
}

/// The attribution of the value in a hop's message.
pub struct Attribution<'a, T> {
    /// The value in that message.
    pub seen: ValueState,
    /// The hop that wrote the value; none for an absent or erased value.
    pub writer: Option<&'a T>,
    /// The hop that removed the value; none for a present value, or one that never existed.
    pub remover: Option<&'a T>,
    /// Whether no erased message could change the answer.
    pub certain: bool,
    /// The effects on the value up to that message, oldest first.
    pub history: Vec<(&'a T, ValueChange, ValueState)>,
}

impl<T> Default for Blame<T> {
    fn default() -> Self {
        Self { hops: Vec::new(), by_id: HashMap::new() }
    }
}

impl<T> Blame<T> {
    /// Adds the next hop. An unknown parent counts as none.
    pub fn add(&mut self, id: String, parent: Option<&str>, seen: ValueState, what: T) {
        let parent = parent.and_then(|id| self.by_id.get(id).copied());
        self.by_id.insert(id, self.hops.len());
        self.hops.push(BlameHop { parent, seen, what });
    }

    /// Replaces the message of a hop: a stream was closed, and the assembled message is the hop's. `false` for an unknown hop.
    pub fn replace(&mut self, id: &str, seen: ValueState, what: T) -> bool {
        let Some(hop) = self.by_id.get(id).map(|at| &mut self.hops[*at]) else { return false };
        (hop.seen, hop.what) = (seen, what);
        true
    }

    /// Attributes the value in a hop's message; `None` for an unknown hop.
    #[must_use]
    pub fn of(&self, id: &str) -> Option<Attribution<'_, T>> {
        let last = *self.by_id.get(id)?;
        let mut chain: Vec<&BlameHop<T>> =
            std::iter::successors(Some(last), |at| self.hops[*at].parent)
                .map(|at| &self.hops[at])
                .collect();
        chain.reverse();
        Some(walk(&chain, self.hops[last].seen))
    }
}

/// Walks from the first hop to the requested one.
fn walk<'a, T>(chain: &[&'a BlameHop<T>], seen: ValueState) -> Attribution<'a, T> {
    let mut history = Vec::new();
    let mut before = ValueState::Absent;
    let (mut writer, mut remover, mut certain) = (None, None, true);
    for hop in chain {
        let change = match (before, hop.seen) {
            (_, ValueState::Erased) => Some(ValueChange::Erased),
            (ValueState::Value(one), ValueState::Value(other)) if one == other => None,
            (ValueState::Absent, ValueState::Absent) => None,
            // After an erased message the first sender of the value is unknown; the first that has it is named.
            (ValueState::Absent | ValueState::Erased, ValueState::Value(_)) => {
                Some(ValueChange::Set)
            }
            (ValueState::Value(_), ValueState::Value(_)) => Some(ValueChange::Changed),
            (ValueState::Value(_) | ValueState::Erased, ValueState::Absent) => {
                Some(ValueChange::Removed)
            }
        };
        if let Some(change) = change {
            certain = change != ValueChange::Erased && before != ValueState::Erased;
            writer = matches!(change, ValueChange::Set | ValueChange::Changed).then_some(&hop.what);
            remover = (change == ValueChange::Removed).then_some(&hop.what);
            history.push((&hop.what, change, hop.seen));
        }
        before = hop.seen;
    }
    Attribution { seen, writer, remover, certain, history }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn seen(value: Option<u8>) -> ValueState {
        ValueState::in_message(value.map(|value| json!(value)).as_ref())
    }

    /// Hops in one chain, each by its number.
    fn chain(values: &[Option<u8>]) -> Blame<usize> {
        let mut blame = Blame::default();
        for (at, value) in values.iter().enumerate() {
            let parent = at.checked_sub(1).map(|at| at.to_string());
            blame.add(at.to_string(), parent.as_deref(), seen(*value), at);
        }
        blame
    }

    fn changes(answer: &Attribution<'_, usize>) -> Vec<(usize, &'static str)> {
        answer.history.iter().map(|(hop, change, _)| (**hop, change.as_str())).collect()
    }

    #[test]
    fn a_value_that_was_carried_over_is_the_writers() {
        let blame = chain(&[Some(1), Some(2), Some(2), Some(2)]);
        let answer = blame.of("3").unwrap();
        assert_eq!(answer.writer, Some(&1));
        assert_eq!(changes(&answer), [(0, "set"), (1, "changed")]);
        assert_eq!(blame.of("0").unwrap().writer, Some(&0));
        assert!(blame.of("4").is_none());
    }

    #[test]
    fn a_value_that_comes_back_is_blamed_on_who_brought_it_back() {
        let blame = chain(&[Some(1), None, Some(1), None]);
        assert_eq!(blame.of("2").unwrap().writer, Some(&2));
        let answer = blame.of("3").unwrap();
        assert_eq!((answer.writer, answer.remover), (None, Some(&3)));
        assert_eq!(changes(&answer), [(0, "set"), (1, "removed"), (2, "set"), (3, "removed")]);
    }

    #[test]
    fn branches_do_not_blame_each_other() {
        let mut blame = Blame::default();
        blame.add("a".to_owned(), None, seen(Some(1)), "a");
        blame.add("b".to_owned(), Some("a"), seen(Some(2)), "b");
        blame.add("c".to_owned(), Some("a"), seen(Some(1)), "c");
        blame.add("d".to_owned(), Some("nobody"), seen(Some(1)), "d");
        assert_eq!(blame.of("c").unwrap().writer, Some(&"a"));
        assert_eq!(blame.of("b").unwrap().writer, Some(&"b"));
        assert_eq!(blame.of("d").unwrap().writer, Some(&"d"));
    }

    #[test]
    fn a_value_that_came_in_pieces_is_its_senders_and_not_the_next_hops() {
        let mut blame = Blame::default();
        blame.add("a".to_owned(), None, seen(None), "opening");
        assert!(blame.replace("a", seen(Some(1)), "whole"));
        blame.add("b".to_owned(), Some("a"), seen(Some(1)), "b");
        assert_eq!(blame.of("b").unwrap().writer, Some(&"whole"));
        assert!(!blame.replace("nobody", seen(Some(2)), "x"));
    }

    #[test]
    fn an_erased_message_makes_the_answer_uncertain_until_somebody_writes_anew() {
        let mut blame = Blame::default();
        blame.add("0".to_owned(), None, seen(Some(1)), 0);
        blame.add("1".to_owned(), Some("0"), ValueState::Erased, 1);
        blame.add("2".to_owned(), Some("1"), seen(Some(1)), 2);
        blame.add("3".to_owned(), Some("2"), seen(Some(1)), 3);
        blame.add("4".to_owned(), Some("3"), seen(Some(9)), 4);
        let erased = blame.of("1").unwrap();
        assert_eq!((erased.seen, erased.writer, erased.certain), (ValueState::Erased, None, false));
        let after = blame.of("3").unwrap();
        assert_eq!((after.writer, after.certain), (Some(&2), false));
        let anew = blame.of("4").unwrap();
        assert_eq!((anew.writer, anew.certain), (Some(&4), true));
    }

    #[test]
    fn a_pointer_is_one_or_is_told_why_not() {
        for good in ["", "/", "/a/b", "/a~1b/~0", "/currentState/0", "/checkpoints"] {
            assert_eq!(Pointer::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(Pointer::parse("a"), Err(PointerError::NoSlash));
        for bad in ["/~", "/a~2", "/~~0", "/a~"] {
            assert_eq!(Pointer::parse(bad), Err(PointerError::Tilde), "{bad}");
        }
        assert_eq!(Pointer::parse("/checkpoint/x"), Err(PointerError::Apart));
        assert_eq!(Pointer::parse("/personalDataPayload"), Err(PointerError::Apart));
        let message = json!({ "a/b": { "~": [null] } });
        assert_eq!(Pointer::parse("/a~1b/~0/0").unwrap().find(&message), Some(&Value::Null));
    }

    proptest! {
        #[test]
        fn the_writer_has_the_value_and_its_parent_has_not(
            tree in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), prop::option::of(0_u8..3)), 1..30)
        ) {
            let mut blame = Blame::default();
            let mut parents: Vec<Option<usize>> = Vec::new();
            for (at, (parent, root, value)) in tree.iter().enumerate() {
                let parent = (at > 0 && !root).then(|| parent.index(at));
                let name = parent.map(|parent| parent.to_string());
                blame.add(at.to_string(), name.as_deref(), seen(*value), at);
                parents.push(parent);
            }
            let value = |at: usize| tree[at].2;
            for at in 0..tree.len() {
                let answer = blame.of(&at.to_string()).unwrap();
                prop_assert!(answer.certain);
                let culprit = answer.writer.or(answer.remover).copied();
                prop_assert_eq!(answer.writer.is_some(), value(at).is_some());
                if let Some(culprit) = culprit {
                    // All the way from it to here the value is the same; before it, it was not.
                    let mut here = at;
                    while here != culprit {
                        prop_assert_eq!(value(here), value(at));
                        here = parents[here].unwrap();
                    }
                    prop_assert_eq!(value(culprit), value(at));
                    prop_assert_ne!(parents[culprit].and_then(value), value(at));
                    prop_assert_eq!(answer.history.last().map(|(hop, ..)| **hop), Some(culprit));
                } else {
                    let mut here = Some(at);
                    while let Some(hop) = here {
                        prop_assert_eq!(value(hop), None, "never there");
                        here = parents[hop];
                    }
                }
                for pair in answer.history.windows(2) {
                    prop_assert!(pair[0].0 < pair[1].0 && pair[0].2 != pair[1].2);
                }
            }
        }
    }
}
