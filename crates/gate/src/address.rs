//! Allowlist and route: the agents to which a handoff may go, and the one that receives it (specification §2.2 stages
//! 5 and 6, §4.1, §4.2).

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::AllowlistViolation;
use super::schema::Schemas;
use super::schema::older::FormError;
use handoffd_domain::agent::{Agent, AgentState, Pause, Target};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::handoff::ALL_UNAVAILABLE;
use handoffd_domain::ids::AgentId;
use handoffd_domain::message::Address;
use handoffd_domain::roster::{Member, Roster};
use handoffd_domain::version_range::VersionRange;

/// The refusal's exact words (seed 003).
pub const NOT_ON_ALLOWLIST: &str =
    "The target agent is not on the source agent's handoff_targets allowlist.";

/// The result of routing an address.
#[derive(Debug, Default)]
pub struct ResolvedReceiver {
    /// The receiving agent; `None` where no agent is eligible.
    pub target: Option<Arc<Agent>>,
    /// The reasons against a receiver.
    pub failures: Vec<Failure>,
    /// An allowlist refusal, for the log.
    pub violation: Option<AllowlistViolation>,
    /// The receiver's index in the sender's list of preferred agents, if it replaces the agents that the message addresses.
    pub preferred: Option<usize>,
}

impl ResolvedReceiver {
    /// The sender is not registered.
    pub(super) fn stranger(sender: &AgentId, to: &Address) -> Self {
        let mut found = Self::default();
        found.forbid(sender, 0, to);
        found
    }

    fn forbid(&mut self, source: &AgentId, allowlist_size: usize, to: &Address) {
        self.failures.push(Failure::new(
            Stage::Allowlist,
            Code::Forbidden,
            pointer(to),
            NOT_ON_ALLOWLIST,
        ));
        self.violation = Some(AllowlistViolation {
            source: source.clone(),
            target: describe(to),
            allowlist_size,
        });
    }

    fn nobody(&mut self, pointer: &str, why: String) {
        self.failures.push(Failure::new(Stage::Route, Code::NoCapableAgent, pointer, why));
    }
}

fn pointer(to: &Address) -> &'static str {
    if to.agent_id.is_some() {
        "/toAgent/agentId"
    } else if to.agent_type.is_some() {
        "/toAgent/agentType"
    } else {
        "/toAgent/capability"
    }
}

fn describe(to: &Address) -> String {
    match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(id), _, _) => id.to_string(),
        (None, Some(name), _) => format!("type:{name}"),
        (None, None, Some(capability)) => format!("capability:{capability}"),
        (None, None, None) => "nobody".to_owned(),
    }
}

/// Cache of a message's form by receiver: agents declare the schema versions that they accept, and many declare the
/// same range.
pub struct ReceiverForms<'a> {
    schemas: &'a Schemas,
    message: &'a Value,
    found: RefCell<Vec<(FormKey, Option<FormError>)>>,
}

/// The key of a message's form for an agent: its range, and whether it is entitled to personal data.
type FormKey = (VersionRange, bool);

impl<'a> ReceiverForms<'a> {
    /// The readers of a message that was held against its own schema.
    #[must_use]
    pub fn new(schemas: &'a Schemas, message: &'a Value) -> Self {
        Self { schemas, message, found: RefCell::default() }
    }

    fn lack(&self, agent: &Agent) -> Option<FormError> {
        let range = agent.schema_versions.as_ref()?;
        let entitled = agent.is_entitled();
        let mut found = self.found.borrow_mut();
        let before = found.iter().find(|((one, seen), _)| one == range && *seen == entitled);
        if let Some((_, lack)) = before {
            return lack.clone();
        }
        let lack = self.schemas.form_for(self.message, agent).err();
        found.push(((range.clone(), entitled), lack.clone()));
        lack
    }
}

/// The `rule` of a route that fails because the receiver is paused: it is to be tried later, and no failure of its sender.
pub const PAUSED: &str = "agent-paused";

/// Whether a message may wait for a paused agent: its sender named no other, and did not come by SW4RM, whose senders are told
/// at once that an agent is busy.
fn may_wait(message: &Value) -> bool {
    let preferred = message.get("preferredAgents").and_then(Value::as_array);
    preferred.is_none_or(Vec::is_empty) && message.pointer("/extensions/sw4rm").is_none()
}

