//! The plans of the statements of searches: none of them sorts a backlog, or reads it for rows that have an index.

use super::World;

const SEARCH: &str = include_str!("../../../src/sqlite/search.rs");

fn plan(condition: &str, parameters: usize) -> Vec<String> {
    // The text is the store's, where a line may be continued.
    let joined = SEARCH.replace(" \\\n     ", " ");
    assert!(joined.contains(condition), "{condition}");
    let world = World::new();
    let meddler = world.meddler();
    let sql = format!("EXPLAIN QUERY PLAN SELECT * FROM intents {condition}");
    let mut statement = meddler.prepare(&sql).unwrap();
    let zeros = rusqlite::params_from_iter(std::iter::repeat_n(0, parameters));
    let steps = statement.query_map(zeros, |row| row.get(3)).unwrap();
    steps.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn a_search_of_all_rows_or_of_an_owner_walks_its_index_and_sorts_nothing() {
    let all = plan("WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2", 2);
    assert_eq!(all, ["SEARCH intents USING INTEGER PRIMARY KEY (rowid<?)"]);
    let owner = "WHERE owner = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2";
    let owner = plan(owner, 3);
    assert_eq!(owner.len(), 1, "{owner:?}");
    assert!(
        owner[0].contains("INDEX intents_by_owner (owner=? AND seq<?)"),
        "{owner:?}"
    );
}

#[tokio::test]
async fn a_search_of_dead_letters_walks_their_index_and_sorts_nothing() {
    let dead = plan(
        "WHERE state = 7 AND profile = ?1 AND (settled_at, seq) < (?2, ?3) ORDER BY settled_at DESC, seq DESC LIMIT ?4",
        4,
    );
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert!(
        dead[0].contains("INDEX intents_by_death (profile=? AND"),
        "{dead:?}"
    );
}

#[tokio::test]
async fn a_search_of_held_rows_reads_only_the_held_part_of_the_index_of_deadlines() {
    let held = plan(
        "WHERE seq IN (SELECT seq FROM intents WHERE shelf IN (?3, ?4) AND +seq < ?1 ORDER BY +seq DESC LIMIT ?2) ORDER BY seq DESC",
        4,
    );
    let plan = held.join("\n");
    assert!(
        plan.contains("COVERING INDEX intents_by_deadline (shelf=?)"),
        "{plan}"
    );
    assert!(!plan.contains("SCAN intents"), "{plan}");
}
