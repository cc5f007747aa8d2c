//! Ed25519 keys as Beam writes them: base64 of SPKI and PKCS#8, and multibase in DIDs.
//!
//! Invariant: a [`BeamPublicKey`] prints one text for one key, however the key was written, so
//! keys are stored and compared by that text. The secret half is wiped on drop and never printed.
//! The kernel verifies strictly: malleable signatures and small-order points fail.

mod base58;
#[cfg(test)]
mod tests;

use std::fmt;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use consign_kernel::receipt::{PublicKey, Signer};
use zeroize::Zeroizing;

/// The DER before the 32 bytes of a public key.
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The DER before the 32 bytes of a seed.
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The code of Ed25519 public keys in the multicodec table, as a varint.
const MULTICODEC_PREFIX: [u8; 2] = [0xed, 0x01];

/// Longer texts are no Ed25519 key in any of the encodings.
const TEXT_BYTES_MAX: usize = 512;

/// Senders may omit the padding.
const PADDING_OPTIONAL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a text is no usable key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BeamKeyError {
    #[error("the key is not valid base64")]
    NotBase64,
    #[error("the key is not an Ed25519 key in DER")]
    NotEd25519,
    #[error("the key is not a point of the curve, or one that anybody can sign for")]
    Weak,
    #[error("the key is not multibase of an Ed25519 key")]
    NotMultibase,
}

/// A public key of an agent.
#[derive(Clone, PartialEq, Eq)]
pub struct BeamPublicKey(PublicKey);

impl BeamPublicKey {
    /// Reads base64 of SPKI, in either alphabet and with or without padding.
    pub fn parse(text: &str) -> Result<Self, BeamKeyError> {
        let der = decode_base64(text).ok_or(BeamKeyError::NotBase64)?;
        let raw = der.strip_prefix(&SPKI_PREFIX);
        let raw = raw.and_then(|raw| raw.try_into().ok());
        Self::from_raw(raw.ok_or(BeamKeyError::NotEd25519)?)
    }

    /// Reads `z` and base58btc of the multicodec prefix and the key.
    pub fn parse_multibase(text: &str) -> Result<Self, BeamKeyError> {
        let bytes = text.strip_prefix('z').and_then(base58::decode);
        let bytes = bytes.ok_or(BeamKeyError::NotMultibase)?;
        let raw = bytes.strip_prefix(&MULTICODEC_PREFIX);
        let raw = raw.and_then(|raw| raw.try_into().ok());
        Self::from_raw(raw.ok_or(BeamKeyError::NotMultibase)?)
    }

    pub fn from_raw(raw: &[u8; 32]) -> Result<Self, BeamKeyError> {
        let key = PublicKey::from_bytes(raw);
        key.map(Self).map_err(|_| BeamKeyError::Weak)
    }

    pub fn to_raw(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The text in DIDs.
    pub fn to_multibase(&self) -> String {
        let bytes = [&MULTICODEC_PREFIX[..], &self.to_raw()].concat();
        format!("z{}", base58::encode(&bytes))
    }

    /// Whether this key made the signature, which is base64 in either alphabet.
    pub fn verify(&self, message: &[u8], signature: &str) -> bool {
        let bytes = decode_base64(signature);
        let signature: Option<[u8; 64]> = bytes.and_then(|bytes| bytes[..].try_into().ok());
        signature.is_some_and(|signature| self.0.verify_bytes(message, &signature))
    }
}

/// The text that is stored and compared: standard base64 with padding.
impl fmt::Display for BeamPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let der = [&SPKI_PREFIX[..], &self.to_raw()].concat();
        f.write_str(&BASE64_STANDARD.encode(der))
    }
}

impl fmt::Debug for BeamPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BeamPublicKey({self})")
    }
}

/// A private key of an agent.
pub struct BeamPrivateKey(Signer);

impl BeamPrivateKey {
    /// Reads base64 of PKCS#8. Wiping the caller's text is up to the caller.
    pub fn parse(text: &str) -> Result<Self, BeamKeyError> {
        let der = decode_base64(text).ok_or(BeamKeyError::NotBase64)?;
        let seed = der.strip_prefix(&PKCS8_PREFIX);
        let seed = seed.and_then(|seed| seed.try_into().ok());
        Ok(Self::from_seed(seed.ok_or(BeamKeyError::NotEd25519)?))
    }

    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Signer::from_seed(seed))
    }

    /// The text of the key with this seed, base64 of PKCS#8.
    pub fn text_of_seed(seed: &[u8; 32]) -> Zeroizing<String> {
        let mut der = Zeroizing::new([0; PKCS8_PREFIX.len() + 32]);
        der[..PKCS8_PREFIX.len()].copy_from_slice(&PKCS8_PREFIX);
        der[PKCS8_PREFIX.len()..].copy_from_slice(seed);
        Zeroizing::new(BASE64_STANDARD.encode(*der))
    }

    pub fn public_key(&self) -> BeamPublicKey {
        BeamPublicKey(self.0.public().clone())
    }

    /// The signature in standard base64.
    pub fn sign(&self, message: &[u8]) -> String {
        BASE64_STANDARD.encode(self.0.sign_bytes(message))
    }
}

/// Shows the public half only.
impl fmt::Debug for BeamPrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BeamPrivateKey(of {})", self.public_key())
    }
}

/// Accepts both alphabets, with or without padding, and white space at the ends. No stray bits may
/// remain. All copies are wiped, because the text may be a private key.
fn decode_base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_ascii();
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let standard: Zeroizing<Vec<u8>> = Zeroizing::new(text.bytes().map(standard_byte).collect());
    // Allocated in full beforehand: a vector that grows leaves copies.
    let mut decoded = Zeroizing::new(vec![0; text.len()]);
    let length = PADDING_OPTIONAL.decode_slice(&*standard, &mut decoded);
    decoded.truncate(length.ok()?);
    Some(decoded)
}

fn standard_byte(byte: u8) -> u8 {
    match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    }
}