/// Requirements on the receiver of a handoff.
struct ReceiverRequirements<'a> {
    to: &'a Address,
    required: &'a [String],
    range: Option<VersionRange>,
    readers: &'a ReceiverForms<'a>,
    /// The agent itself asks: whether it takes more work now does not count.
    by_itself: bool,
    /// The message may wait for a paused agent that holds.
    may_wait: bool,
}

/// Finds who takes a handoff: of those addressed, whom the sender may hand off to and who is live
/// and able; then the highest version, then the fewest open handoffs, then the id. `asking` is an agent that
/// looks at a message as its receiver; it need not be free.
#[must_use]
pub fn resolve(
    source: &Agent,
    to: &Address,
    required: &[String],
    roster: &Roster,
    readers: &ReceiverForms<'_>,
    asking: Option<&AgentId>,
) -> ResolvedReceiver {
    let mut found = ResolvedReceiver::default();
    if to.agent_id.as_ref() == Some(&source.agent_id) {
        let registered = roster.member(&source.agent_id).map(|member| Arc::clone(member.agent()));
        found.target = Some(registered.unwrap_or_else(|| Arc::new(source.clone())));
        return found;
    }
    let addressed: &[Arc<Member>] = match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(id), _, _) => roster.member(id).map_or(&[], std::slice::from_ref),
        (None, Some(name), _) => roster.members_of_type(name),
        (None, None, Some(capability)) => roster.members_with_capability(capability),
        (None, None, None) => &[],
    };
    let is_other = |member: &&Arc<Member>| member.agent().agent_id != source.agent_id;
    let mut candidates = allowed(source, to, addressed, roster);
    candidates.retain(is_other);
    if candidates.is_empty() {
        candidates = addressed.iter().filter(is_other).collect();
        // If no agent has a listed type, routing fails later with its own code. An id on the list that belongs to no agent has
        // no effect, as if the list did not have it (seed 003).
        let named = source.handoff_targets.iter().any(|target| match target {
            Target::Agent(_) => false,
            Target::Type(name) => to.agent_id.is_none() && to.agent_type.as_ref() == Some(name),
        });
        let open_question = candidates.is_empty()
            && to.agent_id.is_none()
            && to.agent_type.is_none()
            && !source.handoff_targets.is_empty();
        if !named && !open_question {
            found.forbid(&source.agent_id, source.handoff_targets.len(), to);
        }
    }
    let range = to.agent_version.as_deref().and_then(|text| text.parse().ok());
    let by_itself = asking.is_some() && asking == to.agent_id.as_ref();
    let may_wait = to.agent_id.is_some() && may_wait(readers.message);
    let wanted = ReceiverRequirements { to, required, range, readers, by_itself, may_wait };
    let able = candidates.iter().copied().filter(|member| unfit(member.agent(), &wanted).is_none());
    let best = able.min_by(|one, other| before(one, other));
    if let Some(member) = best {
        found.target = Some(Arc::clone(member.agent()));
    } else {
        let last = candidates.iter().max_by_key(|member| &member.agent().agent_id);
        match last.and_then(|member| unfit(member.agent(), &wanted)) {
            Some(lack @ IneligibilityReason::Schema(..)) => {
                found.nobody("/schemaVersion", lack.to_string());
            }
            Some(lack) => {
                let rule = matches!(lack, IneligibilityReason::Paused(_)).then_some(PAUSED);
                found.nobody(pointer(to), lack.to_string());
                if let Some(failure) = found.failures.last_mut() {
                    failure.rule = rule.map(str::to_owned);
                }
            }
            None => {
                found.nobody(pointer(to), format!("no agent is registered for {}", describe(to)));
            }
        }
    }
    found
}

/// The other agents that can take a handoff by its address, the best first; none where it names one agent.
#[must_use]
pub fn others(
    source: &Agent,
    to: &Address,
    required: &[String],
    roster: &Roster,
    readers: &ReceiverForms<'_>,
    best: &AgentId,
) -> Vec<Arc<Agent>> {
    let addressed: &[Arc<Member>] = match (&to.agent_id, &to.agent_type, &to.capability) {
        (None, Some(name), _) => roster.members_of_type(name),
        (None, None, Some(capability)) => roster.members_with_capability(capability),
        _ => &[],
    };
    let range = to.agent_version.as_deref().and_then(|text| text.parse().ok());
    let wanted =
        ReceiverRequirements { to, required, range, readers, by_itself: false, may_wait: false };
    let mut able = allowed(source, to, addressed, roster);
    able.retain(|member| {
        let id = &member.agent().agent_id;
        *id != source.agent_id && id != best && unfit(member.agent(), &wanted).is_none()
    });
    able.sort_by(|one, other| before(one, other));
    able.into_iter().map(|member| Arc::clone(member.agent())).collect()
}

