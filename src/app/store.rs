//! Opening the store and the archive that the settings name.

use std::sync::Arc;
use std::time::Duration;

use handoffd_broker::archive::{Archive, ArchiveError};
use handoffd_broker::config::{Config, DatabaseKind};
use handoffd_store::store::postgres::{PostgresOptions, PostgresStore};
use handoffd_store::store::sqlite::{SqliteOptions, SqliteStore};
use handoffd_store::store::{Store, StoreError};

/// How a store is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As the broker: alone on a SQLite file, made where there is none.
    Serve,
    /// As a command beside a broker.
    Beside,
    /// As a command that may make the database.
    Create,
}

/// Opens the store that the settings name.
///
/// # Errors
/// [`StoreError`], with what to do.
pub async fn open_store(config: &Config, access: Access) -> Result<Arc<Store>, StoreError> {
    let url = config.database_url();
    match DatabaseKind::of(&url) {
        Some(DatabaseKind::Postgres) => {
            let audit_url = Some(config.audit.database_url.clone()).filter(|url| !url.is_empty());
            let options = PostgresOptions {
                audit_url,
                max_connections: config.database.max_connections,
                acquire_timeout: Duration::from_millis(config.database.acquire_timeout_ms),
            };
            Ok(Arc::new(PostgresStore::open(&url, options).await?.into()))
        }
        Some(DatabaseKind::Sqlite) => {
            let mut options = match access {
                Access::Serve => SqliteOptions::serving(),
                Access::Beside => SqliteOptions::beside(),
                Access::Create => SqliteOptions { create: true, ..SqliteOptions::beside() },
            };
            options.rewrite_limit = config.erasure.rewrite_limit_mib.saturating_mul(1 << 20);
            Ok(Arc::new(SqliteStore::open(&url, options).await?.into()))
        }
        None => Err(StoreError::Refused(
            "database.url must begin with sqlite: or postgres://".to_owned(),
        )),
    }
}

/// The archive that the settings name; credentials come from the process's environment.
///
/// # Errors
/// [`ArchiveError::Config`] where the settings cannot be.
pub fn open_archive(config: &Config) -> Result<Archive, ArchiveError> {
    Archive::new(config, std::env::vars())
}
