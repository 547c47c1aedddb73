//! Messages in pieces, and messages over their receiver's window, as senders and intake make them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::asks::{Draft, actor, command, kept};
use super::books::short;
use super::dice::{below, chance, pause, weighted};
use super::world::{World, tenant};
use crate::ledger::command::Call;
use crate::ledger::commands::{AppendChunk, Chunked, ClosedStream, StreamEnd};
use crate::ledger::reply::LedgerError;
use handoffd_domain::canonical;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_domain::stream::{Chunk, StreamStatus, mark_closed};
use handoffd_domain::window::{ContextAction, ContextFacts, ContextParts, Tokenizer};
use handoffd_evidence::commitment::unpack;
use handoffd_evidence::record::ActorRole;
use handoffd_store::store::ContentStorage;

/// Time that an open stream waits for its next chunk.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// Tokens that a compressed message may have.
const LIMIT: u64 = 300;

/// How a sender ends its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The assembled message passes the gate; `true`: it is over its receiver's window.
    Closes(bool),
    /// The gate refuses the assembled message.
    IsRefused,
    Aborts,
}

/// The answer to a chunk, as its sender understands it.
enum ChunkOutcome {
    /// The stream has the chunk, now or before.
    Taken,
    /// The stream takes it no more.
    Ended,
    /// No answer came.
    Unknown,
}

/// A chunk's document: always the same for its number.
pub(super) fn document(id: HandoffId, seq: i64) -> Value {
    let said = format!("{} says {seq}.", short(id));
    json!({ "append": { "/taskSummary": [said] }, "seq": seq })
}

/// A message without what its chunks add.
pub(super) fn opening_body(id: HandoffId, more: u64) -> Vec<u8> {
    let mut message = long_message(id, more);
    message["stream"] = json!({ "open": true });
    canonical::to_vec(&message)
}

/// The message that an opening and its chunks up to a number make.
fn assembled(draft: &Draft, last: i64) -> Vec<u8> {
    let mut message = serde_json::from_slice(&draft.body).expect("an opening is JSON");
    for seq in 1..=last {
        let chunk = Chunk::parse(&document(draft.handoff, seq)).expect("a chunk is well formed");
        chunk.apply(&mut message).expect("a chunk fits");
    }
    mark_closed(&mut message, last);
    canonical::to_vec(&message)
}

/// Whether a receiver of this message waits for chunks.
pub(super) fn is_opening(body: &[u8]) -> bool {
    const OPEN: &[u8] = br#""stream":{"open":true}"#;
    body.windows(OPEN.len()).any(|window| window == OPEN)
}

/// A message over its receiver's window.
pub(super) fn long_body(id: HandoffId, more: u64) -> Vec<u8> {
    canonical::to_vec(&long_message(id, more))
}

fn long_message(id: HandoffId, more: u64) -> Value {
    let turns: Vec<Value> = (0..10)
        .map(|at| {
            let said = format!("Invoice {at} was read and it is due on 2026-03-0{at}; the sum is {more}{at} EUR, as was agreed before.");
            json!({ "role": "user", "content": said })
        })
        .collect();
    json!({ "conversationHistoryVerbatim": turns, "handoffId": id, "n": more })
}

/// The gate's figures of a message over its receiver's window.
pub(super) fn over_the_window() -> ContextFacts {
    ContextFacts {
        tokens: 400,
        window: Some(LIMIT),
        limit: Some(LIMIT),
        action: ContextAction::Compress,
        tokenizer: Tokenizer::Estimate,
        parts: ContextParts::default(),
    }
}

/// Sends the chunks of an opened handoff one after the other, and ends the stream or falls silent.
pub(super) async fn write(world: Arc<World>, draft: Draft) {
    let last = 1 + below(5) as i64;
    for seq in 1..=last {
        tokio::time::sleep(pause(5, 400)).await;
        if !add(&world, &draft, seq, None).await {
            return;
        }
    }
    let end = match weighted(&[500, 200, 80, 120, 100]) {
        0 => Ending::Closes(false),
        1 => Ending::Closes(true),
        2 => Ending::IsRefused,
        3 => Ending::Aborts,
        _ => return,
    };
    add(&world, &draft, last + 1, Some(end)).await;
}

/// Adds one chunk until it is answered, sometimes as two copies at once or after one with a gap; true if it is in the
/// stream.
async fn add(world: &Arc<World>, draft: &Draft, seq: i64, end: Option<Ending>) -> bool {
    if world.fails(100) {
        let (world, draft) = (Arc::clone(world), draft.clone());
        tokio::spawn(async move { add_once(&world, &draft, seq, end).await });
    }
    if world.fails(60) {
        // Beyond the next number even if the copy was taken meanwhile.
        let ahead = seq + 2 + below(2) as i64;
        if let ChunkOutcome::Taken = add_once(world, draft, ahead, None).await {
            let id = short(draft.handoff);
            world.books().violate(|| format!("chunk {ahead} of {id} was taken before {seq}"));
        }
    }
    for _ in 0..60 {
        match add_once(world, draft, seq, end).await {
            ChunkOutcome::Taken => {
                world.books().chunk_acknowledged(draft.handoff, seq);
                return true;
            }
            ChunkOutcome::Ended => return false,
            ChunkOutcome::Unknown => {}
        }
        tokio::time::sleep(pause(50, 300)).await;
        // The stream's last number, as a sender reads it that got no answer.
        let row = world.store.find_handoff(&(tenant(), draft.handoff)).await.ok().flatten();
        let stands = row.and_then(|row| row.stream).map_or(0, |stream| stream.seq);
        if stands >= seq && chance(500) {
            return is_own(world, draft.handoff, seq).await;
        }
    }
    false
}

