//! One server per data directory.
//!
//! Invariant: while a [`DataLock`] lives, no other process can get one for the same directory. The
//! operating system frees it when the process ends, however it ends; the file itself stays.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::data_dir::DataDir;
use crate::failure::Failure;

const LOOKS: u32 = 3;
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// Holds the data directory until dropped.
#[derive(Debug)]
pub(crate) struct DataLock {
    // The lock belongs to the open file.
    _file: File,
}

impl DataLock {
    pub(crate) fn acquire(data: &DataDir) -> anyhow::Result<Self> {
        let what = data.root().display().to_string();
        Self::acquire_past_looks(&data.lock_file(), &what)
    }

    /// Holds a database, wherever it lies and by whatever name it is called: two data directories
    /// may name the same one.
    pub(crate) fn database(path: &Path) -> anyhow::Result<Self> {
        Self::acquire_file(&beside(path), &path.display().to_string())
    }

    /// Holds the directory of an automation service, by the file that its protocol names.
    pub(crate) fn state(path: &Path, what: &str) -> anyhow::Result<Self> {
        let hint = "stop it first; `system status` tells how it is";
        Self::acquire_past_looks(path, what).map_err(|error| match error.downcast::<Failure>() {
            Ok(taken) => taken.hint(hint).into(),
            Err(error) => error,
        })
    }

    /// Who looks whether it is held holds it for that moment.
    fn acquire_past_looks(path: &Path, what: &str) -> anyhow::Result<Self> {
        for _ in 1..LOOKS {
            match Self::acquire_file(path, what) {
                Err(error) if error.is::<Failure>() => std::thread::sleep(LOOK),
                acquired => return acquired,
            }
        }
        Self::acquire_file(path, what)
    }

    /// Whether a database is held right now. Looks, and makes no file.
    pub(crate) fn is_held(path: &Path) -> bool {
        holder(&beside(path)).is_some()
    }

    /// Locks by any file; `what` names in the refusal what it stands for.
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
        Ok(Self { _file: file })
    }
}

/// The process that holds a lock file, 0 if it has not said which; `None` while nobody does. Looks, and makes no file.
pub(crate) fn holder(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut pid = String::new();
    let read = file.read_to_string(&mut pid).ok();
    Some(read.and_then(|_| pid.trim().parse().ok()).unwrap_or(0))
}

/// The file that stands for a database.
fn beside(path: &Path) -> PathBuf {
    let real = real_path(path);
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    real.with_file_name(format!("{name}.lock"))
}

/// Without symbolic links; a file that is still to be made has at least a directory.
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
        assert!(!beside(&other).exists(), "a look makes nothing");
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
