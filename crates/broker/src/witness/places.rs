//! Destinations of tree heads, and their settings.

use std::path::{Path, PathBuf};

use reqwest::{Method, header};

use super::cosign::{Cosigner, PATIENCE};
use super::{OutgoingHead, PublisherContext, PutError, kept};
use crate::archive::{ArchiveError, Bucket};
use crate::config::Config;
use crate::egress::GuardedClient;
use handoffd_evidence::cosignature::WitnessKey;

/// A destination outside the database.
pub enum HeadDestination {
    /// Files in a folder; see `kept`.
    Folder(PathBuf),
    /// A URL that receives each note by POST.
    Hook(GuardedClient, String),
    /// A bucket: one object for each note, never replaced.
    Bucket(String, Box<Bucket>),
    /// A C2SP tlog-witness, which cosigns.
    Witness(Box<Cosigner>),
}

/// An invalid destination in the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DestinationError(String);

impl std::fmt::Display for HeadDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Hook(_, url) | Self::Bucket(url, _) => f.write_str(&shown(url)),
            Self::Witness(witness) => f.write_str(witness.name()),
        }
    }
}

/// A URL without the parts that may be secret.
fn shown(url: &str) -> String {
    let Ok(parsed) = url::Url::parse(url) else { return "a URL".to_owned() };
    format!("{}://{}", parsed.scheme(), parsed.host_str().unwrap_or_default())
}

impl HeadDestination {
    /// The destination's kind, as a metric label.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Folder(_) => "file",
            Self::Hook(..) => "webhook",
            Self::Bucket(..) => "s3",
            Self::Witness(_) => "witness",
        }
    }

    /// The path of a folder; `None` for other kinds.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        if let Self::Folder(folder) = self { Some(folder) } else { None }
    }

    pub(super) async fn put(
        &self,
        parts: &PublisherContext,
        head: &OutgoingHead,
    ) -> Result<(), PutError> {
        match self {
            Self::Folder(folder) => {
                let (folder, head) = (folder.clone(), head.clone());
                let keeping = tokio::task::spawn_blocking(move || kept::keep(&folder, &head));
                let kept = keeping.await.map_err(|err| PutError::Away(err.to_string()))?;
                kept.map_err(|err| PutError::Away(err.to_string()))
            }
            Self::Hook(client, url) => post(client, url, head).await,
            Self::Bucket(_, bucket) => store(bucket, head).await,
            Self::Witness(witness) => {
                let line = witness.cosign(&parts.store, head).await?;
                parts.cosigned.add(&head.log_id, head.size, &head.note, witness.name(), &line);
                Ok(())
            }
        }
    }
}

async fn post(client: &GuardedClient, url: &str, head: &OutgoingHead) -> Result<(), PutError> {
    let request =
        client.request(Method::POST, url).map_err(|err| PutError::Away(err.to_string()))?;
    let request = request
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .timeout(PATIENCE)
        .body(head.note.clone());
    // The address may hold a secret, so the error goes without it.
    let answer = request.send().await;
    let answer = answer.map_err(|err| PutError::Away(err.without_url().to_string()))?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(PutError::Away(format!("it answered {status}"))),
    }
}

async fn store(bucket: &Bucket, head: &OutgoingHead) -> Result<(), PutError> {
    let key = format!("tree-heads/{}/{:020}.note", head.log_id, head.size);
    match bucket.put_new(&key, head.note.clone().into()).await {
        Ok(None) => Ok(()),
        // The same tree, maybe signed with another key.
        Ok(Some(there)) if text_of(&there) == text_of(head.note.as_bytes()) => Ok(()),
        Ok(Some(_)) => {
            Err(PutError::Refused(format!("{key} is there already and tells of another history")))
        }
        Err(err) => Err(PutError::Away(err.to_string())),
    }
}

fn text_of(note: &[u8]) -> Option<&str> {
    let note = std::str::from_utf8(note).ok()?;
    note.rfind("\n\n").map(|cut| &note[..cut])
}

/// The destinations named by the settings. `environment` holds the credentials of buckets (`AWS_…`).
///
/// # Errors
/// [`DestinationError`], naming the setting.
pub fn places(
    config: &Config,
    client: &GuardedClient,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<HeadDestination>, DestinationError> {
    let environment: Vec<_> = environment.into_iter().collect();
    let words = config.audit.publish.split([',', ' ', '\n']).filter(|word| !word.is_empty());
    let named = words.map(|word| named(word, config, client, &environment));
    let entries = config.audit.witnesses.split([',', '\n']).map(str::trim);
    let witnesses = entries.filter(|entry| !entry.is_empty()).map(|entry| witness(entry, client));
    named.chain(witnesses).collect()
}

fn named(
    word: &str,
    config: &Config,
    client: &GuardedClient,
    environment: &[(String, String)],
) -> Result<HeadDestination, DestinationError> {
    let wrong =
        |why: &dyn std::fmt::Display| DestinationError(format!("audit.publish: `{word}`: {why}"));
    if word.starts_with("http://") || word.starts_with("https://") {
        client.policy().check_url(word).map_err(|err| wrong(&err))?;
        return Ok(HeadDestination::Hook(client.clone(), word.to_owned()));
    }
    if word.starts_with("s3://") {
        let bucket = Bucket::new("audit.publish", word, config, environment.iter().cloned());
        let bucket = bucket.map_err(|err: ArchiveError| DestinationError(err.to_string()))?;
        return Ok(HeadDestination::Bucket(word.to_owned(), Box::new(bucket)));
    }
    match folder(word, config) {
        None => Err(wrong(&"a place begins with file:, http://, https:// or s3://")),
        Some(None) => Err(wrong(&"no folder")),
        Some(Some(folder)) => Ok(HeadDestination::Folder(folder)),
    }
}

/// The folder that a word with `file:` names; the inner `None` where it names none.
fn folder(word: &str, config: &Config) -> Option<Option<PathBuf>> {
    let path = word.strip_prefix("file:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    // `join` takes an absolute path as it is.
    Some((!path.is_empty()).then(|| config.server.data_dir.join(path)))
}

/// The folders among the destinations named by the settings.
#[must_use]
pub fn folders(config: &Config) -> Vec<PathBuf> {
    let words = config.audit.publish.split([',', ' ', '\n']);
    words.filter_map(|word| folder(word, config).flatten()).collect()
}

/// Parses `<URL> <key>`.
fn witness(entry: &str, client: &GuardedClient) -> Result<HeadDestination, DestinationError> {
    let wrong = |why: &dyn std::fmt::Display| {
        DestinationError(format!("audit.witnesses: `{entry}`: {why}"))
    };
    let (url, key) =
        entry.split_once(' ').ok_or_else(|| wrong(&"a witness is its URL, a space, its key"))?;
    client.policy().check_url(url).map_err(|err| wrong(&err))?;
    let key = WitnessKey::parse(key).map_err(|err| wrong(&err))?;
    Ok(HeadDestination::Witness(Box::new(Cosigner::new(client.clone(), url, key))))
}
