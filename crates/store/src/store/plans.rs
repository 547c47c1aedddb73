//! How a database carries out the filtered lists: for the store suite, which holds each filter to the index that serves it.

use super::refusals::RefusalFilter;
use super::{DeadLetterFilter, EscalationFilter, HandoffFilter, TaskFilter};

/// A filtered list.
#[derive(Debug)]
pub enum ListFilter {
    Handoffs(HandoffFilter),
    Tasks(TaskFilter),
    DeadLetters(DeadLetterFilter),
    Escalations(EscalationFilter),
    Refusals(RefusalFilter),
}