/// Whether a committed number is a chunk of its sender, and not the broker's end of the stream.
async fn is_own(world: &World, id: HandoffId, seq: i64) -> bool {
    let found = world.store.list_chunks(&(tenant(), id), seq - 1, 1).await.unwrap_or_default();
    found.first().is_some_and(|chunk| chunk.row.seq == seq && chunk.row.content.is_some())
}

/// One request with a chunk.
async fn add_once(
    world: &Arc<World>,
    draft: &Draft,
    seq: i64,
    end: Option<Ending>,
) -> ChunkOutcome {
    let id = draft.handoff;
    let broker = world.any_broker();
    let reply = broker.call(world, |now| chunk(draft, seq, end, now)).await;
    world.note(|| {
        let said = match &reply {
            None => "no answer".to_owned(),
            Some(Ok(Chunked::Taken(_))) => "taken".to_owned(),
            Some(Ok(_)) => "not the next".to_owned(),
            Some(Err(err)) => err.to_string(),
        };
        format!("chunk {seq} of {} ({end:?}): {said}", short(id))
    });
    match reply {
        Some(Ok(Chunked::Taken(_))) => ChunkOutcome::Taken,
        // As the door finds a repeat: by the content under its number.
        Some(Ok(Chunked::OutOfOrder(handoff))) if is_known(&handoff, seq) => {
            if is_own(world, id, seq).await { ChunkOutcome::Taken } else { ChunkOutcome::Ended }
        }
        Some(Err(LedgerError::Unavailable | LedgerError::Overloaded)) | None => {
            ChunkOutcome::Unknown
        }
        Some(Err(LedgerError::Internal(why))) => {
            world.books().violate(|| format!("a defect: {why}"));
            ChunkOutcome::Ended
        }
        Some(_) => ChunkOutcome::Ended,
    }
}

fn is_known(handoff: &Handoff, seq: i64) -> bool {
    handoff.stream.as_ref().is_some_and(|stream| stream.seq >= seq)
}

/// A chunk as intake makes it a command.
fn chunk(draft: &Draft, seq: i64, end: Option<Ending>, now: Micros) -> (Call, AppendChunk) {
    let bytes = canonical::to_vec(&document(draft.handoff, seq));
    let end = end.map(|end| match end {
        Ending::Closes(long) => StreamEnd::Closed(Box::new(ClosedStream {
            content: kept(&assembled(draft, seq), now),
            context: long.then(over_the_window),
            subtasks: Vec::new(),
            safety: None,
        })),
        Ending::IsRefused => StreamEnd::Refused {
            reason: "INCOMPLETE_CONTEXT".to_owned(),
            content: super::asks::words(now),
        },
        Ending::Aborts => StreamEnd::Aborted,
    });
    let append = AppendChunk {
        task_id: draft.task,
        handoff_id: draft.handoff,
        seq,
        bytes: bytes.len() as u64,
        content: kept(&bytes, now),
        safety: None,
        due_at: now.plus(IDLE),
        end,
    };
    command(now, actor(ActorRole::Agent, Some(&draft.source)), append)
}

/// A pull receiver's reading of a stream, page by page from any broker until its end.
pub(super) async fn read(world: Arc<World>, id: HandoffId) {
    world.books().reads(id);
    let (key, mut after) = ((tenant(), id), 0);
    loop {
        let broker = world.any_broker();
        let page = tokio::select! {
            biased;
            () = broker.host.dead.cancelled() => None,
            page = broker.store.list_chunks(&key, after, 1 + below(3) as i64) => page.ok(),
        };
        for chunk in page.unwrap_or_default() {
            let hot = chunk.content.as_ref().and_then(ContentStorage::hot);
            let body: Option<Value> = hot
                .and_then(|(_, codec, bytes)| unpack(codec, bytes).ok())
                .and_then(|bytes| serde_json::from_slice(&bytes).ok());
            world.books().chunk_read(id, after, &chunk.row, body.as_ref());
            after = chunk.row.seq;
            if chunk.row.ends.is_some() {
                return;
            }
        }
        tokio::time::sleep(pause(20, 250)).await;
    }
}

/// Waits until a stream has ended; false where its message never became whole.
pub(super) async fn is_whole(world: &World, id: HandoffId) -> bool {
    for _ in 0..60 {
        let row = world.store.find_handoff(&(tenant(), id)).await.ok().flatten();
        let Some(stream) = row.and_then(|row| row.stream) else { return true };
        match stream.status {
            StreamStatus::Closed => return true,
            StreamStatus::Aborted => return false,
            StreamStatus::Open => tokio::time::sleep(pause(50, 250)).await,
        }
    }
    false
}
