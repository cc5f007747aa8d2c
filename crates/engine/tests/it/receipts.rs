//! Receipts: one per settlement, with identical bytes for every request.

use std::time::Duration;

use consign_engine::{Error, Operator};
use consign_kernel::command::Settlement;
use consign_kernel::ids::SECOND_US;
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use consign_kernel::profile::Face;
use consign_kernel::receipt::verify;
use consign_store::TypedReads as _;

use crate::world::{World, claim, intent};

async fn claimed(world: &World) -> Intent {
    world
        .engine
        .claim(None, claim(), Duration::ZERO)
        .await
        .unwrap()
        .remove(0)
}

#[tokio::test]
async fn a_receipt_is_the_same_whoever_asks_however_often_and_verifies_offline() {
    let world = World::new();
    let id = world.publish(intent()).await;
    let held = claimed(&world).await;
    assert!(matches!(
        world.engine.receipt(&held).await,
        Err(Error::NotSettled)
    ));
    let result = Some(Outcome {
        kind: ResultKind::Json,
        body: "{\"ok\":true}".to_owned(),
    });
    world.settle(&held, Settlement::Complete { result }).await;
    let done = world.engine.observe(id).await.unwrap().unwrap();
    let (one, two) = tokio::join!(world.engine.receipt(&done), world.engine.receipt(&done));
    let receipt = one.unwrap();
    assert_eq!(receipt, two.unwrap());
    world.clock.advance_s(3_600);
    assert_eq!(receipt, world.engine.receipt(&done).await.unwrap());
    let verified = verify(&receipt, &world.engine.public_keys()).unwrap();
    assert_eq!(
        (verified.statement.intent, verified.statement.state.as_str()),
        (id.to_string(), "fulfilled")
    );
}

#[tokio::test]
async fn a_settlement_reached_again_after_an_operator_s_retry_has_a_receipt_of_its_own() {
    let world = World::new();
    let id = world.publish(intent()).await;
    world
        .engine
        .cancel(Operator::vouched(), Face::Intent, id, "no")
        .await
        .unwrap();
    let dead = world.engine.observe(id).await.unwrap().unwrap();
    let first = world.engine.receipt(&dead).await.unwrap();
    world
        .engine
        .requeue(Operator::vouched(), Face::Intent, id, "yes")
        .await
        .unwrap();
    let held = claimed(&world).await;
    world
        .settle(&held, Settlement::Complete { result: None })
        .await;
    let done = world.engine.observe(id).await.unwrap().unwrap();
    let second = world.engine.receipt(&done).await.unwrap();
    assert_ne!(first, second);
    let keys = world.engine.public_keys();
    assert_eq!(verify(&first, &keys).unwrap().statement.state, "dead");
    assert_eq!(verify(&second, &keys).unwrap().statement.state, "fulfilled");
}

#[tokio::test]
async fn a_receipt_for_a_row_read_before_an_operator_settled_it_anew_tells_of_one_settlement_only()
{
    let world = World::new();
    let id = world.publish(intent()).await;
    let held = claimed(&world).await;
    let error = "no luck".to_owned();
    world.settle(&held, Settlement::Fail { error }).await;
    let cancel = || async {
        world.clock.advance_s(1);
        world
            .engine
            .cancel(Operator::vouched(), Face::Intent, id, "no")
            .await
            .unwrap();
        world.engine.observe(id).await.unwrap().unwrap()
    };
    let first = cancel().await;
    let requeued = world
        .engine
        .requeue(Operator::vouched(), Face::Intent, id, "yes");
    requeued.await.unwrap();
    let second = cancel().await;
    assert_ne!(first.attempts, second.attempts);
    let receipt = world.engine.receipt(&first).await.unwrap();
    let statement = verify(&receipt, &world.engine.public_keys())
        .unwrap()
        .statement;
    assert_eq!(statement.attempts, second.attempts);
    assert_eq!(Some(statement.settled_at), second.settled_at.map(|at| at.0));
    assert_eq!(receipt, world.engine.receipt(&second).await.unwrap());
}

#[tokio::test]
async fn s7_a_receipt_and_its_facts_show_the_wall_clock_of_each_moment() {
    let world = World::new();
    // The clock is an hour behind at admission, is then corrected, and later runs ahead.
    world.clock.set_wall_ahead_s(-3_600);
    let admitted_at = world.clock.unix_s() - 3_600;
    let id = world.publish(intent()).await;
    world.clock.set_wall_ahead_s(0);
    world.clock.advance_s(5);
    let held = claimed(&world).await;
    world.clock.set_wall_ahead_s(7_200);
    let settled_at = world.clock.unix_s() + 7_200;
    world
        .settle(&held, Settlement::Complete { result: None })
        .await;
    let done = world.engine.observe(id).await.unwrap().unwrap();
    // The wall clock at the creation of the receipt has no effect.
    world.clock.set_wall_ahead_s(-86_400);
    let receipt = world.engine.receipt(&done).await.unwrap();
    let statement = verify(&receipt, &world.engine.public_keys())
        .unwrap()
        .statement;
    assert_eq!(statement.created_at / SECOND_US, admitted_at);
    assert_eq!(statement.settled_at / SECOND_US, settled_at);
    let facts = world.store.facts(done.seq, 10).await.unwrap();
    let shown: Vec<i64> = facts
        .iter()
        .map(|fact| fact.time_of_day().0 / SECOND_US)
        .collect();
    let claimed_at = settled_at - 7_200;
    assert_eq!(shown, [admitted_at, claimed_at, settled_at]);
    assert!(
        facts.is_sorted_by_key(|fact| fact.at),
        "engine time orders them"
    );
}
