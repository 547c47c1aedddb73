//! A handoff to many (specification §10.4, ruling A114): one message, one handoff a receiver, one group. Pure.
//!
//! The state of a group is a function of its branches. It is in its task's row, under the task's lock, so that the
//! verdict that decides a group is the transaction that ends it.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::canonical;
use super::handoff::HandoffStatus;
use super::ids::{AgentId, HandoffId, Micros};

/// The most receivers of one list.
pub const MAX_RECEIVERS: usize = 100;

/// Why a group failed whose branches must all succeed: a code.
pub const BRANCH_FAILED: &str = "BRANCH_FAILED";

/// Why a group failed that goes on without refused branches: too few are left. A code.
pub const JOIN_UNREACHABLE: &str = "JOIN_UNREACHABLE";

/// Why an open branch is withdrawn: the results that the join asks for are there. A code.
pub const JOIN_DECIDED: &str = "JOIN_DECIDED";

/// Why an open branch is withdrawn: its group failed. A code.
pub const GROUP_FAILED: &str = "GROUP_FAILED";

/// How many branches a group asks for: to count as accepted, and to end with their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Join {
    #[default]
    All,
    Any,
    Quorum(NonZeroU32),
}

impl Join {
    /// The kind without its number, for metrics.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::Quorum(_) => "quorum",
        }
    }

    /// How many of the branches that are left it asks for; `None` where too few are left.
    #[must_use]
    pub fn needs(self, left: u32) -> Option<u32> {
        let needs = match self {
            Self::All => left,
            Self::Any => 1,
            Self::Quorum(many) => many.get(),
        };
        (left > 0 && needs <= left).then_some(needs)
    }
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All | Self::Any => f.write_str(self.kind()),
            Self::Quorum(many) => write!(f, "quorum:{many}"),
        }
    }
}

impl FromStr for Join {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let quorum = || text.strip_prefix("quorum:")?.parse().ok().map(Self::Quorum);
        match text {
            "all" => Ok(Self::All),
            "any" => Ok(Self::Any),
            _ => quorum().ok_or_else(|| "join can be: all, any, quorum:N".to_owned()),
        }
    }
}

impl Serialize for Join {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Join {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The effect of a branch's bad end on its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnReject {
    /// The group fails, and its task goes back to the checkpoint of before.
    Rollback,
    /// The group goes on without the branch, as long as the join can hold.
    Drop,
}

impl OnReject {
    /// The rule if the sender gives none: a sender that asks for all of them goes back, one that asks for some goes on.
    #[must_use]
    pub const fn usual(join: Join) -> Self {
        match join {
            Join::All => Self::Rollback,
            Join::Any | Join::Quorum(_) => Self::Drop,
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Drop => "drop",
        }
    }
}

/// The place of a handoff in a group: kept with the handoff, and in its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchPlace {
    /// The group: the `handoffId` of the message.
    pub id: HandoffId,
    /// The place in the message's list, from 0.
    pub index: u32,
    /// How many branches the group has.
    pub of: u32,
    /// How many of them it asks for.
    pub join: Join,
    /// The effect of one bad end.
    pub on_reject: OnReject,
}

/// A record's facts about a group: a branch's place, or the outcome at the group's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupFacts {
    pub id: HandoffId,
    /// The branch's place; none of the group's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// How many branches the group has.
    pub of: u32,
    /// How many of them it asks for.
    pub join: Join,
    /// The effect of one bad end.
    pub on_reject: OnReject,
    /// The group's outcome; only at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<GroupStatus>,
}

impl From<BranchPlace> for GroupFacts {
    fn from(place: BranchPlace) -> Self {
        let BranchPlace { id, index, of, join, on_reject } = place;
        Self { id, index: Some(index), of, join, on_reject, outcome: None }
    }
}

