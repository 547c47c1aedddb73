//! Opens a bundle from an untrusted source: nothing is unpacked to the disk, only known names are accepted, and each
//! read has a limit.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use zip::ZipArchive;
use zip::read::ZipFile;

use super::format::{
    COMMITMENTS, KEYS, MANIFEST, PROOFS, README, RECORDS, REPORT, TRACE, TREE_HEAD,
};
use super::report::BundleDefect;

/// Most files in a bundle.
const MAX_ENTRIES: usize = 1_000_000;

/// Most unpacked bytes of all files of a bundle.
const MAX_TOTAL: u64 = 64 * 1024 * 1024 * 1024;

/// Most bytes of a file read into memory, or of one line of a file read in lines.
pub(super) const MAX_WHOLE: u64 = 64 * 1024 * 1024;

/// Reasons for which a file cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is not a zip.
    #[error("{path}: not a bundle: {why}")]
    NotABundle {
        /// Path of the file.
        path: PathBuf,
        /// A sentence for people.
        why: String,
    },
}

type BundleZip = ZipArchive<BufReader<File>>;

pub(super) struct OpenBundle {
    path: PathBuf,
    archive: BundleZip,
    /// Bytes that may still be unpacked.
    left: u64,
}

impl OpenBundle {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let archive = ZipArchive::new(BufReader::new(file))
            .map_err(|err| ReadError::NotABundle { path: path.to_owned(), why: err.to_string() })?;
        Ok(Self { path: path.to_owned(), archive, left: MAX_TOTAL })
    }

    /// Opens the same file again: one handle cannot read two entries at a time.
    pub(super) fn again(&self) -> Result<Self, BundleDefect> {
        Self::open(&self.path).map_err(|err| BundleDefect::damaged(err.to_string()))
    }

    /// The names of all files. Rejects archives that readers could interpret differently: duplicate names,
    /// overlapping entries, headers that disagree.
    pub(super) fn names(&mut self) -> Result<BTreeSet<String>, BundleDefect> {
        let damaged = |err: zip::result::ZipError| BundleDefect::damaged(err.to_string());
        if self.archive.len() > MAX_ENTRIES {
            return Err(BundleDefect::damaged(format!("it has more than {MAX_ENTRIES} files")));
        }
        if self.archive.has_duplicate_names() {
            return Err(BundleDefect::damaged("it has two files of one name"));
        }
        if self.archive.has_overlapping_entries().map_err(damaged)? {
            return Err(BundleDefect::damaged("files in it overlap"));
        }
        self.archive.validate_header_consistency().map_err(damaged)?;
        let mut names = BTreeSet::new();
        for name in self.archive.file_names() {
            let name = name.map_err(damaged)?;
            if !is_known(&name) {
                return Err(BundleDefect::new(
                    "surplus",
                    format!("{name:?} is not a file of a bundle"),
                ));
            }
            names.insert(name.into_owned());
        }
        Ok(names)
    }

    fn entry(&mut self, name: &str) -> Result<ZipFile<'_, BufReader<File>>, BundleDefect> {
        if self.archive.index_for_name(name).is_none() {
            return Err(BundleDefect::new("missing", format!("{name} is missing")));
        }
        self.archive.by_name(name).map_err(|err| BundleDefect::damaged(format!("{name}: {err}")))
    }

    /// Reads a whole file, up to [`MAX_WHOLE`] bytes.
    pub(super) fn whole(&mut self, name: &str) -> Result<Vec<u8>, BundleDefect> {
        let mut bytes = Vec::new();
        let read = self.entry(name)?.take(MAX_WHOLE + 1).read_to_end(&mut bytes);
        read.map_err(|err| BundleDefect::damaged(format!("{name}: {err}")))?;
        if bytes.len() as u64 > MAX_WHOLE {
            return Err(BundleDefect::damaged(format!("{name} has more than {MAX_WHOLE} bytes")));
        }
        Ok(bytes)
    }

    /// A file's length in bytes, and its SHA-256 in hexadecimal.
    pub(super) fn digest(&mut self, name: &str) -> Result<(u64, String), BundleDefect> {
        let left = self.left;
        let mut entry = self.entry(name)?;
        let (mut hash, mut count, mut buffer) = (Sha256::new(), 0, vec![0; 64 * 1024]);
        loop {
            let read = entry
                .read(&mut buffer)
                .map_err(|err| BundleDefect::damaged(format!("{name}: {err}")))?;
            if read == 0 {
                break;
            }
            count += read as u64;
            if count > left {
                return Err(BundleDefect::damaged(format!(
                    "it unpacks to more than {MAX_TOTAL} bytes"
                )));
            }
            hash.update(&buffer[..read]);
        }
        drop(entry);
        self.left -= count;
        Ok((count, hex::encode(hash.finalize())))
    }

    /// Reads a file line by line.
    pub(super) fn lines(&mut self, name: &'static str) -> Result<EntryLines<'_>, BundleDefect> {
        Ok(EntryLines { reader: BufReader::new(self.entry(name)?), name })
    }
}

/// The lines of one file.
pub(super) struct EntryLines<'a> {
    reader: BufReader<ZipFile<'a, BufReader<File>>>,
    name: &'static str,
}

impl EntryLines<'_> {
    /// The next line without its newline.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, BundleDefect> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(MAX_WHOLE).read_until(b'\n', &mut line);
        read.map_err(|err| BundleDefect::damaged(format!("{}: {err}", self.name)))?;
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) => {
                Err(BundleDefect::damaged(format!("{} has a line without its end", self.name)))
            }
        }
    }
}

/// Whether `name` is a known file of a bundle. All others are rejected, so that no path leads out of the folder in
/// which the bundle is unpacked.
fn is_known(name: &str) -> bool {
    let plain = [README, MANIFEST, RECORDS, PROOFS, COMMITMENTS, TREE_HEAD, KEYS, TRACE, REPORT];
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = |folder: &str| name.strip_prefix(folder)?.strip_suffix(".json");
    plain.contains(&name)
        || stem("contents/").is_some_and(digits)
        || stem("personal/")
            .and_then(|stem| stem.split_once('-'))
            .is_some_and(|(leaf, ordinal)| digits(leaf) && digits(ordinal))
        || ["contracts/", "schemas/"].into_iter().filter_map(stem).any(|stem| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte);
            stem.split_once('@').is_some_and(|(id, version)| {
                !id.is_empty() && id.bytes().chain(version.bytes()).all(plain)
            })
        })
        || stem("checkpoints/").is_some_and(|stem| {
            stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}
