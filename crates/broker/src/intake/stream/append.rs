//! The chunks of one request, in order: those before the first refused one are kept.

use bytes::Bytes;

use super::ChunkAnswer;
use crate::archive::Contents;
use crate::directory::Principal;
use crate::intake::{Intake, Refusal, heavy};
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::HandoffId;
use handoffd_domain::json;
use handoffd_domain::warning::Warning;

/// Chunks that a request added.
#[derive(Debug, Default)]
pub struct AppendedChunks {
    /// The handoff after the last of them; `None` where the request has none.
    pub handoff: Option<Box<Handoff>>,
    pub taken: usize,
    /// Chunks that were there already, with the same content.
    pub replayed: usize,
    pub warnings: Vec<Warning>,
}

/// The chunk at which a request stopped.
#[derive(Debug)]
pub struct StoppedChunks {
    pub refusal: Refusal,
    /// The number of the next chunk, where the handoff is known.
    pub expected_seq: Option<i64>,
    /// Chunks that were added before.
    pub taken: usize,
    /// The place of the refused one among the documents, from 0.
    pub place: usize,
}

/// The number of a stream's next chunk.
#[must_use]
pub fn next_seq(handoff: &Handoff) -> i64 {
    handoff.stream.as_ref().map_or(1, |stream| stream.seq + 1)
}

impl Intake {
    /// Adds chunks to a handoff, each a JSON document.
    ///
    /// # Errors
    /// The first chunk that is refused; those before it are committed.
    pub async fn append_chunks(
        &self,
        principal: &Principal,
        contents: &Contents,
        id: HandoffId,
        documents: Vec<Bytes>,
    ) -> Result<AppendedChunks, Box<StoppedChunks>> {
        let mut appended = AppendedChunks::default();
        for (place, document) in documents.into_iter().enumerate() {
            let answer = self.append_chunk(principal, contents, id, document).await;
            let (refusal, handoff) = match answer {
                Ok(ChunkAnswer::Taken { handoff, replayed, warnings }) => {
                    if replayed {
                        self.count_chunk("replayed");
                        appended.replayed += 1;
                    } else {
                        appended.taken += 1;
                    }
                    appended.warnings.extend(warnings);
                    appended.handoff = Some(handoff);
                    continue;
                }
                Ok(ChunkAnswer::OutOfOrder { handoff, why }) => {
                    self.count_chunk("out_of_order");
                    (Refusal::because(Code::Conflict, why), Some(handoff))
                }
                Ok(ChunkAnswer::Refused { handoff, failures }) => {
                    (Refusal::Findings(failures), Some(handoff))
                }
                Err(refusal) => (refusal, appended.handoff.take()),
            };
            let expected_seq = handoff.as_deref().map(next_seq);
            let taken = appended.taken;
            return Err(Box::new(StoppedChunks { refusal, expected_seq, taken, place }));
        }
        Ok(appended)
    }

    async fn append_chunk(
        &self,
        principal: &Principal,
        contents: &Contents,
        id: HandoffId,
        document: Bytes,
    ) -> Result<ChunkAnswer, Refusal> {
        let read = heavy(document.len(), move || json::parse(&document)).await?;
        let document = read.map_err(|fault| {
            let is_malformed = fault.is_malformed();
            let failure = fault.into_failure();
            if is_malformed { Refusal::Malformed(failure) } else { failure.into() }
        })?;
        Ok(self.chunk(principal, contents, id, document).await?)
    }
}
