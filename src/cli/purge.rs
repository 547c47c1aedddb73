//! `handoffd purge`: purges data past its retention time now.

use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::json;

use super::answer::answer;
use super::archive::moment;
use super::beside::{LocalLedger, tenants};
use super::{Exit, Output};
use crate::app::{Access, open_archive};
use handoffd_broker::archive::cutoff;
use handoffd_broker::config::Config;
use handoffd_broker::directory::Directory;
use handoffd_broker::metrics::Metrics;
use handoffd_broker::retention::{PurgeCounts, Purger};
use handoffd_broker::states::StateGuard;
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_store::clock::{Clock, SystemClock};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Contents of records made before this time, RFC 3339; retention.delete_after_days ago unless given
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Option<Micros>,
    /// Only this tenant's
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Print what would be purged, and purge nothing
    #[arg(long)]
    dry_run: bool,
}

/// Purges; prints the counts of each tenant.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let now = SystemClock::default().now();
    let before = match (args.before, config.retention.delete_after_days) {
        (Some(before), _) => before,
        (None, 0) => {
            eprintln!("handoffd: say --before TIME: retention.delete_after_days is off");
            return Exit::Usage;
        }
        (None, days) => cutoff(now, days),
    };
    match purge(&args, before, &config).await {
        Ok(taken) => answer(&shown(&taken, args.dry_run, output), Exit::Success),
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

async fn purge(
    args: &Args,
    before: Micros,
    config: &Config,
) -> Result<Vec<(TenantId, PurgeCounts)>, String> {
    let archive = open_archive(config).map_err(|err| err.to_string())?;
    let metrics = Arc::new(Metrics::new().map_err(|err| err.to_string())?);
    let bench = LocalLedger::open(config, Access::Beside).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let store = Arc::clone(&bench.store);
    let cold = archive.archivist(Arc::clone(&store), Arc::clone(&clock), metrics.archive.clone());
    let page = i64::try_from(config.erasure.page).unwrap_or(i64::MAX);
    let ttl = Duration::from_millis(config.auth.cache_ttl_ms);
    let contents = archive.contents(Arc::clone(&store));
    let guard = StateGuard::new(Arc::clone(&store), contents, Arc::clone(&metrics), ttl);
    let directory = Directory::new(Arc::clone(&store), Arc::clone(&clock), ttl);
    let purger = Purger {
        directory: Arc::new(directory.guarded(Arc::new(guard))),
        store: Arc::clone(&store),
        ledger: bench.ledger.clone(),
        cold: Arc::new(cold),
        clock,
        metrics: metrics.retention.clone(),
        page,
    };
    let outcome = async {
        let tenants = tenants(&store, args.tenant.as_ref()).await;
        let mut all = Vec::new();
        for tenant in tenants.map_err(|err| err.to_string())? {
            let taken = if args.dry_run {
                let seen = Purger::preview(&store, &tenant, before, page).await;
                seen.map_err(|err| err.to_string())?
            } else {
                purger.run(&tenant, before, true).await.map_err(|err| err.to_string())?
            };
            all.push((tenant, taken));
        }
        Ok(all)
    }
    .await;
    drop(purger);
    bench.close().await;
    outcome
}

fn shown(all: &[(TenantId, PurgeCounts)], dry: bool, output: Output) -> String {
    if output == Output::Json {
        let tenants: Vec<_> =
            all.iter().map(|(tenant, taken)| json!({ "tenant": tenant, "taken": taken })).collect();
        return json!({ "dryRun": dry, "tenants": tenants }).to_string();
    }
    let lines = all.iter().map(|(tenant, taken)| {
        format!(
            "tenant {tenant}: {} contents, {} personal data and {} checkpoints {}; {} records held back\n",
            taken.contents,
            taken.personal_data,
            taken.checkpoints,
            if dry { "would go" } else { "gone" },
            taken.held,
        )
    });
    lines.collect::<Vec<_>>().concat()
}
