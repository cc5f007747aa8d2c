//! `keypair-archive.json`: encryption keys that were rotated out and still open older messages.
//!
//! Invariant: at most `max_archived_keys` keys, the newest first to be kept; a key whose halves differ, or that is there
//! twice, makes the whole file malformed, and the caller sets it aside. Old signing keys are never stored.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::keys::X25519Secret;

const SCHEMA_VERSION: u32 = 1;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyArchive {
    schema_version: u32,
    max_archived_keys: usize,
    keys: Vec<ArchivedKey>,
}

/// One key; times are RFC 3339, keys base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedKey {
    pub ed25519_pubkey: String,
    pub x25519_pubkey: String,
    pub x25519_privkey: String,
    pub key_id: String,
    #[serde(with = "rfc3339")]
    pub created_at: Timestamp,
    #[serde(with = "rfc3339")]
    pub rotated_out_at: Timestamp,
    #[serde(with = "rfc3339")]
    pub expires_at: Timestamp,
}

/// Why an archive is set aside; the words are those of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    #[error("keypair_archive_malformed")]
    Malformed,
    #[error("keypair_archive_duplicate_key_id")]
    DuplicateKeyId,
}

impl KeyArchive {
    pub const fn new(max_archived_keys: usize) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            max_archived_keys,
            keys: Vec::new(),
        }
    }

    pub fn parse(text: &str) -> Result<Self, ArchiveError> {
        let archive: Self = serde_json::from_str(text).map_err(|_| ArchiveError::Malformed)?;
        let is_valid = archive.schema_version == SCHEMA_VERSION
            && archive.keys.iter().all(|key| key.secret().is_some());
        if !is_valid {
            return Err(ArchiveError::Malformed);
        }
        let mut ids: Vec<&str> = archive.keys.iter().map(|key| key.key_id.as_str()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        if ids.len() < count {
            return Err(ArchiveError::DuplicateKeyId);
        }
        Ok(archive)
    }

    /// The text of the file. It contains secrets.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(serde_json::to_string_pretty(self).expect("strings and numbers are JSON"))
    }

    /// Adds a key, and removes the oldest ones above the maximum. Returns the ids of those. A rotation that was tried before
    /// has archived the same key already; it is replaced.
    pub fn add(&mut self, key: ArchivedKey) -> Vec<String> {
        self.remove(&key.key_id);
        self.keys.push(key);
        self.limit(self.max_archived_keys)
    }

    /// Sets the maximum, and removes the oldest keys above it. Returns the ids of those.
    pub fn limit(&mut self, max_archived_keys: usize) -> Vec<String> {
        self.max_archived_keys = max_archived_keys;
        self.keys
            .sort_by_key(|key| std::cmp::Reverse(key.rotated_out_at));
        let kept = self.max_archived_keys.min(self.keys.len());
        self.keys
            .split_off(kept)
            .into_iter()
            .map(|key| key.key_id)
            .collect()
    }

    /// Removes the key of that id. Returns whether it was there.
    pub fn remove(&mut self, key_id: &str) -> bool {
        let before = self.keys.len();
        self.keys.retain(|key| key.key_id != key_id);
        self.keys.len() < before
    }

    /// Removes the keys whose time is over. An empty archive is deleted by the caller.
    pub fn remove_expired(&mut self, now: Timestamp) -> usize {
        let before = self.keys.len();
        self.keys.retain(|key| key.expires_at > now);
        before - self.keys.len()
    }

    /// The keys to try, newest first.
    pub fn keys(&self) -> &[ArchivedKey] {
        &self.keys
    }
}

impl ArchivedKey {
    /// The secret, if it belongs to the public half.
    pub fn secret(&self) -> Option<X25519Secret> {
        let secret = Zeroizing::new(BASE64_STANDARD.decode(&self.x25519_privkey).ok()?);
        let secret = X25519Secret::from_bytes(secret.as_slice().try_into().ok()?);
        let public = BASE64_STANDARD.decode(&self.x25519_pubkey).ok()?;
        (secret.public_key().to_bytes()[..] == public).then_some(secret)
    }
}

impl fmt::Debug for ArchivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchivedKey")
            .field("key_id", &self.key_id)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Times as texts.
mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Timestamp,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(time)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
