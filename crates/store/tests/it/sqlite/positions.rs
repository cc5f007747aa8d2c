//! Positions that are behind the tables, as a second writer leaves them.

use std::time::{Duration, Instant};

use consign_kernel::ids::{DAY_US, HOUR_US, Micros};
use consign_store::conformance::item;
use consign_store::sqlite::{self, Sqlite};
use consign_store::{Clock as _, Store, TypedReads as _};

use super::World;

const MINUTES_US: i64 = HOUR_US / 12;

async fn used() -> World {
    let world = World::new();
    let suite = world.shared();
    suite.admit(vec![item(); 5]).await.unwrap();
    suite.take("alice").await;
    world
}

const BEHIND: [&str; 3] = [
    "UPDATE position SET last_seq = 1, last_fact = 1",
    "UPDATE position SET last_fact = 2",
    "UPDATE position SET last_seq = 0",
];

#[tokio::test]
async fn s5_positions_are_recovered_from_the_tables_at_open() {
    for damage in BEHIND {
        let world = used().await;
        world.store.close();
        assert!(world.meddler().execute(damage, []).unwrap() > 0);
        let world = world.reopened();
        let suite = world.shared();
        suite.admit(vec![item(); 5]).await.unwrap();
        assert_eq!(world.store.check().await.unwrap(), [""; 0], "{damage}");
        let highest = world.store.highest_fact().await.unwrap();
        let facts = world.store.stats().last_fact;
        assert_eq!(highest, facts, "{damage}");
    }
}

#[tokio::test]
async fn s5_numbers_of_rows_that_are_gone_are_not_given_out_again() {
    let world = used().await;
    world.store.close();
    let meddler = world.meddler();
    meddler
        .execute_batch(
            "DELETE FROM intents WHERE seq = 5; UPDATE position SET last_seq = 1, last_fact = 1",
        )
        .unwrap();
    drop(meddler);
    let world = world.reopened();
    world.shared().admit(vec![item()]).await.unwrap();
    let sql = "SELECT max(seq) FROM intents";
    let highest: i64 = world
        .meddler()
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert_eq!(highest, 6, "the facts of the fifth are there");
}

#[tokio::test]
async fn s5_a_repair_says_what_it_would_do_and_then_does_it() {
    let world = used().await;
    world.store.close();
    world
        .meddler()
        .execute_batch(
            "UPDATE position SET last_seq = 1, last_fact = 1; UPDATE counts SET count = count + 7 WHERE kind = 0; \
             DELETE FROM counts WHERE kind = 1; \
             INSERT INTO records (kind, owner, name, version, value) VALUES (8, 'p', '1', 1, '{\"id\":9,\"seq\":1}'); \
             UPDATE plugin_fact_ids SET last = 0",
        )
        .unwrap();
    let (path, now) = (world.path(), world.clock.now());
    let before = Sqlite::check_file(&path, now).unwrap();
    assert!(
        before.iter().any(|line| line.starts_with("position:")),
        "{before:?}"
    );
    let planned = sqlite::repair(&path, now, 0, true).unwrap();
    assert_eq!(
        Sqlite::check_file(&path, now).unwrap(),
        before,
        "nothing was changed"
    );
    let done = sqlite::repair(&path, now, 0, false).unwrap();
    assert_eq!(done, planned);
    for what in [
        "sequence 1 set to 5",
        "fact 1 set to 6",
        "plugin 0 set to 9",
        "counter",
    ] {
        assert!(
            done.repaired.iter().any(|line| line.contains(what)),
            "{what}: {done:?}"
        );
    }
    assert_eq!(Sqlite::check_file(&path, now).unwrap(), [""; 0]);
    assert_eq!(
        sqlite::repair(&path, now, 0, false).unwrap().repaired,
        [""; 0]
    );
    let world = world.reopened();
    world.shared().admit(vec![item(); 5]).await.unwrap();
    assert_eq!(world.store.check().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn s7_a_time_from_the_future_goes_back_if_nothing_depends_on_it() {
    let world = World::new();
    let suite = world.shared();
    suite.admit(vec![item()]).await.unwrap();
    let now = world.clock.now();
    world.clock.advance(3_650 * DAY_US);
    suite.admit(vec![item()]).await.unwrap();
    world.store.close();
    let stored = || Sqlite::last_time(&world.path()).unwrap().unwrap();
    let repair = || sqlite::repair(&world.path(), now, MINUTES_US, false).unwrap();
    let refused = repair();
    assert!(
        refused
            .left
            .iter()
            .any(|line| line.contains("1 open intents")),
        "{refused:?}"
    );
    assert!(stored() > Micros(now.0 + DAY_US));
    let settled = "UPDATE intents SET settled_at = created_at WHERE created_at > ?1";
    world.meddler().execute(settled, [now.0]).unwrap();
    let done = repair();
    assert!(
        done.repaired.iter().any(|line| line.starts_with("time:")),
        "{done:?}"
    );
    assert_eq!(stored(), now);
}

/// The time does not grow with the content of the file.
#[tokio::test]
async fn s5_opening_a_large_file_takes_no_longer() {
    let world = World::new();
    world.shared().admit(vec![item()]).await.unwrap();
    world.store.close();
    world
        .meddler()
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) \
             INSERT INTO facts (seq, intent, face, owner, at, verb, to_state, cause, attempt) SELECT i, 1, 0, 'main', 0, 0, 2, 0, 0 FROM n; \
             UPDATE position SET last_fact = 200000",
        )
        .unwrap();
    let began = Instant::now();
    let world = world.reopened();
    assert!(began.elapsed() < Duration::from_millis(500));
    drop(world);
}
