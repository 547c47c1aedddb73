//! How a database carries out the filtered lists: for the store suite, which holds each filter to the index that serves it.

use super::driver::by_driver;
use super::refusals::RefusalFilter;
use super::{DeadLetterFilter, EscalationFilter, HandoffFilter, Result, Store, TaskFilter};
use handoffd_domain::ids::TenantId;

/// A filtered list.
#[derive(Debug)]
pub enum ListFilter {
    Handoffs(HandoffFilter),
    Tasks(TaskFilter),
    DeadLetters(DeadLetterFilter),
    Escalations(EscalationFilter),
    Refusals(RefusalFilter),
}

impl Store {
    /// How the database carries out the first page of a list.
    ///
    /// # Errors
    /// As any read.
    pub async fn explain_list(&self, tenant: &TenantId, list: &ListFilter) -> Result<Vec<String>> {
        by_driver!(self, db => db.explain_list(tenant, list))
    }

    /// How the database counts what waits, statement by statement.
    ///
    /// # Errors
    /// As any read.
    pub async fn explain_waits(&self, tenant: &TenantId) -> Result<Vec<Vec<String>>> {
        by_driver!(self, db => db.explain_waits(tenant))
    }
}
