use super::Exit;
use crate::app;

/// Prints the document of this build.
pub(super) fn run() -> Exit {
    print!("{}", app::OPENAPI);
    Exit::Success
}
