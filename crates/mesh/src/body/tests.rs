//! Bodies between members, under topic keys and in clear.

use super::*;

fn key(byte: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[byte; 32])
}

#[test]
fn a_direct_message_opens_with_an_archived_key() {
    let (sender, old, new) = (key(1), key(2), key(3));
    let body = CarriedBody::direct(b"hi", &sender, old.public_key(), &[5; 24]).unwrap();
    let secrets = [&new.to_x25519(), &old.to_x25519()];
    let (at, opened) = body.open_direct(sender.public_key(), &secrets).unwrap();
    assert_eq!((at, &opened[..]), (1, &b"hi"[..]));
    assert!(
        body.open_direct(sender.public_key(), &secrets[..1])
            .is_none()
    );
    assert!(body.open_direct(new.public_key(), &secrets).is_none());
}

#[test]
fn a_key_that_is_no_point_gets_no_message() {
    let mut bytes = [0; 32];
    bytes[0] = 2;
    let no_point = MeshPublicKey::from_bytes(bytes);
    assert_eq!(
        CarriedBody::direct(b"hi", &key(1), no_point, &[5; 24]),
        None
    );
}

#[test]
fn clear_bodies_are_base64_without_a_nonce() {
    let body = CarriedBody::clear("grüße".as_bytes());
    assert_eq!(body.nonce, "");
    assert_eq!(body.ciphertext, "Z3LDvMOfZQ==");
    assert_eq!(body.decoded().unwrap(), "grüße".as_bytes());
    assert!(body.is_well_formed());
}

#[test]
fn other_alphabets_lengths_and_missing_padding_are_malformed() {
    let body = |nonce: &str, ciphertext: &str| CarriedBody {
        nonce: nonce.to_owned(),
        ciphertext: ciphertext.to_owned(),
    };
    let nonce = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    assert!(body(nonce, "AAAA").is_well_formed());
    for (nonce, ciphertext) in [
        ("AAEC", "AAAA"),
        (nonce, "-_-_"),
        (nonce, "AA"),
        (nonce, "AB=="),
        ("?", "AAAA"),
    ] {
        assert!(
            !body(nonce, ciphertext).is_well_formed(),
            "{nonce} {ciphertext}"
        );
    }
}
