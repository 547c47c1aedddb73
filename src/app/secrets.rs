//! The keys of a broker: configured, or made at the first start.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{StartError, io};
use crate::http::once::answer_place;
use handoffd_broker::config::Config;
use handoffd_broker::ledger::Ledger;
use handoffd_broker::ledger::command::Call;
use handoffd_broker::ledger::commands::CreateKey;
use handoffd_broker::vault::{AgentSecrets, Vault, VaultError, hash_api_key, new_api_key};
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::note::Signer;
use handoffd_evidence::receipt::Notary;
use handoffd_evidence::record::Actor;
use handoffd_store::clock;
use handoffd_store::store::sqlite::private_folder;
use handoffd_store::store::{KeyRow, Role, Sealed, Store, StoreError};

/// The shortest secret that a file may hold: what is shorter was cut off, or never a secret.
const MIN_SECRET: usize = 24;

/// Reads a secret file, or makes it with mode 0600: whole or not at all, so that a crash in between
/// leaves no empty secret behind.
fn secret_file(
    path: &Path,
    make: impl FnOnce() -> zeroize::Zeroizing<String>,
) -> Result<(zeroize::Zeroizing<String>, bool), StartError> {
    use std::io::Write;
    let what = || path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().len() >= MIN_SECRET => {
            return Ok((zeroize::Zeroizing::new(text.trim().to_owned()), false));
        }
        Ok(_) => {
            return Err(StartError::Config(format!(
                "{} holds no secret of {MIN_SECRET} characters or more: restore it, or remove it to have a new one made",
                path.display()
            )));
        }
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
        Err(err) => return Err(io(what())(err)),
    }
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    private_folder(folder).map_err(io(folder.display().to_string()))?;
    let text = make();
    // A temporary file has mode 0600 from its first moment.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io(what()))?;
    writeln!(file, "{}", *text).and_then(|()| file.as_file().sync_all()).map_err(io(what()))?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok((text, true)),
        // Another broker was first: its secret counts.
        Err(err) if err.error.kind() == std::io::ErrorKind::AlreadyExists => {
            let text = std::fs::read_to_string(path).map_err(io(what()))?;
            Ok((zeroize::Zeroizing::new(text.trim().to_owned()), false))
        }
        Err(err) => Err(io(what())(err.error)),
    }
}

/// Name of the fact by which a database knows its master key.
const MASTER_KEY_CHECK: &str = "master-key-check";

/// Name of the fact that holds the keys derived from the first master key, sealed under the present one.
const DERIVED_KEYS: &str = "derived-keys";

/// Name of the file of the master key.
const MASTER_KEY: &str = "master.key";

/// The file of the next master key until everything is sealed under it.
fn next_master_key(file: &Path) -> PathBuf {
    file.with_extension("key.new")
}

/// A vault with the keys that were derived from the first master key, where it is not the first.
async fn with_derived(store: &Store, vault: Vault) -> Result<Vault, StartError> {
    match store.find_fact(DERIVED_KEYS).await? {
        Some(sealed) => Ok(vault.with_derived(&sealed)?),
        None => Ok(vault),
    }
}

/// A change of the master key.
pub struct MasterKeyChange {
    /// The name of the new key.
    pub id: String,
    /// Values that were sealed anew; none where an earlier run did that and was ended before the files.
    pub resealed: Option<u64>,
    /// If the key is in a file: the file that holds the new key from now on, and the one that keeps the old key.
    files: Option<(PathBuf, PathBuf, PathBuf)>,
}

