//! Commands as the API's handlers build them, and callers that repeat a command until it is answered.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use super::broker::LEASE;
use super::dice::{below, chance, pause, weighted};
use super::pieces;
use super::world::{World, agent, tenant};
use crate::ledger::Outgoing;
use crate::ledger::command::Call;
use crate::ledger::commands::{
    Answer, Ask, Submit, SubmitBranch, SubmitGroup, Verdict, VerdictKind,
};
use crate::ledger::reply::{HandoffReply, LedgerError, SubmissionReply};
use handoffd_domain::canonical;
use handoffd_domain::group::{BranchPlace, Join, OnReject, branch_id};
use handoffd_domain::handoff::{
    Cost, DeliveryMode, Handoff, HandoffDraft, HandoffStatus, Priority,
};
use handoffd_domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::money::Usd;
use handoffd_domain::policy::EdgePolicy;
use handoffd_domain::ruling::Ruling;
use handoffd_domain::stream::Stream;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_evidence::record::{Actor, ActorRole, RecordContent, RecordParty};
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

pub(super) fn actor(role: ActorRole, id: Option<&AgentId>) -> Actor {
    Actor { role, agent_id: id.cloned(), key_id: Some("k".to_owned()) }
}

pub(super) fn command<C>(at: Micros, actor: Actor, command: C) -> (Call, C) {
    (Call { tenant: tenant(), at, actor }, command)
}

/// How a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// Its opening now, the rest in chunks.
    InPieces,
    /// Over its receiver's window.
    Long,
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
    pub(super) form: Form,
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

    /// The handoff that the gate would derive.
    pub(super) fn derived(&self, status: HandoffStatus, now: Micros) -> HandoffDraft {
        let cost = Cost {
            spent: Usd(self.spent),
            remaining: Usd(self.remaining),
            prompt_tokens: 0,
            completion_tokens: 0,
        };
        HandoffDraft {
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
            cost,
            idempotent: self.ruling.as_ref().is_none_or(|ruling| ruling.edge.idempotent),
            ruling: self.ruling.clone(),
            context: (self.form == Form::Long).then(pieces::over_the_window),
            conversation_id: None,
            user_ref: None,
            stream: (self.form == Form::InPieces).then(|| Stream::opened(now.plus(pieces::IDLE))),
            digest_salt: SALT.to_vec(),
            digest: commit(CommitmentSubject::Submission, &SALT, &self.body).to_vec(),
            traceparent: String::new(),
            tracestate: String::new(),
            span: String::new(),
            created_at: now,
            clock: LatencyClock::starting(now),
        }
    }

    /// Draws how the message comes, and writes it.
    pub(super) fn formed(mut self, more: u64) -> Self {
        self.form = match weighted(&[800, 120, 80]) {
            0 => Form::Whole,
            1 => Form::InPieces,
            _ => Form::Long,
        };
        self.body = match self.form {
            Form::Whole => body(self.handoff, more),
            Form::InPieces => pieces::opening_body(self.handoff, more),
            Form::Long => pieces::long_body(self.handoff, more),
        };
        if let Some(ruling) = self.ruling.as_mut().filter(|_| self.form == Form::InPieces) {
            // The gate refuses a stream on an edge on which a person decides.
            ruling.edge.human = None;
        }
        self
    }

    /// The same, whole.
    pub(super) fn whole(&self) -> Self {
        Self { form: Form::Whole, body: body(self.handoff, 0), ..self.clone() }
    }

    /// The message as stored content.
    pub(super) fn content(&self, now: Micros) -> RecordContent {
        kept(&self.body, now)
    }

    /// The sender's checkpoint as stored content.
    pub(super) fn state(&self) -> PackedContent {
        PackedContent::new(CommitmentSubject::Checkpoint, SALT, &self.body)
    }

    /// The message to all other agents as a ledger command.
    fn to_all(&self, join: Join, on_reject: OnReject, now: Micros) -> (Call, SubmitGroup) {
        let (call, mut base) = self.submission(now);
        base.handoff.ruling = None;
        let others: Vec<_> = agents().into_iter().filter(|id| *id != self.source).collect();
        let of = u32::try_from(others.len()).unwrap_or(u32::MAX);
        let branch = |(index, target): (u32, AgentId)| {
            let id = self.handoff;
            let mut ruling = self.ruling.clone().unwrap_or_default();
            ruling.branch = Some(BranchPlace { id, index, of, join, on_reject });
            (ruling.edge.human, ruling.preferred) = (None, Vec::new());
            let to = Self::party(&target);
            let handoff = HandoffDraft {
                id: branch_id(id, index),
                mode: mode_of(&target),
                target_type: target.as_str().to_owned(),
                target,
                idempotent: ruling.edge.idempotent,
                ruling: Some(ruling),
                ..base.handoff.clone()
            };
            SubmitBranch { handoff, to, policy: EdgePolicy::default(), residency: None }
        };
        let branches = (0..of).zip(others).map(branch).collect();
        (call, SubmitGroup { base, join, on_reject, branches })
    }

    /// The submission as a ledger command.
    pub(super) fn submission(&self, now: Micros) -> (Call, Submit) {
        let submit = Submit {
            safety: None,
            residency: None,
            handoff: self.derived(HandoffStatus::Pending, now),
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
            fencing_token: None,
            has_part: false,
            subtasks: (0..self.completed.unsigned_abs()).collect(),
            declared_budget: None,
            refusal_salt: SALT,
        };
        command(now, actor(ActorRole::Agent, Some(&self.source)), submit)
    }
}

