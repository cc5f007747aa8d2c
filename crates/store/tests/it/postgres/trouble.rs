//! A database that becomes unreachable, is used by other clients, or has another version.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_kernel::command::{Answer, Command};
use consign_kernel::ids::{FactSeq, IntentId};
use consign_store::conformance::{ManualClock, World, claim_by, item};
use consign_store::postgres::Postgres;
use consign_store::{Error, TypedReads as _};
use consign_testkit::postgres;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use super::nodes::{LONG, page, read};
use super::{Cluster, options};

/// Another client of the same database.
pub(crate) async fn stranger(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("SET search_path = consign")
        .await
        .unwrap();
    client
}

/// A transaction of another node that has reserved its numbers, has inserted a fact, and is not committed.
pub(super) async fn slow_node(url: &str) -> Client {
    let client = stranger(url).await;
    client.batch_execute("BEGIN").await.unwrap();
    let mark =
        "SELECT pg_advisory_xact_lock_shared((17230::bigint << 48) + last_value) FROM fact_blocks";
    client.query(mark, &[]).await.unwrap();
    let fact = "INSERT INTO facts (seq, intent, previous, at, attempt, face, verb, from_state, to_state, cause, owner) \
                SELECT nextval('fact_blocks') * 4096 + 1, intent, NULL, at, attempt, face, verb, from_state, to_state, \
                cause, owner FROM facts LIMIT 1";
    client.execute(fact, &[]).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_are_replaced_and_nobody_is_refused() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    for _ in 0..3 {
        let id = world.publish(item()).await;
        assert!(world.get(id).await.is_some());
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid != pg_backend_pid()";
        let client = stranger(&cluster.url()).await;
        client.query(others, &[]).await.unwrap();
        world.publish(item()).await;
    }
    assert_eq!(world.store.dump().await.unwrap().intents.len(), 6);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_as_soon_as_the_open_transaction_has_ended() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    world.publish(item()).await;
    let first = read(&world, FactSeq(0)).await;
    let slow = slow_node(&cluster.url()).await;
    world.publish(item()).await;

    let reading = tokio::spawn(async move { read_on(&world, first[0], 2).await });
    // The first read most likely finds it open; if it is late, the wait is only shorter.
    tokio::time::sleep(Duration::from_millis(60)).await;
    slow.batch_execute("COMMIT").await.unwrap();
    let seen = reading.await.unwrap();
    assert_eq!(seen.len(), 2, "the slow one and the one after it");
    assert!(seen.is_sorted());
}

