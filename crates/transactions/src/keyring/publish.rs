//! The documents that publish a site's keys.

use serde::Serialize;
use serde_json::{Value, json};

use super::{KeyStanding, Keyring, SiteKey};
use crate::document::SiteSigner;
use crate::instant;

/// The base path of the protocol.
pub const BASE_PATH: &str = "/api/atp";

#[derive(Serialize)]
struct SiteManifest<'a> {
    schema_version: &'a str,
    site: &'a str,
    public_key: String,
    next_public_key: Option<String>,
    previous_keys: Vec<Value>,
    atp: Value,
}

#[derive(Serialize)]
struct Revocations<'a> {
    site: &'a str,
    revoked: Vec<Value>,
    new_public_key: String,
}

impl Keyring {
    /// `/.well-known/wab.json`, signed by the current key.
    pub fn manifest(&self, signer: &SiteSigner) -> String {
        self.assert_current(signer);
        let next = self
            .keys
            .iter()
            .find(|key| key.standing == KeyStanding::Next);
        let manifest = SiteManifest {
            schema_version: "wab/1",
            site: &self.site,
            public_key: signer.public().to_string(),
            next_public_key: next.map(|next| next.key.to_string()),
            previous_keys: self.keys.iter().filter_map(previous).collect(),
            atp: json!({"base": BASE_PATH, "keys": format!("{BASE_PATH}/keys"), "semantics": crate::SEMANTICS}),
        };
        signer.sign_as("signature", &manifest)
    }

    /// `/.well-known/wab-revocations.json`, signed by the key that replaces the revoked ones.
    pub fn revocations(&self, signer: &SiteSigner) -> String {
        self.assert_current(signer);
        let revocations = Revocations {
            site: &self.site,
            revoked: self.keys.iter().filter_map(revoked).collect(),
            new_public_key: signer.public().to_string(),
        };
        signer.sign_as("signature_by_new_key", &revocations)
    }

    /// The keys of `/.well-known/jwks.json`: all keys that verify something, under the ids that documents use.
    pub fn jwks(&self) -> Vec<Value> {
        let jwk = |key: &SiteKey| {
            let (id, x) = (key.key.id(), key.key.jwk_x());
            json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": id, "alg": "EdDSA", "use": "sig"})
        };
        let good = |key: &&SiteKey| !matches!(key.standing, KeyStanding::Revoked { .. });
        self.keys.iter().filter(good).map(jwk).collect()
    }

    /// `/api/atp/keys`, for offline verification.
    pub fn document(&self) -> Value {
        json!({"site": self.site, "keys": self.keys.iter().map(entry).collect::<Value>()})
    }

    fn assert_current(&self, signer: &SiteSigner) {
        assert!(
            self.current().key == *signer.public(),
            "the signer's key is the current one"
        );
    }
}

/// Revoked keys are left out: their holder can backdate a receipt, and a reader of this document alone would trust it.
fn previous(key: &SiteKey) -> Option<Value> {
    let KeyStanding::Previous {
        valid_until,
        reason,
    } = &key.standing
    else {
        return None;
    };
    let until = instant::print(*valid_until);
    Some(json!({"key": key.key.to_string(), "valid_until": until, "reason": reason}))
}

fn revoked(key: &SiteKey) -> Option<Value> {
    let KeyStanding::Revoked { revoked_at, reason } = &key.standing else {
        return None;
    };
    let at = instant::print(*revoked_at);
    Some(json!({"key": key.key.to_string(), "revoked_at": at, "reason": reason}))
}

fn entry(key: &SiteKey) -> Value {
    let valid_until = match &key.standing {
        KeyStanding::Previous {
            valid_until: until, ..
        }
        | KeyStanding::Revoked {
            revoked_at: until, ..
        } => Some(instant::print(*until)),
        KeyStanding::Current | KeyStanding::Next => None,
    };
    json!({
        "key_id": key.key.id(),
        "public_key": key.key.to_string(),
        "status": key.standing.word(),
        "valid_from": key.valid_from.map(instant::print),
        "valid_until": valid_until,
    })
}
