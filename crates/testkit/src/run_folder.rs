//! The folder of a run that starts servers, and its cleanup after a signal or a kill.
//!
//! Invariant: everything that a run started ends with its folder: after a signal by the run itself, and after a
//! SIGKILL by the next run of the same kind, which finds a folder without its owner. A folder that was kept has no
//! owner and is left alone. Only processes that belong to the folder are killed: PostgreSQL on a data directory in
//! the folder, and processes with the folder in their environment, such as everything with the shim.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::postgres;
use crate::process::table::{self, Row};

/// The variable that contains the folder, for servers without a shim.
pub const VARIABLE: &str = "CONSIGN_RUN_FOLDER";

const OWNER: &str = "owner";
/// The exit code of a program that was ended by a signal.
const ENDED_BY_SIGNAL: i32 = 130;
/// Locked while the process ends.
static ENDING: Mutex<()> = Mutex::new(());

#[derive(Debug)]
pub struct RunFolder(TempDir);

impl RunFolder {
    /// Creates a folder in `parent`, after removing those of dead runs with the same prefix.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        for leftover in leftovers(parent, prefix)? {
            // Folders of other users, or folders that are being removed, are skipped.
            let _ = clear(&leftover);
        }
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let owner = this_process()?;
        fs::write(folder.path().join(OWNER), owner)?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// On SIGINT or SIGTERM, kills everything that this process started, and then the process. It uses a thread,
    /// because the main thread waits for children most of the time.
    pub fn end_on_signal(&self) -> io::Result<()> {
        let folder = self.path().to_owned();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            let watch = |kind| signal(kind);
            (
                watch(SignalKind::interrupt())?,
                watch(SignalKind::terminate())?,
            )
        };
        thread::spawn(move || {
            runtime.block_on(std::future::poll_fn(|context| {
                let interrupted = interrupt.poll_recv(context).is_ready();
                if interrupted || terminate.poll_recv(context).is_ready() {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            }));
            let _ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
            // Twice: the main thread continues meanwhile, and may be starting a process.
            for _ in 0..2 {
                kill(&table::family(std::process::id())[1..]);
                // Errors cannot be reported here.
                let _ = clear(&folder);
            }
            // The main thread waits for a child and cannot be interrupted.
            std::process::exit(ENDED_BY_SIGNAL);
        });
        Ok(())
    }

    /// Keeps all files and returns the folder.
    pub fn keep(self) -> PathBuf {
        let kept = self.0.keep();
        // A folder without an owner is not removed by later runs.
        let _ = fs::remove_file(kept.join(OWNER));
        kept
    }
}

/// Blocks if a signal is about to end this process, because failures are meaningless then.
pub fn unless_ending() {
    drop(ENDING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Folders whose owner is gone.
fn leftovers(parent: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(parent)?.flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let folders = named.map(|entry| entry.path());
    let dead = folders.filter(|folder| {
        let owner = fs::read_to_string(folder.join(OWNER));
        owner.is_ok_and(|owner| !is_there(&owner))
    });
    Ok(dead.collect())
}

/// Id and start time of this process, which are unique.
fn this_process() -> io::Result<String> {
    let pid = std::process::id();
    let row = Row::of(pid).ok_or_else(|| io::Error::other("this process is not in /proc"))?;
    Ok(format!("{pid} {}", row.started))
}

fn is_there(owner: &str) -> bool {
    let mut numbers = owner.split_whitespace();
    let pid = numbers.next().and_then(|pid| pid.parse().ok());
    let started = numbers.next().and_then(|started| started.parse().ok());
    let row = pid.and_then(Row::of);
    row.is_some_and(|row| Some(row.started) == started && row.state != "Z")
}

/// Kills the processes of the folder, unmounts the file systems in it, and removes it.
fn clear(folder: &Path) -> io::Result<()> {
    for data in postgres::data_folders(folder) {
        postgres::kill_server(&data)?;
    }
    let own = std::process::id();
    let mut others = table::pids();
    others.retain(|pid| *pid != own && names(*pid, folder));
    kill(&others);
    for point in mounts(folder)? {
        let mut umount = Command::new("umount");
        // Lazily: a killed process may take a moment to close its files.
        let _ = umount.arg("-l").arg(point).stderr(Stdio::null()).status();
    }
    fs::remove_dir_all(folder)
}

fn kill(pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let words = pids.iter().map(u32::to_string);
    // Processes that ended meanwhile cause an error.
    let mut kill = Command::new("kill");
    let _ = kill.arg("-KILL").args(words).stderr(Stdio::null()).status();
}

/// Whether a process was started with this folder in a variable.
fn names(pid: u32, folder: &Path) -> bool {
    let Ok(variables) = fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    let mut values = variables.split(|byte| *byte == 0).filter_map(|variable| {
        let (_, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
        Some(Path::new(value))
    });
    values.any(|value| value.starts_with(folder))
}

/// The mount points below, the deepest first.
fn mounts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mounts")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(1));
    let mut below: Vec<PathBuf> = points
        .map(PathBuf::from)
        .filter(|point| point.starts_with(folder))
        .collect();
    below.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state after a killed run: a dead process owns the folder, and its server still runs.
    #[test]
    fn the_next_run_clears_what_a_killed_one_left_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let make = || RunFolder::make(parent.path(), "run-").unwrap();
        let (living, dead, kept) = (make(), make(), make());
        let kept = kept.keep();
        let dead = dead.0.keep();
        let pid = std::process::id();
        fs::write(dead.join(OWNER), format!("{pid} 1")).unwrap();
        let mut sleep = Command::new("sleep");
        let mut left = sleep.arg("60").env(VARIABLE, &dead).spawn().unwrap();
        let mut sleep = Command::new("sleep");
        let mut other = sleep.arg("60").env(VARIABLE, &kept).spawn().unwrap();
        make();
        assert!(living.path().exists() && kept.exists() && !dead.exists());
        assert!(!left.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
