//! One server per data directory.
//!
//! Invariant: while a [`DataLock`] exists, no other process can get one for the same directory. The operating system
//! releases it when the process ends; the file stays. A lock file that is removed is created again within a second
//! ([`until_taken`]). A database file has a lock on itself as well, which the store takes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use consign_store::sqlite;

use crate::data_dir::DataDir;
use crate::failure::Failure;

const LOCK_TRIES: u32 = 3;
const LOCK_RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// The interval at which a server checks its lock files.
const CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// The number of checks in a row in which another process may hold it: a second server that is refused holds it for a
/// moment.
const TAKEN_MAX: u32 = 5;

/// Locks the data directory until dropped.
#[derive(Debug)]
pub(crate) struct DataLock {
    path: PathBuf,
    /// The locked resource, for messages.
    what: String,
    // The lock belongs to the open file.
    file: Mutex<File>,
}

impl DataLock {
    pub(crate) fn acquire(data: &DataDir) -> anyhow::Result<Self> {
        let what = data.root().display().to_string();
        Self::acquire_with_retry(&data.lock_file(), &what)
    }

    /// Locks a database file by its real path: two data directories may refer to the same file.
    pub(crate) fn database(path: &Path) -> anyhow::Result<Self> {
        let what = path.display().to_string();
        let lock = Self::acquire_file(&lock_file_of(path), &what)?;
        // The store would refuse to open the file for writing anyway; this check fails before anything is created.
        if is_written(path)? {
            let message = format!("{what} is in use by another server, by this or another path");
            return Err(Failure::failed(message)
                .hint("stop it first; a copy made with `cp` is a ledger of its own, a link is not")
                .into());
        }
        Ok(lock)
    }

    /// Locks the directory of an automation service with the file that its protocol defines.
    pub(crate) fn state(path: &Path, what: &str) -> anyhow::Result<Self> {
        let hint = "stop it first; `system status` shows its state";
        Self::acquire_with_retry(path, what).map_err(|error| match error.downcast::<Failure>() {
            Ok(taken) => taken.hint(hint).into(),
            Err(error) => error,
        })
    }

    /// Retries, because a check of the lock holds it for a moment.
    fn acquire_with_retry(path: &Path, what: &str) -> anyhow::Result<Self> {
        for _ in 1..LOCK_TRIES {
            match Self::acquire_file(path, what) {
                Err(error) if error.is::<Failure>() => std::thread::sleep(LOCK_RETRY_PAUSE),
                acquired => return acquired,
            }
        }
        Self::acquire_file(path, what)
    }

    /// Whether a database is locked. Creates no file.
    pub(crate) fn is_held(path: &Path) -> bool {
        holder(&lock_file_of(path)).is_some() || sqlite::is_locked(path).unwrap_or(false)
    }

    /// Locks a file; `what` is the locked resource in the error.
    pub(crate) fn acquire_file(path: &Path, what: &str) -> anyhow::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(what, &mut file).into()),
            Err(TryLockError::Error(error)) => {
                return Err(
                    anyhow::Error::new(error).context(format!("cannot lock {}", path.display()))
                );
            }
        }
        let written = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            what: what.to_owned(),
            file: Mutex::new(file),
        })
    }

    /// Creates the lock file again if it was removed or replaced. Errors are those of [`Self::acquire_file`].
    fn renew(&self) -> anyhow::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = file.metadata()?;
        let there = std::fs::metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Ok(());
        }
        let again = Self::acquire_file(&self.path, &self.what)?;
        *file = again
            .file
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        tracing::warn!(
            "{} was removed or replaced while the server is running; it was created again",
            self.path.display()
        );
        Ok(())
    }
}

/// Keeps the lock files of a running server in place. Returns when another process holds one of them.
pub(crate) async fn until_taken(locks: Vec<Arc<DataLock>>) -> Failure {
    let mut taken = 0;
    let mut told = false;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        // All of them, even if one fails.
        let mut errors: Vec<_> = locks.iter().filter_map(|lock| lock.renew().err()).collect();
        match errors.pop().map(anyhow::Error::downcast::<Failure>) {
            None => (taken, told) = (0, false),
            Some(Ok(refused)) => {
                taken += 1;
                if taken >= TAKEN_MAX {
                    return refused;
                }
            }
            // The directory is gone, or the disk is full: no other process holds it then.
            Some(Err(error)) if !told => {
                told = true;
                tracing::warn!("a lock file is missing and cannot be created again: {error:#}");
            }
            Some(Err(_)) => {}
        }
    }
}

/// Whether another process has a database open for writing. A check holds the lock for a moment.
fn is_written(path: &Path) -> anyhow::Result<bool> {
    for _ in 1..LOCK_TRIES {
        if !sqlite::is_locked(path)? {
            return Ok(false);
        }
        std::thread::sleep(LOCK_RETRY_PAUSE);
    }
    Ok(sqlite::is_locked(path)?)
}

/// The process that holds a lock file, 0 if the file does not name it; `None` if it is not locked. Creates no file.
pub(crate) fn holder(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut pid = String::new();
    let read = file.read_to_string(&mut pid).ok();
    Some(read.and_then(|_| pid.trim().parse().ok()).unwrap_or(0))
}

/// The lock file of a database.
fn lock_file_of(path: &Path) -> PathBuf {
    let real = real_path(path);
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    real.with_file_name(format!("{name}.lock"))
}

/// Without symbolic links; a file that does not exist yet has at least a directory.
fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new(".")).canonicalize();
    match (directory, path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

fn taken(what: &str, file: &mut File) -> Failure {
    let mut holder = String::new();
    let read = file
        .rewind()
        .and_then(|()| file.read_to_string(&mut holder));
    let message = match (read, holder.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("{what} is in use by another server (pid {pid})"),
        _ => format!("{what} is in use by another server"),
    };
    Failure::failed(message).hint("stop it first, or choose another directory with --data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_held_by_whatever_name_it_is_called() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let _held = DataLock::database(&path).unwrap();
        std::fs::write(&path, "made meanwhile").unwrap();
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for name in [path, link] {
            assert!(DataLock::is_held(&name));
            let refused = DataLock::database(&name).unwrap_err().to_string();
            assert!(refused.contains("is in use by another server"), "{refused}");
        }
        let other = directory.path().join("other.db");
        assert!(!DataLock::is_held(&other));
        assert!(!lock_file_of(&other).exists(), "a look makes nothing");
    }

    #[test]
    fn s5_a_lock_file_that_was_removed_is_made_again_unless_somebody_else_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = DataLock::acquire_file(&path, "it").unwrap();
        for _ in 0..2 {
            std::fs::remove_file(&path).unwrap();
            lock.renew().unwrap();
            assert_eq!(holder(&path), Some(std::process::id()));
        }
        std::fs::remove_file(&path).unwrap();
        let other = DataLock::acquire_file(&path, "it").unwrap();
        let refused = lock.renew().unwrap_err();
        assert!(refused.downcast_ref::<Failure>().is_some(), "{refused}");
        drop(other);
        lock.renew().unwrap();
    }

    #[test]
    fn a_second_instance_is_refused_and_told_the_pid() {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::new(directory.path());
        let first = DataLock::acquire(&data).unwrap();
        let refused = DataLock::acquire(&data).unwrap_err().to_string();
        assert!(
            refused.ends_with(&format!(
                "is in use by another server (pid {})",
                std::process::id()
            )),
            "{refused}"
        );
        drop(first);
        DataLock::acquire(&data).unwrap();
    }
}
