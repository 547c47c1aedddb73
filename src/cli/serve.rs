//! `handoffd serve`.

use std::time::Duration;

use super::Exit;
use crate::app;
use crate::config::Config;
use crate::lifecycle::{Stopped, asked_to_stop, within};

/// Runs the broker until it is asked to stop.
pub(super) async fn run(config: Config) -> Exit {
    let bound = Duration::from_millis(config.server.stop_timeout_ms);
    let running = match app::start(config).await {
        Ok(running) => running,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return Exit::Unreachable;
        }
    };
    eprintln!("handoffd listens on http://{}  (API docs: /docs)", running.address);
    if let Some(path) = &running.admin_key_file {
        eprintln!("the first admin key is in {}", path.display());
    }
    asked_to_stop().await;
    tracing::info!("stopping");
    match within(bound, running.stop()).await {
        Stopped::Orderly | Stopped::Cut => Exit::Well,
    }
}
