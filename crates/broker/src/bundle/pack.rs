//! Writes the zip on a separate thread. A short channel feeds it, so that the producer and the disk do not wait for
//! each other, and memory holds few contents.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use handoffd_evidence::bundle::format::{
    BundleManifest, COMMITMENTS, FileLine, MANIFEST, PROOFS, RECORDS,
};

/// Capacity of the channel: contents are large, and more of them in flight would gain nothing.
const AHEAD: usize = 8;

/// A file that grows line by line while others are written into the zip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFile {
    Records,
    Proofs,
    Commitments,
}

/// A message to the zip's thread.
pub(super) enum BundlePiece {
    Whole(String, Vec<u8>),
    /// A file read from disk.
    Spooled(&'static str, File),
    /// One line of a growing file.
    Line(LineFile, Vec<u8>),
    /// The end: writes the growing files and the manifest; its list of files is filled in.
    End(Box<BundleManifest>),
}

/// Sends pieces to the zip's thread.
pub(super) struct Packer {
    pieces: mpsc::Sender<BundlePiece>,
    thread: JoinHandle<io::Result<File>>,
}

impl Packer {
    pub(super) fn start() -> Self {
        let (pieces, taken) = mpsc::channel(AHEAD);
        Self { pieces, thread: tokio::task::spawn_blocking(move || pack(taken)) }
    }

    /// Sends a piece. A thread that ended early is reported by [`Packer::finish`].
    pub(super) async fn put(&self, piece: BundlePiece) {
        let _ = self.pieces.send(piece).await;
    }

    /// Writes the manifest; returns the zip, positioned at its beginning.
    pub(super) async fn finish(self, manifest: BundleManifest) -> io::Result<File> {
        self.put(BundlePiece::End(Box::new(manifest))).await;
        drop(self.pieces);
        self.thread.await.map_err(io::Error::other)?
    }
}

/// A zip being written.
struct Zip {
    zip: ZipWriter<BufWriter<File>>,
    files: Vec<FileLine>,
}

fn pack(mut pieces: mpsc::Receiver<BundlePiece>) -> io::Result<File> {
    let mut zip =
        Zip { zip: ZipWriter::new(BufWriter::new(tempfile::tempfile()?)), files: Vec::new() };
    let spool = || tempfile::tempfile().map(BufWriter::new);
    let mut lines = [(RECORDS, spool()?), (PROOFS, spool()?), (COMMITMENTS, spool()?)];
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            BundlePiece::Whole(name, bytes) => {
                zip.add(&name, bytes.len() as u64, &mut &bytes[..])?;
            }
            BundlePiece::Spooled(name, file) => zip.copy(name, file)?,
            BundlePiece::Line(which, bytes) => {
                let (_, file) = &mut lines[which as usize];
                file.write_all(&bytes)?;
                file.write_all(b"\n")?;
            }
            BundlePiece::End(manifest) => {
                for (name, file) in lines {
                    zip.copy(name, file.into_inner().map_err(io::IntoInnerError::into_error)?)?;
                }
                return zip.finish(*manifest);
            }
        }
    }
    Err(io::Error::other("given up"))
}

impl Zip {
    fn copy(&mut self, name: &str, mut file: File) -> io::Result<()> {
        file.rewind()?;
        let bytes = file.metadata()?.len();
        self.add(name, bytes, &mut file)
    }

    fn add(&mut self, name: &str, bytes: u64, from: &mut dyn Read) -> io::Result<()> {
        // No time of its own: the manifest says when.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .unix_permissions(0o644)
            .large_file(bytes >= u64::from(u32::MAX));
        self.zip.start_file(name, options)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
            self.zip.write_all(&buffer[..count])?;
        }
        let sha256 = hex::encode(hash.finalize());
        self.files.push(FileLine { name: name.to_owned(), bytes, sha256 });
        Ok(())
    }

    fn finish(mut self, mut manifest: BundleManifest) -> io::Result<File> {
        manifest.files = std::mem::take(&mut self.files);
        let text = serde_json::to_vec_pretty(&manifest)?;
        self.add(MANIFEST, text.len() as u64, &mut &text[..])?;
        let mut file = self.zip.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }
}
