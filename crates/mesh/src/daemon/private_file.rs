//! Writes the small files of a daemon's folder.
//!
//! Invariant: a file is replaced as a whole. After a crash it has its old or its new content, and no other user could read
//! it in between.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Readable by its owner alone.
pub const PRIVATE: u32 = 0o600;
/// Readable by everyone, for files without a secret.
pub const PUBLIC: u32 = 0o644;
/// The folder of a daemon.
pub const PRIVATE_FOLDER: u32 = 0o700;

/// Replaces the file. When this returns, the content is on disk.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = folder_of(path)?;
    // A temporary file is created with mode 0600, and removed if a step fails.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_folder(folder)
}

/// Removes the file durably. Returns whether it existed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => sync_folder(folder_of(path)?).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames a file of the same folder durably.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder(folder_of(to)?)
}

/// Renames a file that cannot be used to `NAME.WORD-MILLISECONDS`, and returns the new path. No earlier file is replaced.
pub fn set_aside(path: &Path, word: &str) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut at = jiff::Timestamp::now().as_millisecond();
    let aside = loop {
        let aside = path.with_file_name(format!("{name}.{word}-{at}"));
        if !aside.exists() {
            break aside;
        }
        at += 1;
    };
    rename(path, &aside)?;
    Ok(aside)
}

/// The text of the file; `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The permission bits; `None` if it does not exist.
pub fn mode(path: &Path) -> io::Result<Option<u32>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.permissions().mode() & 0o777)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates the folder and those above it. An existing folder is closed to other users.
pub fn create_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_FOLDER))
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path without a folder"))
}

/// A renamed file is durable once its folder is.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keypair.json");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, b"one", PUBLIC).unwrap();
        replace(&path, b"two", PRIVATE).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(mode(&path).unwrap(), Some(PRIVATE));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"text", PRIVATE).is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
