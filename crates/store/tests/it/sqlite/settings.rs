//! The settings of the file, and the writer's transactions as seen by other connections.

use std::time::Duration;

use consign_kernel::intent::Shelf;
use consign_kernel::state::State;
use consign_store::conformance::{claim_by, item};
use consign_store::sqlite::{FileKind, identify};

use super::World;

const SCHEMA: &str = include_str!("../../../src/sqlite/schema.rs");
const TX: &str = include_str!("../../../src/sqlite/tx.rs");
const READS: &str = include_str!("../../../src/sqlite/reads.rs");

#[tokio::test]
async fn the_file_is_ours_and_keeps_a_write_ahead_log_ip_181() {
    let world = World::new();
    let mode: String = world
        .meddler()
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    assert_eq!(identify(&world.path()).unwrap(), FileKind::Consign);
}

#[test]
fn the_library_is_new_enough_and_an_old_one_would_be_refused_ip_180() {
    let demanded: i32 = SCHEMA
        .lines()
        .find_map(|line| line.strip_prefix("const SQLITE_VERSION_MIN: i32 = "))
        .map(|rest| rest.trim_end_matches(';').replace('_', ""))
        .unwrap()
        .parse()
        .unwrap();
    assert!(demanded >= 3_035_000);
    assert!(SCHEMA.contains("if version < SQLITE_VERSION_MIN {"));
    assert!(rusqlite::version_number() >= demanded);
}

/// With a deferred transaction a claim that finds nothing would not wait for a writer that holds the lock.
#[tokio::test]
async fn a_claim_begins_as_a_writer_ip_182() {
    let world = World::new();
    let suite = world.shared();
    let meddler = world.meddler();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let claim = tokio::spawn(async move { suite.claim(claim_by("alice")).await });
    let waited = tokio::time::timeout(Duration::from_millis(300), async {
        while !claim.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_err(), "the claim must wait for the lock");
    meddler.execute_batch("COMMIT").unwrap();
    assert_eq!(claim.await.unwrap(), []);
}

/// A trigger skips the update: only a writer that checks the number of changed rows notices it.
#[tokio::test]
async fn a_claim_that_changed_no_row_is_no_claim_ip_182() {
    let world = World::new();
    let suite = world.shared();
    suite.publish(item()).await;
    let meddler = world.meddler();
    meddler
        .execute_batch(
            "CREATE TRIGGER skip BEFORE UPDATE ON intents BEGIN SELECT RAISE(IGNORE); END",
        )
        .unwrap();
    let request = consign_kernel::command::Request {
        gate: None,
        steps: vec![consign_kernel::command::Command::Claim(claim_by("alice"))],
        on_refusal: consign_kernel::command::OnRefusal::Continue,
        seed: [0; 32],
    };
    assert!(suite.store.execute(request).await.is_err());
    meddler.execute_batch("DROP TRIGGER skip").unwrap();
    assert_eq!(suite.take("alice").await.attempts, 1);
    let updates = TX.matches("UPDATE OR ROLLBACK intents").count();
    assert_eq!(updates, 1, "there is no other way");
    assert!(!TX.contains("UPDATE intents"));
}

#[tokio::test]
async fn the_columns_accept_exactly_the_codes_the_kernel_knows() {
    let world = World::new();
    world.shared().publish(item()).await;
    let meddler = world.meddler();
    for code in 0..=u8::MAX {
        let state = meddler.execute("UPDATE intents SET state = ?1", [code]);
        assert_eq!(
            state.is_ok(),
            State::from_code(code).is_some(),
            "state {code}"
        );
        let shelf = meddler.execute("UPDATE intents SET shelf = ?1", [code]);
        assert_eq!(
            shelf.is_ok(),
            Shelf::from_code(code).is_some(),
            "shelf {code}"
        );
    }
}

#[tokio::test]
async fn a_dead_letter_is_found_by_the_code_its_index_names() {
    assert_eq!(State::DeadLetter.code(), 7);
    let world = World::new();
    let sql: String = world
        .meddler()
        .query_row(
            "SELECT sql FROM sqlite_master WHERE name = 'intents_by_death'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(sql.ends_with("WHERE state = 7"));
}

/// Expired permissions of agents are numerous, and are not dead letters of any other protocol.
#[tokio::test]
async fn dead_letters_of_one_protocol_are_found_by_their_index() {
    let world = World::new();
    let sql = "SELECT seq FROM intents WHERE state = 7 AND profile = ?1 ORDER BY settled_at DESC, seq DESC LIMIT ?2";
    let where_order_limit = sql.split_once("WHERE").unwrap().1;
    assert!(READS.contains(where_order_limit), "the text is the store's");
    let plan: Vec<String> = world
        .meddler()
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap()
        .query_map([0, 1], |row| row.get(3))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(plan.len(), 1, "{plan:?}");
    assert!(
        plan[0].contains("INDEX intents_by_death (profile=?)"),
        "{plan:?}"
    );
}

/// Each of the claim's four queries must use its own index and sort nothing.
#[tokio::test]
async fn claims_walk_an_index_and_sort_nothing() {
    let world = World::new();
    let meddler = world.meddler();
    for (column, index) in [
        ("own_lane", "lane_own"),
        ("own_goal_lane", "lane_own_goal"),
        ("public_lane", "lane_public"),
        ("public_goal_lane", "lane_public_goal"),
    ] {
        assert!(TX.contains(&format!("probe_sql!(\"{column}\")")));
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT priority, run_at, attempts, seq FROM intents WHERE {column} = ?1 \
             ORDER BY priority DESC, run_at, attempts, seq LIMIT ?2"
        );
        let plan: Vec<String> = meddler
            .prepare(&sql)
            .unwrap()
            .query_map([1, 1], |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(plan.len(), 1, "{plan:?}");
        assert!(plan[0].contains(&format!("INDEX {index} (")), "{plan:?}");
    }
}

/// Without the checkpoint thread SQLite would let the log grow to 64 MiB before a commit merges it.
#[tokio::test]
async fn the_log_begins_anew_while_commits_go_on() {
    let world = World::new();
    let suite = world.shared();
    let bulky = || consign_kernel::command::NewIntent {
        payload: format!("\"{}\"", "x".repeat(20_000)),
        ..item()
    };
    let log = world.path().with_file_name("ledger.db-wal");
    let mut written = 0;
    while written < 56 << 20 {
        let items: Vec<_> = (0..20).map(|_| bulky()).collect();
        written += 20 * 20_000;
        suite.admit(items).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bytes = std::fs::metadata(log).unwrap().len();
    assert!(bytes < 40 << 20, "{bytes} bytes");
}
