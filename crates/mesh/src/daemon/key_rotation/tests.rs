//! Which keys exist at each point of a rotation.

use std::fs;

use super::*;
use crate::config::CryptoSettings;
use crate::daemon::identity::IdentityOptions;
use crate::daemon::key_archive::ARCHIVE_FILE;
use crate::daemon::test_keys::{joined, key};
use crate::environment::IdentityMode;
use crate::nacl::SymmetricKey;
use crate::rotation::check_rotation;

const NOW_MS: u64 = 1_700_000_000_000;

struct World {
    folder: tempfile::TempDir,
    log: DaemonLog,
    metrics: DaemonMetrics,
}

impl World {
    fn new() -> Self {
        consign_testkit::plants::from_environment();
        Self {
            folder: tempfile::tempdir().unwrap(),
            log: DaemonLog::disabled("team"),
            metrics: DaemonMetrics::new("team"),
        }
    }

    fn identity(&self) -> DaemonIdentity {
        self.identity_in(IdentityMode::Persistent)
    }

    fn identity_in(&self, mode: IdentityMode) -> DaemonIdentity {
        let options = IdentityOptions {
            directory: self.folder.path(),
            joined: &joined(1),
            mode,
            name: None,
            rename: false,
        };
        DaemonIdentity::open(&options, &self.log).unwrap()
    }

    fn archive(&self) -> KeyArchiveFile {
        KeyArchiveFile::open(self.folder.path(), 8, &self.log).unwrap()
    }

    fn begin(&self, archive: &mut KeyArchiveFile) -> Result<PendingRotation, RotationAborted> {
        let grace = CryptoSettings::default().key_grace_period_days;
        PendingRotation::begin(&self.identity(), archive, grace, &self.log, &self.metrics)
    }
}

#[test]
fn cm_122_a_rotation_archives_the_old_secret_which_still_opens_messages() {
    let world = World::new();
    let old = world.identity();
    let mut archive = world.archive();
    let rotation = world.begin(&mut archive).unwrap();
    let member = RotatingMember {
        mesh_id: "mesh-1",
        member_id: "m-a",
        key: old.key.public_key(),
    };
    let accepted = check_rotation(&rotation.frame(NOW_MS), &member, NOW_MS).unwrap();
    let new = rotation.commit(&world.log).unwrap();
    assert_eq!(new.key.public_key(), accepted);
    assert_eq!(new.member_id, old.member_id);
    assert_ne!(new.key.public_key(), old.key.public_key());
    // After a restart the new key is used, although the user's file has the old one.
    let restarted = world.identity();
    assert_eq!(restarted.key.public_key(), accepted);
    assert!(restarted.next.is_none());
    let sealed = SymmetricKey::agreed(
        &key(2).to_x25519(),
        old.key.public_key().to_x25519().unwrap(),
    )
    .unwrap()
    .seal(b"for the old key", &[7; 24]);
    let secrets = world.archive().secrets(Timestamp::now());
    let sender = key(2).public_key().to_x25519().unwrap();
    let opened = SymmetricKey::agreed(&secrets[0], sender).unwrap();
    assert_eq!(
        &**opened.open(&sealed, &[7; 24]).unwrap(),
        b"for the old key"
    );
    let left = world.archive().keys()[0]
        .expires_at
        .duration_since(Timestamp::now());
    assert!(
        left > SignedDuration::from_hours(24 * 7 - 1) && left <= SignedDuration::from_hours(24 * 7)
    );
    let file = fs::read_to_string(world.folder.path().join(ARCHIVE_FILE)).unwrap();
    assert!(
        !file.contains(&**key(1).reveal()),
        "the old signing key is not kept"
    );
}

#[test]
fn cm_123_an_archive_that_cannot_be_written_aborts_the_rotation() {
    let world = World::new();
    let old = world.identity();
    let mut archive = world.archive();
    fs::create_dir(world.folder.path().join(ARCHIVE_FILE)).unwrap();
    let aborted = world.begin(&mut archive).unwrap_err();
    assert!(
        aborted
            .to_string()
            .starts_with("key_rotation_aborted_archive_write_failed")
    );
    assert_eq!(world.identity().key.public_key(), old.key.public_key());
    assert!(!world.folder.path().join(NEXT_KEYPAIR_FILE).exists());
}

#[test]
fn a_rotation_that_the_broker_refused_leaves_the_old_key() {
    let world = World::new();
    let mut archive = world.archive();
    let rotation = world.begin(&mut archive).unwrap();
    assert_eq!(archive.keys().len(), 1);
    let old = rotation.abort(&mut archive).unwrap();
    assert_eq!(old.key.public_key(), key(1).public_key());
    assert!(archive.keys().is_empty());
    assert!(world.identity().next.is_none());
}

#[test]
fn an_interrupted_rotation_leaves_both_keys_until_the_broker_decides() {
    let world = World::new();
    let mut archive = world.archive();
    drop(world.begin(&mut archive).unwrap());
    let mut restarted = world.identity();
    assert_eq!(restarted.key.public_key(), key(1).public_key());
    let next = restarted.next.clone().unwrap().public_key();
    let adopted = restarted.adopt_next().unwrap();
    assert_eq!(adopted.key.public_key(), next);
    assert_eq!(world.identity().key.public_key(), next);
    restarted = world.identity();
    drop(world.begin(&mut archive).unwrap());
    restarted.discard_next().unwrap();
    assert!(world.identity().next.is_none());
    assert_eq!(world.identity().key.public_key(), next);
}

#[test]
fn an_ephemeral_key_rotates_in_memory() {
    let world = World::new();
    let identity = world.identity_in(IdentityMode::Ephemeral);
    let mut archive = KeyArchiveFile::in_memory(8);
    let rotation = PendingRotation::begin(&identity, &mut archive, 7, &world.log, &world.metrics);
    let new = rotation.unwrap().commit(&world.log).unwrap();
    assert_ne!(new.key.public_key(), identity.key.public_key());
    assert_eq!(archive.secrets(Timestamp::now()).len(), 1);
    assert_eq!(fs::read_dir(world.folder.path()).unwrap().count(), 0);
}
