//! The composition root: from settings to a running broker. `start.rs` has the steps in order.

mod background;
mod files;
mod parts;
mod secrets;
mod settings;
mod start;
mod stop;
mod store;
mod transports;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::Api;
use handoffd_broker::vault::VaultError;
use handoffd_broker::witness::{KeptHeadError, Publisher};
use handoffd_store::store::{Store, StoreError};

pub use self::secrets::{
    FirstKey, change_master_key, known_vault, settle_notary, settle_vault, tree_key,
};
pub use self::settings::ledger_settings;
pub use self::start::{Beginning, start, start_beginning, start_with_mcp};
pub use self::store::{Access, open_archive, open_store};
pub use crate::http::docs::OPENAPI;

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is wrong.
    #[error("{0}")]
    Config(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The master key is not this database's.
    #[error("{0}")]
    Vault(String),
    /// The database does not fit the tree heads that are kept outside it.
    #[error(transparent)]
    Evidence(KeptHeadError),
    /// An address cannot be listened on, a file not written.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl From<VaultError> for StartError {
    fn from(err: VaultError) -> Self {
        Self::Vault(err.to_string())
    }
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Io { what, source }
}

/// A broker that serves.
pub struct Running {
    /// The address on which the API listens.
    pub address: SocketAddr,
    /// The address on which metrics are served, if it is another one.
    pub metrics_address: Option<SocketAddr>,
    /// The file of the first admin key, if this start made one.
    pub admin_key_file: Option<std::path::PathBuf>,
    api: Api,
    accepting: Arc<AtomicBool>,
    /// Ends long polls, waits and everything in the background.
    stopping: CancellationToken,
    /// Ends the listeners.
    closing: CancellationToken,
    servers: TaskTracker,
    background: TaskTracker,
    attempts: TaskTracker,
    workers: TaskTracker,
    witness: Arc<Publisher>,
    store: Arc<Store>,
    broker: String,
}
