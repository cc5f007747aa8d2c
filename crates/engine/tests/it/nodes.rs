//! Nodes on one ledger: listing, draining and expiry.

use std::time::Duration;

use consign_engine::{
    Engine, Heartbeat, MismatchedSecret, NodeIdentity, NodeInfo, NodeState, Operator,
};
use consign_kernel::command::{Answer, Command, Extend, Settlement};
use consign_kernel::intent::Intent;

use crate::manual_store::ManualStore;
use crate::world::{Frozen, MAIN, World, claim, engine, engine_with, intent, woken};

fn identity(id: i64) -> NodeIdentity {
    NodeIdentity {
        id,
        name: format!("node-{id}"),
        address: format!("http://127.0.0.1:{id}"),
        version: "1.2.3".to_owned(),
        alone: false,
    }
}

/// Another node on the ledger of this world, and its heartbeat.
fn join(world: &World, id: i64) -> (Engine, Heartbeat) {
    let engine = engine(&world.store, &world.clock, [7; 32]);
    let heartbeat = Heartbeat::new(engine.clone(), identity(id));
    (engine, heartbeat)
}

async fn nodes(engine: &Engine) -> Vec<NodeInfo> {
    engine.nodes(Operator::vouched()).await.unwrap()
}

async fn states(engine: &Engine) -> Vec<(i64, NodeState)> {
    let nodes = nodes(engine).await;
    nodes.iter().map(|node| (node.id, node.state)).collect()
}

async fn wish(engine: &Engine, id: i64, drain: bool) -> Option<NodeInfo> {
    let operator = Operator::vouched();
    engine.drain_node(operator, id, drain).await.unwrap()
}

async fn take(world: &World) -> Intent {
    world.publish(intent()).await;
    let taken = world.engine.claim(None, claim(), Duration::ZERO).await;
    taken.unwrap().remove(0)
}

#[tokio::test]
async fn a_node_tells_who_it_is_and_when_it_was_there() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(7));
    assert_eq!(nodes(&world.engine).await, []);
    heart.beat().await.unwrap();
    let started_at = world.engine.now();
    world.clock.advance_s(2);
    heart.beat().await.unwrap();
    let expected = NodeInfo {
        id: 7,
        name: "node-7".to_owned(),
        address: "http://127.0.0.1:7".to_owned(),
        version: "1.2.3".to_owned(),
        started_at,
        seen_at: world.engine.now(),
        state: NodeState::Serving,
        leases: 0,
        here: true,
    };
    assert_eq!(nodes(&world.engine).await, [expected]);
    heart.leave().await;
    assert_eq!(nodes(&world.engine).await, []);
}

#[tokio::test]
async fn where_there_is_room_for_one_node_the_one_before_is_dead() {
    let world = World::new();
    let (_, mut killed) = join(&world, 1);
    killed.beat().await.unwrap();
    let alone = NodeIdentity {
        alone: true,
        ..identity(2)
    };
    let mut heart = Heartbeat::new(world.engine.clone(), alone);
    heart.beat().await.unwrap();
    assert_eq!(states(&world.engine).await, [(2, NodeState::Serving)]);
}

#[tokio::test]
async fn a_heartbeat_is_one_commit_and_tells_nobody() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    let before = world.engine.stats();
    world.store.listen(Box::new(|news| {
        assert!(news.is_empty(), "{news:?}");
    }));
    for _ in 0..5 {
        heart.beat().await.unwrap();
    }
    let after = world.engine.stats();
    assert_eq!(after.commits - before.commits, 5);
    assert_eq!(after.requests - before.requests, 5, "nor does it ask first");
    assert_eq!(after.last_fact, before.last_fact);
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_is_not_listed_as_serving() {
    let world = World::new();
    let (odd, mut first) = join(&world, 1);
    first.beat().await.unwrap();
    let (other, mut second) = join(&world, 2);
    second.beat().await.unwrap();
    odd.set_wrong_clock(true);
    assert_eq!(
        states(&odd).await[0],
        (1, NodeState::WrongClock),
        "it knows of itself at once"
    );
    first.beat().await.unwrap();
    let seen = [(1, NodeState::WrongClock), (2, NodeState::Serving)];
    assert_eq!(states(&other).await, seen);
    // The drain that an operator requested takes precedence over the wrong clock.
    wish(&other, 1, true).await;
    assert_eq!(states(&other).await[0], (1, NodeState::Draining));
    wish(&other, 1, false).await;
    odd.set_wrong_clock(false);
    first.beat().await.unwrap();
    assert_eq!(states(&other).await[0], (1, NodeState::Serving));
}

