//! `handoffd verify`: recomputes every log of a database from its entries alone.

use std::sync::Arc;

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Exit, Output};
use crate::app::{Access, open_store};
use crate::config::Config;
use crate::domain::ids::TenantId;
use crate::evidence::verify::{Entry, Fault, Report, Verifier};
use crate::store::{Store, StoreError, StoredRecord};

/// Records read at once.
const PAGE: i64 = 512;

/// `handoffd verify`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Only this tenant's log
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Verifies; prints a report for each log.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let reports = async {
        let store = open_store(&config, Access::Beside).await?;
        let reports = verify_store(&store, args.tenant.as_ref()).await;
        store.close().await;
        reports
    }
    .await;
    match reports {
        Ok(reports) => show(&reports, output),
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}

/// Verifies the logs of a store.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn verify_store(
    store: &Arc<dyn Store>,
    only: Option<&TenantId>,
) -> Result<Vec<(TenantId, Report)>, StoreError> {
    let tenants = match only {
        Some(tenant) => vec![tenant.clone()],
        None => store.list_tenants().await?,
    };
    let mut reports = Vec::new();
    for tenant in tenants {
        let report = verify_log(&**store, &tenant).await?;
        reports.push((tenant, report));
    }
    Ok(reports)
}

/// Verifies one log. A broker may append meanwhile: what is judged is the log as its head stood when
/// the check began.
async fn verify_log(store: &dyn Store, tenant: &TenantId) -> Result<Report, StoreError> {
    let Some(head) = store.find_head(tenant).await? else {
        return Err(StoreError::Refused(format!("tenant {tenant} has no log")));
    };
    // Before the records are read: a handoff committed later has its record later.
    let unrecorded = store.list_unrecorded(tenant).await?;
    let mut verifier = Verifier::new(head.log_id.clone());
    let mut from = 0;
    loop {
        let limit = PAGE.min(head.size - from);
        // One more than the head speaks of would be a fault; records of a moving log are not.
        let page = if limit > 0 {
            store.list_records(tenant, None, from, limit, true).await?
        } else {
            Vec::new()
        };
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in &page {
            if record.leaf_index < head.size {
                verifier.entry(&entry(record));
            }
        }
    }
    let mut report = verifier.finish(head.size, &head.hash);
    // Erasing is not a feature of this version, and so no record can say that it was done: what is
    // gone was taken away.
    if let (None, Some(leaf_index)) = (&report.first_fault, report.first_erased) {
        report.first_fault = Some(Fault {
            leaf_index,
            fault: "content-gone",
            detail: format!(
                "{} contents are gone, and no record says that they were erased",
                report.erased
            ),
        });
    }
    if let (None, Some(first)) = (&report.first_fault, unrecorded.first()) {
        report.first_fault = Some(Fault {
            leaf_index: head.size,
            fault: "unrecorded",
            detail: format!("handoff {first} has no record: the log was cut or rewritten"),
        });
    }
    Ok(report)
}

fn entry(record: &StoredRecord) -> Entry<'_> {
    Entry {
        leaf_index: record.leaf_index,
        hash: &record.hash,
        kind: &record.kind,
        task_id: record.task_id.as_deref(),
        handoff_id: record.handoff_id.as_deref(),
        body: &record.body,
        content: record.content.as_ref().map(|content| {
            content.kept.as_ref().map(|(salt, codec, bytes)| (&salt[..], *codec, &bytes[..]))
        }),
        personal: record
            .personal
            .iter()
            .map(|datum| {
                let kept =
                    datum.kept.as_ref().map(|(salt, codec, bytes)| (&salt[..], *codec, &bytes[..]));
                (datum.ordinal, kept)
            })
            .collect(),
    }
}

fn show(reports: &[(TenantId, Report)], output: Output) -> Exit {
    let well = reports.iter().all(|(_, report)| report.first_fault.is_none());
    match output {
        Output::Json => {
            let logs: Vec<_> = reports
                .iter()
                .map(|(tenant, report)| json!({ "tenant": tenant, "report": report }))
                .collect();
            println!("{}", json!({ "ok": well, "logs": logs }));
        }
        Output::Text => {
            for (tenant, report) in reports {
                match &report.first_fault {
                    None => println!(
                        "well: tenant {tenant}, log {}: {} records, {} contents{}, head {}",
                        report.log_id,
                        report.records,
                        report.contents,
                        if report.erased > 0 {
                            format!(" ({} erased)", report.erased)
                        } else {
                            String::new()
                        },
                        report.head.as_deref().unwrap_or("none"),
                    ),
                    Some(fault) => println!(
                        "BAD: tenant {tenant}, log {}: record {}: {}: {}",
                        report.log_id, fault.leaf_index, fault.fault, fault.detail
                    ),
                }
            }
        }
    }
    if well { Exit::Well } else { Exit::No }
}
