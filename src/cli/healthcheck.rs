//! `handoffd healthcheck`: for container health checks, where there is no curl.

use std::time::Duration;

use super::Exit;
use super::client::reachable;
use handoffd_broker::config::Config;

/// Asks `/readyz` of the configured listener.
pub(super) async fn run(config: Config) -> Exit {
    let Ok(client) = reqwest::Client::builder().timeout(Duration::from_secs(3)).no_proxy().build()
    else {
        return Exit::Unreachable;
    };
    match client.get(format!("http://{}/readyz", reachable(&config))).send().await {
        Ok(answer) if answer.status().is_success() => Exit::Success,
        Ok(answer) => {
            eprintln!("handoffd: not ready: {}", answer.status());
            Exit::No
        }
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}
