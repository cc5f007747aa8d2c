//! A waiting claim is woken at once by every change that makes a row claimable.
//!
//! Time does not advance during the wait, so an intermediate poll cannot find the intent.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, Operator, Timekeeper};
use consign_kernel::command::{Admit, Answer, Claim, Command, NewIntent, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::SECOND_US;
use consign_kernel::intent::Intent;
use consign_kernel::state::State;
use consign_store::TypedReads as _;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::manual_store::ManualStore;
use crate::world::{Frozen, World, claim, intent, woken};

const WAIT: Duration = Duration::from_secs(30);

fn waiting(world: &World, claim: Claim) -> JoinHandle<Vec<Intent>> {
    let engine = world.engine.clone();
    tokio::spawn(async move { engine.claim(None, claim, WAIT).await.unwrap() })
}

async fn until_waiting(world: &World, lanes: usize) {
    while world.engine.waiters() < lanes {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_publish_wakes_a_waiting_claim_at_once() {
    let _frozen = Frozen::new();
    let world = World::new();
    let waiter = waiting(&world, claim());
    until_waiting(&world, 2).await;
    let id = world.publish(intent()).await;
    assert_eq!(woken(waiter).await[0].id, id);
    assert_eq!(world.engine.waiters(), 0, "nobody is left in line");
}

#[tokio::test(start_paused = true)]
async fn a_publish_for_somebody_else_wakes_nobody_and_the_wait_ends_empty() {
    let frozen = Frozen::new();
    let world = World::new();
    let waiter = waiting(
        &world,
        Claim {
            worker_id: Some("w1".to_owned()),
            ..claim()
        },
    );
    until_waiting(&world, 4).await;
    let before = Instant::now();
    world
        .publish(NewIntent {
            target: Some("w2".to_owned()),
            ..intent()
        })
        .await;
    drop(frozen);
    assert!(waiter.await.unwrap().is_empty());
    assert!(before.elapsed() >= WAIT);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_delay_a_retry_and_a_lease_wake_a_waiting_claim() {
    let _frozen = Frozen::new();
    let world = World::new();
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    let id = world
        .publish(NewIntent {
            delay_us: 10 * SECOND_US,
            ..intent()
        })
        .await;
    for (attempt, advance_s) in [(1, 11), (2, 15), (3, 61)] {
        let waiter = waiting(&world, claim());
        until_waiting(&world, 2).await;
        world.clock.advance_s(advance_s);
        timekeeper.tick().await.unwrap();
        let found = woken(waiter).await;
        assert_eq!((found[0].id, found[0].attempts), (id, attempt));
        if attempt == 1 {
            world
                .settle(
                    &found[0],
                    Settlement::Fail {
                        error: "again".to_owned(),
                    },
                )
                .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_one_of_many_waiters_gets_exactly_one_of_many_intents() {
    let _frozen = Frozen::new();
    let world = World::new();
    let waiters: Vec<_> = (0..50).map(|_| waiting(&world, claim())).collect();
    until_waiting(&world, 100).await;
    let mut published = Vec::new();
    for _ in 0..50 {
        published.push(world.publish(intent()).await);
    }
    let mut claimed = Vec::new();
    for waiter in waiters {
        claimed.extend(woken(waiter).await.into_iter().map(|intent| intent.id));
    }
    // Ids of the same instant are ordered by admission only within one commit.
    claimed.sort();
    published.sort();
    assert_eq!(claimed, published);
}

/// Executes all requests in order.
fn carried_out(ledger: &Arc<ManualStore>) -> JoinHandle<()> {
    let ledger = Arc::clone(ledger);
    tokio::spawn(async move {
        loop {
            ledger.turn().await;
        }
    })
}

async fn publish_together(world: &World, count: usize) {
    let admit = Admit {
        items: vec![intent(); count],
        cap: None,
    };
    let admitted = world.engine.apply(None, Command::Admit(admit)).await;
    assert!(matches!(admitted, Ok(Answer::Admitted(rows)) if rows.len() == count));
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_another_node_told_of_once_reaches_every_waiter() {
    let _frozen = Frozen::new();
    let mut far = None;
    let world = World::over(|store| far.insert(ManualStore::far_from(store)).clone());
    let carrying = carried_out(&far.unwrap());
    let waiters: Vec<_> = (0..50).map(|_| waiting(&world, claim())).collect();
    until_waiting(&world, 100).await;
    publish_together(&world, 50).await;
    for waiter in waiters {
        assert_eq!(woken(waiter).await.len(), 1);
    }
    carrying.abort();
}

#[tokio::test(start_paused = true)]
async fn who_finds_nothing_wakes_nobody_else() {
    let _frozen = Frozen::new();
    let mut far = None;
    let world = World::over(|store| far.insert(ManualStore::far_from(store)).clone());
    let carrying = carried_out(&far.unwrap());
    let mut waiters = JoinSet::new();
    for _ in 0..50 {
        let engine = world.engine.clone();
        waiters.spawn(async move { engine.claim(None, claim(), WAIT).await.unwrap() });
    }
    until_waiting(&world, 100).await;
    // Every waiter has queried the store once before the first intent is published.
    while world.engine.stats().requests < 50 {
        tokio::task::yield_now().await;
    }
    publish_together(&world, 3).await;
    for _ in 0..3 {
        let found = waiters.join_next().await.unwrap().unwrap();
        assert_eq!(found.len(), 1);
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let looks = world.engine.stats().requests - 51;
    // The commit wakes one waiter and each successful claim wakes two. PostgreSQL wakes one more for each row that a claim
    // locked and did not take.
    assert!((3..=12).contains(&looks), "{looks} looks of 50");
    carrying.abort();
}

#[tokio::test]
async fn the_timekeeper_naps_until_the_next_deadline_and_is_poked_by_an_earlier_one() {
    let world = World::new();
    let mut timekeeper = Timekeeper::new(world.engine.clone());
    assert_eq!(timekeeper.tick().await.unwrap(), Duration::from_secs(1));
    world
        .publish(NewIntent {
            delay_us: SECOND_US / 2,
            ..intent()
        })
        .await;
    assert_eq!(timekeeper.tick().await.unwrap(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_key_revoked_while_it_waits_takes_nothing_more() {
    let _frozen = Frozen::new();
    let world = World::new();
    let (key, caller) = world.tester().await;
    let engine = world.engine.clone();
    let public = Claim {
        holder: key.id.clone(),
        ..claim()
    };
    let gate = caller.gate(None, 1);
    let waiter = tokio::spawn(async move { engine.claim(gate, public, WAIT).await });
    until_waiting(&world, 2).await;
    world
        .engine
        .revoke_key(Operator::vouched(), &key.id)
        .await
        .unwrap();
    let id = world
        .publish(NewIntent {
            public: true,
            ..intent()
        })
        .await;
    let refused = woken(waiter).await.unwrap_err();
    assert!(
        matches!(refused, Error::Refused(Refusal::UnknownKey)),
        "{refused}"
    );
    let stored = world.store.intent(id).await.unwrap().unwrap();
    assert_eq!(
        stored.state,
        State::Queued,
        "it waits for somebody with a key"
    );
}

#[tokio::test]
async fn looking_again_while_waiting_takes_nothing_of_the_allowance() {
    let world = World::new();
    let (_, caller) = world.tester().await;
    for _ in 0..100 {
        world.engine.pass(caller.gate(None, 0)).await.unwrap();
    }
    assert_eq!(
        world.engine.keys(Operator::vouched()).await.unwrap()[0].total_requests,
        0
    );
}