/// A document as stored content.
pub(super) fn kept(document: &[u8], now: Micros) -> RecordContent {
    let part = PackedContent::new(CommitmentSubject::Message, SALT, document);
    RecordContent { id: ContentId(clock::time_ordered_id(now)), part }
}

/// A unique message body.
fn body(id: HandoffId, more: u64) -> Vec<u8> {
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
            Some(Ok(SubmissionReply::Handoff { handoff, .. })) => break Some(*handoff),
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
    if handoff.is_some() && draft.form == Form::InPieces {
        tokio::spawn(pieces::write(Arc::clone(world), draft.clone()));
    }
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

async fn submit_once(
    world: &Arc<World>,
    draft: &Draft,
) -> Option<Result<SubmissionReply, LedgerError>> {
    let broker = world.any_broker();
    let outgoing = Outgoing { body: draft.body.clone().into(), personal: Vec::new() };
    let reply = broker.submit(world, |now| draft.submission(now), outgoing).await;
    world.note(|| {
        let (id, from, to) = (super::books::short(draft.handoff), &draft.source, &draft.target);
        let answer = match &reply {
            None => "no answer".to_owned(),
            Some(Ok(SubmissionReply::Handoff { replayed, .. })) => {
                format!("committed, again: {replayed}")
            }
            Some(Ok(SubmissionReply::Refused { failures, .. })) => {
                format!("refused: {:?}", failures.iter().map(|f| f.code).collect::<Vec<_>>())
            }
            Some(Ok(_)) => "another answer".to_owned(),
            Some(Err(err)) => err.to_string(),
        };
        format!("{from} submits {id} to {to} at {}: {answer}", broker.host.name)
    });
    if let Some(Ok(SubmissionReply::Handoff { handoff, replayed, .. })) = &reply {
        world.books().acknowledged(handoff, *replayed);
    }
    reply
}

/// Submits a message to all other agents until answered, sometimes repeatedly; true where it was committed.
pub(super) async fn submit_all(world: &Arc<World>, draft: &Draft) -> bool {
    let (join, drops) = match below(3) {
        0 => (Join::All, chance(500)),
        1 => (Join::Any, chance(800)),
        _ => (Join::Quorum(NonZeroU32::MIN.saturating_add(1)), chance(800)),
    };
    let on_reject = if drops { OnReject::Drop } else { OnReject::Rollback };
    let mut committed = false;
    let mut again = chance(300);
    loop {
        let broker = world.any_broker();
        let made = |now| draft.to_all(join, on_reject, now);
        match broker.call(world, made).await {
            Some(Ok(SubmissionReply::Group { handoffs, .. })) => {
                for handoff in &handoffs {
                    world.books().acknowledged(handoff, committed);
                }
                committed = true;
                if !std::mem::take(&mut again) {
                    return true;
                }
            }
            Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) | None => {
                // It may have been committed.
                committed = true;
                tokio::time::sleep(pause(50, 400)).await;
            }
            Some(Err(LedgerError::Internal(why))) => {
                world.books().violate(|| format!("a defect: {why}"));
                return false;
            }
            Some(_) => return false,
        }
    }
}

