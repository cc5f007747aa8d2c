//! A process that died: what it held is found again, where it was or later.

use consign_kernel::state::State;

use crate::bank::{Mood, Payment};
use crate::world::{KEY, World, body};

/// The bank keeps the process waiting while it dies: its lease is taken from it by the next start.
async fn died(mood: Mood) -> World {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(mood);
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "executing");
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn at_060_at_062_at_065_the_next_start_finds_what_was_paid() {
    for mood in [Mood::Away, Mood::Mute] {
        let world = died(mood).await;
        world.bank.be(Mood::Well);
        let restarted = world.other(|_| {}).await;
        restarted.recover().await.unwrap();
        restarted.reconcile().await.unwrap();
        let told = body(&world.execute("int_abc", KEY).await.unwrap());
        assert_eq!(told["state"], "settled", "{mood:?}");
        assert_eq!(world.bank.charges(), 1);
        world.is_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_061_a_payment_whose_id_was_lost_is_found_by_its_reference() {
    let world = died(Mood::Away).await;
    let told = world.shown("int_abc").await;
    let reference = told["transactions"][0]["rail"]["reference"]
        .as_str()
        .unwrap();
    world.bank.prepare_unnoticed(reference);
    world.bank.be(Mood::Well);
    world.pass(60);
    world.site.reconcile().await.unwrap();
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "settled");
    assert_eq!(world.bank.payments(), [Payment::Paid]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_wakes_by_itself_when_something_is_due() {
    let world = World::with(|options| {
        options.sweep = std::time::Duration::from_millis(200);
    })
    .await;
    let sweeping = tokio::spawn(world.site.clone().sweep_for_ever());
    let timekeeper = consign_engine::Timekeeper::new(world.engine.clone());
    let keeping = tokio::spawn(timekeeper.run(std::future::pending(), || {}));
    world.authorized("int_abc").await;
    world.bank.be(Mood::Away);
    world.execute("int_abc", KEY).await.unwrap();
    world.bank.be(Mood::Well);
    let mut state = String::new();
    for _ in 0..300 {
        let shown = world.shown("int_abc").await;
        state = shown["state"].as_str().unwrap().to_owned();
        if state == "settled" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(state, "settled");
    assert_eq!(world.bank.charges(), 1);
    sweeping.abort();
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_101_every_transition_is_told_once_in_legal_order() {
    let world = died(Mood::Mute).await;
    world.bank.be(Mood::Well);
    world.pass(60);
    world.site.reconcile().await.unwrap();
    world.compensate("int_abc", KEY).await.unwrap();
    let dump = world.ledger.store.dump().await.unwrap();
    let transaction = dump
        .intents
        .iter()
        .find(|row| row.payload != "{}" && row.ties.parent.is_none())
        .unwrap();
    let moves: Vec<_> = dump
        .facts
        .iter()
        .filter(|fact| fact.intent == transaction.seq && fact.from != Some(fact.to))
        .map(|fact| fact.to)
        .collect();
    let expected = [
        State::Dispatched,
        State::Delivered,
        State::Acked,
        State::Failed,
    ];
    assert_eq!(moves, expected);
}
