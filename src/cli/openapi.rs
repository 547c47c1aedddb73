//! `handoffd openapi`.

use super::Exit;
use crate::http::router;

/// Prints the document of this build.
pub(super) fn run() -> Exit {
    match router::openapi().to_pretty_json() {
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
