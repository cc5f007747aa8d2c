//! Which key a daemon has after a restart.

use std::fs;

use super::*;
use crate::daemon::test_keys::{joined, key};
use crate::environment::{HostEnvironment, IdentityFlag, identity};

struct World {
    folder: tempfile::TempDir,
    log: DaemonLog,
}

impl World {
    fn new() -> Self {
        consign_testkit::plants::from_environment();
        Self {
            folder: tempfile::tempdir().unwrap(),
            log: DaemonLog::disabled("team"),
        }
    }

    fn open(&self, joined: &JoinedMesh, mode: IdentityMode) -> DaemonIdentity {
        self.named(joined, mode, None, false).unwrap()
    }

    fn named(
        &self,
        joined: &JoinedMesh,
        mode: IdentityMode,
        name: Option<&str>,
        rename: bool,
    ) -> Result<DaemonIdentity, IdentityError> {
        let options = IdentityOptions {
            directory: self.folder.path(),
            joined,
            mode,
            name,
            rename,
        };
        DaemonIdentity::open(&options, &self.log)
    }

    fn files(&self) -> usize {
        fs::read_dir(self.folder.path()).unwrap().count()
    }
}

#[test]
fn cm_009_a_persistent_key_is_the_same_after_a_restart() {
    let world = World::new();
    let first = world.open(&joined(1), IdentityMode::Persistent);
    let again = world.open(&joined(1), IdentityMode::Persistent);
    assert_eq!(first.key.public_key(), key(1).public_key());
    assert_eq!(again.key.public_key(), first.key.public_key());
    assert_eq!(again.key_id, first.key_id);
    let path = world.folder.path().join(KEYPAIR_FILE);
    assert_eq!(private_file::mode(&path).unwrap(), Some(PRIVATE));
    let file: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(file["ed25519_pubkey"], key(1).public_key().to_string());
    assert!(file["key_id"].as_str().unwrap().starts_with("k_"));
    assert_eq!(file["member_id"], "m-a");
}

#[test]
fn cm_010_an_ephemeral_key_is_not_written() {
    let world = World::new();
    let identity = world.open(&joined(1), IdentityMode::Ephemeral);
    assert_eq!(identity.key.public_key(), key(1).public_key());
    assert_eq!(world.files(), 0);
}

#[test]
fn cm_012_cm_013_keys_follow_the_environment_unless_a_flag_decides() {
    let environment = |variable: &'static str| {
        let value = move |name: &str| (name == variable).then(|| "true".to_owned());
        HostEnvironment::detect(value, false, "")
    };
    for (variable, flag, is_written, event) in [
        ("CI", IdentityFlag::Unset, false, None),
        (
            "GITHUB_ACTIONS",
            IdentityFlag::Persistent,
            true,
            Some("persistent_keypair_in_ci_environment"),
        ),
        (
            "RUNPOD_POD_ID",
            IdentityFlag::Unset,
            true,
            Some("runpod_persistent_default_assumed"),
        ),
        ("KUBERNETES_SERVICE_HOST", IdentityFlag::Unset, true, None),
        ("NONE", IdentityFlag::Unset, true, None),
        ("NONE", IdentityFlag::Ephemeral, false, None),
    ] {
        let world = World::new();
        let (mode, logged) = identity(flag, &environment(variable));
        world.open(&joined(1), mode);
        assert_eq!(world.files() == 1, is_written, "{variable}");
        assert_eq!(logged, event, "{variable}");
    }
}

#[test]
fn cm_014_the_name_counts_at_the_first_start_and_with_rename() {
    let world = World::new();
    let name = |name: &str, rename: bool| {
        let identity = world.named(&joined(1), IdentityMode::Persistent, Some(name), rename);
        identity.unwrap().display_name.unwrap()
    };
    assert_eq!(name("worker-1", false), "worker-1");
    assert_eq!(name("worker-2", false), "worker-1");
    assert_eq!(name("worker-3", true), "worker-3");
    let kept = world.open(&joined(1), IdentityMode::Persistent);
    assert_eq!(kept.display_name.as_deref(), Some("worker-3"));
}

#[test]
fn a_mesh_that_was_joined_again_replaces_the_key() {
    let world = World::new();
    world.open(&joined(1), IdentityMode::Persistent);
    let other = world.open(&joined(2), IdentityMode::Persistent);
    assert_eq!(other.key.public_key(), key(2).public_key());
    let member = JoinedMesh {
        member_id: "m-b".to_owned(),
        ..joined(2)
    };
    assert_eq!(
        world.open(&member, IdentityMode::Persistent).member_id,
        "m-b"
    );
}

#[test]
fn a_malformed_file_is_not_replaced() {
    let world = World::new();
    let path = world.folder.path().join(KEYPAIR_FILE);
    world.open(&joined(1), IdentityMode::Persistent);
    let text = fs::read_to_string(&path).unwrap();
    let other = key(2).public_key().to_string();
    let mixed = text.replace(&key(1).public_key().to_string(), &other);
    for text in ["{", &mixed] {
        fs::write(&path, text).unwrap();
        let refused = world.named(&joined(1), IdentityMode::Persistent, None, false);
        assert!(matches!(refused, Err(IdentityError::Malformed { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn secrets_are_not_printed() {
    let world = World::new();
    let identity = world.open(&joined(1), IdentityMode::Persistent);
    assert!(!format!("{identity:?}").contains(&**key(1).reveal()));
}
