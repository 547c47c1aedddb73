//! Invariants of handoffs in pieces: at each commit, at each chunk on its way to a webhook, and at the end.

use std::collections::HashMap;

use serde_json::Value;

use super::{Books, short};
use crate::simulation::lines::ChunkArrival;
use crate::simulation::pieces::document;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_domain::stream::{STREAM_TIMEOUT, StreamStatus};
use handoffd_evidence::record::{RecordDraft, RecordKind};
use handoffd_store::store::Writes;
use handoffd_store::store::streams::ChunkRow;

/// A stream after its last commit, and what its receiver took of it.
#[derive(Debug, Default)]
pub(super) struct StreamEntry {
    /// The last committed number.
    last: i64,
    end: Option<StreamStatus>,
    /// When it ends without another chunk.
    due_at: Option<Micros>,
    /// The numbers that are chunks of the sender.
    own: Vec<bool>,
    /// Whether the receiver got the opening message alone.
    in_pieces: bool,
    /// The highest number that a webhook receiver took; the end counts for all before it.
    taken: i64,
    /// Attempts by number that a broker knows to have failed, since one that it knows to have been taken.
    failures: HashMap<i64, u32>,
    /// Attempts in all.
    posts: u64,
    /// The highest number that a pull receiver read; `None` where none reads.
    read: Option<i64>,
    /// Numbers read by pull receivers in all.
    reads: u64,
}

impl Books {
    /// Checks the chunks of a batch: dense, none behind the end, each with its record.
    pub(super) fn chunks_written(&mut self, writes: &Writes) {
        for (handoff, _) in writes.handoffs.values() {
            if handoff.stream.is_some() {
                self.streams.entry(handoff.id).or_default();
            }
        }
        for row in &writes.chunks {
            self.chunk_written(row, &writes.records);
        }
        let recorded =
            writes.records.iter().filter(|draft| draft.kind == RecordKind::Chunk).count();
        if recorded != writes.chunks.len() {
            let chunks = writes.chunks.len();
            self.violate(|| {
                format!("a batch has {chunks} chunks and {recorded} records of chunks")
            });
        }
    }

    fn chunk_written(&mut self, row: &ChunkRow, records: &[RecordDraft]) {
        let (id, seq) = (row.handoff_id, row.seq);
        let own = |kind| {
            records.iter().filter(move |draft| draft.handoff_id == Some(id) && draft.kind == kind)
        };
        let says = |draft: &&RecordDraft| {
            draft.stream.as_ref().is_some_and(|stream| stream.seq == seq)
                && draft.content.as_ref().map(|content| content.part.commitment) == row.commitment
        };
        let recorded = own(RecordKind::Chunk).filter(says).count();
        let closes = own(RecordKind::StreamClosed).count();
        let closed = row.ends == Some(StreamStatus::Closed);
        let late = own(RecordKind::Chunk).find(says).map(|draft| draft.at);
        let Some(entry) = self.streams.get_mut(&id) else {
            return self.violate(|| format!("{} has a chunk and no stream", short(id)));
        };
        let (before, end, due_at) = (entry.last, entry.end, entry.due_at);
        (entry.last, entry.end) = (seq, row.ends);
        entry.own.push(row.content.is_some());
        if seq != before + 1 || end.is_some() {
            self.violate(|| format!("chunk {seq} of {} follows {before}, {end:?}", short(id)));
        }
        if recorded != 1 || closes != usize::from(closed) {
            self.violate(|| {
                format!("chunk {seq} of {} has {recorded} records, {closes} of a close", short(id))
            });
        }
        if row.reason.as_deref() == Some(STREAM_TIMEOUT) && late < due_at {
            self.violate(|| format!("{} ended at {late:?} and waits until {due_at:?}", short(id)));
        }
    }

    /// Checks a handoff's stream after each commit.
    pub(super) fn stream_stands(&mut self, handoff: &Handoff) {
        let Some(stream) = &handoff.stream else { return };
        let (id, status) = (handoff.id, handoff.status);
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.due_at = stream.due_at;
        let (last, end) = (entry.last, entry.end);
        let stands = end.unwrap_or(StreamStatus::Open);
        if stream.seq != last || stream.status != stands {
            self.violate(|| {
                format!("the stream of {} is {stream:?}, its chunks say {last}, {end:?}", short(id))
            });
        }
        if stream.is_open() && (status.is_final() || stream.due_at.is_none()) {
            let status = status.as_str();
            self.violate(|| format!("{} is {status}, and its stream is {stream:?}", short(id)));
        }
        if status == HandoffStatus::Completed && !matches!(end, Some(StreamStatus::Closed)) {
            self.violate(|| format!("{} was completed in part", short(id)));
        }
    }

    /// Records the answer to a sender that its chunk is committed.
    pub(in crate::simulation) fn chunk_acknowledged(&mut self, id: HandoffId, seq: i64) {
        let own = self.streams.get(&id).and_then(|entry| entry.own.get((seq - 1) as usize));
        if own != Some(&true) {
            self.violate(|| {
                format!("chunk {seq} of {} was acknowledged, and is not in the log", short(id))
            });
        }
    }

    /// Records that a webhook receiver got the message of a stream without its chunks.
    pub(in crate::simulation) fn got_opening(&mut self, id: HandoffId, opening: bool) {
        if let Some(entry) = self.streams.get_mut(&id).filter(|_| opening) {
            entry.in_pieces = true;
        }
    }

