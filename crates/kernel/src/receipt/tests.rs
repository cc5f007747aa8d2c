//! Receipts against published vectors, against a pinned document, and against tampering.

use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};

use super::*;

fn signer() -> Signer {
    Signer::from_seed(&[0x11; 32])
}

fn stranger() -> Signer {
    Signer::from_seed(&[0x22; 32])
}

fn statement() -> Statement {
    Statement {
        id: "rcp_018f0000000070008000000000000001".into(),
        intent: "int_018f0000000070008000000000000002".into(),
        face: "intent".into(),
        namespace: "default".into(),
        goal: "send-mail \"é\"".into(),
        state: "fulfilled".into(),
        cause: None,
        attempts: 2,
        payload_sha256: sha256_hex(br#"{"to":"a@example.org"}"#),
        result_sha256: Some(sha256_hex(b"null")),
        created_at: 1_779_710_400_000_000,
        settled_at: 1_779_710_405_250_000,
        worker: Some("key_7".into()),
        fact: 42,
        supersedes: None,
        issuer: "https://consign.example".into(),
    }
}

fn trusted() -> [PublicKey; 1] {
    [signer().public().clone()]
}

/// The signed document with some members replaced (null removes), signature untouched.
fn altered(changes: &Value) -> String {
    let mut document: Value = serde_json::from_str(&signer().sign(&statement()).unwrap()).unwrap();
    let members = document.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            members.remove(key);
        } else {
            members.insert(key.clone(), value.clone());
        }
    }
    document.to_string()
}

const GOLDEN: &str = r#"{"algorithm":"Ed25519","attempts":2,"created_at":1779710400000000,"face":"intent","fact":42,"goal":"send-mail \"é\"","id":"rcp_018f0000000070008000000000000001","intent":"int_018f0000000070008000000000000002","issuer":"https://consign.example","key_id":"10ba682c8ad13513","namespace":"default","payload_sha256":"8b45d9879bfc02190b505b196e09c91c6182406c82b9e4d042596576082daa48","result_sha256":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","settled_at":1779710405250000,"signature":"b8D_vgMgi0zKsruBDrpvfXAKdVm0SLUYWmVDew-OmNvXzyr3jUY6YuLalZExHHWYh6moQU-NC2XelgoQq4qjCg","state":"fulfilled","type":"consign.receipt.v1","worker":"key_7"}"#;

#[test]
fn a_receipt_is_the_pinned_bytes_every_time() {
    assert_eq!(signer().sign(&statement()).unwrap(), GOLDEN);
    assert_eq!(signer().sign(&statement()).unwrap(), GOLDEN);
    let verified = verify(GOLDEN, &trusted()).unwrap();
    assert_eq!(verified.statement, statement());
    assert_eq!(verified.key_id, signer().key_id());
}

