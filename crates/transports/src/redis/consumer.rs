//! Reading a stream with a consumer group: verdicts on a reply channel, and handoffs on an intake.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::streams::{StreamAutoClaimReply, StreamId, StreamReadReply};
use ::redis::{FromRedisValue, RedisError, Value};
use bytes::Bytes;
use serde_json::Map;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::BODY;
use super::server::{Server, failure_of};
use crate::inbound::take_all;
use handoffd_broker::config;
use handoffd_broker::egress::EgressPolicy;
use handoffd_broker::transport::{AttemptFailure, Disposition, FailureClass, Fields, Sink};

/// The group of all brokers, and the name under which each of them reads: entries that a broker read and did not
/// acknowledge are another's after [`FORSAKEN`].
const GROUP: &str = "handoffd";
/// Most entries read at once.
const BATCH: usize = 64;
/// Size of the entries read at once, as far as their number can keep it: Redis has no bound in bytes.
const BATCH_BYTES: usize = 8 << 20;
/// Largest reply: it bounds one entry, and what a server can make the broker hold.
const LARGEST_REPLY: usize = 64 << 20;
/// Longest wait for an entry.
const BLOCK: Duration = Duration::from_secs(2);
/// Time without acknowledgement after which an entry is read again.
const FORSAKEN: Duration = Duration::from_secs(30);
/// Time that a command other than the wait may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Reason of a parked entry that holds no message.
const NO_BODY: &str = "has no field `body`";

/// One stream that the broker reads.
pub(super) struct Consumer<'a> {
    server: &'a Server,
    stream: &'a str,
    /// Stream of the problem documents of refused entries.
    answers: Option<&'a str>,
    /// Stream of the entries that can never be taken.
    parked: Option<&'a str>,
}

impl<'a> Consumer<'a> {
    pub(super) const fn new(server: &'a Server, stream: &'a str) -> Self {
        Self { server, stream, answers: None, parked: None }
    }

    /// Reads until `stopping`. An entry is deleted from the stream once its effect is committed.
    pub(super) async fn run(
        &self,
        policy: &EgressPolicy,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let deadline = Instant::now() + PATIENCE;
        // Its own connection: the wait for entries holds up whatever comes after it.
        let mut connection = self.server.connect(policy, deadline, LARGEST_REPLY).await?;
        self.join(&mut connection).await?;
        let mut count = Count::default();
        let mut claim_at = Instant::now();
        while !stopping.is_cancelled() {
            if Instant::now() >= claim_at {
                let forsaken = self.forsaken(&mut connection, count).await?;
                count.adapt(&forsaken);
                if forsaken.is_empty() {
                    claim_at = Instant::now() + FORSAKEN / 2;
                }
                self.take(&mut connection, forsaken, sink, stopping).await?;
            }
            let fresh = tokio::select! {
                biased;
                () = stopping.cancelled() => return Ok(()),
                fresh = self.fresh(&mut connection, count) => fresh?,
            };
            count.adapt(&fresh);
            self.take(&mut connection, fresh, sink, stopping).await?;
        }
        Ok(())
    }

    /// Makes the stream and the group, where they are not there: also after the server came back empty.
    async fn join(&self, connection: &mut MultiplexedConnection) -> Result<(), AttemptFailure> {
        let mut create = ::redis::cmd("XGROUP");
        create.arg("CREATE").arg(self.stream).arg(GROUP).arg("0").arg("MKSTREAM");
        match reply::<()>(&create, connection, PATIENCE).await {
            Err(Error::Redis(error)) if error.code() == Some("BUSYGROUP") => Ok(()),
            other => other.map_err(Error::failure),
        }
    }

    async fn fresh(
        &self,
        connection: &mut MultiplexedConnection,
        count: Count,
    ) -> Result<Vec<StreamId>, AttemptFailure> {
        let mut read = ::redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(GROUP).arg("COUNT").arg(count.0);
        read.arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS").arg(self.stream).arg(">");
        match reply::<Option<StreamReadReply>>(&read, connection, BLOCK + PATIENCE).await {
            Ok(found) => {
                Ok(found.into_iter().flat_map(|found| found.keys).flat_map(|key| key.ids).collect())
            }
            // The server came back empty, or the stream was deleted, maybe during the wait.
            Err(Error::Redis(error)) if matches!(error.code(), Some("NOGROUP" | "UNBLOCKED")) => {
                self.join(connection).await?;
                Ok(Vec::new())
            }
            Err(error) => Err(error.failure()),
        }
    }

