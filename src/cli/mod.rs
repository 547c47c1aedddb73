//! The commands, one file each. Exit codes: 0 success, 1 negative result, 2 usage, 3 unreachable or unreadable.

// A command prints by `answer`, so that a reader that stops reading causes no panic.
#![warn(clippy::print_stdout)]

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use handoffd_broker::config::{Config, LogFormat};
use handoffd_broker::telemetry::{SpanExport, Telemetry};
use handoffd_store::fault;

mod admin;
mod answer;
mod archive;
mod beside;
mod certify;
mod client;
mod completions;
mod compress;
mod conformance;
mod declared;
mod demo;
mod export;
mod healthcheck;
mod init;
mod key;
mod lint;
mod man;
mod mcp;
mod migrate;
mod openapi;
mod plain;
mod purge;
mod scan;
mod serve;
mod trace;
mod validate;
mod verify;
mod why;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success = 0,
    /// The command completed with a negative result.
    No = 1,
    /// The command line or the settings are invalid.
    Usage = 2,
    /// The broker, the database or a file could not be read.
    Unreachable = 3,
}

/// Output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Output formats; not every command supports each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// SARIF 2.1.0, of `lint` only.
    Sarif,
}

/// The handoff broker that multi-agent systems trust.
#[derive(Debug, Parser)]
#[command(name = "handoffd", version, about, max_term_width = 100)]
struct Cli {
    /// A file with settings; see config/default.toml
    #[arg(long, global = true, env = "HANDOFFD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Database URL, instead of HANDOFFD_DATABASE_URL
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// Output format
    #[arg(long, global = true, value_enum, default_value = "text")]
    output: Form,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Run the broker
    Serve,
    /// Run a demonstration: a throw-away broker, agents, a contract review, a rejection, an injection, a compressed message, a group
    Demo(demo::Args),
    /// Apply the database migrations; on Postgres, make the role that serves
    Migrate(migrate::Args),
    /// Recompute the audit log, or a bundle, from its entries; exit 1 and name the first bad record on
    /// any fault
    Verify(verify::Args),
    /// Write a regulator's bundle: all evidence of a task, to be verified offline
    Export(export::Args),
    /// Move contents of old records to the archive
    Archive(archive::Args),
    /// Purge contents, personal data and checkpoints past their retention time; records stay
    Purge(purge::Args),
    /// Show the history of a task, from a running broker
    Trace(trace::Args),
    /// Say why a task does not go on, since when, and what ends the wait, from a running broker
    Why(trace::Args),
    /// Check contracts, in files or of a running broker; exit 1 on errors
    Lint(lint::Args),
    /// Check an audit log, or an exported one, against the contracts; exit 1 if something does not conform
    Conformance(conformance::Args),
    /// Drive a broker from outside, claim by claim, and print which claims hold; exit 1 if one does not
    Certify(handoffd_certify::Args),
    /// Check a message file against schema, completeness, budget and safety rules
    Validate(validate::Args),
    /// Compress a message file for a context window with the embedded compressor; exit 1 if it does not fit
    Compress(compress::Args),
    /// Scan texts with the safety rules, exit 1 if any would be refused; or measure the rules on labelled texts
    Scan(scan::Args),
    /// Serve MCP on standard input and output, for a client that starts its servers; asks a running broker
    Mcp(mcp::Args),
    /// Create API keys
    #[command(subcommand)]
    Key(key::Commands),
    #[command(flatten)]
    Admin(admin::ActionRequest),
    /// Write two agents, the edge between them and its contract as files, and a sender and a receiver that run
    Init(init::Args),
    /// Make a broker's objects those that the files of a folder declare; prints the plan first
    Apply(declared::ApplyArgs),
    /// Compare a broker with the files of a folder; exit 1 if they differ, 2 on any error
    Diff(declared::DiffArgs),
    /// Write the objects of a broker as files that `apply` reads
    Dump(declared::DumpArgs),
    /// Print the completions of a shell
    Completions(completions::Args),
    /// Print the manual page, or write one for each command
    Man(man::Args),
    /// Print the OpenAPI document
    Openapi,
    /// Ask a running broker whether it is ready (for container health checks)
    Healthcheck,
}

