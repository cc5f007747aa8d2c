//! Nonces are kept in memory and in the file; both must agree after a restart and after a failed commit.

use consign_kernel::command::{Admit, Command, Forget, Gate, OnRefusal, Request};
use consign_kernel::error::Refusal;
use consign_kernel::ids::HOUR_US;
use consign_kernel::limits;
use consign_kernel::once::Scope;
use consign_kernel::profile::Face;
use consign_store::Store;
use consign_store::conformance::item;

use super::World;

/// Of the only caller; a purge deletes no nonces.
fn all() -> Forget {
    Forget::OnceOf {
        owner: "main".to_owned(),
    }
}

fn signed(nonce: &str, steps: Vec<Command>) -> Request {
    Request {
        gate: Some(Gate {
            caller: "main".to_owned(),
            metered: false,
            nonce: Some(nonce.to_owned()),
            cost: 1,
        }),
        steps,
        on_refusal: OnRefusal::Continue,
        seed: [1; 32],
    }
}

/// Whether the nonce was accepted.
async fn passes(world: &World, nonce: &str) -> bool {
    match world.store.execute(signed(nonce, Vec::new())).await {
        Ok(Ok(_)) => true,
        Ok(Err(Refusal::Replay)) => false,
        other => panic!("{other:?}"),
    }
}

fn publish() -> Command {
    let items = vec![item()];
    Command::Admit(Admit { items, cap: None })
}

#[tokio::test]
async fn a_nonce_is_remembered_across_a_restart_ip_055() {
    let world = World::new();
    assert!(passes(&world, "a").await);
    let world = world.reopened();
    assert!(!passes(&world, "a").await);
    assert!(passes(&world, "b").await);
    world.clock.advance(limits::NONCE_US);
    let world = world.reopened();
    assert!(passes(&world, "a").await, "its time is over");
    let world = world.reopened();
    assert!(!passes(&world, "a").await, "it was used again");
    assert_eq!(world.store.dump().await.unwrap().once.len(), 2);
}

#[tokio::test]
async fn a_commit_that_failed_burns_nothing_and_forgets_nothing() {
    let world = World::new();
    assert!(passes(&world, "old").await);
    let meddler = world.meddler();
    meddler
        .execute_batch(
            "CREATE TRIGGER no BEFORE INSERT ON intents BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        .unwrap();
    let forget = Command::Forget(all());
    for steps in [vec![publish()], vec![forget, publish()]] {
        let refused = world.store.execute(signed("new", steps)).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    meddler.execute_batch("DROP TRIGGER no").unwrap();
    assert!(!passes(&world, "old").await);
    assert!(passes(&world, "new").await);
}

/// In the middle of a purge memory and file differ, and the rollback must restore the agreement.
#[tokio::test]
async fn a_purge_that_failed_half_way_lets_no_replay_through() {
    let world = World::new();
    assert!(passes(&world, "old").await);
    let meddler = world.meddler();
    meddler
        .execute_batch(
            "CREATE TRIGGER no BEFORE DELETE ON nonces BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        .unwrap();
    let purge = Request {
        gate: None,
        steps: vec![Command::Forget(all())],
        on_refusal: OnRefusal::Continue,
        seed: [1; 32],
    };
    assert!(world.store.execute(purge).await.is_err());
    assert!(!passes(&world, "old").await);
}

#[tokio::test]
async fn what_is_over_is_forgotten_in_the_file_as_well() {
    let world = World::new();
    for nonce in ["a", "b", "c"] {
        assert!(passes(&world, nonce).await);
    }
    world.clock.advance(HOUR_US);
    assert!(passes(&world, "a").await);
    let scope = Scope::IntentNonce;
    let forget = Command::Forget(Forget::Once { scope, limit: 10 });
    let request = Request {
        gate: None,
        steps: vec![forget],
        on_refusal: OnRefusal::Continue,
        seed: [1; 32],
    };
    world.store.execute(request).await.unwrap().unwrap();
    let rows: i64 = world
        .meddler()
        .query_row("SELECT count(*) FROM nonces", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1, "the later use of the first one");
    assert!(!passes(&world, "a").await);
    assert!(passes(&world, "b").await);
}

#[tokio::test]
async fn a_nonce_that_lies_there_twice_is_forgotten_with_its_last_row() {
    let world = World::new();
    assert!(passes(&world, "a").await);
    world.clock.advance(HOUR_US);
    assert!(passes(&world, "a").await, "used again, its time was over");
    let forget = async |forget: Forget| {
        let steps = vec![Command::Forget(forget)];
        let request = Request {
            gate: None,
            steps,
            on_refusal: OnRefusal::Continue,
            seed: [1; 32],
        };
        world.store.execute(request).await.unwrap().unwrap();
    };
    let (scope, limit) = (Scope::IntentNonce, 1);
    forget(Forget::Once { scope, limit }).await;
    assert!(!passes(&world, "a").await);
    let face = Face::Intent;
    forget(Forget::OnceOfFace { face, limit }).await;
    assert!(!passes(&world, "a").await, "a purge forgets no nonce");
    forget(all()).await;
    assert!(passes(&world, "a").await);
}
