//! Receipts: of all documents only the signed one verifies, in any layout.
//!
//! Input: a document; or `@`, a position, a count and some bytes, for the signed document with that many bytes
//! replaced there. Without this form a fuzzer rarely finds a document that verifies.

use std::sync::LazyLock;

use consign_kernel::json::canonical;
use consign_kernel::receipt::{PublicKey, Signer, Statement, jwks, sha256_hex, verify};

/// The only document that was signed with the trusted key; `seeds/receipt` begins with it.
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
        supersedes: None,
        issuer: "consign".to_owned(),
    };
    let signed = trusted().sign(&statement);
    signed.expect("the statement holds no number beyond doubles")
});

fn trusted() -> Signer {
    Signer::from_seed(&[0x11; 32])
}

pub(crate) fn run(bytes: &[u8]) {
    if let [b'@', high, low, cut, put_in @ ..] = bytes {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % SIGNED.len();
        let (before, after) = SIGNED.as_bytes().split_at(at);
        let after = &after[usize::from(*cut).min(after.len())..];
        check(&[before, put_in, after].concat());
    } else {
        check(bytes);
    }
}

fn check(bytes: &[u8]) {
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

    /// Edits at every position of the document that leave it valid JSON, which a fuzzer rarely finds.
    #[test]
    fn no_single_edit_of_the_signed_document_makes_another_that_verifies() {
        let put_in: [&[u8]; 6] = [
            b"",
            b" ",
            b"0",
            b"\"x\":1,",
            b",\"worker\":\"b\"",
            b"\\u0061",
        ];
        for at in 0..u16::try_from(SIGNED.len()).unwrap() {
            for (cut, put_in) in (0..2).flat_map(|cut| put_in.map(|put_in| (cut, put_in))) {
                let [high, low] = at.to_be_bytes();
                run(&[&[b'@', high, low, cut], put_in].concat());
            }
        }
    }
}
