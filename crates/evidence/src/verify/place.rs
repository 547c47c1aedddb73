//! Classification of an entry out of place: only later entries show which change moved it.

/// A record at an index that differs from the one it states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Misplaced {
    /// The index of the record in the log.
    pub(super) at: i64,
    /// The index that the record states.
    pub(super) stated: Option<i64>,
}

/// The change that moved a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafShift {
    /// Records before it were removed, and the rest moved up.
    Dropped,
    /// A record was inserted before it or replaced it, and the rest moved down.
    Inserted,
    /// Two records changed places.
    Swapped,
}

impl Misplaced {
    /// The most likely change from one entry: a later record here means missing records, an earlier or foreign
    /// one means an inserted record.
    pub(super) const fn alone(self) -> LeafShift {
        match self.stated {
            Some(stated) if stated > self.at => LeafShift::Dropped,
            _ => LeafShift::Inserted,
        }
    }

    /// The change that a further entry proves: the record at index `at` states `stated`. `None` where that is
    /// inconclusive.
    pub(super) fn explained_by(self, at: i64, stated: Option<i64>) -> Option<LeafShift> {
        if Some(at) == self.stated && stated == Some(self.at) {
            return Some(LeafShift::Swapped);
        }
        if at != self.at + 1 {
            return None;
        }
        match stated {
            Some(stated) if Some(stated - 1) == self.stated && stated > at => {
                Some(LeafShift::Dropped)
            }
            Some(stated) if stated == self.at => Some(LeafShift::Inserted),
            _ => None,
        }
    }

    /// The defect's kind and a sentence.
    pub(super) fn told(self, shift: LeafShift) -> (&'static str, String) {
        let stated =
            self.stated.map_or_else(|| "no leafIndex".to_owned(), |n| format!("leafIndex {n}"));
        match shift {
            LeafShift::Dropped => (
                "drop",
                format!(
                    "the record states {stated}: records before it are missing, the rest moved up"
                ),
            ),
            LeafShift::Inserted => (
                "insert",
                format!("the record states {stated}: it was put in here, the rest moved down"),
            ),
            LeafShift::Swapped => {
                ("swap", format!("the record states {stated}: it changed places with that one"))
            }
        }
    }
}
