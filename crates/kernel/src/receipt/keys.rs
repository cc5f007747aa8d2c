//! The keys receipts are made and checked with, and how public keys are published (RFC 8037).
//!
//! Invariant: a key id is derived from the key and never taken from outside; the secret half is
//! wiped on drop and has no way out of [`Signer`].

use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How many bytes of the hash of a public key make its id; printed as twice as many hex digits.
const KEY_ID_BYTES: usize = 8;

/// The secret half of a key pair.
pub struct Signer {
    secret: SigningKey,
    public: PublicKey,
}

impl Signer {
    /// The key pair of a 32-byte seed as in RFC 8032. Wiping the caller's copy is up to the caller.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let secret = SigningKey::from_bytes(seed);
        let public = PublicKey::from(secret.verifying_key());
        Self { secret, public }
    }

    /// The first 16 hex digits of the SHA-256 of the public key.
    pub fn key_id(&self) -> &str {
        self.public.key_id()
    }

    pub fn public_key(&self) -> [u8; 32] {
        self.public.to_bytes()
    }

    /// The public half in the form that verifies.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// A plain Ed25519 signature over bytes that the caller has made canonical.
    pub fn sign_bytes(&self, message: &[u8]) -> [u8; 64] {
        self.secret.sign(message).to_bytes()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("key_id", &self.key_id())
            .finish_non_exhaustive()
    }
}

/// A key that may be trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    key_id: String,
}

/// Why something is no usable public key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("not a point of the curve, or one that anybody can sign for")]
    NotAKey,
    #[error("not a JWK set: {0}")]
    NotJwks(#[from] serde_json::Error),
    #[error("an Ed25519 key of the JWK set has no x of 32 bytes in unpadded base64url")]
    BadCoordinate,
}

impl PublicKey {
    /// Refuses weak keys, under which a signature proves nothing.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        match VerifyingKey::from_bytes(bytes) {
            Ok(key) if !key.is_weak() => Ok(key.into()),
            _ => Err(KeyError::NotAKey),
        }
    }

    /// The Ed25519 signature keys of a JWK set; keys of other kinds are passed over.
    ///
    /// The `kid` in the set is ignored, because the id follows from the key.
    pub fn from_jwks(text: &str) -> Result<Vec<Self>, KeyError> {
        let set: JwkSet = serde_json::from_str(text)?;
        let ours = set.keys.into_iter().filter(Jwk::is_ed25519_signature_key);
        ours.map(|jwk| Self::from_bytes(&jwk.coordinate().ok_or(KeyError::BadCoordinate)?))
            .collect()
    }

    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub fn to_bytes(&self) -> [u8; 32] {
        self.key.to_bytes()
    }

    /// Whether this key made the signature. Strict: malleable and small-order forms fail.
    pub fn verify_bytes(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        self.key.verify_strict(message, &signature).is_ok()
    }
}

impl From<VerifyingKey> for PublicKey {
    fn from(key: VerifyingKey) -> Self {
        let hash = Sha256::digest(key.as_bytes());
        let key_id = HEXLOWER.encode(&hash[..KEY_ID_BYTES]);
        Self { key, key_id }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey").field(&self.key_id).finish()
    }
}

/// The JWK set to publish at `/.well-known/jwks.json`.
pub fn jwks(keys: &[PublicKey]) -> String {
    let keys = keys.iter().map(|key| Jwk {
        alg: Some("EdDSA".into()),
        crv: Some("Ed25519".into()),
        kid: Some(key.key_id.clone()),
        kty: "OKP".into(),
        usage: Some("sig".into()),
        x: Some(BASE64URL_NOPAD.encode(&key.to_bytes())),
    });
    let set = JwkSet {
        keys: keys.collect(),
    };
    serde_json::to_string(&set).expect("strings always serialise")
}

#[derive(Serialize, Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Serialize, Deserialize)]
struct Jwk {
    alg: Option<String>,
    crv: Option<String>,
    kid: Option<String>,
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    x: Option<String>,
}

impl Jwk {
    fn is_ed25519_signature_key(&self) -> bool {
        self.kty == "OKP"
            && self.crv.as_deref() == Some("Ed25519")
            && self.usage.as_deref().is_none_or(|usage| usage == "sig")
    }

    fn coordinate(&self) -> Option<[u8; 32]> {
        let bytes = BASE64URL_NOPAD.decode(self.x.as_deref()?.as_bytes()).ok()?;
        bytes.try_into().ok()
    }
}
