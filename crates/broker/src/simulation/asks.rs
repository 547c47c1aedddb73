//! Commands as the API's handlers build them, and callers that repeat a command until it is answered.

use std::sync::{Arc, LazyLock};

use super::broker::LEASE;
use super::dice::{below, chance, pause};
use super::world::{World, agent, tenant};
use crate::ledger::Outgoing;
use crate::ledger::command::{Command, Kind, LedgerError, Reply, Submit, Verdict, Word};
use handoffd_core::domain::canonical;
use handoffd_core::domain::handoff::{Cost, DeliveryMode, Handoff, HandoffStatus, Priority};
use handoffd_core::domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId};
use handoffd_core::domain::latency::LatencyClock;
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::policy::EdgePolicy;
use handoffd_core::domain::ruling::Ruling;
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_core::evidence::record::{Actor, RecordContent, RecordParty};
use handoffd_store::clock;

/// Salt of every submitted content: other tests cover commitments.
const SALT: [u8; 16] = [7; 16];

/// Text of a decision, with its commitment computed once.
static WORDS: LazyLock<PackedContent> =
    LazyLock::new(|| PackedContent::new(CommitmentSubject::Message, SALT, br#"{"why":"so"}"#));

/// A decision's text as a record's content.
pub(super) fn words(now: Micros) -> RecordContent {
    RecordContent { id: ContentId(clock::time_ordered_id(now)), part: WORDS.clone() }
}

pub(super) fn actor(role: &str, id: Option<&AgentId>) -> Actor {
    Actor { role: role.to_owned(), agent_id: id.cloned(), key_id: Some("k".to_owned()) }
}

/// A command of now.
pub(super) fn command(now: Micros, actor: Actor, kind: Kind) -> Command {
    Command { tenant: tenant(), at: now, actor, kind }
}

/// A handoff as its sender describes it.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) handoff: HandoffId,
    pub(super) task: TaskId,
    pub(super) parent: Option<HandoffId>,
    pub(super) source: AgentId,
    pub(super) run: ExecutionId,
    pub(super) target: AgentId,
    pub(super) spent: i64,
    pub(super) remaining: i64,
    pub(super) completed: i64,
    pub(super) ruling: Option<Box<Ruling>>,
    pub(super) key: Option<String>,
    pub(super) body: Vec<u8>,
}

/// How an agent of the schedule receives: `p…` pull.
fn mode_of(target: &AgentId) -> DeliveryMode {
    if target.as_str().starts_with('p') { DeliveryMode::Pull } else { DeliveryMode::Webhook }
}

impl Draft {
    fn party(id: &AgentId) -> RecordParty {
        let agent_id = Some(id.clone());
        RecordParty {
            agent_id,
            agent_type: None,
            agent_version: None,
            execution_id: None,
            registered_version: None,
        }
    }

    /// The row that the gate would derive.
    pub(super) fn row(&self, status: HandoffStatus, now: Micros) -> Handoff {
        let cost = Cost {
            spent: Usd(self.spent),
            remaining: Usd(self.remaining),
            prompt_tokens: 0,
            completion_tokens: 0,
        };
        Handoff {
            tenant: tenant(),
            id: self.handoff,
            task_id: self.task,
            parent_id: self.parent,
            source: self.source.clone(),
            source_version: "1.0.0".to_owned(),
            source_execution: self.run,
            target: self.target.clone(),
            target_type: self.target.as_str().to_owned(),
            target_version: "1.0.0".to_owned(),
            mode: mode_of(&self.target),
            status,
            fencing_token: 0,
            attempts: 0,
            deadline_at: None,
            cost,
            idempotent: self.ruling.as_ref().is_none_or(|ruling| ruling.edge.idempotent),
            checkpoint: None,
            checkpoint_commitment: None,
            content_id: None,
            commitment: None,
            origin: None,
            ruling: self.ruling.clone(),
            topped_up: Usd(0),
            digest_salt: SALT.to_vec(),
            digest: commit(CommitmentSubject::Submission, &SALT, &self.body).to_vec(),
            reason: None,
            traceparent: String::new(),
            tracestate: String::new(),
            span: String::new(),
            created_at: now,
            clock: LatencyClock::starting(now),
            accepted_at: None,
            ended_at: None,
        }
    }

    /// The message as stored content.
    pub(super) fn content(&self, now: Micros) -> RecordContent {
        let part = PackedContent::new(CommitmentSubject::Message, SALT, &self.body);
        RecordContent { id: ContentId(clock::time_ordered_id(now)), part }
    }

    /// The sender's checkpoint as stored content.
    pub(super) fn state(&self) -> PackedContent {
        PackedContent::new(CommitmentSubject::Checkpoint, SALT, &self.body)
    }

    /// The submission as a ledger command.
    pub(super) fn submission(&self, now: Micros) -> Command {
        let submit = Submit {
            safety: None,
            residency: None,
            handoff: self.row(HandoffStatus::Pending, now),
            from: Self::party(&self.source),
            to: Self::party(&self.target),
            content: self.content(now),
            checkpoint: None,
            implied_checkpoint: self.state(),
            require_checkpoint: false,
            priority: Priority::ALL[below(4) as usize],
            policy: EdgePolicy::default(),
            repeat: None,
            personal: Vec::new(),
            whole: self.body.clone(),
            idempotency_key: self.key.clone(),
            has_part: false,
            subtasks: (0..self.completed.unsigned_abs()).collect(),
            declared_budget: None,
            refusal_salt: SALT,
            claim: None,
        };
        command(now, actor("agent", Some(&self.source)), Kind::Submit(Box::new(submit)))
    }
}

/// A unique message body.
pub(super) fn body(id: HandoffId, more: u64) -> Vec<u8> {
    canonical::to_vec(&serde_json::json!({ "handoffId": id, "n": more }))
}

/// Submits until answered, sometimes repeatedly or concurrently; returns the committed handoff.
pub(super) async fn submit(world: &Arc<World>, draft: &Draft) -> Option<Handoff> {
    if world.fails(150) {
        // A copy overtakes it, at whichever broker.
        let (world, copy) = (Arc::clone(world), draft.clone());
        tokio::spawn(async move { submit_once(&world, &copy).await });
    }
    let handoff = loop {
        match submit_once(world, draft).await {
            Some(Ok(Reply::Submitted { handoff, .. })) => break Some(handoff),
            Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) | None => {
                tokio::time::sleep(pause(50, 400)).await;
            }
            Some(Err(LedgerError::Internal(why))) => {
                world.books().violate(|| format!("a defect: {why}"));
                break None;
            }
            Some(_) => break None,
        }
    };
    if handoff.is_some() && chance(200) {
        submit_once(world, draft).await;
    }
    if handoff.is_some() && chance(60) {
        let other = Draft { body: body(draft.handoff, 999), ..draft.clone() };
        if let Some(Ok(reply)) = submit_once(world, &other).await {
            world.books().violate(|| format!("one id, another message: {reply:?}"));
        }
    }
    handoff
}