    async fn forsaken(
        &self,
        connection: &mut MultiplexedConnection,
        count: Count,
    ) -> Result<Vec<StreamId>, AttemptFailure> {
        let mut claim = ::redis::cmd("XAUTOCLAIM");
        claim.arg(self.stream).arg(GROUP).arg(GROUP).arg(FORSAKEN.as_millis() as u64);
        claim.arg("0").arg("COUNT").arg(count.0);
        match reply::<StreamAutoClaimReply>(&claim, connection, PATIENCE).await {
            Ok(found) => Ok(found.claimed),
            Err(Error::Redis(error)) if error.code() == Some("NOGROUP") => Ok(Vec::new()),
            Err(error) => Err(error.failure()),
        }
    }

    async fn take(
        &self,
        connection: &mut MultiplexedConnection,
        entries: Vec<StreamId>,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        if entries.is_empty() {
            return Ok(());
        }
        let batch = entries
            .into_iter()
            .map(|entry| {
                let body = entry.map.get(BODY).and_then(bytes_of);
                // The sink counts such an entry as invalid; the copy has the entry's fields.
                let without = body.is_none().then(|| fields_of(&entry));
                ((entry.id, without), body.unwrap_or_default())
            })
            .collect();
        // Redis carries out a transaction's other commands when one of them fails: an entry is deleted only after its answer is
        // written. A crash between the two answers again.
        let mut answers = ::redis::pipe();
        let taken = take_all(sink, batch, stopping).await;
        if taken.is_empty() {
            return Ok(());
        }
        for ((id, without), message, what) in &taken {
            match what {
                Disposition::Refused(problem) => {
                    if let Some(stream) = self.answers {
                        let add = answers.cmd("XADD").arg(stream).arg("*");
                        add.arg("entry").arg(id).arg(BODY).arg(problem.as_ref()).ignore();
                    }
                }
                Disposition::Park(why) => {
                    if let Some(parked) = self.parked {
                        let add = answers.cmd("XADD").arg(parked).arg("*");
                        let (why, body) = match without {
                            Some(fields) => (NO_BODY, fields.as_bytes()),
                            None => (why.as_str(), message.as_ref()),
                        };
                        add.arg("entry").arg(id).arg("reason").arg(why);
                        add.arg(BODY).arg(body).ignore();
                    }
                }
                Disposition::Done | Disposition::Later(_) => {}
            }
        }
        if !answers.is_empty() {
            carried_out(&answers, connection).await?;
        }
        let ids: Vec<&str> = taken.iter().map(|((id, _), ..)| id.as_str()).collect();
        let mut pipeline = ::redis::pipe();
        pipeline.atomic().cmd("XACK").arg(self.stream).arg(GROUP).arg(&ids).ignore();
        pipeline.cmd("XDEL").arg(self.stream).arg(&ids).ignore();
        carried_out(&pipeline, connection).await
    }
}

/// How many entries are asked for: one, and more as long as they are small. After a reply that was too large the next
/// connection begins with one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count(usize);

impl Default for Count {
    fn default() -> Self {
        Self(1)
    }
}

impl Count {
    /// So many that entries as large as the largest of `read` stay within [`BATCH_BYTES`].
    fn adapt(&mut self, read: &[StreamId]) {
        if let Some(largest) = read.iter().map(size).max() {
            self.0 = (BATCH_BYTES / largest.max(1)).clamp(1, (self.0 * 4).min(BATCH));
        }
    }
}

fn size(entry: &StreamId) -> usize {
    let of = |value: &Value| match value {
        Value::BulkString(bytes) => bytes.len(),
        Value::SimpleString(text) => text.len(),
        _ => 0,
    };
    entry.map.iter().map(|(name, value)| name.len() + of(value)).sum()
}

enum Error {
    Redis(RedisError),
    Late,
}

impl Error {
    fn failure(self) -> AttemptFailure {
        match self {
            Self::Redis(error) => failure_of(&error, false),
            Self::Late => AttemptFailure::unreached(
                FailureClass::Timeout,
                "the server did not answer in time",
            ),
        }
    }
}

async fn reply<T: FromRedisValue>(
    command: &::redis::Cmd,
    connection: &mut MultiplexedConnection,
    patience: Duration,
) -> Result<T, Error> {
    let deadline = Instant::now() + patience;
    match timeout_at(deadline, command.query_async(connection)).await {
        Ok(answered) => answered.map_err(Error::Redis),
        Err(_) => Err(Error::Late),
    }
}

