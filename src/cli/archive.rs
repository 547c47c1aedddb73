//! `handoffd archive`: moves contents of old records to the archive now.

use std::sync::Arc;

use clap::Args as ClapArgs;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::answer::answer;
use super::beside::tenants;
use super::{Exit, Output};
use crate::app::{Access, open_archive, open_store};
use handoffd_broker::archive::{ArchiveCounts, ArchiveError, ArchiveRun, cutoff};
use handoffd_broker::config::Config;
use handoffd_broker::metrics::Metrics;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_store::clock::{Clock, SystemClock};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Contents of records made before this time, RFC 3339; retention.hot_days ago unless said
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Option<Micros>,
    /// Only this tenant's
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Say what would move, and move nothing
    #[arg(long)]
    dry_run: bool,
}

/// A time in RFC 3339.
pub(super) fn moment(text: &str) -> Result<Micros, String> {
    let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|err| err.to_string())?;
    i64::try_from(at.unix_timestamp_nanos() / 1_000).map(Micros).map_err(|err| err.to_string())
}

/// Archives; prints what moved for each tenant.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    match archive(&args, &config).await {
        Ok(moved) => answer(&shown(&moved, args.dry_run, output), Exit::Success),
        Err(err @ ArchiveError::Config(_)) => {
            eprintln!("handoffd: {err}");
            Exit::Usage
        }
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}

async fn archive(
    args: &Args,
    config: &Config,
) -> Result<Vec<(TenantId, ArchiveCounts)>, ArchiveError> {
    let archive = open_archive(config)?;
    let metrics = Metrics::new().map_err(|err| ArchiveError::Config(err.to_string()))?;
    let clock = Arc::new(SystemClock::default());
    let before = args.before.unwrap_or_else(|| cutoff(clock.now(), config.retention.hot_days));
    let store = open_store(config, Access::Beside).await?;
    let archivist = archive.archivist(Arc::clone(&store), clock, metrics.archive.clone());
    let outcome = async {
        let mut all = Vec::new();
        for tenant in tenants(&store, args.tenant.as_ref()).await? {
            let moved = if args.dry_run {
                archivist.preview(&tenant, before).await?
            } else {
                archivist.run(&tenant, ArchiveRun { before, whole: true }).await?
            };
            all.push((tenant, moved));
        }
        Ok(all)
    }
    .await;
    store.close().await;
    outcome
}

fn shown(all: &[(TenantId, ArchiveCounts)], dry: bool, output: Output) -> String {
    if output == Output::Json {
        let shown: Vec<_> =
            all.iter().map(|(tenant, moved)| json!({ "tenant": tenant, "moved": moved })).collect();
        return json!({ "dryRun": dry, "tenants": shown }).to_string();
    }
    let lines = all.iter().map(|(tenant, moved)| {
        format!(
            "tenant {tenant}: {} contents {} into {} segments, {} bytes{}; {} held back, {} forgotten\n",
            moved.contents,
            if dry { "would move" } else { "moved" },
            moved.segments,
            moved.bytes_before,
            if dry { String::new() } else { format!(" packed to {}", moved.bytes) },
            moved.held,
            moved.forgotten,
        )
    });
    lines.collect::<Vec<_>>().concat()
}
