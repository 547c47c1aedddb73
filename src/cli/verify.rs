//! `handoffd verify`: recomputes the logs of a database from their entries alone; or a bundle, an
//! exported log or a receipt, offline.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::answer::answer;
use super::beside::tenants;
use super::{Exit, Output};
use crate::app::{Access, known_vault, open_archive, open_store};
use handoffd_broker::archive::{ArchiveError, Contents};
use handoffd_broker::audit::{LogCheck, verify_log};
use handoffd_broker::config::Config;
use handoffd_broker::vault::Vault;
use handoffd_broker::witness;
use handoffd_domain::ids::TenantId;
use handoffd_evidence::bundle::{BundleDefect, VerifyOptions};
use handoffd_evidence::note::{Note, PublicKey, TreeHead};
use handoffd_evidence::verify::{LogDefect, TrustedHead, VerificationReport};
use handoffd_store::store::{Store, StoreError};
use handoffd_verify::{read_tree_heads, verify_file};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A bundle, an exported log or a receipt to verify offline instead of the database
    #[arg(conflicts_with_all = ["tenant", "log_only"])]
    file: Option<PathBuf>,
    /// Only this tenant's log
    #[arg(long)]
    tenant: Option<TenantId>,
    /// A file with tree heads kept elsewhere (signed notes, one after the other): the log must agree. Without one, the newest
    /// heads in the folders of `audit.publish` count
    #[arg(long, value_name = "FILE")]
    tree_head: Vec<PathBuf>,
    /// A public key that signs tree heads, as name+hash+base64; without one, those of the database count,
    /// which someone who rewrote it may have replaced
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    key: Vec<PublicKey>,
    /// Check the log alone, and not whether handoffs and checkpoints agree with it
    #[arg(long)]
    log_only: bool,
}

/// Verifies; prints a report for each log.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let notes = match args
        .tree_head
        .iter()
        .map(|path| read_tree_heads(path))
        .collect::<Result<Vec<_>, _>>()
    {
        Ok(notes) => notes.concat(),
        Err(why) => {
            eprintln!("handoffd: {why}");
            return Exit::Unreachable;
        }
    };
    if let Some(path) = &args.file {
        let options = VerifyOptions { keys: args.key, tree_heads: notes };
        return verify_offline(path, &options, output);
    }
    // Read before the database: each head in them was signed over records that were committed before.
    let kept = match args.tree_head.is_empty().then(|| kept_heads(&config)).transpose() {
        Ok(kept) => kept.unwrap_or_default(),
        Err(why) => {
            eprintln!("handoffd: {why}");
            return Exit::Unreachable;
        }
    };
    let reports = async {
        let archive = open_archive(&config)?;
        let store = open_store(&config, Access::Beside).await?;
        let contents = archive.contents(Arc::clone(&store));
        let vault = if args.log_only { None } else { known_vault(&config, &store).await? };
        let reports = verify_all(&store, (&contents, vault), &args, (&notes, kept)).await;
        store.close().await;
        reports
    }
    .await;
    match reports {
        Ok(report) => show(&report, output),
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}

/// Verifies a bundle, an exported log or a receipt: no settings, no database, no network.
fn verify_offline(path: &Path, options: &VerifyOptions, output: Output) -> Exit {
    let bar = progress_bar();
    let report = verify_file(path, options, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        Err(err) => {
            eprintln!("handoffd: {err}");
            return Exit::Unreachable;
        }
    };
    let text = match output {
        Output::Json => report.json.to_string(),
        Output::Text => report.text,
    };
    answer(&text, if report.ok { Exit::Success } else { Exit::No })
}

/// Verifies the logs of a store, without external tree heads.
///
/// # Errors
/// The store cannot be read.
pub(super) async fn verify_store(
    store: &Arc<Store>,
    contents: &Contents,
) -> Result<Vec<(TenantId, VerificationReport)>, ArchiveError> {
    let mut reports = Vec::new();
    for tenant in store.list_named_tenants().await? {
        let check = LogCheck { contents: Some(contents), ..LogCheck::default() };
        let report = verify_log(store, &tenant, check).await?;
        reports.push((tenant, report));
    }
    Ok(reports)
}

/// A tree head kept beside the database, and its file.
type KeptHead = (PathBuf, (Note, TreeHead));

