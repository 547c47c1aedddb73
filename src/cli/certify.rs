//! `handoffd certify URL`: drives a broker from outside, claim by claim (`crates/certify`).

use handoffd_certify::args::Form;
use handoffd_certify::map::Map;
use handoffd_certify::{Args, CertifyError};

use super::answer::answer;
use super::client::key_for;
use super::{Exit, Output};
use handoffd_broker::config::Config;

/// Runs the kit. Without a verifier given, this program's own `verify` checks the bundles.
pub(super) async fn run(mut args: Args, config: Config, output: Output) -> Exit {
    if output == Output::Json {
        args.form = Form::Json;
    }
    if args.verifier.is_none() {
        args.verifier = own_verifier();
    }
    if !args.list && (args.key.is_some() || args.key_file.is_some() || !is_keyless(&args)) {
        match key_for(Some(&args.url), args.key_file.as_deref(), args.key.take(), &config) {
            Ok(key) => args.key = Some(key),
            Err(err) => {
                eprintln!("{}", err.shown(output));
                return err.exit();
            }
        }
    }
    match handoffd_certify::command(&args).await {
        Ok((text, holds)) => answer(&text, if holds { Exit::Success } else { Exit::No }),
        Err(err) => {
            eprintln!("handoffd: {err}");
            match err {
                CertifyError::Unreachable { .. } | CertifyError::Receiver { .. } => {
                    Exit::Unreachable
                }
                CertifyError::File { .. } | CertifyError::UnknownClaim(_) => Exit::Usage,
            }
        }
    }
}

/// Whether the kit registers no agents with the broker: such a system may have no keys. A file that cannot be read is reported by the run.
fn is_keyless(args: &Args) -> bool {
    let map = args.map.as_deref().map(Map::read);
    map.is_some_and(|read| read.is_ok_and(|map| map.receiver.is_some()))
}

/// `verify` of this program, as a command of the shell.
fn own_verifier() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let quoted = program.to_str()?.replace('\'', "'\\''");
    Some(format!("'{quoted}' verify"))
}
