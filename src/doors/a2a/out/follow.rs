//! One remote task, followed to its end in its agent's name.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::super::client::{ApiClient, ApiRefusal, PageQuery};
use super::super::super::front::CallerHeaders;
use super::step::{AnswerDelivery, HandoffState, LastQuestion, Step, next, question};
use super::{DOOR, FollowState, Followed, beat};
use handoffd_broker::directory::Principal;
use handoffd_broker::transport::Endpoint;
use handoffd_domain::canonical;
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::lenient::{self, UnreadableParts};
use handoffd_store::clock;
use handoffd_store::store::{HandoffKey, Role};
use handoffd_transports::a2a::client::{CallFault, RemoteAgent};
use handoffd_transports::a2a::message::{answer, answer_id};
use handoffd_transports::a2a::task::RemoteTask;
use handoffd_transports::a2a::transport::{RemoteRef, remote_agent};
use handoffd_transports::a2a::wire::Operation;

/// Longest time for one call of a follower.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How much longer the next pause is.
const GROWTH: f64 = 1.6;
/// How long an agent has to take up an answer before the same question counts as asked again.
const FRESH: Duration = Duration::from_secs(10);
/// Times that an agent may say that it does not know the task before the task counts as lost.
const MISSES: u32 = 4;
/// Cancellations after which an agent that works on is left alone.
const CANCELS: u32 = 20;
/// How long the broker goes on to withdraw the task of a handoff that ended.
const WITHDRAW: Duration = Duration::from_hours(24);

/// The API's answer to a verdict or a question.
type Said = Result<(), ApiRefusal>;

/// The next step after a read of a task.
enum Round {
    /// Look again at the pace of a task that changed just now.
    Soon,
    /// Nothing changed.
    Later,
    /// The agent or the store is away.
    Away(Option<Duration>),
    End,
}

pub(super) struct Follower {
    state: Arc<FollowState>,
    key: HandoffKey,
    followed: Arc<Followed>,
    remote: Option<RemoteRef>,
    /// Version of the task as last seen, and when it was first seen so.
    seen: Option<(u64, Instant)>,
    beaten: Option<Instant>,
    /// The last answer that was sent, and when.
    told: Option<(u32, Instant)>,
    misses: u32,
    /// Cancellations that the agent answered without an end of the task.
    cancels: u32,
    pause: Duration,
}

impl Follower {
    pub(super) fn new(state: Arc<FollowState>, key: HandoffKey, followed: Arc<Followed>) -> Self {
        let pause = poll(&state).0;
        let (remote, seen, beaten, told) = (None, None, None, None);
        let (misses, cancels) = (0, 0);
        Self { state, key, followed, remote, seen, beaten, told, misses, cancels, pause }
    }

