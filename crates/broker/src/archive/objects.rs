//! Storage of segments: a folder, or a bucket of an S3-compatible server. Opened at its first use, so that a broker
//! starts and serves while its archive is unreachable.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
#[cfg(feature = "s3")]
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::sync::OnceCell;

#[cfg(feature = "s3")]
use super::bucket::bucket;
use super::error::ArchiveError;
use crate::config::Config;
use handoffd_store::store::sqlite::private_folder;

#[derive(Debug, Clone)]
pub(super) enum ObjectBackend {
    Folder(PathBuf),
    #[cfg(feature = "s3")]
    Bucket(Box<AmazonS3Builder>),
    /// No archive is configured: no content was ever archived.
    Nowhere,
}

/// The objects of one archive, by key.
pub(super) struct Objects {
    site: ObjectBackend,
    prefix: Path,
    opened: OnceCell<Arc<dyn ObjectStore>>,
}

impl Objects {
    /// The archive named by the settings; `environment` holds the credentials (`AWS_…`).
    pub(super) fn new(
        config: &Config,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ArchiveError> {
        let url = &config.retention.archive_url;
        let (site, prefix) = if url.is_empty() {
            let folder = config.server.data_dir.join("archive");
            let local = !config.database_url().starts_with("postgres");
            (
                if local { ObjectBackend::Folder(folder) } else { ObjectBackend::Nowhere },
                Path::default(),
            )
        } else {
            place("retention.archive_url", url, config, environment)?
        };
        Ok(Self { site, prefix, opened: OnceCell::new() })
    }

    /// Whether an archive is configured.
    pub(super) const fn exist(&self) -> bool {
        !matches!(self.site, ObjectBackend::Nowhere)
    }

    /// Writes an object durably; replaces one with the same key.
    pub(super) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ArchiveError> {
        if let ObjectBackend::Folder(folder) = &self.site {
            private_folder(folder).map_err(|err| away(&folder.display(), &err))?;
        }
        let objects = self.open().await?;
        let put = objects.put(&self.path(key), PutPayload::from_bytes(bytes)).await;
        put.map(drop).map_err(|err| failed(key, err))
    }

    /// Reads a range of an object; shorter at the object's end.
    pub(super) async fn range(&self, key: &str, from: u64, to: u64) -> Result<Bytes, ArchiveError> {
        let objects = self.open().await?;
        objects.get_range(&self.path(key), from..to).await.map_err(|err| failed(key, err))
    }

    /// Reads a whole object.
    pub(super) async fn get(&self, key: &str) -> Result<Bytes, ArchiveError> {
        let objects = self.open().await?;
        let found = objects.get(&self.path(key)).await.map_err(|err| failed(key, err))?;
        found.bytes().await.map_err(|err| failed(key, err))
    }

    /// Removes an object; a missing one is not an error.
    pub(super) async fn delete(&self, key: &str) -> Result<(), ArchiveError> {
        let objects = self.open().await?;
        match objects.delete(&self.path(key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(err) => Err(failed(key, err)),
        }
    }

    /// Removes partial files of interrupted writes from a folder: the object store writes a file beside the
    /// target (`name.seg#1`), renames it, and does not list it. Such a file holds contents like any other. A
    /// bucket has none, since its writes are atomic. Returns the number removed.
    pub(super) async fn remove_staged(&self, folder: &str) -> Result<u64, ArchiveError> {
        let ObjectBackend::Folder(root) = &self.site else { return Ok(0) };
        let below = root.join(folder);
        let removed = tokio::task::spawn_blocking(move || -> std::io::Result<u64> {
            let entries = match std::fs::read_dir(&below) {
                Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(0),
                entries => entries?,
            };
            let mut removed = 0;
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                if name.is_some_and(|name| name.contains(".seg#") || name.contains(".json#")) {
                    std::fs::remove_file(&path)?;
                    removed += 1;
                }
            }
            Ok(removed)
        });
        let removed = removed.await.map_err(|err| away(&folder, &err))?;
        removed.map_err(|err| away(&folder, &err))
    }

    /// The keys of all objects in a folder.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, ArchiveError> {
        if let ObjectBackend::Folder(root) = &self.site
            && !root.try_exists().map_err(|err| away(&root.display(), &err))?
        {
            // It does not exist yet.
            return Ok(Vec::new());
        }
        let objects = self.open().await?;
        let below = self.path(folder);
        let found: Vec<_> =
            objects.list(Some(&below)).try_collect().await.map_err(|err| failed(folder, err))?;
        let start = self.prefix.as_ref().len() + usize::from(!self.prefix.as_ref().is_empty());
        Ok(found
            .into_iter()
            .filter_map(|object| object.location.as_ref().get(start..).map(str::to_owned))
            .collect())
    }

    fn path(&self, key: &str) -> Path {
        self.prefix.parts().chain(Path::from(key).parts()).collect()
    }

