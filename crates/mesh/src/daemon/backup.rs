//! `daemon backup` and `daemon restore`: the identity of a daemon as one file that a passphrase protects.
//!
//! Invariant: the local token is never in it, and a restored daemon makes a new one. The record of the machine is in it but is
//! not restored, so that the first start accepts the machine it runs on. Nothing is written before the whole file was
//! opened with the passphrase.

mod sealed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::exclusive::StoppedDaemon;
use super::host_check::HOST_FILE;
use super::identity::{KEYPAIR_FILE, NEXT_KEYPAIR_FILE};
use super::key_archive::ARCHIVE_FILE;
use super::log::rfc3339_ms;
use super::private_file::{self, PRIVATE, PUBLIC};
use crate::joined::JoinedMesh;
pub use sealed::KdfCost;
use sealed::SealedBackup;

/// What a backup contains. Databases and the local token are not in it.
const FILES: &[&str] = &[
    KEYPAIR_FILE,
    NEXT_KEYPAIR_FILE,
    ARCHIVE_FILE,
    HOST_FILE,
    "config.toml",
    "topic_subscriptions.json",
    "topic_keys.json",
    "key_epoch.json",
    "schema_version",
];
/// Files without a secret.
const PUBLIC_FILES: &[&str] = &["config.toml", "schema_version"];
/// Files of a daemon that a restore removes: they are made again at the start.
const TOKEN_FILE: &str = "local_token";

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{file}: {error}")]
    Io { file: String, error: io::Error },
    #[error("there is nothing to back up in {0}")]
    Empty(String),
    #[error("the passphrase is empty")]
    NoPassphrase,
    #[error("this is no backup of a daemon")]
    Malformed,
    #[error("the backup needs more memory or time than is allowed for a key")]
    TooExpensive,
    #[error("the passphrase is wrong, or the backup is damaged")]
    Closed,
}

/// What was inside a restored backup.
#[derive(Debug)]
pub struct RestoredBackup {
    pub mesh: String,
    pub created_at: String,
    /// Names of the written files.
    pub files: Vec<String>,
    /// The membership, for a `config.json` that does not have it.
    pub joined: Option<JoinedMesh>,
}

/// The content before it is sealed.
#[derive(Serialize, Deserialize)]
struct BackupContent {
    v: u32,
    mesh: String,
    created_at: String,
    /// Base64 by file name.
    files: BTreeMap<String, String>,
    #[serde(default)]
    joined: Option<JoinedMesh>,
}

const VERSION: u32 = 1;

impl Drop for BackupContent {
    fn drop(&mut self) {
        for content in self.files.values_mut() {
            content.zeroize();
        }
    }
}

/// The text of a backup of the folder. It may be made while the daemon runs: each file is replaced as a whole.
pub fn backup(
    directory: &Path,
    mesh: &str,
    joined: Option<&JoinedMesh>,
    passphrase: &str,
    cost: KdfCost,
) -> Result<String, BackupError> {
    let token = plant::on(Plant::BackupWithToken).then_some(TOKEN_FILE);
    let mut files = BTreeMap::new();
    for &file in FILES.iter().chain(token.iter()) {
        let text =
            private_file::read(&directory.join(file)).map_err(|error| io_error(file, error))?;
        if let Some(text) = text.map(Zeroizing::new) {
            files.insert(file.to_owned(), BASE64_STANDARD.encode(text.as_bytes()));
        }
    }
    if !files.contains_key(KEYPAIR_FILE) {
        return Err(BackupError::Empty(directory.display().to_string()));
    }
    let content = BackupContent {
        v: VERSION,
        mesh: mesh.to_owned(),
        created_at: rfc3339_ms(Timestamp::now()),
        files,
        joined: joined.cloned(),
    };
    let text = Zeroizing::new(serde_json::to_string(&content).expect("strings are JSON"));
    SealedBackup::seal(text.as_bytes(), passphrase, cost)
}

/// Writes the backup to a file that only its owner can read.
pub fn write_backup(path: &Path, text: &str) -> Result<(), BackupError> {
    private_file::replace(path, text.as_bytes(), PRIVATE)
        .map_err(|error| io_error(&path.display().to_string(), error))
}

/// Replaces the files of a stopped daemon by those of the backup.
pub fn restore(
    daemon: &StoppedDaemon,
    text: &str,
    passphrase: &str,
) -> Result<RestoredBackup, BackupError> {
    let content = open(text, passphrase)?;
    let mut decoded = BTreeMap::new();
    for (file, content) in &content.files {
        let bytes = BASE64_STANDARD.decode(content);
        let bytes = bytes.map_err(|_| BackupError::Malformed)?;
        decoded.insert(file.as_str(), Zeroizing::new(bytes));
    }
    let mut written = Vec::new();
    for &file in FILES {
        let path = daemon.directory().join(file);
        let is_restored = file != HOST_FILE;
        let done = match decoded.get(file).filter(|_| is_restored) {
            Some(bytes) => {
                let is_public = PUBLIC_FILES.contains(&file);
                let mode = if is_public { PUBLIC } else { PRIVATE };
                written.push(file.to_owned());
                private_file::replace(&path, bytes, mode)
            }
            None => private_file::remove(&path).map(|_| ()),
        };
        done.map_err(|error| io_error(file, error))?;
    }
    private_file::remove(&daemon.directory().join(TOKEN_FILE))
        .map_err(|error| io_error(TOKEN_FILE, error))?;
    Ok(RestoredBackup {
        mesh: content.mesh.clone(),
        created_at: content.created_at.clone(),
        files: written,
        joined: content.joined.clone(),
    })
}

/// The mesh and the membership in a backup, without writing anything.
pub fn inspect(text: &str, passphrase: &str) -> Result<RestoredBackup, BackupError> {
    let content = open(text, passphrase)?;
    Ok(RestoredBackup {
        mesh: content.mesh.clone(),
        created_at: content.created_at.clone(),
        files: content.files.keys().cloned().collect(),
        joined: content.joined.clone(),
    })
}

fn open(text: &str, passphrase: &str) -> Result<BackupContent, BackupError> {
    let plain = SealedBackup::open(text, passphrase)?;
    let content: BackupContent =
        serde_json::from_slice(&plain).map_err(|_| BackupError::Malformed)?;
    if content.v == VERSION {
        Ok(content)
    } else {
        Err(BackupError::Malformed)
    }
}

fn io_error(file: &str, error: io::Error) -> BackupError {
    BackupError::Io {
        file: file.to_owned(),
        error,
    }
}
