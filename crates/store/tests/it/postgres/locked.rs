//! Requests that cannot be committed in a group with others: their rows are locked, or the database refuses them.

use std::collections::BTreeSet;
use std::sync::Arc;

use consign_kernel::command::{
    Admit, Command, NewIntent, OnRefusal, Reply, Request, Settle, Settlement,
};
use consign_kernel::intent::Intent;
use consign_store::conformance::{ManualClock, World, claim_by, guarded, item};
use consign_store::postgres::{Options, Postgres};
use consign_store::{Error, Store as _};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::nodes::{LONG, until};
use super::trouble::{stranger, waits_for_lock};
use super::{Cluster, options};

/// Blocks every transaction that inserts a fact, for as long as the gate is closed.
pub(super) struct Gate(Client);

impl Gate {
    pub(super) async fn close(url: &str) -> Self {
        let client = stranger(url).await;
        let gate = "CREATE TABLE gate AS SELECT false AS open; \
                    CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                    WHILE NOT (SELECT open FROM gate) LOOP PERFORM pg_sleep(0.02); END LOOP; RETURN NULL; END $$; \
                    CREATE TRIGGER pass BEFORE INSERT ON facts FOR EACH STATEMENT EXECUTE FUNCTION pass()";
        client.batch_execute(gate).await.unwrap();
        Self(client)
    }

    pub(super) async fn is_waited_for(&self) -> bool {
        let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        !self.0.query(waits, &[]).await.unwrap().is_empty()
    }

    pub(super) async fn open(&self) {
        let open = "UPDATE gate SET open = true";
        self.0.batch_execute(open).await.unwrap();
    }
}

type Asking = JoinHandle<Result<Reply, Error>>;

fn ask(world: &World, step: Command) -> Asking {
    let request = Request {
        gate: None,
        steps: vec![step],
        on_refusal: OnRefusal::Continue,
        seed: [1; 32],
    };
    let store = Arc::clone(&world.store);
    tokio::spawn(async move { store.execute(request).await })
}

fn publishing(world: &World, item: NewIntent) -> Asking {
    let items = vec![item];
    ask(world, Command::Admit(Admit { items, cap: None }))
}

fn settling(world: &World, held: &Intent) -> Asking {
    let settle = Settle {
        detail: None,
        id: held.id,
        holder: "alice".to_owned(),
        token: held.token.unwrap(),
        how: Settlement::Complete { result: None },
    };
    ask(world, Command::Settle(settle))
}

async fn answered(asking: Asking) -> Result<Reply, Error> {
    timeout(LONG, asking).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_keeps_locked_is_refused_in_time_and_others_go_on_ip_003() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    world.publish(item()).await;
    let held = world.take("alice").await;
    let keeper = stranger(&cluster.url()).await;
    keeper
        .batch_execute("BEGIN; SELECT 1 FROM intents FOR UPDATE")
        .await
        .unwrap();
    let watcher = stranger(&cluster.url()).await;
    // So many that waiting for each of them would keep both writers busy beyond their time limit.
    let (mut stuck, mut others) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        for _ in 0..50 {
            stuck.push(settling(&world, &held));
            others.push(publishing(&world, item()));
        }
        until(async || waits_for_lock(&watcher).await).await;
    }
    for other in others {
        let other = answered(other).await;
        assert!(other.is_ok(), "{other:?}");
    }
    let early = stuck.iter().any(JoinHandle::is_finished);
    assert!(!early, "others wait for those who wait");
    for refused in stuck {
        let refused = answered(refused).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    keeper.batch_execute("COMMIT").await.unwrap();
    world.complete(&held).await.unwrap();
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_lock_goes_on_when_it_is_gone() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    world.publish(item()).await;
    let held = world.take("alice").await;
    let keeper = stranger(&cluster.url()).await;
    keeper
        .batch_execute("BEGIN; SELECT 1 FROM intents FOR UPDATE")
        .await
        .unwrap();
    let watcher = stranger(&cluster.url()).await;
    let settling = settling(&world, &held);
    // It has waited without success and was set aside: the lock is released before the next attempt.
    until(async || waits_for_lock(&watcher).await).await;
    until(async || !waits_for_lock(&watcher).await).await;
    keeper.batch_execute("COMMIT").await.unwrap();
    assert!(answered(settling).await.unwrap().unwrap()[0].is_ok());
    world.is_sound().await;
}

/// When the waits for a lock that are in progress began, by the database's clock.
async fn waiting_since(client: &Client) -> Vec<String> {
    let since = "SELECT waitstart::text FROM pg_locks JOIN pg_stat_activity USING (pid) \
                 WHERE datname = current_database() AND NOT granted AND waitstart IS NOT NULL";
    let rows = client.query(since, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// A writer that waited for seconds each time would use up most of its time limit, with only about two attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_waited_for_in_many_short_moments() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    world.publish(item()).await;
    let held = world.take("alice").await;
    let keeper = stranger(&cluster.url()).await;
    let keep = "BEGIN; SELECT 1 FROM intents FOR UPDATE";
    keeper.batch_execute(keep).await.unwrap();
    let settling = settling(&world, &held);
    let mut moments = BTreeSet::new();
    let watcher = stranger(&cluster.url()).await;
    until(async || {
        moments.extend(waiting_since(&watcher).await);
        moments.len() >= 5 || settling.is_finished()
    })
    .await;
    assert!(!settling.is_finished(), "refused after {moments:?}");
    keeper.batch_execute("COMMIT").await.unwrap();
    assert!(answered(settling).await.unwrap().unwrap()[0].is_ok());
    world.is_sound().await;
}

/// The key is not visible beforehand: the conflict occurs at the insert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_transaction_is_about_to_use_holds_up_nobody_else() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    world.publish(guarded("alice", "first", 1)).await;
    let keeper = stranger(&cluster.url()).await;
    let using = "BEGIN; INSERT INTO once (scope, owner, key, fingerprint, intent, answer, until) \
                 SELECT scope, owner, 'second', fingerprint, intent, answer, until FROM once";
    keeper.batch_execute(using).await.unwrap();
    let stuck = publishing(&world, guarded("alice", "second", 1));
    let others: Vec<_> = (0..40).map(|_| publishing(&world, item())).collect();
    for other in others {
        assert!(answered(other).await.is_ok());
    }
    assert!(!stuck.is_finished(), "others wait for it");
    let refused = answered(stuck).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    keeper.batch_execute("ROLLBACK").await.unwrap();
    world.publish(guarded("alice", "second", 1)).await;
    world.is_sound().await;
}