    /// Follows the task until it ended, or the broker stops.
    pub(super) async fn run(mut self) {
        let stopping = self.state.api.stopping.clone();
        let (first, most) = poll(&self.state);
        loop {
            // Before the look: a change during it is not missed.
            let mut watch = self.state.api.intake.ledger.watch(self.key.clone());
            // A round that is cut off is as one that a crash cut off: the next broker goes on.
            let round = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                round = self.round() => round,
            };
            let mut pause = match round {
                Round::End => return,
                Round::Soon => {
                    self.pause = first;
                    first
                }
                Round::Later => self.longer(most),
                Round::Away(after) => after.unwrap_or_default().max(self.longer(most)),
            };
            pause = pause.mul_f64(0.8 + 0.4 * clock::random_fraction());
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = self.followed.nudge.notified() => {}
                _ = watch.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn longer(&mut self, most: Duration) -> Duration {
        let pause = self.pause;
        self.pause = pause.mul_f64(GROWTH).min(most);
        pause
    }

    /// Looks at the handoff and at its remote task once, and does the next step.
    async fn round(&mut self) -> Round {
        let Ok(found) = self.state.api.store.find_handoff(&self.key).await else {
            return Round::Away(None);
        };
        let Some(handoff) = found else { return Round::End };
        let given = self.followed.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.remote = given.or(self.remote.take());
        if handoff.status == HandoffStatus::Pending {
            return Round::Later;
        }
        let late = |at| self.state.api.now().since(at) > WITHDRAW;
        if handoff.ended_at.is_some_and(late) {
            return Round::End;
        }
        let Some(agent) = self.agent(&handoff).await else {
            // The agent is gone, or has another transport. The lease runs out.
            return if handoff.status.is_final() { Round::End } else { Round::Away(None) };
        };
        let state = Arc::clone(&self.state);
        let place = state.place(&handoff.tenant, &handoff.target).await;
        let Some(_place) = place else { return Round::End };
        match self.task(&handoff, &agent).await {
            Ok(Some(task)) => self.act(&handoff, &agent, task).await,
            Ok(None) => self.without_task(&handoff).await,
            Err(fault) => self.fault(&handoff, fault).await,
        }
    }

    /// The remote agent as it is registered now.
    async fn agent(&self, handoff: &Handoff) -> Option<RemoteAgent> {
        let api = &self.state.api;
        let agents = api.intake.directory.agents(&handoff.tenant).await.ok()?;
        let row = agents.row(&handoff.target)?;
        if row.agent.delivery.mode != DeliveryMode::A2a {
            return None;
        }
        let transport = self.state.transports.get(DeliveryMode::A2a)?;
        let endpoint = Endpoint::of(row, &**transport, &api.intake.vault).ok()?;
        let timeout = Duration::from_millis(row.agent.delivery.timeout_ms).min(CALL_MAX);
        remote_agent(&endpoint, timeout)
    }

    /// The remote task as it is now; `None` where there is none to ask for.
    async fn task(
        &mut self,
        handoff: &Handoff,
        agent: &RemoteAgent,
    ) -> Result<Option<RemoteTask>, CallFault> {
        if self.remote.is_none() {
            self.remote = self.recorded(handoff).await?;
        }
        if self.remote.is_none() {
            self.remote = self.listed(handoff, agent).await?.as_ref().map(Into::into);
        }
        let task = match &self.remote {
            None | Some(RemoteRef::Message(_) | RemoteRef::Withheld) => return Ok(None),
            Some(RemoteRef::Task { id, .. }) => {
                let read = self.call(agent, &Operation::Get { id }, "get_task").await?;
                let task = RemoteTask::read(&read).filter(|task| task.id == *id);
                task.ok_or_else(|| protocol("the answer is not the task that was asked for"))?
            }
        };
        self.misses = 0;
        self.remote = Some((&task).into());
        Ok(Some(task))
    }

    /// The id that the acceptance's record names.
    async fn recorded(&self, handoff: &Handoff) -> Result<Option<RemoteRef>, CallFault> {
        let statements = self.state.api.statements();
        match statements.of_kind(handoff, HandoffStatus::Accepted.as_str()).await {
            Ok(content) => Ok(content.as_ref().and_then(RemoteRef::read)),
            Err(_) => Err(CallFault::Busy(None)),
        }
    }

    /// The task that took the handoff's message, among those that the agent lists for the context.
    async fn listed(
        &self,
        handoff: &Handoff,
        agent: &RemoteAgent,
    ) -> Result<Option<RemoteTask>, CallFault> {
        let (context, id) = (handoff.task_id.to_string(), handoff.id.to_string());
        let found = self.state.client.find_task(agent, &context, &id).await;
        self.count("list_tasks", &found);
        found
    }

    async fn call(
        &self,
        agent: &RemoteAgent,
        operation: &Operation<'_>,
        label: &str,
    ) -> Result<Value, CallFault> {
        let answered = self.state.client.call(agent, operation).await;
        self.count(label, &answered);
        answered
    }

    fn count<T>(&self, label: &str, answered: &Result<T, CallFault>) {
        let outcome = match answered {
            Ok(_) => "ok",
            Err(CallFault::Refused(_)) => "refused",
            Err(_) => "failed",
        };
        self.state.api.metrics.door_calls.with_label_values(&[DOOR, label, outcome]).inc();
    }

    /// A handoff whose agent answered with a message, or at whose agent no task is known.
    async fn without_task(&mut self, handoff: &Handoff) -> Round {
        match self.remote.clone() {
            None | Some(RemoteRef::Task { .. }) => self.missing(handoff).await,
            Some(_) if handoff.status.is_final() => Round::End,
            Some(RemoteRef::Message(message)) => self.complete(handoff, Some(message), None).await,
            Some(RemoteRef::Withheld) => self.fail(handoff, "SAFETY_VIOLATION", None).await,
        }
    }

    async fn fault(&mut self, handoff: &Handoff, fault: CallFault) -> Round {
        if fault.is_no_task() {
            return self.missing(handoff).await;
        }
        tracing::info!(handoff_id = %handoff.id, agent_id = %handoff.target, detail = fault.detail(), "the remote task cannot be read");
        match fault {
            CallFault::Busy(after) => Round::Away(after),
            CallFault::Gone if !handoff.status.is_final() => {
                self.fail(handoff, "ENDPOINT_GONE", None).await
            }
            _ => Round::Away(None),
        }
    }

    /// The agent does not know the task. An agent that starts anew may not have read its tasks yet, and one that answers late may
    /// not have made it yet.
    async fn missing(&mut self, handoff: &Handoff) -> Round {
        self.misses += 1;
        let is_known = self.remote.is_some();
        if handoff.status.is_final() && (is_known || self.misses >= MISSES) {
            return Round::End;
        }
        if self.misses < MISSES {
            return Round::Later;
        }
        self.fail(handoff, "A2A_TASK_LOST", None).await
    }

    async fn act(&mut self, handoff: &Handoff, agent: &RemoteAgent, task: RemoteTask) -> Round {
        let changed = self.seen.is_none_or(|(version, _)| version != task.version);
        if changed {
            self.seen = Some((task.version, Instant::now()));
        }
        let ours = match self.ours(handoff, &task).await {
            Ok(ours) => ours,
            Err(round) => return round,
        };
        match next(&ours, &task) {
            Step::Wait => {
                self.heartbeat(handoff).await;
                if changed { Round::Soon } else { Round::Later }
            }
            Step::Complete(result, note) => self.complete(handoff, result, note).await,
            Step::Fail { code, message } => self.fail(handoff, code, message).await,
            Step::Ask(question) => {
                let asked = self.say(handoff, "ask", json!({ "question": question })).await;
                self.refused_or(handoff, asked).await
            }
            Step::Answer(number, value) => self.answer(handoff, agent, &task, number, &value).await,
            Step::Cancel => {
                match self.call(agent, &Operation::Cancel { id: &task.id }, "cancel_task").await {
                    // The next look sees whether the task ended.
                    Ok(_) => {
                        self.cancels += 1;
                        if self.cancels < CANCELS {
                            return Round::Later;
                        }
                        tracing::warn!(handoff_id = %handoff.id, agent_id = %handoff.target, "the agent goes on with a task that was withdrawn");
                        Round::End
                    }
                    // It ended meanwhile, or cannot be withdrawn: the agent's own matter.
                    Err(CallFault::Refused(refusal)) if !refusal.internal => Round::End,
                    Err(_) => Round::Away(None),
                }
            }
            Step::End => Round::End,
        }
    }

    /// The handoff as far as the next step depends on it.
    async fn ours(&self, handoff: &Handoff, task: &RemoteTask) -> Result<HandoffState, Round> {
        let status = handoff.status;
        let Some(number) = u32::try_from(handoff.questions.len()).ok().filter(|count| *count > 0)
        else {
            return Ok(HandoffState { status, questions: 0, question: None });
        };
        let id = handoff.id.to_string();
        let page = self.client(handoff).handoff(&id, PageQuery::default()).await;
        let page = page.map_err(|refused| Round::Away(retry_after(&refused)))?;
        let (asked, reply) = page.asked.map_or((None, None), |it| (it.question, it.answer));
        let sent = self.told.filter(|(told, _)| *told == number);
        let delivery = match sent {
            Some((_, at)) if at.elapsed() < FRESH => AnswerDelivery::Fresh,
            Some(_) => AnswerDelivery::Done,
            None if task.has_message(&answer_id(&id, number)) => AnswerDelivery::Done,
            None => AnswerDelivery::Due,
        };
        // An erased question is compared with nothing.
        let stands = asked.is_none_or(|asked| asked == self.as_kept(question(task)));
        let last = LastQuestion { number, stands, answer: reply, delivery };
        Ok(HandoffState { status, questions: handoff.questions.len(), question: Some(last) })
    }

    /// A question as the API keeps it: redacted, in canonical form.
    fn as_kept(&self, question: Value) -> Value {
        let mut said = serde_json::Map::from_iter([("question".to_owned(), question)]);
        self.state.api.intake.redaction.redact_words(&mut said);
        let kept: Value =
            serde_json::from_slice(&canonical::to_vec(&Value::Object(said))).unwrap_or_default();
        kept["question"].clone()
    }

    async fn answer(
        &mut self,
        handoff: &Handoff,
        agent: &RemoteAgent,
        task: &RemoteTask,
        number: u32,
        value: &Value,
    ) -> Round {
        let request = answer(&handoff.id.to_string(), number, &task.id, &task.context, value);
        match self.call(agent, &Operation::Send(&request), "send_message").await {
            Ok(_) => {
                // The next look shows the state that the task reaches by it, whatever the answer says.
                self.told = Some((number, Instant::now()));
                Round::Soon
            }
            Err(CallFault::Refused(refusal)) if !refusal.internal && !refusal.is_no_task() => {
                self.fail(handoff, "A2A_ANSWER_REFUSED", Some(refusal.reason)).await
            }
            Err(fault) => self.fault(handoff, fault).await,
        }
    }

    /// Extends the lease of a task that lives: one that the agent shows, and that changed within the allowed silence.
    async fn heartbeat(&mut self, handoff: &Handoff) {
        let delivery = &self.state.api.config.delivery;
        let lease = Duration::from_millis(delivery.lease_ms);
        let silence = Duration::from_millis(self.state.api.config.doors.a2a.silence_ms);
        let lives = self.seen.is_some_and(|(_, since)| since.elapsed() < silence);
        let due = self.beaten.is_none_or(|at| at.elapsed() >= beat(lease));
        if handoff.status == HandoffStatus::Accepted && lives && due {
            let said = self.say(handoff, "heartbeat", json!({})).await;
            if said.is_ok() {
                self.beaten = Some(Instant::now());
            }
        }
    }

    async fn complete(
        &mut self,
        handoff: &Handoff,
        result: Option<Value>,
        note: Option<Value>,
    ) -> Round {
        let mut body = result.map_or_else(|| json!({}), |result| json!({ "result": result }));
        if let Some(note) = note {
            body[lenient::OWN] = note;
        }
        let said = self.say(handoff, "complete", body).await;
        self.refused_or(handoff, said).await
    }

    /// The round after a verdict or a question. If the broker refuses its content, the handoff ends, since the agent has no
    /// other way to say it.
    async fn refused_or(&mut self, handoff: &Handoff, said: Said) -> Round {
        match said {
            Err(refused) if is_refused(&refused) => {
                self.fail(handoff, &refused.problem.code, None).await
            }
            said => verdict_round(said),
        }
    }

    async fn fail(&mut self, handoff: &Handoff, code: &str, message: Option<String>) -> Round {
        tracing::info!(handoff_id = %handoff.id, agent_id = %handoff.target, code, "a remote task failed");
        let bare = json!({ "error": { "code": code } });
        if let Some(message) = message {
            let error = json!({ "code": code, "message": message });
            let said = self.say(handoff, "fail", json!({ "error": error })).await;
            if !said.as_ref().is_err_and(is_refused) {
                return verdict_round(said);
            }
        }
        let said = self.say(handoff, "fail", bare).await;
        verdict_round(said)
    }

    /// Says something in the agent's name, by the API.
    async fn say(&self, handoff: &Handoff, verb: &str, mut body: Value) -> Said {
        body["fencingToken"] = handoff.fencing_token.into();
        let (id, unreadable) = (handoff.id.to_string(), UnreadableParts::default());
        self.client(handoff).say(&id, verb, &body, unreadable).await.map(|_| ())
    }

    /// The API in the name of a handoff's receiver.
    fn client(&self, handoff: &Handoff) -> ApiClient {
        let principal = Principal {
            tenant: handoff.tenant.clone(),
            role: Role::Agent,
            agent: Some(handoff.target.clone()),
            key_id: String::new(),
        };
        ApiClient::new(&self.state.front, CallerHeaders::in_name(principal))
    }
}

/// The first and the longest pause between two looks.
fn poll(state: &FollowState) -> (Duration, Duration) {
    let door = &state.api.config.doors.a2a;
    let first = Duration::from_millis(door.poll_ms);
    (first, Duration::from_millis(door.poll_max_ms).max(first))
}

fn protocol(why: &str) -> CallFault {
    use handoffd_broker::transport::{AttemptFailure, FailureClass};
    CallFault::Failed(AttemptFailure::reached(FailureClass::Protocol, Some(200), why))
}

/// The API refuses what was said, and would again.
fn is_refused(refused: &ApiRefusal) -> bool {
    matches!(refused.status.as_u16(), 400 | 413 | 422)
}

fn retry_after(refused: &ApiRefusal) -> Option<Duration> {
    refused.retry_after.map(Duration::from_secs)
}

/// The next step after the API's answer to a verdict.
fn verdict_round(said: Said) -> Round {
    match said {
        // The handoff is looked at again: it ended, or another said something meanwhile.
        Ok(()) => Round::Soon,
        Err(refused) => match refused.status.as_u16() {
            409 => Round::Later,
            404 => Round::End,
            _ => Round::Away(retry_after(&refused)),
        },
    }
}
