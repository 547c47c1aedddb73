//! `handoffd healthcheck`: for the health checks of containers that have no curl.

use std::time::Duration;

use super::Exit;
use super::client::reachable;
use handoffd_broker::config::Config;

/// Time for the answer beyond the broker's wait for its store. By the default settings the sum is below the 5 s that the
/// image's health check has.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Asks `/readyz` of the configured listener. Waits longer than the broker waits for its store, so that the broker can
/// say that the store is away.
pub(super) async fn run(config: Config) -> Exit {
    let Ok(client) = reqwest::Client::builder().timeout(patience(&config)).no_proxy().build()
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

/// Longest time for the answer.
fn patience(config: &Config) -> Duration {
    PATIENCE + Duration::from_millis(config.database.acquire_timeout_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_it_waits_longer_than_the_broker_for_its_store_and_ends_before_the_images_check() {
        let config = Config::load(None, []).unwrap();
        let patience = patience(&config);
        assert!(patience > Duration::from_millis(3_200), "{patience:?}");
        assert!(patience < Duration::from_secs(5), "{patience:?}");
        assert!(patience > Duration::from_millis(config.database.acquire_timeout_ms));
    }
}