/// The newest head of each log in the folders that the settings name.
fn kept_heads(config: &Config) -> Result<Vec<KeptHead>, String> {
    let mut heads = Vec::new();
    for folder in witness::folders(config) {
        for (_, path) in witness::latest(&folder).map_err(|err| err.to_string())? {
            heads.extend(read_tree_heads(&path)?.into_iter().map(|head| (path.clone(), head)));
        }
    }
    Ok(heads)
}

/// The result of verifying a database.
struct DatabaseReport {
    logs: Vec<(TenantId, VerificationReport)>,
    /// Files with kept tree heads that were compared without being named on the command line.
    kept: Vec<PathBuf>,
    /// A tenant without a log, or a given key or tree head that is of none of the logs.
    first_fault: Option<BundleDefect>,
}

async fn verify_all(
    store: &Store,
    (contents, vault): (&Contents, Option<Vault>),
    args: &Args,
    (given, mut kept): (&[(Note, TreeHead)], Vec<KeptHead>),
) -> Result<DatabaseReport, ArchiveError> {
    let state = store.inspect().await?;
    if state.pending > 0 {
        let why = format!(
            "an earlier release made this database, and {} migrations are to be applied: run `handoffd migrate` first \
             (it changes no record), then verify",
            state.pending
        );
        return Err(StoreError::Refused(why).into());
    }
    if let Some(tenant) = &args.tenant {
        // Those of other tenants' logs are not asked for.
        let log = store.find_head(tenant).await?.map(|head| head.log_id);
        kept.retain(|(_, (_, head))| head.origin.rsplit('/').next() == log.as_deref());
    }
    let (kept, beside): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
    let notes = [given, &beside[..]].concat();
    let mut met = vec![false; notes.len()];
    let (mut logs, mut headless) = (Vec::new(), None);
    let asked = match &args.tenant {
        Some(_) => tenants(store, args.tenant.as_ref()).await?,
        None => store.list_named_tenants().await?,
    };
    for tenant in asked {
        let Some(head) = store.find_head(&tenant).await? else {
            let detail = format!("there are rows of tenant {tenant}, and no log");
            headless.get_or_insert(BundleDefect { leaf_index: None, fault: "log", detail });
            continue;
        };
        let (mut heads, mut forged) = (Vec::new(), None);
        for ((note, stated), met) in notes.iter().zip(&mut met) {
            if stated.origin.rsplit('/').next() != Some(head.log_id.as_str()) {
                continue;
            }
            *met = true;
            match signed(store, args, note, stated).await? {
                Ok(()) => heads.push(TrustedHead { size: stated.size, root: stated.root }),
                Err(why) => forged = Some(why),
            }
        }
        let bar = progress_bar();
        let check = LogCheck {
            contents: Some(contents),
            heads,
            state: !args.log_only,
            rows: !args.log_only,
            vault: vault.as_ref(),
            progress: &|done, total| {
                bar.set_length(total);
                bar.set_position(done);
            },
        };
        let mut report = verify_log(store, &tenant, check).await?;
        bar.finish_and_clear();
        if let (None, Some(detail)) = (&report.first_fault, forged) {
            let leaf_index = head.size;
            report.first_fault = Some(LogDefect { leaf_index, fault: "signature", detail });
        }
        logs.push((tenant, report));
    }
    let foreign = notes.iter().zip(met).find(|(_, met)| !met).map(|((_, stated), _)| {
        let detail =
            format!("a kept tree head is of log {}, and not of one verified here", stated.origin);
        BundleDefect { leaf_index: None, fault: "foreign", detail }
    });
    let unguarded = state.unguarded.first().map(|detail| {
        let detail = format!("{detail}: the database no longer refuses changes of the log");
        BundleDefect { leaf_index: None, fault: "unguarded", detail }
    });
    let first_fault = match headless.or(foreign) {
        Some(fault) => Some(fault),
        None => check_keys(store, &args.key).await?.or(unguarded),
    };
    Ok(DatabaseReport { logs, kept, first_fault })
}

