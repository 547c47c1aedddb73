//! `handoffd export`: writes the bundle of a task, or a whole log, straight from the database.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde_json::json;

use super::answer::answer;
use super::verify::progress_bar;
use super::{Exit, Output};
use crate::app::{Access, open_archive, open_store, settle_notary};
use handoffd_broker::bundle::{BundleSources, LogExport, WriteError, export_log, make};
use handoffd_broker::config::Config;
use handoffd_domain::ids::{TaskId, TenantId};
use handoffd_store::clock::{Clock, SystemClock};

/// How often a log is begun anew because something was erased meanwhile.
const TRIES: u32 = 4;

/// How hard a log is compressed where its file is to be: zstd's default.
const ZSTD_LEVEL: i32 = 3;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The bundle of this task
    #[arg(long, value_name = "UUID", required_unless_present = "log", conflicts_with = "log")]
    task: Option<TaskId>,
    /// The whole log, as lines of JSON; compressed where the file's name ends in .zst
    #[arg(long)]
    log: bool,
    /// Whose task or log; the configured tenant's unless said
    #[arg(long)]
    tenant: Option<TenantId>,
    /// The file to write; one of that name is replaced
    #[arg(long, value_name = "OUT")]
    file: PathBuf,
    /// Put personal data into it
    #[arg(long)]
    include_personal: bool,
}

struct ExportSummary {
    bytes: u64,
    records: Option<u64>,
}

/// Exports; prints what was written.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    match export(&args, &config).await {
        Ok(Some(ExportSummary { bytes, records })) => {
            let file = args.file.display();
            let text = match (output, records) {
                (Output::Json, None) => {
                    json!({ "taskId": args.task, "file": args.file, "bytes": bytes }).to_string()
                }
                (Output::Json, Some(records)) => {
                    json!({ "records": records, "file": args.file, "bytes": bytes }).to_string()
                }
                (Output::Text, None) => format!("{file}: {bytes} bytes"),
                (Output::Text, Some(records)) => {
                    format!("{file}: {records} records, {bytes} bytes")
                }
            };
            answer(&text, Exit::Success)
        }
        Ok(None) => {
            let task = args.task.map(|task| task.to_string()).unwrap_or_default();
            eprintln!("handoffd: the log has no record of task {task}");
            Exit::No
        }
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

async fn export(args: &Args, config: &Config) -> Result<Option<ExportSummary>, String> {
    let tenant = args.tenant.as_ref().unwrap_or(&config.auth.tenant);
    let archive = open_archive(config).map_err(|err| err.to_string())?;
    let store = open_store(config, Access::Beside).await.map_err(|err| err.to_string())?;
    let contents = archive.contents(std::sync::Arc::clone(&store));
    let now = SystemClock::default().now();
    let made = async {
        let notary = settle_notary(config, &store, now).await.map_err(|err| err.to_string())?;
        let sources = BundleSources { store: &store, contents: &contents, notary: &notary };
        let Some(task) = args.task else {
            let bar = progress_bar();
            let order = LogExport {
                store: sources.store,
                contents: sources.contents,
                notary: sources.notary,
                tenant,
                personal: args.include_personal,
                at: now,
                progress: &|done, total| {
                    bar.set_length(total);
                    bar.set_position(done);
                },
            };
            let written = write_log(&order, &args.file).await;
            bar.finish_and_clear();
            return written.map(Some).map_err(|err| err.to_string());
        };
        let bundle = make(sources, tenant, task, args.include_personal, now).await;
        let Some(mut bundle) = bundle.map_err(|err| err.to_string())? else { return Ok(None) };
        let mut file = beside(&args.file).map_err(|err| wrong(&args.file, &err))?;
        let copied = io::copy(&mut bundle, &mut file).and_then(|bytes| {
            keep(file, &args.file)?;
            Ok(ExportSummary { bytes, records: None })
        });
        copied.map(Some).map_err(|err| wrong(&args.file, &err))
    }
    .await;
    store.close().await;
    made
}

fn wrong(file: &Path, err: &io::Error) -> String {
    format!("{}: {err}", file.display())
}

/// A file that becomes the one of that path, whole or not at all.
fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))
}

fn keep(file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|err| err.error)
}

async fn write_log(order: &LogExport<'_>, path: &Path) -> Result<ExportSummary, WriteError> {
    let packed = path.extension().is_some_and(|extension| extension == "zst");
    let mut tries = 1;
    loop {
        let file = beside(path)?;
        let mut out = Sink::new(file.reopen()?, packed)?;
        match export_log(order, &mut out).await {
            Ok(records) => {
                out.finish()?;
                let bytes = file.as_file().metadata()?.len();
                keep(file, path)?;
                return Ok(ExportSummary { bytes, records: Some(records) });
            }
            Err(WriteError::Moved) if tries < TRIES => tries += 1,
            Err(err) => return Err(err),
        }
    }
}

/// A file, compressed or not.
enum Sink {
    Plain(BufWriter<File>),
    Packed(zstd::Encoder<'static, BufWriter<File>>),
}

impl Sink {
    fn new(file: File, packed: bool) -> io::Result<Self> {
        let file = BufWriter::new(file);
        if !packed {
            return Ok(Self::Plain(file));
        }
        let mut encoder = zstd::Encoder::new(file, ZSTD_LEVEL)?;
        // A reader of the file sees from the checksum whether a disk changed it.
        encoder.include_checksum(true)?;
        Ok(Self::Packed(encoder))
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut file) => file.flush(),
            Self::Packed(encoder) => encoder.finish()?.flush(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Packed(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Packed(encoder) => encoder.flush(),
        }
    }
}
