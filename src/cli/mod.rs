//! The commands, one file each. Exit codes: 0 well, 1 the answer is no, 2 usage, 3 could not reach or
//! read.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::{Config, LogFormat};
use crate::telemetry::Telemetry;

mod client;
mod demo;
mod healthcheck;
mod key;
mod migrate;
mod openapi;
mod serve;
mod trace;
mod validate;
mod verify;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Well.
    Well = 0,
    /// The answer is no.
    No = 1,
    /// The command's words are wrong.
    Usage = 2,
    /// Could not reach or read.
    Unreachable = 3,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The handoff broker that multi-agent systems trust.
#[derive(Debug, Parser)]
#[command(name = "handoffd", version, about, max_term_width = 100)]
struct Cli {
    /// A file with settings; see config/default.toml
    #[arg(long, global = true, env = "HANDOFFD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the data is, instead of HANDOFFD_DATABASE_URL
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// How to print
    #[arg(long, global = true, value_enum, default_value = "text")]
    output: Output,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Run the broker
    Serve,
    /// See it work: a throw-away broker, four agents, a contract review, a rejection, an injection
    Demo(demo::Args),
    /// Apply the database migrations
    Migrate,
    /// Recompute the audit log from its entries; exit 1 and name the first bad record on any fault
    Verify(verify::Args),
    /// Show what happened on a task, from a running broker
    Trace(trace::Args),
    /// Check a message file against schema, completeness, budget and safety rules
    Validate(validate::Args),
    /// Make API keys
    #[command(subcommand)]
    Key(key::Commands),
    /// Print the OpenAPI document
    Openapi,
    /// Ask a running broker whether it is ready (for container health checks)
    Healthcheck,
}

/// Parses the command line, runs the command, says how it ended.
#[must_use]
pub fn main() -> i32 {
    // Only the first provider counts, and it is ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => {
            let _ = err.print();
            return if err.use_stderr() { Exit::Usage as i32 } else { Exit::Well as i32 };
        }
    };
    let mut config = match Config::load(cli.config.as_deref(), std::env::vars()) {
        Ok(config) => config,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return Exit::Usage as i32;
        }
    };
    if let Some(url) = cli.database_url {
        config.database.url = url;
    }
    let serving = matches!(cli.command, Commands::Serve);
    // Commands print their answer; only the broker logs as such.
    let filter = if serving { config.log.filter.clone() } else { "error".to_owned() };
    let json = serving && config.log.format == LogFormat::Json;
    let telemetry = match Telemetry::start(&filter, json) {
        Ok(telemetry) => telemetry,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return Exit::Usage as i32;
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => {
            eprintln!("handoffd: the runtime cannot start: {err}");
            return Exit::Unreachable as i32;
        }
    };
    let output = cli.output;
    let exit = runtime.block_on(async move {
        match cli.command {
            Commands::Serve => serve::run(config).await,
            Commands::Demo(args) => demo::run(args, output).await,
            Commands::Migrate => migrate::run(config, output).await,
            Commands::Verify(args) => verify::run(args, config, output).await,
            Commands::Trace(args) => trace::run(args, config, output).await,
            Commands::Validate(args) => validate::run(&args, output),
            Commands::Key(command) => key::run(command, config, output).await,
            Commands::Openapi => openapi::run(),
            Commands::Healthcheck => healthcheck::run(config).await,
        }
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    telemetry.stop();
    exit as i32
}
