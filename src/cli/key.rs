//! `handoffd key`: keys straight from the database. API keys for the first key of a tenant or when all
//! are lost; and the key that signs tree heads.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::beside::LocalLedger;
use super::{Exit, Output};
use crate::app::{Access, tree_key};
use handoffd_broker::config::Config;
use handoffd_broker::ledger::command::{Kind, content};
use handoffd_broker::vault::{hash_api_key, new_api_key};
use handoffd_core::domain::canonical;
use handoffd_core::domain::ids::{AgentId, TenantId};
use handoffd_store::clock::{self, Clock, SystemClock};
use handoffd_store::store::{KeyRow, Role};

#[derive(Debug, Subcommand)]
pub(super) enum Commands {
    /// Make an API key and print it, this once
    Create(CreateArgs),
    /// Make the configured key the one that signs tree heads; print the public key of each log
    TreeHead(TreeHeadArgs),
}

/// `handoffd key tree-head`.
#[derive(Debug, ClapArgs)]
pub(super) struct TreeHeadArgs {
    /// Make a new key first: tree-head.key in the data directory is replaced, the old one kept beside it
    #[arg(long)]
    new: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct CreateArgs {
    /// What the key may do: agent, operator, auditor or admin
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
    Role::parse(text).ok_or_else(|| "must be agent, operator, auditor or admin".to_owned())
}

/// Makes a key, or settles which one signs tree heads.
pub(super) async fn run(command: Commands, config: Config, output: Output) -> Exit {
    let done = match command {
        Commands::Create(args) if (args.role == Role::Agent) != args.agent.is_some() => {
            eprintln!("handoffd: --agent goes with --role agent, and only with it");
            return Exit::Usage;
        }
        Commands::Create(args) => create(args, &config).await.map(|(row, key)| match output {
            Output::Text => println!("{key}"),
            Output::Json => println!(
                "{}",
                json!({ "keyId": row.key_id, "tenant": row.tenant, "role": row.role, "apiKey": key })
            ),
        }),
        Commands::TreeHead(args) => tree_head(&args, &config).await.map(|keys| match output {
            Output::Text => keys.iter().for_each(|(tenant, key)| println!("{tenant}\t{key}")),
            Output::Json => {
                let keys: Vec<_> =
                    keys.iter().map(|(tenant, key)| json!({ "tenant": tenant, "key": key })).collect();
                println!("{}", json!({ "keys": keys }));
            }
        }),
    };
    match done {
        Ok(()) => Exit::Success,
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

fn text(err: &dyn std::fmt::Display) -> String {
    err.to_string()
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
    let key = new_api_key();
    let row = KeyRow {
        tenant: tenant.clone(),
        key_id: format!("key_{}", clock::time_ordered_id(now).simple()),
        hash: hash_api_key(&key),
        role: args.role,
        agent: args.agent,
        label: args.label,
        created_at: now,
        expires_at: None,
    };
    bench.handle(tenant, now, Kind::CreateKey(Box::new(row.clone()))).await?;
    bench.close().await;
    Ok((row, key.to_string()))
}

/// Settles the configured key as the one that signs; where that is a change, every log says so.
async fn tree_head(
    args: &TreeHeadArgs,
    config: &Config,
) -> Result<Vec<(TenantId, String)>, String> {
    if args.new {
        set_aside(config)?;
    }
    let notary = tree_key(config).map_err(|err| text(&err))?;
    let bench = LocalLedger::open(config, Access::Create).await?;
    let store = &bench.store;
    let now = SystemClock::default().now();
    let public = notary.public_bytes();
    let known = store.list_tree_keys().await.map_err(|err| text(&err))?;
    let retired: Vec<_> = known
        .iter()
        .filter(|key| key.retired_at.is_none() && key.public != public)
        .map(|key| key.public)
        .collect();
    if known.iter().any(|key| key.public == public && key.retired_at.is_some()) {
        return Err("this key was retired, and does not come back: make a new one".to_owned());
    }
    let mut keys = Vec::new();
    for tenant in store.list_tenants().await.map_err(|err| text(&err))? {
        let head = store.find_head(&tenant).await.map_err(|err| text(&err))?;
        let Some(head) = head else { continue };
        let name = |key: Option<&[u8; 32]>| {
            notary.public(&head.log_id, key).map(|key| key.to_string()).unwrap_or_default()
        };
        if !retired.is_empty() {
            let retired: Vec<_> = retired.iter().map(|key| name(Some(key))).collect();
            let said = json!({ "treeHeadKey": name(None), "retired": retired });
            let said = content(&canonical::to_vec(&said), now);
            bench.handle(tenant.clone(), now, Kind::ChangeTreeKey(said)).await?;
        }
        keys.push((tenant, name(None)));
    }
    store.settle_tree_key(&public, now, true).await.map_err(|err| text(&err))?;
    bench.close().await;
    Ok(keys)
}

/// Renames the key's file after the key, so that the next one is made anew and the old one can still be
/// found.
fn set_aside(config: &Config) -> Result<(), String> {
    if !config.audit.signing_key.is_empty() {
        return Err("the key is set in audit.signing_key: set the new one there".to_owned());
    }
    let path = config.tree_key_file();
    if !path.exists() {
        return Ok(());
    }
    let old = hex::encode(&tree_key(config).map_err(|err| text(&err))?.public_bytes()[..4]);
    std::fs::rename(&path, path.with_extension(format!("key.{old}"))).map_err(|err| text(&err))
}
