//! Chunks of handoffs in pieces (specification §10.5): from a document to the command that commits it.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use serde_json::Value;

use super::{Intake, IntakeError, actor};
use crate::archive::{ContentState, Contents};
use crate::directory::{Agents, Principal};
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{AppendChunk, Chunked, RefuseChunk, StreamEnd};
use crate::ledger::reply::{HandoffReply, LedgerError};
use handoffd_domain::canonical::{self, CanonicalObject};
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::HandoffId;
use handoffd_domain::stream::{Chunk, ChunkEnd, Stream};
use handoffd_domain::warning::Warning;
use handoffd_gate::{signature, with_nul};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::HandoffKey;

pub mod append;
mod judge;

use judge::JudgedChunk;

/// Chunks read at once.
const PAGE: i64 = 256;

/// Bytes of assembled messages kept between chunks.
const KEPT_BYTES: u64 = 64 << 20;

/// How long an assembled message is kept without a chunk.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// How often a chunk that met another of its stream is looked at again.
const MOST_RACES: usize = 4;

/// The limits of streams.
#[derive(Debug, Clone, Copy)]
pub struct StreamSettings {
    /// How long a stream waits for its next chunk.
    pub idle: Duration,
    /// Bytes of one chunk in canonical form.
    pub max_chunk_bytes: usize,
    /// Bytes of all chunks of a stream.
    pub max_bytes: u64,
    pub max_chunks: i64,
}

/// The streams under way at this broker.
pub struct Streams {
    pub settings: StreamSettings,
    /// Assembled messages: the numbers of a stream never change, so what was assembled of them stays true.
    assembled: Cache<HandoffKey, Arc<Assembled>>,
}

/// The message that the first chunks of a stream make.
#[derive(Debug, Clone)]
struct Assembled {
    /// The last chunk in it.
    seq: i64,
    message: Value,
    /// About its bytes.
    size: usize,
}

impl Streams {
    #[must_use]
    pub fn new(settings: StreamSettings) -> Self {
        let assembled = Cache::builder()
            .max_capacity(KEPT_BYTES)
            .weigher(|_, one: &Arc<Assembled>| u32::try_from(one.size).unwrap_or(u32::MAX))
            .time_to_idle(KEPT_FOR)
            .build();
        Self { settings, assembled }
    }
}

#[derive(Debug)]
pub enum ChunkAnswer {
    /// The stream has the chunk, now or (replayed) before.
    Taken {
        handoff: Box<Handoff>,
        /// Whether an earlier call committed it.
        replayed: bool,
        /// The parts that do not hold in full.
        warnings: Vec<Warning>,
    },
    /// The chunk is not the next of its stream, or another has its number.
    OutOfOrder {
        handoff: Box<Handoff>,
        /// The reason in a sentence.
        why: String,
    },
    /// The gate refuses it, or the message that it closes; the refusal is recorded.
    Refused { handoff: Box<Handoff>, failures: Vec<Failure> },
}

/// A chunk that was read.
struct ReadChunk {
    chunk: Chunk,
    /// Its canonical form.
    bytes: Vec<u8>,
}

fn refused(stage: Stage, code: Code, pointer: &str, why: impl Into<String>) -> Vec<Failure> {
    vec![Failure::new(stage, code, pointer, why)]
}

