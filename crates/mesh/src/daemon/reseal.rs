//! Direct messages that wait while the key of the daemon changes: they are sealed again for their recipients, who look for
//! the current key.
//!
//! Invariant: the fingerprint of a row never changes, and sealing the same row again gives the same bytes.

#[cfg(test)]
mod tests;

use std::sync::{Arc, PoisonError, RwLock};

use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::outbox_payload::OutboxPayload;
use super::shared::MemberKeys;
use crate::body::CarriedBody;
use crate::destination::DestinationKind;
use crate::fingerprint::BodyHash;
use crate::keys::{MeshPrivateKey, MeshPublicKey};
use crate::nacl::{NONCE_BYTES, NaclNonce, SymmetricKey};

/// The keys that the daemon has now. Clones see the same.
#[derive(Debug, Clone)]
pub(super) struct CurrentKeys(Arc<RwLock<Arc<MemberKeys>>>);

impl CurrentKeys {
    pub(super) fn new(keys: MemberKeys) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(keys))))
    }

    pub(super) fn get(&self) -> Arc<MemberKeys> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&keys)
    }

    pub(super) fn set(&self, keys: MemberKeys) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

/// The row as this key seals it; `None` if it is no direct message, or if this key has sealed it.
///
/// A row whose body and hash do not agree was edited by another program, and stays as that program left it.
pub(super) fn resealed(payload: &OutboxPayload, key: &MeshPrivateKey) -> Option<OutboxPayload> {
    let kind = payload.destination_kind.as_deref()?;
    let public = key.public_key().to_string();
    if DestinationKind::parse(kind) != Some(DestinationKind::Dm)
        || payload.sealed_by.as_ref() == Some(&public)
    {
        return None;
    }
    let recipient = MeshPublicKey::parse(payload.target_spec.as_deref()?).ok()?;
    let before = CarriedBody {
        nonce: payload.nonce.clone()?,
        ciphertext: payload.ciphertext.clone()?,
    };
    if payload.sealed_by.is_none() && is_sealed_by(&before, key, recipient) {
        return None;
    }
    let body = HEXLOWER_PERMISSIVE.decode(payload.payload.as_bytes());
    let body = Zeroizing::new(body.ok()?);
    if payload.body_sha256.as_deref() != Some(BodyHash::of(&body).to_string().as_str()) {
        return None;
    }
    let carried = CarriedBody::direct(&body, key, recipient, &next_nonce(&before.nonce, &public))?;
    Some(OutboxPayload {
        nonce: Some(carried.nonce),
        ciphertext: Some(carried.ciphertext),
        sealed_by: Some(public),
        ..payload.clone()
    })
}

/// Rows of earlier versions do not name their key. A box opens for both of its ends.
fn is_sealed_by(carried: &CarriedBody, key: &MeshPrivateKey, recipient: MeshPublicKey) -> bool {
    let recipient = recipient.to_x25519();
    let agreed = recipient.and_then(|end| SymmetricKey::agreed(&key.to_x25519(), end));
    agreed.is_some_and(|agreed| carried.open_sealed(&agreed).is_some())
}

/// A nonce that follows from the first one, which was random, so that each attempt transmits the same bytes.
fn next_nonce(nonce: &str, public: &str) -> NaclNonce {
    let mut hash = Sha256::new();
    hash.update(b"claudemesh-reseal\0");
    hash.update(nonce.as_bytes());
    hash.update(b"\0");
    hash.update(public.as_bytes());
    let hash = hash.finalize();
    let mut next = [0; NONCE_BYTES];
    next.copy_from_slice(&hash[..NONCE_BYTES]);
    next
}
