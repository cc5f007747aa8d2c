//! The keys and the name of a daemon: `keypair.json`, or memory alone.
//!
//! Invariant: a persistent identity is the same after each restart, also after a rotation that the user's `config.json` has
//! not seen; an ephemeral one writes nothing. A key that a rotation offered to the broker is on disk until the broker's
//! decision is known.

mod keypair_record;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use serde_json::json;

use super::log::DaemonLog;
use super::private_file::{self, PRIVATE};
use super::random;
use crate::environment::IdentityMode;
use crate::joined::JoinedMesh;
use crate::keys::{MeshKeyError, MeshPrivateKey};
use crate::ulid::MeshUlid;
use keypair_record::KeypairRecord;

/// The file in the folder of the daemon.
pub const KEYPAIR_FILE: &str = "keypair.json";
/// The key of a rotation whose outcome is not known yet.
pub const NEXT_KEYPAIR_FILE: &str = "keypair.next.json";
/// Keys of `config.json` that a rotated key replaces. More rotations than this need a `config.json` that was written since.
const REPLACED_KEYS_MAX: usize = 64;

/// How the identity is found.
#[derive(Debug, Clone, Copy)]
pub struct IdentityOptions<'a> {
    /// The folder of the daemon.
    pub directory: &'a Path,
    pub joined: &'a JoinedMesh,
    pub mode: IdentityMode,
    /// From `--name` or the settings. It counts at the first start, later only with `rename`.
    pub name: Option<&'a str>,
    pub rename: bool,
}

/// Who this daemon is.
#[derive(Debug, Clone)]
pub struct DaemonIdentity {
    pub mesh_id: String,
    pub member_id: String,
    pub key: Arc<MeshPrivateKey>,
    pub key_id: String,
    pub created_at: Timestamp,
    pub display_name: Option<String>,
    /// Public keys that this one has replaced, oldest first.
    pub replaced: Vec<String>,
    /// `None` for an ephemeral identity, which has no file.
    pub(super) directory: Option<PathBuf>,
    /// The name is to be announced to the broker, which does not know it yet.
    pub announces_name: bool,
    /// The key of a rotation that was interrupted; see [`DaemonIdentity::adopt_next`].
    pub next: Option<Arc<MeshPrivateKey>>,
}

/// Why there is no identity; the daemon exits with 3.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("config.json: the key of mesh {slug}: {error}")]
    Joined { slug: String, error: MeshKeyError },
    #[error(
        "{file} is malformed; restore it from a backup, or remove it to use the key of config.json"
    )]
    Malformed { file: &'static str },
    #[error("{file}: {error}")]
    Io {
        file: &'static str,
        error: io::Error,
    },
}

impl DaemonIdentity {
    /// Reads the identity, or creates it from the joined mesh.
    pub fn open(options: &IdentityOptions<'_>, log: &DaemonLog) -> Result<Self, IdentityError> {
        let first = Self::first(options)?;
        if first.directory.is_none() {
            return Ok(first);
        }
        let path = options.directory.join(KEYPAIR_FILE);
        let Some(mut stored) = read(&path, KEYPAIR_FILE, options.directory)? else {
            first.store(KEYPAIR_FILE)?;
            return Ok(first);
        };
        warn_of_mode(&path, log);
        if !stored.replaces(&first) {
            // The user joined again, as another member or with another key.
            log.warn(
                "keypair_replaced",
                &json!({"old": stored.key.public_key(), "new": first.key.public_key()}),
            );
            private_file::remove(&options.directory.join(NEXT_KEYPAIR_FILE))
                .map_err(|error| io_error(NEXT_KEYPAIR_FILE, error))?;
            first.store(KEYPAIR_FILE)?;
            return Ok(first);
        }
        let next = options.directory.join(NEXT_KEYPAIR_FILE);
        stored.next = read(&next, NEXT_KEYPAIR_FILE, options.directory)?.map(|next| next.key);
        if let Some(name) = options.name
            && options.rename
        {
            stored.display_name = Some(name.to_owned());
            stored.announces_name = true;
            stored.store(KEYPAIR_FILE)?;
        }
        Ok(stored)
    }

