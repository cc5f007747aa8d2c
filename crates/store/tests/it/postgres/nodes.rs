//! Several nodes on one database.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consign_kernel::command::{Claim, NewIntent};
use consign_kernel::ids::FactSeq;
use consign_kernel::profile::Face;
use consign_store::conformance::{World, claim_by, guarded, item};
use consign_store::{EventFilter, EventPage, Store, TypedReads as _};
use tokio::task::JoinSet;

use super::Cluster;
use super::locked::Gate;
use super::trouble::slow_node;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_intent_goes_to_one_claimer_of_two_nodes() {
    let cluster = Cluster::new(2).await;
    let mut published = BTreeSet::new();
    for number in 0..100 {
        let world = cluster.world(number % 2);
        published.insert(world.publish(item()).await);
    }
    let mut workers = JoinSet::new();
    for number in 0..8 {
        let world = cluster.world(number % 2);
        workers.spawn(async move {
            let (mut mine, mut empty) = (Vec::new(), 0);
            // Claims skip rows that the other node has locked, so one empty claim does not mean that the queue is empty.
            while empty < 20 {
                let taken = world.claim(claim_by("alice")).await;
                if taken.is_empty() {
                    empty += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                for row in taken {
                    assert!(world.complete(&row).await.is_ok());
                    mine.push(row.id);
                }
            }
            mine
        });
    }
    let taken: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 100, "nothing twice");
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), published);
    cluster.world(0).is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_told_to_hold_what_it_gave_out() {
    let cluster = Cluster::new(2).await;
    let held = async || {
        let held = cluster.nodes[0].lease_counts().await.unwrap();
        held.into_iter()
            .map(|held| (held.node, held.leases))
            .collect::<Vec<_>>()
    };
    for _ in 0..3 {
        cluster.world(0).publish(item()).await;
    }
    let first = cluster.world(0).take("alice").await;
    cluster.world(1).take("alice").await;
    cluster.world(1).take("alice").await;
    assert_eq!(held().await, [(Some(1), 1), (Some(2), 2)]);
    // A lease may be settled on any node.
    assert!(cluster.world(1).complete(&first).await.is_ok());
    assert_eq!(held().await, [(Some(2), 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_used_on_two_nodes_at_once_admits_once() {
    let cluster = Cluster::new(2).await;
    for round in 0..20 {
        let mut publishers = JoinSet::new();
        for number in 0..6 {
            let world = cluster.world(number % 2);
            let item = guarded("alice", &format!("key {round}"), 1);
            publishers.spawn(async move { world.publish(item).await });
        }
        let ids: BTreeSet<_> = publishers.join_all().await.into_iter().collect();
        assert_eq!(ids.len(), 1, "round {round}");
    }
    let dump = cluster.world(0).store.dump().await.unwrap();
    assert_eq!((dump.intents.len(), dump.once.len()), (20, 20));
    cluster.world(1).is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_on_one_node_is_heard_on_the_other() {
    let cluster = Cluster::new(2).await;
    let heard = Arc::new(Mutex::new(BTreeSet::new()));
    let (hearing, told) = (Arc::clone(&heard), "alice".to_owned());
    cluster.nodes[1].listen(Box::new(move |news| {
        hearing.lock().unwrap().extend(news.told.iter().cloned());
    }));
    // Both nodes may not listen for notifications yet.
    until(async || {
        cluster.world(0).publish(item()).await;
        heard.lock().unwrap().contains(&told)
    })
    .await;
}

/// A claim locks the best row of each of its lanes and takes one. A node that skipped the others must look again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_held_and_did_not_take_is_told_to_the_others() {
    let cluster = Cluster::new(2).await;
    let (here, there) = (cluster.world(0), cluster.world(1));
    let lane = claim_by("carol").probes()[1];
    let heard = Arc::new(AtomicBool::new(false));
    let last_heard = Arc::new(AtomicBool::new(false));
    let (hearing, hearing_last) = (Arc::clone(&heard), Arc::clone(&last_heard));
    cluster.nodes[1].listen(Box::new(move |news| {
        hearing.fetch_or(news.ripe.contains(&lane), Ordering::SeqCst);
        hearing_last.fetch_or(news.told.contains("last"), Ordering::SeqCst);
    }));
    let hears = async || heard.swap(false, Ordering::SeqCst);
    let for_all = || NewIntent {
        owner: "bob".to_owned(),
        public: true,
        ..item()
    };
    // Both nodes may not listen for notifications yet.
    until(async || {
        here.publish(for_all()).await;
        hears().await
    })
    .await;
    let all = Claim {
        max: 100,
        ..claim_by("carol")
    };
    there.claim(all).await;
    here.publish(item()).await;
    here.publish(for_all()).await;
    // Notifications arrive in order, so all earlier ones have arrived by then.
    let last = NewIntent {
        owner: "last".to_owned(),
        ..item()
    };
    here.publish(last).await;
    until(async || last_heard.load(Ordering::SeqCst)).await;
    hears().await;

    // The next transaction that inserts a fact locks its rows and waits.
    let gate = Gate::close(&cluster.url()).await;
    let taking = tokio::spawn(async move { here.take("alice").await });
    until(async || gate.is_waited_for().await).await;
    assert_eq!(there.claim(claim_by("carol")).await, [], "passed over");
    assert!(!hears().await);
    gate.open().await;
    assert_eq!(taking.await.unwrap().owner, "alice");
    until(hears).await;
    assert_eq!(there.claim(claim_by("carol")).await.len(), 1);
}

/// Longer than any expected event takes, even on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// Polls until the condition is true.
pub(super) async fn until(mut so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(began.elapsed() < LONG, "it never was");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_events_never_passes_an_open_transaction() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    world.publish(item()).await;
    let first = read(&world, FactSeq(0)).await;
    assert_eq!(first.len(), 1);

    let client = slow_node(&cluster.url()).await;
    world.publish(item()).await;
    assert_eq!(read(&world, FactSeq(0)).await, first, "later numbers wait");
    client.batch_execute("COMMIT").await.unwrap();
    let all = read(&world, first[0]).await;
    assert_eq!(all.len(), 2, "the slow one and the one after it");
    assert!(all.is_sorted());
}

pub(super) async fn read(world: &World, after: FactSeq) -> Vec<FactSeq> {
    let page = page(world, after).await;
    page.events.iter().map(|event| event.fact.seq).collect()
}

pub(super) async fn page(world: &World, after: FactSeq) -> EventPage {
    let filter = EventFilter {
        face: Face::Intent,
        owner: "alice".to_owned(),
        after,
        limit: 10,
    };
    world.store.events(filter).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zero_character_comes_back_as_it_was() {
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    let mut odd = item();
    odd.goal = "a\0b\u{10ffff}0".to_owned();
    let id = world.publish(odd.clone()).await;
    assert_eq!(world.load(id).await.goal, odd.goal);
    world.is_sound().await;
}
