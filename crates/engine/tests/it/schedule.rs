//! The schedule of the cleanup pass, and the timekeeper.

use std::time::Duration;

use consign_engine::{CleanupReport, Heartbeat, NodeIdentity, Operator, PauseReason, Timekeeper};
use consign_kernel::command::{Admit, Command, Hold, NewIntent, OnceGuard, Take};
use consign_kernel::ids::{DAY_US, SECOND_US};
use consign_kernel::once::{self, Scope};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{Key, Kind, Put};
use consign_kernel::state::State;
use consign_store::TypedReads as _;

use crate::world::{World, claim, engine, intent};

#[tokio::test]
async fn the_pass_is_due_an_interval_after_the_start_and_once_per_interval() {
    let world = World::new();
    assert!(!world.engine.cleanup_is_due());
    world.clock.advance_s(301);
    assert!(world.engine.cleanup_is_due());
    assert!(world.engine.cleanup_if_due(Face::Intent).await.is_some());
    assert!(world.engine.cleanup_if_due(Face::Intent).await.is_none());
    world.clock.advance_s(301);
    assert!(world.engine.cleanup_if_due(Face::Intent).await.is_some());
}

#[tokio::test]
async fn s18_a_restart_continues_the_interval_of_the_last_pass() {
    let world = World::new();
    let restarted = || engine(&world.store, &world.clock, [7; 32]);
    world.engine.resume_cleanup(Face::Intent).await.unwrap();
    // A server that restarts more often than the interval still cleans up once per interval.
    for passes in 1..=2 {
        for _ in 0..2 {
            world.clock.advance_s(149);
            let server = restarted();
            server.resume_cleanup(Face::Intent).await.unwrap();
            assert!(!server.cleanup_is_due(), "before pass {passes}");
        }
        world.clock.advance_s(3);
        let server = restarted();
        assert!(
            !server.cleanup_is_due(),
            "a start alone is no reason for a pass"
        );
        server.resume_cleanup(Face::Intent).await.unwrap();
        assert!(!server.cleanup_is_due(), "workers come first");
        world.clock.advance_s(60);
        assert!(server.cleanup_if_due(Face::Intent).await.is_some());
        assert!(!server.cleanup_is_due());
    }
}

#[tokio::test]
async fn an_exhausted_lease_dies_by_the_timekeeper_alone() {
    let world = World::new();
    let id = world
        .publish(NewIntent {
            attempts_max: 1,
            ..intent()
        })
        .await;
    world
        .engine
        .claim(None, claim(), Duration::ZERO)
        .await
        .unwrap();
    world.clock.advance_s(61);
    Timekeeper::new(world.engine.clone()).tick().await.unwrap();
    let stored = world.store.intent(id).await.unwrap().unwrap();
    assert_eq!(stored.state, State::DeadLetter);
}

#[tokio::test]
async fn a_purge_larger_than_one_piece_removes_everything() {
    let world = World::new();
    for _ in 0..1_234 {
        world.publish(intent()).await;
    }
    let removed = world
        .engine
        .purge(Operator::vouched(), Face::Intent, None)
        .await
        .unwrap();
    assert_eq!(removed, 1_234);
    assert!(
        world
            .engine
            .counts(Operator::vouched(), Face::Intent)
            .await
            .unwrap()
            .is_empty()
    );
}

/// Publishes many copies of an intent in a few commits.
async fn publish_many(world: &World, new: NewIntent, hundreds: u32) {
    for _ in 0..hundreds {
        let items = vec![new.clone(); 100];
        let admit = Command::Admit(Admit { items, cap: None });
        world.engine.apply(None, admit).await.unwrap();
    }
}

#[tokio::test]
async fn a_purge_finds_a_namespace_behind_pieces_that_hold_others_alone() {
    let world = World::new();
    publish_many(&world, intent(), 12).await;
    let rare = NewIntent {
        namespace: "rare".to_owned(),
        ..intent()
    };
    world.publish(rare).await;
    let purged = world
        .engine
        .purge(Operator::vouched(), Face::Intent, Some("rare"));
    assert_eq!(purged.await.unwrap(), 1);
}

#[tokio::test]
async fn a_purge_of_everything_removes_more_entries_than_one_piece_holds() {
    let world = World::new();
    for request in 0..6 {
        let entry = |number| {
            Command::Put(Put {
                key: Key {
                    kind: Kind::Kv,
                    owner: "main".to_owned(),
                    name: format!("{request} {number}"),
                },
                value: "1".to_owned(),
                expires_at: None,
                expect: None,
            })
        };
        let steps = (0..100).map(entry).collect();
        world.engine.execute(None, steps).await.unwrap();
    }
    let purged = world.engine.purge(Operator::vouched(), Face::Intent, None);
    assert_eq!(purged.await.unwrap(), 0);
    assert_eq!(world.store.dump().await.unwrap().records, []);
}

#[tokio::test]
async fn what_is_due_and_cannot_be_moved_is_not_asked_for_again_and_again() {
    let world = World::new();
    world.publish(intent()).await;
    let claimed = world.engine.claim(None, claim(), Duration::ZERO).await;
    assert_eq!(claimed.unwrap().len(), 1);
    world.clock.advance_s(61);
    // As if another transaction held the row: a node with a wrong clock changes nothing.
    world.engine.set_wrong_clock(true);
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    let nap = timekeeper.tick().await.unwrap();
    assert!(nap >= Duration::from_millis(100), "{nap:?}");
    world.engine.set_wrong_clock(false);
    timekeeper.tick().await.unwrap();
    let nap = timekeeper.tick().await.unwrap();
    assert!(nap > Duration::from_millis(100), "nothing is due: {nap:?}");
}

