//! A few MiB of disk space in a file beside the database, to be released when the disk is full.
//!
//! A start releases it, because it has to write before anything can be deleted, and so do a purge and a cleanup pass
//! of an operator. Clients cannot use it: the file is filled again as soon as there is space.
//!
//! Invariant: the file contains no data, so it can be deleted at any time, also by hand.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use consign_intent::ReleaseReserve;
use rustix::fs::{FallocateFlags, fallocate};

/// The first that there is space for. Less than the last is not worth keeping.
const SIZES: [u64; 4] = [8 << 20, 4 << 20, 2 << 20, 1 << 20];

/// The reserve of one database file.
#[derive(Clone, Debug)]
pub(super) struct DiskReserve(PathBuf);

impl DiskReserve {
    /// Named after the database, so that each has its own.
    pub(super) fn beside(database: &Path) -> Self {
        let mut name = OsString::from(database);
        name.push(".reserve");
        Self(name.into())
    }

    /// Releases the disk space.
    pub(super) fn release(&self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.0.display(), "cannot release the reserve of disk space");
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Allocates the disk space, unless it is allocated already or the disk is full.
    pub(super) fn fill(&self) {
        let length = fs::metadata(&self.0).map_or(0, |file| file.len());
        for size in SIZES.into_iter().filter(|size| *size > length) {
            match self.allocate(size) {
                Ok(()) => return,
                Err(error) if length > 0 => {
                    // The existing allocation stays.
                    tracing::debug!(%error, "the reserve of disk space is incomplete");
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, size, "no space for a reserve");
                    self.release();
                }
            }
        }
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&self.0)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, size)?)
    }

    /// For the operator's routes that delete.
    pub(super) fn release_reserve(&self) -> ReleaseReserve {
        let reserve = self.clone();
        ReleaseReserve(Arc::new(move || reserve.release()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s18_a_reserve_is_taken_given_back_and_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = DiskReserve::beside(&folder.path().join("consign.db"));
        let length = || fs::metadata(folder.path().join("consign.db.reserve")).map(|it| it.len());
        reserve.fill();
        assert_eq!(length().unwrap(), SIZES[0]);
        reserve.fill();
        (reserve.release_reserve().0)();
        assert!(length().is_err());
        reserve.release();
        reserve.fill();
        assert_eq!(length().unwrap(), SIZES[0]);
    }
}
