//! Durability: closing, copies of the files, backups, migrations.

use consign_kernel::ids::{HOUR_US, SECOND_US};
use consign_store::conformance::{START, claim_by, item};
use consign_store::sqlite::{self, QUEUE_REQUESTS_MAX, Sqlite, backup};
use consign_store::{Error, Store};

use rusqlite::Connection;

use super::{World, open};

/// A few intents in different states.
async fn busy() -> World {
    let world = World::new();
    let suite = world.shared();
    suite.admit(vec![item(); 5]).await.unwrap();
    let first = suite.take("alice").await;
    suite.complete(&first).await.unwrap();
    let second = suite.take("alice").await;
    suite.fail(&second, "no").await.unwrap();
    suite.take("alice").await;
    world
}

#[tokio::test]
async fn everything_survives_reopening() {
    let world = busy().await;
    let before = world.store.dump().await.unwrap();
    let last_fact = world.store.stats().last_fact;
    let world = world.reopened();
    assert_eq!(world.store.dump().await.unwrap(), before);
    assert_eq!(world.store.stats().last_fact, last_fact);
    let suite = world.shared();
    let last = before.intents.last().unwrap().seq;
    let next = suite.publish(item()).await;
    assert_eq!(suite.load(next).await.seq.0, last.0 + 1);
    suite.is_sound().await;
}

#[tokio::test]
async fn a_lease_survives_reopening_with_its_token() {
    let world = World::new();
    world.shared().publish(item()).await;
    let held = world.shared().take("alice").await;
    let world = world.reopened();
    assert_eq!(world.shared().claim(claim_by("alice")).await, []);
    assert!(world.shared().complete(&held).await.is_ok());
}

