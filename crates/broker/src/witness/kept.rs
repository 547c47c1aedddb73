//! Tree heads in a folder: `<log id>.heads` has every published note, one after the other; `<log id>.latest` has the
//! newest. At each start the broker checks the database against the newest: a log may only have grown since.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::OutgoingHead;
use crate::tree;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::note::{Note, PublicKey, TreeHead};
use handoffd_evidence::receipt::Notary;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::sqlite::private_folder;
use handoffd_store::store::{Store, StoreError};

/// Suffix of the file with a log's newest head.
const LATEST: &str = ".latest";

/// Mismatches between the database and the kept tree heads.
#[derive(Debug, thiserror::Error)]
pub enum KeptHeadError {
    /// A kept head cannot be read, or is not signed with a key of this database.
    #[error(
        "the tree head kept in {path} is not valid: {why}. Restore the file, or move it aside \
         to go on without what it attests (docs/evidence.md)"
    )]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// A sentence with the reason.
        why: String,
    },
    /// The database contradicts a kept head.
    #[error(
        "{what}, but a tree head kept in {path} was signed over {kept} records. It was cut or \
         rewritten, or an older backup was restored. See what differs: handoffd verify --tree-head {path}. \
         Only after a restore on purpose: move that file aside and start again (docs/evidence.md)"
    )]
    Fork {
        /// A sentence with the state found.
        what: String,
        /// Path of the file.
        path: PathBuf,
        /// Number of records of the kept head.
        kept: u64,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes a head durably. Skipped if the folder has it already, or has a newer one.
pub(super) fn keep(folder: &Path, head: &OutgoingHead) -> io::Result<()> {
    // The id comes from the database, which is not trusted with paths.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if head.log_id.is_empty() || !head.log_id.chars().all(plain) {
        return Err(io::Error::other(format!("{:?} is not a log id", head.log_id)));
    }
    private_folder(folder)?;
    let latest = folder.join(format!("{}{LATEST}", head.log_id));
    if let Ok(note) = std::fs::read_to_string(&latest)
        && let Ok(there) = Note::parse(&note).and_then(|note| TreeHead::parse(&note.text))
        && (there.size > head.size || note == head.note)
    {
        return Ok(());
    }
    let all = folder.join(format!("{}.heads", head.log_id));
    let mut all = std::fs::OpenOptions::new().create(true).append(true).open(all)?;
    // One write: brokers that share a folder do not mix their notes.
    all.write_all(head.note.as_bytes())?;
    all.sync_all()?;
    fault::at(Step::HeadKept);
    let mut newest = tempfile::NamedTempFile::new_in(folder)?;
    newest.write_all(head.note.as_bytes())?;
    newest.as_file().sync_all()?;
    newest.persist(&latest).map_err(|err| err.error)?;
    std::fs::File::open(folder)?.sync_all()
}

/// Checks every log with a head in `folder`: the log must exist with at least as many records, and its tree at the
/// kept size must have the kept root. Returns size and root by log.
///
/// # Errors
/// [`KeptHeadError`], with instructions.
pub async fn check(
    folder: &Path,
    store: &Store,
    notary: &Notary,
) -> Result<HashMap<String, (u64, Hash)>, KeptHeadError> {
    let mut known = HashMap::new();
    for (log_id, path) in latest(folder)? {
        let head = believed(&path, &log_id, store, notary).await?;
        let fork = |what| KeptHeadError::Fork { what, path: path.clone(), kept: head.size };
        let Some(tenant) = store.find_log(&log_id).await? else {
            return Err(fork(format!("this database has no log {log_id}")));
        };
        let size = store.find_head(&tenant).await?.map_or(0, |found| found.tree.size());
        if size < head.size {
            return Err(fork(format!("log {log_id} has {size} records")));
        }
        if tree::root(store, &tenant, head.size).await? != Some(head.root) {
            return Err(fork(format!(
                "log {log_id} has {size} records and another history of the first {}",
                head.size
            )));
        }
        known.insert(log_id, (head.size, head.root));
    }
    Ok(known)
}

/// The file with the newest head of each log in a folder, by log id; a folder that is not there has none.
///
/// # Errors
/// [`KeptHeadError::Unreadable`] where the folder cannot be read.
pub fn latest(folder: &Path) -> Result<Vec<(String, PathBuf)>, KeptHeadError> {
    let unreadable = |err: io::Error| KeptHeadError::Unreadable {
        path: folder.to_owned(),
        why: err.to_string(),
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(unreadable(err)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(log_id) = name.and_then(|name| name.strip_suffix(LATEST)) {
            found.push((log_id.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

/// A kept head, once its signature is verified.
async fn believed(
    path: &Path,
    log_id: &str,
    store: &Store,
    notary: &Notary,
) -> Result<TreeHead, KeptHeadError> {
    let unreadable = |why: String| KeptHeadError::Unreadable { path: path.to_owned(), why };
    let note = std::fs::read_to_string(path).map_err(|err| unreadable(err.to_string()))?;
    let note = Note::parse(&note).map_err(|err| unreadable(err.to_string()))?;
    let head = TreeHead::parse(&note.text).map_err(|err| unreadable(err.to_string()))?;
    if head.origin.rsplit('/').next() != Some(log_id) {
        return Err(unreadable(format!("it is of {}", head.origin)));
    }
    // Under the name that the logs had then, with the key in use or one before it.
    let retired = store.list_tree_keys().await?.into_iter().map(|row| row.public);
    let signed = std::iter::once(notary.public_bytes())
        .chain(retired)
        .filter_map(|key| PublicKey::new(&head.origin, &key))
        .any(|key| note.verify(&key).is_ok());
    if signed {
        Ok(head)
    } else {
        Err(unreadable("no key of this broker or its database signed it".to_owned()))
    }
}
