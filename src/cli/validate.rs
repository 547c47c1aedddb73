//! `handoffd validate FILE`: what of the gate needs no broker.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::json;

use super::answer::answer;
use super::{Exit, Output};
use handoffd_domain::failure::{Code, Failure, primary};
use handoffd_domain::json;
use handoffd_gate::{Gate, budget, completeness, safety};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A handoff message in JSON
    file: PathBuf,
}

/// Runs schema, completeness, budget and safety over a file.
pub(super) fn run(args: &Args, output: Output) -> Exit {
    let bytes = match std::fs::read(&args.file) {
        Ok(bytes) => bytes,
        Err(err) => {
            eprintln!("handoffd: {}: {err}", args.file.display());
            return Exit::Unreachable;
        }
    };
    let failures = judge(&bytes);
    let reason = primary(&failures).map(Code::as_str);
    let text = match output {
        Output::Json => {
            json!({ "valid": failures.is_empty(), "reason": reason, "failures": failures })
                .to_string()
        }
        Output::Text if failures.is_empty() => "valid".to_owned(),
        Output::Text => {
            let lines = failures.iter().map(|failure| {
                format!("\n  {} {}: {}", failure.code, failure.pointer, failure.message)
            });
            let lines = lines.collect::<Vec<_>>().concat();
            format!("not valid: {}{lines}", reason.unwrap_or_default())
        }
    };
    answer(&text, if failures.is_empty() { Exit::Success } else { Exit::No })
}

fn judge(bytes: &[u8]) -> Vec<Failure> {
    let message = match json::parse(bytes) {
        Ok(message) => message,
        Err(fault) => return vec![fault.into_failure()],
    };
    let gate = Gate::new();
    if let Err(failures) = gate.schemas.check(&message) {
        return failures;
    }
    let mut failures = completeness::check(&message, &[]);
    failures.extend(budget::check(&message));
    failures.extend(gate.scanner.scan(&message).iter().map(safety::to_failure));
    failures
}
