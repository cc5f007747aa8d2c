//! Writing files that only their owner may read, each in one step, and whether others may write to them.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const WRITE_BY_ALL: u32 = 0o002;

/// Replaces or makes a file. After a power cut it is the old one or the new one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    // Only its owner may read a temporary file, and a rename keeps its mode.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The rename itself survives a power cut only with its directory.
    File::open(dir)?.sync_all()
}

/// The same, with what was there before kept beside it.
pub(super) fn write_with_backup(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.is_file() {
        write(&backup_of(path), &fs::read(path)?)?;
    }
    write(path, bytes)
}

/// `x.yaml` is kept as `x.yaml.bak`, which no include of a directory reads.
pub(super) fn backup_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".bak");
    PathBuf::from(name)
}

/// What cannot be examined is told by whoever reads it.
pub(super) fn is_writable_by_all(path: &Path) -> bool {
    let found = fs::metadata(path);
    found.is_ok_and(|found| found.permissions().mode() & WRITE_BY_ALL != 0)
}

pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
