//! Invariants of the bodies that receivers get: a message over its window is compressed first, by one record, and every
//! attempt has the same bytes.

use super::{Books, short};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::HandoffId;
use handoffd_domain::window::ContextAction;
use handoffd_evidence::commitment::unpack;
use handoffd_evidence::record::{RecordDraft, RecordKind};

impl Books {
    /// Enters the compressed message of a record.
    pub(super) fn compressed(&mut self, id: HandoffId, draft: &RecordDraft) {
        if draft.kind != RecordKind::Compressed {
            return;
        }
        let releases = self.handoffs.get(&id).map_or(0, |entry| entry.releases);
        let part = draft.content.as_ref().map(|content| &content.part);
        let bytes = part.and_then(|part| unpack(part.codec, &part.bytes).ok()).unwrap_or_default();
        if self.sent.contains_key(&(id, releases)) {
            self.violate(|| format!("{} was compressed after it was sent", short(id)));
        }
        if self.compressed.insert((id, releases), bytes).is_some() {
            self.violate(|| format!("{} was compressed twice", short(id)));
        }
    }

    /// Number of compressed messages.
    pub(in crate::simulation) fn compressed_count(&self) -> u64 {
        self.compressed.len() as u64
    }

    /// Enters whether a handoff's message is to be compressed.
    pub(super) fn measured(&mut self, handoff: &Handoff) {
        let action = handoff.context.map(|facts| facts.action);
        if let Some(entry) = self.handoffs.get_mut(&handoff.id) {
            entry.to_compress = action == Some(ContextAction::Compress);
        }
    }

    /// Records the message of an attempt that leaves its broker, or that a puller is given.
    pub(in crate::simulation) fn sends(&mut self, id: HandoffId, body: &[u8]) {
        let Some(entry) = self.handoffs.get(&id) else { return };
        let key = (id, entry.releases);
        match self.compressed.get(&key) {
            Some(bytes) if bytes != body => {
                self.violate(|| format!("{} was sent otherwise than its record says", short(id)));
            }
            None if entry.to_compress => {
                self.violate(|| format!("{} was sent before it was compressed", short(id)));
            }
            _ => {}
        }
        let first = self.sent.entry(key).or_insert_with(|| body.to_vec());
        if first != body {
            self.violate(|| format!("the attempts at {} have different bytes", short(id)));
        }
    }
}
