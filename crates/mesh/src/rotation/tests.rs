//! Both signatures are needed, and the keys must belong together.

use super::*;

const NOW: u64 = 1_700_000_000_000;

fn key(byte: u8) -> MeshPrivateKey {
    MeshPrivateKey::from_seed(&[byte; 32])
}

fn member(byte: u8) -> RotatingMember<'static> {
    RotatingMember {
        mesh_id: "mesh-1",
        member_id: "m-a",
        key: key(byte).public_key(),
    }
}

fn frame() -> KeyRotationFrame {
    rotation_frame(&member(1), &key(1), &key(2), "k_1", NOW)
}

fn refused(frame: &KeyRotationFrame) -> String {
    check_rotation(frame, &member(1), NOW)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_rotation_that_both_keys_signed_is_accepted() {
    assert_eq!(
        check_rotation(&frame(), &member(1), NOW + 60_000),
        Ok(key(2).public_key())
    );
    let late = check_rotation(&frame(), &member(1), NOW + 60_001);
    assert_eq!(late, Err(RotationRefusal::TimestampSkew));
}

#[test]
fn one_signature_alone_is_not_enough() {
    let strange = rotation_frame(&member(1), &key(3), &key(2), "k_1", NOW);
    assert_eq!(refused(&strange), "bad_signature");
    let without_new = KeyRotationFrame {
        signature_new: frame().signature_old,
        ..frame()
    };
    assert_eq!(refused(&without_new), "bad_signature");
    let of_another_member = check_rotation(&frame(), &member(3), NOW);
    assert_eq!(of_another_member, Err(RotationRefusal::BadSignature));
    let later = KeyRotationFrame {
        timestamp: NOW + 1,
        ..frame()
    };
    assert_eq!(refused(&later), "bad_signature");
}

#[test]
fn the_new_key_is_another_one_with_its_own_encryption_key() {
    let same = rotation_frame(&member(1), &key(1), &key(1), "k_1", NOW);
    assert_eq!(refused(&same), "malformed");
    let other = rotation_frame(&member(1), &key(1), &key(3), "k_1", NOW);
    let mixed = KeyRotationFrame {
        new_x25519_pubkey: other.new_x25519_pubkey,
        ..frame()
    };
    assert_eq!(refused(&mixed), "malformed");
    let no_key = KeyRotationFrame {
        new_pubkey: "ab".to_owned(),
        ..frame()
    };
    assert_eq!(refused(&no_key), "malformed");
}
