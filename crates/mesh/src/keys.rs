//! Ed25519 keys of members and sessions, as hex, and their X25519 halves for encryption.
//!
//! Invariant: a secret is wiped on drop and never printed. A public key is checked for its shape only, because a broker also
//! reads keys of no member; what cannot be a key verifies nothing and encrypts nothing.

#[cfg(test)]
mod tests;

use std::fmt;

use consign_kernel::receipt::{PublicKey, Signer};
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::montgomery::MontgomeryPoint;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha512};
use zeroize::Zeroizing;

/// Why a text is no key of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MeshKeyError {
    #[error("a public key is 64 hex digits")]
    PublicShape,
    #[error("a secret key is 128 hex digits: the seed and the public key")]
    SecretShape,
    #[error("the public half of the secret key belongs to another seed")]
    HalvesDiffer,
}

/// An Ed25519 public key: the identity of a member, or of one session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MeshPublicKey([u8; 32]);

impl MeshPublicKey {
    /// Reads 64 hex digits in either case.
    pub fn parse(text: &str) -> Result<Self, MeshKeyError> {
        let mut key = [0; 32];
        if decode_hex(text, &mut key) {
            Ok(Self(key))
        } else {
            Err(MeshKeyError::PublicShape)
        }
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether this key made the signature, which is 128 hex digits.
    pub fn verify(&self, message: &[u8], signature: &str) -> bool {
        let mut bytes = [0; 64];
        let key = PublicKey::from_bytes(&self.0);
        decode_hex(signature, &mut bytes) && key.is_ok_and(|key| key.verify_bytes(message, &bytes))
    }

    /// The key to encrypt to; `None` if this is no point of the main subgroup, which libsodium refuses as well.
    pub fn to_x25519(self) -> Option<X25519Public> {
        let point = CompressedEdwardsY(self.0).decompress()?;
        let is_usable = !point.is_small_order() && point.is_torsion_free();
        is_usable.then(|| X25519Public(point.to_montgomery().to_bytes()))
    }
}

impl fmt::Display for MeshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for MeshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshPublicKey({self})")
    }
}

impl TryFrom<String> for MeshPublicKey {
    type Error = MeshKeyError;

    fn try_from(text: String) -> Result<Self, MeshKeyError> {
        Self::parse(&text)
    }
}

impl From<MeshPublicKey> for String {
    fn from(key: MeshPublicKey) -> Self {
        key.to_string()
    }
}

/// An Ed25519 key pair.
pub struct MeshPrivateKey {
    signer: Signer,
    seed: Zeroizing<[u8; 32]>,
}

impl MeshPrivateKey {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self {
            signer: Signer::from_seed(seed),
            seed: Zeroizing::new(*seed),
        }
    }

    /// Reads libsodium's form, 128 hex digits of the seed and the public key. Wiping the caller's text is up to the caller.
    pub fn parse(text: &str) -> Result<Self, MeshKeyError> {
        let mut both = Zeroizing::new([0; 64]);
        if !decode_hex(text, &mut *both) {
            return Err(MeshKeyError::SecretShape);
        }
        let (seed, public) = both.split_first_chunk::<32>().expect("64 bytes");
        let key = Self::from_seed(seed);
        if key.public_key().to_bytes()[..] == *public {
            Ok(key)
        } else {
            Err(MeshKeyError::HalvesDiffer)
        }
    }

    /// The text that [`MeshPrivateKey::parse`] reads, for the file that holds the key.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut both = Zeroizing::new([0; 64]);
        both[..32].copy_from_slice(&*self.seed);
        both[32..].copy_from_slice(&self.signer.public_key());
        Zeroizing::new(HEXLOWER.encode(&*both))
    }

    pub fn public_key(&self) -> MeshPublicKey {
        MeshPublicKey(self.signer.public_key())
    }

    /// The signature as 128 hex digits.
    pub fn sign(&self, message: &[u8]) -> String {
        HEXLOWER.encode(&self.signer.sign_bytes(message))
    }

    /// The secret that opens what was encrypted to this key.
    pub fn to_x25519(&self) -> X25519Secret {
        let mut hash = Sha512::digest(*self.seed);
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(&hash[..32]);
        zeroize::Zeroize::zeroize(&mut hash[..]);
        X25519Secret::from_bytes(&secret)
    }
}

/// Shows the public half only.
impl fmt::Debug for MeshPrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshPrivateKey(of {})", self.public_key())
    }
}

/// A public key for encryption.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct X25519Public(pub(crate) [u8; 32]);

impl X25519Public {
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for X25519Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "X25519Public({})", HEXLOWER.encode(&self.0))
    }
}

/// A secret for decryption. The archive keeps it after the signing key was rotated out.
pub struct X25519Secret(Zeroizing<[u8; 32]>);

impl X25519Secret {
    /// Clamps the bytes, as libsodium's conversion does.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut secret = Zeroizing::new(*bytes);
        secret[0] &= 0xf8;
        secret[31] &= 0x7f;
        secret[31] |= 0x40;
        Self(secret)
    }

    /// The bytes, for the file that holds the key.
    pub fn reveal(&self) -> Zeroizing<[u8; 32]> {
        self.0.clone()
    }

    pub fn public_key(&self) -> X25519Public {
        X25519Public(MontgomeryPoint::mul_base_clamped(*self.0).to_bytes())
    }

    /// What both sides compute; `None` for a public key of small order, whose result does not depend on the secret.
    pub(crate) fn agree(&self, public: X25519Public) -> Option<Zeroizing<[u8; 32]>> {
        let shared = Zeroizing::new(MontgomeryPoint(public.0).mul_clamped(*self.0).to_bytes());
        let is_zero = shared.iter().fold(0, |sum, byte| sum | byte) == 0;
        (!is_zero).then_some(shared)
    }
}

impl fmt::Debug for X25519Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "X25519Secret(of {:?})", self.public_key())
    }
}

/// Whether the text is exactly as many hex digits as fill `bytes`, in either case.
fn decode_hex(text: &str, bytes: &mut [u8]) -> bool {
    text.len() == 2 * bytes.len()
        && HEXLOWER_PERMISSIVE
            .decode_mut(text.as_bytes(), bytes)
            .is_ok()
}
