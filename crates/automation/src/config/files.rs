//! Writes private files atomically, and checks whether others may write to a file.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const WRITE_BY_ALL: u32 = 0o002;

/// Creates or replaces a file. After a power failure it has either the old or the new contents.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    // A temporary file is readable by its owner only, and a rename keeps its mode.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The rename is durable only once the directory is synced.
    File::open(dir)?.sync_all()
}

/// Writes a file and keeps the previous version beside it.
pub(super) fn write_with_backup(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.is_file() {
        write(&backup_of(path), &fs::read(path)?)?;
    }
    write(path, bytes)
}

/// `x.yaml` is kept as `x.yaml.bak`, which no directory include reads.
pub(super) fn backup_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".bak");
    PathBuf::from(name)
}

/// False for a file that cannot be examined; reading it reports the error.
pub(super) fn is_writable_by_all(path: &Path) -> bool {
    let found = fs::metadata(path);
    found.is_ok_and(|found| found.permissions().mode() & WRITE_BY_ALL != 0)
}

pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