/// As after a failover to a database whose clock is behind: the time of this node is ahead until the database catches up.
#[tokio::test]
async fn a_node_with_a_wrong_clock_ends_no_lease_and_forgets_nothing() {
    for drains in [false, true] {
        let world = World::new();
        let mut timekeeper = Timekeeper::new(world.engine.clone());
        let key = once::OnceKey {
            scope: Scope::IntentIdempotency,
            owner: "main".to_owned(),
            key: "first".to_owned(),
        };
        let id = world
            .publish(NewIntent {
                attempts_max: 1,
                once: Some(OnceGuard {
                    key,
                    fingerprint: [1; 32],
                    lifetime_us: SECOND_US,
                }),
                ..intent()
            })
            .await;
        let claimed = world.engine.claim(None, claim(), Duration::ZERO).await;
        assert_eq!(claimed.unwrap().len(), 1);
        if drains {
            // Draining is the first pause reason and must not hide the others.
            drained(&world).await;
        }
        let before = world.store.dump().await.unwrap();
        world.engine.set_wrong_clock(true);
        world.clock.advance_s(3_600);
        timekeeper.tick().await.unwrap();
        assert!(world.engine.cleanup_if_due(Face::Intent).await.is_none());
        let operator = Operator::vouched();
        let report = world.engine.cleanup(operator, Face::Intent).await.unwrap();
        assert_eq!(report, CleanupReport::default());
        let seen = world.engine.observe(id).await.unwrap().unwrap();
        assert_eq!(seen.state, State::Dispatched);
        let claimed = world.engine.claim(None, claim(), Duration::ZERO).await;
        assert_eq!(claimed.unwrap(), []);
        let taken = Command::Take(Take {
            detail: None,
            id,
            face: Face::Intent,
            hold: Hold {
                holder: "main".to_owned(),
                lease_us: SECOND_US,
            },
        });
        let refused = world.engine.apply(None, taken).await.unwrap_err();
        assert!(refused.to_string().contains("clock"), "{refused}");
        assert_eq!(world.store.dump().await.unwrap(), before);

        world.engine.set_wrong_clock(false);
        assert!(world.engine.cleanup_is_due(), "it was put off");
        timekeeper.tick().await.unwrap();
        let after = world.store.dump().await.unwrap();
        assert_eq!((after.once.len(), before.once.len()), (0, 1));
        assert_eq!(after.intents[0].state, State::DeadLetter);
    }
}

async fn drained(world: &World) {
    let identity = NodeIdentity {
        id: 1,
        name: "only".to_owned(),
        address: String::new(),
        version: String::new(),
        alone: true,
    };
    let mut heart = Heartbeat::new(world.engine.clone(), identity);
    heart.beat().await.unwrap();
    let operator = Operator::vouched();
    let wished = world.engine.drain_node(operator, 1, true).await;
    assert!(wished.unwrap().is_some());
    heart.beat().await.unwrap();
    assert_eq!(world.engine.claims_paused(), Some(PauseReason::Draining));
}

#[tokio::test]
async fn old_facts_behind_many_of_another_face_are_forgotten() {
    let world = World::new();
    let foreign = NewIntent {
        profile: ProfileId::MeshOutbox,
        ..intent()
    };
    publish_many(&world, foreign, 21).await;
    world.publish(intent()).await;
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    world.clock.advance_us(31 * DAY_US);
    timekeeper.tick().await.unwrap();
    let facts = world.store.dump().await.unwrap().facts;
    assert!(!facts.iter().any(|fact| fact.face == Face::Intent));
    assert!(facts.len() >= 2_100, "others keep theirs");
}

#[tokio::test]
async fn a_jump_of_a_day_loses_nothing() {
    let world = World::new();
    let id = world.publish(intent()).await;
    let held = world
        .engine
        .claim(None, claim(), Duration::ZERO)
        .await
        .unwrap()
        .remove(0);
    // After a restart the clock may be a day ahead. The intent has expired, but its worker still holds the lease.
    world.clock.advance_us(DAY_US + 1);
    Timekeeper::new(world.engine.clone()).tick().await.unwrap();
    let seen = world.engine.observe(id).await.unwrap().unwrap();
    assert_eq!(
        (seen.state, seen.attempts),
        (State::Dispatched, held.attempts)
    );
}

#[tokio::test]
async fn records_past_their_end_are_removed() {
    let world = World::new();
    let kinds = [Kind::Kv, Kind::Node, Kind::ActionClaim, Kind::RailEvent];
    let record = |kind| {
        Command::Put(Put {
            key: Key {
                kind,
                owner: "somebody".to_owned(),
                name: "it".to_owned(),
            },
            value: "1".to_owned(),
            expires_at: Some(world.engine.now().plus(DAY_US)),
            expect: None,
        })
    };
    let steps = kinds.into_iter().map(record).collect();
    world.engine.execute(None, steps).await.unwrap();
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    world.clock.advance_us(DAY_US);
    timekeeper.tick().await.unwrap();
    assert_eq!(world.store.dump().await.unwrap().records, []);
}
