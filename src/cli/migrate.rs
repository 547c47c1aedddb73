use clap::Args as ClapArgs;

use super::answer::answer;
use super::{Exit, Output};
use crate::app::{Access, open_store};
use handoffd_broker::config::Config;
use handoffd_store::store::StoreError;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Postgres: make this role, and let it serve: it may add to the log and read it, and do no more to it.
    /// Again after each upgrade: new tables need new rights
    #[arg(long, value_name = "NAME")]
    serving_role: Option<String>,
}

/// Applies the migrations, and gives the serving role its rights.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let role = args.serving_role.as_deref();
    if role.is_some() && !config.database_url().starts_with("postgres") {
        eprintln!("handoffd: --serving-role is for Postgres: SQLite has no roles");
        return Exit::Usage;
    }
    match migrate(&config, role).await {
        Ok(new) => answer(&said(new, role, output), Exit::Success),
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}

async fn migrate(config: &Config, role: Option<&str>) -> Result<usize, StoreError> {
    let store = open_store(config, Access::Create).await?;
    let new = store.migrate().await?;
    if let Some(role) = role {
        store.grant_serving(role).await?;
    }
    store.close().await;
    Ok(new)
}

fn said(new: usize, role: Option<&str>, output: Output) -> String {
    if output == Output::Json {
        return serde_json::json!({ "applied": new, "servingRole": role }).to_string();
    }
    let applied = match new {
        0 => "the database is up to date".to_owned(),
        _ => format!("{new} migrations applied"),
    };
    match role {
        Some(role) => format!("{applied}\nthe role {role} may serve"),
        None => applied,
    }
}
