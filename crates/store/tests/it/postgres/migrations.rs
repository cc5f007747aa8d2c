//! Migrations of a database that is in use, and the guards in the schema.

use std::sync::Arc;
use std::time::Duration;

use consign_kernel::ids::Micros;
use consign_store::conformance::{ManualClock, item};
use consign_store::postgres::{DatabaseAddress, Postgres};
use consign_testkit::postgres::{self, Database};
use tokio::time::timeout;

use super::nodes::LONG;
use super::trouble::stranger;
use super::{Cluster, options};

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
    let cluster = tokio::task::spawn_blocking(|| postgres::shared().unwrap())
        .await
        .unwrap();
    let name = format!("lock_waits_{}", std::process::id());
    let create = format!("CREATE DATABASE {name}");
    cluster.sql("postgres", &create).unwrap();
    let empty = Database { cluster, name };
    let other = stranger(&empty.url()).await;
    other.query(lock, &[]).await.unwrap();
    let starting = tokio::spawn(Postgres::open(options(&empty.url(), &clock, 3)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!starting.is_finished());
    let unlock = "SELECT pg_advisory_unlock(17231, 1)";
    other.query(unlock, &[]).await.unwrap();
    drop(timeout(LONG, starting).await.unwrap().unwrap().unwrap());
}

/// Development versions had thirteen migrations; the first was named `ledger`, and all of them were marked as compatible
/// with older programs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_a_development_version_is_refused_and_left_unchanged() {
    let cluster = Cluster::new(1).await;
    let clock = Arc::new(ManualClock::default());
    let other = stranger(&cluster.url()).await;
    let address = DatabaseAddress::parse(&cluster.url(), None).unwrap();
    for older in [
        "UPDATE migrations SET name = 'ledger'",
        "INSERT INTO migrations VALUES (13, 'guarded_profiles', 1, 0)",
    ] {
        other.batch_execute(older).await.unwrap();
        for refused in [
            Postgres::open(options(&cluster.url(), &clock, 2))
                .await
                .map(drop),
            Postgres::pending(&address).await.map(drop),
            Postgres::migrate(&address, Micros(0)).await,
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("development version"), "{text}");
        }
    }
}

/// The guard of transactions must not apply to profiles that are added later.
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
const SEARCH: &str = include_str!("../../../src/postgres/search.rs");

/// Also if the table has rows of one protocol only, so that the profile is not selective.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_use_the_indexes_that_exist_for_other_reasons() {
    let cluster = Cluster::new(1).await;
    for _ in 0..10 {
        cluster.world(0).admit(vec![item(); 100]).await.unwrap();
    }
    let client = stranger(&cluster.url()).await;
    let died = "UPDATE intents SET state = 7, settled_at = seq WHERE seq % 2 = 0; ANALYZE intents; \
                SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan";
    for statement in died.split("; ") {
        client.batch_execute(statement).await.unwrap();
    }
    let dead = "WHERE state = 7 AND profile >= p AND (profile, settled_at, seq) < (p, $2, $3) \
                ORDER BY profile DESC, settled_at DESC, seq DESC LIMIT $4";
    let held = "WHERE shelf = ANY($3) AND seq + 0 < $1 ORDER BY seq + 0 DESC LIMIT $2";
    let owner = "WHERE i.owner = $3 AND i.seq < $1 ORDER BY i.seq DESC LIMIT $2";
    let source = SEARCH.replace(" \\\n     ", " ");
    for text in [dead, held, owner] {
        assert!(source.contains(text), "the text is the store's: {text}");
    }
    let dead = format!(
        "PREPARE dead (smallint[], bigint, bigint, bigint) AS SELECT i.seq FROM unnest($1) p CROSS JOIN LATERAL \
         (SELECT * FROM intents {dead}) i"
    );
    let held =
        format!("PREPARE held (bigint, bigint, smallint[]) AS SELECT seq FROM intents {held}");
    let owner =
        format!("PREPARE owner (bigint, bigint, text) AS SELECT i.goal FROM intents i {owner}");
    for (prepare, execute, wanted) in [
        (dead, "dead('{1}', 9, 9, 10)", ["intents_by_end", "< ROW("]),
        (
            held,
            "held(9, 10, '{2,3}')",
            ["intents_by_deadline", "shelf = ANY"],
        ),
        (
            owner,
            "owner(9, 10, 'alice')",
            ["intents_by_owner", "owner ="],
        ),
    ] {
        client.batch_execute(&prepare).await.unwrap();
        let plan = client
            .query(&format!("EXPLAIN EXECUTE {execute}"), &[])
            .await
            .unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        let condition = plan
            .lines()
            .find(|line| line.contains("Index Cond"))
            .unwrap_or_default();
        assert!(plan.contains(wanted[0]), "{plan}");
        assert!(condition.contains(wanted[1]), "{plan}");
    }
}
