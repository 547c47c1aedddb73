//! Second opinions that are asked for after the commit: the handoffs that the external classifier is to be asked about.

use async_trait::async_trait;

use super::{HandoffKey, Result};
use handoffd_core::domain::ids::Micros;

/// Second opinions. All times come from the caller's clock.
#[async_trait]
pub trait OpinionStore: Send + Sync {
    /// Handoffs that the classifier may be asked about now, the longest waiting first.
    async fn list_due_opinions(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>>;
    /// Claims one until `until` and counts the attempt; its number is the token of whoever asks. `None`: another broker
    /// has the claim, the pause after an attempt lasts, or the opinion is recorded.
    async fn claim_opinion(
        &self,
        key: &HandoffKey,
        now: Micros,
        until: Micros,
    ) -> Result<Option<i32>>;
    /// Lets the next attempt begin at `at`; `false` where a later claim took this one's place.
    async fn postpone_opinion(&self, key: &HandoffKey, attempt: i32, at: Micros) -> Result<bool>;
}
