use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::{Exit, command};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints the page, or writes all.
pub(super) fn run(args: &Args) -> Exit {
    let written = match &args.dir {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command(), folder))
            .map_err(|err| format!("{}: {err}", folder.display())),
        None => page().map_err(|err| err.to_string()),
    };
    match written {
        Ok(()) => Exit::Success,
        Err(why) => {
            eprintln!("handoffd: {why}");
            Exit::Unreachable
        }
    }
}

fn page() -> std::io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command()).render(&mut page)?;
    // Who reads may stop reading.
    let _ = std::io::stdout().write_all(&page);
    Ok(())
}
