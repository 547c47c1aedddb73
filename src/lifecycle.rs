//! Signals: the first asks for an orderly stop within a bound, the second ends at once.

use std::time::Duration;

/// Resolves at SIGTERM or Ctrl-C.
pub async fn asked_to_stop() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = tokio::signal::ctrl_c() => {}
                }
            }
            Err(err) => {
                tracing::warn!(error = %err, "SIGTERM cannot be listened for");
                let _ = tokio::signal::ctrl_c().await;
            }
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// How a stop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// In order.
    Orderly,
    /// Cut short: by a second signal or by the bound.
    Cut,
}

/// Runs an orderly stop, unless a second signal or the bound ends it.
pub async fn within(bound: Duration, stop: impl Future<Output = ()>) -> Stopped {
    tokio::select! {
        () = stop => Stopped::Orderly,
        () = tokio::time::sleep(bound) => {
            tracing::warn!("the stop took too long; what was not finished is taken up at the next start");
            Stopped::Cut
        }
        () = asked_to_stop() => Stopped::Cut,
    }
}