/// The state of a group. The words are those of a handoff's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum GroupStatus {
    /// Too few branches have accepted.
    Pending,
    /// As many have accepted as the join asks for.
    Accepted,
    /// As many have completed as the join asks for, and no branch is open.
    Completed,
    /// A branch ended badly, and the join cannot hold any more.
    Failed,
    /// Its task was completed or withdrawn before the join was decided.
    Canceled,
}

impl GroupStatus {
    /// The same word as a handoff's status.
    #[must_use]
    pub const fn as_handoff(self) -> HandoffStatus {
        match self {
            Self::Pending => HandoffStatus::Pending,
            Self::Accepted => HandoffStatus::Accepted,
            Self::Completed => HandoffStatus::Completed,
            Self::Failed => HandoffStatus::Failed,
            Self::Canceled => HandoffStatus::Canceled,
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.as_handoff().as_str()
    }

    /// Whether nothing moves it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.as_handoff().is_final()
    }
}

/// One branch of an open group. Serialized as an array of its fields in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BranchRow", into = "BranchRow")]
pub struct Branch {
    /// The handoff: the receiver's own, or the one that replaces it.
    pub handoff: HandoffId,
    pub agent: AgentId,
    pub status: HandoffStatus,
}

type BranchRow = (HandoffId, AgentId, HandoffStatus);

impl From<BranchRow> for Branch {
    fn from((handoff, agent, status): BranchRow) -> Self {
        Self { handoff, agent, status }
    }
}

impl From<Branch> for BranchRow {
    fn from(branch: Branch) -> Self {
        (branch.handoff, branch.agent, branch.status)
    }
}

/// The state of a group by its branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Undecided; whether as many have accepted as the join asks for.
    Open { joined: bool },
    /// As many have completed as the join asks for.
    Completed,
    /// The join cannot hold any more, and why: a code.
    Failed(&'static str),
}

/// Derives a group's state from its branches.
#[must_use]
pub fn standing(
    join: Join,
    on_reject: OnReject,
    branches: impl IntoIterator<Item = HandoffStatus>,
) -> Standing {
    let (mut left, mut failed, mut acknowledged, mut completed) = (0_u32, 0_u32, 0_u32, 0_u32);
    for status in branches {
        let (open, done) = (!status.is_final(), status == HandoffStatus::Completed);
        failed += u32::from(!open && !done);
        left += u32::from(open || done);
        completed += u32::from(done);
        acknowledged += u32::from(done || status.is_held());
    }
    if on_reject == OnReject::Rollback && failed > 0 {
        return Standing::Failed(BRANCH_FAILED);
    }
    match join.needs(left) {
        None => Standing::Failed(JOIN_UNREACHABLE),
        Some(needs) if completed >= needs => Standing::Completed,
        Some(needs) => Standing::Open { joined: acknowledged >= needs },
    }
}

/// A group, as its task keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its id: the `handoffId` of the message.
    pub id: HandoffId,
    pub source: AgentId,
    /// How many branches it has.
    pub of: u32,
    /// How many of them it asks for.
    pub join: Join,
    /// The effect of one bad end.
    pub on_reject: OnReject,
    pub status: GroupStatus,
    /// Why it failed or was withdrawn: a code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// The branches in the list's order, while the group is open.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub branches: Vec<Branch>,
    /// By place, the handoffs that stand in the place of a receiver's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub stand_ins: BTreeMap<u32, HandoffId>,
    /// Its place in the task's order of delivery, which all of its branches have.
    pub seq: i64,
    /// When it was committed.
    pub created_at: Micros,
    /// When the join first held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accepted_at: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<Micros>,
}

impl Group {
    /// The record's facts of its end.
    #[must_use]
    pub const fn facts(&self) -> GroupFacts {
        let Self { id, of, join, on_reject, .. } = self;
        GroupFacts {
            id: *id,
            index: None,
            of: *of,
            join: *join,
            on_reject: *on_reject,
            outcome: Some(self.status),
        }
    }

