//! How the body of a message travels: a nonce and a ciphertext in base64, or clear text in base64.
//!
//! Direct messages are boxes between two members. Topics use their key (body version 2) or clear text (version 1). Groups and
//! broadcasts are clear. Invariant: base64 is the standard alphabet with padding, and no stray bits are accepted.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

use crate::keys::{MeshPrivateKey, MeshPublicKey, X25519Secret};
use crate::nacl::{NaclNonce, SymmetricKey};

/// A body as a frame carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedBody {
    /// Base64 of the nonce; empty for clear text.
    pub nonce: String,
    /// Base64 of the ciphertext, or of the clear text.
    pub ciphertext: String,
}

impl CarriedBody {
    /// A direct message. `None` if the recipient's key cannot be encrypted to.
    pub fn direct(
        body: &[u8],
        sender: &MeshPrivateKey,
        recipient: MeshPublicKey,
        nonce: &NaclNonce,
    ) -> Option<Self> {
        let key = SymmetricKey::agreed(&sender.to_x25519(), recipient.to_x25519()?)?;
        Some(Self::sealed(&key, body, nonce))
    }

    /// A post to a topic with a key, body version 2.
    pub fn sealed(key: &SymmetricKey, body: &[u8], nonce: &NaclNonce) -> Self {
        Self {
            nonce: BASE64_STANDARD.encode(nonce),
            ciphertext: BASE64_STANDARD.encode(key.seal(body, nonce)),
        }
    }

    /// A post to a topic without a key, a group or all members.
    pub fn clear(body: &[u8]) -> Self {
        Self {
            nonce: String::new(),
            ciphertext: BASE64_STANDARD.encode(body),
        }
    }

    /// Opens a direct message with the current secret and then with archived ones; also returns which one it was.
    pub fn open_direct(
        &self,
        sender: MeshPublicKey,
        secrets: &[&X25519Secret],
    ) -> Option<(usize, Zeroizing<Vec<u8>>)> {
        let sender = sender.to_x25519()?;
        let mut opened = secrets.iter().enumerate().filter_map(|(at, secret)| {
            let key = SymmetricKey::agreed(secret, sender)?;
            Some((at, self.open_sealed(&key)?))
        });
        opened.next()
    }

    /// Opens a post to a topic with a key.
    pub fn open_sealed(&self, key: &SymmetricKey) -> Option<Zeroizing<Vec<u8>>> {
        let nonce: NaclNonce = decode(&self.nonce)?.try_into().ok()?;
        key.open(&decode(&self.ciphertext)?, &nonce)
    }

    /// The bytes of clear text, or the raw bytes of a ciphertext.
    pub fn decoded(&self) -> Option<Vec<u8>> {
        decode(&self.ciphertext)
    }

    /// Whether both parts are base64; a nonce has 24 bytes or is empty.
    pub fn is_well_formed(&self) -> bool {
        let nonce = decode(&self.nonce);
        nonce.is_some_and(|nonce| nonce.is_empty() || nonce.len() == crate::nacl::NONCE_BYTES)
            && self.decoded().is_some()
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}
