//! What is on disk after each change, and which files are set aside.

use std::fs;

use super::*;
use crate::daemon::log::{MeshLogLevel, MeshLogOptions};
use crate::daemon::test_keys::archived;

struct World {
    folder: tempfile::TempDir,
    log: DaemonLog,
    metrics: DaemonMetrics,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = DaemonLog::open(MeshLogOptions {
            mesh: "team".to_owned(),
            level: MeshLogLevel::Debug,
            file: Some(folder.path().join("daemon.log")),
            on_stderr: false,
        });
        Self {
            log: log.unwrap(),
            metrics: DaemonMetrics::new("team"),
            folder,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(ARCHIVE_FILE)
    }

    fn open(&self) -> KeyArchiveFile {
        KeyArchiveFile::open(self.folder.path(), 8, &self.log).unwrap()
    }

    fn ids(&self) -> Vec<String> {
        let archive = self.open();
        archive
            .keys()
            .iter()
            .map(|key| key.key_id.clone())
            .collect()
    }

    fn logged(&self, event: &str) -> bool {
        let text = fs::read_to_string(self.folder.path().join("daemon.log")).unwrap();
        text.contains(&format!("\"msg\":\"{event}\""))
    }

    fn set_aside(&self) -> usize {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("keypair-archive.json.malformed-"))
            .count()
    }
}

#[test]
fn cm_124_the_ninth_key_removes_the_oldest_and_is_counted() {
    let world = World::new();
    let mut archive = world.open();
    for number in 1..=9 {
        archive
            .add(archived(number), &world.log, &world.metrics)
            .unwrap();
    }
    assert_eq!(world.ids().len(), 8);
    assert_eq!(world.ids()[0], "k_9");
    assert_eq!(world.ids()[7], "k_2");
    let counted = world
        .metrics
        .get(DaemonMetric::ArchiveForceExpired, &["k_1"]);
    assert_eq!(counted, 1);
    assert!(world.logged("archive_force_expired"));
    assert_eq!(private_file::mode(&world.path()).unwrap(), Some(PRIVATE));
}

#[test]
fn cm_125_a_malformed_archive_is_set_aside_and_the_daemon_starts() {
    let world = World::new();
    for (text, event) in [
        ("{".to_owned(), "keypair_archive_malformed"),
        (
            {
                let mut archive = world.open();
                archive
                    .add(archived(1), &world.log, &world.metrics)
                    .unwrap();
                archive
                    .add(archived(2), &world.log, &world.metrics)
                    .unwrap();
                let text = fs::read_to_string(world.path()).unwrap();
                text.replace("k_2", "k_1")
            },
            "keypair_archive_duplicate_key_id",
        ),
    ] {
        fs::write(world.path(), &text).unwrap();
        let before = world.set_aside();
        assert!(world.open().keys().is_empty());
        assert_eq!(world.set_aside(), before + 1);
        assert!(!world.path().exists());
        assert!(world.logged(event), "{event}");
    }
}

#[test]
fn cm_125_a_wrong_mode_is_only_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world
        .open()
        .add(archived(1), &world.log, &world.metrics)
        .unwrap();
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(world.ids(), ["k_1"]);
    assert!(world.logged("keypair_archive_perms"));
    assert_eq!(private_file::mode(&world.path()).unwrap(), Some(0o644));
}

#[test]
fn expired_keys_are_removed_and_an_empty_file_is_deleted() {
    let world = World::new();
    let mut archive = world.open();
    for number in [1, 2] {
        archive
            .add(archived(number), &world.log, &world.metrics)
            .unwrap();
    }
    let first_ends = archived(1).expires_at;
    assert_eq!(archive.secrets(first_ends).len(), 1);
    assert_eq!(archive.clean_up(first_ends).unwrap(), 1);
    assert_eq!(world.ids(), ["k_2"]);
    assert_eq!(archive.clean_up(archived(2).expires_at).unwrap(), 1);
    assert!(!world.path().exists());
    assert_eq!(archive.clean_up(archived(2).expires_at).unwrap(), 0);
}

#[test]
fn an_archive_that_cannot_be_written_is_unchanged() {
    let world = World::new();
    let mut archive = world.open();
    archive
        .add(archived(1), &world.log, &world.metrics)
        .unwrap();
    // A folder in the place of the file refuses the rename, whoever runs the test.
    fs::remove_file(world.path()).unwrap();
    fs::create_dir(world.path()).unwrap();
    archive
        .add(archived(2), &world.log, &world.metrics)
        .unwrap_err();
    assert_eq!(archive.keys().len(), 1);
}

#[test]
fn the_cleanup_is_at_the_next_local_midnight() {
    let now: Timestamp = "2026-03-01T21:30:00Z".parse().unwrap();
    let utc = until_midnight(now, TimeZone::UTC);
    assert_eq!(utc, Duration::from_mins(150));
    let east = TimeZone::fixed(jiff::tz::offset(2));
    assert_eq!(until_midnight(now, east), Duration::from_mins(30));
}