async fn submit_once(world: &Arc<World>, draft: &Draft) -> Option<Result<Reply, LedgerError>> {
    let broker = world.any_broker();
    let outgoing = Outgoing { body: draft.body.clone().into(), personal: Vec::new() };
    let reply = broker.call(world, |now| draft.submission(now), Some(outgoing)).await;
    world.note(|| {
        let (id, from, to) = (super::books::short(draft.handoff), &draft.source, &draft.target);
        let answer = match &reply {
            None => "no answer".to_owned(),
            Some(Ok(Reply::Submitted { replayed, .. })) => format!("committed, again: {replayed}"),
            Some(Ok(Reply::Refused { failures, .. })) => {
                format!("refused: {:?}", failures.iter().map(|f| f.code).collect::<Vec<_>>())
            }
            Some(Ok(_)) => "another answer".to_owned(),
            Some(Err(err)) => err.to_string(),
        };
        format!("{from} submits {id} to {to} at {}: {answer}", broker.host.name)
    });
    if let Some(Ok(Reply::Submitted { handoff, replayed, .. })) = &reply {
        world.books().acknowledged(handoff, *replayed);
    }
    reply
}

/// Sends a receiver's verdict until answered; true where the ledger accepted it.
pub(super) async fn say(
    world: &Arc<World>,
    who: &AgentId,
    (task_id, handoff_id): (TaskId, HandoffId),
    fencing_token: i64,
    word: Word,
) -> bool {
    for _ in 0..6 {
        let broker = world.any_broker();
        let reply = broker
            .call(
                world,
                |now| {
                    let verdict = Verdict {
                        task_id,
                        handoff_id,
                        word: word.clone(),
                        fencing_token,
                        content: None,
                        spent: None,
                        lease_until: now.plus(LEASE),
                    };
                    let actor = actor("agent", Some(who));
                    command(now, actor, Kind::Verdict(Box::new(verdict)))
                },
                None,
            )
            .await;
        world.note(|| {
            let answer = match &reply {
                None => "no answer".to_owned(),
                Some(Ok(_)) => "taken".to_owned(),
                Some(Err(err)) => err.to_string(),
            };
            let id = super::books::short(handoff_id);
            format!("{who} says {word:?} of {id} with token {fencing_token}: {answer}")
        });
        match reply {
            Some(Ok(Reply::Handoff { handoff, .. })) => {
                world.books().word_taken(&handoff, fencing_token);
                return true;
            }
            None | Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) => {
                tokio::time::sleep(pause(50, 300)).await;
            }
            Some(_) => return false,
        }
    }
    false
}

/// The agents of every schedule: `a` begins tasks, `w…` take webhooks, `p` pulls.
pub(super) fn agents() -> [AgentId; 4] {
    ["a", "p", "w1", "w2"].map(agent)
}