/// The command line's definition; manual, completions and reference are generated from it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// The process's environment; the command line's database wins over it.
fn environment(database_url: Option<String>) -> impl Iterator<Item = (String, String)> {
    let said = database_url.is_some();
    std::env::vars()
        .filter(move |(name, _)| {
            !(said && ["HANDOFFD_DATABASE_URL", "HANDOFFD_DATABASE__URL"].contains(&name.as_str()))
        })
        .chain(database_url.map(|url| ("HANDOFFD_DATABASE_URL".to_owned(), url)))
}

/// Parses the command line, runs the command, and returns the exit code.
#[must_use]
pub fn main() -> i32 {
    // Only the first provider counts, and it is ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => {
            let _ = err.print();
            return if err.use_stderr() { Exit::Usage as i32 } else { Exit::Success as i32 };
        }
    };
    let config = match Config::load(cli.config.as_deref(), environment(cli.database_url)) {
        Ok(config) => config,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return Exit::Usage as i32;
        }
    };
    let serving = matches!(cli.command, Commands::Serve);
    let _faults = fault::arm();
    // Commands print their answer; only the broker logs as such.
    let filter = match cli.command {
        Commands::Serve => config.log.filter.clone(),
        Commands::Demo(_) => demo::LOGS.to_owned(),
        _ => "error".to_owned(),
    };
    let json = serving && config.log.format == LogFormat::Json;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => {
            eprintln!("handoffd: the runtime cannot start: {err}");
            return Exit::Unreachable as i32;
        }
    };
    let spans = if serving { SpanExport::Collector } else { SpanExport::Disabled };
    let entered = runtime.enter();
    let telemetry = match Telemetry::start(&filter, json, spans) {
        Ok(telemetry) => telemetry,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return Exit::Usage as i32;
        }
    };
    drop(entered);
    let form = cli.output;
    let output = match (form, &cli.command) {
        (Form::Sarif, Commands::Lint(_)) | (Form::Json, _) => Output::Json,
        (Form::Text, _) => Output::Text,
        (Form::Sarif, _) => {
            eprintln!("handoffd: --output sarif is for `handoffd lint`");
            return Exit::Usage as i32;
        }
    };
    let exit = runtime.block_on(async move {
        match cli.command {
            Commands::Serve => serve::run(config).await,
            Commands::Demo(args) => Box::pin(demo::run(args, output)).await,
            Commands::Migrate(args) => migrate::run(args, config, output).await,
            Commands::Verify(args) => Box::pin(verify::run(args, config, output)).await,
            Commands::Export(args) => export::run(args, config, output).await,
            Commands::Archive(args) => Box::pin(archive::run(args, config, output)).await,
            Commands::Purge(args) => Box::pin(purge::run(args, config, output)).await,
            Commands::Trace(args) => trace::run(args, config, output).await,
            Commands::Why(args) => why::run(args, config, output).await,
            Commands::Lint(args) => lint::run(args, config, form).await,
            Commands::Conformance(args) => Box::pin(conformance::run(args, config, output)).await,
            Commands::Certify(args) => Box::pin(certify::run(args, config, output)).await,
            Commands::Validate(args) => validate::run(&args, output),
            Commands::Compress(args) => compress::run(&args, output),
            Commands::Scan(args) => scan::run(&args, output),
            Commands::Mcp(args) => mcp::run(args, config).await,
            Commands::Key(command) => Box::pin(key::run(command, config, output)).await,
            Commands::Admin(asked) => admin::run(asked, config, output).await,
            Commands::Init(args) => init::run(&args, output),
            Commands::Apply(args) => Box::pin(declared::apply(args, config, output)).await,
            Commands::Diff(args) => Box::pin(declared::diff(args, config, output)).await,
            Commands::Dump(args) => Box::pin(declared::dump(args, config, output)).await,
            Commands::Completions(args) => completions::run(&args),
            Commands::Man(args) => man::run(&args),
            Commands::Openapi => openapi::run(),
            Commands::Healthcheck => healthcheck::run(config).await,
        }
    });
    // The last spans may leave by way of the runtime.
    telemetry.stop();
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    exit as i32
}
