//! The key of a topic, sealed by one member for another.
//!
//! Wire form: base64 of the sender's X25519 public key and a box with the 32 bytes of the key; the nonce travels beside it.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::keys::{MeshPrivateKey, MeshPublicKey, X25519Public, X25519Secret};
use crate::nacl::{KEY_BYTES, MAC_BYTES, NaclNonce, SymmetricKey};

/// The text for the recipient; `None` if its key cannot be encrypted to.
pub fn seal_topic_key(
    topic_key: &SymmetricKey,
    sender: &MeshPrivateKey,
    recipient: MeshPublicKey,
    nonce: &NaclNonce,
) -> Option<String> {
    let secret = sender.to_x25519();
    let key = SymmetricKey::agreed(&secret, recipient.to_x25519()?)?;
    let sealed = key.seal(topic_key.reveal(), nonce);
    let bytes = [&secret.public_key().to_bytes()[..], &sealed].concat();
    Some(BASE64_STANDARD.encode(bytes))
}

/// The key, and the X25519 key of the member that sealed it, which the caller compares with those it trusts.
pub fn open_topic_key(
    text: &str,
    nonce: &NaclNonce,
    recipient: &X25519Secret,
) -> Option<(SymmetricKey, X25519Public)> {
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    if bytes.len() != KEY_BYTES + MAC_BYTES + KEY_BYTES {
        return None;
    }
    let (sender, sealed) = bytes.split_first_chunk::<KEY_BYTES>()?;
    let sender = X25519Public::from_bytes(*sender);
    let opened = SymmetricKey::agreed(recipient, sender)?.open(sealed, nonce)?;
    let key = SymmetricKey::from_bytes(opened.first_chunk()?);
    Some((key, sender))
}
