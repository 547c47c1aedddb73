//! Stopping a broker, in order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Running;
use handoffd_store::store::ClaimRelease;

/// Time for destinations to take the last tree heads.
const LAST_WORD: Duration = Duration::from_secs(2);

impl Running {
    /// [`Running::stop_within`] as long as the settings allow.
    pub async fn stop(self) {
        let patience = Duration::from_millis(self.api.config.server.stop_timeout_ms);
        // Work in flight gets most of the time; the rest is for handing claims back and closing.
        self.stop_within(patience.mul_f64(0.8)).await;
    }

    /// Stops in order: takes no more, ends long waits, finishes what is under way as far as `patience`
    /// goes, hands back what it still had claimed, closes the store.
    pub async fn stop_within(self, patience: Duration) {
        let deadline = tokio::time::Instant::now() + patience;
        self.accepting.store(false, Ordering::Release);
        // Long polls and the background end first, then the listeners drain.
        self.stopping.cancel();
        self.closing.cancel();
        // All at once: a client that sends slowly must not take the time of attempts under way.
        let ending = [
            ("requests", &self.servers),
            ("background work", &self.background),
            ("attempts at delivery", &self.attempts),
        ]
        .map(|(what, tracker)| async move {
            tracker.close();
            if tokio::time::timeout_at(deadline, tracker.wait()).await.is_err() {
                tracing::warn!(what, "did not end in time; what is claimed is handed back");
            }
        });
        futures_util::future::join_all(ending).await;
        // The last requests hand their commits to the dispatcher before they are answered, perhaps after
        // its attempts seemed to have ended. So the broker waits for those attempts too.
        let _ = tokio::time::timeout_at(deadline, self.attempts.wait()).await;
        // No caller can send a command any more: the workers end with the commands in the queue.
        self.api.intake.ledger.close();
        drop(self.api);
        self.workers.close();
        let _ = tokio::time::timeout(Duration::from_secs(2), self.workers.wait()).await;
        // The last word on what was committed; a place that is away gets it at the next start.
        if tokio::time::timeout(LAST_WORD, self.witness.publish()).await.is_err() {
            tracing::warn!("the last tree heads were not published everywhere");
        }
        match self.store.release(ClaimRelease::Own(&self.broker)).await {
            Ok(0) => {}
            Ok(claims) => tracing::info!(claims, "handed unfinished claims back"),
            Err(err) => tracing::warn!(error = %err, "claims could not be handed back"),
        }
        self.store.close().await;
        tracing::info!("stopped");
    }
}
