//! The folder of a daemon: its files, and the lock that one daemon holds.
//!
//! Invariant: a file of an earlier daemon is replaced only while the lock is held, so a running daemon keeps its socket.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::DaemonEnd;
use super::private_file::{self, PRIVATE, PUBLIC};

/// The version of the folder's files.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Names of upstream's client for files of ours.
const ALIASES: [(&str, &str); 3] = [
    ("daemon.sock", "sock"),
    ("daemon.pid", "pid"),
    ("local-token", "local_token"),
];

/// A daemon that has just locked the file writes its number next.
const PID_TRIES: u32 = 20;
const PID_PAUSE: Duration = Duration::from_millis(10);

/// The paths of a daemon's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonFolder(PathBuf);

macro_rules! files {
    ($($name:ident => $file:literal,)*) => {
        $(pub fn $name(&self) -> PathBuf {
            self.0.join($file)
        })*
    };
}

impl DaemonFolder {
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    files! {
        pid => "pid",
        sock => "sock",
        http_port => "http.port",
        local_token => "local_token",
        keypair => "keypair.json",
        keypair_archive => "keypair-archive.json",
        host_fingerprint => "host_fingerprint.json",
        config => "config.toml",
        outbox => "outbox.db",
        inbox => "inbox.db",
        schema_version => "schema_version",
        log => "daemon.log",
        hooks => "hooks",
        topic_subscriptions => "topic_subscriptions.json",
        topic_keys => "topic_keys.json",
        member_names => "member_names.json",
        key_epoch => "key_epoch.json",
    }

    /// Creates the folder and what is empty in it.
    pub(super) fn create(&self) -> io::Result<()> {
        private_file::create_folder(&self.0)?;
        private_file::create_folder(&self.hooks())?;
        for (alias, file) in ALIASES {
            let alias = self.0.join(alias);
            match symlink(file, &alias) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Checks the version of the files, or writes it into a new folder.
    pub(super) fn check_schema(&self) -> Result<(), DaemonEnd> {
        let path = self.schema_version();
        let failed = |error: io::Error| DaemonEnd::general(format!("{}: {error}", path.display()));
        let found = private_file::read(&path).map_err(failed)?;
        match found.as_deref().map(|text| text.trim().parse::<u32>()) {
            Some(Ok(SCHEMA_VERSION)) => Ok(()),
            Some(Ok(newer)) if newer > SCHEMA_VERSION => Err(DaemonEnd::general(format!(
                "{} says {newer}: the files are of a newer daemon, and this one knows {SCHEMA_VERSION}; upgrade it",
                path.display()
            ))),
            // Version 0 had the same files and did not write its number.
            Some(Ok(_)) | None => {
                let text = format!("{SCHEMA_VERSION}\n");
                private_file::replace(&path, text.as_bytes(), PUBLIC).map_err(failed)
            }
            Some(Err(_)) => Err(DaemonEnd::general(format!(
                "{} is not a number; it must be {SCHEMA_VERSION}",
                path.display()
            ))),
        }
    }

    /// Locks the folder for this process.
    pub(super) fn lock(&self) -> Result<FolderLock, DaemonEnd> {
        let path = self.pid();
        let failed = |error: io::Error| DaemonEnd::general(format!("{}: {error}", path.display()));
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(PRIVATE)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {}
                // The daemon that held it has removed it.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => return Err(already_running(&path)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let written = file
                .set_permissions(Permissions::from_mode(PRIVATE))
                .and_then(|()| file.set_len(0))
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            written.map_err(failed)?;
            return Ok(FolderLock {
                folder: self.clone(),
                _file: file,
            });
        }
    }
}

/// The right to use the folder. When it is dropped, the files that say that a daemon runs are removed.
#[derive(Debug)]
pub(super) struct FolderLock {
    folder: DaemonFolder,
    _file: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        let running = [
            self.folder.sock(),
            self.folder.http_port(),
            self.folder.pid(),
        ];
        for path in running {
            // What is left over is replaced at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

fn already_running(path: &Path) -> DaemonEnd {
    for _ in 0..PID_TRIES {
        if let Ok(Some(text)) = private_file::read(path)
            && let Ok(pid) = text.trim().parse::<u32>()
        {
            return DaemonEnd::general(format!("a daemon is already running: pid {pid}"));
        }
        std::thread::sleep(PID_PAUSE);
    }
    DaemonEnd::general("a daemon is already running")
}