/// The order of preference: the highest version, then the fewest open handoffs, then the id.
fn before(one: &Member, other: &Member) -> std::cmp::Ordering {
    let (a, b) = (one.agent(), other.agent());
    b.agent_version
        .cmp_precedence(&a.agent_version)
        .then_with(|| one.in_flight().cmp(&other.in_flight()))
        .then_with(|| a.agent_id.cmp(&b.agent_id))
}

/// Whether a message is meant for that agent: it is the one addressed, one of those addressed, or preferred.
#[must_use]
pub fn names(to: &Address, preferred: &[AgentId], agent: &Agent) -> bool {
    let addressed = match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(id), _, _) => *id == agent.agent_id,
        (None, Some(name), _) => *name == agent.agent_type,
        (None, None, Some(capability)) => agent.can(capability),
        (None, None, None) => false,
    };
    addressed || preferred.contains(&agent.agent_id)
}

/// Those addressed whom the sender's list names. Of the list and those addressed, the shorter is gone
/// through, and the other looked up in: either may have ten thousand entries.
fn allowed<'a>(
    source: &Agent,
    to: &Address,
    addressed: &'a [Arc<Member>],
    roster: &'a Roster,
) -> Vec<&'a Arc<Member>> {
    if addressed.len() <= 1 {
        let named = |member: &&Arc<Member>| source.may_hand_off_to(member.agent());
        return addressed.iter().filter(named).collect();
    }
    let by_type = to.agent_type.as_deref();
    let mut ids = HashSet::new();
    let mut types = HashSet::new();
    for target in &source.handoff_targets {
        match target {
            Target::Agent(id) => _ = ids.insert(id),
            Target::Type(name) => _ = types.insert(name.as_str()),
        }
    }
    if by_type.is_some_and(|name| types.contains(name)) {
        return addressed.iter().collect();
    }
    if by_type.is_some() || types.is_empty() {
        let asked = |agent: &Agent| match (by_type, &to.capability) {
            (Some(name), _) => agent.agent_type == name,
            (None, Some(capability)) => agent.can(capability),
            (None, None) => false,
        };
        if ids.len() < addressed.len() {
            let listed = ids.into_iter().filter_map(|id| roster.member(id));
            return listed.filter(|member| asked(member.agent())).collect();
        }
    }
    let named = |member: &&Arc<Member>| {
        let agent = member.agent();
        ids.contains(&agent.agent_id) || types.contains(agent.agent_type.as_str())
    };
    addressed.iter().filter(named).collect()
}

/// Falls back to the sender's preferred agents, in order. Each of them must be on the sender's allowlist. If no addressed agent
/// can take the handoff now, the first preferred agent that can take it receives it (seed 001, rejection handling).
#[must_use]
pub fn or_preferred(
    mut found: ResolvedReceiver,
    source: &Agent,
    preferred: &[AgentId],
    required: &[String],
    roster: &Roster,
    readers: &ReceiverForms<'_>,
) -> ResolvedReceiver {
    if preferred.is_empty() {
        return found;
    }
    let named = |id: &AgentId| {
        roster.find(id).map_or_else(
            || source.handoff_targets.contains(&Target::Agent(id.clone())),
            |agent| source.may_hand_off_to(agent),
        )
    };
    for (place, id) in preferred.iter().enumerate() {
        if !named(id) {
            let pointer = format!("/preferredAgents/{place}");
            found.failures.push(Failure::new(
                Stage::Allowlist,
                Code::Forbidden,
                pointer,
                NOT_ON_ALLOWLIST,
            ));
            found.violation.get_or_insert_with(|| AllowlistViolation {
                source: source.agent_id.clone(),
                target: id.to_string(),
                allowlist_size: source.handoff_targets.len(),
            });
        }
    }
    let unrouted = found.failures.iter().all(|failure| failure.code == Code::NoCapableAgent);
    if found.target.is_some() || !unrouted {
        return found;
    }
    let known = preferred.iter().enumerate();
    let mut known = known.filter_map(|(place, id)| Some((place, roster.member(id)?)));
    let able = known.find(|(_, member)| {
        let id = Some(member.agent().agent_id.clone());
        let to = Address { agent_id: id, agent_type: None, agent_version: None, capability: None };
        let wanted = ReceiverRequirements {
            to: &to,
            required,
            range: None,
            readers,
            by_itself: false,
            may_wait: false,
        };
        unfit(member.agent(), &wanted).is_none()
    });
    found.failures.clear();
    match able {
        Some((place, member)) => {
            (found.target, found.preferred) = (Some(Arc::clone(member.agent())), Some(place));
        }
        None => found.failures.push(Failure::new(
            Stage::Route,
            Code::NoCapableAgent,
            "/preferredAgents",
            ALL_UNAVAILABLE,
        )),
    }
    found
}

