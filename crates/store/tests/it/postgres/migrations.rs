//! Migrations beside those who use the tables.

use std::sync::Arc;
use std::time::Duration;

use consign_store::conformance::{EndedPermissions, ManualClock, World, item};
use consign_store::postgres::{Options, Postgres};
use consign_testkit::postgres::{self, Database};
use tokio::time::timeout;

use super::nodes::{LONG, until};
use super::trouble::{stranger, waits_for_lock};
use super::{Cluster, options};

/// Whoever asks for a table's lock behind a reader lets nobody else pass for as long as it asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_behind_a_long_reader_keeps_nobody_from_the_table() {
    let cluster = tokio::task::spawn_blocking(|| postgres::shared().unwrap())
        .await
        .unwrap();
    let name = format!("read_long_{}", std::process::id());
    cluster
        .sql("postgres", &format!("CREATE DATABASE {name}"))
        .unwrap();
    let (url, clock) = (cluster.url(&name), Arc::new(ManualClock::default()));
    let before = Options {
        hold: Some(2),
        ..options(&url, &clock, 1)
    };
    drop(Postgres::open(before).await.unwrap());
    let (reader, other) = (stranger(&url).await, stranger(&url).await);
    reader
        .batch_execute("BEGIN; SELECT 1 FROM intents")
        .await
        .unwrap();
    let migrating = tokio::spawn(Postgres::open(options(&url, &clock, 2)));
    until(async || waits_for_lock(&other).await).await;
    let patience = "SET statement_timeout = '5s'";
    other.batch_execute(patience).await.unwrap();
    let read = other.query("SELECT 1 FROM intents", &[]).await;
    assert!(read.is_ok(), "it waits behind the migration: {read:?}");
    assert!(!migrating.is_finished());
    reader.batch_execute("COMMIT").await.unwrap();
    drop(timeout(LONG, migrating).await.unwrap().unwrap().unwrap());
    drop((reader, other));
    cluster
        .sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_another_ones_migration_only_if_it_has_something_to_do() {
    let cluster = Cluster::new(1).await;
    let clock = Arc::new(ManualClock::default());
    let other = stranger(&cluster.url()).await;
    let lock = "SELECT pg_advisory_lock(17231, 1)";
    other.query(lock, &[]).await.unwrap();
    let soon = Duration::from_secs(10);
    let started = timeout(soon, Postgres::open(options(&cluster.url(), &clock, 2))).await;
    drop(started.unwrap().unwrap());
    let older = held("lock_waits", 7, &clock).await;
    let other = stranger(&older.url()).await;
    other.query(lock, &[]).await.unwrap();
    let starting = tokio::spawn(Postgres::open(options(&older.url(), &clock, 3)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!starting.is_finished());
    let unlock = "SELECT pg_advisory_unlock(17231, 1)";
    other.query(unlock, &[]).await.unwrap();
    drop(timeout(LONG, starting).await.unwrap().unwrap().unwrap());
}

/// A database at an earlier schema.
async fn held(name: &str, version: i32, clock: &Arc<ManualClock>) -> Database {
    let cluster = tokio::task::spawn_blocking(|| postgres::shared().unwrap())
        .await
        .unwrap();
    let name = format!("{name}_{}", std::process::id());
    let make = format!("CREATE DATABASE {name}");
    cluster.sql("postgres", &make).unwrap();
    let database = Database { cluster, name };
    let before = Options {
        hold: Some(version),
        ..options(&database.url(), clock, 1)
    };
    drop(Postgres::open(before).await.unwrap());
    database
}

/// As the version before left them: at rest for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s6_permissions_that_ended_before_they_were_removed_go_unless_somebody_consented() {
    let clock = Arc::new(ManualClock::default());
    let database = held("unconsented", 12, &clock).await;
    let open = async |node| {
        let options = options(&database.url(), &clock, node);
        Arc::new(Postgres::open(options).await.unwrap())
    };
    let before = World::new(open(1).await, clock.clone(), ());
    let ended = EndedPermissions::new(&before).await;
    drop(before);
    let at_rest = "UPDATE intents SET shelf = 5, wake_at = 9223372036854775807 WHERE profile = 5; \
                   ALTER TABLE facts DROP COLUMN wall_offset_us; DROP TYPE dated_fact; \
                   DELETE FROM migrations WHERE version >= 11";
    let other = stranger(&database.url()).await;
    other.batch_execute(at_rest).await.unwrap();
    let world = World::new(open(2).await, clock.clone(), ());
    ended.only_what_had_no_consent_goes(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_a_start_was_cut_off_in_is_made_anew_and_the_one_before_stays() {
    let clock = Arc::new(ManualClock::default());
    let database = held("cut_index", 7, &clock).await;
    let (writer, other) = (
        stranger(&database.url()).await,
        stranger(&database.url()).await,
    );
    let valid = async |index: &str| {
        let sql = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)";
        let found = other.query_opt(sql, &[&index]).await.unwrap();
        found.map(|row| row.get::<_, bool>(0))
    };
    // Whoever makes an index online waits for those who write, with a part of it made.
    let write = "BEGIN; LOCK TABLE intents IN ROW EXCLUSIVE MODE";
    writer.batch_execute(write).await.unwrap();
    let starting = tokio::spawn(Postgres::open(options(&database.url(), &clock, 2)));
    until(async || waits_for_lock(&other).await).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    other.query(cut, &[]).await.unwrap();
    assert!(starting.await.unwrap().is_err());
    writer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(valid("intents_by_end").await, Some(false));
    drop(
        Postgres::open(options(&database.url(), &clock, 3))
            .await
            .unwrap(),
    );
    assert_eq!(valid("intents_by_end").await, Some(true));
    assert_eq!(
        valid("intents_by_death").await,
        Some(true),
        "older nodes use it"
    );
}

/// The guard of transactions must not bind profiles that are added later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_later_profile_can_be_stepped_and_a_transaction_only_forward() {
    let cluster = Cluster::new(1).await;
    cluster.world(0).admit(vec![item()]).await.unwrap();
    let client = stranger(&cluster.url()).await;
    let step = async |profile: i16, from: i16, to: i16| {
        let before = format!(
            "UPDATE intents SET profile = 0; UPDATE intents SET state = {from}; \
             UPDATE intents SET profile = {profile}"
        );
        client.batch_execute(&before).await.unwrap();
        let after = format!("UPDATE intents SET state = {to}");
        client.batch_execute(&after).await
    };
    for later in [7, 8, 200] {
        step(later, 2, 3).await.unwrap();
        step(later, 3, 2).await.unwrap();
    }
    step(6, 3, 4).await.unwrap();
    let refused = step(6, 4, 3).await.unwrap_err();
    let reason = refused.as_db_error().unwrap().message();
    assert!(reason.contains("goes forward"), "{reason}");
}

