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

mod agents;
mod context;
mod contract;
mod doors;
mod fan_out;
mod report;
mod story;

/// The longest that the story may take; it needs about a second.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Keep the store in this folder, to look at afterwards
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Tell how one task goes through MCP, A2A and a webhook instead
    #[arg(long)]
    doors: bool,
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
    let began = Instant::now();
    let config = match config(&folder) {
        Ok(config) => config,
        Err(why) => return cannot(&why),
    };
    let running = match app::start(config.clone()).await {
        Ok(running) => running,
        Err(err) => return cannot(&err.to_string()),
    };
    let told = match running.admin_key_file.as_deref().map(std::fs::read_to_string) {
        Some(Ok(key)) => {
            let (address, key) = (running.address, key.trim());
            let told = async {
                if args.doors {
                    doors::tell(&mut report, address, key).await
                } else {
                    story::tell(&mut report, address, key).await
                }
            };
            tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| {
                Err(format!("the story did not end within {} s", PATIENCE.as_secs()))
            })
        }
        _ => Err("the first admin key cannot be read".to_owned()),
    };
    // Stopped in order: whatever was still on its way to an agent has arrived after this.
    running.stop().await;
    let trace = match told {
        Ok(told) => {
            story::count_deliveries(&mut report, &told.agents, told.deliveries);
            told.trace
        }
        Err(why) => {
            report.check("the story reaches its end", "yes", why);
            Value::Null
        }
    };
    let verification = match verification(&mut report, &config).await {
        Ok(verification) => verification,
        Err(why) => return cannot(&why),
    };
    if args.keep.is_some() {
        report.kept(&folder);
    }
    let well = report.finish(&trace, &verification, began.elapsed());
    if well { Exit::Success } else { Exit::No }
}

fn cannot(why: &str) -> Exit {
    eprintln!("handoffd: {why}");
    Exit::Unreachable
}

/// Where the store goes, and what removes it at the end.
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
fn config(folder: &Path) -> Result<Config, String> {
    let folder = folder.to_str().ok_or("the folder's name is not UTF-8")?;
    let settings = [
        ("HANDOFFD_LISTEN", "127.0.0.1:0"),
        ("HANDOFFD_DATA_DIR", folder),
        ("HANDOFFD_EGRESS_ALLOW", "127.0.0.0/8"),
    ];
    Config::load(None, settings.map(|(name, value)| (name.to_owned(), value.to_owned())))
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