#[tokio::test]
async fn a_node_that_is_not_heard_of_is_silent_and_then_gone_and_comes_back_by_itself() {
    let world = World::new();
    let (_, mut first) = join(&world, 1);
    first.beat().await.unwrap();
    let (other, mut second) = join(&world, 2);
    second.beat().await.unwrap();
    world.clock.advance_s(6);
    second.beat().await.unwrap();
    assert_eq!(
        states(&other).await[0],
        (1, NodeState::Serving),
        "only just"
    );
    world.clock.advance_us(1);
    assert_eq!(states(&other).await[0], (1, NodeState::Silent));
    world.clock.advance_s(24);
    second.beat().await.unwrap();
    assert_eq!(states(&other).await, [(2, NodeState::Serving)]);
    first.beat().await.unwrap();
    let back = [(1, NodeState::Serving), (2, NodeState::Serving)];
    assert_eq!(states(&other).await, back);
}

#[tokio::test]
async fn a_drained_node_hears_of_it_finishes_and_may_serve_again() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    let (other, mut second) = join(&world, 2);
    second.beat().await.unwrap();
    let held = take(&world).await;

    // Requested through another node, effective at the next heartbeat.
    let wished = wish(&other, 1, true).await.unwrap();
    assert_eq!((wished.id, wished.state), (1, NodeState::Draining));
    assert!(!world.engine.is_draining());
    heart.beat().await.unwrap();
    assert!(world.engine.is_draining());
    assert!(!other.is_draining(), "the wish is for one node");
    heart.beat().await.unwrap();
    let shown = nodes(&world.engine).await;
    assert_eq!((shown[0].state, shown[0].leases), (NodeState::Draining, 1));

    world
        .settle(&held, Settlement::Complete { result: None })
        .await;
    let shown = nodes(&world.engine).await;
    assert_eq!((shown[0].state, shown[0].leases), (NodeState::Drained, 0));
    assert_eq!(shown[1].state, NodeState::Serving);

    wish(&world.engine, 1, false).await.unwrap();
    heart.beat().await.unwrap();
    assert!(!world.engine.is_draining());
    assert_eq!(states(&other).await[0], (1, NodeState::Serving));
    assert_eq!(wish(&world.engine, 3, true).await, None, "nobody is node 3");
}

/// For every caller, and regardless of the other steps in the same commit.
#[tokio::test(start_paused = true)]
async fn a_draining_node_claims_for_nobody_and_wakes_those_who_wait_when_it_serves_again() {
    let _frozen = Frozen::new();
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    let held = take(&world).await;
    wish(&world.engine, 1, true).await.unwrap();
    heart.beat().await.unwrap();
    let id = world.publish(intent()).await;
    let looked = world.engine.claim(None, claim(), Duration::ZERO).await;
    assert_eq!(looked.unwrap(), []);
    let kept = Command::Extend(Extend {
        detail: None,
        id: held.id,
        holder: "main".to_owned(),
        token: held.token.unwrap(),
        lease_us: 60_000_000,
    });
    let next = Command::Claim(claim());
    let steps = vec![kept.clone(), next, kept];
    let answers = world.engine.execute(None, steps).await.unwrap();
    assert!(
        matches!(
            answers.as_slice(),
            [
                Ok(Answer::Extended { .. }),
                Ok(Answer::Claimed(none)),
                Ok(Answer::Extended { .. })
            ] if none.is_empty()
        ),
        "{answers:?}"
    );

    let engine = world.engine.clone();
    let waiter = tokio::spawn(async move {
        let wait = Duration::from_secs(30);
        engine.claim(None, claim(), wait).await.unwrap()
    });
    while world.engine.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    wish(&world.engine, 1, false).await.unwrap();
    heart.beat().await.unwrap();
    assert_eq!(woken(waiter).await[0].id, id);
}

#[tokio::test]
async fn nobody_is_drained_before_it_refused_claims_for_a_whole_heartbeat() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    wish(&world.engine, 1, true).await.unwrap();
    assert_eq!(states(&world.engine).await, [(1, NodeState::Draining)]);
    heart.beat().await.unwrap();
    assert_eq!(
        states(&world.engine).await,
        [(1, NodeState::Draining)],
        "a claim may be on its way"
    );
    heart.beat().await.unwrap();
    assert_eq!(states(&world.engine).await, [(1, NodeState::Drained)]);
}

