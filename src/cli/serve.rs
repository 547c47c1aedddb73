use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use super::Exit;
use crate::app::{self, StartError};
use handoffd_broker::config::Config;
use handoffd_broker::lifecycle::{Signals, StopResult};

/// Runs the broker until it is asked to stop.
pub(super) async fn run(config: Config) -> Exit {
    let bound = Duration::from_millis(config.server.stop_timeout_ms);
    let console = config.console.enabled;
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(err) => {
            eprintln!("handoffd: signals cannot be listened for: {err}");
            return Exit::Unreachable;
        }
    };
    let running = tokio::select! {
        running = app::start(config) => running,
        () = signals.asked_to_stop() => return Exit::Success,
    };
    let running = match running {
        Ok(running) => running,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return match err {
                StartError::Config(_) => Exit::Usage,
                StartError::Evidence(_) => Exit::No,
                _ => Exit::Unreachable,
            };
        }
    };
    let mut said = format!("handoffd listens on http://{}  (API docs: /docs)\n", running.address);
    if console {
        let _ = writeln!(said, "the console is at http://{}/console", running.address);
    }
    if let Some(path) = &running.admin_key_file {
        let _ = writeln!(said, "the first admin key is in {}", path.display());
    }
    // Written at once. The program that started the broker may have stopped listening, and that
    // does not end the broker.
    let _ = std::io::stderr().write_all(said.as_bytes());
    signals.asked_to_stop().await;
    tracing::info!("stopping");
    match signals.within(bound, running.stop()).await {
        StopResult::Orderly | StopResult::Cut => Exit::Success,
    }
}
