//! Messages from a queue: verdicts of an agent, and handoffs. A message is deleted after its effect is committed;
//! everything else (visibility, retention, redrive) is the queue's owner's.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::text::original;
use crate::inbound::take_all;
use handoffd_broker::transport::envelope::names;
use handoffd_broker::transport::{AttemptFailure, Disposition, Sink};

use super::client::{CallError, Client};
use super::message::is_fifo;

/// How long SQS holds a request for messages open, in seconds; its largest.
const WAIT_S: u64 = 20;
/// Messages that one request receives; the most that SQS gives.
const BATCH: usize = 10;
/// Bounds a request for messages.
const RECEIVE_LIMIT: Duration = Duration::from_secs(WAIT_S + 10);
/// Bounds every other request.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a message that could neither be answered nor parked.
const UNSETTLED_PAUSE: Duration = Duration::from_secs(5);
/// Largest decoded message, in bytes.
const MAX_DECODED: usize = 16 << 20;
/// Why a message was parked.
const PARK_REASON: &str = "Handoff-Park-Reason";
/// The id of the message that a problem document answers.
const ANSWERED_MESSAGE: &str = "Handoff-Message-Id";

/// A queue to read, and the queues for what it holds in vain.
pub struct Source<'a> {
    pub client: &'a Client,
    pub queue_url: &'a str,
    /// Takes the problem documents of refused messages.
    pub refusals: Option<&'a str>,
    /// Takes the messages that can never be read.
    pub parked: Option<&'a str>,
}

/// A received message.
struct Received {
    id: String,
    receipt: String,
    /// The FIFO group, whose messages keep their order.
    group: Option<String>,
    text: String,
    coding: Option<String>,
}

impl Source<'_> {
    /// Reads until `stopping`.
    ///
    /// # Errors
    /// The failure of a request for messages.
    pub async fn read(
        &self,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let input = json!({
            "QueueUrl": self.queue_url,
            "MaxNumberOfMessages": BATCH,
            "WaitTimeSeconds": WAIT_S,
            "MessageAttributeNames": [names::CONTENT_ENCODING],
            "MessageSystemAttributeNames": ["MessageGroupId"],
        });
        loop {
            let received = tokio::select! {
                biased;
                () = stopping.cancelled() => return Ok(()),
                received = self.client.call("ReceiveMessage", &input, RECEIVE_LIMIT) => received,
            };
            let messages = messages(&received.map_err(CallError::failure)?);
            if !self.settle(messages, sink, stopping).await {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return Ok(()),
                    () = sleep(UNSETTLED_PAUSE) => {}
                }
            }
        }
    }

    /// Takes messages and deletes those whose effect is committed; `false` where one could not be answered or parked.
    async fn settle(
        &self,
        messages: Vec<Received>,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> bool {
        let (mut batch, mut broken) = (Vec::new(), Vec::new());
        for message in messages {
            match original(&message.text, message.coding.as_deref(), MAX_DECODED) {
                Ok(body) => batch.push((message, body)),
                Err(why) => broken.push((message, Disposition::Park(why))),
            }
        }
        let taken = take_all(sink, batch, stopping).await;
        let taken = taken.into_iter().map(|(message, _, disposition)| (message, disposition));
        let mut settled = Vec::new();
        let mut all = true;
        for (message, disposition) in broken.into_iter().chain(taken) {
            let sent = match disposition {
                Disposition::Done => Ok(()),
                Disposition::Refused(problem) => self.answer(&message, &problem).await,
                Disposition::Park(why) => self.park(&message, &why).await,
                Disposition::Later(_) => continue,
            };
            match sent {
                Ok(()) => settled.push(message.receipt),
                Err(err) => {
                    tracing::warn!(error = err.failure().detail, "a message was not settled");
                    all = false;
                }
            }
        }
        if !settled.is_empty() {
            self.delete(settled).await;
        }
        all
    }

    async fn answer(&self, message: &Received, problem: &[u8]) -> Result<(), CallError> {
        let Some(queue) = self.refusals else { return Ok(()) };
        let text = String::from_utf8_lossy(problem).into_owned();
        self.forward(queue, message, &text, vec![(ANSWERED_MESSAGE, message.id.clone())]).await
    }

    async fn park(&self, message: &Received, why: &str) -> Result<(), CallError> {
        let Some(queue) = self.parked else { return Ok(()) };
        let why: String = why.chars().filter(|c| !c.is_control()).take(500).collect();
        let mut attributes = vec![(ANSWERED_MESSAGE, message.id.clone()), (PARK_REASON, why)];
        attributes.extend(message.coding.clone().map(|coding| (names::CONTENT_ENCODING, coding)));
        self.forward(queue, message, &message.text, attributes).await
    }

    async fn forward(
        &self,
        queue: &str,
        message: &Received,
        text: &str,
        attributes: Vec<(&str, String)>,
    ) -> Result<(), CallError> {
        let attributes: serde_json::Map<_, _> = attributes
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| {
                (name.to_owned(), json!({"DataType": "String", "StringValue": value}))
            })
            .collect();
        let mut input = json!({
            "QueueUrl": queue,
            "MessageBody": text,
            "MessageAttributes": attributes,
        });
        if is_fifo(queue) {
            let group = message.group.as_ref().unwrap_or(&message.id);
            input["MessageGroupId"] = group.as_str().into();
            input["MessageDeduplicationId"] = message.id.as_str().into();
        }
        self.client.call("SendMessage", &input, CALL_LIMIT).await.map(drop)
    }

    /// Deletes messages. One that stays comes again, and its effect is known by then.
    async fn delete(&self, receipts: Vec<String>) {
        let entries: Vec<_> = receipts
            .into_iter()
            .enumerate()
            .map(|(at, receipt)| json!({"Id": at.to_string(), "ReceiptHandle": receipt}))
            .collect();
        let input = json!({"QueueUrl": self.queue_url, "Entries": entries});
        match self.client.call("DeleteMessageBatch", &input, CALL_LIMIT).await {
            Ok(answer) => {
                let failed = answer.get("Failed").and_then(Value::as_array).map_or(0, Vec::len);
                if failed > 0 {
                    tracing::info!(failed, "messages were not deleted and will come again");
                }
            }
            Err(err) => {
                tracing::info!(
                    error = err.failure().detail,
                    "messages were not deleted and will come again"
                );
            }
        }
    }
}

fn messages(answer: &Value) -> Vec<Received> {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    };
    let messages = answer.get("Messages").and_then(Value::as_array);
    messages
        .into_iter()
        .flatten()
        .filter_map(|message| {
            Some(Received {
                id: text(message, "/MessageId")?,
                receipt: text(message, "/ReceiptHandle")?,
                group: text(message, "/Attributes/MessageGroupId"),
                text: text(message, "/Body").unwrap_or_default(),
                coding: text(message, "/MessageAttributes/Content-Encoding/StringValue"),
            })
        })
        .collect()
}
