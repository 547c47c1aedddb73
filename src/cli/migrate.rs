//! `handoffd migrate`.

use super::{Exit, Output};
use crate::app::{Access, open_store};
use crate::config::Config;

/// Applies the migrations.
pub(super) async fn run(config: Config, output: Output) -> Exit {
    let outcome = async {
        let store = open_store(&config, Access::Create).await?;
        let new = store.migrate().await?;
        store.close().await;
        Ok::<_, crate::store::StoreError>(new)
    }
    .await;
    match outcome {
        Ok(new) => {
            match output {
                Output::Text if new == 0 => println!("the database is up to date"),
                Output::Text => println!("{new} migrations applied"),
                Output::Json => println!("{}", serde_json::json!({ "applied": new })),
            }
            Exit::Well
        }
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}