/// Reads until there are `count` facts, like a stream without notifications: it reads on only while the page says that
/// there is more.
async fn read_on(world: &World, after: FactSeq, count: usize) -> Vec<FactSeq> {
    let began = Instant::now();
    loop {
        let page = page(world, after).await;
        if page.events.len() >= count {
            return page.events.iter().map(|event| event.fact.seq).collect();
        }
        assert!(page.more, "the stream would wait to be called: {page:?}");
        assert!(began.elapsed() < LONG, "the stream does not go on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_begins_now_sees_what_is_committed_later() {
    let cluster = Cluster::new(2).await;
    let world = cluster.world(0);
    world.publish(item()).await;
    let slow = slow_node(&cluster.url()).await;
    let begin = world.store.last_fact().await.unwrap();
    slow.batch_execute("COMMIT").await.unwrap();
    assert_eq!(read(&world, begin).await.len(), 1);
    // A fact that the other node inserted is visible here as well.
    cluster.world(1).publish(item()).await;
    let begin = world.store.last_fact().await.unwrap();
    assert!(read(&world, begin).await.is_empty());
}

/// Whether a client of the same database waits. Queried outside of a transaction: inside of one, `pg_stat_activity` lists
/// only the clients that were connected at the first query.
pub(super) async fn waits_for_lock(client: &Client) -> bool {
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    !client.query(waiting, &[]).await.unwrap().is_empty()
}

/// Plans are made while a table is empty, and must be good when it is large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_reads_more_rows_when_more_are_there() {
    let cluster = Cluster::new(1).await;
    let clock = Arc::new(ManualClock::default());
    let one_writer = consign_store::postgres::Options {
        writers: 1,
        ..options(&cluster.url(), &clock, 7)
    };
    let store = Postgres::open(one_writer).await.unwrap();
    let world = cluster.world(0).through(Arc::new(store));
    let client = stranger(&cluster.url()).await;
    let mut per_cycle = Vec::new();
    for _ in 0..2 {
        let before = rows_read(&client, &world).await;
        for _ in 0..10 {
            world.publish(item()).await;
            let held = world.take("alice").await;
            world.complete(&held).await.unwrap();
        }
        per_cycle.push((rows_read(&client, &world).await - before) / 10);
        for _ in 0..30 {
            world.admit(vec![item(); 100]).await.unwrap();
        }
    }
    assert!(per_cycle[0] > 0, "nothing was counted");
    assert!(per_cycle[1] <= per_cycle[0] + 10, "{per_cycle:?}");
}

/// Of all tables, when the writer has reported its statistics: after a command, but at most once a second.
async fn rows_read(client: &Client, world: &World) -> i64 {
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let nobody = Command::Observe(IntentId([0; 16]));
    assert_eq!(world.step(nobody).await, Ok(Answer::Observed(None)));
    let sql = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_user_tables";
    // The answer is sent before the report.
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_make_one_schema() {
    let cluster = tokio::task::spawn_blocking(|| postgres::shared().unwrap())
        .await
        .unwrap();
    let name = format!("together_{}", std::process::id());
    cluster
        .sql("postgres", &format!("CREATE DATABASE {name}"))
        .unwrap();
    let clock = Arc::new(ManualClock::default());
    let mut starting = JoinSet::new();
    for node in 1..=4 {
        starting.spawn(Postgres::open(options(&cluster.url(&name), &clock, node)));
    }
    let started = starting.join_all().await;
    assert!(started.iter().all(Result::is_ok), "{started:?}");
    drop(started);
    cluster
        .sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_works_on_a_newer_schema_that_allows_it() {
    let cluster = Cluster::new(1).await;
    let clock = Arc::new(ManualClock::default());
    let newer = "ALTER TABLE intents ADD COLUMN later bigint; \
        INSERT INTO migrations SELECT max(version) + 1, 'later', 1, 0 FROM migrations";
    let client = stranger(&cluster.url()).await;
    client.batch_execute(newer).await.unwrap();
    let old = options(&cluster.url(), &clock, 7);
    let old = cluster
        .world(0)
        .through(Arc::new(Postgres::open(old).await.unwrap()));
    old.publish(item()).await;
    let held = cluster.world(0).take("alice").await;
    old.complete(&held).await.unwrap();
    old.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_needs_a_newer_program_is_refused() {
    let cluster = Cluster::new(1).await;
    let clock = Arc::new(ManualClock::default());
    let client = stranger(&cluster.url()).await;
    let add =
        "INSERT INTO migrations (version, name, oldest, applied_at) VALUES (99, 'later', $1, 0)";
    client.execute(add, &[&1_i32]).await.unwrap();
    let still = Postgres::open(options(&cluster.url(), &clock, 2)).await;
    assert!(
        still.is_ok(),
        "it says that this one still works: {still:?}"
    );
    client
        .batch_execute("UPDATE migrations SET oldest = 99 WHERE version = 99")
        .await
        .unwrap();
    let refused = Postgres::open(options(&cluster.url(), &clock, 3)).await;
    assert!(
        matches!(refused, Err(Error::TooNewDatabase { found: 99, .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_speak_unicode_is_refused() {
    let cluster = tokio::task::spawn_blocking(|| postgres::shared().unwrap())
        .await
        .unwrap();
    let name = format!("latin_{}", std::process::id());
    let make = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    cluster.sql("postgres", &make).unwrap();
    let clock = Arc::new(ManualClock::default());
    let refused = Postgres::open(options(&cluster.url(&name), &clock, 1)).await;
    cluster
        .sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"))
        .unwrap();
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("ENCODING 'UTF8'"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_what_a_node_with_a_faster_clock_made_ready() {
    let cluster = Cluster::new(1).await;
    let fast = Arc::new(ManualClock::new(cluster.world(0).now().plus(500_000)));
    let ahead = Postgres::open(options(&cluster.url(), &fast, 8))
        .await
        .unwrap();
    let ahead = cluster.world(0).through(Arc::new(ahead));
    ahead.publish(item()).await;
    assert_eq!(cluster.world(0).claim(claim_by("alice")).await.len(), 1);
}