    fn first(options: &IdentityOptions<'_>) -> Result<Self, IdentityError> {
        let joined = options.joined;
        let key = joined.key().map_err(|error| IdentityError::Joined {
            slug: joined.slug.clone(),
            error,
        })?;
        let is_persistent =
            options.mode == IdentityMode::Persistent || plant::on(Plant::EphemeralKeyWritten);
        Ok(Self {
            mesh_id: joined.mesh_id.clone(),
            member_id: joined.member_id.clone(),
            key: Arc::new(key),
            key_id: new_key_id(),
            created_at: Timestamp::now(),
            display_name: options.name.map(str::to_owned),
            replaced: Vec::new(),
            directory: is_persistent.then(|| options.directory.to_owned()),
            announces_name: options.name.is_some(),
            next: None,
        })
    }

    /// Whether this identity is the joined one, or a later key of the same member.
    fn replaces(&self, joined: &Self) -> bool {
        let key = joined.key.public_key();
        let is_same_member =
            (&self.mesh_id, &self.member_id) == (&joined.mesh_id, &joined.member_id);
        let is_later = self.replaced.contains(&key.to_string());
        is_same_member && (self.key.public_key() == key || is_later)
    }

    /// The identity after a rotation to this key.
    pub(super) fn with_key(
        &self,
        key: Arc<MeshPrivateKey>,
        key_id: String,
        now: Timestamp,
    ) -> Self {
        let mut replaced = self.replaced.clone();
        replaced.push(self.key.public_key().to_string());
        let excess = replaced.len().saturating_sub(REPLACED_KEYS_MAX);
        replaced.drain(..excess);
        Self {
            key,
            key_id,
            created_at: now,
            replaced,
            next: None,
            ..self.clone()
        }
    }

    /// The broker knows the next key and no longer the current one: the rotation has happened.
    pub fn adopt_next(&self) -> Result<Self, IdentityError> {
        let Some(directory) = &self.directory else {
            return Ok(self.clone());
        };
        let next = directory.join(NEXT_KEYPAIR_FILE);
        let Some(adopted) = read(&next, NEXT_KEYPAIR_FILE, directory)? else {
            return Ok(self.clone());
        };
        private_file::rename(&next, &directory.join(KEYPAIR_FILE))
            .map_err(|error| io_error(KEYPAIR_FILE, error))?;
        Ok(adopted)
    }

    /// The broker still knows the current key: the rotation has not happened.
    pub fn discard_next(&mut self) -> Result<(), IdentityError> {
        self.next = None;
        if let Some(directory) = &self.directory {
            private_file::remove(&directory.join(NEXT_KEYPAIR_FILE))
                .map_err(|error| io_error(NEXT_KEYPAIR_FILE, error))?;
        }
        Ok(())
    }

    pub(super) fn store(&self, file: &'static str) -> Result<(), IdentityError> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let text = KeypairRecord::of(self).to_text();
        private_file::replace(&directory.join(file), text.as_bytes(), PRIVATE)
            .map_err(|error| io_error(file, error))
    }
}

pub(super) fn new_key_id() -> String {
    let ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    let entropy = u128::from_le_bytes(random::bytes());
    format!("k_{}", MeshUlid::new(ms, entropy))
}

fn read(
    path: &Path,
    file: &'static str,
    directory: &Path,
) -> Result<Option<DaemonIdentity>, IdentityError> {
    let text = private_file::read(path).map_err(|error| io_error(file, error))?;
    let Some(text) = text.map(zeroize::Zeroizing::new) else {
        return Ok(None);
    };
    let identity = KeypairRecord::parse(&text).and_then(|record| record.identity(directory));
    identity.map(Some).ok_or(IdentityError::Malformed { file })
}

fn warn_of_mode(path: &Path, log: &DaemonLog) {
    if let Ok(Some(mode)) = private_file::mode(path)
        && mode != PRIVATE
    {
        log.warn(
            "keypair_perms",
            &json!({"mode": format!("{mode:04o}"), "expected": "0600"}),
        );
    }
}

fn io_error(file: &'static str, error: io::Error) -> IdentityError {
    IdentityError::Io { file, error }
}