const READS: &str = include_str!("../../../src/postgres/reads.rs");

/// Also where there is but one protocol so far, and its name tells nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_one_protocol_are_found_by_their_index() {
    let cluster = Cluster::new(1).await;
    for _ in 0..10 {
        cluster.world(0).admit(vec![item(); 100]).await.unwrap();
    }
    let client = stranger(&cluster.url()).await;
    let died = "UPDATE intents SET state = 7, settled_at = seq; ANALYZE intents; SET enable_seqscan = off; \
                SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan";
    for statement in died.split("; ") {
        client.batch_execute(statement).await.unwrap();
    }
    let wanted = "WHERE state = 7 AND profile BETWEEN p AND p \
         ORDER BY profile DESC, settled_at DESC, seq DESC LIMIT $2";
    for line in wanted.split(" ORDER BY ") {
        assert!(READS.contains(line), "the text is the store's");
    }
    let prepare = format!(
        "PREPARE dead (smallint[], bigint) AS SELECT i.seq FROM unnest($1) p CROSS JOIN LATERAL \
         (SELECT * FROM intents {wanted}) i"
    );
    client.batch_execute(&prepare).await.unwrap();
    let plan = client
        .query("EXPLAIN EXECUTE dead('{1}', 10)", &[])
        .await
        .unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(plan.contains("using intents_by_end"), "{plan}");
}