/// The same in one group with others, which is split into parts that wait only briefly, so that the others are committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_meets_a_key_in_use_is_found_in_its_group_and_others_go_on() {
    let cluster = Cluster::new(1).await;
    let (store, world) = with_one_writer(&cluster).await;
    world.publish(guarded("alice", "first", 1)).await;
    let keeper = stranger(&cluster.url()).await;
    let using = "BEGIN; INSERT INTO once (scope, owner, key, fingerprint, intent, answer, until) \
                 SELECT scope, owner, 'second', fingerprint, intent, answer, until FROM once";
    keeper.batch_execute(using).await.unwrap();
    let gate = Gate::close(&cluster.url()).await;
    let first = publishing(&world, item());
    until(async || gate.is_waited_for().await).await;
    let stuck = publishing(&world, guarded("alice", "second", 1));
    let others: Vec<_> = (0..40).map(|_| publishing(&world, item())).collect();
    until(async || store.stats().waiting == 41).await;
    gate.open().await;
    assert!(answered(first).await.is_ok());
    for other in others {
        let other = answered(other).await;
        assert!(other.is_ok(), "{other:?}");
    }
    keeper.batch_execute("ROLLBACK").await.unwrap();
    assert!(answered(stuck).await.is_ok(), "it goes on as well");
    world.is_sound().await;
}

/// Makes `count` writes of intents fail as if another node had been first. A rollback does not reset a sequence.
async fn conflicts(url: &str, count: u32) -> Client {
    let client = stranger(url).await;
    let clash = format!(
        "CREATE SEQUENCE clashes; CREATE FUNCTION clash() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('clashes') <= {count} THEN RAISE EXCEPTION 'clash' USING ERRCODE = 'serialization_failure'; END IF; \
         RETURN NULL; END $$; \
         CREATE TRIGGER clash BEFORE INSERT ON facts FOR EACH STATEMENT EXECUTE FUNCTION clash()"
    );
    client.batch_execute(&clash).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_met_another_is_taken_anew_by_itself() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    conflicts(&cluster.url(), 1).await;
    let asked = answered(publishing(&world, item())).await;
    assert!(asked.is_ok(), "{asked:?}");
    assert_eq!(world.store.stats().failed_commits, 0);
    assert_eq!(world.store.dump().await.unwrap().intents.len(), 1);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_meets_another_each_time_is_refused_in_the_end() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    let client = conflicts(&cluster.url(), 1_000).await;
    let refused = answered(publishing(&world, item())).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let tries = client.query_one("SELECT last_value FROM clashes", &[]);
    assert_eq!(tries.await.unwrap().get::<_, i64>(0), 10);
    let nothing = "DROP TRIGGER clash ON facts";
    client.batch_execute(nothing).await.unwrap();
    world.publish(item()).await;
    world.is_sound().await;
}

/// Another node, whose requests form one group while its only writer is busy.
async fn with_one_writer(cluster: &Cluster) -> (Arc<Postgres>, World) {
    let one_writer = Options {
        writers: 1,
        ..options(&cluster.url(), &Arc::new(ManualClock::default()), 7)
    };
    let store = Arc::new(Postgres::open(one_writer).await.unwrap());
    let world = cluster.world(0).through(store.clone());
    (store, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_the_database_does_not_take_refuses_only_itself_ip_162() {
    let cluster = Cluster::new(1).await;
    let (store, world) = with_one_writer(&cluster).await;
    let poison = "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                  IF NEW.goal = 'poison' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$; \
                  CREATE TRIGGER poison BEFORE INSERT ON intents FOR EACH ROW EXECUTE FUNCTION poison()";
    let client = stranger(&cluster.url()).await;
    client.batch_execute(poison).await.unwrap();
    // While the first request waits, the others form one group.
    let gate = Gate::close(&cluster.url()).await;
    let first = publishing(&world, item());
    until(async || gate.is_waited_for().await).await;
    let mut others = JoinSet::new();
    for number in 0..21 {
        let mut item = item();
        if number == 7 {
            "poison".clone_into(&mut item.goal);
        }
        let asking = publishing(&world, item);
        others.spawn(async move { (number, answered(asking).await) });
    }
    until(async || store.stats().waiting == 21).await;
    gate.open().await;
    assert!(answered(first).await.is_ok());
    for (number, answer) in others.join_all().await {
        assert_eq!(answer.is_err(), number == 7, "{number}: {answer:?}");
    }
    assert_eq!(world.store.stats().failed_commits, 1);
    assert_eq!(world.claim(claim_by("alice")).await.len(), 1);
    world.is_sound().await;
}