/// Seals everything under a new master key, in one transaction. The new key is written to its file before. A run that ends in
/// between is continued by the next one.
///
/// # Errors
/// [`StartError`]: nothing was changed.
pub async fn change_master_key(
    config: &Config,
    store: &Store,
    to: Option<&Path>,
) -> Result<MasterKeyChange, StartError> {
    let of_file = config.auth.master_key.is_empty();
    let file = config.keys_dir().join(MASTER_KEY);
    let next = match (of_file, to) {
        (true, None) => next_master_key(&file),
        (false, Some(to)) => to.to_owned(),
        (true, Some(_)) => {
            let why = "the master key is in a file, and so is the new one: leave --to out";
            return Err(StartError::Config(why.to_owned()));
        }
        (false, None) => {
            let why =
                "the master key is in the settings: say with --to into which file the new one goes";
            return Err(StartError::Config(why.to_owned()));
        }
    };
    let present = if of_file {
        std::fs::read_to_string(&file).map_err(io(file.display().to_string()))?
    } else {
        config.auth.master_key.clone()
    };
    let present = Vault::from_base64(&zeroize::Zeroizing::new(present))?;
    let known = store.find_fact(MASTER_KEY_CHECK).await?.ok_or_else(|| {
        StartError::Vault(
            "this database has no master key yet: a start of the broker makes one".to_owned(),
        )
    })?;
    let (text, _) = secret_file(&next, Vault::new_master_key)?;
    let new = Vault::from_base64(&text)?;
    let old_file = file.with_extension(format!("key.{}", present.id()));
    let files = of_file.then_some((file, next, old_file));
    if new.accepts(&known) {
        return Ok(MasterKeyChange { id: new.id(), resealed: None, files });
    }
    if !present.accepts(&known) {
        let why =
            "this database was set up with another master key than the present one: give that one";
        return Err(StartError::Vault(why.to_owned()));
    }
    let present = with_derived(store, present).await?;
    let change = |tenant: &TenantId, sealed: Sealed<'_>| {
        let done = resealed(&present, &new, tenant, sealed);
        done.map_err(|err| StoreError::Refused(err.to_string()))
    };
    let facts =
        [(MASTER_KEY_CHECK, new.check_value()?), (DERIVED_KEYS, present.seal_derived(&new)?)];
    let count = store.change_seals(&change, &facts).await?;
    Ok(MasterKeyChange { id: new.id(), resealed: Some(count), files })
}

/// A value, sealed under another master key.
fn resealed(
    vault: &Vault,
    next: &Vault,
    tenant: &TenantId,
    sealed: Sealed<'_>,
) -> Result<Vec<u8>, VaultError> {
    let secrets = |owner: &str, text: &str| {
        let next = AgentSecrets::parse(text).resealed((vault, next), tenant, &owner)?;
        Ok(next.to_text().into_bytes())
    };
    match sealed {
        Sealed::Agent(id, text) | Sealed::Subscription(id, text) => secrets(id, text),
        Sealed::Answer(id, answer) => vault.reseal(next, &answer_place(tenant, id), answer),
    }
}

impl MasterKeyChange {
    /// Puts the new key's file in the place of the old one, which stays beside it under a name of its own: backups of the
    /// database need it.
    ///
    /// # Errors
    /// The files cannot be changed.
    pub fn replace_files(&self) -> std::io::Result<()> {
        let Some((file, next, old)) = &self.files else { return Ok(()) };
        if !old.exists() {
            std::fs::copy(file, old)?;
        }
        std::fs::rename(next, file)
    }
}

