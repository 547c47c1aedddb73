//! `handoffd-verify`: verifies bundles, exported logs and receipts offline.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use handoffd_evidence::bundle::VerifyOptions;
use handoffd_evidence::note::PublicKey;
use handoffd_verify::{read_tree_heads, verify_file};

/// Verify handoffd's bundles, exported logs and receipts offline. Exits with 0 where all hold, 1 where one does not, 2 where one
/// cannot be read.
#[derive(Debug, Parser)]
#[command(name = "handoffd-verify", version)]
struct Args {
    /// Bundles, exported logs, receipts (also the answer to a submission, as JSON)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A file with tree heads kept elsewhere (signed notes, one after the other): the log must agree
    #[arg(long, value_name = "FILE")]
    tree_head: Vec<PathBuf>,
    /// A public key that signs tree heads, as name+hash+base64; without one, those in the file count
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    key: Vec<PublicKey>,
    /// Print one JSON object a file
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let heads = args.tree_head.iter().map(|path| read_tree_heads(path));
    let tree_heads = match heads.collect::<Result<Vec<_>, _>>() {
        Ok(heads) => heads.concat(),
        Err(why) => {
            eprintln!("handoffd-verify: {why}");
            return ExitCode::from(2);
        }
    };
    let options = VerifyOptions { keys: args.key, tree_heads };
    let (mut all, mut readable) = (true, true);
    for file in &args.files {
        match verify_file(file, &options, &|_, _| {}) {
            Ok(report) => {
                let text = if args.json { report.json.to_string() } else { report.text };
                // A reader that stops reading is not an error.
                match writeln!(io::stdout(), "{text}") {
                    Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
                        eprintln!("handoffd-verify: the report cannot be written: {err}");
                        return ExitCode::from(2);
                    }
                    _ => all &= report.ok,
                }
            }
            Err(err) => {
                eprintln!("handoffd-verify: {err}");
                readable = false;
            }
        }
    }
    match (readable, all) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::FAILURE,
        (true, true) => ExitCode::SUCCESS,
    }
}
