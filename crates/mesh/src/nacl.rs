//! The `crypto_box`, `crypto_secretbox` and `crypto_box_seal` of libsodium, byte for byte.
//!
//! Invariant: the authenticator precedes the ciphertext and is compared in constant time before anything is decrypted.
//! Nonces are arguments: a caller must never use one twice with the same keys.
//! The primitives come from the crates that the workspace has anyway; ADR 0034 has the reason.

#[cfg(test)]
mod tests;

use blake2::Blake2b;
use blake2::digest::Digest as _;
use blake2::digest::consts::U24;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit as _;
use salsa20::cipher::consts::U10;
use salsa20::cipher::{KeyIvInit as _, StreamCipher as _};
use salsa20::{XSalsa20, hsalsa};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::keys::{X25519Public, X25519Secret};

pub const NONCE_BYTES: usize = 24;
pub const MAC_BYTES: usize = 16;
pub const KEY_BYTES: usize = 32;

/// A nonce, for one message alone.
pub type NaclNonce = [u8; NONCE_BYTES];

/// A symmetric key: of a topic, or agreed between two members.
pub struct SymmetricKey(Zeroizing<[u8; KEY_BYTES]>);

impl SymmetricKey {
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// The key between two members, the same on both sides; `None` for a public key of small order.
    pub fn agreed(secret: &X25519Secret, public: X25519Public) -> Option<Self> {
        let shared = secret.agree(public)?;
        let key = hsalsa::<U10>(&(*shared).into(), &[0; 16].into());
        Some(Self(Zeroizing::new(key.into())))
    }

    /// The bytes, to seal them for another member or to store them.
    pub fn reveal(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// `crypto_secretbox_easy`; with an agreed key, `crypto_box_easy`.
    pub fn seal(&self, plain: &[u8], nonce: &NaclNonce) -> Vec<u8> {
        let mut cipher = self.cipher(nonce);
        let mac_key = mac_key(&mut cipher);
        let mut sealed = vec![0; MAC_BYTES + plain.len()];
        let (mac, body) = sealed.split_at_mut(MAC_BYTES);
        body.copy_from_slice(plain);
        cipher.apply_keystream(body);
        mac.copy_from_slice(&authenticator(&mac_key, body));
        sealed
    }

    /// `crypto_secretbox_open_easy`; `None` if key, nonce or bytes differ from those of the sender.
    pub fn open(&self, sealed: &[u8], nonce: &NaclNonce) -> Option<Zeroizing<Vec<u8>>> {
        let (mac, body) = sealed.split_at_checked(MAC_BYTES)?;
        let mut cipher = self.cipher(nonce);
        let mac_key = mac_key(&mut cipher);
        if !bool::from(authenticator(&mac_key, body).ct_eq(mac)) {
            return None;
        }
        let mut plain = Zeroizing::new(body.to_vec());
        cipher.apply_keystream(&mut plain);
        Some(plain)
    }

    fn cipher(&self, nonce: &NaclNonce) -> XSalsa20 {
        XSalsa20::new(&(*self.0).into(), &(*nonce).into())
    }
}

impl std::fmt::Debug for SymmetricKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SymmetricKey(..)")
    }
}

/// `crypto_box_seal`: for a recipient, from a sender without identity. `ephemeral` is random and used once.
pub fn seal_anonymous(
    plain: &[u8],
    recipient: X25519Public,
    ephemeral: &X25519Secret,
) -> Option<Vec<u8>> {
    let sender = ephemeral.public_key();
    let key = SymmetricKey::agreed(ephemeral, recipient)?;
    let sealed = key.seal(plain, &anonymous_nonce(sender, recipient));
    Some([&sender.to_bytes()[..], &sealed].concat())
}

/// `crypto_box_seal_open`.
pub fn open_anonymous(sealed: &[u8], recipient: &X25519Secret) -> Option<Zeroizing<Vec<u8>>> {
    let (sender, sealed) = sealed.split_first_chunk::<KEY_BYTES>()?;
    let sender = X25519Public::from_bytes(*sender);
    let key = SymmetricKey::agreed(recipient, sender)?;
    key.open(sealed, &anonymous_nonce(sender, recipient.public_key()))
}

fn anonymous_nonce(sender: X25519Public, recipient: X25519Public) -> NaclNonce {
    let mut hash = Blake2b::<U24>::new();
    hash.update(sender.to_bytes());
    hash.update(recipient.to_bytes());
    hash.finalize().into()
}

/// The first 32 bytes of the stream are the key of the authenticator, and the message uses the rest.
fn mac_key(cipher: &mut XSalsa20) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    cipher.apply_keystream(&mut *key);
    key
}

fn authenticator(key: &[u8; 32], body: &[u8]) -> [u8; MAC_BYTES] {
    Poly1305::new(&(*key).into()).compute_unpadded(body).into()
}