/// The master key: from the settings or from its file, and always the one this database knows. Made where neither has
/// one and the database is new.
///
/// # Errors
/// [`StartError::Vault`] where it is another, or missing though the database has one; a missing file stays missing.
pub async fn settle_vault(config: &Config, store: &Store) -> Result<Vault, StartError> {
    let vault = if config.auth.master_key.is_empty() {
        let path = config.keys_dir().join(MASTER_KEY);
        // A new one beside a database that was set up with another would look like its own from then on.
        if !path.exists() && store.find_fact(MASTER_KEY_CHECK).await?.is_some() {
            return Err(StartError::Vault(format!(
                "{} is missing, and this database was set up with a master key: put that file back, or give the key in \
                 HANDOFFD_MASTER_KEY (brokers that share a database share it)",
                path.display()
            )));
        }
        let (text, made) = secret_file(&path, Vault::new_master_key)?;
        if made {
            tracing::info!(file = %path.display(), "made a master key");
        }
        Vault::from_base64(&text)?
    } else {
        Vault::from_base64(&config.auth.master_key)?
    };
    let kept = store.settle_fact(MASTER_KEY_CHECK, &vault.check_value()?).await?;
    if vault.accepts(&kept) {
        return with_derived(store, vault).await;
    }
    let next = next_master_key(&config.keys_dir().join(MASTER_KEY));
    if config.auth.master_key.is_empty() && next.exists() {
        return Err(StartError::Vault(format!(
            "a change of the master key was not ended: run handoffd key master --new again, which ends it ({} is the new key)",
            next.display()
        )));
    }
    Err(StartError::Vault(
        "this database was set up with another master key: give that one in HANDOFFD_MASTER_KEY, \
         or as master.key in the data directory (brokers that share a database share it)"
            .to_owned(),
    ))
}

/// The master key, where this machine has it and the database knows it: for a look beside a broker, which makes none.
///
/// # Errors
/// The store cannot be read.
pub async fn known_vault(config: &Config, store: &Store) -> Result<Option<Vault>, StoreError> {
    let text = match config.auth.master_key.as_str() {
        "" => std::fs::read_to_string(config.keys_dir().join("master.key")).unwrap_or_default(),
        text => text.to_owned(),
    };
    let Ok(vault) = Vault::from_base64(&text) else { return Ok(None) };
    let kept = store.find_fact(MASTER_KEY_CHECK).await?;
    Ok(kept.is_some_and(|kept| vault.accepts(&kept)).then_some(vault))
}

/// The key that signs tree heads: from the settings or from its file, made there at the first start. It
/// must be the one that this database's logs are signed with.
///
/// # Errors
/// [`StartError::Vault`] where it is another, a retired one, or missing; a missing file stays missing.
pub async fn settle_notary(
    config: &Config,
    store: &Store,
    now: Micros,
) -> Result<Notary, StartError> {
    let file = config.tree_key_file();
    let missing = config.audit.signing_key.is_empty() && !file.exists();
    // A key made beside a log that is signed with another would look like the log's own from then on.
    if !missing || store.list_tree_keys().await?.is_empty() {
        let notary = tree_key(config, &file)?;
        if store.settle_tree_key(&notary.public_bytes(), now, false).await? {
            return Ok(notary);
        }
    }
    Err(StartError::Vault(
        "tree heads of this database are signed with another key: give that one in \
         HANDOFFD_AUDIT__SIGNING_KEY, or as tree-head.key in the data directory (brokers that share a \
         database share it); to change keys on purpose, run handoffd key tree-head --new"
            .to_owned(),
    ))
}

/// The key of the settings; where they have none, the key in the file, made there where it is missing.
///
/// # Errors
/// [`StartError`] where it cannot be read or made.
pub fn tree_key(config: &Config, file: &Path) -> Result<Notary, StartError> {
    let text = if config.audit.signing_key.is_empty() {
        let (text, made) = secret_file(file, Vault::new_master_key)?;
        if made {
            tracing::info!(file = %file.display(), "made the key that signs tree heads");
        }
        text
    } else {
        zeroize::Zeroizing::new(config.audit.signing_key.clone())
    };
    let seed = BASE64.decode(text.trim()).map(zeroize::Zeroizing::new);
    let seed = seed.ok().and_then(|seed| Some(zeroize::Zeroizing::new(*seed.as_array::<32>()?)));
    let Some(seed) = seed else {
        return Err(StartError::Config("audit.signing_key must be 32 bytes in base64".to_owned()));
    };
    Ok(Notary::new(Signer::new(&seed), config.audit.origin.clone()))
}

