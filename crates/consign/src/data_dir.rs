//! The layout of the data directory, and how files get into it.
//!
//! Invariant: a file that exists is complete. Each is written beside its place with mode 0600,
//! synced, renamed, and the directory synced, so a power cut leaves the old file or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Which data directory a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// Data directory of the server: database, keys, address and lock
    #[arg(
        long,
        value_name = "DIR",
        env = "CONSIGN_DATA",
        hide_env_values = true,
        default_value = "./consign-data"
    )]
    pub(crate) data: PathBuf,
}

impl DataArgs {
    pub(crate) fn directory(&self) -> DataDir {
        DataDir::new(&self.data)
    }
}

/// A data directory: `address`, `lock`, `consign.db` and `keys/`.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the running server writes its base URL.
    pub(crate) fn address_file(&self) -> PathBuf {
        self.root.join("address")
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn database_file(&self) -> PathBuf {
        self.root.join("consign.db")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    pub(crate) fn key_file(&self, name: &str) -> PathBuf {
        self.keys().join(name)
    }

    /// Makes the directory and its `keys`, readable by the owner alone. Existing ones are kept.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        for directory in [self.root.clone(), self.keys()] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        }
        sync_directory(&self.root)
    }

    /// Tells commands on this machine where the server listens.
    pub(crate) fn write_address(&self, base_url: &str) -> anyhow::Result<()> {
        write_private(&self.address_file(), format!("{base_url}\n").as_bytes())
    }

    /// Where the server listens; `None` when none has been started here.
    pub(crate) fn read_address(&self) -> anyhow::Result<Option<String>> {
        let path = self.address_file();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
            }
        }
    }
}

/// Writes a whole file that only its owner can read, durably.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let directory = path.parent().context("the path has no directory")?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = || -> std::io::Result<()> {
        // Left over from a crash; `create_new` below would refuse it.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    written().with_context(|| format!("cannot write {}", path.display()))?;
    sync_directory(directory)
}

/// Makes renames and new entries in `directory` survive a power cut.
pub(crate) fn sync_directory(directory: &Path) -> anyhow::Result<()> {
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .with_context(|| format!("cannot sync the directory {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn directories_and_files_are_private() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::new(&parent.path().join("deep/data"));
        data.create().unwrap();
        data.write_address("http://127.0.0.1:7070").unwrap();
        assert_eq!(mode(data.root()), 0o700);
        assert_eq!(mode(&data.keys()), 0o700);
        assert_eq!(mode(&data.address_file()), 0o600);
        assert_eq!(
            data.read_address().unwrap().as_deref(),
            Some("http://127.0.0.1:7070")
        );
    }

    #[test]
    fn a_half_written_file_of_a_crash_is_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("file");
        fs::write(parent.path().join("file.new"), "half").unwrap();
        write_private(&path, b"whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_server_started_means_no_address() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(DataDir::new(parent.path()).read_address().unwrap(), None);
    }
}
