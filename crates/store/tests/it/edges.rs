//! The database itself refuses any statement that would move a transaction backwards.

use consign_kernel::profile::ProfileId;
use consign_kernel::state::State;
use consign_store::conformance::item;

use crate::postgres::{Cluster, stranger};
use crate::sqlite::World;

/// Every pair of states, and whether the profile has this transition.
fn ways() -> impl Iterator<Item = (ProfileId, State, State, bool)> {
    let profiles = [ProfileId::AtpPermission, ProfileId::AtpTransaction].into_iter();
    profiles.flat_map(|id| {
        State::ALL.iter().flat_map(move |from| {
            State::ALL.iter().map(move |to| {
                let legal = from == to || id.profile().joins(Some(*from), *to);
                (id, *from, *to, legal)
            })
        })
    })
}

/// A row of another profile may have any state, so it is moved to its first state under that profile.
fn put(id: ProfileId, from: State) -> [String; 3] {
    [
        "UPDATE intents SET profile = 0".to_owned(),
        go(from),
        format!("UPDATE intents SET profile = {}", id.code()),
    ]
}

fn go(to: State) -> String {
    format!("UPDATE intents SET state = {}", to.code())
}

#[tokio::test]
async fn at_069_sqlite_refuses_every_way_that_the_protocol_does_not_have() {
    let world = World::new();
    world.shared().publish(item()).await;
    let meddler = world.meddler();
    for (id, from, to, legal) in ways() {
        for sql in put(id, from) {
            meddler.execute_batch(&sql).unwrap();
        }
        let went = meddler.execute_batch(&go(to));
        assert_eq!(went.is_ok(), legal, "{id:?} {from} {to}");
    }
}

/// A guard that rolled back its statement only would make SQLite copy every page that a change of an intent touches.
#[tokio::test]
async fn what_sqlite_refuses_takes_its_whole_transaction_with_it() {
    let world = World::new();
    world.shared().publish(item()).await;
    let meddler = world.meddler();
    for sql in put(ProfileId::AtpTransaction, State::Acked) {
        meddler.execute_batch(&sql).unwrap();
    }
    meddler
        .execute_batch("BEGIN; UPDATE intents SET goal = 'changed'")
        .unwrap();
    meddler.execute_batch(&go(State::Dispatched)).unwrap_err();
    assert!(meddler.is_autocommit(), "nothing is left to commit");
    let changed = "SELECT count(*) FROM intents WHERE goal = 'changed'";
    let count: i64 = meddler.query_row(changed, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_069_postgresql_refuses_every_way_that_the_protocol_does_not_have() {
    let cluster = Cluster::new(1).await;
    cluster.world(0).publish(item()).await;
    let client = stranger(&cluster.url()).await;
    for (id, from, to, legal) in ways() {
        for sql in put(id, from) {
            client.batch_execute(&sql).await.unwrap();
        }
        // Two steps of one commit are a single write.
        let both = (from, to) == (State::Dispatched, State::Acked);
        let legal = legal || both && id == ProfileId::AtpTransaction;
        let went = client.batch_execute(&go(to)).await;
        assert_eq!(went.is_ok(), legal, "{id:?} {from} {to}");
    }
}

/// The states of a transaction's record, in order; the words are the protocol's.
const WORDS: [&str; 4] = ["executing", "executed", "settled", "compensated"];

fn may_follow(from: &str, to: &str) -> bool {
    let place = |word| WORDS.iter().position(|other| *other == word);
    place(from) <= place(to)
}

/// Creates a record with the first state and updates it to the second; it contains a character that PostgreSQL text
/// cannot hold.
fn say(from: &str, to: &str) -> [String; 3] {
    [
        "DELETE FROM records WHERE kind = 16".to_owned(),
        format!(
            "INSERT INTO records (kind, owner, name, version, value) VALUES (16, 'i', 'k', 1, '{{\"state\":\"{from}\",\"body\":\"\\u0000\"}}')"
        ),
        format!(
            "UPDATE records SET value = '{{\"state\":\"{to}\",\"body\":\"\\u0000\"}}' WHERE kind = 16"
        ),
    ]
}

/// A record without a state could take any state afterwards.
const SAY_NOTHING: &str = "UPDATE records SET value = '{}' WHERE kind = 16";

fn sayings() -> impl Iterator<Item = (&'static str, &'static str)> {
    WORDS
        .into_iter()
        .flat_map(|from| WORDS.into_iter().map(move |to| (from, to)))
}

#[tokio::test]
async fn at_069_sqlite_lets_no_record_go_back() {
    let world = World::new();
    world.shared().publish(item()).await;
    let meddler = world.meddler();
    for (from, to) in sayings() {
        let [gone, new, next] = say(from, to);
        meddler.execute_batch(&gone).unwrap();
        meddler.execute_batch(&new).unwrap();
        let went = meddler.execute_batch(&next);
        assert_eq!(went.is_ok(), may_follow(from, to), "{from} {to}");
        assert!(meddler.execute_batch(SAY_NOTHING).is_err(), "{from}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_069_postgresql_lets_no_record_go_back() {
    let cluster = Cluster::new(1).await;
    cluster.world(0).publish(item()).await;
    let client = stranger(&cluster.url()).await;
    for (from, to) in sayings() {
        let [gone, new, next] = say(from, to);
        client.batch_execute(&gone).await.unwrap();
        client.batch_execute(&new).await.unwrap();
        let went = client.batch_execute(&next).await;
        assert_eq!(went.is_ok(), may_follow(from, to), "{from} {to}");
        assert!(client.batch_execute(SAY_NOTHING).await.is_err(), "{from}");
    }
}