/// Why an agent cannot take it; told in the words of seed 001.
enum IneligibilityReason<'a> {
    Type(&'a Agent, &'a str),
    Version(&'a Agent, &'a VersionRange),
    PreRelease(&'a Agent),
    Capability(&'a Agent, &'a str),
    Schema(&'a Agent, &'a VersionRange, FormError),
    AcceptsNone(&'a AgentId),
    Busy(&'a AgentId),
    Paused(&'a AgentId),
    Disabled(&'a AgentId),
}

impl fmt::Display for IneligibilityReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(agent, name) => {
                write!(f, "agent {} is of type {}, not {name}", agent.agent_id, agent.agent_type)
            }
            Self::Version(agent, range) => {
                let (id, version) = (&agent.agent_id, &agent.agent_version);
                write!(f, "agent {id} has version {version}, not {range}")
            }
            Self::PreRelease(agent) => {
                let (id, version) = (&agent.agent_id, &agent.agent_version);
                write!(
                    f,
                    "agent {id} has version {version}, a pre-release that toAgent.agentVersion does not ask for"
                )
            }
            Self::Schema(agent, range, FormError::NoVersion) => {
                write!(
                    f,
                    "agent {} takes schema versions {range}, not this message's",
                    agent.agent_id
                )
            }
            Self::Schema(agent, range, FormError::Field(version, pointer)) => {
                let id = &agent.agent_id;
                write!(
                    f,
                    "agent {id} takes schema versions {range}, and {pointer} has no place in {version}"
                )
            }
            Self::Capability(agent, missing) => {
                write!(f, "Missing capability: {missing} (agent {})", agent.agent_id)
            }
            Self::AcceptsNone(id) => write!(f, "agent {id} accepts no handoffs"),
            Self::Busy(id) => write!(f, "Agent busy: {id}"),
            Self::Paused(id) => write!(f, "agent {id} is paused"),
            Self::Disabled(id) => {
                write!(f, "delivery to agent {id} is disabled: its endpoint is gone or only fails")
            }
        }
    }
}

fn unfit<'a>(
    agent: &'a Agent,
    wanted: &'a ReceiverRequirements<'a>,
) -> Option<IneligibilityReason<'a>> {
    let (id, to) = (&agent.agent_id, wanted.to);
    if let Some(name) = &to.agent_type
        && agent.agent_type != *name
    {
        return Some(IneligibilityReason::Type(agent, name));
    }
    // One agent by its id is itself asked for, pre-release or not.
    let named = to.agent_id.is_some();
    match &wanted.range {
        Some(range) if named && range.is_any() => {}
        Some(range) if !range.matches(&agent.agent_version) => {
            return Some(IneligibilityReason::Version(agent, range));
        }
        None if !named && !agent.agent_version.pre.is_empty() => {
            return Some(IneligibilityReason::PreRelease(agent));
        }
        _ => {}
    }
    if let Some(missing) =
        to.capability.iter().chain(wanted.required).find(|capability| !agent.can(capability))
    {
        return Some(IneligibilityReason::Capability(agent, missing));
    }
    if let Some(range) = &agent.schema_versions
        && let Some(lack) = wanted.readers.lack(agent)
    {
        return Some(IneligibilityReason::Schema(agent, range, lack));
    }
    match agent.state {
        _ if wanted.by_itself => None,
        _ if !agent.accepts_handoffs => Some(IneligibilityReason::AcceptsNone(id)),
        AgentState::Busy => Some(IneligibilityReason::Busy(id)),
        AgentState::Paused if !(wanted.may_wait && agent.pause == Pause::Hold) => {
            Some(IneligibilityReason::Paused(id))
        }
        AgentState::Runnable | AgentState::Paused if agent.delivery.disabled => {
            Some(IneligibilityReason::Disabled(id))
        }
        AgentState::Runnable | AgentState::Paused => None,
    }
}

#[cfg(test)]
mod tests;
