//! The view of a caller: each look-up of a task, a handoff or a dead letter asks the caller's `Reader`.
//!
//! An agent sees tasks that it has a part in, and handoffs that it sends, receives or gets the result of. People see everything
//! of their tenant. A key of role `operator-metadata` sees everything but contents.

use crate::directory::Principal;
use handoffd_domain::group::{Group, branch_id};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_domain::task::Task;
use handoffd_evidence::record::Actor;
use handoffd_store::store::{HandoffFilter, Result, Role, Store};

/// The rights of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights(Role);

impl From<Role> for Rights {
    fn from(role: Role) -> Self {
        Self(role)
    }
}

impl Rights {
    /// The name of the role.
    #[must_use]
    pub const fn role_name(self) -> &'static str {
        self.0.as_str()
    }

    /// An agent, which sees its own work.
    #[must_use]
    pub const fn is_agent(self) -> bool {
        matches!(self.0, Role::Agent)
    }

    /// May change tasks: all but an auditor.
    #[must_use]
    pub const fn takes_part(self) -> bool {
        !matches!(self.0, Role::Auditor)
    }

    /// Decides as an operator or admin who reads contents.
    #[must_use]
    pub const fn operates(self) -> bool {
        matches!(self.0, Role::Operator | Role::Admin)
    }

    /// Runs the broker, with or without its contents.
    #[must_use]
    pub const fn runs(self) -> bool {
        matches!(self.0, Role::Operator | Role::OperatorMetadata | Role::Admin)
    }

    #[must_use]
    pub const fn administers(self) -> bool {
        matches!(self.0, Role::Admin)
    }

    /// Reads what agents wrote.
    #[must_use]
    pub const fn reads_contents(self) -> bool {
        !matches!(self.0, Role::OperatorMetadata)
    }
}

/// The words of a task that a reader is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownWords {
    /// Those of every handoff.
    All,
    /// Those of the handoffs that an agent sends or receives.
    OfAgent(AgentId),
    /// None: that something happened, and not what was said.
    None,
}

impl ShownWords {
    /// Whether the words of a handoff are shown.
    #[must_use]
    pub fn include(&self, handoff: &Handoff) -> bool {
        match self {
            Self::All => true,
            Self::OfAgent(agent) => is_between(handoff, agent),
            Self::None => false,
        }
    }
}

/// Whether the words of a handoff reach a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordAccess {
    Open,
    /// Other agents wrote them to each other.
    OfOthers,
    /// The handoff is a dead letter; only people read its words.
    DeadLetter,
}

/// A caller as a reader.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    principal: &'a Principal,
}

impl<'a> Reader<'a> {
    #[must_use]
    pub const fn of(principal: &'a Principal) -> Self {
        Self { principal }
    }