impl Intake {
    /// Adds a chunk to the stream of a handoff, or ends the stream with it.
    ///
    /// # Errors
    /// [`IntakeError`]; nothing was written then.
    pub async fn chunk(
        &self,
        principal: &Principal,
        contents: &Contents,
        id: HandoffId,
        document: Value,
    ) -> Result<ChunkAnswer, IntakeError> {
        let key = (principal.tenant.clone(), id);
        let mut handoff = self.streaming(principal, &key).await?;
        let agents = self.directory.agents(&principal.tenant).await?;
        let read = match self.read_chunk(principal, &agents, id, document) {
            Ok(read) => read,
            Err(failures) => return self.refuse_chunk(principal, handoff, failures).await,
        };
        for _ in 0..MOST_RACES {
            let last = handoff.stream.as_ref().map_or(0, |stream| stream.seq);
            if read.chunk.seq <= last {
                return self.repeated(contents, handoff, &read).await;
            }
            if read.chunk.seq > last + 1 {
                let why = format!("chunk {} is expected, this is {}", last + 1, read.chunk.seq);
                return Ok(ChunkAnswer::OutOfOrder { handoff: Box::new(handoff), why });
            }
            if let Some(why) = handoff.stream.as_ref().and_then(Stream::refusal) {
                return Err(LedgerError::Conflict(why).into());
            }
            match self.add(principal, contents, &agents, &handoff, &read).await? {
                Ok(answer) => return Ok(answer),
                Err(now) => handoff = *now,
            }
        }
        Err(LedgerError::Overloaded.into())
    }

    /// The handoff, as its sender sees it.
    async fn streaming(
        &self,
        principal: &Principal,
        key: &HandoffKey,
    ) -> Result<Handoff, IntakeError> {
        let found = self.store.find_handoff(key).await.map_err(Arc::new)?;
        let handoff = found.ok_or(LedgerError::NotFound("handoff"))?;
        let caller = principal.agent.as_ref();
        if caller != Some(&handoff.source) {
            let party = caller.is_none_or(|agent| *agent == handoff.target);
            let why = "only the sender of a handoff adds to its stream, by its own key";
            return Err(if party {
                LedgerError::Forbidden(why).into()
            } else {
                LedgerError::NotFound("handoff").into()
            });
        }
        if handoff.stream.is_none() {
            let why = "the handoff's message came whole: it has no stream".to_owned();
            return Err(LedgerError::Conflict(why).into());
        }
        Ok(handoff)
    }

    /// Reads a chunk: its form, its signature, its size; and takes out of it what must not be kept.
    fn read_chunk(
        &self,
        principal: &Principal,
        agents: &Agents,
        id: HandoffId,
        mut document: Value,
    ) -> Result<ReadChunk, Vec<Failure>> {
        let nuls = with_nul(&document);
        if !nuls.is_empty() {
            return Err(nuls);
        }
        let mut chunk = Chunk::parse(&document)?;
        let own = id.to_string();
        if chunk.handoff_id.as_ref().is_some_and(|named| !named.eq_ignore_ascii_case(&own)) {
            let why = "the chunk names another handoff";
            return Err(refused(Stage::Schema, Code::SchemaInvalid, "/handoffId", why));
        }
        if chunk.signature.is_some() && chunk.handoff_id.is_none() {
            let why = "a signed chunk names its handoff, so that it counts for no other";
            return Err(refused(Stage::Schema, Code::SchemaInvalid, "/handoffId", why));
        }
        let caller = principal.agent.as_ref().and_then(|id| agents.row(id));
        let required = caller.is_some_and(|row| row.agent.require_signature);
        if let Some(canonical) = CanonicalObject::from_value(&document) {
            let secrets = self.signing_secrets(principal, agents);
            let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
            signature::verify(&canonical, chunk.signature.as_ref(), &secrets, required)
                .map_err(|failure| vec![failure])?;
        }
        let (mut set, mut appended) = chunk.shapes();
        let replaced = [
            set.is_object() && self.redaction.redact_message(&mut set),
            appended.is_object() && self.redaction.redact_appended(&mut appended),
        ];
        if replaced.contains(&true) {
            chunk.reshape(&set, &appended)?;
            chunk.write_to(&mut document);
        }
        if chunk.end == Some(ChunkEnd::Abort)
            && let Some(words) = document.as_object_mut()
            && let Some(reason) = words.remove("reason")
        {
            let mut said = serde_json::Map::from_iter([("reason".to_owned(), reason)]);
            self.redaction.redact_words(&mut said);
            words.append(&mut said);
        }
        let bytes = canonical::to_vec(&document);
        let most = self.streams.settings.max_chunk_bytes;
        if bytes.len() > most {
            let why = format!("a chunk has {most} bytes at most (stream.max_chunk_bytes)");
            return Err(refused(Stage::Schema, Code::PayloadTooLarge, "", why));
        }
        Ok(ReadChunk { chunk, bytes })
    }

