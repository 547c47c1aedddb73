use std::io::Write;

use clap::Args as ClapArgs;
use clap_complete::Shell;

use super::{Exit, command};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Which shell
    shell: Shell,
}

/// Prints what the shell's completion loads.
pub(super) fn run(args: &Args) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "handoffd", &mut script);
    // Who reads may stop reading.
    let _ = std::io::stdout().write_all(&script);
    Exit::Success
}