    async fn open(&self) -> Result<&Arc<dyn ObjectStore>, ArchiveError> {
        self.opened
            .get_or_try_init(|| async {
                let opened: Arc<dyn ObjectStore> = match &self.site {
                    ObjectBackend::Folder(folder) => {
                        let exists =
                            folder.try_exists().map_err(|err| away(&folder.display(), &err))?;
                        if !exists {
                            let folder = folder.display();
                            return Err(ArchiveError::Away(format!(
                                "the folder {folder} does not exist"
                            )));
                        }
                        Arc::new(
                            LocalFileSystem::new_with_prefix(folder)
                                .map_err(|err| away(&folder.display(), &err))?
                                .with_fsync(true),
                        )
                    }
                    #[cfg(feature = "s3")]
                    ObjectBackend::Bucket(builder) => Arc::new(
                        AmazonS3Builder::clone(builder)
                            .build()
                            .map_err(|err| ArchiveError::Config(err.to_string()))?,
                    ),
                    ObjectBackend::Nowhere => {
                        return Err(ArchiveError::Config(
                            "no archive is set: with Postgres, retention.archive_url must name one \
                             that every broker reaches"
                                .to_owned(),
                        ));
                    }
                };
                Ok(opened)
            })
            .await
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The builder holds credentials.
        f.debug_struct("Objects").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A bucket for objects other than segments, with the archive's server and credentials.
#[derive(Debug)]
pub struct Bucket(Objects);

impl Bucket {
    /// The bucket named by `url`; `setting` is the setting's name for errors.
    ///
    /// # Errors
    /// [`ArchiveError::Config`].
    pub fn new(
        setting: &str,
        url: &str,
        config: &Config,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ArchiveError> {
        let (site, prefix) = place(setting, url, config, environment)?;
        Ok(Self(Objects { site, prefix, opened: OnceCell::new() }))
    }

    /// Writes an object unless the key exists; in that case returns the existing object.
    ///
    /// # Errors
    /// [`ArchiveError`] where the bucket cannot be reached, read or written.
    pub async fn put_new(&self, key: &str, bytes: Bytes) -> Result<Option<Bytes>, ArchiveError> {
        let objects = self.0.open().await?;
        let (path, payload) = (self.0.path(key), PutPayload::from_bytes(bytes));
        match objects.put_opts(&path, payload, PutMode::Create.into()).await {
            Ok(_) => Ok(None),
            Err(Error::AlreadyExists { .. }) => self.0.get(key).await.map(Some),
            Err(err) => Err(failed(key, err)),
        }
    }
}

fn place(
    setting: &str,
    url: &str,
    config: &Config,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<(ObjectBackend, Path), ArchiveError> {
    let wrong = |why: &dyn std::fmt::Display| ArchiveError::Config(format!("{setting}: {why}"));
    let parsed = url::Url::parse(url).map_err(|err| wrong(&err))?;
    if parsed.scheme() == "file" {
        let folder = parsed.to_file_path().map_err(|()| wrong(&"not the path of a folder"))?;
        return Ok((ObjectBackend::Folder(folder), Path::default()));
    }
    in_bucket(setting, &parsed, config, environment)
}

#[cfg(feature = "s3")]
fn in_bucket(
    setting: &str,
    parsed: &url::Url,
    config: &Config,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<(ObjectBackend, Path), ArchiveError> {
    let (builder, prefix) = bucket(setting, parsed, config, environment)?;
    Ok((ObjectBackend::Bucket(Box::new(builder)), prefix))
}

/// A build without the feature refuses a bucket.
#[cfg(not(feature = "s3"))]
fn in_bucket(
    setting: &str,
    _: &url::Url,
    _: &Config,
    _: impl IntoIterator<Item = (String, String)>,
) -> Result<(ObjectBackend, Path), ArchiveError> {
    let why = "this build leaves buckets out: build the broker with the feature s3, or full";
    Err(ArchiveError::Config(format!("{setting}: {why}")))
}

fn away(what: &dyn std::fmt::Display, err: &dyn std::error::Error) -> ArchiveError {
    ArchiveError::Away(format!("{what}: {err}"))
}

/// Maps an error of the object store. Its texts name keys and addresses, never credentials.
fn failed(key: &str, err: Error) -> ArchiveError {
    match err {
        Error::NotFound { .. } => ArchiveError::Missing(key.to_owned()),
        err => away(&key, &err),
    }
}

#[cfg(all(test, not(feature = "s3")))]
mod tests {
    use super::*;

    /// `cargo test -p handoffd-broker` has no features, `cargo test --workspace` all.
    #[test]
    fn a_build_without_buckets_says_which_feature_brings_them() {
        let mut config = Config::load(None, []).unwrap();
        config.retention.archive_url = "s3://archive/handoffs".to_owned();
        let refused = Objects::new(&config, []).unwrap_err().to_string();
        assert!(refused.starts_with("retention.archive_url: "), "{refused}");
        assert!(refused.contains("the feature s3"), "{refused}");
        let heads = Bucket::new("audit.publish", "s3://heads", &config, []);
        let refused = heads.unwrap_err().to_string();
        assert!(refused.starts_with("audit.publish: "), "{refused}");
        config.retention.archive_url = "file:///var/lib/archive".to_owned();
        assert!(Objects::new(&config, []).is_ok());
    }
}
