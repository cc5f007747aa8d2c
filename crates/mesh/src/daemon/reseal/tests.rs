//! Which rows are sealed again, and what the recipient opens.

use data_encoding::HEXLOWER;

use super::*;
use crate::daemon::test_keys::key;

/// A row with this body for member 2, sealed by the key of this number.
fn sealed_by(number: u8, body: &[u8]) -> OutboxPayload {
    let to = key(2).public_key();
    let carried = CarriedBody::direct(body, &key(number), to, &[7; NONCE_BYTES]).unwrap();
    OutboxPayload {
        payload: HEXLOWER.encode(body),
        target_spec: Some(to.to_string()),
        nonce: Some(carried.nonce),
        ciphertext: Some(carried.ciphertext),
        destination_kind: Some("dm".to_owned()),
        body_sha256: Some(BodyHash::of(body).to_string()),
        sealed_by: Some(key(number).public_key().to_string()),
        ..OutboxPayload::default()
    }
}

fn opened(payload: &OutboxPayload, sender: u8) -> Option<Vec<u8>> {
    let carried = CarriedBody {
        nonce: payload.nonce.clone()?,
        ciphertext: payload.ciphertext.clone()?,
    };
    let opened = carried.open_direct(key(sender).public_key(), &[&key(2).to_x25519()]);
    opened.map(|(_, body)| body.to_vec())
}

#[test]
fn a_row_of_another_key_is_sealed_again_and_always_with_the_same_bytes() {
    let row = sealed_by(1, b"hello");
    let again = resealed(&row, &key(3)).unwrap();
    assert_eq!(opened(&again, 3).as_deref(), Some(&b"hello"[..]));
    assert_eq!(opened(&again, 1), None);
    assert_ne!(again.nonce, row.nonce);
    let repeated = resealed(&row, &key(3)).unwrap();
    assert_eq!(
        (again.nonce.as_ref(), again.ciphertext.as_ref()),
        (repeated.nonce.as_ref(), repeated.ciphertext.as_ref())
    );
    assert!(resealed(&again, &key(3)).is_none(), "once is enough");
}

#[test]
fn a_row_of_the_current_key_keeps_its_bytes_also_if_it_does_not_name_the_key() {
    assert!(resealed(&sealed_by(1, b"hello"), &key(1)).is_none());
    let of_earlier_version = OutboxPayload {
        sealed_by: None,
        ..sealed_by(1, b"hello")
    };
    assert!(resealed(&of_earlier_version, &key(1)).is_none());
    let again = resealed(&of_earlier_version, &key(3)).unwrap();
    assert_eq!(opened(&again, 3).as_deref(), Some(&b"hello"[..]));
}

#[test]
fn clear_rows_and_edited_bodies_stay_as_they_are() {
    let clear = OutboxPayload {
        destination_kind: Some("topic".to_owned()),
        ..sealed_by(1, b"hello")
    };
    assert!(resealed(&clear, &key(3)).is_none());
    let edited = OutboxPayload {
        payload: HEXLOWER.encode(b"other"),
        ..sealed_by(1, b"hello")
    };
    assert!(resealed(&edited, &key(3)).is_none());
}
