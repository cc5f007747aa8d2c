//! Published values, and what a changed byte does.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;

use super::*;
use crate::keys::MeshPrivateKey;

const NONCE: NaclNonce = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];

fn x25519(seed: u8) -> X25519Secret {
    MeshPrivateKey::from_seed(&[seed; 32]).to_x25519()
}

fn between(own: u8, other: u8) -> SymmetricKey {
    SymmetricKey::agreed(&x25519(own), x25519(other).public_key()).unwrap()
}

#[test]
fn cm_162_a_box_from_a_to_b_has_the_published_bytes() {
    let sealed = between(1, 2).seal(b"hello bob", &NONCE);
    assert_eq!(
        BASE64_STANDARD.encode(&sealed),
        "koXmzsfPM2/q/yebOlrKuasdsc4zQc6Nog=="
    );
    let opened = between(2, 1).open(&sealed, &NONCE).unwrap();
    assert_eq!(&opened[..], b"hello bob");
    assert!(between(3, 1).open(&sealed, &NONCE).is_none());
}

#[test]
fn cm_162_a_secretbox_has_the_published_bytes() {
    let key = SymmetricKey::from_bytes(&[7; 32]);
    let sealed = key.seal(b"topic body", &NONCE);
    assert_eq!(
        BASE64_STANDARD.encode(&sealed),
        "XsJ6AFgFglFbLBT7Z/SHze5xmSboVQCqgek="
    );
    assert_eq!(&key.open(&sealed, &NONCE).unwrap()[..], b"topic body");
}

#[test]
fn an_anonymous_box_opens_for_its_recipient_alone() {
    let sealed = seal_anonymous(b"root key", x25519(2).public_key(), &x25519(9)).unwrap();
    assert_eq!(sealed.len(), KEY_BYTES + MAC_BYTES + 8);
    assert_eq!(
        &open_anonymous(&sealed, &x25519(2)).unwrap()[..],
        b"root key"
    );
    assert!(open_anonymous(&sealed, &x25519(1)).is_none());
    assert!(open_anonymous(&sealed[..31], &x25519(2)).is_none());
    let zero = X25519Public::from_bytes([0; 32]);
    assert!(seal_anonymous(b"", zero, &x25519(9)).is_none());
}

#[test]
fn a_text_shorter_than_its_authenticator_does_not_open() {
    let key = SymmetricKey::from_bytes(&[7; 32]);
    assert!(key.open(&[], &NONCE).is_none());
    assert!(key.open(&[0; 15], &NONCE).is_none());
    let empty = key.seal(b"", &NONCE);
    assert_eq!(empty.len(), MAC_BYTES);
    assert!(key.open(&empty, &NONCE).unwrap().is_empty());
}

#[test]
fn keys_are_not_printed() {
    assert_eq!(
        format!("{:?}", SymmetricKey::from_bytes(&[7; 32])),
        "SymmetricKey(..)"
    );
}

proptest! {
    #[test]
    fn every_text_opens_unchanged_and_no_changed_one_opens(plain: Vec<u8>, nonce: NaclNonce, at: usize, change in 1_u8..) {
        let key = between(1, 2);
        let mut sealed = key.seal(&plain, &nonce);
        prop_assert_eq!(&key.open(&sealed, &nonce).unwrap()[..], &plain[..]);
        let at = at % sealed.len();
        sealed[at] ^= change;
        prop_assert!(key.open(&sealed, &nonce).is_none());
    }
}
