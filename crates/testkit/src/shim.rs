//! A small library put under a server: it counts syncs of the database, can make the disk fail, moves
//! the clocks, kills in the middle of a checkpoint, and logs every change of the data directory.
//!
//! A kill proves nothing about syncs, since the kernel keeps what a dead process wrote; so they are
//! counted, and [`crate::disk`] works out from the log what a power cut would have left.
//! Invariant: only files whose path holds the given text are disturbed. Source in C, because it has to
//! stand between the server and libc; it is compiled when a test asks for it.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Options;

const SOURCE: &str = include_str!("shim/sync_shim.c");
/// One page, which is what the library maps.
const STATE_BYTES: u64 = 4096;
const SYNCS_AT: u64 = 0;
const FAILED_AT: u64 = 8;
const MODE_AT: u64 = 16;
const PASSED_AT: u64 = 24;
const DIE_AT: u64 = 32;
const CLOCKS_AT: u64 = 40;
const CLOCK_READS_AT: u64 = 104;
const SLEPT_AT: u64 = 168;

/// What the disk refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Syncs fail with EIO.
    Syncs,
    /// Writes and growing fail with ENOSPC.
    Writes,
    /// Writes and growing fail with EIO.
    WritesIo,
}

/// One of the wall clocks that can be moved each on its own: below eight. What says nothing else has the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock(pub u64);

impl Clock {
    /// What lets a process under the library have this clock.
    pub fn variable(self) -> (&'static str, String) {
        ("CONSIGN_SHIM_CLOCK", self.0.to_string())
    }
}

/// The compiled library and the state it shares with one server.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    state_file: PathBuf,
    state: File,
}

impl Shim {
    /// Compiles the library into `folder` with the system's C compiler.
    pub fn build(folder: &Path) -> io::Result<Self> {
        let source = folder.join("sync_shim.c");
        let library = folder.join("sync_shim.so");
        let state_file = folder.join("sync_shim.state");
        std::fs::write(&source, SOURCE)?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .args(["-ldl", "-lpthread"])
            .output()?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            return Err(io::Error::other(format!("cc failed: {said}")));
        }
        let state = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&state_file)?;
        state.set_len(STATE_BYTES)?;
        Ok(Self {
            library,
            state_file,
            state,
        })
    }

    /// Puts the library under a server; `files` is part of the paths it looks at.
    #[must_use]
    pub fn under(&self, options: Options, files: &str) -> Options {
        let variables = self.variables(files).into_iter();
        variables.fold(options, |options, (name, value)| options.env(name, &value))
    }

    /// What puts the library under a process; `files` is part of the paths it looks at.
    pub fn variables(&self, files: &str) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("CONSIGN_SHIM_STATE", text(&self.state_file)),
            ("CONSIGN_SHIM_FILES", files.to_owned()),
        ]
    }

    /// Lets processes of other users use it too, if they can reach its folder.
    pub fn share(&self) -> io::Result<()> {
        self.state.set_permissions(Permissions::from_mode(0o666))?;
        std::fs::set_permissions(&self.library, Permissions::from_mode(0o755))
    }

    /// Also writes down what happens to the server's data directory, for [`crate::disk::Disk`].
    #[must_use]
    pub fn logging(&self, options: Options, log: &Path) -> Options {
        let tree = options.data.to_string_lossy().into_owned();
        options
            .env("CONSIGN_SHIM_TREE", &tree)
            .env("CONSIGN_SHIM_LOG", &log.to_string_lossy())
    }

    /// What both sides share, for [`crate::history::follow`].
    pub fn state_file(&self) -> &Path {
        &self.state_file
    }

    pub fn set(&self, fault: Fault) -> io::Result<()> {
        let mode: u64 = match fault {
            Fault::None => 0,
            Fault::Syncs => 1,
            Fault::Writes => 2,
            Fault::WritesIo => 3,
        };
        self.state.write_all_at(&mode.to_ne_bytes(), MODE_AT)
    }

    /// Moves the server's wall clock by so many seconds from the true time.
    pub fn move_clock(&self, seconds: i64) -> io::Result<()> {
        self.set_clock(Clock(0), seconds * 1_000_000)
    }

    /// Lets one of the clocks be so far ahead of the true time.
    pub fn set_clock(&self, clock: Clock, ahead_us: i64) -> io::Result<()> {
        let at = CLOCKS_AT + 8 * clock.0;
        self.state.write_all_at(&ahead_us.to_ne_bytes(), at)
    }

    /// How often it was read so far while it was moved.
    pub fn clock_reads(&self, clock: Clock) -> io::Result<u64> {
        self.number(CLOCK_READS_AT + 8 * clock.0)
    }

    /// Lets the machine have slept for so many seconds in all, as its wall clock and its clock since the boot tell.
    pub fn has_slept(&self, seconds: i64) -> io::Result<()> {
        self.state.write_all_at(&seconds.to_ne_bytes(), SLEPT_AT)
    }

    /// Lets so many seconds pass for all clocks of the server at once, as if it had slept through them.
    pub fn let_pass(&self, seconds: i64) -> io::Result<()> {
        let passed = passed_s(&self.state)? + seconds;
        self.state.write_all_at(&passed.to_ne_bytes(), PASSED_AT)
    }

    /// Kills the server at this write to the database file, which is in the middle of a checkpoint. 0: not.
    pub fn die_in_checkpoint(&self, at_write: u64) -> io::Result<()> {
        self.state.write_all_at(&at_write.to_ne_bytes(), DIE_AT)
    }

    /// Syncs that succeeded so far.
    pub fn syncs(&self) -> io::Result<u64> {
        self.number(SYNCS_AT)
    }

    /// Calls that were made to fail so far.
    pub fn failed(&self) -> io::Result<u64> {
        self.number(FAILED_AT)
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.state.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Seconds that were let pass, read from a shim's state.
pub(crate) fn passed_s(state: &File) -> io::Result<i64> {
    let mut bytes = [0; 8];
    state.read_exact_at(&mut bytes, PASSED_AT)?;
    Ok(i64::from_ne_bytes(bytes))
}
