//! `opinions_due`: second opinions that are asked for after the commit, by the handoffs that the external classifier is to
//! be asked about.
//!
//! A row, and how it changes:
//!
//! - `opinions_due`: a committed handoff that waits for the external classifier: `attempts`, `next_at`. Inserted with
//!   the handoff; deleted with the record.

use crate::store::driver::in_memory;

use crate::store::query::{Row, Statement};
use crate::store::rows::handoff_key;
use crate::store::table::{Rights, table};
use crate::store::{BatchState, HandoffKey, Result, Store, Writes};
use handoffd_domain::ids::Micros;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("opinions_due", "SELECT, INSERT, UPDATE, DELETE")];

/// An opinion that was not asked for yet.
pub(in crate::store) struct DueOpinion {
    key: HandoffKey,
    next_at: Micros,
}

table! {
    OPINIONS: DueOpinion = "opinions_due" by 2 {
        "tenant" Text: |row| &row.key.0,
        "handoff_id" Text: |row| row.key.1,
        // Attempts, of which there is none yet.
        "attempts" Int: |_row| 0,
        "next_at" Long: |row| row.next_at,
    }
}

/// The opinions that a batch asks for.
pub(in crate::store) fn due(writes: &Writes) -> Vec<DueOpinion> {
    let asked = writes.opinions.iter();
    asked.filter_map(|(key, due)| Some(DueOpinion { key: key.clone(), next_at: (*due)? })).collect()
}

/// The opinions that a batch records.
pub(in crate::store) fn recorded(writes: &Writes) -> Vec<&HandoffKey> {
    writes.opinions.iter().filter(|(_, due)| due.is_none()).map(|(key, _)| key).collect()
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    state.opinions.insert(handoff_key(row)?, row.get("attempts")?);
    Ok(())
}

impl Store {
    /// Handoffs that the classifier may be asked about now, the longest waiting first.
    pub async fn list_due_opinions(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>> {
        in_memory!(self, db => db.list_due_opinions(now, limit));
        let due = Statement::new(
            "SELECT tenant, handoff_id FROM opinions_due \
             WHERE NOT (next_at > $1 AND next_at <= $1 + 7200000000) \
             ORDER BY next_at, handoff_id LIMIT $2",
        );
        self.list(due.bind(now).bind(limit.max(0)), handoff_key).await
    }

    /// Claims one until `until` and counts the attempt; its number is the token of the one who asks. `None`: another broker
    /// has the claim, the pause after an attempt lasts, or the opinion is recorded.
    pub async fn claim_opinion(
        &self,
        key: &HandoffKey,
        now: Micros,
        until: Micros,
    ) -> Result<Option<i32>> {
        in_memory!(self, db => db.claim_opinion(key, now, until));
        let claim = Statement::new(
            "UPDATE opinions_due SET attempts = attempts + 1, next_at = $1 \
             WHERE tenant = $2 AND handoff_id = $3 \
               AND NOT (next_at > $4 AND next_at <= $4 + 7200000000) RETURNING attempts",
        );
        let claim = claim.bind(until).bind(&key.0).bind(key.1).bind(now);
        self.change_one(claim, |row| row.get("attempts")).await
    }

    /// Lets the next attempt begin at `at`; `false` where a later claim took this one's place.
    pub async fn postpone_opinion(
        &self,
        key: &HandoffKey,
        attempt: i32,
        at: Micros,
    ) -> Result<bool> {
        in_memory!(self, db => db.postpone_opinion(key, attempt, at));
        let postpone = Statement::new(
            "UPDATE opinions_due SET next_at = $1 \
             WHERE tenant = $2 AND handoff_id = $3 AND attempts = $4",
        );
        let postpone = postpone.bind(at).bind(&key.0).bind(key.1).bind(attempt);
        Ok(self.change(postpone).await? > 0)
    }
}
