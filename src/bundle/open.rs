//! Opens a bundle that anyone may have made: nothing is unpacked to the disk, only known names count,
//! and each read has a limit.

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
use super::read::Fault;

/// Files of a bundle.
const MAX_ENTRIES: usize = 1_000_000;

/// Bytes of all files of a bundle together, unpacked.
const MAX_TOTAL: u64 = 64 * 1024 * 1024 * 1024;

/// Bytes of a file that is read into memory, or of one line of a file that is not.
pub(super) const MAX_WHOLE: u64 = 64 * 1024 * 1024;

/// Why a file cannot be judged at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no zip.
    #[error("{path}: not a bundle: {why}")]
    NotABundle {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

type Archive = ZipArchive<BufReader<File>>;

/// A bundle, open.
pub(super) struct Opened {
    path: PathBuf,
    archive: Archive,
    /// Bytes that may still be unpacked.
    left: u64,
}

impl Opened {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let archive = ZipArchive::new(BufReader::new(file))
            .map_err(|err| ReadError::NotABundle { path: path.to_owned(), why: err.to_string() })?;
        Ok(Self { path: path.to_owned(), archive, left: MAX_TOTAL })
    }

    /// The same file, open once more: two entries cannot be read at a time through one.
    pub(super) fn again(&self) -> Result<Self, Fault> {
        Self::open(&self.path).map_err(|err| Fault::damaged(err.to_string()))
    }

    /// The names of all files. What could mean one thing to this reader and another to the next is a
    /// fault: a name twice, entries that overlap, headers that disagree.
    pub(super) fn names(&mut self) -> Result<BTreeSet<String>, Fault> {
        let damaged = |err: zip::result::ZipError| Fault::damaged(err.to_string());
        if self.archive.len() > MAX_ENTRIES {
            return Err(Fault::damaged(format!("it has more than {MAX_ENTRIES} files")));
        }
        if self.archive.has_duplicate_names() {
            return Err(Fault::damaged("it has two files of one name"));
        }
        if self.archive.has_overlapping_entries().map_err(damaged)? {
            return Err(Fault::damaged("files in it overlap"));
        }
        self.archive.validate_header_consistency().map_err(damaged)?;
        let mut names = BTreeSet::new();
        for name in self.archive.file_names() {
            let name = name.map_err(damaged)?;
            if !is_known(&name) {
                return Err(Fault::new("surplus", format!("{name:?} is no file of a bundle")));
            }
            names.insert(name.into_owned());
        }
        Ok(names)
    }

    fn entry(&mut self, name: &str) -> Result<ZipFile<'_, BufReader<File>>, Fault> {
        if self.archive.index_for_name(name).is_none() {
            return Err(Fault::new("missing", format!("{name} is missing")));
        }
        self.archive.by_name(name).map_err(|err| Fault::damaged(format!("{name}: {err}")))
    }

    /// A file as a whole.
    pub(super) fn whole(&mut self, name: &str) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        let read = self.entry(name)?.take(MAX_WHOLE + 1).read_to_end(&mut bytes);
        read.map_err(|err| Fault::damaged(format!("{name}: {err}")))?;
        if bytes.len() as u64 > MAX_WHOLE {
            return Err(Fault::damaged(format!("{name} has more than {MAX_WHOLE} bytes")));
        }
        Ok(bytes)
    }

    /// A file's bytes, counted, and its SHA-256 in hexadecimal.
    pub(super) fn digest(&mut self, name: &str) -> Result<(u64, String), Fault> {
        let left = self.left;
        let mut entry = self.entry(name)?;
        let (mut hash, mut count, mut buffer) = (Sha256::new(), 0, vec![0; 64 * 1024]);
        loop {
            let read =
                entry.read(&mut buffer).map_err(|err| Fault::damaged(format!("{name}: {err}")))?;
            if read == 0 {
                break;
            }
            count += read as u64;
            if count > left {
                return Err(Fault::damaged(format!("it unpacks to more than {MAX_TOTAL} bytes")));
            }
            hash.update(&buffer[..read]);
        }
        drop(entry);
        self.left -= count;
        Ok((count, hex::encode(hash.finalize())))
    }

    /// A file line by line.
    pub(super) fn lines(&mut self, name: &'static str) -> Result<Lines<'_>, Fault> {
        Ok(Lines { reader: BufReader::new(self.entry(name)?), name })
    }
}

/// The lines of a file.
pub(super) struct Lines<'a> {
    reader: BufReader<ZipFile<'a, BufReader<File>>>,
    name: &'static str,
}

impl Lines<'_> {
    /// The next line without its newline.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(MAX_WHOLE).read_until(b'\n', &mut line);
        read.map_err(|err| Fault::damaged(format!("{}: {err}", self.name)))?;
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) => Err(Fault::damaged(format!("{} has a line without its end", self.name))),
        }
    }
}

/// Whether a bundle may hold a file of that name: these and no others, so that no path leads out of
/// the folder it is unpacked in.
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
