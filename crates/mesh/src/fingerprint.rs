//! The request fingerprint: one hash per request, equal on every retry.
//!
//! SHA-256 over seven parts with one zero byte between them: envelope version, kind and reference of the destination, the
//! message that is answered, priority, canonical `meta`, and the hex digits of the body's SHA-256.
//! Invariant: no part contains a zero byte, so different requests have different inputs. These bytes are stored by daemons
//! and brokers, so the form must never change; another form needs another envelope version.

#[cfg(test)]
mod tests;

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::destination::DestinationKind;
use crate::meta::CanonicalMeta;
use crate::priority::MeshPriority;

/// The version of the form that new requests have.
pub const ENVELOPE_VERSION: u32 = 1;

/// How many bytes of a fingerprint a conflict shows.
const PREFIX_BYTES: usize = 8;

/// The parts of a request that make it distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FingerprintInput<'a> {
    pub envelope_version: u32,
    pub destination_kind: DestinationKind,
    /// Not a [`crate::destination::Destination`]: a broker hashes what was claimed before it looks the destination up.
    pub destination_ref: &'a str,
    pub reply_to_id: Option<&'a str>,
    pub priority: MeshPriority,
    pub meta: &'a CanonicalMeta,
    pub body_hash: BodyHash,
}

/// A part of a request contains a zero byte, which separates the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} contains a NUL byte")]
pub struct ContainsNul(pub &'static str);

impl FingerprintInput<'_> {
    /// The bytes that are hashed.
    pub fn preimage(&self) -> Result<Vec<u8>, ContainsNul> {
        let version = self.envelope_version.to_string();
        let body_hash = self.body_hash.to_string();
        let parts = [
            ("envelope_version", version.as_str()),
            ("destination_kind", self.destination_kind.as_str()),
            ("destination_ref", self.destination_ref),
            ("reply_to_id", self.reply_to_id.unwrap_or_default()),
            ("priority", self.priority.as_str()),
            ("meta", self.meta.as_str()),
            ("body_hash", &body_hash),
        ];
        if let Some((name, _)) = parts.iter().find(|(_, text)| text.contains('\0')) {
            return Err(ContainsNul(name));
        }
        Ok(parts.map(|(_, text)| text).join("\0").into_bytes())
    }

    pub fn fingerprint(&self) -> Result<RequestFingerprint, ContainsNul> {
        let preimage = self.preimage()?;
        Ok(RequestFingerprint(Sha256::digest(preimage).into()))
    }
}

/// The hash of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RequestFingerprint([u8; 32]);

/// The hash of a body before encryption.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BodyHash([u8; 32]);

impl BodyHash {
    pub fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

impl RequestFingerprint {
    /// The first 8 bytes in hex, for the message of a conflict.
    pub fn prefix(&self) -> String {
        HEXLOWER.encode(&self.0[..PREFIX_BYTES])
    }
}

/// The text is not 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hex digits")]
pub struct NotAHash;

macro_rules! hash_text {
    ($($name:ident)*) => {$(
        impl $name {
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            pub const fn to_bytes(self) -> [u8; 32] {
                self.0
            }

            /// Reads 64 hex digits in either case.
            pub fn parse(text: &str) -> Result<Self, NotAHash> {
                let mut bytes = [0; 32];
                let decodes = text.len() == 64
                    && HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), &mut bytes).is_ok();
                if decodes { Ok(Self(bytes)) } else { Err(NotAHash) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&HEXLOWER.encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAHash;

            fn try_from(text: String) -> Result<Self, NotAHash> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(hash: $name) -> Self {
                hash.to_string()
            }
        }
    )*};
}

hash_text! { RequestFingerprint BodyHash }
