use super::Exit;
use super::answer::answer;
use crate::app;

/// Prints the document of this build.
pub(super) fn run() -> Exit {
    answer(app::OPENAPI, Exit::Success)
}
