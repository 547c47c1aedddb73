//! The console after the story: the broker goes on serving the store, until it is asked to stop.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use super::past::Fleet;
use crate::app::{self, Running};
use handoffd_broker::config::Config;
use handoffd_broker::lifecycle::Signals;

/// Ports that are tried, from that of `server.listen` on.
const PORTS: u16 = 200;

/// Serves the store on the next free port.
pub(super) async fn serve(config: Config, mut fleet: Fleet) -> Result<(), String> {
    let mut signals =
        Signals::listen().map_err(|err| format!("signals cannot be listened for: {err}"))?;
    let key = config.keys_dir().join("admin.key");
    let bound = Duration::from_millis(config.server.stop_timeout_ms);
    let running = start(config).await?;
    fleet.work_at(running.address)?;
    let words = format!(
        "the console is at http://{}/console\nthe admin key is in {}\nCtrl-C stops the broker\n",
        running.address,
        key.display(),
    );
    // At once. A reader that stopped listening ends no broker.
    let _ = std::io::stderr().write_all(words.as_bytes());
    signals.asked_to_stop().await;
    signals.within(bound, running.stop()).await;
    Ok(())
}

/// Starts the broker on the first free port of this machine.
async fn start(config: Config) -> Result<Running, String> {
    let first = Config::load(None, []).map_err(|err| err.to_string())?.server.listen.port();
    for port in first..first.saturating_add(PORTS) {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // A broker that cannot listen has opened the store already.
        if TcpListener::bind(listen).is_err() {
            continue;
        }
        let mut config = config.clone();
        config.server.listen = listen;
        return app::start(config).await.map_err(|err| err.to_string());
    }
    Err(format!("no port from {first} on is free"))
}
