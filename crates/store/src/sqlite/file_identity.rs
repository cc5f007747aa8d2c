//! Detects that the file at the path is no longer the one that is open.
//!
//! A database that was deleted or replaced under a running server would accept writes that are lost.

use std::path::{Path, PathBuf};

use super::file_status::FileStatus;
use crate::Error;

#[derive(Debug)]
pub(super) struct FileIdentity {
    path: PathBuf,
    found: (u64, u64),
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let found = identity(path).map_err(|error| Error::Open {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            found,
        })
    }

    /// Adds the path to an error that is about the disk.
    pub(super) fn named(&self, error: Error) -> Error {
        if let Error::DiskFull(reason) = &error {
            return Error::DiskFull(format!("{}: {reason}", self.path.display()));
        }
        error
    }

    /// Fails as long as another file, or none, is at the path.
    pub(super) fn confirm(&self) -> Result<(), Error> {
        match identity(&self.path) {
            Ok(now) if now == self.found => Ok(()),
            _ => Err(Error::Unavailable(format!(
                "{} was moved, deleted or replaced; put it back or restart the server",
                self.path.display()
            ))),
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    FileStatus::at(path).map(|status| status.identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_noticed_and_one_put_back_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let aside = directory.path().join("aside.db");
        std::fs::write(&path, "ours").unwrap();
        let identity = FileIdentity::of(&path).unwrap();
        let look = || identity.confirm().is_ok();
        assert!(look());
        std::fs::rename(&path, &aside).unwrap();
        assert!(!look(), "no file is at the path");
        std::fs::write(&path, "another").unwrap();
        assert!(!look(), "another file is at the path");
        std::fs::rename(&aside, &path).unwrap();
        assert!(look(), "the file is back");
    }
}
