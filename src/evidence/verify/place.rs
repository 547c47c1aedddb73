//! An entry out of place: what moved it shows only in the entries after it.

/// A record at an index that is not the one it states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Misplaced {
    /// Where it stands.
    pub(super) at: i64,
    /// Where it says it belongs.
    pub(super) stated: Option<i64>,
}

/// What moved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    /// Records before it were taken out, and the rest moved up.
    Dropped,
    /// A record was put in before it or in its place, and the rest moved down.
    Inserted,
    /// Two records changed places.
    Swapped,
}

impl Misplaced {
    /// What is most likely from the one entry: a later record here means that some are missing, an
    /// earlier one (or none of this log) that one was put in.
    pub(super) const fn alone(self) -> Shift {
        match self.stated {
            Some(stated) if stated > self.at => Shift::Dropped,
            _ => Shift::Inserted,
        }
    }

    /// What a further entry shows: that at index `at` stands a record which states `stated`. `None` where
    /// that tells nothing.
    pub(super) fn explained_by(self, at: i64, stated: Option<i64>) -> Option<Shift> {
        if Some(at) == self.stated && stated == Some(self.at) {
            return Some(Shift::Swapped);
        }
        if at != self.at + 1 {
            return None;
        }
        match stated {
            Some(stated) if Some(stated - 1) == self.stated && stated > at => Some(Shift::Dropped),
            Some(stated) if stated == self.at => Some(Shift::Inserted),
            _ => None,
        }
    }

    /// The fault's name and a sentence.
    pub(super) fn told(self, shift: Shift) -> (&'static str, String) {
        let stated =
            self.stated.map_or_else(|| "no leafIndex".to_owned(), |n| format!("leafIndex {n}"));
        match shift {
            Shift::Dropped => (
                "drop",
                format!(
                    "the record states {stated}: records before it are missing, the rest moved up"
                ),
            ),
            Shift::Inserted => (
                "insert",
                format!("the record states {stated}: it was put in here, the rest moved down"),
            ),
            Shift::Swapped => {
                ("swap", format!("the record states {stated}: it changed places with that one"))
            }
        }
    }
}
