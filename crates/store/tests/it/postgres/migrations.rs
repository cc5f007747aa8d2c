//! Migrations beside those who use the tables.

use std::sync::Arc;

use consign_store::conformance::ManualClock;
use consign_store::postgres::{Options, Postgres};
use consign_testkit::postgres;
use tokio::time::timeout;

use super::nodes::{LONG, until};
use super::options;
use super::trouble::{stranger, waits_for_lock};

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
