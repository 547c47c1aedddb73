//! `handoffd key create`: keys straight from the database, for the first key of a tenant or when all
//! are lost.

use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::{Exit, Output};
use crate::app::{Access, ledger_settings, open_store};
use crate::clock::{self, Clock, SystemClock};
use crate::config::Config;
use crate::domain::ids::{AgentId, TenantId};
use crate::evidence::record::Actor;
use crate::ledger::command::{Command, Kind};
use crate::ledger::{Ledger, Outbound};
use crate::metrics::Metrics;
use crate::store::{Claim, KeyRow, Receiver, Role};
use crate::vault::{hash_api_key, new_api_key};

/// `handoffd key …`.
#[derive(Debug, Subcommand)]
pub(super) enum Commands {
    /// Make a key and print it, this once
    Create(CreateArgs),
}

/// `handoffd key create`.
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

/// Nothing is delivered from here.
struct Nowhere;

impl Outbound for Nowhere {
    fn reserve(&self, _: &Receiver) -> bool {
        false
    }
    fn deliver(&self, _: Claim) {}
    fn release(&self, _: &Receiver) {}
    fn nudge(&self, _: &Receiver) {}
    fn nudge_all(&self) {}
}

/// Makes a key.
pub(super) async fn run(command: Commands, config: Config, output: Output) -> Exit {
    let Commands::Create(args) = command;
    if (args.role == Role::Agent) != args.agent.is_some() {
        eprintln!("handoffd: --agent goes with --role agent, and only with it");
        return Exit::Usage;
    }
    match create(args, &config).await {
        Ok((row, key)) => {
            match output {
                Output::Text => println!("{key}"),
                Output::Json => println!(
                    "{}",
                    json!({ "keyId": row.key_id, "tenant": row.tenant, "role": row.role, "apiKey": key })
                ),
            }
            Exit::Well
        }
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

async fn create(args: CreateArgs, config: &Config) -> Result<(KeyRow, String), String> {
    let text = |err: &dyn std::fmt::Display| err.to_string();
    let store = open_store(config, Access::Create).await.map_err(|err| text(&err))?;
    store.migrate().await.map_err(|err| text(&err))?;
    let now = SystemClock::default().now();
    let tenant = args.tenant.unwrap_or_else(|| config.auth.tenant.clone());
    store
        .ensure_tenant(&tenant, &clock::random_id().to_string(), now)
        .await
        .map_err(|err| text(&err))?;
    if let Some(agent) = &args.agent {
        let known = store.list_agents(&tenant).await.map_err(|err| text(&err))?;
        if !known.iter().any(|row| row.agent.agent_id == *agent) {
            return Err(format!("tenant {tenant} has no agent {agent}"));
        }
    }
    let metrics = Arc::new(Metrics::new().map_err(|err| text(&err))?);
    let tracker = TaskTracker::new();
    let ledger = Ledger::start(
        Arc::clone(&store),
        Arc::new(Nowhere),
        metrics,
        ledger_settings(config),
        "key-create".to_owned(),
        &tracker,
    );
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
    let command = Command {
        tenant,
        at: now,
        actor: Actor { role: "operator".to_owned(), agent_id: None, key_id: None },
        kind: Kind::CreateKey(Box::new(row.clone())),
    };
    ledger.handle(command).await.map_err(|err| text(&err))?;
    ledger.close();
    tracker.close();
    tracker.wait().await;
    store.close().await;
    Ok((row, key.to_string()))
}