/// Sends a receiver's verdict until answered; true where the ledger accepted it.
pub(super) async fn say(
    world: &Arc<World>,
    who: &AgentId,
    (task_id, handoff_id): (TaskId, HandoffId),
    fencing_token: i64,
    word: VerdictKind,
) -> bool {
    for _ in 0..6 {
        let broker = world.any_broker();
        let reply = broker
            .call(world, |now| {
                let verdict = Verdict {
                    task_id,
                    handoff_id,
                    kind: word.clone(),
                    fencing_token,
                    content: None,
                    spent: None,
                    said_at: now,
                    interval_ms: None,
                    lease_until: now.plus(LEASE),
                };
                let actor = actor(ActorRole::Agent, Some(who));
                command(now, actor, verdict)
            })
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
            Some(Ok(HandoffReply { handoff, .. })) => {
                world.books().word_taken(&handoff, fencing_token);
                return true;
            }
            None | Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) => {
                tokio::time::sleep(pause(50, 300)).await;
            }
            Some(Err(LedgerError::Internal(why))) => {
                world.books().violate(|| format!("a defect: {why}"));
                return false;
            }
            Some(Err(_)) => return false,
        }
    }
    false
}

/// Asks the sender of a handoff under one key until answered; true where the ledger took the question.
pub(super) async fn ask(
    world: &Arc<World>,
    who: &AgentId,
    (task_id, handoff_id): (TaskId, HandoffId),
    fencing_token: i64,
) -> bool {
    let key = world.books().asks(handoff_id);
    for _ in 0..6 {
        let asked = |now: Micros| {
            let kind = Ask {
                task_id,
                handoff_id,
                fencing_token,
                content: words(now),
                whole: key.as_bytes().to_vec(),
                key: Some(key.clone()),
                answer_by: now.plus(LEASE),
            };
            command(now, actor(ActorRole::Agent, Some(who)), kind)
        };
        let reply = world.any_broker().call(world, asked).await;
        world.note(|| {
            let id = super::books::short(handoff_id);
            match &reply {
                None => format!("{who} asks of {id}: no answer"),
                Some(Ok(_)) => format!("{who} asks of {id}: taken"),
                Some(Err(err)) => format!("{who} asks of {id}: {err}"),
            }
        });
        match reply {
            Some(Ok(HandoffReply { handoff, .. })) => {
                world.books().word_taken(&handoff, fencing_token);
                return true;
            }
            None | Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) => {
                tokio::time::sleep(pause(50, 300)).await;
            }
            Some(Err(_)) => return false,
        }
    }
    false
}

/// Answers a question of a handoff as its sender or as a person, sometimes twice.
pub(super) async fn give(world: &Arc<World>, handoff: &Handoff) {
    let Some(number) = handoff.open_question() else { return };
    let by = chance(800).then(|| handoff.source.clone());
    let role = if by.is_some() { ActorRole::Agent } else { ActorRole::Operator };
    for _ in 0..4 {
        let given = |now: Micros| {
            let kind = Answer {
                task_id: handoff.task_id,
                handoff_id: handoff.id,
                number,
                by: by.clone(),
                content: words(now),
                whole: number.to_be_bytes().to_vec(),
                key: None,
            };
            command(now, actor(role, by.as_ref()), kind)
        };
        let reply = world.any_broker().call(world, given).await;
        world.note(|| {
            let id = super::books::short(handoff.id);
            format!("question {number} of {id} is answered: {}", reply.is_some())
        });
        match reply {
            Some(Ok(_)) if chance(200) => {}
            None | Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) => {
                tokio::time::sleep(pause(50, 300)).await;
            }
            Some(_) => return,
        }
    }
}

/// The agents of every schedule: `a` begins tasks, `w…` take webhooks, `p` pulls.
pub(super) fn agents() -> [AgentId; 4] {
    ["a", "p", "w1", "w2"].map(agent)
}