    /// The agent to which the view is limited; `None` for people, who see everything.
    #[must_use]
    pub fn limit(self) -> Option<&'a AgentId> {
        self.principal.agent.as_ref().filter(|_| self.principal.rights().is_agent())
    }

    /// Whether the view has all rows of the tenant.
    #[must_use]
    pub fn sees_all(self) -> bool {
        self.limit().is_none()
    }

    /// Whether a row of this agent is in view.
    #[must_use]
    pub fn sees_agent(self, agent: &AgentId) -> bool {
        self.limit().is_none_or(|limit| limit == agent)
    }

    /// Whether a handoff is in view. The agent that gets the task back sees it, whichever agent handed it on meanwhile.
    #[must_use]
    pub fn sees(self, handoff: &Handoff) -> bool {
        let returns_to = || handoff.ruling.as_ref().and_then(|ruling| ruling.returns_to.as_ref());
        self.limit().is_none_or(|agent| is_between(handoff, agent) || returns_to() == Some(agent))
    }

    /// Whether the words of a handoff reach this reader, a caller that reads contents. The agent that gets the task back reads
    /// the result, and not what others wrote to each other.
    #[must_use]
    pub fn words_of(self, handoff: &Handoff) -> WordAccess {
        match self.limit() {
            Some(agent) if !is_between(handoff, agent) => WordAccess::OfOthers,
            Some(_) if handoff.status == HandoffStatus::DeadLettered => WordAccess::DeadLetter,
            _ => WordAccess::Open,
        }
    }

    /// The words of a task that this reader is shown.
    #[must_use]
    pub fn shown_words(self) -> ShownWords {
        match self.limit() {
            Some(agent) => ShownWords::OfAgent(agent.clone()),
            None if self.principal.rights().reads_contents() => ShownWords::All,
            None => ShownWords::None,
        }
    }

    /// Whether the caller is, or is in the place of, the receiver of a handoff.
    #[must_use]
    pub fn is_receiver(self, handoff: &Handoff) -> bool {
        self.principal.agent.as_ref() == Some(&handoff.target)
    }

    /// The same of its sender.
    #[must_use]
    pub fn is_sender(self, handoff: &Handoff) -> bool {
        self.principal.agent.as_ref() == Some(&handoff.source)
    }

    /// A handoff that is in view.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find_handoff(self, store: &Store, id: HandoffId) -> Result<Option<Handoff>> {
        let handoff = store.find_handoff(&(self.principal.tenant.clone(), id)).await?;
        Ok(handoff.filter(|handoff| self.sees(handoff)))
    }

    /// A handoff to several receivers that is in view of its sender and of people, with its task.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find_group(self, store: &Store, id: HandoffId) -> Result<Option<(TaskId, Group)>> {
        let tenant = &self.principal.tenant;
        let first = store.find_handoff(&(tenant.clone(), branch_id(id, 0))).await?;
        let is_own = |first: &Handoff| {
            first.branch().is_some_and(|place| place.id == id) && self.sees_agent(&first.source)
        };
        let Some(first) = first.filter(is_own) else { return Ok(None) };
        let task = store.find_task(&(tenant.clone(), first.task_id)).await?;
        let group = task.and_then(|task| task.course.group(id).cloned());
        Ok(group.map(|group| (first.task_id, group)))
    }

    /// A task that is in view: of an agent, a task that it holds, or on which it ever sent or received a handoff.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find_task(self, store: &Store, id: TaskId) -> Result<Option<Task>> {
        let Some(task) = store.find_task(&(self.principal.tenant.clone(), id)).await? else {
            return Ok(None);
        };
        let Some(agent) = self.limit() else { return Ok(Some(task)) };
        Ok(has_part(store, &task, agent).await?.then_some(task))
    }
}

/// Whether an agent holds a task, or ever sent or received a handoff on it.
///
/// # Errors
/// When the store cannot be read.
pub async fn has_part(store: &Store, task: &Task, agent: &AgentId) -> Result<bool> {
    if task.holder == *agent {
        return Ok(true);
    }
    let (task_id, party) = (Some(task.id), Some(agent.clone()));
    let filter = HandoffFilter { task_id, party, ..HandoffFilter::default() };
    Ok(!store.list_handoffs(&task.tenant, &filter, None, 1).await?.is_empty())
}

/// Whether an agent sends or receives a handoff.
fn is_between(handoff: &Handoff, agent: &AgentId) -> bool {
    [&handoff.source, &handoff.target].contains(&agent)
}

