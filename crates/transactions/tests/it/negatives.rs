//! V10: documents that must not verify, and the reasons.

use consign_transactions::document::AtpDocument;
use consign_transactions::keyring::{InvalidReason, Verification};
use data_encoding::BASE64;
use serde_json::json;

use crate::published::{FORGED_SIGNATURE, RECEIPT, RECEIPT_SIGNATURE};
use crate::{agent, by_site, keyring, now, sealed, site};

fn verify(document: &AtpDocument) -> Verification {
    keyring().verify(document, now())
}

fn reason(document: &AtpDocument) -> Option<InvalidReason> {
    let verification = verify(document);
    assert_eq!(verification.ok, verification.reason.is_none());
    verification.reason
}

#[test]
fn at_079_v10_a_receipt_with_any_byte_changed_does_not_verify() {
    assert_eq!(reason(&by_site(RECEIPT, RECEIPT_SIGNATURE)), None);
    let mut readable = 0;
    for at in 0..RECEIPT.len() {
        let mut bytes = RECEIPT.as_bytes().to_vec();
        // Flipping the lowest bit keeps letters letters and digits digits, so most results are still
        // documents.
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else {
            continue;
        };
        let signature = json!({"algorithm": "ed25519", "value": RECEIPT_SIGNATURE, "key_id": site().public().id()});
        let text = format!(
            "{{\"signature\":{signature},{}",
            changed.trim_start_matches('{')
        );
        if let Ok(document) = AtpDocument::read(text.as_bytes(), 10_000) {
            readable += 1;
            let verification = verify(&document);
            assert_eq!(
                verification.reason,
                Some(InvalidReason::SignatureMismatch),
                "byte {at}"
            );
            assert!(!verification.signature_valid && !verification.trusted);
        }
    }
    assert!(readable > 800, "{readable}");
}

#[test]
fn at_079_at_082_v10_a_receipt_signed_by_a_stranger_is_of_an_unknown_key() {
    let signature = json!({
        "algorithm": "ed25519", "value": FORGED_SIGNATURE, "key_id": "EyW4UMKHGRbq4gPw",
        "public_key": agent().to_string(),
    });
    let verification = verify(&sealed(RECEIPT, &signature));
    assert_eq!(verification.reason, Some(InvalidReason::UnknownKey));
    assert!(verification.signature_valid);
    assert!(!verification.ok && !verification.trusted);
    assert_eq!(
        (verification.key_id.as_deref(), verification.key_status),
        (Some("EyW4UMKHGRbq4gPw"), None)
    );
}

#[test]
fn at_079_v10_an_id_that_is_not_the_embedded_keys_is_noticed() {
    for value in [RECEIPT_SIGNATURE, FORGED_SIGNATURE] {
        let signature = json!({
            "algorithm": "ed25519", "value": value, "key_id": site().public().id(),
            "public_key": agent().to_string(),
        });
        assert_eq!(
            reason(&sealed(RECEIPT, &signature)),
            Some(InvalidReason::KeyIdMismatch)
        );
    }
}

#[test]
fn at_079_v10_a_signature_of_the_wrong_length_or_form_does_not_verify() {
    let genuine: [u8; 64] = BASE64
        .decode(RECEIPT_SIGNATURE.as_bytes())
        .unwrap()
        .try_into()
        .unwrap();
    let short = BASE64.encode(&genuine[..63]);
    let long = BASE64.encode(&[&genuine[..], &[0]].concat());
    for value in [short.as_str(), &long, "", "not base64"] {
        assert_eq!(
            reason(&by_site(RECEIPT, value)),
            Some(InvalidReason::SignatureMismatch),
            "{value}"
        );
    }
    assert_eq!(
        reason(&by_site(RECEIPT, &BASE64.encode(&plus_order(genuine)))),
        Some(InvalidReason::SignatureMismatch)
    );
    // The string form, and a signature that is not a string.
    assert_eq!(reason(&sealed(RECEIPT, &json!(RECEIPT_SIGNATURE))), None);
    assert_eq!(
        reason(&sealed(
            RECEIPT,
            &json!(format!("ed25519:{RECEIPT_SIGNATURE}"))
        )),
        None
    );
    assert_eq!(
        reason(&sealed(RECEIPT, &json!(7))),
        Some(InvalidReason::SignatureMismatch)
    );
}

#[test]
fn a_signature_that_is_missing_or_of_another_kind_is_told_apart() {
    assert_eq!(
        reason(&crate::read(RECEIPT)),
        Some(InvalidReason::NoSignature)
    );
    assert_eq!(
        reason(&sealed(RECEIPT, &json!(null))),
        Some(InvalidReason::NoSignature)
    );
    let foreign =
        json!({"algorithm": "rsa", "value": RECEIPT_SIGNATURE, "key_id": site().public().id()});
    assert_eq!(
        reason(&sealed(RECEIPT, &foreign)),
        Some(InvalidReason::UnsupportedAlgorithm)
    );
}

/// The same signature with its second half increased by the order of the group: lax verifiers accept
/// both.
fn plus_order(mut signature: [u8; 64]) -> [u8; 64] {
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut carry = 0_u16;
    for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = u8::try_from(sum & 0xff).expect("masked to 8 bits");
        carry = sum >> 8;
    }
    signature
}