async fn carried_out(
    pipeline: &::redis::Pipeline,
    connection: &mut MultiplexedConnection,
) -> Result<(), AttemptFailure> {
    match timeout(PATIENCE, pipeline.query_async::<()>(connection)).await {
        Ok(done) => done.map_err(|error| failure_of(&error, false)),
        Err(_) => Err(Error::Late.failure()),
    }
}

fn bytes_of(value: &Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(Bytes::copy_from_slice(bytes)),
        Value::SimpleString(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
        _ => None,
    }
}

/// The fields of an entry as a JSON object; bytes that are no UTF-8 are replaced.
fn fields_of(entry: &StreamId) -> String {
    let text =
        |value: &Value| String::from_utf8_lossy(&bytes_of(value).unwrap_or_default()).into_owned();
    let fields: Map<String, serde_json::Value> =
        entry.map.iter().map(|(name, value)| (name.clone(), text(value).into())).collect();
    serde_json::Value::Object(fields).to_string()
}

/// Handoffs in by a stream: where it is, and where refusals go.
#[derive(Debug, Clone)]
pub struct RedisIntake {
    /// `server` and `caCertificate`, as an agent's config has them.
    pub config: Fields,
    /// `username` and `password`.
    pub credentials: Fields,
    /// The stream with the messages.
    pub stream: String,
    /// Stream of the problem documents.
    pub answers: Option<String>,
    /// Stream of the entries that can never be taken.
    pub parked: Option<String>,
}

impl RedisIntake {
    /// The intake that the settings name.
    ///
    /// # Errors
    /// The file of the CA certificate cannot be read.
    pub fn of(intake: &config::RedisIntake) -> Result<Option<Self>, String> {
        if intake.server.is_empty() {
            return Ok(None);
        }
        let mut config = Map::new();
        config.insert("server".to_owned(), intake.server.clone().into());
        if !intake.ca_certificate_file.is_empty() {
            let pem = std::fs::read_to_string(&intake.ca_certificate_file)
                .map_err(|err| format!("transports.redis.intake.ca_certificate_file: {err}"))?;
            config.insert("caCertificate".to_owned(), pem.into());
        }
        let mut login = Map::new();
        for (key, value) in [("username", &intake.username), ("password", &intake.password)] {
            if !value.is_empty() {
                login.insert(key.to_owned(), value.clone().into());
            }
        }
        let named = |stream: &String| Some(stream.clone()).filter(|stream| !stream.is_empty());
        Ok(Some(Self {
            config: config.into(),
            credentials: login.into(),
            stream: intake.stream.clone(),
            answers: named(&intake.answers),
            parked: named(&intake.parked),
        }))
    }

    pub(super) async fn run(
        &self,
        policy: &EgressPolicy,
        sink: &dyn Sink,
        stopping: &CancellationToken,
    ) -> Result<(), AttemptFailure> {
        let server = Server::from_fields(&self.config, &self.credentials)?;
        let consumer = Consumer {
            server: &server,
            stream: &self.stream,
            answers: self.answers.as_deref(),
            parked: self.parked.as_deref(),
        };
        consumer.run(policy, sink, stopping).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_entry_are_one_json_object() {
        let of = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let map =
            [("message".to_owned(), of(b"{\"a\":1}")), ("other".to_owned(), of(b"x\xff"))].into();
        let text = fields_of(&StreamId { map, ..StreamId::default() });
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::json!({ "message": "{\"a\":1}", "other": "x\u{fffd}" }));
    }

    #[test]
    fn large_entries_are_read_few_at_a_time() {
        let of = |bytes: usize| {
            let map = [("body".to_owned(), Value::BulkString(vec![0; bytes]))].into();
            StreamId { map, ..StreamId::default() }
        };
        let mut count = Count::default();
        let mut asked = Vec::new();
        for read in [vec![], vec![of(9)], vec![of(9), of(9)], vec![of(9)], vec![of(9)]] {
            asked.push(count.0);
            count.adapt(&read);
        }
        assert_eq!(asked, [1, 1, 4, 16, 64]);
        count.adapt(&[of(9), of(1 << 20)]);
        assert_eq!(count, Count(7));
        count.adapt(&[of(16 << 20)]);
        assert_eq!(count, Count(1));
    }
}
