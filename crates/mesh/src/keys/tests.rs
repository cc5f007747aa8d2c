//! Published keys, and what is refused as a key.

use super::*;

const A: &str = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
const B: &str = "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394";
const C: &str = "ed4928c628d1c2c6eae90338905995612959273a5c63f93636c14614ac8737d1";

fn key(byte: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[byte; 32])
}

#[test]
fn public_keys_follow_from_the_published_seeds() {
    for (seed, public) in [(1, A), (2, B), (3, C)] {
        assert_eq!(key(seed).public_key().to_string(), public);
    }
}

#[test]
fn cm_162_encryption_keys_follow_from_signing_keys() {
    let published = [
        (
            1,
            "58e86efb75fa4e2c410f46e16de9f6acae1a1703528651b69bc176c088bef36e",
            "1b1b58dd50ea14b60da17b790cd02754d970c9bab864ebb3c0f3016fe51d3f57",
        ),
        (
            2,
            "a83c626bc9c38c8c201878ebb1d5b0b50ac40e8986c78793db1d4ef369fca14e",
            "60346e7c911a5f6ba154129174cafe75b294ac3bbd5549632f48cec6266f8410",
        ),
    ];
    for (seed, secret, public) in published {
        let converted = key(seed).to_x25519();
        assert_eq!(HEXLOWER.encode(&*converted.reveal()), secret);
        assert_eq!(HEXLOWER.encode(&converted.public_key().to_bytes()), public);
        let of_public = key(seed).public_key().to_x25519().unwrap();
        assert_eq!(of_public, converted.public_key());
    }
}

#[test]
fn secret_keys_are_read_in_libsodiums_form() {
    let text = key(1).reveal();
    assert_eq!(*text, format!("{}{A}", "01".repeat(32)));
    let read = MeshPrivateKey::parse(&text.to_uppercase()).unwrap();
    assert_eq!(read.public_key(), key(1).public_key());
    let of_another = format!("{}{B}", "01".repeat(32));
    let refused = MeshPrivateKey::parse(&of_another).map(|_| ());
    assert_eq!(refused, Err(MeshKeyError::HalvesDiffer));
    for invalid in ["", A, &"0g".repeat(64)] {
        let refused = MeshPrivateKey::parse(invalid).map(|_| ());
        assert_eq!(refused, Err(MeshKeyError::SecretShape));
    }
}

#[test]
fn public_keys_are_64_hex_digits_printed_in_lower_case() {
    let read = MeshPublicKey::parse(&A.to_uppercase()).unwrap();
    assert_eq!(read.to_string(), A);
    for invalid in ["", &A[1..], &format!("{A}0"), &A.replace('8', "x")] {
        assert!(MeshPublicKey::parse(invalid).is_err(), "{invalid}");
    }
}

#[test]
fn only_the_signing_key_verifies_a_signature() {
    let signature = key(1).sign(b"text");
    let public = key(1).public_key();
    assert!(public.verify(b"text", &signature));
    assert!(public.verify(b"text", &signature.to_uppercase()));
    assert!(!public.verify(b"texT", &signature));
    assert!(!key(2).public_key().verify(b"text", &signature));
    for invalid in ["", "00", &signature[1..], &"zz".repeat(64)] {
        assert!(!public.verify(b"text", invalid));
    }
}

#[test]
fn points_of_small_order_verify_nothing_and_encrypt_nothing() {
    // The neutral element, a point of order two, and one that is not on the curve.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut order_two = [0xff; 32];
    order_two[0] = 0xec;
    order_two[31] = 0x7f;
    let mut no_point = [0; 32];
    no_point[0] = 2;
    for bytes in [neutral, order_two, no_point] {
        let public = MeshPublicKey::from_bytes(bytes);
        assert_eq!(public.to_x25519(), None);
        assert!(!public.verify(b"", &"00".repeat(64)));
    }
    let zero = X25519Public::from_bytes([0; 32]);
    assert!(key(1).to_x25519().agree(zero).is_none());
}

#[test]
fn secrets_are_not_printed() {
    let secret = key(1);
    let shown = format!("{secret:?} {:?}", secret.to_x25519());
    assert!(shown.contains(A));
    let bytes = HEXLOWER.encode(&*secret.to_x25519().reveal());
    assert!(
        !shown.contains(&"01".repeat(32)) && !shown.contains(&bytes),
        "{shown}"
    );
}
