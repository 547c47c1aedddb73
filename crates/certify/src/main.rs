//! `handoffd-certify`: the kit as a program of its own, without a broker in it.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use handoffd_certify::Args;

/// Drive a handoff broker from outside, claim by claim, and print which claims hold. Exits with 0 where none fails, 1 where one
/// does, 2 where the broker cannot be driven.
#[derive(Debug, Parser)]
#[command(name = "handoffd-certify", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = Cli::parse().args;
    match key(&args) {
        Ok(key) => args.key = key,
        Err(why) => {
            eprintln!("handoffd-certify: {why}");
            return ExitCode::from(2);
        }
    }
    match handoffd_certify::command(&args).await {
        Ok((text, holds)) => {
            // A reader that stops reading causes no error.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::from(u8::from(!holds))
        }
        Err(err) => {
            eprintln!("handoffd-certify: {err}");
            ExitCode::from(2)
        }
    }
}

/// The operator's key: of the file, where one is named.
fn key(args: &Args) -> Result<Option<String>, String> {
    let Some(file) = &args.key_file else { return Ok(args.key.clone()) };
    let read = std::fs::read_to_string(file).map_err(|err| format!("{}: {err}", file.display()))?;
    Ok(Some(read.trim().to_owned()))
}