    /// Records a chunk that leaves its broker: committed, unchanged, behind the handoff's own delivery and all chunks
    /// before it.
    pub(in crate::simulation) fn line_posted(&mut self, arrival: &ChunkArrival) {
        let ChunkArrival { handoff: id, seq, ref body } = *arrival;
        let waits = self.outbox.contains_key(&id);
        let Some(entry) = self.streams.get_mut(&id) else {
            return self.violate(|| format!("a chunk of {} was sent, which has none", short(id)));
        };
        entry.posts += 1;
        let (taken, last, end) = (entry.taken, entry.last, entry.end.filter(|_| seq == entry.last));
        let says = |name: &str| body.get(name) == Some(&Value::Bool(true));
        let aborts = end == Some(StreamStatus::Aborted);
        if seq > last
            || says("close") != (end == Some(StreamStatus::Closed))
            || says("abort") != aborts
        {
            self.violate(|| {
                format!("{body} was sent of {}, which ends {end:?} at {last}", short(id))
            });
        }
        if !aborts && body.get("append") != document(id, seq).get("append") {
            self.violate(|| format!("{body} was sent as chunk {seq} of {}", short(id)));
        }
        if seq > taken + 1 && !aborts {
            self.violate(|| format!("chunk {seq} of {} was sent behind {taken}", short(id)));
        }
        if waits {
            self.violate(|| format!("chunk {seq} of {} was sent before its message", short(id)));
        }
    }

    /// Records a chunk that its receiver took.
    pub(in crate::simulation) fn line_taken(&mut self, arrival: &ChunkArrival) {
        if let Some(entry) = self.streams.get_mut(&arrival.handoff)
            && arrival.seq > entry.taken
        {
            entry.taken = arrival.seq;
        }
    }

    /// Records what a broker knows of a chunk that it sent.
    pub(in crate::simulation) fn line_answered(&mut self, id: HandoffId, seq: i64, taken: bool) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if taken {
            entry.failures.remove(&seq);
        } else {
            *entry.failures.entry(seq).or_default() += 1;
        }
    }

    /// Records that a pull receiver has the opening message alone, and reads the chunks.
    pub(in crate::simulation) fn reads(&mut self, id: HandoffId) {
        if let Some(entry) = self.streams.get_mut(&id) {
            entry.read.get_or_insert(0);
        }
    }

    /// Records a number that a pull receiver read behind another: the next one, committed, unchanged.
    pub(in crate::simulation) fn chunk_read(
        &mut self,
        id: HandoffId,
        after: i64,
        row: &ChunkRow,
        body: Option<&Value>,
    ) {
        let Some(entry) = self.streams.get_mut(&id) else {
            return self.violate(|| format!("a chunk of {} was read, which has none", short(id)));
        };
        entry.reads += 1;
        entry.read = entry.read.max(Some(row.seq));
        let (last, end) = (entry.last, entry.end.filter(|_| row.seq == entry.last));
        if row.seq != after + 1 || row.seq > last || row.ends != end {
            let (seq, ends) = (row.seq, row.ends);
            self.violate(|| {
                format!(
                    "{seq} ({ends:?}) of {} was read behind {after}, {end:?} at {last}",
                    short(id)
                )
            });
        }
        if row.ends != Some(StreamStatus::Aborted) {
            let own = document(id, row.seq);
            if body.is_none_or(|body| body.get("append") != own.get("append")) {
                let seq = row.seq;
                self.violate(|| format!("{body:?} was read as chunk {seq} of {}", short(id)));
            }
        }
    }

    /// Number of chunks in the log, of attempts to send one, and of numbers that pull receivers read.
    pub(in crate::simulation) fn chunk_counts(&self) -> [u64; 3] {
        let all = || self.streams.values();
        let own = all().map(|entry| entry.own.len() as u64).sum();
        [own, all().map(|entry| entry.posts).sum(), all().map(|entry| entry.reads).sum()]
    }

    /// Whether a receiver took or read the end of a stream, or got its message whole.
    pub(in crate::simulation) fn is_told(&self, id: HandoffId) -> bool {
        self.streams.get(&id).is_none_or(|entry| {
            let has = |number: i64| entry.end.is_some() && number == entry.last;
            (!entry.in_pieces || has(entry.taken)) && entry.read.is_none_or(has)
        })
    }

    /// A stream whose pull receiver has not read the end.
    pub(super) fn unread(&self) -> Option<HandoffId> {
        let unread = |entry: &StreamEntry| entry.read.is_some_and(|read| read < entry.last);
        self.streams.iter().find(|(_, entry)| unread(entry)).map(|(id, _)| *id)
    }

    /// Checks that each receiver in pieces was told the end, unless the handoff had ended and all attempts failed.
    pub(super) fn lines_at_rest(&mut self, attempts: u32) {
        let missed = self.streams.iter().find(|(_, entry)| {
            // The answer to what the receiver took last may be lost each time.
            let behind = entry.failures.iter().filter(|(seq, _)| **seq >= entry.taken);
            let failures = behind.map(|(_, failures)| *failures).max().unwrap_or_default();
            entry.in_pieces && entry.taken < entry.last && failures < attempts
        });
        if let Some((id, why)) = missed.map(|(id, entry)| (*id, format!("{entry:?}"))) {
            self.violate(|| format!("the receiver of {} was never told its end: {why}", short(id)));
        }
    }
}
