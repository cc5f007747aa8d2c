//! Files of a database that another process opens, removes, replaces or truncates while the store has them open.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use consign_kernel::command::{Admit, Command, OnRefusal, Request};
use consign_kernel::ids::Micros;
use consign_store::conformance::item;
use consign_store::sqlite::{self, QUEUE_REQUESTS_MAX, Sqlite};
use consign_store::{Error, Store as _};

use super::{World, open};

/// Several times the duration of a check.
const PATIENCE: Duration = Duration::from_secs(5);

async fn admitted(world: &World) -> bool {
    static SEEDS: AtomicU8 = AtomicU8::new(0);
    let request = Request {
        gate: None,
        steps: vec![Command::Admit(Admit {
            items: vec![item()],
            cap: None,
        })],
        on_refusal: OnRefusal::Continue,
        seed: [SEEDS.fetch_add(1, Ordering::Relaxed); 32],
    };
    world.store.execute(request).await.is_ok()
}

async fn until_lost(world: &World) -> String {
    let lost = tokio::time::timeout(PATIENCE, world.store.until_lost()).await;
    assert!(lost.is_ok(), "nobody noticed");
    world.store.why_lost().unwrap_or_default().to_owned()
}

fn intents(path: &Path) -> usize {
    let database = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT count(*) FROM intents";
    let count: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    usize::try_from(count).unwrap()
}

#[tokio::test]
async fn s10_a_file_has_one_writer_by_whatever_name_and_a_copy_has_its_own() {
    let world = World::new();
    assert!(admitted(&world).await);
    let names = ["hard.db", "soft.db", "copy.db"].map(|name| world.folder.path().join(name));
    let [hard, soft, copy] = &names;
    fs::hard_link(world.path(), hard).unwrap();
    std::os::unix::fs::symlink(world.path(), soft).unwrap();
    for name in [&world.path(), hard, soft] {
        let refused = open(name.clone(), &world.clock, QUEUE_REQUESTS_MAX).unwrap_err();
        assert!(matches!(refused, Error::InUse { .. }), "{refused}");
        let refused = sqlite::migrate(name, 0).unwrap_err();
        assert!(matches!(refused, Error::InUse { .. }), "{refused}");
        assert!(sqlite::repair(name, Micros::default(), 0, true).is_err());
        assert!(Sqlite::check_file(name, Micros::default()).is_err());
    }
    assert!(admitted(&world).await, "the first one works on");
    world.store.close();
    fs::copy(world.path(), copy).unwrap();
    let by_another_name = open(hard.clone(), &world.clock, QUEUE_REQUESTS_MAX).unwrap();
    let of_its_own = open(copy.clone(), &world.clock, QUEUE_REQUESTS_MAX).unwrap();
    by_another_name.close();
    of_its_own.close();
}

/// A change of the log, and whether the acknowledged writes can be saved.
type Meddling = (&'static str, fn(&Path), bool);

const LOGS: [Meddling; 5] = [
    ("removed", |log| fs::remove_file(log).unwrap(), true),
    (
        "moved",
        |log| fs::rename(log, log.with_extension("aside")).unwrap(),
        true,
    ),
    (
        "replaced",
        |log| {
            let other = log.with_extension("other");
            fs::write(&other, "").unwrap();
            fs::rename(other, log).unwrap();
        },
        true,
    ),
    ("emptied", |log| fs::write(log, "").unwrap(), false),
    (
        "cut",
        |log| {
            let file = fs::File::options().write(true).open(log).unwrap();
            file.set_len(5_000).unwrap();
        },
        false,
    ),
];

#[tokio::test]
async fn s9_nothing_is_acknowledged_after_the_log_was_taken_away() {
    for (what, meddle, saved) in LOGS {
        let world = World::new();
        for _ in 0..3 {
            assert!(admitted(&world).await);
        }
        meddle(&world.folder.path().join("ledger.db-wal"));
        assert!(!admitted(&world).await, "{what}: acknowledged");
        let why = until_lost(&world).await;
        assert!(why.contains("ledger.db-wal"), "{what}: {why}");
        assert!(!admitted(&world).await, "{what}: acknowledged later");
        world.store.close();
        if saved {
            let kept = intents(&world.path());
            assert!(kept >= 3, "{what}: {kept} of 3");
            assert_eq!(
                Sqlite::check_file(&world.path(), Micros::default()).unwrap(),
                [""; 0],
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn s9_an_idle_store_notices_within_a_second_and_saves_what_it_can() {
    let files: [(&str, Meddling); 7] = [
        ("ledger.db-wal", LOGS[0]),
        ("ledger.db-wal", LOGS[1]),
        ("ledger.db-wal", LOGS[2]),
        ("ledger.db-wal", LOGS[3]),
        ("ledger.db-wal", LOGS[4]),
        ("ledger.db-shm", LOGS[0]),
        ("ledger.db-shm", LOGS[2]),
    ];
    for (file, (what, meddle, saved)) in files {
        let world = World::new();
        for _ in 0..3 {
            assert!(admitted(&world).await);
        }
        let began = Instant::now();
        meddle(&world.folder.path().join(file));
        let why = until_lost(&world).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{file} {what}");
        assert!(why.contains(file), "{file} {what}: {why}");
        if saved {
            // Immediately, and not only on close: the process may be killed before.
            let deadline = Instant::now() + PATIENCE;
            let copy = world.folder.path().join("copy.db");
            loop {
                fs::copy(world.path(), &copy).unwrap();
                if intents(&copy) == 3 {
                    break;
                }
                assert!(Instant::now() < deadline, "{file} {what}: not saved");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[tokio::test]
async fn s9_a_log_that_another_program_merged_and_cut_is_no_loss() {
    let world = World::new();
    for _ in 0..3 {
        assert!(admitted(&world).await);
    }
    let merged: i64 = world
        .meddler()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(merged, 0, "nobody was in the way");
    for _ in 0..3 {
        assert!(admitted(&world).await);
        std::thread::sleep(Duration::from_millis(120));
    }
    assert!(!world.store.is_lost());
}

#[tokio::test]
async fn s5_a_database_that_was_moved_or_replaced_takes_nothing_at_once() {
    let world = World::new();
    assert!(admitted(&world).await);
    let aside = world.folder.path().join("aside.db");
    fs::rename(world.path(), &aside).unwrap();
    assert!(!admitted(&world).await, "nothing lies there");
    fs::copy(&aside, world.path()).unwrap();
    assert!(!admitted(&world).await, "a copy lies there");
    fs::rename(&aside, world.path()).unwrap();
    assert!(admitted(&world).await, "it is back");
}
