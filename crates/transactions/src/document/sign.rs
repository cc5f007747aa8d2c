//! Signing for the site and for agents: a document becomes canonical text with its signature inside.
//!
//! Invariant: the same document, key and time give the same bytes. A signed document is stored and never signed again.

use consign_kernel::ids::Micros;
use consign_kernel::json;
use consign_kernel::receipt::Signer;
use data_encoding::BASE64;
use serde::Serialize;
use serde_json::{Value, json};

use super::{ALGORITHM, AtpDocument, AtpPublicKey, REQUEST_BYTES_MAX, SIGNATURE, hash};
use crate::instant;
use crate::problem::Problem;

/// The site's secret key.
#[derive(Debug)]
pub struct SiteSigner {
    secret: Signer,
    public: AtpPublicKey,
}

/// A signed document as it is stored and published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedText {
    /// The canonical text.
    pub text: String,
    /// The hash of the signed bytes, by which other documents refer to this one.
    pub hash: String,
}

impl SiteSigner {
    /// The key pair of a 32-byte seed as in RFC 8032. The caller wipes its own copy.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let secret = Signer::from_seed(seed);
        let public = AtpPublicKey::from(secret.public().clone());
        Self { secret, public }
    }

    pub fn public(&self) -> &AtpPublicKey {
        &self.public
    }

    /// Signs with a signature object that names the key id. The key itself is left out, so that no verifier trusts an
    /// embedded key.
    pub(crate) fn sign(&self, document: &impl Serialize, signed_at: Micros) -> SignedText {
        let mut signed = to_value(document);
        let unsigned = canonical(&signed);
        let signature = json!({
            "algorithm": ALGORITHM,
            "value": BASE64.encode(&self.secret.sign_bytes(&unsigned)),
            "key_id": self.public.id(),
            "signed_at": instant::print(signed_at),
        });
        signed[SIGNATURE] = signature;
        SignedText {
            text: text(&signed),
            hash: hash(&unsigned),
        }
    }

    /// Signs with a bare string in the member of this name.
    pub(crate) fn sign_as(&self, member: &str, document: &impl Serialize) -> String {
        let mut value = to_value(document);
        let signature = self.secret.sign_bytes(&canonical(&value));
        value[member] = format!("{ALGORITHM}:{}", BASE64.encode(&signature)).into();
        text(&value)
    }
}

/// The secret key of an agent, or of the principal it acts for.
#[derive(Debug)]
pub struct AgentSigner(SiteSigner);

impl AgentSigner {
    /// The key pair of a 32-byte seed as in RFC 8032. The caller wipes its own copy.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SiteSigner::from_seed(seed))
    }

    pub fn public(&self) -> &AtpPublicKey {
        self.0.public()
    }

    /// The body with its signature. Signing is deterministic: the same body gives the same bytes, so a request can be
    /// repeated.
    pub fn sign(&self, body: &Value) -> Result<String, Problem> {
        let document = AtpDocument::read(body.to_string().as_bytes(), REQUEST_BYTES_MAX)?;
        let signature = self.0.secret.sign_bytes(document.signed_bytes());
        let mut signed = body.clone();
        signed[SIGNATURE] = BASE64.encode(&signature).into();
        Ok(text(&signed))
    }
}

fn to_value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("documents have string keys only")
}

fn canonical(value: &Value) -> Vec<u8> {
    json::canonical_value(value).expect("amounts and counts are exact in a double")
}

fn text(value: &Value) -> String {
    String::from_utf8(canonical(value)).expect("canonical JSON is UTF-8")
}