    /// A number that was committed before: the same content is answered as then.
    async fn repeated(
        &self,
        contents: &Contents,
        handoff: Handoff,
        read: &ReadChunk,
    ) -> Result<ChunkAnswer, IntakeError> {
        let key = (handoff.tenant.clone(), handoff.id);
        let found = contents.list_chunks(&key, read.chunk.seq - 1, 1).await.map_err(Arc::new)?;
        let same = found.first().is_some_and(|(row, kept)| {
            row.seq == read.chunk.seq
                && matches!(kept, Some(ContentState::Whole(kept)) if *kept == read.bytes)
        });
        let handoff = Box::new(handoff);
        if same {
            return Ok(ChunkAnswer::Taken { handoff, replayed: true, warnings: Vec::new() });
        }
        let why = match handoff.stream.as_ref().and_then(Stream::refusal) {
            Some(why) => why,
            None => format!("chunk {} was committed with another content", read.chunk.seq),
        };
        Ok(ChunkAnswer::OutOfOrder { handoff, why })
    }

    /// Judges and commits the next chunk. Gives the handoff as it is now where another chunk was faster.
    async fn add(
        &self,
        principal: &Principal,
        contents: &Contents,
        agents: &Arc<Agents>,
        handoff: &Handoff,
        read: &ReadChunk,
    ) -> Result<Result<ChunkAnswer, Box<Handoff>>, IntakeError> {
        let settings = self.streams.settings;
        let (bytes, now) = (read.bytes.len() as u64, self.clock.now());
        let kept = handoff.stream.as_ref().map_or(0, |stream| stream.bytes);
        let over = if read.chunk.seq > settings.max_chunks {
            Some(format!("a stream has {} chunks at most (stream.max_chunks)", settings.max_chunks))
        } else if kept + bytes > settings.max_bytes {
            Some(format!(
                "the chunks of a stream have {} bytes at most (stream.max_bytes)",
                settings.max_bytes
            ))
        } else {
            None
        };
        // Who gives up may always say so.
        if let Some(why) = over.filter(|_| read.chunk.end != Some(ChunkEnd::Abort)) {
            let failures = refused(Stage::Schema, Code::PayloadTooLarge, "", why);
            return self.refuse_chunk(principal, handoff.clone(), failures).await.map(Ok);
        }
        let (assembled, judged) = if read.chunk.end == Some(ChunkEnd::Abort) {
            (None, JudgedChunk::aborted())
        } else {
            let before = self.assembled(contents, handoff).await?;
            let (assembled, judged) =
                self.judge_chunk(principal, agents, handoff, before, read).await?;
            (Some(assembled), judged)
        };
        let ends_badly = matches!(judged.end, Some(StreamEnd::Refused { .. }));
        if !judged.failures.is_empty() && !ends_badly {
            return self.refuse_chunk(principal, handoff.clone(), judged.failures).await.map(Ok);
        }
        let ends = judged.end.is_some();
        let call = Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) };
        let command = AppendChunk {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            seq: read.chunk.seq,
            bytes,
            content: content(&read.bytes, now),
            safety: judged.safety,
            due_at: now.plus(settings.idle),
            end: judged.end,
        };
        fault::at(Step::ChunkJudged);
        match self.ledger.handle(call, command).await? {
            Chunked::Taken(HandoffReply { handoff, .. }) => {
                if let Some(assembled) = assembled.filter(|_| !ends) {
                    let key = (handoff.tenant.clone(), handoff.id);
                    self.streams.assembled.insert(key, Arc::new(assembled)).await;
                }
                let (handoff, warnings) = (Box::new(handoff), judged.warnings);
                self.count_chunk(if ends_badly { "refused" } else { "taken" });
                Ok(Ok(if ends_badly {
                    ChunkAnswer::Refused { handoff, failures: judged.failures }
                } else {
                    ChunkAnswer::Taken { handoff, replayed: false, warnings }
                }))
            }
            Chunked::OutOfOrder(handoff) => Ok(Err(Box::new(handoff))),
        }
    }

    /// Counts a chunk by what came of it.
    pub fn count_chunk(&self, outcome: &str) {
        self.metrics.chunks.with_label_values(&[outcome]).inc();
    }

    /// The message as the committed chunks make it.
    async fn assembled(
        &self,
        contents: &Contents,
        handoff: &Handoff,
    ) -> Result<Assembled, IntakeError> {
        let key = (handoff.tenant.clone(), handoff.id);
        let upto = handoff.stream.as_ref().map_or(0, |stream| stream.seq);
        // Taken out: what a refused chunk leaves is of no use.
        let kept = self.streams.assembled.remove(&key).await.filter(|kept| kept.seq <= upto);
        let mut assembled = if let Some(kept) = kept {
            Arc::unwrap_or_clone(kept)
        } else {
            let opening = match handoff.sent_id.or(handoff.content_id) {
                Some(id) => contents.find(&key.0, id).await.map_err(Arc::new)?,
                None => ContentState::Gone,
            };
            let bytes = whole(opening)?;
            let message = serde_json::from_slice(&bytes).map_err(unreadable)?;
            Assembled { seq: 0, message, size: bytes.len() }
        };
        while assembled.seq < upto {
            let page = contents.list_chunks(&key, assembled.seq, PAGE).await.map_err(Arc::new)?;
            if page.is_empty() {
                return Err(unreadable("a chunk is missing").into());
            }
            for (row, kept) in page.into_iter().filter(|(row, _)| row.seq <= upto) {
                let bytes = whole(kept.unwrap_or(ContentState::Gone))?;
                let document: Value = serde_json::from_slice(&bytes).map_err(unreadable)?;
                let applied =
                    Chunk::parse(&document).and_then(|chunk| chunk.apply(&mut assembled.message));
                applied.map_err(|_| unreadable("a committed chunk does not fit"))?;
                (assembled.seq, assembled.size) = (row.seq, assembled.size + bytes.len());
            }
        }
        Ok(assembled)
    }

    /// Records that a chunk was refused; its stream stays as it is.
    async fn refuse_chunk(
        &self,
        principal: &Principal,
        handoff: Handoff,
        failures: Vec<Failure>,
    ) -> Result<ChunkAnswer, IntakeError> {
        let now = self.clock.now();
        let reason = primary(&failures).unwrap_or(Code::SchemaInvalid);
        let text = canonical::to_vec(&serde_json::json!({ "failures": failures }));
        self.ledger
            .handle(
                Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) },
                RefuseChunk {
                    task_id: handoff.task_id,
                    handoff_id: handoff.id,
                    reason: reason.as_str().to_owned(),
                    content: content(&text, now),
                },
            )
            .await?;
        self.count_chunk("refused");
        Ok(ChunkAnswer::Refused { handoff: Box::new(handoff), failures })
    }
}

fn unreadable(why: impl std::fmt::Display) -> LedgerError {
    LedgerError::Internal(format!("a stream cannot be read: {why}"))
}

fn whole(kept: ContentState) -> Result<Vec<u8>, IntakeError> {
    match kept {
        ContentState::Whole(bytes) => Ok(bytes),
        ContentState::Unavailable(_) => Err(LedgerError::Unavailable.into()),
        ContentState::Gone | ContentState::Purged => {
            let why = "a part of the message was erased: the stream cannot go on".to_owned();
            Err(LedgerError::Conflict(why).into())
        }
    }
}