    /// Its branches' handoffs in the list's order: each the receiver's own, or the one that replaces it.
    pub fn handoffs(&self) -> impl Iterator<Item = HandoffId> + '_ {
        let own = |index| branch_id(self.id, index);
        (0..self.of)
            .map(move |index| self.stand_ins.get(&index).copied().unwrap_or_else(|| own(index)))
    }

    /// Whether an agent receives one of its open branches.
    #[must_use]
    pub fn has_receiver(&self, agent: &AgentId) -> bool {
        self.branches.iter().any(|branch| branch.agent == *agent)
    }

    /// Its state by its branches.
    #[must_use]
    pub fn standing(&self) -> Standing {
        standing(self.join, self.on_reject, self.branches.iter().map(|branch| branch.status))
    }

    /// Notes the state of a branch.
    pub fn note(&mut self, index: u32, branch: Branch) {
        if branch.handoff != branch_id(self.id, index) {
            self.stand_ins.insert(index, branch.handoff);
        }
        let place = usize::try_from(index).ok();
        if let Some(known) = place.and_then(|place| self.branches.get_mut(place)) {
            *known = branch;
        }
    }

    /// The open branches that would be withdrawn if these handoffs were completed.
    #[must_use]
    pub fn withdrawn_by(&self, completed: &[HandoffId]) -> Vec<HandoffId> {
        let after = |branch: &Branch| {
            if completed.contains(&branch.handoff) {
                HandoffStatus::Completed
            } else {
                branch.status
            }
        };
        let decided = standing(self.join, self.on_reject, self.branches.iter().map(after));
        if matches!(decided, Standing::Open { .. }) {
            return Vec::new();
        }
        self.open_branches().collect()
    }

    /// Its branches that are open.
    pub fn open_branches(&self) -> impl Iterator<Item = HandoffId> + '_ {
        let open = self.branches.iter().filter(|branch| !branch.status.is_final());
        open.map(|branch| branch.handoff)
    }

    /// Ends it: from now on the handoffs alone say where the branches stand.
    pub fn end(&mut self, status: GroupStatus, reason: Option<&str>, at: Micros) {
        self.status = status;
        self.reason = reason.map(str::to_owned);
        self.ended_at = Some(at);
        self.branches.clear();
    }
}

