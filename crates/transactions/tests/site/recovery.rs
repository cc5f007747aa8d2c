//! A process that died: its leased rows are recovered, at once or later.

use std::time::{Duration, Instant};

use consign_engine::{Heartbeat, NodeIdentity, NodeState, Operator, Timekeeper};
use consign_kernel::state::State;
use consign_transactions::problem::Problem;

use crate::bank::{Mood, Payment};
use crate::world::{KEY, World, body};

/// The bank delays the process while it dies: the next start takes its lease.
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

/// The caller requests a payment, and loses its lease before the rail receives the request. The next driver requests it
/// again, so there are two payments: the last driver cancels the unpaid one.
async fn prepared_twice(ends_first: bool) {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.hold_back("prepare", "int_abc");
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "executing");
    world.bank.wait_for_held_back(1).await;
    world.bank.hold_back_no_more();
    world.pass(61);
    let second = world.other(|_| {}).await;
    if ends_first {
        second.reconcile().await.unwrap();
        assert_eq!(world.shown("int_abc").await["state"], "settled");
        assert_eq!(world.bank.payments(), [Payment::Paid]);
        world.bank.let_go();
    } else {
        // The second driver is about to confirm when the first one's payment appears.
        world.bank.be(Mood::Slow);
        second.reconcile().await.unwrap();
        assert_eq!(world.bank.payments(), [Payment::Processing]);
        world.bank.let_go();
        world.wait_for_payments(2).await;
        world.bank.be(Mood::Well);
        world.bank.end_all(Payment::Paid);
        world.pass(61);
        second.reconcile().await.unwrap();
    }
    world.wait_until("int_abc", "settled").await;
    let until = Instant::now() + Duration::from_secs(20);
    while world.bank.payments() != [Payment::Paid, Payment::Cancelled] {
        let payments = world.bank.payments();
        assert!(Instant::now() < until, "it was not cancelled: {payments:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.bank.charges(), 1);
    let receipts = body(&world.site.receipts_of("int_abc").await.unwrap());
    assert_eq!(receipts["receipts"].as_array().unwrap().len(), 1);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_061_a_payment_that_was_prepared_too_late_is_called_off_by_who_asked_for_it() {
    prepared_twice(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_061_a_second_payment_is_called_off_when_the_first_has_settled() {
    prepared_twice(false).await;
}

/// A cancellation covers all payments of a transaction, so it must wait until the right one is paid.
#[tokio::test(flavor = "multi_thread")]
async fn at_061_who_comes_late_does_not_call_off_what_another_is_about_to_confirm() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.hold_back("prepare", "int_abc");
    world.execute("int_abc", KEY).await.unwrap();
    world.bank.wait_for_held_back(1).await;
    world.bank.hold_back("confirm", "int_abc");
    world.pass(61);
    let second = world.other(|_| {}).await;
    let sweeping = tokio::spawn(async move { second.reconcile().await });
    world.bank.wait_for_held_back(2).await;
    assert_eq!(world.bank.payments(), [Payment::Prepared]);
    world.bank.let_go_one();
    world.wait_for_payments(2).await;
    // Long enough for the first driver to notice that its lease is lost.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.bank.payments(), [Payment::Prepared; 2]);
    world.bank.let_go();
    sweeping.await.unwrap().unwrap();
    assert_eq!(world.shown("int_abc").await["state"], "settled");
    assert_eq!(world.bank.payments(), [Payment::Paid, Payment::Cancelled]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_wakes_by_itself_when_something_is_due() {
    let world = World::with(|options| {
        options.sweep = std::time::Duration::from_millis(200);
    })
    .await;
    let sweeping = tokio::spawn(world.site.clone().sweep_forever());
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

/// A request is executed by the node that received it; the rest is left to other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_serves_requests_and_sweeps_nothing_until_it_is_resumed() {
    let world = World::with(|options| options.sweep = Duration::from_millis(100)).await;
    let identity = NodeIdentity {
        id: 1,
        name: "only".to_owned(),
        address: String::new(),
        version: String::new(),
        alone: true,
    };
    let mut heart = Heartbeat::new(world.engine.clone(), identity);
    heart.beat().await.unwrap();
    let sweeping = tokio::spawn(world.site.clone().sweep_forever());
    let timekeeper = Timekeeper::new(world.engine.clone());
    let keeping = tokio::spawn(timekeeper.run(std::future::pending(), || {}));
    let drain = |drain| world.engine.drain_node(Operator::vouched(), 1, drain);
    drain(true).await.unwrap();
    heart.beat().await.unwrap();
    for id in ["int_abc", "int_def"] {
        world.authorized(id).await;
    }
    world.bank.be(Mood::Away);
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "executing");
    world.bank.be(Mood::Well);
    let told = body(&world.execute("int_def", KEY).await.unwrap());
    assert_eq!(told["state"], "settled");
    // Several times as long as it takes otherwise.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(world.shown("int_abc").await["state"], "executing");
    heart.beat().await.unwrap();
    let nodes = world.engine.nodes(Operator::vouched()).await.unwrap();
    assert_eq!((nodes[0].state, nodes[0].leases), (NodeState::Drained, 0));

    drain(false).await.unwrap();
    heart.beat().await.unwrap();
    world.wait_until("int_abc", "settled").await;
    assert_eq!(world.bank.charges(), 2);
    sweeping.abort();
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_061_a_node_with_a_wrong_clock_takes_no_transaction_by_its_name_either() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.hold_back("prepare", "int_abc");
    world.execute("int_abc", KEY).await.unwrap();
    world.bank.wait_for_held_back(1).await;
    world.bank.hold_back_no_more();
    let fast = world.other(|_| {}).await;
    // By its clock the first lease has expired.
    world.engine.set_wrong_clock(true);
    world.pass(61);
    let refused = fast.reconcile().await.unwrap_err();
    assert!(matches!(refused, Problem::StoreUnavailable), "{refused}");
    assert_eq!(world.bank.payments(), []);
    world.engine.set_wrong_clock(false);
    fast.reconcile().await.unwrap();
    assert_eq!(world.shown("int_abc").await["state"], "settled");
    world.bank.let_go();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_101_every_transition_is_kept_once_in_legal_order() {
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