impl Principal {
    /// The caller as a reader.
    #[must_use]
    pub const fn reader(&self) -> Reader<'_> {
        Reader::of(self)
    }

    /// The caller as the actor of a record.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor {
            role: self.role.into(),
            agent_id: self.agent.clone(),
            key_id: Some(self.key_id.clone()).filter(|id| !id.is_empty()),
        }
    }

    /// The rights of the caller's role.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        Rights(self.role)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use uuid::Uuid;

    use super::*;
    use handoffd_domain::handoff::{Cost, DeliveryMode, HandoffCommit, HandoffDraft};
    use handoffd_domain::ids::{ContentId, ExecutionId, Micros};
    use handoffd_domain::latency::LatencyClock;
    use handoffd_domain::money::Usd;
    use handoffd_domain::ruling::Ruling;

    /// A pending handoff from `drafter` to `reviewer`.
    pub(crate) fn handoff() -> Handoff {
        let draft = HandoffDraft {
            tenant: "t".parse().unwrap(),
            id: HandoffId(Uuid::from_u128(2)),
            task_id: TaskId(Uuid::from_u128(1)),
            parent_id: None,
            source: "drafter".parse().unwrap(),
            source_version: "1.0.0".to_owned(),
            source_execution: ExecutionId(Uuid::from_u128(3)),
            target: "reviewer".parse().unwrap(),
            target_type: "reviewer".to_owned(),
            target_version: "1.0.0".to_owned(),
            mode: DeliveryMode::Pull,
            status: HandoffStatus::Pending,
            cost: Cost { spent: Usd(0), remaining: Usd(1), prompt_tokens: 0, completion_tokens: 0 },
            idempotent: true,
            ruling: None,
            context: None,
            conversation_id: None,
            user_ref: None,
            stream: None,
            digest_salt: Vec::new(),
            digest: Vec::new(),
            traceparent: String::new(),
            tracestate: String::new(),
            span: String::new(),
            created_at: Micros(0),
            clock: LatencyClock::starting(Micros(0)),
        };
        draft.committed(HandoffCommit {
            content: (ContentId(Uuid::from_u128(5)), [0; 32]),
            checkpoint: None,
            fencing_token: 1,
            topped_up: Usd(0),
        })
    }

    fn caller(role: Role, agent: Option<&str>) -> Principal {
        let agent = agent.map(|id| id.parse().unwrap());
        Principal { tenant: "t".parse().unwrap(), role, agent, key_id: "k".to_owned() }
    }

    #[test]
    fn a_handoff_is_in_view_of_people_its_parties_and_the_agent_that_gets_the_result() {
        let ruling = Ruling { returns_to: Some("asker".parse().unwrap()), ..Ruling::default() };
        let handoff = Handoff { ruling: Some(Box::new(ruling)), ..handoff() };
        let rows = [
            (caller(Role::Agent, Some("drafter")), true, WordAccess::Open),
            (caller(Role::Agent, Some("reviewer")), true, WordAccess::Open),
            (caller(Role::Agent, Some("asker")), true, WordAccess::OfOthers),
            (caller(Role::Agent, Some("stranger")), false, WordAccess::OfOthers),
            (caller(Role::Auditor, None), true, WordAccess::Open),
            (caller(Role::Operator, None), true, WordAccess::Open),
            // An operator in the place of an agent sees what an operator sees.
            (caller(Role::Operator, Some("stranger")), true, WordAccess::Open),
        ];
        for (caller, sees, words) in rows {
            let reader = caller.reader();
            assert_eq!(
                (reader.sees(&handoff), reader.words_of(&handoff)),
                (sees, words),
                "{caller:?}"
            );
        }
    }

    #[test]
    fn the_words_of_a_dead_letter_reach_no_agent() {
        let letter = Handoff { status: HandoffStatus::DeadLettered, ..handoff() };
        let words = |role, agent| caller(role, agent).reader().words_of(&letter);
        assert_eq!(words(Role::Agent, Some("drafter")), WordAccess::DeadLetter);
        assert_eq!(words(Role::Agent, Some("stranger")), WordAccess::OfOthers);
        assert_eq!(words(Role::Auditor, None), WordAccess::Open);
    }

    #[test]
    fn a_trace_shows_words_to_people_that_read_contents_and_to_the_parties() {
        let rows = [
            (caller(Role::Admin, None), ShownWords::All, true),
            (caller(Role::OperatorMetadata, None), ShownWords::None, false),
            (
                caller(Role::Agent, Some("drafter")),
                ShownWords::OfAgent("drafter".parse().unwrap()),
                true,
            ),
            (
                caller(Role::Agent, Some("stranger")),
                ShownWords::OfAgent("stranger".parse().unwrap()),
                false,
            ),
        ];
        for (caller, shown, includes) in rows {
            assert_eq!(caller.reader().shown_words(), shown);
            assert_eq!(shown.include(&handoff()), includes, "{caller:?}");
        }
    }

    #[test]
    fn each_role_has_its_rights() {
        let rights = |role: Role| {
            let rights = Rights::from(role);
            [
                rights.is_agent(),
                rights.takes_part(),
                rights.operates(),
                rights.runs(),
                rights.administers(),
                rights.reads_contents(),
            ]
        };
        assert_eq!(rights(Role::Agent), [true, true, false, false, false, true]);
        assert_eq!(rights(Role::Auditor), [false, false, false, false, false, true]);
        assert_eq!(rights(Role::Operator), [false, true, true, true, false, true]);
        assert_eq!(rights(Role::OperatorMetadata), [false, true, false, true, false, false]);
        assert_eq!(rights(Role::Admin), [false, true, true, true, true, true]);
    }

    #[test]
    fn the_sender_and_the_receiver_are_known_by_their_agents() {
        let sides = |agent| {
            let caller = caller(Role::Agent, Some(agent));
            (caller.reader().is_sender(&handoff()), caller.reader().is_receiver(&handoff()))
        };
        assert_eq!(sides("drafter"), (true, false));
        assert_eq!(sides("reviewer"), (false, true));
        assert_eq!(sides("stranger"), (false, false));
    }
}