/// The id of a branch: a name-based UUID (RFC 9562 §5.8, version 8) over the group's id and the place, so that a
/// message that comes again finds its branches.
#[must_use]
pub fn branch_id(group: HandoffId, index: u32) -> HandoffId {
    let hash = Sha256::new()
        .chain_update(b"handoffd branch ")
        .chain_update(group.0.as_bytes())
        .chain_update(index.to_be_bytes())
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    HandoffId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// Whether an id is that of a branch of the group.
fn is_branch(group: HandoffId, id: HandoffId) -> bool {
    (0..MAX_RECEIVERS)
        .any(|place| u32::try_from(place).is_ok_and(|place| branch_id(group, place) == id))
}

/// Names a branch in the message that its receiver gets: the ids of the message are the group's, and a receiver answers to
/// its own. The sender's signature is not over that, and is left out. Any other message stays as it is.
pub fn name_branch(message: &mut Value, id: HandoffId) {
    if id.0.get_version_num() != BRANCH_VERSION {
        return;
    }
    let stated = message.get("handoffId").and_then(Value::as_str);
    let Some(group) = stated.and_then(|text| text.parse().ok()) else { return };
    let Some(members) = message.as_object_mut().filter(|_| is_branch(group, id)) else { return };
    members.insert("handoffId".to_owned(), id.to_string().into());
    members.remove("signature");
    let extensions = members.entry("extensions").or_insert_with(|| json!({}));
    let Some(extensions) = extensions.as_object_mut() else { return };
    let own = extensions.entry("handoffd").or_insert_with(|| json!({}));
    if let Some(own) = own.as_object_mut() {
        own.insert("groupId".to_owned(), group.to_string().into());
    }
}

/// The same of a message's canonical bytes.
#[must_use]
pub fn as_branch(message: Bytes, id: HandoffId) -> Bytes {
    // Nearly no message is one: only an id of that version is looked at further.
    if id.0.get_version_num() != BRANCH_VERSION {
        return message;
    }
    let own = format!("\"handoffId\":\"{id}\"");
    if memchr::memmem::find(&message, own.as_bytes()).is_some() {
        return message;
    }
    let Ok(mut named) = serde_json::from_slice::<Value>(&message) else { return message };
    name_branch(&mut named, id);
    canonical::to_vec(&named).into()
}

/// The version of a branch's id.
const BRANCH_VERSION: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use HandoffStatus as S;

    fn quorum(many: u32) -> Join {
        Join::Quorum(NonZeroU32::new(many).unwrap())
    }

    const OPEN: Standing = Standing::Open { joined: false };
    const JOINED: Standing = Standing::Open { joined: true };

    #[test]
    fn a_join_holds_as_its_branches_say() {
        use OnReject::{Drop, Rollback};
        let unreachable = Standing::Failed(JOIN_UNREACHABLE);
        let failed = Standing::Failed(BRANCH_FAILED);
        for (join, on_reject, branches, expected) in [
            (Join::All, Rollback, vec![S::Pending, S::Accepted], OPEN),
            (Join::All, Rollback, vec![S::Accepted, S::Completed], JOINED),
            (Join::All, Rollback, vec![S::Completed, S::Completed], Standing::Completed),
            (Join::All, Rollback, vec![S::Completed, S::Rejected], failed),
            (Join::All, Rollback, vec![S::Pending, S::Canceled], failed),
            (Join::All, Drop, vec![S::Accepted, S::Rejected], JOINED),
            (Join::All, Drop, vec![S::Completed, S::Expired], Standing::Completed),
            (Join::All, Drop, vec![S::Failed, S::Expired], unreachable),
            (Join::Any, Drop, vec![S::Pending, S::Pending], OPEN),
            (Join::Any, Drop, vec![S::Pending, S::Accepted], JOINED),
            (Join::Any, Drop, vec![S::Pending, S::Completed], Standing::Completed),
            (Join::Any, Drop, vec![S::Rejected, S::DeadLettered], unreachable),
            (Join::Any, Rollback, vec![S::Rejected, S::Accepted], failed),
            (quorum(2), Drop, vec![S::Accepted, S::Pending, S::Rejected], OPEN),
            (quorum(2), Drop, vec![S::Accepted, S::Completed, S::Pending], JOINED),
            (quorum(2), Drop, vec![S::Completed, S::Completed, S::Pending], Standing::Completed),
            (quorum(2), Drop, vec![S::Completed, S::Rejected, S::Failed], unreachable),
        ] {
            let found = standing(join, on_reject, branches.clone());
            assert_eq!(found, expected, "{join} {on_reject:?} {branches:?}");
        }
    }

    /// Over every set of states of up to four branches: a decision is never undone by a branch that is open moving on.
    #[test]
    fn a_decided_group_stays_decided() {
        let states = [S::Pending, S::Accepted, S::Completed, S::Rejected];
        let after = |status| match status {
            S::Pending => vec![S::Pending, S::Accepted, S::Completed, S::Rejected],
            S::Accepted => vec![S::Accepted, S::Completed, S::Failed],
            ended => vec![ended],
        };
        for n in 1..=4_usize {
            for code in 0..states.len().pow(u32::try_from(n).unwrap()) {
                let digits =
                    (0..n).map(|i| states[code / states.len().pow(u32::try_from(i).unwrap()) % 4]);
                let branches: Vec<S> = digits.collect();
                for join in [Join::All, Join::Any, quorum(1), quorum(2), quorum(4)] {
                    let on_reject = OnReject::Rollback;
                    if standing(join, on_reject, branches.clone())
                        != Standing::Failed(BRANCH_FAILED)
                    {
                        continue;
                    }
                    for (place, status) in branches.iter().enumerate() {
                        for next in after(*status) {
                            let mut moved = branches.clone();
                            moved[place] = next;
                            assert_eq!(
                                standing(join, on_reject, moved),
                                Standing::Failed(BRANCH_FAILED)
                            );
                        }
                    }
                }
                // With the rest withdrawn, who had enough results still has, unless all of the rest was asked for.
                for join in [Join::Any, quorum(1), quorum(2), quorum(3)] {
                    if standing(join, OnReject::Drop, branches.clone()) == Standing::Completed {
                        let rest = branches
                            .iter()
                            .map(|one| if one.is_final() { *one } else { S::Canceled });
                        assert_eq!(
                            standing(join, OnReject::Drop, rest),
                            Standing::Completed,
                            "{branches:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn words_and_ids() {
        for text in ["all", "any", "quorum:3"] {
            assert_eq!(text.parse::<Join>().unwrap().to_string(), text);
        }
        for text in ["", "most", "quorum:0", "quorum:-1", "quorum:", "quorum:1.5"] {
            assert!(text.parse::<Join>().is_err(), "{text}");
        }
        assert_eq!(OnReject::usual(Join::All), OnReject::Rollback);
        assert_eq!(OnReject::usual(Join::Any), OnReject::Drop);
        let group = HandoffId(uuid::Uuid::from_u128(7));
        assert_eq!(branch_id(group, 1), branch_id(group, 1));
        assert_ne!(branch_id(group, 1), branch_id(group, 2));
        assert_eq!(branch_id(group, 1).0.get_version_num(), 8);
        let message =
            json!({ "handoffId": group.to_string(), "signature": "x", "extensions": { "own": 1 } });
        let bytes = Bytes::from(canonical::to_vec(&message));
        let own = branch_id(group, 99);
        let named: Value = serde_json::from_slice(&as_branch(bytes.clone(), own)).unwrap();
        let expected = json!({ "handoffId": own.to_string(), "extensions": { "own": 1, "handoffd": { "groupId": group.to_string() } } });
        assert_eq!(named, expected);
        for other in [group, branch_id(own, 1), branch_id(group, 100)] {
            assert_eq!(as_branch(bytes.clone(), other), bytes, "{other}");
        }
    }

    #[test]
    fn a_group_is_kept_whole_while_it_is_open() {
        let agent = |name: &str| name.parse::<AgentId>().unwrap();
        let id = HandoffId(uuid::Uuid::from_u128(9));
        let own = |index, name| Branch {
            handoff: branch_id(id, index),
            agent: agent(name),
            status: S::Pending,
        };
        let mut group = Group {
            id,
            source: agent("a"),
            of: 2,
            join: Join::Any,
            on_reject: OnReject::Drop,
            status: GroupStatus::Pending,
            reason: None,
            branches: vec![own(0, "b"), own(1, "c")],
            stand_ins: BTreeMap::new(),
            seq: 1,
            created_at: Micros(1),
            accepted_at: None,
            ended_at: None,
        };
        let other = HandoffId(uuid::Uuid::from_u128(10));
        group.note(1, Branch { handoff: other, agent: agent("d"), status: S::Pending });
        assert!(group.has_receiver(&agent("d")) && !group.has_receiver(&agent("c")));
        assert_eq!(group.handoffs().collect::<Vec<_>>(), [branch_id(id, 0), other]);
        assert_eq!(group.withdrawn_by(&[]), []);
        assert_eq!(group.withdrawn_by(&[other]), [branch_id(id, 0), other]);
        let text = serde_json::to_string(&group).unwrap();
        assert_eq!(serde_json::from_str::<Group>(&text).unwrap(), group);
        group.end(GroupStatus::Completed, None, Micros(2));
        assert_eq!(group.handoffs().collect::<Vec<_>>(), [branch_id(id, 0), other]);
        let text = serde_json::to_string(&group).unwrap();
        assert_eq!(serde_json::from_str::<Group>(&text).unwrap(), group);
    }
}
