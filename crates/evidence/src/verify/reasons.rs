//! The reason of a handoff, by its records.

use handoffd_domain::handoff::{ALL_UNAVAILABLE, HandoffStatus};

/// The kind of the record by which a completed handoff's task went back, which is the handoff's reason, too.
const RETURNED: &str = "RETURNED";

/// The code in the record of a handoff whose row has [`ALL_UNAVAILABLE`].
const ALL_UNAVAILABLE_CODE: &str = "ALL_PREFERRED_AGENTS_UNAVAILABLE";

/// The reasons that the records of one handoff give.
#[derive(Debug, Clone, Default)]
pub struct ToldReasons {
    all: Vec<String>,
    /// The reason of the completed handoff.
    completed: Option<String>,
}

impl ToldReasons {
    /// Takes the next record of the handoff.
    pub fn take(&mut self, kind: &str, reason: Option<&str>) {
        match kind {
            "COMPLETED" => self.completed = reason.map(str::to_owned),
            RETURNED => self.completed = Some(RETURNED.to_owned()),
            _ => {}
        }
        self.all.extend(reason.map(str::to_owned));
    }

    /// Whether a reason contradicts the records. Of a handoff that waits, or was canceled between two attempts, it can be the
    /// reason of an attempt, which no record has.
    #[must_use]
    pub fn contradict(&self, status: HandoffStatus, reason: Option<&str>) -> bool {
        match (status, reason) {
            (HandoffStatus::Pending | HandoffStatus::Canceled, _) => false,
            (HandoffStatus::Completed, reason) => reason != self.completed.as_deref(),
            (status, Some(reason)) => !status.is_final() || !self.say(reason),
            // Words leave the row with their content.
            (status, None) => {
                let gone = |known: &String| of_words(known) || known == ALL_UNAVAILABLE_CODE;
                status.is_final() && !self.all.is_empty() && !self.all.iter().any(gone)
            }
        }
    }

    /// The reason that the records give to a handoff of that status.
    #[must_use]
    pub fn of(&self, status: HandoffStatus) -> Option<&str> {
        match status {
            HandoffStatus::Completed => self.completed.as_deref(),
            status if status.is_final() => self.all.last().map(String::as_str),
            _ => None,
        }
    }

    /// Whether records say a reason. Of words of a receiver they say that it gave some: the words are in the content. No
    /// record has the broker's own words for a message that no preferred agent takes.
    fn say(&self, reason: &str) -> bool {
        reason == ALL_UNAVAILABLE || self.all.iter().any(|known| known == reason || of_words(known))
    }
}

/// Whether a reason says that a receiver gave words.
fn of_words(reason: &str) -> bool {
    reason.ends_with("_BY_RECEIVER")
}