/// The heartbeats overtake the claim, as is possible with several writers.
#[tokio::test]
async fn nobody_is_drained_while_a_claim_waits_for_the_ledger() {
    let mut held = None;
    let world = World::over(|store| held.insert(ManualStore::around(store)).clone());
    let ledger = held.unwrap();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    ledger.past(heart.beat()).await.unwrap();
    ledger.past(world.publish(intent())).await;
    let engine = world.engine.clone();
    let claiming = tokio::spawn(async move { engine.claim(None, claim(), Duration::ZERO).await });
    ledger.asked().await;
    ledger.past(wish(&world.engine, 1, true)).await.unwrap();
    for _ in 0..3 {
        ledger.past(heart.beat()).await.unwrap();
        assert_eq!(states(&world.engine).await, [(1, NodeState::Draining)]);
    }
    ledger.turn().await;
    let taken = claiming.await.unwrap().unwrap().remove(0);
    ledger.past(heart.beat()).await.unwrap();
    let shown = nodes(&world.engine).await;
    assert_eq!((shown[0].state, shown[0].leases), (NodeState::Draining, 1));
    let done = Settlement::Complete { result: None };
    ledger.past(world.settle(&taken, done)).await;
    assert_eq!(states(&world.engine).await, [(1, NodeState::Drained)]);
}

#[tokio::test]
async fn a_heartbeat_undoes_no_wish_and_a_wish_makes_nobody_live_longer() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    for _ in 0..3 {
        wish(&world.engine, 1, true).await.unwrap();
        heart.beat().await.unwrap();
        assert!(world.engine.is_draining());
        heart.beat().await.unwrap();
        assert!(world.engine.is_draining());
        wish(&world.engine, 1, false).await.unwrap();
        heart.beat().await.unwrap();
        assert!(!world.engine.is_draining());
    }
    // Requests to drain and resume continue while the node is dead.
    for second in 0..30 {
        wish(&world.engine, 1, second % 2 == 0).await.unwrap();
        world.clock.advance_s(1);
    }
    assert_eq!(wish(&world.engine, 1, true).await, None);
}

#[tokio::test]
async fn a_draining_node_whose_record_was_lost_goes_on_draining() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    wish(&world.engine, 1, true).await.unwrap();
    heart.beat().await.unwrap();
    world.clock.advance_s(31);
    assert_eq!(nodes(&world.engine).await, []);
    heart.beat().await.unwrap();
    assert!(world.engine.is_draining());
    assert_eq!(states(&world.engine).await, [(1, NodeState::Drained)]);
}

#[tokio::test]
async fn the_loop_beats_every_two_seconds_until_the_server_ends() {
    let world = World::new();
    let mut heart = Heartbeat::new(world.engine.clone(), identity(1));
    heart.beat().await.unwrap();
    let end = tokio::time::sleep(Duration::from_secs(5));
    let before = world.engine.stats().commits;
    let heart = heart.run(end).await;
    assert_eq!(world.engine.stats().commits - before, 2);
    assert_eq!(nodes(&world.engine).await.len(), 1);
    heart.leave().await;
    assert_eq!(nodes(&world.engine).await, []);
}

#[tokio::test]
async fn all_nodes_of_a_ledger_have_the_secrets_of_the_first() {
    let world = World::new();
    let other = |seal, signer, main| engine_with(&world.store, &world.clock, seal, signer, main);
    assert_eq!(world.engine.compare_secrets(false).await.unwrap(), []);
    let same = other([7; 32], [9; 32], MAIN);
    assert_eq!(same.compare_secrets(false).await.unwrap(), []);
    let cases = [
        (
            other([7; 32], [9; 32], "ck_other"),
            MismatchedSecret::BusSecret,
        ),
        (other([8; 32], [9; 32], MAIN), MismatchedSecret::SealKey),
        (other([7; 32], [8; 32], MAIN), MismatchedSecret::ReceiptSeed),
    ];
    for (engine, expected) in &cases {
        assert_eq!(engine.compare_secrets(false).await.unwrap(), [*expected]);
    }
    // The change of the main key is intended.
    assert_eq!(cases[0].0.compare_secrets(true).await.unwrap(), []);
    assert_eq!(cases[0].0.compare_secrets(false).await.unwrap(), []);
    assert_eq!(
        same.compare_secrets(false).await.unwrap(),
        [MismatchedSecret::BusSecret]
    );
    let dump = world.store.dump().await.unwrap();
    let kept = &dump.records[0].value;
    for secret in [MAIN, "ck_other", &"07".repeat(32), &"09".repeat(32)] {
        assert!(!kept.contains(secret), "{kept}");
    }
}
