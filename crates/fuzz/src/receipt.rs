//! Receipts: of all documents, only the one that was signed verifies, however it is laid out.

use std::sync::LazyLock;

use consign_kernel::json::canonical;
use consign_kernel::receipt::{PublicKey, Signer, Statement, jwks, sha256_hex, verify};

/// The only document that was ever signed with the trusted key; `seeds/receipt` begins with it.
static SIGNED: LazyLock<String> = LazyLock::new(|| {
    let statement = Statement {
        id: "rcp_01a1dea803707330800005a06ad96f6b_3".to_owned(),
        intent: "01a1dea803707330800005a06ad96f6b".to_owned(),
        face: "intent".to_owned(),
        namespace: "default".to_owned(),
        goal: "hello".to_owned(),
        state: "fulfilled".to_owned(),
        cause: Some("completed".to_owned()),
        attempts: 1,
        payload_sha256: sha256_hex(b"{}"),
        result_sha256: None,
        created_at: 1_800_000_000_000_000,
        settled_at: 1_800_000_001_000_000,
        worker: Some("main".to_owned()),
        fact: 3,
        issuer: "consign".to_owned(),
    };
    let signed = trusted().sign(&statement);
    signed.expect("the statement holds no number beyond doubles")
});

fn trusted() -> Signer {
    Signer::from_seed(&[0x11; 32])
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let keys = [trusted().public().clone()];
    if let Ok(verified) = verify(text, &keys) {
        let form = canonical(bytes).expect("what verifies has a canonical form");
        assert_eq!(form, SIGNED.as_bytes(), "a document nobody signed verifies");
        assert_eq!(verified.key_id, keys[0].key_id());
        // Any other key must refuse the same bytes.
        let stranger = Signer::from_seed(&[0x22; 32]);
        assert!(verify(text, &[stranger.public().clone()]).is_err());
    }
    if let Ok(keys) = PublicKey::from_jwks(text) {
        let published = PublicKey::from_jwks(&jwks(&keys));
        assert_eq!(published.expect("our own set of keys is readable"), keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_the_signed_document() {
        let seed = include_str!("../seeds/receipt/signed");
        assert_eq!(seed, SIGNED.as_str());
        run(seed.as_bytes());
    }
}
