//! Signed statements about what became of an intent: Ed25519 over canonical JSON.
//!
//! Invariant: a document verifies only under a key the verifier already trusts, and only if every
//! member is the one that was signed; a key that travels with a document is never looked at.
//! Signing is deterministic, so the same statement and key always give the same bytes.
//! Where keys live, when they rotate and where receipts are kept is not decided here.

mod keys;
#[cfg(test)]
mod tests;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::json::{self, DEPTH_MAX, Object};

pub use keys::{KeyError, PublicKey, Signer, jwks};

/// The `type` of the documents made here.
pub const TYPE: &str = "consign.receipt.v1";

/// The `algorithm` of the documents made here.
pub const ALGORITHM: &str = "Ed25519";

/// What is certified about a settled intent. Absent options are left out of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The id of the receipt itself.
    pub id: String,
    pub intent: String,
    pub face: String,
    pub namespace: String,
    pub goal: String,
    /// The final state in the words of the face.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    pub attempts: u32,
    /// [`sha256_hex`] of the compact payload as stored.
    pub payload_sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<String>,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub settled_at: i64,
    /// The id that the worker gave itself, or else its key id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The sequence number of the settling fact.
    pub fact: i64,
    /// The receipt of the settlement before this one, if an operator had the intent settled anew: that one counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
    pub issuer: String,
}

/// A statement whose signature was checked, and the trusted key that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub statement: Statement,
    pub key_id: String,
}

/// Why a document proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("malformed receipt: {0}")]
    NotCanonical(#[from] json::CanonicalError),
    #[error("malformed receipt: it is not UTF-8")]
    NotText(#[source] std::str::Utf8Error),
    #[error("not a receipt of type {TYPE}")]
    UnknownType,
    #[error("malformed receipt: {0}")]
    Shape(#[source] serde_json::Error),
    #[error("malformed receipt: it has members that a receipt of its type does not have")]
    UnexpectedMember,
    #[error("unsupported signature algorithm, expected {ALGORITHM}")]
    UnsupportedAlgorithm,
    #[error("signed by the key {key_id}, which is not among the trusted keys")]
    UnknownKey { key_id: String },
    #[error("the signature is not 64 bytes of unpadded base64url")]
    BadSignature,
    #[error("the signature does not match: the receipt was altered or not issued by this key")]
    Altered,
}

/// The hash that statements carry, as lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

impl Signer {
    /// The signed document, in canonical form itself.
    ///
    /// Refuses integers beyond 2^53-1, which microseconds reach in the year 2255.
    pub fn sign(&self, statement: &Statement) -> Result<String, json::CanonicalError> {
        let unsigned = ReceiptDocument {
            type_: TYPE.into(),
            key_id: self.key_id().into(),
            algorithm: ALGORITHM.into(),
            signature: None,
            statement: statement.clone(),
        };
        let signature = self.sign_bytes(&unsigned.canonical()?);
        let signed = ReceiptDocument {
            signature: Some(BASE64URL_NOPAD.encode(&signature)),
            ..unsigned
        };
        let bytes = signed.canonical()?;
        Ok(String::from_utf8(bytes).expect("canonical JSON is UTF-8"))
    }
}

/// Checks a document against the keys the caller trusts.
///
/// White space, member order and escapes may have changed on the way; nothing else may.
pub fn verify(document: &str, keys: &[PublicKey]) -> Result<Verified, VerifyError> {
    let received = json::canonical(document.as_bytes())?;
    check_type(&received)?;
    let signed: ReceiptDocument = serde_json::from_slice(&received).map_err(VerifyError::Shape)?;
    if signed.canonical()? != received {
        return Err(VerifyError::UnexpectedMember);
    }
    if signed.algorithm != ALGORITHM {
        return Err(VerifyError::UnsupportedAlgorithm);
    }
    let trusted = keys.iter().find(|key| key.key_id() == signed.key_id);
    let Some(key) = trusted else {
        return Err(VerifyError::UnknownKey {
            key_id: signed.key_id,
        });
    };
    let signature = signed.signature.as_deref().and_then(decode_signature);
    let signature = signature.ok_or(VerifyError::BadSignature)?;
    let unsigned = ReceiptDocument {
        signature: None,
        ..signed
    };
    if !key.verify_bytes(&unsigned.canonical()?, &signature) {
        return Err(VerifyError::Altered);
    }
    Ok(Verified {
        statement: unsigned.statement,
        key_id: unsigned.key_id,
    })
}

#[derive(Serialize, Deserialize)]
struct ReceiptDocument {
    #[serde(rename = "type")]
    type_: String,
    key_id: String,
    algorithm: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    #[serde(flatten)]
    statement: Statement,
}

impl ReceiptDocument {
    fn canonical(&self) -> Result<Vec<u8>, json::CanonicalError> {
        let text = serde_json::to_vec(self).expect("strings and integers always serialise");
        json::canonical(&text)
    }
}

/// Looks at the type before the shape, so that another kind of receipt is called just that.
fn check_type(document: &[u8]) -> Result<(), VerifyError> {
    let members = Object::parse(document, DEPTH_MAX).map_err(json::CanonicalError::from)?;
    let type_ = members.get("type").and_then(|value| value.as_str());
    match type_.as_deref() {
        Some(TYPE) => Ok(()),
        _ => Err(VerifyError::UnknownType),
    }
}

fn decode_signature(text: &str) -> Option<[u8; 64]> {
    // The decoder refuses padding and stray bits, so a signature has exactly one spelling.
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}
