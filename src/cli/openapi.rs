use super::Exit;
use crate::app;

/// Prints the document of this build.
pub(super) fn run() -> Exit {
    match app::openapi().to_pretty_json() {
        Ok(text) => {
            println!("{text}");
            Exit::Success
        }
        Err(err) => {
            eprintln!("handoffd: {err}");
            Exit::Unreachable
        }
    }
}
