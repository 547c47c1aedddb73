use super::MemoryStore;
use super::kept::DueOpinion;
use super::tables::Tables;
use crate::store::{HandoffKey, Result};
use handoffd_domain::ids::Micros;

impl Tables {
    fn list_due_opinions(&self, now: Micros, limit: i64) -> Vec<HandoffKey> {
        let due = self.opinions.iter().filter(|(_, row)| row.next_at <= now);
        let mut due: Vec<_> = due.map(|(key, row)| (row.next_at, key.1, key.clone())).collect();
        due.sort_by_key(|(at, id, _)| (*at, *id));
        due.into_iter().map(|(_, _, key)| key).take(usize::try_from(limit).unwrap_or(0)).collect()
    }
}

impl MemoryStore {
    pub(in crate::store) async fn list_due_opinions(
        &self,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<HandoffKey>> {
        self.ask("list_due_opinions", |tables| Ok(tables.list_due_opinions(now, limit))).await
    }

    pub(in crate::store) async fn claim_opinion(
        &self,
        key: &HandoffKey,
        now: Micros,
        until: Micros,
    ) -> Result<Option<i32>> {
        self.ask("claim_opinion", |tables| {
            let free = tables.opinions.get_mut(key).filter(|row| row.next_at <= now);
            Ok(free.map(|row| {
                *row = DueOpinion { attempts: row.attempts + 1, next_at: until };
                row.attempts
            }))
        })
        .await
    }

    pub(in crate::store) async fn postpone_opinion(
        &self,
        key: &HandoffKey,
        attempt: i32,
        at: Micros,
    ) -> Result<bool> {
        self.ask("postpone_opinion", |tables| {
            let own = tables.opinions.get_mut(key).filter(|row| row.attempts == attempt);
            Ok(own.map(|row| row.next_at = at).is_some())
        })
        .await
    }
}
