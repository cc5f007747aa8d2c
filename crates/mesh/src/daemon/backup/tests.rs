//! What is in a backup, and what a restore leaves.

use std::fs;

use serde_json::Value;

use super::*;
use crate::daemon::test_keys::joined;

/// Cheap, because the tests are not about the cost.
const COST: KdfCost = KdfCost {
    memory_kib: 64,
    passes: 1,
    lanes: 1,
};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        consign_testkit::plants::from_environment();
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for (file, text) in [
            (KEYPAIR_FILE, "keys"),
            (ARCHIVE_FILE, "archived keys"),
            (HOST_FILE, "machine"),
            ("config.toml", "[daemon]\n"),
            ("topic_keys.json", "{}"),
            ("schema_version", "1\n"),
            (TOKEN_FILE, "the-local-token"),
            ("outbox.db", "rows"),
        ] {
            fs::write(world.path(file), text).unwrap();
        }
        world
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    fn backup(&self) -> String {
        backup(
            self.folder.path(),
            "team",
            Some(&joined(1)),
            "passphrase",
            COST,
        )
        .unwrap()
    }
}

#[test]
fn cm_128_a_backup_never_contains_the_local_token() {
    let world = World::new();
    let text = world.backup();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["v"], 1);
    assert_eq!(file["kdf"]["alg"], "argon2id");
    for key in ["m", "t", "p", "salt"] {
        assert!(file["kdf"].get(key).is_some(), "{key}");
    }
    let inside = inspect(&text, "passphrase").unwrap();
    assert_eq!(
        inside.files,
        [
            "config.toml",
            "host_fingerprint.json",
            "keypair-archive.json",
            "keypair.json",
            "schema_version",
            "topic_keys.json",
        ]
    );
    let plain = SealedBackup::open(&text, "passphrase").unwrap();
    let token = BASE64_STANDARD.encode("the-local-token");
    assert!(!String::from_utf8_lossy(&plain).contains(&token));
}

#[test]
fn cm_128_a_restore_accepts_the_machine_and_makes_a_new_token() {
    let text = World::new().backup();
    let world = World::new();
    fs::write(world.path(KEYPAIR_FILE), "other keys").unwrap();
    fs::write(world.path(NEXT_KEYPAIR_FILE), "next keys").unwrap();
    let daemon = StoppedDaemon::lock(world.folder.path()).unwrap();
    let restored = restore(&daemon, &text, "passphrase").unwrap();
    assert_eq!(restored.mesh, "team");
    assert_eq!(restored.joined, Some(joined(1)));
    let read = |file: &str| fs::read_to_string(world.path(file)).ok();
    assert_eq!(read(KEYPAIR_FILE).as_deref(), Some("keys"));
    assert_eq!(read(HOST_FILE), None, "the next start records its machine");
    assert_eq!(read(TOKEN_FILE), None, "the next start makes a token");
    assert_eq!(read(NEXT_KEYPAIR_FILE), None);
    assert_eq!(read("outbox.db").as_deref(), Some("rows"));
    let mode = |file: &str| private_file::mode(&world.path(file)).unwrap();
    assert_eq!(mode(KEYPAIR_FILE), Some(PRIVATE));
    assert_eq!(mode("config.toml"), Some(PUBLIC));
}

#[test]
fn a_wrong_passphrase_or_a_changed_file_restores_nothing() {
    let world = World::new();
    let text = world.backup();
    fs::write(world.path(KEYPAIR_FILE), "other keys").unwrap();
    let daemon = StoppedDaemon::lock(world.folder.path()).unwrap();
    let refused = |text: &str, passphrase: &str| restore(&daemon, text, passphrase).unwrap_err();
    assert!(matches!(refused(&text, "other"), BackupError::Closed));
    assert!(matches!(refused(&text, ""), BackupError::NoPassphrase));
    assert!(matches!(
        refused("{}", "passphrase"),
        BackupError::Malformed
    ));
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file["kdf"]["m"] = Value::from(1 << 30);
    let expensive = refused(&file.to_string(), "passphrase");
    assert!(matches!(expensive, BackupError::TooExpensive));
    file["kdf"]["m"] = Value::from(65);
    assert!(matches!(
        refused(&file.to_string(), "passphrase"),
        BackupError::Closed
    ));
    let keys = fs::read_to_string(world.path(KEYPAIR_FILE)).unwrap();
    assert_eq!(keys, "other keys");
}

#[test]
fn a_folder_without_keys_has_no_backup() {
    let folder = tempfile::tempdir().unwrap();
    let empty = backup(folder.path(), "team", None, "passphrase", COST);
    assert!(matches!(empty, Err(BackupError::Empty(_))));
}
