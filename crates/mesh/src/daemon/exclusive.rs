//! The folder of a daemon that does not run, for commands that change its files.
//!
//! Invariant: while the value exists, no daemon can start in the folder, because it locks the file that a daemon locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::private_file::{self, PRIVATE};

const LOCK_FILE: &str = "pid";

/// A folder whose daemon is stopped.
#[derive(Debug)]
pub struct StoppedDaemon {
    directory: PathBuf,
    /// `None` after the folder was removed.
    _lock: File,
}

/// Why a command does not change the files.
#[derive(Debug, thiserror::Error)]
pub enum NotStopped {
    #[error("the daemon is running{}; stop it with `daemon down`", .0.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Running(Option<u32>),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl StoppedDaemon {
    /// Locks the folder, which is created if it does not exist.
    pub fn lock(directory: &Path) -> Result<Self, NotStopped> {
        private_file::create_folder(directory)?;
        let path = directory.join(LOCK_FILE);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self {
                directory: directory.to_owned(),
                _lock: file,
            }),
            Err(TryLockError::WouldBlock) => {
                let text = private_file::read(&path)?;
                let pid = text.and_then(|text| text.trim().parse().ok());
                Err(NotStopped::Running(pid))
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the folder with everything in it.
    pub fn wipe(self) -> io::Result<()> {
        fs::remove_dir_all(&self.directory)
    }
}

impl Drop for StoppedDaemon {
    fn drop(&mut self) {
        // A pid file says that a daemon runs. If it stays, the next start replaces it.
        let _ = fs::remove_file(self.directory.join(LOCK_FILE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_used_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("team");
        let first = StoppedDaemon::lock(&directory).unwrap();
        fs::write(directory.join(LOCK_FILE), "77\n").unwrap();
        let refused = StoppedDaemon::lock(&directory).unwrap_err();
        assert!(refused.to_string().contains("pid 77"), "{refused}");
        drop(first);
        assert!(!directory.join(LOCK_FILE).exists());
        StoppedDaemon::lock(&directory).unwrap().wipe().unwrap();
        assert!(!directory.exists());
    }
}
