//! The text of `keypair.json`.
//!
//! Invariant: the encryption key in the file is that of the signing key, and secrets are wiped when a record is dropped.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::DaemonIdentity;
use crate::daemon::log::rfc3339_ms;
use crate::keys::MeshPrivateKey;

const SCHEMA_VERSION: u32 = 1;

/// The file. Signing keys are hex as in `config.json`, encryption keys base64.
#[derive(Serialize, Deserialize)]
pub(super) struct KeypairRecord {
    schema_version: u32,
    key_id: String,
    ed25519_pubkey: String,
    ed25519_privkey: String,
    x25519_pubkey: String,
    x25519_privkey: String,
    created_at: String,
    mesh_id: String,
    member_id: String,
    #[serde(default)]
    display_name: Option<String>,
    #[serde(default)]
    replaced_pubkeys: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    announces_name: bool,
}

impl Drop for KeypairRecord {
    fn drop(&mut self) {
        self.ed25519_privkey.zeroize();
        self.x25519_privkey.zeroize();
    }
}

impl KeypairRecord {
    pub(super) fn of(identity: &DaemonIdentity) -> Self {
        let secret = identity.key.to_x25519();
        Self {
            schema_version: SCHEMA_VERSION,
            key_id: identity.key_id.clone(),
            ed25519_pubkey: identity.key.public_key().to_string(),
            ed25519_privkey: identity.key.reveal().to_string(),
            x25519_pubkey: BASE64_STANDARD.encode(secret.public_key().to_bytes()),
            x25519_privkey: BASE64_STANDARD.encode(*secret.reveal()),
            created_at: rfc3339_ms(identity.created_at),
            mesh_id: identity.mesh_id.clone(),
            member_id: identity.member_id.clone(),
            display_name: identity.display_name.clone(),
            replaced_pubkeys: identity.replaced.clone(),
            announces_name: identity.announces_name,
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let record: Self = serde_json::from_str(text).ok()?;
        (record.schema_version == SCHEMA_VERSION).then_some(record)
    }

    pub(super) fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(serde_json::to_string_pretty(self).expect("strings and numbers are JSON"))
    }

    /// `None` if the keys do not belong together.
    pub(super) fn identity(&self, directory: &Path) -> Option<DaemonIdentity> {
        let key = MeshPrivateKey::parse(&self.ed25519_privkey).ok()?;
        let encryption = key.to_x25519();
        let public = BASE64_STANDARD.encode(encryption.public_key().to_bytes());
        let is_whole = key.public_key().to_string() == self.ed25519_pubkey.to_lowercase()
            && public == self.x25519_pubkey
            && *BASE64_STANDARD.encode(*encryption.reveal()) == *self.x25519_privkey;
        is_whole.then(|| DaemonIdentity {
            mesh_id: self.mesh_id.clone(),
            member_id: self.member_id.clone(),
            key: Arc::new(key),
            key_id: self.key_id.clone(),
            created_at: self.created_at.parse().unwrap_or_default(),
            display_name: self.display_name.clone(),
            replaced: self.replaced_pubkeys.clone(),
            directory: Some(directory.to_owned()),
            announces_name: self.announces_name,
            next: None,
        })
    }
}
