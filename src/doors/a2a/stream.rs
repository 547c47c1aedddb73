//! Streams of a task's updates: `SendStreamingMessage` and `SubscribeToTask` (A2A 1.0 §3.1.2, §3.1.6). Each update follows an event
//! of the log; its place there is the id of the Server-Sent Event, behind which a client goes on after a lost connection.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;

use axum::response::sse::Event as SseEvent;
use futures_util::Stream;
use serde_json::{Value, json};

use super::super::state::Standing;
use super::call::Call;
use super::error::{A2aError, ErrorKind, Refused};
use super::events::{FeedEvent, FeedStream};
use super::operations::accept;
use super::request::{SendMessageRequest, TaskRequest};
use crate::http::events::NOW;
use handoffd_domain::a2a::TaskState;
use handoffd_domain::event::Position;

/// A stream of updates under way.
pub(super) struct Updates {
    call: Call,
    feed: Option<FeedStream>,
    /// The task and its replacement.
    handoffs: HashSet<String>,
    id: String,
    context: String,
    /// The last update.
    told: TaskState,
    ready: VecDeque<(Option<String>, Value)>,
    /// A stream that follows a message ends with the client's turn, a question too; a subscription at the end alone.
    of_message: bool,
    ended: bool,
}

/// `SendStreamingMessage`.
pub(super) async fn send(call: Call, request: SendMessageRequest) -> Result<Updates, Refused> {
    let sent = accept(&call, request).await?;
    // All events of a new handoff are told. Of one that there was before, those that are still to come.
    let (feed, mut standing) = if let Some(standing) = sent.committed {
        let start = Position::START.to_string();
        (Some(open(&call, standing.broker_task(), &start).await?), standing)
    } else {
        let standing = call.read(&sent.id, 0).await?;
        let feed = if standing.state().is_terminal() {
            None
        } else {
            Some(open(&call, standing.broker_task(), NOW).await?)
        };
        // Read after the stream was opened: what happens from here on is an event behind it.
        (feed, call.read(&sent.id, 0).await?)
    };
    standing.warn(sent.warnings);
    let mut updates = Updates::new(call, feed, &standing, true);
    let task = standing.task(updates.call.shown(sent.history));
    updates.ready.push_front((None, json!({ "task": task })));
    Ok(updates)
}

/// `SubscribeToTask`. With `Last-Event-ID` the stream goes on behind that event.
pub(super) async fn subscribe(call: Call, request: TaskRequest) -> Result<Updates, Refused> {
    let standing = call.read(&request.id, 0).await?;
    let last = call.last_event.clone();
    if standing.state().is_terminal() && last.is_none() {
        let why = "the task has ended; read it with GetTask";
        return Err(A2aError::new(ErrorKind::UnsupportedOperation, why));
    }
    let (feed, standing) = if standing.state().is_terminal() {
        // The task tells all that the events behind that one did. A place that the feed has not come to is refused.
        if let Some(last) = &last {
            drop(open(&call, standing.broker_task(), last).await?);
        }
        (None, standing)
    } else {
        let feed = open(&call, standing.broker_task(), last.as_deref().unwrap_or(NOW)).await?;
        (Some(feed), call.read(&request.id, 0).await?)
    };
    let mut updates = Updates::new(call, feed, &standing, false);
    let task = standing.task(updates.call.shown(None));
    updates.ready.push_back((None, json!({ "task": task })));
    Ok(updates)
}

async fn open(call: &Call, task: &str, after: &str) -> Result<FeedStream, Refused> {
    Ok(FeedStream::new(call.client.task_events(task, after).await?))
}

impl Updates {
    fn new(call: Call, feed: Option<FeedStream>, standing: &Standing, of_message: bool) -> Self {
        let handoffs =
            HashSet::from([standing.id(), &standing.last().handoff_id].map(str::to_owned));
        let told = standing.state();
        let ended = feed.is_none() || told.is_terminal() || (of_message && told.is_settled());
        let (id, context) = (standing.id().to_owned(), standing.context().to_owned());
        let ready = VecDeque::new();
        Self { call, feed, handoffs, id, context, told, ready, of_message, ended }
    }

    /// As Server-Sent Events; `wrap` puts each into the binding's form.
    pub(super) fn events<F>(self, wrap: F) -> impl Stream<Item = Result<SseEvent, Infallible>>
    where
        F: Fn(Value) -> Value,
    {
        futures_util::stream::unfold((self, wrap), |(mut updates, wrap)| async move {
            let (cursor, update) = updates.next().await?;
            let event = SseEvent::default().data(wrap(update).to_string());
            let event = match cursor {
                Some(cursor) => event.id(cursor),
                None => event,
            };
            Some((Ok(event), (updates, wrap)))
        })
    }

    /// The next update, with its place in the log where it is the last of its event.
    async fn next(&mut self) -> Option<(Option<String>, Value)> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.ended {
                return None;
            }
            let event = self.feed.as_mut()?.next().await?;
            // A store that is away ends the stream: the client comes again with the last id.
            self.follow(&event).await.ok()?;
        }
    }

    /// Puts what an event says of the task in line.
    async fn follow(&mut self, event: &FeedEvent) -> Result<(), Refused> {
        let of_task = event.handoff().is_some_and(|id| self.handoffs.contains(id));
        let Some(state) = event.state().filter(|_| of_task) else { return Ok(()) };
        let cursor = Some(event.cursor.clone());
        let mut metadata = json!({ "cursor": event.cursor, "eventId": event.id() });
        if !state.is_settled() {
            if state != self.told {
                self.told = state;
                let update = json!({ "statusUpdate": {
                    "taskId": self.id, "contextId": self.context,
                    "status": { "state": state, "timestamp": event.at() }, "metadata": metadata,
                } });
                self.ready.push_back((cursor, update));
            }
            return Ok(());
        }
        // The texts are on the handoff's page.
        let standing = self.call.read(&self.id, 0).await?;
        self.handoffs.insert(standing.last().handoff_id.clone());
        let now = standing.state();
        if state.is_terminal() && !now.is_terminal() {
            // Another agent has it: the task goes on under the same id.
            if now != self.told {
                self.told = now;
                self.ready.push_back((cursor, standing.update(&metadata)));
            }
            return Ok(());
        }
        if state == TaskState::InputRequired && now != state {
            // The question was answered already, and its event follows.
            if self.told != state {
                self.told = state;
                let update = json!({ "statusUpdate": {
                    "taskId": self.id, "contextId": self.context,
                    "status": { "state": state, "timestamp": event.at() }, "metadata": metadata,
                } });
                self.ready.push_back((cursor, update));
            }
            return Ok(());
        }
        if state == self.told {
            return Ok(());
        }
        self.told = now;
        if now == TaskState::Completed {
            self.ready.extend(standing.artifact_updates().into_iter().map(|update| (None, update)));
        }
        if self.call.knows_extension()
            && let (Some(more), Value::Object(known)) =
                (metadata.as_object_mut(), standing.metadata())
        {
            more.extend(known);
        }
        self.ready.push_back((cursor, standing.update(&metadata)));
        self.ended = now.is_terminal() || self.of_message;
        Ok(())
    }
}
