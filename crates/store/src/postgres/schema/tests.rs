//! The runner of migrations, with migrations of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consign_testkit::postgres::{self, Database};
use tokio::time::timeout;
use tracing::span;

use super::*;

/// Counts warnings.
#[derive(Clone, Default)]
struct WarningCounter(Arc<AtomicUsize>);

impl tracing::Subscriber for WarningCounter {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() == tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_database_without_fsync_is_warned_of_once() {
    let cluster = consign_testkit::postgres::shared().unwrap();
    let address = DatabaseAddress::parse(&cluster.url("postgres"), None).unwrap();
    let client = address.connect().await.unwrap();
    let warned = WarningCounter::default();
    let listening = tracing::subscriber::set_default(warned.clone());
    fits(&client, &address).await.unwrap();
    drop(listening);
    assert_eq!(warned.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_migration_that_finds_its_tables_in_use_for_too_long_says_what_to_do() {
    let cluster = consign_testkit::postgres::shared().unwrap();
    let address = DatabaseAddress::parse(&cluster.url("postgres"), None).unwrap();
    let (client, reader) = (
        address.connect().await.unwrap(),
        address.connect().await.unwrap(),
    );
    let used = "SELECT 1 FROM pg_try_advisory_xact_lock(17239, 1)";
    reader
        .batch_execute(&format!("BEGIN; {used}"))
        .await
        .unwrap();
    let migration = PostgresMigration {
        version: 99,
        name: "waits",
        oldest: 99,
        run: MigrationMode::Together,
        sql: "SELECT pg_advisory_xact_lock(17239, 1)",
    };
    let wait_max = Duration::from_secs(1);
    let gave_up = run_together(&client, &migration, 0, wait_max)
        .await
        .unwrap_err();
    assert!(
        gave_up.to_string().contains("pg_stat_activity"),
        "{gave_up}"
    );
}

const LONG: Duration = Duration::from_secs(30);

/// The migrations of this version and one after them.
fn with_next(run: MigrationMode, sql: &'static str) -> Vec<PostgresMigration> {
    let known = MIGRATIONS.iter().map(|known| PostgresMigration {
        version: known.version,
        name: known.name,
        oldest: known.oldest,
        run: known.run,
        sql: known.sql,
    });
    let next = PostgresMigration {
        version: 1 + i32::try_from(MIGRATIONS.len()).unwrap(),
        name: "next",
        oldest: 1,
        run,
        sql,
    };
    known.chain([next]).collect()
}

/// A new database with the schema of this version.
async fn migrated(name: &str) -> (Database, DatabaseAddress) {
    let (database, address) = empty(name).await;
    migrate(&address, 10, None).await.unwrap();
    (database, address)
}

async fn empty(name: &str) -> (Database, DatabaseAddress) {
    let cluster = tokio::task::spawn_blocking(|| postgres::shared().unwrap());
    let cluster = cluster.await.unwrap();
    let name = format!("{name}_{}", std::process::id());
    let create = format!("CREATE DATABASE {name}");
    cluster.sql("postgres", &create).unwrap();
    let database = Database { cluster, name };
    let address = DatabaseAddress::parse(&database.url(), None).unwrap();
    (database, address)
}

async fn until_one_waits_for_a_lock(client: &Client) {
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let began = Instant::now();
    while client.query(waiting, &[]).await.unwrap().is_empty() {
        assert!(began.elapsed() < LONG, "no session waits");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_schema_gets_only_the_migrations_that_it_lacks() {
    let (_database, address) = migrated("step_by_step").await;
    let list = with_next(
        MigrationMode::Together,
        "ALTER TABLE intents ADD COLUMN later bigint",
    );
    let client = address.connect().await.unwrap();
    for now_us in [20, 30] {
        apply(&address, now_us, &list).await.unwrap();
        let sql = "SELECT version, applied_at FROM migrations ORDER BY version";
        let applied = client.query(sql, &[]).await.unwrap();
        let applied: Vec<(i32, i64)> = applied.iter().map(|row| (row.get(0), row.get(1))).collect();
        let newest = i32::try_from(list.len()).unwrap();
        let expected =
            (1..=newest).map(|version| (version, if version == newest { 20 } else { 10 }));
        assert_eq!(applied, expected.collect::<Vec<_>>());
    }
    client
        .query("SELECT later FROM intents", &[])
        .await
        .unwrap();
    // The last migration says that this version still works after it.
    migrate(&address, 40, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cm_041_cm_042_a_database_of_the_first_version_gets_the_schema_of_the_mesh() {
    let (_database, address) = empty("first_version").await;
    apply(&address, 10, &MIGRATIONS[..1]).await.unwrap();
    migrate(&address, 20, None).await.unwrap();
    let client = address.connect().await.unwrap();
    let sql = "SELECT string_agg(attname || ' ' || atttypid::regtype::text, ', ' ORDER BY attnum) FROM pg_attribute \
               WHERE attrelid = 'mesh.client_message_dedupe'::regclass AND attnum > 0";
    let columns: String = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(
        columns,
        "mesh_id text, client_message_id text, broker_message_id uuid, request_fingerprint bytea, destination_kind text, \
         destination_ref text, first_seen_at timestamp with time zone, expires_at timestamp with time zone, \
         history_available boolean"
    );
    for view in [
        "topic_message",
        "message_queue",
        "message_history",
        "delivery_queue",
        "mention_index",
    ] {
        let rows = format!("SELECT * FROM mesh.{view}");
        assert!(client.query(&rows, &[]).await.unwrap().is_empty(), "{view}");
    }
}

/// A node of the second version writes facts without workers after the schema has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_second_version_still_writes_after_the_schema_has_workers() {
    let (_database, address) = empty("second_version").await;
    apply(&address, 10, &MIGRATIONS[..2]).await.unwrap();
    let client = address.connect().await.unwrap();
    let write = async |seq: i64| {
        let sql = "INSERT INTO facts (seq, intent, previous, at, attempt, face, verb, from_state, to_state, cause, owner, \
                   actor, detail, wall_offset_us) SELECT * FROM unnest(ARRAY[ROW($1::bigint, 1, NULL, 1, 1, 0, 2, 2, 3, 0, \
                   'main', 'main', NULL, NULL)::dated_fact])";
        client.execute(sql, &[&seq]).await
    };
    write(1).await.unwrap();
    migrate(&address, 20, None).await.unwrap();
    write(2).await.unwrap();
    let sql = "SELECT count(*) FROM facts WHERE worker IS NULL";
    let written: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(written, 2);
}

/// A wait for the lock of a table behind a reader blocks all later requests for that table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_behind_a_long_reader_does_not_block_other_readers() {
    let (_database, address) = migrated("long_reader").await;
    let (reader, other) = (
        address.connect().await.unwrap(),
        address.connect().await.unwrap(),
    );
    reader
        .batch_execute("BEGIN; SELECT 1 FROM intents")
        .await
        .unwrap();
    let migrating = tokio::spawn(async move {
        let sql = "ALTER TABLE intents ADD COLUMN later bigint";
        apply(&address, 0, &with_next(MigrationMode::Together, sql)).await
    });
    until_one_waits_for_a_lock(&other).await;
    let patience = "SET statement_timeout = '5s'";
    other.batch_execute(patience).await.unwrap();
    let read = other.query("SELECT 1 FROM intents", &[]).await;
    assert!(read.is_ok(), "it waits behind the migration: {read:?}");
    assert!(!migrating.is_finished());
    reader.batch_execute("COMMIT").await.unwrap();
    timeout(LONG, migrating).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_whose_creation_was_interrupted_is_created_again() {
    let (_database, address) = migrated("cut_index").await;
    let list = || {
        let sql = "DROP INDEX CONCURRENTLY IF EXISTS by_cause;\n\
                   CREATE INDEX CONCURRENTLY by_cause ON intents (cause);\n";
        with_next(MigrationMode::Online, sql)
    };
    let (writer, other) = (
        address.connect().await.unwrap(),
        address.connect().await.unwrap(),
    );
    let valid = async || {
        let sql = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('by_cause')";
        let found = other.query_opt(sql, &[]).await.unwrap();
        found.map(|row| row.get::<_, bool>(0))
    };
    // The creation of an index online waits for open writes, with a part of the index created.
    let write = "BEGIN; LOCK TABLE intents IN ROW EXCLUSIVE MODE";
    writer.batch_execute(write).await.unwrap();
    let starting = tokio::spawn({
        let address = address.clone();
        async move { apply(&address, 0, &list()).await }
    });
    until_one_waits_for_a_lock(&other).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    other.query(cut, &[]).await.unwrap();
    assert!(starting.await.unwrap().is_err());
    writer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(valid().await, Some(false));
    apply(&address, 0, &list()).await.unwrap();
    assert_eq!(valid().await, Some(true));
}
