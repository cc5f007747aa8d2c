//! One effect per key, and always the same answer.

use consign_transactions::envelope::RequestOperation;
use serde_json::json;

use crate::world::{KEY, OTHER_KEY, World, agent, body, name, request, response, sign};

#[tokio::test(flavor = "multi_thread")]
async fn at_029_at_030_only_what_is_authorized_is_executed() {
    let world = World::new().await;
    world.create(&world.signed("int_abc")).await.unwrap();
    assert_eq!(name(&world.execute("int_abc", KEY).await), "not_authorized");
    assert_eq!(
        name(&world.execute("int_none", KEY).await),
        "intent_not_found"
    );
    assert_eq!(world.bank.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_031_at_032_executing_settles_with_a_receipt_and_one_charge() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let answer = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(answer.status, 200);
    let told = body(&answer);
    assert_eq!(told["state"], "settled");
    assert_eq!(told["receipt"]["type"], "atp.receipt.v1");
    assert_eq!(told["receipt"]["transaction"]["amount_cents"], 1500);
    assert_eq!(told["rail"]["payment_id"], "pay_1");
    assert_eq!(world.bank.charges(), 1);
    let verified = world.site.verify(answer.body.as_bytes()).await.unwrap();
    let verified = &body(&verified)["verification"];
    assert_eq!(verified["ok"], true, "{verified}");
    assert_eq!(verified["stored"], true);
    let shown = world.shown("int_abc").await;
    assert_eq!(shown["state"], "settled");
    assert_eq!(shown["transactions"][0]["receipt"], told["receipt"]);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_033_at_034_at_036_at_038_a_retry_is_answered_with_the_same_bytes() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let sent = br#"{"intent_id":"int_abc","amount_cents":1500}"#;
    let first = world.site.execute(Some(KEY.as_bytes()), sent).await;
    let first = response(first).unwrap();
    let calls = world.bank.calls();
    world.pass(700);
    let reordered = br#" { "amount_cents" : 1500, "intent_id" : "int_abc" } "#;
    for sent in [&sent[..], &reordered[..]] {
        let again = world.site.execute(Some(KEY.as_bytes()), sent).await;
        let again = response(again).unwrap();
        assert!(again.replayed);
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    assert_eq!(world.bank.calls(), calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_035_a_retry_after_a_restart_is_answered_with_the_same_bytes() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let first = world.execute("int_abc", KEY).await.unwrap();
    let restarted = world.other(|_| {}).await;
    restarted.recover().await.unwrap();
    let again = world.execute_at(&restarted, "int_abc", KEY).await.unwrap();
    assert_eq!(again.body, first.body);
    assert_eq!(world.bank.charges(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_037_the_same_key_for_another_request_is_refused() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let first = world.execute("int_abc", KEY).await.unwrap();
    let other = br#"{"intent_id":"int_abc","amount_cents":1}"#;
    let refused = world.site.execute(Some(KEY.as_bytes()), other).await;
    assert_eq!(name(&refused), "idempotency_mismatch");
    let again = world.execute("int_abc", KEY).await.unwrap();
    assert_eq!(again.body, first.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_039_at_040_at_102_a_key_belongs_to_its_intent_and_a_fresh_one_charges_nothing() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.authorized("int_other").await;
    world.execute("int_abc", KEY).await.unwrap();
    let other = world.execute("int_other", KEY).await.unwrap();
    assert_eq!(body(&other)["state"], "settled");
    let refused = world.execute("int_abc", OTHER_KEY).await;
    assert_eq!(name(&refused), "execution_limit_reached");
    assert_eq!(world.bank.charges(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_041_at_043_many_at_once_with_one_key_charge_once() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let second = world.other(|_| {}).await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..32 {
        let site = if n % 2 == 0 { &world.site } else { &second }.clone();
        let sent = br#"{"intent_id":"int_abc"}"#;
        asked.spawn(async move { site.execute(Some(KEY.as_bytes()), sent).await });
    }
    for answer in asked.join_all().await {
        let status = response(answer).unwrap().status;
        assert!(matches!(status, 200 | 202), "{status}");
    }
    assert_eq!(world.bank.charges(), 1);
    assert_eq!(world.bank.payments().len(), 1, "it was begun once");
    let mut bodies = std::collections::BTreeSet::new();
    for _ in 0..3 {
        bodies.insert(world.execute("int_abc", KEY).await.unwrap().body);
    }
    assert_eq!(bodies.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_042_at_044_many_at_once_with_many_keys_stay_within_what_is_allowed() {
    let world = World::new().await;
    let mut intent = world.intent("int_abc");
    intent["max_executions"] = 5.into();
    // Enough for two of them.
    intent["max_spend_cents"] = 3000.into();
    world.authorize(&sign(intent, &agent()), KEY).await.unwrap();
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..12 {
        let site = world.site.clone();
        let key = format!("key-number-{n:012}");
        let sent = br#"{"intent_id":"int_abc"}"#;
        asked.spawn(async move { site.execute(Some(key.as_bytes()), sent).await });
    }
    let answers = asked.join_all().await;
    let settled = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((settled, world.bank.charges()), (2, 2));
    let refused = answers.iter().filter(|answer| answer.is_err());
    assert!(
        refused
            .into_iter()
            .all(|one| name(one) == "spend_cap_exceeded")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn at_044_at_045_what_the_permission_does_not_allow_never_reaches_the_rail() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    for (sent, refusal) in [
        (
            json!({"intent_id": "int_abc", "amount_cents": 3001}),
            "spend_cap_exceeded",
        ),
        (
            json!({"intent_id": "int_abc", "currency": "USD"}),
            "currency_mismatch",
        ),
        (
            json!({"intent_id": "int_abc", "action": "book"}),
            "scope_violation",
        ),
    ] {
        let sent = sent.to_string();
        let refused = world
            .site
            .execute(Some(KEY.as_bytes()), sent.as_bytes())
            .await;
        assert_eq!(name(&refused), refusal);
    }
    assert_eq!(world.bank.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_may_ask_for_signed_requests() {
    let world = World::with(|options| options.signed_requests = true).await;
    world.authorized("int_abc").await;
    let refused = world.execute("int_abc", KEY).await;
    assert_eq!(name(&refused), "invalid_signature");
    let members = json!({"intent_id": "int_abc"});
    let signed = request(&world, RequestOperation::Execute, KEY, members).to_string();
    let answer = world
        .site
        .execute(Some(KEY.as_bytes()), signed.as_bytes())
        .await;
    assert_eq!(response(answer).unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_105_no_key_of_an_agent_is_shown() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    let settled = world.execute("int_abc", KEY).await.unwrap();
    let undone = world.compensate("int_abc", OTHER_KEY).await.unwrap();
    let shown = response(world.site.intent("int_abc").await).unwrap();
    for answer in [settled, undone, shown] {
        assert!(!answer.body.contains(KEY), "{}", answer.body);
        assert!(!answer.body.contains(OTHER_KEY));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocols_table_can_be_read_under_its_name() {
    let world = World::new().await;
    world.authorized("int_abc").await;
    world.execute("int_abc", KEY).await.unwrap();
    let found = world
        .ledger
        .sql("SELECT intent_id || ' ' || idempotency_key || ' ' || state FROM transactions");
    assert_eq!(found, [format!("int_abc {KEY} settled")]);
}
