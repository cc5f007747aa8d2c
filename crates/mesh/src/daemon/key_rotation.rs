//! Replaces the key of the daemon: archive, next key on disk, the broker's answer, and then the new key alone.
//!
//! Ordering: the old key is archived before anything else, so that no message for it becomes unreadable; the new key is on disk
//! before the broker learns it, so that no crash can leave the daemon without the key that the broker accepts.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_kernel::plant::{self, Plant};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use zeroize::Zeroizing;

use super::identity::{DaemonIdentity, IdentityError, KEYPAIR_FILE, NEXT_KEYPAIR_FILE, new_key_id};
use super::key_archive::KeyArchiveFile;
use super::log::DaemonLog;
use super::metrics::DaemonMetrics;
use super::{private_file, random};
use crate::frame::KeyRotationFrame;
use crate::key_files::ArchivedKey;
use crate::keys::MeshPrivateKey;
use crate::rotation::{RotatingMember, rotation_frame};

/// Why a rotation did not begin; the old keys are in use and in their file.
#[derive(Debug, thiserror::Error)]
pub enum RotationAborted {
    #[error("key_rotation_aborted_archive_write_failed: {0}")]
    Archive(io::Error),
    #[error("the new key could not be written: {0}")]
    Next(IdentityError),
}

/// A rotation that waits for the broker.
#[derive(Debug)]
pub struct PendingRotation {
    old: DaemonIdentity,
    new: DaemonIdentity,
}

impl PendingRotation {
    /// Archives the current key for the grace period and writes the next one.
    pub fn begin(
        current: &DaemonIdentity,
        archive: &mut KeyArchiveFile,
        grace_days: u32,
        log: &DaemonLog,
        metrics: &DaemonMetrics,
    ) -> Result<Self, RotationAborted> {
        let now = Timestamp::now();
        let archived = archived(current, grace_days, now);
        if let Err(error) = archive.add(archived, log, metrics)
            && !plant::on(Plant::ArchiveUnchecked)
        {
            log.error(
                "key_rotation_aborted_archive_write_failed",
                &json!({"error": error.to_string()}),
            );
            return Err(RotationAborted::Archive(error));
        }
        let seed = Zeroizing::new(random::bytes());
        let key = Arc::new(MeshPrivateKey::from_seed(&seed));
        let new = current.with_key(key, new_key_id(), now);
        if let Err(error) = new.store(NEXT_KEYPAIR_FILE) {
            // The archive then has the current key as well, which opens nothing that the current key does not.
            let _ = archive.remove(&current.key_id);
            return Err(RotationAborted::Next(error));
        }
        Ok(Self {
            old: current.clone(),
            new,
        })
    }

    /// The frame for the broker, signed by both keys.
    pub fn frame(&self, now_ms: u64) -> KeyRotationFrame {
        let member = RotatingMember {
            mesh_id: &self.old.mesh_id,
            member_id: &self.old.member_id,
            key: self.old.key.public_key(),
        };
        rotation_frame(
            &member,
            &self.old.key,
            &self.new.key,
            &self.new.key_id,
            now_ms,
        )
    }

    /// The broker has accepted the new key.
    pub fn commit(self, log: &DaemonLog) -> Result<DaemonIdentity, IdentityError> {
        if let Some(directory) = &self.new.directory {
            let next = directory.join(NEXT_KEYPAIR_FILE);
            private_file::rename(&next, &directory.join(KEYPAIR_FILE)).map_err(|error| {
                IdentityError::Io {
                    file: KEYPAIR_FILE,
                    error,
                }
            })?;
        }
        log.info(
            "keypair_rotated",
            &json!({
                "old_pubkey": self.old.key.public_key(),
                "new_pubkey": self.new.key.public_key(),
                "key_id": self.new.key_id,
            }),
        );
        Ok(self.new)
    }

    /// The answer of the broker is unknown: the current identity, which knows that there is a next key.
    pub fn unresolved(self) -> DaemonIdentity {
        DaemonIdentity {
            next: Some(self.new.key),
            ..self.old
        }
    }

    /// The broker has refused the new key. If its answer is unknown, neither this nor [`Self::commit`] is called: the next
    /// start finds both keys.
    pub fn abort(self, archive: &mut KeyArchiveFile) -> Result<DaemonIdentity, IdentityError> {
        let mut old = self.old;
        old.discard_next()?;
        // A key that stays in the archive is harmless, and the next rotation replaces it.
        let _ = archive.remove(&old.key_id);
        Ok(old)
    }
}

fn archived(current: &DaemonIdentity, grace_days: u32, now: Timestamp) -> ArchivedKey {
    let secret = current.key.to_x25519();
    let grace = SignedDuration::from_hours(24 * i64::from(grace_days));
    ArchivedKey {
        ed25519_pubkey: BASE64_STANDARD.encode(current.key.public_key().to_bytes()),
        x25519_pubkey: BASE64_STANDARD.encode(secret.public_key().to_bytes()),
        x25519_privkey: BASE64_STANDARD.encode(*secret.reveal()),
        key_id: current.key_id.clone(),
        created_at: current.created_at,
        rotated_out_at: now,
        expires_at: now.saturating_add(grace).unwrap_or(Timestamp::MAX),
    }
}
