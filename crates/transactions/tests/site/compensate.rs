//! Compensation on request, once, with its own receipt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_transactions::rail::NullRail;
use serde_json::json;

use crate::bank::{Mood, Payment};
use crate::world::{KEY, OTHER_KEY, World, body, name, response, text_of};

async fn settled() -> World {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.execute("int_abc", KEY).await.unwrap();
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn at_070_at_072_a_settled_one_is_refunded_and_both_documents_stay() {
    let world = settled().await;
    let before = world.shown("int_abc").await["transactions"][0]["receipt"].clone();
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(answer.status, 200);
    let told = body(&answer);
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["receipt"], before);
    let undone = &told["compensation_receipt"];
    assert_eq!(undone["outcome"], "refunded");
    assert_eq!(undone["compensated_cents"], 1500);
    assert_eq!(undone["intent_id"], "int_abc");
    assert_eq!(undone["original_receipt_id"], before["receipt_id"]);
    assert!(undone["original_receipt_hash"].is_string());
    assert_eq!(undone["reason"], "user_cancelled");
    assert_eq!((world.bank.charges(), world.bank.refunds()), (1, 1));
    let replay = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(body(&replay), told, "the row as it is now");
    assert_eq!(world.shown("int_abc").await["data"]["spent_cents"], 0);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_071_undoing_changes_no_byte_of_the_receipt_wherever_it_is_read() {
    let world = settled().await;
    let executed = world.execute("int_abc", KEY).await.unwrap();
    let receipt = text_of(&executed.body, "receipt");
    let told = body(&executed);
    let id = told["receipt"]["receipt_id"].as_str().unwrap();
    let public = response(world.site.receipt_shown(id).await).unwrap();
    assert_eq!(text_of(&public.body, "receipt"), receipt);
    let listed = response(world.site.receipts_of("int_abc").await).unwrap();
    let listed = text_of(&listed.body, "receipts");
    assert_eq!(listed, format!("[{receipt}]"));

    let undone = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(text_of(&undone.body, "receipt"), receipt);
    let second = text_of(&undone.body, "compensation_receipt");
    let replay = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(text_of(&replay.body, "receipt"), receipt);
    let after = response(world.site.receipt_shown(id).await).unwrap();
    assert_eq!((after.status, after.body), (public.status, public.body));
    let listed = response(world.site.receipts_of("int_abc").await).unwrap();
    let listed = text_of(&listed.body, "receipts");
    assert_eq!(listed, format!("[{receipt},{second}]"));
    let restarted = world.other(|_| {}).await;
    let elsewhere = world.execute_at(&restarted, "int_abc", KEY).await.unwrap();
    assert_eq!(text_of(&elsewhere.body, "receipt"), receipt);
    let verified = world.site.verify(receipt.as_bytes()).await.unwrap();
    assert_eq!(body(&verified)["verification"]["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_073_the_first_request_wins_and_its_key_replays() {
    let world = settled().await;
    let first = world.compensate("int_abc", KEY).await.unwrap();
    let again = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert!(again.replayed);
    let other = world.compensate("int_abc", OTHER_KEY).await;
    assert_eq!(name(&other), "already_compensated");
    let partial = json!({"intent_id": "int_abc", "reason": "user_cancelled", "amount_cents": 1});
    let mismatch = world
        .site
        .compensate(Some(KEY.as_bytes()), partial.to_string().as_bytes())
        .await;
    assert_eq!(name(&mismatch), "idempotency_mismatch");
    assert_eq!(world.bank.refunds(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_074_many_at_once_refund_once() {
    let world = settled().await;
    let second = world.other(|_| {}).await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..8 {
        let site = if n % 2 == 0 { &world.site } else { &second }.clone();
        let key = format!("compensate-key-{n}");
        let sent = br#"{"intent_id":"int_abc","reason":"r"}"#;
        asked.spawn(async move { site.compensate(Some(key.as_bytes()), sent).await });
    }
    let answers = asked.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(world.bank.refunds(), 1);
}

/// The first request is still running, so the state alone does not show it.
#[tokio::test(flavor = "multi_thread")]
async fn at_074_while_a_refund_is_open_another_one_comes_too_late() {
    let world = settled().await;
    world.bank.be(Mood::Away);
    let first = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!((first.status, world.bank.refunds()), (202, 0));
    world.bank.be(Mood::Well);
    let second = world.compensate("int_abc", OTHER_KEY).await;
    assert_eq!(name(&second), "already_compensated");
    assert_eq!(world.bank.refunds(), 0);
    world.pass(31);
    world.site.reconcile().await.unwrap();
    let told = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(world.bank.refunds(), 1);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_064_a_refund_whose_answer_got_lost_is_finished_once() {
    let world = settled().await;
    world.bank.be(Mood::Mute);
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(answer.status, 202);
    assert_eq!(
        body(&answer)["state"],
        "settled",
        "unchanged until it is known"
    );
    world.bank.be(Mood::Well);
    let restarted = world.other(|_| {}).await;
    restarted.recover().await.unwrap();
    world.pass(31);
    restarted.reconcile().await.unwrap();
    let told = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(world.bank.refunds(), 1);
    world.is_sound().await;
}

/// The refund is not visible at the bank yet, but on its way.
#[tokio::test(flavor = "multi_thread")]
async fn at_064_a_refund_that_is_on_its_way_is_not_asked_for_again() {
    let world = settled().await;
    world.bank.hold_back("refund", "int_abc");
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(answer.status, 202);
    world.bank.hold_back_no_more();
    let restarted = world.other(|_| {}).await;
    restarted.recover().await.unwrap();
    restarted.reconcile().await.unwrap();
    assert_eq!(world.bank.refunds(), 0);
    world.bank.let_go();
    let until = Instant::now() + Duration::from_secs(20);
    while world.bank.refunds() == 0 {
        assert!(Instant::now() < until, "it never arrives");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.pass(31);
    restarted.reconcile().await.unwrap();
    let told = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(world.bank.refunds(), 1);
    world.is_sound().await;
}

/// An acknowledged payment may still complete, even if the rail does not know it.
#[tokio::test(flavor = "multi_thread")]
async fn at_068_what_the_rail_has_forgotten_is_not_called_off() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(Mood::Slow);
    world.execute("int_abc", KEY).await.unwrap();
    world.bank.forget_payments();
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    let told = body(&answer);
    assert_eq!((answer.status, &told["state"]), (202, &json!("executed")));
    assert_eq!(told["compensation_receipt"], json!(null));
    let listed = world.site.transactions_shown(None, 10, None).await;
    let alert = body(&listed.unwrap())["transactions"][0]["alert"].clone();
    assert!(alert.as_str().unwrap().contains("tx resolve"), "{alert}");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_executed_is_voided() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(Mood::Slow);
    world.execute("int_abc", KEY).await.unwrap();
    let told = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["outcome"], "voided");
    assert_eq!(
        told["compensation_receipt"]["original_receipt_id"],
        json!(null)
    );
    assert_eq!(world.bank.charges(), 0);
    world.is_sound().await;
}

/// The answer to the cancellation is lost, and the rail's callback arrives before the next attempt.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_to_nothing_meanwhile_is_not_paid_back_as_well() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(Mood::Slow);
    world.execute("int_abc", KEY).await.unwrap();
    world.bank.be(Mood::Mute);
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(answer.status, 202);
    world.bank.be(Mood::Well);
    let genuine = [("x-bank".to_owned(), "genuine".to_owned())];
    let called = world.site.callback("bank", &genuine, b"e1 pay_1").await;
    called.unwrap();
    let told = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(
        (told.status, &body(&told)["state"]),
        (200, &json!("compensated"))
    );
    assert_eq!(body(&told)["compensation_receipt"]["outcome"], "voided");
    assert_eq!((world.bank.charges(), world.bank.refunds()), (0, 0));
    world.pass(120);
    let swept = world.site.reconcile().await.unwrap();
    assert_eq!(swept.looked_at, 0, "nothing is left to check");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_refund_leaves_it_settled_and_may_be_tried_again() {
    let world = settled().await;
    world.bank.refuse_refunds();
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    let told = body(&answer);
    assert_eq!((answer.status, &told["state"]), (200, &json!("settled")));
    assert_eq!(told["failure"]["code"], "charge_disputed");
    let again = world.compensate("int_abc", OTHER_KEY).await.unwrap();
    assert_eq!(body(&again)["state"], "settled");
    let calls = world.bank.calls();
    let first = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!((first.status, &first.body), (answer.status, &answer.body));
    assert!(
        first.replayed && world.bank.calls() == calls,
        "its key still means the same request"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn at_034_a_refused_refund_leaves_the_bytes_of_the_execution_alone() {
    let world = settled().await;
    let before = world.execute("int_abc", KEY).await.unwrap();
    world.bank.refuse_refunds();
    world.compensate("int_abc", KEY).await.unwrap();
    let after = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!((after.status, after.body), (before.status, before.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_037_a_compensation_key_serves_one_transaction() {
    let world = World::new().await;
    let mut intent = world.intent("int_abc");
    intent["max_executions"] = 2.into();
    let intent = crate::world::sign(intent, &crate::world::agent());
    world.authorize(&intent, KEY).await.unwrap();
    let first = body(&world.execute("int_abc", KEY).await.unwrap());
    let undone = world.compensate("int_abc", KEY).await.unwrap();
    let second = body(&world.execute("int_abc", OTHER_KEY).await.unwrap());
    let again = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!((again.status, &again.body), (undone.status, &undone.body));
    assert_eq!(body(&again)["transaction_id"], first["transaction_id"]);
    let other =
        json!({"intent_id": "int_abc", "reason": "r", "transaction_id": second["transaction_id"]});
    let refused = world
        .site
        .compensate(Some(KEY.as_bytes()), other.to_string().as_bytes())
        .await;
    assert_eq!(name(&refused), "idempotency_mismatch");
    assert_eq!(world.bank.refunds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_its_way_is_paid_back_once_it_has_arrived() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(Mood::Slow);
    world.bank.be_firm();
    world.execute("int_abc", KEY).await.unwrap();
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(
        (answer.status, &body(&answer)["state"]),
        (202, &json!("executed"))
    );
    world.bank.end_all(Payment::Paid);
    world.site.reconcile().await.unwrap();
    let told = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["reason"], "user_cancelled");
    assert_eq!((world.bank.charges(), world.bank.refunds()), (1, 1));
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_does_not_end_what_is_being_undone() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.bank.be(Mood::Slow);
    world.execute("int_abc", KEY).await.unwrap();
    world.bank.be(Mood::Mute);
    let answer = world.compensate("int_abc", KEY).await.unwrap();
    assert_eq!(answer.status, 202, "cancelled, and the answer got lost");
    world.bank.be(Mood::Well);
    // A callback checks the transaction first, and then its compensation.
    let genuine = [("x-bank".to_owned(), "genuine".to_owned())];
    let heard = world.site.callback("bank", &genuine, b"e1 pay_1");
    heard.await.unwrap();
    let told = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!(told["compensation_receipt"]["reason"], "user_cancelled");
    assert_eq!(world.bank.refunds(), 0);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_rail_neither_settles_nor_refunds_what_was_begun_on_this_one() {
    let world = World::new().await;
    let null = world
        .other(|options| options.rail = Arc::new(NullRail))
        .await;
    world.authorized("int_abc").await;
    world.bank.be(Mood::Away);
    world.execute("int_abc", KEY).await.unwrap();
    null.reconcile().await.unwrap();
    let shown = world.shown("int_abc").await;
    assert_eq!(shown["transactions"][0]["state"], "executing");
    world.bank.be(Mood::Well);
    world.pass(120);
    world.site.reconcile().await.unwrap();
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "settled");

    world.bank.be(Mood::Away);
    world.compensate("int_abc", KEY).await.unwrap();
    null.reconcile().await.unwrap();
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "settled", "nothing went back");
    world.bank.be(Mood::Well);
    world.pass(120);
    world.site.reconcile().await.unwrap();
    let told = body(&world.execute("int_abc", KEY).await.unwrap());
    assert_eq!(told["state"], "compensated");
    assert_eq!((world.bank.charges(), world.bank.refunds()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_an_effect_is_compensated() {
    let world = World::new().await;
    world.create(&world.signed("int_abc")).await.unwrap();
    assert_eq!(
        name(&world.compensate("int_abc", KEY).await),
        "invalid_state"
    );
    assert_eq!(
        name(&world.compensate("int_none", KEY).await),
        "intent_not_found"
    );
    world.pass(600);
    assert_eq!(
        name(&world.compensate("int_abc", KEY).await),
        "intent_expired"
    );
    let world = settled().await;
    let part = json!({"intent_id": "int_abc", "reason": "r", "amount_cents": 1}).to_string();
    let refused = world
        .site
        .compensate(Some(KEY.as_bytes()), part.as_bytes())
        .await;
    assert_eq!(name(&refused), "partial_compensation_unsupported");
}