/// The first admin key: how its id begins, and its label. Both are in the first record of the log.
#[derive(Debug, Clone, Copy)]
pub struct FirstKey {
    pub id: &'static str,
    pub label: &'static str,
}

impl Default for FirstKey {
    fn default() -> Self {
        Self { id: "key", label: "made at the first start" }
    }
}

/// The first admin key: the configured one, or one made at the first start and written to a file.
pub(super) async fn settle_admin_key(
    config: &Config,
    store: &Store,
    ledger: &Ledger,
    now: Micros,
    first: FirstKey,
) -> Result<Option<PathBuf>, StartError> {
    let tenant = &config.auth.tenant;
    store.ensure_tenant(tenant, &clock::random_id().to_string(), now).await?;
    if !config.auth.admin_key.is_empty() {
        if store.find_key(&hash_api_key(&config.auth.admin_key)).await?.is_none() {
            let from_settings = FirstKey { label: FROM_SETTINGS, ..first };
            make_admin(ledger, tenant, &config.auth.admin_key, from_settings, now).await?;
        }
        name_former(store, tenant, &hash_api_key(&config.auth.admin_key), now).await?;
        return Ok(None);
    }
    let keys = store.list_keys(tenant).await?;
    if keys.iter().any(|key| key.role == Role::Admin && key.expires_at.is_none()) {
        return Ok(None);
    }
    let path = config.keys_dir().join("admin.key");
    let (key, _) = secret_file(&path, new_api_key)?;
    make_admin(ledger, tenant, &key, first, now).await?;
    tracing::info!(file = %path.display(), "made the first admin key");
    Ok(Some(path))
}

/// Label of an admin key that came from the settings.
const FROM_SETTINGS: &str = "HANDOFFD_ADMIN_KEY";

/// Names the keys of earlier values of the setting and the one that a start without it made. They are still valid: another
/// broker may use one of them, so they are not revoked here.
async fn name_former(
    store: &Store,
    tenant: &TenantId,
    present: &[u8],
    now: Micros,
) -> Result<(), StartError> {
    let keys = store.list_keys(tenant).await?;
    let former = keys.iter().filter(|key| {
        (key.label == FROM_SETTINGS || key.label == FirstKey::default().label)
            && key.hash != present
            && key.expires_at.is_none_or(|expiry| expiry > now)
    });
    let former: Vec<&str> = former.map(|key| key.key_id.as_str()).collect();
    if !former.is_empty() {
        tracing::warn!(
            keys = former.join(" "),
            "admin keys from before HANDOFFD_ADMIN_KEY had its present value are still valid: revoke them with \
             `handoffd keys revoke KEY_ID` once no broker uses them"
        );
    }
    Ok(())
}

async fn make_admin(
    ledger: &Ledger,
    tenant: &TenantId,
    key: &str,
    first: FirstKey,
    now: Micros,
) -> Result<(), StartError> {
    let row = KeyRow {
        tenant: tenant.clone(),
        key_id: format!("{}_{}", first.id, clock::time_ordered_id(now).simple()),
        hash: hash_api_key(key),
        role: Role::Admin,
        agent: None,
        label: first.label.to_owned(),
        created_at: now,
        expires_at: None,
    };
    let call = Call { tenant: tenant.clone(), at: now, actor: Actor::broker() };
    match ledger.handle(call, CreateKey { row }).await {
        Ok(_) => Ok(()),
        Err(err) => Err(StartError::Config(format!("the admin key cannot be stored: {err}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_made_whole_and_an_empty_one_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/admin.key");
        let (first, made) = secret_file(&path, new_api_key).unwrap();
        assert!(made && first.len() >= MIN_SECRET);
        let (again, made) = secret_file(&path, new_api_key).unwrap();
        assert!(!made && *again == *first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(secret_file(&path, new_api_key).unwrap_err().to_string().contains("admin.key"));
    }
}
