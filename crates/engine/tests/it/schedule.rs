//! When the cleanup pass runs, and what time does without one.

use std::time::Duration;

use consign_engine::{Operator, Timekeeper};
use consign_kernel::ids::DAY_US;
use consign_kernel::profile::Face;
use consign_kernel::state::State;

use crate::world::{World, claim, intent};

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
async fn an_exhausted_lease_dies_by_the_timekeeper_alone() {
    let world = World::new();
    let id = world
        .publish(consign_kernel::command::NewIntent {
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
    // A restart may find the clock a day ahead; the intent is past its life but its worker still held it.
    world.clock.advance_us(DAY_US + 1);
    Timekeeper::new(world.engine.clone()).tick().await.unwrap();
    let seen = world.engine.observe(id).await.unwrap().unwrap();
    assert_eq!(
        (seen.state, seen.attempts),
        (State::Dispatched, held.attempts)
    );
}
