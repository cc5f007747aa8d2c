//! Which archives are read, and what is removed.

use super::*;
use crate::keys::MeshPrivateKey;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn archived(number: u8) -> ArchivedKey {
    let key = MeshPrivateKey::from_seed(&[number; 32]);
    let secret = key.to_x25519();
    ArchivedKey {
        ed25519_pubkey: BASE64_STANDARD.encode(key.public_key().to_bytes()),
        x25519_pubkey: BASE64_STANDARD.encode(secret.public_key().to_bytes()),
        x25519_privkey: BASE64_STANDARD.encode(*secret.reveal()),
        key_id: format!("k_{number}"),
        created_at: at(0),
        rotated_out_at: at(i64::from(number)),
        expires_at: at(1_000 + i64::from(number)),
    }
}

fn of(numbers: &[u8]) -> KeyArchive {
    let mut archive = KeyArchive::new(8);
    for number in numbers {
        archive.add(archived(*number));
    }
    archive
}

fn ids(archive: &KeyArchive) -> Vec<&str> {
    archive
        .keys()
        .iter()
        .map(|key| key.key_id.as_str())
        .collect()
}

#[test]
fn an_archive_reads_back_with_its_newest_key_first() {
    let archive = of(&[1, 3, 2]);
    let read = KeyArchive::parse(&archive.to_text()).unwrap();
    assert_eq!(read, archive);
    assert_eq!(ids(&read), ["k_3", "k_2", "k_1"]);
    let expected = MeshPrivateKey::from_seed(&[3; 32]).to_x25519();
    let secret = read.keys()[0].secret().unwrap();
    assert_eq!(secret.public_key(), expected.public_key());
}

#[test]
fn the_oldest_key_above_the_maximum_is_removed() {
    let mut archive = of(&[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(archive.add(archived(9)), ["k_1"]);
    assert_eq!(archive.keys().len(), 8);
}

#[test]
fn keys_end_at_their_time() {
    let mut archive = of(&[1, 2]);
    assert_eq!(archive.remove_expired(at(1_000)), 0);
    assert_eq!(archive.remove_expired(at(1_001)), 1);
    assert_eq!(ids(&archive), ["k_2"]);
}

#[test]
fn malformed_archives_and_repeated_keys_have_different_errors() {
    let mut twice = of(&[1, 2]);
    twice.keys[1].key_id = "k_2".to_owned();
    assert_eq!(
        KeyArchive::parse(&twice.to_text()),
        Err(ArchiveError::DuplicateKeyId)
    );
    let mut mixed = of(&[1, 2]);
    mixed.keys[0].x25519_pubkey = archived(1).x25519_pubkey;
    assert_eq!(
        KeyArchive::parse(&mixed.to_text()),
        Err(ArchiveError::Malformed)
    );
    let mut newer = of(&[1]);
    newer.schema_version = 2;
    for text in ["", "{}", &newer.to_text()] {
        assert_eq!(KeyArchive::parse(text), Err(ArchiveError::Malformed));
    }
}

#[test]
fn archived_secrets_are_not_printed() {
    let key = archived(1);
    assert!(!format!("{key:?} {:?}", of(&[1])).contains(&key.x25519_privkey));
}
