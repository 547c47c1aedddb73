//! Selection of expired data in a log: one implementation for both databases, over the rows each reads.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use super::erasure::{PurgeNeed, PurgePage};
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::{ContentId, HandoffId, Micros, TaskId};
use handoffd_evidence::erasure::DataSlot;
use handoffd_evidence::record::RecordKind;

/// Most checkpoints in one page: a task may have saved many. The page is then loaded again.
pub(super) const CHECKPOINTS: i64 = 4_096;

/// A record as seen by the purge.
#[derive(Debug, Clone)]
pub(super) struct PurgeCandidate {
    pub(super) leaf_index: i64,
    pub(super) kind: String,
    pub(super) recorded_at: Micros,
    pub(super) task: Option<TaskId>,
    pub(super) handoff: Option<HandoffId>,
    /// The record's content, where one is stored, hot or cold.
    pub(super) content: Option<ContentId>,
}

impl PurgeCandidate {
    /// Whether the record commits a handoff or creates a dead letter.
    fn commits(&self) -> bool {
        matches!(self.kind.as_str(), "HANDOFF" | "NO_OP" | "DEAD_LETTERED")
    }

    /// Whether retention takes the record's content. A cap's row is compared with the content of its
    /// change, which therefore stays.
    fn is_purged(&self) -> bool {
        is_purged(&self.kind) && !(self.kind == "BUDGET_CHANGED" && self.task.is_none())
    }
}

/// The expired records of a page, and whether later ones follow in the log.
#[derive(Debug)]
pub(super) struct ExpiredPage {
    pub(super) records: Vec<PurgeCandidate>,
    next: i64,
    ends: bool,
}

impl ExpiredPage {
    /// Records are in log order; the first recent one ends the page, whatever follows.
    pub(super) fn new(need: PurgeNeed, mut records: Vec<PurgeCandidate>) -> Self {
        let whole = i64::try_from(records.len()).is_ok_and(|count| count >= need.limit);
        let old = records.iter().take_while(|record| record.recorded_at < need.before).count();
        let ends = !whole || old < records.len();
        let next = records[..old].last().map_or(need.from, |record| record.leaf_index + 1);
        records.truncate(old);
        records.retain(PurgeCandidate::is_purged);
        Self { records, next, ends }
    }

    /// The tasks of these records.
    pub(super) fn tasks(&self) -> BTreeSet<TaskId> {
        self.records.iter().filter_map(|record| record.task).collect()
    }

    /// The handoffs that these records commit, whose content went before or never was.
    pub(super) fn emptied(&self) -> BTreeSet<HandoffId> {
        let emptied = self.records.iter().filter(|one| one.content.is_none() && one.commits());
        emptied.filter_map(|record| record.handoff).collect()
    }
}

/// Rows beside the records of a page.
#[derive(Debug, Default)]
pub(super) struct PurgeContext {
    /// Tasks that are active or on hold: their data stays.
    pub(super) held: BTreeSet<TaskId>,
    /// Personal data, and whether a legal hold names its subject.
    pub(super) data: Vec<(DataSlot, bool)>,
    /// Every record that shares a content with a task of the page: content, leaf index, time.
    pub(super) sharing: Vec<(ContentId, i64, Micros)>,
    /// Expired checkpoints of the tasks.
    pub(super) checkpoints: Vec<(TaskId, CheckpointRef)>,
    /// Of [`ExpiredPage::emptied`], those whose rows still hold what goes with a content: a content that several handoffs
    /// share went with the page of the first.
    pub(super) unclean: BTreeSet<HandoffId>,
}

/// Selects the data of a page.
pub(super) fn page(need: PurgeNeed, old: ExpiredPage, beside: PurgeContext) -> PurgePage {
    let PurgeContext { held, data, sharing, checkpoints, unclean } = beside;
    let mut shares: BTreeMap<ContentId, Vec<(i64, Micros)>> = BTreeMap::new();
    for (content, leaf, at) in sharing {
        shares.entry(content).or_default().push((leaf, at));
    }
    let mut named: BTreeMap<i64, Vec<(DataSlot, bool)>> = BTreeMap::new();
    for (slot, of_held) in data {
        named.entry(slot.leaf_index).or_default().push((slot, of_held));
    }
    let mut page = PurgePage { next: old.next, ends: old.ends, ..PurgePage::default() };
    let mut contents = BTreeSet::new();
    for record in old.records {
        let slots = named.remove(&record.leaf_index).unwrap_or_default();
        let commits = record.commits();
        let is_unclean = commits && record.handoff.is_some_and(|id| unclean.contains(&id));
        if record.content.is_none() && slots.is_empty() && !is_unclean {
            continue;
        }
        let own = [(record.leaf_index, record.recorded_at)];
        let places = match &record.content {
            Some(content) => shares.get(content).map_or(&own[..], Vec::as_slice),
            None => &[],
        };
        let is_held = record.task.is_some_and(|task| held.contains(&task))
            || slots.iter().any(|(_, of_held)| *of_held)
            // A content goes with the youngest record that has it.
            || places.iter().any(|(_, at)| *at >= need.before);
        if is_held {
            page.held += 1;
            page.first_held.get_or_insert(record.leaf_index);
            continue;
        }
        page.data.extend(slots.iter().map(|(slot, _)| *slot));
        if let Some(content) = record.content {
            contents.extend(places.iter().map(|(leaf, _)| (*leaf, content)));
        }
        if commits {
            page.handoffs.extend(record.handoff);
        }
    }
    page.contents = contents.into_iter().collect();
    page.handoffs.sort_unstable();
    page.handoffs.dedup();
    if i64::try_from(checkpoints.len()).is_ok_and(|count| count >= CHECKPOINTS) {
        (page.next, page.ends) = (need.from, false);
    }
    page.checkpoints = checkpoints;
    page
}

