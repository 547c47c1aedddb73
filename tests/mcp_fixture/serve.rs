//! A broker whose MCP door has the conformance suite's fixtures in the place of the broker's own tools.
//!
//! It takes its settings from the environment, as `handoffd serve` does, and serves until it is ended. All before the handler is
//! the broker's: listener, layers, authentication, host and origin checks, body, stream and answers.

mod handler;

use handoffd::app;
use handoffd::config::Config;

use self::handler::Fixture;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::load(None, std::env::vars())?;
    let running = app::start_with_mcp(config, Fixture::new()?).await?;
    eprintln!("mcp-fixture listens on http://{}", running.address);
    std::future::pending().await
}
