//! How a command's answer reaches standard output.

use std::io::{self, Write};

use super::Exit;

/// Writes an answer, and a newline if its last line has none. Returns `exit`, or [`Exit::Unreachable`] if the answer cannot
/// be written. A reader that stops reading is not an error.
pub(super) fn answer(text: &str, exit: Exit) -> Exit {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    match written.and_then(|()| out.flush()) {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "handoffd: the answer cannot be written: {err}");
            Exit::Unreachable
        }
        _ => exit,
    }
}
