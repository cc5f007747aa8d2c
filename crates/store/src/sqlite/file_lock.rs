//! Only one process at a time writes to a file, whatever name it opens it by.
//!
//! The lock is on the file itself and not on a separate lock file, so that neither another link to the file nor a removed
//! lock file admits a second process. It is an `flock`, which on a local disk does not affect the byte ranges that SQLite
//! locks. Invariant: its descriptor stays open as long as SQLite has the file open in this process, because closing any
//! descriptor of a file releases the ranges that the process has locked in it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use crate::Error;

/// A process that checks whether a file is locked holds the lock for that moment.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// The exclusive right to write to a file, until released or dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

impl FileLock {
    /// Locks an existing file.
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        let unfit = |error: std::io::Error| Error::Open {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let mut tries = 0;
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .map_err(unfit)?;
            match file.try_lock() {
                // Another file may have replaced it since it was opened.
                Ok(()) if is_at(&file, path).map_err(unfit)? => return Ok(Self { file }),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(unfit(error)),
            }
            tries += 1;
            if tries == TRIES {
                return Err(Error::InUse {
                    path: path.to_owned(),
                });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Releases the lock. The descriptor stays open: readers of this process may still have the file open.
    pub(crate) fn release(&self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the lock of the database could not be released; it ends with this process");
        }
    }
}

/// Whether a process has locked the file. Must not be called by a process that has the file open itself: see above.
pub fn is_locked(path: &Path) -> Result<bool, Error> {
    let unfit = |error: std::io::Error| Error::Open {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.map_err(unfit)?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(unfit(error)),
    }
}

fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let (ours, there) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_holder_by_whatever_name_and_a_copy_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, symlink, copy] =
            ["a.db", "hard.db", "soft.db", "copy.db"].map(|name| folder.path().join(name));
        std::fs::write(&path, "ledger").unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        std::os::unix::fs::symlink(&path, &symlink).unwrap();
        std::fs::copy(&path, &copy).unwrap();
        let held = FileLock::take(&path).unwrap();
        for name in [&path, &link, &symlink] {
            assert!(is_locked(name).unwrap(), "{name:?}");
            let refused = FileLock::take(name).unwrap_err();
            assert!(matches!(refused, Error::InUse { .. }), "{refused}");
        }
        FileLock::take(&copy).unwrap();
        held.release();
        assert!(!is_locked(&link).unwrap());
        FileLock::take(&link).unwrap();
    }
}
