//! A small library that is preloaded into a server: it counts syncs of the database, can make the disk
//! fail, moves the clocks, kills in the middle of a checkpoint, and logs every change of the data directory.
//!
//! A kill proves nothing about syncs, because the operating system keeps the writes of a dead process. So
//! syncs are counted, and [`crate::disk`] computes the content of the disk after a power cut from the log.
//! Invariant: faults affect only files whose path contains the given text. The source is in C, because it
//! overrides functions of libc; [`Shim::build`] compiles it.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Options;

const SOURCE: &str = include_str!("shim/sync_shim.c");
/// One page, which the library maps.
const STATE_BYTES: u64 = 4096;
const SYNCS_AT: u64 = 0;
const FAILED_AT: u64 = 8;
const MODE_AT: u64 = 16;
const PASSED_AT: u64 = 24;
const DIE_AT: u64 = 32;
const CLOCKS_AT: u64 = 40;
const CLOCK_READS_AT: u64 = 104;
const SLEPT_AT: u64 = 168;

/// The calls that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Syncs fail with EIO.
    Syncs,
    /// Writes and file growth fail with ENOSPC.
    Writes,
    /// Writes and file growth fail with EIO.
    WritesIo,
}

/// The index of one of eight wall clocks, which can be moved independently. A process uses the first one by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock(pub u64);

impl Clock {
    /// The variable that selects this clock for a process with the library.
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

    /// Preloads the library into a server; `files` is part of the paths that it counts and disturbs.
    #[must_use]
    pub fn under(&self, options: Options, files: &str) -> Options {
        let variables = self.variables(files).into_iter();
        variables.fold(options, |options, (name, value)| options.env(name, &value))
    }

    /// The variables that preload the library; `files` is part of the paths that it counts and disturbs.
    pub fn variables(&self, files: &str) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("CONSIGN_SHIM_STATE", text(&self.state_file)),
            ("CONSIGN_SHIM_FILES", files.to_owned()),
        ]
    }

    /// Allows processes of other users to use it, if they have access to its folder.
    pub fn share(&self) -> io::Result<()> {
        self.state.set_permissions(Permissions::from_mode(0o666))?;
        std::fs::set_permissions(&self.library, Permissions::from_mode(0o755))
    }

    /// Also logs the changes of the server's data directory, for [`crate::disk::Disk`].
    #[must_use]
    pub fn logging(&self, options: Options, log: &Path) -> Options {
        let tree = options.data.to_string_lossy().into_owned();
        options
            .env("CONSIGN_SHIM_TREE", &tree)
            .env("CONSIGN_SHIM_LOG", &log.to_string_lossy())
    }

    /// The shared state, for [`crate::history::follow`].
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

    /// Sets the server's wall clock this many seconds ahead of the true time.
    pub fn move_clock(&self, seconds: i64) -> io::Result<()> {
        self.set_clock(Clock(0), seconds * 1_000_000)
    }

    /// Sets one of the clocks ahead of the true time.
    pub fn set_clock(&self, clock: Clock, ahead_us: i64) -> io::Result<()> {
        let at = CLOCKS_AT + 8 * clock.0;
        self.state.write_all_at(&ahead_us.to_ne_bytes(), at)
    }

    /// How often the clock was read while it was moved.
    pub fn clock_reads(&self, clock: Clock) -> io::Result<u64> {
        self.number(CLOCK_READS_AT + 8 * clock.0)
    }

    /// Sets the total time of suspends. It counts for the wall clock and for the clock since the boot.
    pub fn has_slept(&self, seconds: i64) -> io::Result<()> {
        self.state.write_all_at(&seconds.to_ne_bytes(), SLEPT_AT)
    }

    /// Advances all clocks of the server at once.
    pub fn let_pass(&self, seconds: i64) -> io::Result<()> {
        let passed = passed_s(&self.state)? + seconds;
        self.state.write_all_at(&passed.to_ne_bytes(), PASSED_AT)
    }

    /// Kills the server at this write to the database file, in the middle of a checkpoint; 0 disables it.
    pub fn die_in_checkpoint(&self, at_write: u64) -> io::Result<()> {
        self.state.write_all_at(&at_write.to_ne_bytes(), DIE_AT)
    }

    /// The number of syncs that succeeded.
    pub fn syncs(&self) -> io::Result<u64> {
        self.number(SYNCS_AT)
    }

    /// The number of calls that were made to fail.
    pub fn failed(&self) -> io::Result<u64> {
        self.number(FAILED_AT)
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.state.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The seconds by which all clocks were advanced, read from a shim's state.
pub(crate) fn passed_s(state: &File) -> io::Result<i64> {
    let mut bytes = [0; 8];
    state.read_exact_at(&mut bytes, PASSED_AT)?;
    Ok(i64::from_ne_bytes(bytes))
}