/// Whether retention removes the content of this kind of record; unknown kinds stay.
fn is_purged(kind: &str) -> bool {
    let from: StrDeserializer<'_, Error> = kind.into_deserializer();
    RecordKind::deserialize(from).is_ok_and(RecordKind::is_purged)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn aged(leaf_index: i64, at: i64, kind: &str, task: u128) -> PurgeCandidate {
        PurgeCandidate {
            leaf_index,
            kind: kind.to_owned(),
            recorded_at: Micros(at),
            task: Some(TaskId(Uuid::from_u128(task))),
            handoff: Some(HandoffId(Uuid::from_u128(leaf_index.unsigned_abs().into()))),
            content: Some(content(leaf_index)),
        }
    }

    fn content(leaf_index: i64) -> ContentId {
        ContentId(Uuid::from_u128(leaf_index.unsigned_abs().into()))
    }

    const NEED: PurgeNeed = PurgeNeed { from: 0, before: Micros(100), limit: 10 };

    #[test]
    fn f4_7_a_page_ends_at_the_first_young_record_and_leaves_rules_and_lists_alone() {
        let records = vec![
            aged(0, 1, "AGENT_CREATED", 1),
            aged(1, 2, "HANDOFF", 1),
            aged(2, 3, "ERASED", 1),
            aged(3, 100, "COMPLETED", 1),
            aged(4, 4, "HANDOFF", 1),
        ];
        let page = page(NEED, ExpiredPage::new(NEED, records), PurgeContext::default());
        assert_eq!((page.next, page.ends, page.held), (3, true, 0));
        assert_eq!(page.contents, [(1, content(1))]);
        assert_eq!(page.handoffs.len(), 1);
    }

    #[test]
    fn f4_7_what_is_held_stays_whole_and_says_where_it_begins() {
        let records = vec![
            aged(0, 1, "HANDOFF", 1),
            aged(1, 1, "HANDOFF", 2),
            aged(2, 1, "REFUSED", 3),
            aged(3, 1, "HANDOFF", 4),
        ];
        let slot = |leaf_index| DataSlot { leaf_index, ordinal: 0 };
        let beside = PurgeContext {
            held: [TaskId(Uuid::from_u128(2))].into(),
            data: vec![(slot(0), false), (slot(1), false), (slot(2), true)],
            // The message of leaf 3 was released later, and is part of a young record too.
            sharing: vec![(content(3), 3, Micros(1)), (content(3), 9, Micros(200))],
            ..PurgeContext::default()
        };
        let page = page(NEED, ExpiredPage::new(NEED, records), beside);
        assert_eq!((page.held, page.first_held), (3, Some(1)));
        assert_eq!((page.contents, page.data), (vec![(0, content(0))], vec![slot(0)]));
    }

    #[test]
    fn f4_7_a_shared_content_is_listed_at_every_place() {
        let mut records = vec![aged(0, 1, "REFUSED", 1), aged(1, 1, "DEAD_LETTERED", 1)];
        records[1].content = Some(content(0));
        let sharing = vec![(content(0), 0, Micros(1)), (content(0), 1, Micros(1))];
        let page = page(
            NEED,
            ExpiredPage::new(NEED, records),
            PurgeContext { sharing, ..PurgeContext::default() },
        );
        assert_eq!(page.contents, [(0, content(0)), (1, content(0))]);
        assert!(page.ends);
    }

    #[test]
    fn f4_7_the_row_of_a_handoff_goes_also_where_its_content_went_with_another_page() {
        let mut records = vec![
            aged(0, 1, "HANDOFF", 1),
            aged(1, 1, "COMPLETED", 1),
            aged(2, 1, "DEAD_LETTERED", 2),
            aged(3, 1, "HANDOFF", 1),
        ];
        for record in &mut records {
            record.content = None;
        }
        // A verdict commits nothing.
        records[1].handoff = records[0].handoff;
        let handoff = |n| HandoffId(Uuid::from_u128(n));
        let select = |held: BTreeSet<TaskId>| {
            let old = ExpiredPage::new(NEED, records.clone());
            assert_eq!(old.emptied(), [0, 2, 3].map(handoff).into());
            // The last one was cleaned with its content.
            let unclean = [0, 2].map(handoff).into();
            page(NEED, old, PurgeContext { held, unclean, ..PurgeContext::default() })
        };
        let all = select(BTreeSet::new());
        assert_eq!((all.handoffs, all.held), (vec![handoff(0), handoff(2)], 0));
        assert!(all.contents.is_empty() && all.data.is_empty());
        // A held handoff is looked at again.
        let held = select([TaskId(Uuid::from_u128(1))].into());
        assert_eq!((held.handoffs, held.held, held.first_held), (vec![handoff(2)], 1, Some(0)));
    }
}
