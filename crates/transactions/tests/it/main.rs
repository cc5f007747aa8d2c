//! The protocol's own vectors against the public parts of the crate.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod published;

mod negatives;
mod vectors;

use consign_kernel::ids::Micros;
use consign_transactions::document::{AtpDocument, AtpPublicKey, SiteSigner, VERIFY_BYTES_MAX};
use consign_transactions::instant;
use consign_transactions::keyring::{KeyStanding, Keyring, SiteKey};
use serde_json::{Value, json};

pub(crate) const SITE: &str = "https://shop.example";

pub(crate) fn site() -> SiteSigner {
    SiteSigner::from_seed(&[0x11; 32])
}

pub(crate) fn agent() -> AtpPublicKey {
    SiteSigner::from_seed(&[0x22; 32]).public().clone()
}

pub(crate) fn keyring() -> Keyring {
    consign_testkit::plants::from_environment();
    let current = SiteKey {
        key: site().public().clone(),
        standing: KeyStanding::Current,
        valid_from: None,
    };
    Keyring::new(SITE, vec![current]).unwrap()
}

pub(crate) fn at(text: &str) -> Micros {
    instant::parse(text).unwrap()
}

/// A time after all times of the vectors.
pub(crate) fn now() -> Micros {
    at("2026-05-25T14:00:00.000Z")
}

pub(crate) fn read(text: &str) -> AtpDocument {
    AtpDocument::read(text.as_bytes(), VERIFY_BYTES_MAX).unwrap()
}

/// The document with this signature inserted.
pub(crate) fn sealed(unsigned: &str, signature: &Value) -> AtpDocument {
    let rest = unsigned.strip_prefix('{').unwrap();
    read(&format!("{{\"signature\":{signature},{rest}"))
}

pub(crate) fn by_site(unsigned: &str, value: &str) -> AtpDocument {
    let signature = json!({"algorithm": "ed25519", "value": value, "key_id": site().public().id()});
    sealed(unsigned, &signature)
}
