//! The only module that writes to the terminal: data to stdout, everything else to stderr.
//!
//! Invariant: a closed pipe ends the output quietly and is not an error of the command. Colour is never used, so
//! output is the same in a file.

use std::io::{self, ErrorKind, IsTerminal as _, Write};

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Whether notes are left out.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on [`note`] prints nothing.
pub(crate) fn leave_out_notes() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Data for the user or the next program, terminated by a newline.
pub(crate) fn data(text: &str) -> anyhow::Result<()> {
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let mut stdout = io::stdout().lock();
    let written = write!(stdout, "{text}{newline}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// One JSON document on one line.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    data(&serde_json::to_string(value)?)
}

/// A message that is neither data nor an error.
pub(crate) fn note(text: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        error(text);
    }
}

/// Why the command failed, and what to do. Errors of stderr are ignored.
pub(crate) fn error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether [`note`] writes to a terminal and is not recorded.
pub(crate) fn notes_reach_a_terminal() -> bool {
    io::stderr().is_terminal()
}

/// A line that the next one overwrites; only on a terminal.
pub(crate) fn progress(text: &str) {
    if notes_reach_a_terminal() {
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r{text:<78}").and_then(|()| stderr.flush());
    }
}

/// Removes the line of [`progress`].
pub(crate) fn progress_done() {
    if notes_reach_a_terminal() {
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r{:78}\r", "").and_then(|()| stderr.flush());
    }
}

/// A question without a newline, so that the answer follows it.
pub(crate) fn ask(question: &str) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{question} ").and_then(|()| stderr.flush());
}
