//! Transactions when the rail is unreachable, late, slow, silent or declines.

use std::time::Duration;

use consign_kernel::record::Kind;
use serde_json::Value;

use crate::bank::{Mood, Payment};
use crate::world::{KEY, World, agent, body, name, sign};

async fn mood(mood: Mood) -> (World, Value) {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(mood);
    let answer = world.execute("int_abc", KEY).await.unwrap();
    let told = body(&answer);
    let ended = matches!(told["state"].as_str(), Some("settled" | "compensated"));
    assert_eq!(answer.status, if ended { 200 } else { 202 });
    assert_eq!(answer.retry_after_s(), (!ended).then_some(1));
    (world, told)
}

/// The state after the sweep.
async fn swept(world: &World) -> Value {
    world.pass(60);
    world.site.reconcile().await.unwrap();
    world.is_sound().await;
    body(&world.execute("int_abc", KEY).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_048_a_decline_ends_compensated_without_a_charge() {
    let (world, told) = mood(Mood::Declines).await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["receipt"], Value::Null);
    assert_eq!(told["failure"]["code"], "card_declined");
    let receipt = &told["compensation_receipt"];
    assert_eq!(receipt["type"], "atp.compensation.v1");
    assert_eq!(receipt["outcome"], "not_charged");
    assert_eq!(receipt["compensated_cents"], 0);
    assert_eq!(receipt["previous_state"], "executing");
    assert_eq!(world.bank.charges(), 0);
    let verified = world.site.verify(receipt.to_string().as_bytes()).await;
    assert_eq!(body(&verified.unwrap())["verification"]["ok"], true);
    assert_eq!(world.shown("int_abc").await["data"]["spent_cents"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_046_at_049_a_rail_that_is_away_leaves_it_executing_and_is_asked_again() {
    let (world, told) = mood(Mood::Away).await;
    assert_eq!(told["state"], "executing");
    assert_eq!(told["receipt"], Value::Null);
    assert_eq!(swept(&world).await["state"], "executing");
    world.bank.be(Mood::Well);
    assert_eq!(swept(&world).await["state"], "settled");
    assert_eq!(world.bank.charges(), 1);
}

/// A rail that is gone never answers; then an operator may decide.
#[tokio::test(flavor = "multi_thread")]
async fn at_068_of_a_rail_that_stays_silent_a_person_may_say_what_became() {
    let (world, told) = mood(Mood::Away).await;
    let id = told["transaction_id"].as_str().unwrap().to_owned();
    let said = br#"{"outcome":"not_charged","reason":"the rail is no more"}"#;
    let early = world.site.resolve(&id, said).await;
    assert_eq!(name(&early), "invalid_state");
    for _ in 0..10 {
        assert_eq!(swept(&world).await["state"], "executing");
    }
    let listed = world.site.transactions_shown(None, 10, None).await;
    let alert = body(&listed.unwrap())["transactions"][0]["alert"].clone();
    assert!(alert.as_str().unwrap().contains("tx resolve"), "{alert}");
    world.site.resolve(&id, said).await.unwrap();
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["resolved_by"], "operator");
    assert_eq!(world.bank.charges(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_050_a_lost_answer_is_found_by_the_sweep() {
    let (world, told) = mood(Mood::Mute).await;
    assert_eq!(told["state"], "executing");
    world.bank.be(Mood::Well);
    assert_eq!(swept(&world).await["state"], "settled");
    assert_eq!(world.bank.charges(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_047_at_051_at_053_at_054_at_057_a_callback_is_a_hint_to_look() {
    let (world, told) = mood(Mood::Slow).await;
    assert_eq!(told["state"], "executed");
    assert_eq!(told["receipt"], Value::Null);
    let genuine = [("x-bank".to_owned(), "genuine".to_owned())];
    let forged = [("x-bank".to_owned(), "forged".to_owned())];
    let call = async |headers: &[(String, String)], event: &str| {
        let message = format!("{event} pay_1");
        world
            .site
            .callback("bank", headers, message.as_bytes())
            .await
    };
    assert_eq!(name(&call(&forged, "e0").await), "invalid_signature");
    // The callback claims success, and nothing happened.
    call(&genuine, "e1").await.unwrap();
    assert_eq!(world.shown("int_abc").await["state"], "executed");
    world.bank.be(Mood::Well);
    world.bank.end_all(Payment::Paid);
    call(&genuine, "e2").await.unwrap();
    let settled = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(body(&settled)["state"], "settled");
    for event in ["e1", "e2", "e3"] {
        call(&genuine, event).await.unwrap();
    }
    let again = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(again.body, settled.body);
    let unknown = world.site.callback("bank", &genuine, b"e9 pay_9").await;
    unknown.unwrap();
    let other = world.site.callback("other", &genuine, b"e9 pay_9").await;
    assert_eq!(name(&other), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_058_a_late_failure_ends_compensated() {
    let (world, told) = mood(Mood::Slow).await;
    assert_eq!(told["state"], "executed");
    world.bank.be(Mood::Well);
    world.bank.end_all(Payment::Failed);
    let ended = swept(&world).await;
    assert_eq!(ended["state"], "compensated");
    assert_eq!(ended["compensation_receipt"]["outcome"], "voided");
    assert_eq!(world.bank.charges(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_captured() {
    let (world, told) = mood(Mood::Holds).await;
    assert_eq!(told["state"], "settled");
    assert_eq!(world.bank.charges(), 1);
}

/// A callback and a sweep at once: both have called the rail before either gets the answer, and the first lease has expired
/// by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_052_a_callback_and_the_sweep_at_once_settle_once() {
    const ROUNDS: usize = 8;
    let world = World::new().await;
    let second = world.other(|_| {}).await;
    for round in 1..=ROUNDS {
        let id = format!("int_{round}");
        world.bank.be(Mood::Slow);
        world.authorized(&id).await;
        world.execute(&id, KEY).await.unwrap();
        world.bank.be(Mood::Well);
        world.bank.end_all(Payment::Paid);
        world.bank.hold_back("look_up", &id);
        let sweep = {
            let site = second.clone();
            async move { site.reconcile().await.map(|_| ()) }
        };
        let call = {
            let site = world.site.clone();
            async move {
                let genuine = [("x-bank".to_owned(), "genuine".to_owned())];
                let message = format!("e{round} pay_{round}");
                site.callback("bank", &genuine, message.as_bytes()).await
            }
        };
        let mut looks = tokio::task::JoinSet::new();
        // They alternate in which one is first.
        if round % 2 == 0 {
            looks.spawn(sweep);
            world.bank.wait_for_held_back(1).await;
            world.pass(61);
            looks.spawn(call);
        } else {
            looks.spawn(call);
            world.bank.wait_for_held_back(1).await;
            world.pass(61);
            looks.spawn(sweep);
        }
        world.bank.wait_for_held_back(2).await;
        world.bank.let_go();
        for looked in looks.join_all().await {
            looked.unwrap();
        }
        let told = world.execute(&id, KEY).await.unwrap();
        assert_eq!(body(&told)["state"], "settled");
        let receipts = body(&world.site.receipts_of(&id).await.unwrap());
        assert_eq!(receipts["receipts"].as_array().unwrap().len(), 1);
        let dump = world.ledger.store.dump().await.unwrap();
        let settled = dump.facts.iter().filter(|fact| fact.to.name() == "acked");
        assert_eq!(settled.count(), round, "one transition each");
        let signed = dump.records.iter();
        let signed = signed.filter(|one| one.key.kind == Kind::SignedReceipt);
        assert_eq!(signed.count(), round, "one receipt each");
    }
    assert_eq!(world.bank.charges(), ROUNDS);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_067_at_068_what_cannot_be_resolved_stays_however_late() {
    let (world, _) = mood(Mood::Mute).await;
    world.bank.be(Mood::Away);
    world.pass(8 * 86_400);
    let told = swept(&world).await;
    assert_eq!(told["state"], "executing");
    assert_eq!(world.shown("int_abc").await["state"], "executing");
    world.bank.be(Mood::Well);
    assert_eq!(swept(&world).await["state"], "settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_expiry_nothing_is_set_in_motion() {
    let (world, _) = mood(Mood::Away).await;
    world.bank.be(Mood::Well);
    world.pass(601);
    assert_eq!(
        swept(&world).await["state"],
        "executing",
        "asked again first"
    );
    let told = swept(&world).await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["outcome"], "not_charged");
    assert_eq!(world.bank.charges(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_100_another_amount_at_the_rail_is_not_settled() {
    let (world, told) = mood(Mood::Wrong).await;
    assert_eq!(told["state"], "executing");
    assert_eq!(swept(&world).await["state"], "executing");
    assert_eq!(told["receipt"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_077_at_075_what_is_executing_is_neither_cancelled_nor_compensated() {
    let (world, _) = mood(Mood::Away).await;
    for refused in [
        world.cancel("int_abc").await,
        world.compensate("int_abc", KEY).await,
    ] {
        let problem = refused.unwrap_err();
        assert_eq!((problem.status(), problem.name()), (409, "invalid_state"));
        let told = serde_json::to_value(&problem).unwrap();
        assert_eq!(told["state"], "executing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_102_one_that_is_stuck_delays_no_other() {
    let (world, _) = mood(Mood::Away).await;
    world.bank.be(Mood::Well);
    let other = sign(world.intent("int_other"), &agent());
    world.authorize(&other, KEY).await.unwrap();
    let told = body(&world.execute("int_other", KEY).await.unwrap());
    assert_eq!(told["state"], "settled");
    assert_eq!(world.shown("int_abc").await["state"], "executing");
}

/// Only the rail can end the first one, which hangs during the check.
#[tokio::test(flavor = "multi_thread")]
async fn at_102_one_whose_rail_hangs_holds_up_no_other_in_the_sweep() {
    let world = World::with(|options| options.sweep = Duration::from_millis(100)).await;
    let sweeping = tokio::spawn(world.site.clone().sweep_forever());
    let timekeeper = consign_engine::Timekeeper::new(world.engine.clone());
    let keeping = tokio::spawn(timekeeper.run(std::future::pending(), || {}));
    world.bank.hold_back("look_up", "int_stuck");
    world.bank.be(Mood::Away);
    world.authorized("int_stuck").await;
    world.execute("int_stuck", KEY).await.unwrap();
    world.bank.wait_for_held_back(1).await;
    for id in ["int_second", "int_third"] {
        world.bank.be(Mood::Away);
        world.authorized(id).await;
        let told = body(&world.execute(id, KEY).await.unwrap());
        assert_eq!(told["state"], "executing");
        world.bank.be(Mood::Well);
        world.wait_until(id, "settled").await;
    }
    assert_eq!(world.shown("int_stuck").await["state"], "executing");
    world.bank.let_go();
    world.wait_until("int_stuck", "settled").await;
    assert_eq!(world.bank.charges(), 3);
    sweeping.abort();
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_102_a_sweep_by_hand_looks_at_all_the_others_while_one_hangs() {
    let world = World::new().await;
    // More than are checked concurrently.
    let others: Vec<String> = (0..20).map(|n| format!("int_{n}")).collect();
    world.bank.be(Mood::Away);
    for id in ["int_stuck"]
        .into_iter()
        .chain(others.iter().map(String::as_str))
    {
        world.authorized(id).await;
        world.execute(id, KEY).await.unwrap();
    }
    world.bank.be(Mood::Well);
    world.bank.hold_back("look_up", "int_stuck");
    let site = world.site.clone();
    let sweeping = tokio::spawn(async move { site.reconcile().await });
    for id in &others {
        world.wait_until(id, "settled").await;
    }
    assert_eq!(world.shown("int_stuck").await["state"], "executing");
    world.bank.wait_for_held_back(1).await;
    world.bank.let_go();
    let swept = sweeping.await.unwrap().unwrap();
    assert_eq!((swept.looked_at, swept.settled), (21, 21));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_found_is_called_off_before_it_counts_as_not_charged() {
    let (world, told) = mood(Mood::Away).await;
    world.bank.be(Mood::Well);
    world.pass(601);
    swept(&world).await;
    world
        .bank
        .prepare_when_cancelled(told["rail"]["reference"].as_str().unwrap());
    let told = swept(&world).await;
    assert_eq!(told["state"], "compensated");
    assert_eq!(
        world.bank.payments(),
        [Payment::Cancelled],
        "the late payment can no longer succeed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_may_name_our_reference() {
    let (world, told) = mood(Mood::Away).await;
    let reference = told["rail"]["reference"].as_str().unwrap();
    assert_eq!(told["rail"]["payment_id"], Value::Null);
    world.bank.be(Mood::Well);
    let genuine = [("x-bank".to_owned(), "genuine".to_owned())];
    let message = format!("e1 {reference}");
    let heard = world.site.callback("bank", &genuine, message.as_bytes());
    heard.await.unwrap();
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_034_learning_the_payments_name_changes_no_byte_while_it_executes() {
    let (world, _) = mood(Mood::Away).await;
    let before = world.execute("int_abc", KEY).await.unwrap();
    world.bank.be(Mood::Wrong);
    swept(&world).await;
    let after = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(after.body, before.body);
    let listed = world
        .site
        .transactions_shown(Some("executing"), 1, None)
        .await;
    let listed = body(&listed.unwrap());
    assert_eq!(listed["transactions"][0]["rail"]["payment_id"], "pay_1");
}
