//! `handoffd demo`: a broker on a throw-away store, four agents over real HTTP, and a story that is
//! checked as it is told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::verify::verify_store;
use super::{Exit, Output};
use crate::app::{self, Access, open_store};
use handoffd_broker::config::Config;
use report::DemoReport;
use story::StoryResult;

mod agents;
mod console;
mod context;
mod contract;
mod doors;
mod fan_out;
mod past;
mod report;
mod story;

/// The longest that the story may take; it needs about a second.
const PATIENCE: Duration = Duration::from_mins(1);

/// Endpoints that fail are part of the demo, and no errors of it.
pub(super) const LOGS: &str = "error,handoffd_broker::dispatch=off";

/// Settings of the broker that makes the past: its minutes pass in milliseconds, so that the broker looks often.
const PAST: [(&str, &str); 4] = [
    ("HANDOFFD_DELIVERY__POLL_MS", "20"),
    ("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "1000"),
    ("HANDOFFD_LEDGER__SETTLE_DELAY_MS", "0"),
    ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
];
/// Settings of the brokers after the past: a receiver that is away is tried for as long as the demo runs.
const SERVED: [(&str, &str); 1] = [("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "1000")];

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Keep the store in this folder, to look at afterwards
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Tell how one task goes through MCP, A2A and a webhook instead
    #[arg(long)]
    doors: bool,
    /// Go on serving after the story, with a made-up past of 48 hours, so that every page of the console has content
    #[arg(long)]
    console: bool,
}

/// Runs the demo; succeeds only if every check holds.
pub(super) async fn run(args: Args, output: Output) -> Exit {
    let title = if args.doors { doors::TITLE } else { story::TITLE };
    let mut report = DemoReport::new(output, title);
    let (folder, _throw_away) = match folder(args.keep.as_deref()) {
        Ok(folder) => folder,
        Err((exit, why)) => {
            eprintln!("handoffd: {why}");
            return exit;
        }
    };
    match Box::pin(played(&args, &mut report, &folder)).await {
        Ok(true) => Exit::Success,
        Ok(false) => Exit::No,
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

/// The past, the story and the console, as far as they are wanted; true if every check held.
async fn played(args: &Args, report: &mut DemoReport, folder: &Path) -> Result<bool, String> {
    let began = Instant::now();
    let fleet = if args.console {
        Some(Box::pin(past::make(report, config(folder, &PAST)?)).await?)
    } else {
        None
    };
    // The story's broker meets the receiver that is away, too: by its own settings it would give up on a slow machine.
    let settings: &[_] = if args.console { &SERVED } else { &[] };
    let config = config(folder, settings)?;
    let (stage, trace) = told(args, report, &config).await?;
    let verification = verification(report, &config).await?;
    if args.keep.is_some() {
        report.kept(folder);
    }
    let well = report.finish(&trace, &verification, began.elapsed());
    if let Some(fleet) = fleet {
        Box::pin(console::serve(self::config(folder, &SERVED)?, fleet)).await?;
    }
    // The agents of the story serve their webhooks until here.
    drop(stage);
    Ok(well)
}

/// Tells the story by a broker of its own; the trace of its task, and the agents, which still listen.
async fn told(
    args: &Args,
    report: &mut DemoReport,
    config: &Config,
) -> Result<(Option<StoryResult>, Value), String> {
    let running = app::start(config.clone()).await.map_err(|err| err.to_string())?;
    let end = match std::fs::read_to_string(config.keys_dir().join("admin.key")) {
        Ok(key) => {
            let (address, key) = (running.address, key.trim());
            let telling = async {
                if args.doors {
                    doors::tell(report, address, key).await
                } else {
                    story::tell(report, address, key).await
                }
            };
            tokio::time::timeout(PATIENCE, telling).await.unwrap_or_else(|_| {
                Err(format!("the story did not end within {} s", PATIENCE.as_secs()))
            })
        }
        Err(err) => Err(format!("the first admin key cannot be read: {err}")),
    };
    // Stopped in order: whatever was still on its way to an agent has arrived after this.
    running.stop().await;
    Ok(match end {
        Ok(mut story) => {
            story::count_deliveries(report, &story.agents, story.deliveries);
            let trace = story.trace.take();
            (Some(story), trace)
        }
        Err(why) => {
            report.check("the story reaches its end", "yes", why);
            (None, Value::Null)
        }
    })
}

/// The folder of the store, and the guard that removes it at the end.
fn folder(keep: Option<&Path>) -> Result<(PathBuf, Option<tempfile::TempDir>), (Exit, String)> {
    if let Some(keep) = keep {
        if keep.join("handoffd.db").exists() {
            return Err((
                Exit::Usage,
                format!("{} holds a store already: give --keep another folder", keep.display()),
            ));
        }
        return Ok((keep.to_owned(), None));
    }
    let made = tempfile::Builder::new()
        .prefix("handoffd-demo-")
        .tempdir()
        .map_err(|err| (Exit::Unreachable, format!("no throw-away folder can be made: {err}")))?;
    Ok((made.path().to_owned(), Some(made)))
}

/// The defaults but for where to listen, where to keep, and that the agents live on this machine. The
/// environment's settings are for brokers that stay.
fn config(folder: &Path, more: &[(&str, &str)]) -> Result<Config, String> {
    let folder = folder.to_str().ok_or("the folder's name is not UTF-8")?;
    let settings = [
        ("HANDOFFD_LISTEN", "127.0.0.1:0"),
        ("HANDOFFD_DATA_DIR", folder),
        ("HANDOFFD_EGRESS_ALLOW", "127.0.0.0/8"),
    ];
    let all = settings.iter().chain(more);
    Config::load(None, all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
        .map_err(|err| err.to_string())
}

/// Recomputes the whole log from the file that the broker left.
async fn verification(report: &mut DemoReport, config: &Config) -> Result<Value, String> {
    report.step("The broker is stopped, and its log recomputed from the file alone");
    let store = open_store(config, Access::Beside).await.map_err(|err| err.to_string())?;
    let archive = app::open_archive(config).map_err(|err| err.to_string())?;
    let contents = archive.contents(std::sync::Arc::clone(&store));
    let reports = verify_store(&store, &contents).await;
    store.close().await;
    let reports = reports.map_err(|err| err.to_string())?;
    report.check("logs", 1, reports.len());
    for (tenant, log) in &reports {
        report.say(format!(
            "tenant {tenant}: {} records and {} contents recomputed, head {}",
            log.records,
            log.contents,
            log.head.as_deref().unwrap_or("none"),
        ));
        let fault = log.first_fault.as_ref().map_or_else(
            || "none".to_owned(),
            |fault| format!("record {}: {}", fault.leaf_index, fault.detail),
        );
        report.check("faults in the log", "none", fault);
    }
    let logs: Vec<Value> =
        reports.iter().map(|(tenant, log)| json!({ "tenant": tenant, "report": log })).collect();
    let ok = reports.iter().all(|(_, log)| log.first_fault.is_none());
    Ok(json!({ "ok": ok, "logs": logs }))
}
