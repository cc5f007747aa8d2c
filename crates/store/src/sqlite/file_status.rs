//! Identity and length of a file, read without its time stamps.
//!
//! A kernel with fine-grained time stamps (Linux 6.13 and later) gives a file a new time stamp with the next write after a
//! query of the old one, and the sync that follows takes about 40 µs longer. The store checks its files for every commit,
//! so it asks for nothing but what it compares.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStatus {
    /// Device and inode.
    pub(super) identity: (u64, u64),
    pub(super) length: u64,
}

impl FileStatus {
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Self::query(CWD, path, AtFlags::empty(), || std::fs::metadata(path))
    }

    pub(super) fn of(file: &File) -> io::Result<Self> {
        Self::query(file, Path::new(""), AtFlags::EMPTY_PATH, || file.metadata())
    }

    fn query(
        directory: impl AsFd,
        path: &Path,
        flags: AtFlags,
        whole: impl FnOnce() -> io::Result<Metadata>,
    ) -> io::Result<Self> {
        let mask = StatxFlags::INO | StatxFlags::SIZE;
        match statx(directory, path, flags, mask) {
            Ok(found) => Ok(Self {
                identity: (
                    makedev(found.stx_dev_major, found.stx_dev_minor),
                    found.stx_ino,
                ),
                length: found.stx_size,
            }),
            // A sandbox may refuse the system call by this error.
            Err(Errno::NOSYS) => whole().map(|found| Self {
                identity: (found.dev(), found.ino()),
                length: found.len(),
            }),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_metadata_of_the_standard_library() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "seven b").unwrap();
        let found = std::fs::metadata(&path).unwrap();
        let expected = FileStatus {
            identity: (found.dev(), found.ino()),
            length: 7,
        };
        assert_eq!(FileStatus::at(&path).unwrap(), expected);
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(FileStatus::of(&file).unwrap(), expected);
        let gone = FileStatus::at(&path).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