/// Checks that the database has the log of each given key, and has the key among those that sign or signed.
async fn check_keys(store: &Store, keys: &[PublicKey]) -> Result<Option<BundleDefect>, StoreError> {
    let known = store.list_tree_keys().await?;
    for key in keys {
        let log = key.name().rsplit('/').next().unwrap_or_default();
        let (fault, detail) = if store.find_log(log).await?.is_none() {
            ("foreign", format!("the given key {key} is of a log that this database does not have"))
        } else if known.iter().all(|known| known.public != key.bytes()) {
            ("keys", format!("the given key {key} is none of this database's keys"))
        } else {
            continue;
        };
        return Ok(Some(BundleDefect { leaf_index: None, fault, detail }));
    }
    Ok(None)
}

/// Whether one of the given keys signed it, or, where none is given, one that the database names.
async fn signed(
    store: &Store,
    args: &Args,
    note: &Note,
    stated: &TreeHead,
) -> Result<Result<(), String>, StoreError> {
    let mut keys: Vec<_> =
        args.key.iter().filter(|key| key.name() == stated.origin).cloned().collect();
    if args.key.is_empty() {
        let known = store.list_tree_keys().await?;
        keys.extend(known.iter().filter_map(|key| PublicKey::new(&stated.origin, &key.public)));
    }
    let judged: Vec<_> = keys.iter().map(|key| note.verify(key)).collect();
    if judged.iter().any(Result::is_ok) {
        return Ok(Ok(()));
    }
    let why = judged
        .into_iter()
        .find_map(Result::err)
        .map_or_else(|| format!("no key of {} was given", stated.origin), |err| err.to_string());
    Ok(Err(format!("the tree head of {} records: {why}", stated.size)))
}

/// A progress bar, drawn only on a terminal.
pub(super) fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:32} {pos}/{len} records, {per_sec}, {eta} left";
    ProgressBar::new(0).with_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

fn show(report: &DatabaseReport, output: Output) -> Exit {
    let DatabaseReport { logs, kept, first_fault } = report;
    let ok = first_fault.is_none() && logs.iter().all(|(_, log)| log.first_fault.is_none());
    let text = match output {
        Output::Json => {
            let logs: Vec<_> = logs
                .iter()
                .map(|(tenant, report)| json!({ "tenant": tenant, "report": report }))
                .collect();
            let mut said = json!({ "ok": ok, "logs": logs });
            if !kept.is_empty() {
                said["keptTreeHeads"] = json!(kept);
            }
            if let Some(fault) = first_fault {
                said["firstFault"] = json!(fault);
            }
            said.to_string()
        }
        Output::Text => {
            let mut lines: Vec<_> = logs.iter().map(|(tenant, log)| told(tenant, log)).collect();
            for path in kept {
                lines.push(format!("compared with the tree head kept in {}", path.display()));
            }
            if let Some(BundleDefect { fault, detail, .. }) = first_fault {
                lines.push(format!("FAILED: {fault}: {detail}"));
            }
            if lines.is_empty() {
                lines.push("no log yet".to_owned());
            }
            lines.join("\n")
        }
    };
    answer(&text, if ok { Exit::Success } else { Exit::No })
}

fn told(tenant: &TenantId, report: &VerificationReport) -> String {
    let log = &report.log_id;
    if let Some(fault) = &report.first_fault {
        let (at, what, detail) = (fault.leaf_index, fault.fault, &fault.detail);
        return format!("FAILED: tenant {tenant}, log {log}: record {at}: {what}: {detail}");
    }
    let erased = match report.erased {
        0 => String::new(),
        count => format!(" ({count} erased)"),
    };
    let met = match report.tree_heads {
        0 => String::new(),
        count => format!(", {count} saved tree heads matched"),
    };
    let rows = match (report.committed_rows, report.uncommitted_rows) {
        (0, 0) => String::new(),
        (committed, 0) => format!(", {committed} rows as committed"),
        (committed, other) => format!(", {committed} rows as committed and {other} not committed"),
    };
    let secrets = match report.secrets_not_compared {
        0 => String::new(),
        count => format!(", secrets of {count} rows not compared (that takes the master key)"),
    };
    format!(
        "ok: tenant {tenant}, log {log}: {} records, {} contents{erased}{rows}{secrets}{met}, head {}",
        report.records,
        report.contents,
        report.head.as_deref().unwrap_or("none"),
    )
}