#[test]
fn signatures_match_rfc_8032_and_the_published_vectors() {
    for (seed, public, message, signature) in [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ] {
        let decode = |hex: &str| HEXLOWER.decode(hex.as_bytes()).unwrap();
        let signer = Signer::from_seed(&decode(seed).try_into().unwrap());
        assert_eq!(HEXLOWER.encode(&signer.public_key()), public);
        let made = signer.sign_bytes(&decode(message));
        assert_eq!(HEXLOWER.encode(&made), signature);
        assert!(signer.public().verify_bytes(&decode(message), &made));
        assert!(!signer.public().verify_bytes(b"another", &made));
    }
    let body = json::canonical(br#"{"nonce":"n1","intent_id":"int_abc"}"#).unwrap();
    assert_eq!(
        BASE64.encode(&stranger().sign_bytes(&body)),
        "YyuF5RB9+idEaeal7RIs+9M4ZkybaRD5+7V44WDWHa6oL8GaynBysNBk2UkVUVimh5i4DNuM9SycWYAZjoTvDQ==",
    );
}

#[test]
fn changing_any_byte_of_a_receipt_breaks_it() {
    for at in 0..GOLDEN.len() {
        for flip in [0x01, 0x02, 0x20] {
            let mut bytes = GOLDEN.as_bytes().to_vec();
            bytes[at] ^= flip;
            if let Ok(text) = String::from_utf8(bytes) {
                assert!(verify(&text, &trusted()).is_err(), "byte {at}: {text}");
            }
        }
        if GOLDEN.is_char_boundary(at) && GOLDEN.is_char_boundary(at + 1) {
            let removed = [&GOLDEN[..at], &GOLDEN[at + 1..]].concat();
            assert!(verify(&removed, &trusted()).is_err(), "byte {at} removed");
        }
    }
}

#[test]
fn formatting_is_not_content() {
    let pretty: Value = serde_json::from_str(GOLDEN).unwrap();
    let pretty = serde_json::to_string_pretty(&pretty).unwrap();
    assert_eq!(verify(&pretty, &trusted()).unwrap().statement, statement());
    let escaped = GOLDEN.replace('é', "\\u00e9");
    assert!(verify(&escaped, &trusted()).is_ok());
}

#[test]
fn a_key_that_travels_with_the_document_is_not_trusted() {
    let forged = stranger().sign(&statement()).unwrap();
    let error = verify(&forged, &trusted()).unwrap_err();
    assert!(matches!(error, VerifyError::UnknownKey { key_id } if key_id == stranger().key_id()));

    let x = BASE64URL_NOPAD.encode(&stranger().public_key());
    let mut carrying: Value = serde_json::from_str(&forged).unwrap();
    carrying["public_key"] = json!(x);
    assert!(verify(&carrying.to_string(), &trusted()).is_err());

    // The document of the untrusted key has the trusted key's id.
    carrying.as_object_mut().unwrap().remove("public_key");
    carrying["key_id"] = json!(signer().key_id());
    let error = verify(&carrying.to_string(), &trusted()).unwrap_err();
    assert!(matches!(error, VerifyError::Altered));
    assert!(matches!(
        verify(GOLDEN, &[]),
        Err(VerifyError::UnknownKey { .. })
    ));
}

#[test]
fn every_failure_is_called_by_its_name() {
    let check = |document: &str| verify(document, &trusted()).unwrap_err();
    assert!(matches!(check("{"), VerifyError::NotCanonical(_)));
    assert!(matches!(check("[]"), VerifyError::NotCanonical(_)));
    assert!(matches!(
        check(r#"{"type":"x","type":"y"}"#),
        VerifyError::NotCanonical(_)
    ));
    assert!(matches!(
        check(&altered(&json!({"type": "atp.receipt.v1"}))),
        VerifyError::UnknownType
    ));
    assert!(matches!(
        check(&altered(&json!({"type": null}))),
        VerifyError::UnknownType
    ));
    assert!(matches!(
        check(&altered(&json!({"goal": null}))),
        VerifyError::Shape(_)
    ));
    assert!(matches!(
        check(&altered(&json!({"attempts": "2"}))),
        VerifyError::Shape(_)
    ));
    assert!(matches!(
        check(&altered(&json!({"extra": 1}))),
        VerifyError::UnexpectedMember
    ));
    assert!(matches!(
        check(&altered(&json!({"algorithm": "none"}))),
        VerifyError::UnsupportedAlgorithm
    ));
    assert!(matches!(
        check(&altered(&json!({"key_id": "00"}))),
        VerifyError::UnknownKey { .. }
    ));
    assert!(matches!(
        check(&altered(&json!({"signature": null}))),
        VerifyError::BadSignature
    ));
    assert!(matches!(
        check(&altered(&json!({"signature": "AA"}))),
        VerifyError::BadSignature
    ));
    assert!(matches!(
        check(&altered(&json!({"state": "dead"}))),
        VerifyError::Altered
    ));
    assert!(matches!(
        check(&altered(&json!({"worker": null}))),
        VerifyError::Altered
    ));
    assert!(matches!(
        check(&altered(&json!({"cause": "cancelled"}))),
        VerifyError::Altered
    ));
}

#[test]
fn integers_that_are_not_exact_everywhere_are_never_signed() {
    let mut statement = statement();
    statement.settled_at = 1 << 53;
    let refused = signer().sign(&statement);
    assert!(matches!(
        refused,
        Err(json::CanonicalError::UnsafeInteger { .. })
    ));
}

#[test]
fn a_jwk_set_carries_the_keys_there_and_back() {
    let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let seed = HEXLOWER.decode(seed.as_bytes()).unwrap();
    let rfc = Signer::from_seed(&seed.try_into().unwrap());
    let keys = [rfc.public().clone(), signer().public().clone()];
    let text = jwks(&keys);
    let first = format!(
        r#"{{"keys":[{{"alg":"EdDSA","crv":"Ed25519","kid":"{}","kty":"OKP","use":"sig","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}},"#,
        rfc.key_id(),
    );
    assert!(text.starts_with(&first), "{text}");
    assert_eq!(PublicKey::from_jwks(&text).unwrap(), keys);
    assert_eq!(jwks(&[]), r#"{"keys":[]}"#);
}

#[test]
fn a_foreign_jwk_set_is_read_for_what_it_holds() {
    let read = |keys: Value| PublicKey::from_jwks(&json!({ "keys": keys }).to_string());
    let x = BASE64URL_NOPAD.encode(&signer().public_key());
    let rsa = json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"});
    let exchange = json!({"kty": "OKP", "crv": "X25519", "x": x});
    let bare = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "someone else's name"});
    let keys = read(json!([rsa, exchange, bare])).unwrap();
    assert_eq!(keys, trusted());

    let short = json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"});
    assert!(matches!(read(json!([short])), Err(KeyError::BadCoordinate)));
    let mut identity = [0; 32];
    identity[0] = 1;
    let weak = json!({"kty": "OKP", "crv": "Ed25519", "x": BASE64URL_NOPAD.encode(&identity)});
    assert!(matches!(read(json!([weak])), Err(KeyError::NotAKey)));
    assert!(matches!(
        PublicKey::from_jwks("{}"),
        Err(KeyError::NotJwks(_))
    ));
}

#[test]
fn debug_output_shows_the_key_id_and_nothing_else() {
    let id = signer().key_id().to_owned();
    assert_eq!(id, sha256_hex(&signer().public_key())[..16]);
    assert_eq!(
        format!("{:?}", signer()),
        format!("Signer {{ key_id: {id:?}, .. }}")
    );
}
