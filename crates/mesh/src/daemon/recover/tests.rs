//! Damage is reported, and no way loses a file.

use super::*;

fn daemon() -> (tempfile::TempDir, StoppedDaemon) {
    let folder = tempfile::tempdir().unwrap();
    drop(consign_store::inbox::Inbox::open(&folder.path().join(INBOX)).unwrap());
    let damaged = [b"SQLite format 3\0".as_slice(), &[0xff; 8_000]].concat();
    fs::write(folder.path().join(OUTBOX), damaged).unwrap();
    fs::write(folder.path().join("outbox.db-wal"), "side").unwrap();
    let stopped = StoppedDaemon::lock(folder.path()).unwrap();
    (folder, stopped)
}

#[test]
fn cm_130_damage_is_found_and_three_ways_are_offered() {
    let (_folder, daemon) = daemon();
    let report = examine(&daemon);
    assert!(report.is_damaged() && report.outbox_damage.is_some());
    assert_eq!(report.inbox_damage, None);
    let shown = serde_json::to_value(&report).unwrap();
    let ways = serde_json::json!(["read-only-inbox", "rebuild", "fresh"]);
    assert_eq!(shown["ways"], ways);
}

#[test]
fn cm_130_each_way_starts_with_empty_databases_and_keeps_the_old_ones() {
    for &way in RecoverWay::ALL {
        let (folder, daemon) = daemon();
        let answer = recover(&daemon, way).unwrap();
        assert_eq!(answer.set_aside.len(), 2, "{way}");
        assert!(!folder.path().join(OUTBOX).exists() && !folder.path().join(INBOX).exists());
        let [outbox, inbox] = answer.set_aside.as_slice() else {
            panic!("two databases");
        };
        assert!(with_suffix(outbox, "-wal").exists());
        let mode = private_file::mode(inbox).unwrap().unwrap();
        assert_eq!(mode == READ_ONLY, way == RecoverWay::ReadOnlyInbox, "{way}");
        let asks = folder.path().join(REBUILD_FILE).exists();
        assert_eq!(asks, way == RecoverWay::Rebuild, "{way}");
        assert!(!examine(&daemon).is_damaged());
    }
}
