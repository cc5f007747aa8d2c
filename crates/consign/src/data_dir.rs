//! The layout of the data directory, and durable writes of its files.
//!
//! Invariant: a file that exists is complete. Each is written to a temporary file with mode 0600, synced, renamed,
//! and the directory synced, so a power cut leaves the old file or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::failure::Failure;
use crate::lock::DataLock;
use crate::serve::ledger::random_bytes;

const NODE_ID: &str = "node_id";
const ELSEWHERE: &str = "ledger_elsewhere";
/// Stored with the keys, so that it is moved and copied together with them.
const MADE: &str = "ledger_made";
/// The number of parent directories that may be new as well: `.local/share/consign/agent` in an empty home.
const DIRECTORIES_SYNCED: usize = 5;

/// The data directory of a command.
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

/// A data directory: `address`, `consign.sock`, `lock`, `node_id`, `keys/`, and either `consign.db` or
/// `ledger_elsewhere`.
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

    /// The file with the base URL of the running server.
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

    /// The paths that no sandboxed plugin may open.
    pub(crate) fn private(&self) -> Vec<PathBuf> {
        let beside = |ending: &str| {
            let mut path = self.database_file().into_os_string();
            path.push(ending);
            PathBuf::from(path)
        };
        let ledger = ["", "-wal", "-shm", "-journal", ".lock"].map(beside);
        let others = [self.keys(), self.address_file(), self.lock_file()];
        ledger.into_iter().chain(others).collect()
    }

    pub(crate) fn key_file(&self, name: &str) -> PathBuf {
        self.keys().join(name)
    }

    /// The node name of this directory's server in a shared database. The holder of the lock is the only one with
    /// that name, so leases under it at a start are left from an earlier process. It is random, because operators may
    /// give the same name to many servers.
    pub(crate) fn node_id(&self, _lock: &DataLock) -> anyhow::Result<String> {
        drawn_once(&self.root)
    }

    /// The socket for commands on this machine.
    pub(crate) fn socket_file(&self) -> PathBuf {
        self.root.join("consign.sock")
    }

    /// Refuses a directory in which other users can replace files: keys, the ledger, or the socket that commands send
    /// secrets to. A directory that does not exist is created with private mode. POSIX access lists count, because
    /// they show in the group bits.
    pub(crate) fn refuse_writable_by_others(&self) -> anyhow::Result<()> {
        let shown = self.root.display();
        let found = match fs::metadata(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.with_context(|| format!("cannot look at {shown}"))?,
        };
        let own = rustix::process::geteuid().as_raw();
        let refusal = if found.uid() != own && found.uid() != 0 {
            let message = format!("{shown} belongs to another user (uid {})", found.uid());
            let hint = format!(
                "run this as that user, with: sudo -u '#{}' consign …; or give the directory to the user who runs it, with: chown -R {own} {shown}",
                found.uid()
            );
            Failure::failed(message).hint(hint)
        } else if found.mode() & 0o022 != 0 {
            let mode = found.mode() & 0o7777;
            let message = format!("other users can write to {shown} (mode {mode:04o})");
            let hint = format!(
                "check that all files in it are yours, then run: chmod go-w {shown}; on a volume whose mode cannot be changed, use a new directory inside it: --data {}",
                self.root.join("consign").display()
            );
            Failure::failed(message).hint(hint)
        } else {
            return Ok(());
        };
        Err(refusal.into())
    }

    /// Creates the directory and its `keys`, readable by the owner only. Existing ones are kept.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        for directory in [self.root.clone(), self.keys()] {
            make_private(&directory)?;
        }
        sync_directory(&self.root)
    }

    /// Records where the server listens, for commands on this machine.
    pub(crate) fn write_address(&self, base_url: &str) -> anyhow::Result<()> {
        write_private(&self.address_file(), format!("{base_url}\n").as_bytes())
    }

    /// Where the server listens; `None` if none has been started here.
    pub(crate) fn read_address(&self) -> anyhow::Result<Option<String>> {
        read_note(&self.address_file())
    }

    /// Removes the address of a server that has ended.
    pub(crate) fn remove_address(&self, _: &DataLock) -> anyhow::Result<()> {
        remove_note(&self.address_file())
    }

    /// Records where the server of this directory keeps its ledger, if it is not the file of this directory. That
    /// file stays when a ledger is moved, and must not be taken for the current one.
    pub(crate) fn note_ledger(&self, _: &DataLock, elsewhere: Option<&str>) -> anyhow::Result<()> {
        let path = self.root.join(ELSEWHERE);
        match elsewhere {
            Some(place) => write_private(&path, format!("{place}\n").as_bytes()),
            None => remove_note(&path),
        }
    }

    /// Records that a ledger was created with the keys of this directory, once it is durable. A read-only keys
    /// directory is left unchanged.
    pub(crate) fn note_made(&self, name: &str) {
        let path = self.key_file(MADE);
        let noted = || -> anyhow::Result<()> {
            let mut names = read_note(&path)?.unwrap_or_default();
            if names.lines().any(|line| line == name) {
                return Ok(());
            }
            if !names.is_empty() {
                names.push('\n');
            }
            write_private(&path, format!("{names}{name}\n").as_bytes())
        };
        if let Err(error) = noted() {
            tracing::warn!("cannot record the ledger in the data directory: {error:#}");
        }
    }

    /// The ledgers that were created with the keys of this directory. Older versions did not record this, but wrote
    /// the address once they had a ledger.
    pub(crate) fn ledgers_made(&self) -> anyhow::Result<Vec<String>> {
        let mut made = Vec::new();
        if let Some(names) = read_note(&self.key_file(MADE))? {
            made.extend(names.lines().map(str::to_owned));
        } else if self.address_file().exists() {
            let own = self.database_file();
            made.extend(
                own.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
        Ok(made)
    }

    /// The location that the last server here recorded.
    pub(crate) fn ledger_elsewhere(&self) -> anyhow::Result<Option<String>> {
        read_note(&self.root.join(ELSEWHERE))
    }
}

/// The content of a small file; `None` if it does not exist.
pub(crate) fn read_note(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Removes a file that may not exist.
pub(crate) fn remove_note(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(directory_of(path)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// A random name for a directory that never changes.
pub(crate) fn drawn_once(directory: &Path) -> anyhow::Result<String> {
    let path = directory.join(NODE_ID);
    let fresh = format!("{:032x}", u128::from_le_bytes(random_bytes()?));
    let kept = write_private_once(&path, fresh.as_bytes())?;
    let name = String::from_utf8_lossy(&kept).trim().to_owned();
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    anyhow::ensure!(
        plain,
        "{} contains no valid node name; remove it, and a new one is generated",
        path.display()
    );
    Ok(name)
}

/// Writes a file that only its owner can read, durably.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = || -> std::io::Result<()> {
        let beside = beside(path, "new");
        write_whole(&beside, bytes)?;
        fs::rename(&beside, path)
    };
    written().with_context(|| format!("cannot write {}", path.display()))?;
    sync_directory(directory_of(path)?)
}

/// The same for a file that is never replaced: if it exists, its content is returned. Of several concurrent writers
/// one wins, and all get its bytes.
pub(crate) fn write_private_once(path: &Path, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let written = || -> std::io::Result<Vec<u8>> {
        if !path.try_exists()? {
            let own = beside(path, &format!("{}.new", random_word()?));
            write_whole(&own, bytes)?;
            // Unlike a rename, a link does not replace an existing file.
            let linked = fs::hard_link(&own, path);
            fs::remove_file(&own)?;
            match linked {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        fs::read(path)
    };
    let kept = written().with_context(|| format!("cannot write {}", path.display()))?;
    // Also for an existing file: its writer may have crashed before the sync.
    sync_directory(directory_of(path)?)?;
    Ok(kept)
}

/// Creates a directory that only its owner can enter, with missing parents, durably.
pub(crate) fn create_private(directory: &Path) -> anyhow::Result<()> {
    let above: Vec<&Path> = directory
        .ancestors()
        .skip(1)
        .take(DIRECTORIES_SYNCED)
        .collect();
    make_private(directory)?;
    // Also above an existing directory: its creator may have crashed before the sync. A directory that cannot be read
    // was not created by us.
    for directory in above.into_iter().map(named) {
        match File::open(directory) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => break,
            _ => sync_directory(directory)?,
        }
    }
    Ok(())
}

fn make_private(directory: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(ending);
    PathBuf::from(beside)
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Left from a crash; `create_new` below would fail.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn random_word() -> std::io::Result<String> {
    let number = getrandom::u64().map_err(std::io::Error::other)?;
    Ok(format!("{number:016x}"))
}

/// The directory of a file.
fn directory_of(path: &Path) -> anyhow::Result<&Path> {
    path.parent()
        .map(named)
        .context("the path has no directory")
}

/// The parent of a bare name is empty, which means the current directory.
fn named(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() {
        return Path::new(".");
    }
    directory
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
    fn s8_a_directory_that_others_can_write_to_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::new(&parent.path().join("data"));
        data.refuse_writable_by_others().unwrap();
        data.create().unwrap();
        for (mode, refused) in [
            (0o700, false),
            (0o755, false),
            (0o750, false),
            (0o770, true),
            (0o702, true),
            (0o777, true),
            (0o1777, true),
            (0o2770, true),
        ] {
            fs::set_permissions(data.root(), fs::Permissions::from_mode(mode)).unwrap();
            let checked = data.refuse_writable_by_others();
            assert_eq!(checked.is_err(), refused, "{mode:o}: {checked:?}");
        }
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(data.root(), &link).unwrap();
        assert!(DataDir::new(&link).refuse_writable_by_others().is_err());
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
    fn a_file_that_is_written_once_keeps_its_first_bytes() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep/er/file");
        create_private(path.parent().unwrap()).unwrap();
        assert_eq!(write_private_once(&path, b"first").unwrap(), b"first");
        assert_eq!(write_private_once(&path, b"second").unwrap(), b"first");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn no_server_started_means_no_address() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(DataDir::new(parent.path()).read_address().unwrap(), None);
    }
}