/// The log alone must contain every acknowledged write: the copy is the state after a power failure.
#[tokio::test]
async fn what_was_answered_is_in_the_files_at_once() {
    let world = busy().await;
    let before = world.store.dump().await.unwrap();
    let copies = tempfile::tempdir().unwrap();
    for name in ["ledger.db", "ledger.db-wal"] {
        std::fs::copy(world.folder.path().join(name), copies.path().join(name)).unwrap();
    }
    let copy = open(copies.path().join("ledger.db"), &world.clock, 8).unwrap();
    assert_eq!(copy.dump().await.unwrap(), before);
    assert_eq!(copy.check().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn time_goes_on_from_where_it_stood_after_a_restart() {
    let world = busy().await;
    assert_eq!(Sqlite::last_time(&world.path()).unwrap(), Some(START));
    world.clock.set(START.minus(HOUR_US));
    let world = world.reopened();
    let id = world.shared().publish(item()).await;
    assert_eq!(world.shared().load(id).await.created_at, START);
    world.clock.set(START.plus(SECOND_US));
    world.shared().publish(item()).await;
    let last = Sqlite::last_time(&world.path()).unwrap();
    assert_eq!(last, Some(START.plus(SECOND_US)));
    assert_eq!(
        Sqlite::last_time(&world.folder.path().join("none")).unwrap(),
        None
    );
}

#[tokio::test]
async fn a_backup_opens_and_holds_the_same() {
    let world = busy().await;
    let target = world.folder.path().join("copy.db");
    let mut heard = Vec::new();
    backup(&world.path(), &target, |done, of| heard.push((done, of))).unwrap();
    let (done, of) = heard.last().copied().unwrap();
    assert!(done == of && of > 0);
    world.shared().publish(item()).await;
    let copy = open(target.clone(), &world.clock, 8).unwrap();
    let (mut original, copied) = (
        world.store.dump().await.unwrap(),
        copy.dump().await.unwrap(),
    );
    assert_eq!(copied.intents.len() + 1, original.intents.len());
    original.intents.truncate(copied.intents.len());
    assert_eq!(copied.intents, original.intents);
    assert_eq!(copy.check().await.unwrap(), [""; 0]);
    let refused = backup(&world.path(), &target, |_, _| {});
    assert!(matches!(refused, Err(Error::Open { .. })), "{refused:?}");
}

#[tokio::test]
async fn migrations_are_applied_once() {
    let world = World::new();
    let applied = |world: &World| -> Vec<(u32, i64)> {
        let meddler = world.meddler();
        let mut statement = meddler
            .prepare("SELECT version, applied_at FROM migrations ORDER BY version")
            .unwrap();
        let found = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        found.collect::<Result<_, _>>().unwrap()
    };
    let first = applied(&world);
    assert_eq!(first[0], (1, START.0));
    world.clock.advance(HOUR_US);
    let world = world.reopened();
    assert_eq!(applied(&world), first);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let world = busy().await;
    let before = world.store.dump().await.unwrap();
    world.store.close();
    let meddler = world.meddler();
    meddler
        .execute("INSERT INTO migrations VALUES (99, 'future', 0)", [])
        .unwrap();
    let refused = open(world.path(), &world.clock, QUEUE_REQUESTS_MAX);
    assert!(
        matches!(
            refused,
            Err(Error::TooNew { found: 99, known, .. }) if known < 99
        ),
        "{refused:?}"
    );
    meddler
        .execute("DELETE FROM migrations WHERE version = 99", [])
        .unwrap();
    assert_eq!(world.reopened().store.dump().await.unwrap(), before);
}

/// The guard of transactions must not apply to profiles that are added later.
#[tokio::test]
async fn a_row_of_a_later_profile_can_be_stepped_and_a_transaction_only_forward() {
    let world = busy().await;
    world.store.close();
    let meddler = world.meddler();
    let step = |profile: u8, from: u8, to: u8| {
        meddler
            .execute_batch(&format!(
                "UPDATE intents SET profile = 0; UPDATE intents SET state = {from}; \
                 UPDATE intents SET profile = {profile}"
            ))
            .unwrap();
        meddler.execute(&format!("UPDATE intents SET state = {to}"), [])
    };
    for later in [7, 8, 200] {
        step(later, 2, 3).unwrap();
        step(later, 3, 2).unwrap();
    }
    step(6, 3, 4).unwrap();
    let refused = step(6, 4, 3).unwrap_err();
    assert!(refused.to_string().contains("goes forward"), "{refused}");
}

/// The state after a kill that follows the first page of a checkpoint: that page already refers to pages that are only in
/// the log.
#[tokio::test]
async fn ip_006_a_checkpoint_cut_off_by_a_kill_does_not_keep_the_store_from_opening() {
    const PAGE: usize = 4_096;
    let world = World::new();
    let suite = world.shared();
    for _ in 0..50 {
        suite.publish(item()).await;
    }
    let copy = world.path().with_file_name("copy.db");
    std::fs::copy(world.path(), &copy).unwrap();
    let log = std::fs::read(world.path().with_file_name("ledger.db-wal")).unwrap();
    std::fs::write(copy.with_file_name("copy.db-wal"), &log).unwrap();
    let frames = log[32..].chunks_exact(24 + PAGE);
    let mut first_pages = frames.filter(|frame| frame[..4] == 1_u32.to_be_bytes());
    let newest = first_pages.next_back().expect("the log has the first page");
    let mut file = std::fs::read(&copy).unwrap();
    file[..PAGE].copy_from_slice(&newest[24..]);
    std::fs::write(&copy, file).unwrap();

    let reopened = open(copy, &world.clock, 8).unwrap();
    assert_eq!(reopened.check().await.unwrap(), Vec::<String>::new());
    assert_eq!(
        reopened.dump().await.unwrap(),
        world.store.dump().await.unwrap()
    );
}

#[tokio::test]
async fn a_backup_comes_to_its_end_though_every_step_finds_a_new_commit() {
    let world = busy().await;
    let other = Connection::open(world.path()).unwrap();
    let fill = "CREATE TABLE filler (bytes BLOB); INSERT INTO filler WITH RECURSIVE numbers (n) AS \
                (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2000) SELECT randomblob(1500) FROM numbers";
    other.execute_batch(fill).unwrap();
    let copy = world.folder.path().join("copy.db");
    let mut steps = 0;
    backup(&world.path(), &copy, |_, _| {
        steps += 1;
        assert!(steps < 100, "the copy began anew with each step");
        let sql = "UPDATE position SET last_time = last_time + 1";
        other.execute(sql, []).unwrap();
    })
    .unwrap();
    assert!(steps > 1, "one step would prove nothing");
}

#[tokio::test]
async fn a_file_whose_first_migration_was_cut_off_is_as_good_as_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let marked = Connection::open(&path).unwrap();
    let mark = "PRAGMA application_id = 0x434e5347; PRAGMA journal_mode = WAL; CREATE TABLE t (x); DROP TABLE t";
    marked.execute_batch(mark).unwrap();
    drop(marked);
    assert_eq!(Sqlite::last_time(&path).unwrap(), None);
    let clock = std::sync::Arc::default();
    let store = open(path, &clock, QUEUE_REQUESTS_MAX).unwrap();
    assert_eq!(store.check().await.unwrap(), [""; 0]);
}

/// SQLite keeps its log next to the file itself, not next to a link to it; syncing any other file would have no effect.
#[tokio::test]
async fn a_link_leads_to_the_log_of_the_file_it_points_to() {
    let world = busy().await;
    world.store.close();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(world.path(), &link).unwrap();
    let store = open(link, &world.clock, 8).unwrap();
    assert_eq!(store.dump().await.unwrap().intents.len(), 5);
    let beside: Vec<_> = std::fs::read_dir(elsewhere.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
}

/// The log of an earlier process must be merged into the file before new commits depend on it.
#[tokio::test]
async fn a_log_that_cannot_be_merged_is_no_ground_to_start_on() {
    let world = busy().await;
    let copies = tempfile::tempdir().unwrap();
    for name in ["ledger.db", "ledger.db-wal"] {
        std::fs::copy(world.folder.path().join(name), copies.path().join(name)).unwrap();
    }
    let path = copies.path().join("ledger.db");
    let reader = Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM intents")
        .unwrap();
    let refused = open(path.clone(), &world.clock, 8).unwrap_err();
    assert!(refused.to_string().contains("another process"), "{refused}");
    reader.execute_batch("ROLLBACK").unwrap();
    assert!(open(path, &world.clock, 8).is_ok());
}

/// Development versions had eleven migrations; the first was named `ledger`.
#[tokio::test]
async fn a_schema_of_a_development_version_is_refused_and_left_unchanged() {
    let world = busy().await;
    let before = world.store.dump().await.unwrap();
    world.store.close();
    let other = world.meddler();
    for (version, name) in [(1, "ledger"), (11, "guarded_profiles")] {
        let sql = "INSERT OR REPLACE INTO migrations VALUES (?1, ?2, 0)";
        other.execute(sql, (version, name)).unwrap();
        for refused in [
            open(world.path(), &world.clock, 8).map(drop),
            sqlite::pending(&world.path()).map(drop),
            sqlite::migrate(&world.path(), 0),
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("development version"), "{text}");
        }
    }
    let restored = "DELETE FROM migrations WHERE name = 'guarded_profiles'; UPDATE migrations SET name = 'initial' WHERE version = 1";
    other.execute_batch(restored).unwrap();
    assert_eq!(world.reopened().store.dump().await.unwrap(), before);
}
