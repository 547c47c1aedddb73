//! Signal handling: the first signal requests an orderly stop within a time limit, the second ends the process at
//! once.

use std::time::Duration;

/// Listens for the signals that stop the process. Created before the broker reports ready: from then on no signal
/// kills the process without an orderly stop.
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// The operating system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Resolves at the next SIGTERM or Ctrl-C.
    pub async fn asked_to_stop(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }

    /// Runs an orderly stop, unless a second signal or the bound ends it.
    pub async fn within(&mut self, bound: Duration, stop: impl Future<Output = ()>) -> StopResult {
        tokio::select! {
            () = stop => StopResult::Orderly,
            () = tokio::time::sleep(bound) => {
                tracing::warn!("the stop took too long; what was not finished is taken up at the next start");
                StopResult::Cut
            }
            () = self.asked_to_stop() => StopResult::Cut,
        }
    }
}

/// The end of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopResult {
    /// All tasks ended in order.
    Orderly,
    /// A second signal or the time limit ended the stop.
    Cut,
}
