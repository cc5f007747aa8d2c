//! The terminal as a screen of lines: raw keys in, whole frames out.
//!
//! Invariant: whatever ends the view, the terminal gets its mode, its cursor and its former screen back.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{self, OptionalActions, Termios};

/// Another screen without a cursor; `LEAVE` undoes it.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const CLEAR_TO_END_OF_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
const REVERSED: &str = "\u{1b}[7m";
const PLAIN: &str = "\u{1b}[0m";

/// If the terminal does not tell its size.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// What was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopKey {
    Up,
    Down,
    Enter,
    Escape,
    Letter(char),
}

/// One line of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub(super) text: String,
    pub(super) selected: bool,
}

impl ScreenLine {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            selected: false,
        }
    }
}

/// The terminal in raw mode.
pub(super) struct Screen {
    before: Termios,
    /// Keys that were typed faster than they are asked for.
    typed: VecDeque<TopKey>,
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Self> {
        let before = termios::tcgetattr(io::stdin()).context("cannot read the terminal's mode")?;
        let screen = Self {
            before: before.clone(),
            typed: VecDeque::new(),
        };
        let mut raw = before;
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)
            .context("cannot change the terminal's mode")?;
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size() -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => SIZE_DEFAULT,
        }
    }

    /// Replaces the whole screen. Lines that do not fit were cut by the caller.
    pub(super) fn draw(lines: &[ScreenLine]) -> anyhow::Result<()> {
        let mut text = String::from(HOME);
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            if line.selected {
                text.push_str(REVERSED);
            }
            text.push_str(&line.text);
            if line.selected {
                text.push_str(PLAIN);
            }
            text.push_str(CLEAR_TO_END_OF_LINE);
        }
        text.push_str(CLEAR_BELOW);
        write(&text)
    }

    /// The next key, if one comes in time. A change of the window's size interrupts the wait as well.
    pub(super) fn key(&mut self, wait: Duration) -> anyhow::Result<Option<TopKey>> {
        if let Some(key) = self.typed.pop_front() {
            return Ok(Some(key));
        }
        if !is_readable(wait)? {
            return Ok(None);
        }
        let mut bytes = [0; 64];
        let count = io::stdin().lock().read(&mut bytes)?;
        anyhow::ensure!(count > 0, "the terminal was closed");
        self.typed.extend(keys_of(&bytes[..count]));
        Ok(self.typed.pop_front())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be reported if this fails.
        let _ = write(LEAVE);
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn is_readable(wait: Duration) -> anyhow::Result<bool> {
    let stdin = io::stdin();
    let mut watched = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    let wait = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    match poll(&mut watched, Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The keys of some bytes. A terminal sends an arrow as a sequence that begins with escape.
fn keys_of(mut bytes: &[u8]) -> Vec<TopKey> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        let (key, rest) = match (first, rest) {
            (0x1b, [b'[' | b'O', b'A', rest @ ..]) => (TopKey::Up, rest),
            (0x1b, [b'[' | b'O', b'B', rest @ ..]) => (TopKey::Down, rest),
            // Another sequence: none of its bytes is a key.
            (0x1b, [b'[' | b'O', ..]) => break,
            (0x1b, rest) => (TopKey::Escape, rest),
            (b'\r' | b'\n', rest) => (TopKey::Enter, rest),
            // Control-C, which the raw mode delivers as a byte.
            (0x03, rest) => (TopKey::Letter('q'), rest),
            (byte, rest) => (TopKey::Letter(char::from(*byte)), rest),
        };
        keys.push(key);
        bytes = rest;
    }
    keys
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    written.and_then(|()| stdout.flush())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_what_terminals_send() {
        for (bytes, keys) in [
            (&b"\x1b[A"[..], &[TopKey::Up][..]),
            (b"\x1bOB", &[TopKey::Down]),
            (b"\x1b", &[TopKey::Escape]),
            (b"\r", &[TopKey::Enter]),
            (b"\x03", &[TopKey::Letter('q')]),
            (
                b"jj\x1b[A",
                &[TopKey::Letter('j'), TopKey::Letter('j'), TopKey::Up],
            ),
            (b"\x1b[5~", &[]),
        ] {
            assert_eq!(keys_of(bytes), keys, "{bytes:?}");
        }
    }
}
