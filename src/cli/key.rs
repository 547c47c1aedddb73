//! `handoffd key`: keys straight from the database. API keys for the first key of a tenant or when all
//! are lost; and the key that signs tree heads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::answer::answer;
use super::beside::LocalLedger;
use super::{Exit, Output};
use crate::app::{Access, change_master_key, settle_notary, tree_key};
use handoffd_broker::administration::keys::{NewKey, new_key};
use handoffd_broker::config::Config;
use handoffd_broker::ledger::command::content;
use handoffd_broker::ledger::commands::{ChangeMasterKey, ChangeTreeKey, CreateKey};
use handoffd_domain::canonical;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_evidence::receipt::Notary;
use handoffd_evidence::record::RecordKind;
use handoffd_store::clock::{self, Clock, SystemClock};
use handoffd_store::store::{KeyRow, Role, Store};

#[derive(Debug, Subcommand)]
pub(super) enum Commands {
    /// Make an API key and print it, this once
    Create(CreateArgs),
    /// Print the public key of each log that signs its tree heads, or change it
    TreeHead(TreeHeadArgs),
    /// Seal everything under a new master key, with all brokers stopped
    Master(MasterArgs),
}

/// `handoffd key master`.
#[derive(Debug, ClapArgs)]
pub(super) struct MasterArgs {
    /// Change the key: master.key (in auth.keys_dir, else the data directory) is replaced by a new one, the old one kept beside it.
    /// A run that is ended in between is continued by the next
    #[arg(long, required = true)]
    new: bool,
    /// If auth.master_key is set: the file for the new key, made if it is missing; set it there afterwards
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// `handoffd key tree-head`.
#[derive(Debug, ClapArgs)]
pub(super) struct TreeHeadArgs {
    /// Change the key, with the brokers stopped: tree-head.key (in auth.keys_dir, else the data directory) is replaced by a new
    /// one, the old one kept beside it; where audit.signing_key is set, the key there is the new one
    #[arg(long)]
    new: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct CreateArgs {
    /// Role of the key: agent, operator, operator-metadata, auditor or admin
    #[arg(long, value_parser = role)]
    role: Role,
    /// The tenant; made where there is none
    #[arg(long)]
    tenant: Option<TenantId>,
    /// The agent, for role agent
    #[arg(long)]
    agent: Option<AgentId>,
    /// For people
    #[arg(long, default_value = "made with handoffd key create")]
    label: String,
}

fn role(text: &str) -> Result<Role, String> {
    let names = || Role::ALL.map(Role::as_str).join(", ");
    Role::parse(text).ok_or_else(|| format!("must be one of {}", names()))
}

/// Makes an API key; prints or changes the key that signs tree heads.
pub(super) async fn run(command: Commands, config: Config, output: Output) -> Exit {
    let done = match command {
        Commands::Create(args) if (args.role == Role::Agent) != args.agent.is_some() => {
            eprintln!("handoffd: --agent goes with --role agent, and only with it");
            return Exit::Usage;
        }
        Commands::Create(args) => create(args, &config).await.map(|(row, key)| match output {
            Output::Text => key,
            Output::Json => {
                json!({ "keyId": row.key_id, "tenant": row.tenant, "role": row.role, "apiKey": key })
                    .to_string()
            }
        }),
        Commands::TreeHead(args) => tree_head(&args, &config).await.map(|keys| match output {
            Output::Text => {
                let lines = keys.iter().map(|(tenant, key)| format!("{tenant}\t{key}\n"));
                lines.collect::<Vec<_>>().concat()
            }
            Output::Json => {
                let keys: Vec<_> =
                    keys.iter().map(|(tenant, key)| json!({ "tenant": tenant, "key": key })).collect();
                json!({ "keys": keys }).to_string()
            }
        }),
        Commands::Master(args) => master(&args, &config).await.map(|(id, resealed)| match output {
            Output::Text => match resealed {
                Some(count) => format!("master key {id}: {count} values are sealed under it"),
                None => format!("master key {id}: a change that was not ended is ended"),
            },
            Output::Json => json!({ "masterKey": id, "resealed": resealed }).to_string(),
        }),
    };
    match done {
        Ok(text) => answer(&text, Exit::Success),
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

fn text(err: &dyn std::fmt::Display) -> String {
    err.to_string()
}

/// Seals everything under a new master key: the transaction first, then the records, then the files. If a run ends in
/// between, the next one finds the database with the new key and goes on from there.
async fn master(args: &MasterArgs, config: &Config) -> Result<(String, Option<u64>), String> {
    // On SQLite its lock refuses a change beside a broker.
    let bench = LocalLedger::open(config, Access::Serve).await?;
    let done = async {
        nobody_serves(&bench.store, config).await?;
        let change = change_master_key(config, &bench.store, args.to.as_deref());
        let change = change.await.map_err(|err| text(&err))?;
        let now = SystemClock::default().now();
        for (tenant, _) in logs(&bench.store).await? {
            if change.resealed.is_none() && says_so_already(&bench.store, &tenant).await? {
                continue;
            }
            let said = content(&canonical::to_vec(&json!({ "masterKey": change.id })), now);
            bench.handle(tenant, now, ChangeMasterKey { content: said }).await?;
        }
        change.replace_files().map_err(|err| {
            format!("the database has the new key, and the file still the old one ({err}): run this again")
        })?;
        Ok((change.id, change.resealed))
    }
    .await;
    bench.close().await;
    done
}

/// Whether the log's last record is a change of the master key: a run that was ended before the files wrote it.
async fn says_so_already(store: &Store, tenant: &TenantId) -> Result<bool, String> {
    let head = store.find_head(tenant).await.map_err(|err| text(&err))?;
    let Some(head) = head.filter(|head| head.size > 0) else { return Ok(false) };
    let last = store.list_records(tenant, None, head.size - 1, 1, false).await;
    let last = last.map_err(|err| text(&err))?;
    Ok(last.iter().any(|record| record.kind == RecordKind::MasterKeyChanged.as_str()))
}

/// Refuses where another broker shows that it lives: it would go on with the old key.
async fn nobody_serves(store: &Store, config: &Config) -> Result<(), String> {
    let beats = async || store.list_heartbeats().await.map_err(|err| text(&err));
    let first = beats().await?;
    if first.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(Duration::from_millis(config.delivery.broker_timeout_ms)).await;
    let alive = beats().await?.into_iter().find(|beat| !first.contains(beat));
    match alive {
        Some((broker, _)) => Err(format!("broker {broker} is serving: stop all brokers first")),
        None => Ok(()),
    }
}

async fn create(args: CreateArgs, config: &Config) -> Result<(KeyRow, String), String> {
    let bench = LocalLedger::open(config, Access::Create).await?;
    let now = SystemClock::default().now();
    let tenant = args.tenant.unwrap_or_else(|| config.auth.tenant.clone());
    bench
        .store
        .ensure_tenant(&tenant, &clock::random_id().to_string(), now)
        .await
        .map_err(|err| text(&err))?;
    if let Some(agent) = &args.agent {
        let known = bench.store.list_agents(&tenant).await.map_err(|err| text(&err))?;
        if !known.iter().any(|row| row.agent.agent_id == *agent) {
            return Err(format!("tenant {tenant} has no agent {agent}"));
        }
    }
    let CreateArgs { role, agent, label, .. } = args;
    let wish = NewKey { role, agent, label, expires_at: None };
    let (row, key) = new_key(tenant.clone(), wish, now);
    bench.handle(tenant, now, CreateKey { row: row.clone() }).await?;
    bench.close().await;
    Ok((row, key.to_string()))
}

/// The public key of each log, by tenant; with `--new` after the change to another key.
async fn tree_head(
    args: &TreeHeadArgs,
    config: &Config,
) -> Result<Vec<(TenantId, String)>, String> {
    // A broker signs with the key that it read at its start. On SQLite its lock refuses a change beside it.
    let access = if args.new { Access::Serve } else { Access::Create };
    let bench = LocalLedger::open(config, access).await?;
    let keys = async {
        let now = SystemClock::default().now();
        let notary = if args.new {
            change_key(&bench, config, now).await?
        } else {
            settle_notary(config, &bench.store, now).await.map_err(|err| text(&err))?
        };
        let mut keys = Vec::new();
        for (tenant, log) in logs(&bench.store).await? {
            keys.push((tenant, public(&notary, &log, None)));
        }
        Ok(keys)
    }
    .await;
    bench.close().await;
    keys
}

/// Makes another key the one that signs; every log records the change. The files change last: a run that ends
/// before leaves the new key beside the old one, and the next run continues with it.
async fn change_key(bench: &LocalLedger, config: &Config, now: Micros) -> Result<Notary, String> {
    let of_file = config.audit.signing_key.is_empty();
    let (file, next) = (config.tree_key_file(), config.tree_key_file().with_extension("key.new"));
    let old = (of_file && file.exists()).then(|| tree_key(config, &file));
    let old = old.transpose().map_err(|err| text(&err))?;
    let store = &bench.store;
    let known = store.list_tree_keys().await.map_err(|err| text(&err))?;
    let notary = tree_key(config, &next).map_err(|err| text(&err))?;
    let new = notary.public_bytes();
    let own = known.iter().find(|key| key.public == new);
    if own.is_some_and(|key| key.retired_at.is_some()) {
        return Err("this key was retired, and does not come back: make a new one".to_owned());
    }
    if own.is_some() && !of_file {
        return Err("the key in audit.signing_key signs already: set the new one there".to_owned());
    }
    let retired: Vec<_> = known
        .iter()
        .filter(|key| key.retired_at.is_none() && key.public != new)
        .map(|key| key.public)
        .collect();
    if let ([current], None) = (&retired[..], own) {
        // Changes nothing. Who may not change keys learns it here, before any log says that they changed.
        store.settle_tree_key(current, now, true).await.map_err(|err| text(&err))?;
    }
    if !retired.is_empty() {
        for (tenant, log) in logs(store).await? {
            let retired: Vec<_> =
                retired.iter().map(|key| public(&notary, &log, Some(key))).collect();
            let said = json!({ "treeHeadKey": public(&notary, &log, None), "retired": retired });
            let said = content(&canonical::to_vec(&said), now);
            bench.handle(tenant, now, ChangeTreeKey { content: said }).await?;
        }
    }
    store.settle_tree_key(&new, now, true).await.map_err(|err| text(&err))?;
    if of_file {
        replace(&file, &next, old.as_ref()).map_err(|err| {
            let (file, next) = (file.display(), next.display());
            format!(
                "the logs have the new key, and {file} still the old one: move {next} there: {err}"
            )
        })?;
    }
    Ok(notary)
}

/// Puts the new key's file in the place of the old one, which stays under a name of its own.
fn replace(file: &Path, next: &Path, old: Option<&Notary>) -> std::io::Result<()> {
    if let Some(old) = old {
        let name = format!("key.{}", hex::encode(&old.public_bytes()[..4]));
        std::fs::copy(file, file.with_extension(name))?;
    }
    std::fs::rename(next, file)
}

/// The id of each tenant's log.
async fn logs(store: &Store) -> Result<Vec<(TenantId, String)>, String> {
    let mut logs = Vec::new();
    for tenant in store.list_tenants().await.map_err(|err| text(&err))? {
        if let Some(head) = store.find_head(&tenant).await.map_err(|err| text(&err))? {
            logs.push((tenant, head.log_id));
        }
    }
    Ok(logs)
}

/// A public key under a log's origin; the notary's own unless given.
fn public(notary: &Notary, log: &str, key: Option<&[u8; 32]>) -> String {
    notary.public(log, key).map(|key| key.to_string()).unwrap_or_default()
}
