//! `handoffd certify URL`: drives a broker from outside, claim by claim (`crates/certify`).

use handoffd_certify::args::Form;
use handoffd_certify::{Args, CertifyError};
use url::{Host, Url};

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
    if !args.list {
        if args.key_file.is_none() && args.key.is_none() && !is_this_machine(&args.url) {
            let why = "give the broker's key (--key-file, or HANDOFFD_API_KEY): this machine's admin key is sent to no other host";
            eprintln!("handoffd: {why}");
            return Exit::Usage;
        }
        match key_for(args.key_file.as_deref(), args.key.take(), &config) {
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
                CertifyError::Unreachable { .. } => Exit::Unreachable,
                CertifyError::File { .. } | CertifyError::UnknownClaim(_) => Exit::Usage,
            }
        }
    }
}

/// Whether a URL names a loopback address.
fn is_this_machine(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// `verify` of this program, as a command of the shell.
fn own_verifier() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let quoted = program.to_str()?.replace('\'', "'\\''");
    Some(format!("'{quoted}' verify"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_key_of_this_machine_goes_to_no_other_host() {
        for url in ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:1"] {
            assert!(is_this_machine(url), "{url}");
        }
        let others = [
            "http://broker.example",
            "http://localhost.example",
            "http://127.0.0.1@a.example",
            "x",
            "",
        ];
        for url in others {
            assert!(!is_this_machine(url), "{url}");
        }
    }
}
