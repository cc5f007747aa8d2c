//! The signed limits on amount, total, rail and currency.

use consign_transactions::http::{ProblemResponse, SiteResponse};
use serde_json::{Value, json};

use crate::world::{KEY, World, agent, body, name, response, sign};

fn key(n: usize) -> String {
    format!("key-number-{n:012}")
}

fn intent(world: &World, id: &str, members: &Value) -> Value {
    let mut intent = world.intent(id);
    intent.as_object_mut().unwrap().remove("max_spend_cents");
    for (name, value) in members.as_object().unwrap() {
        intent[name] = value.clone();
    }
    sign(intent, &agent())
}

async fn execute(world: &World, n: usize, body: Value) -> Result<SiteResponse, ProblemResponse> {
    let body = body.to_string();
    let key = key(n);
    let executed = world.site.execute(Some(key.as_bytes()), body.as_bytes());
    response(executed.await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_signed_amount_binds_each_execution_and_all_of_them() {
    let world = World::new().await;
    let three = intent(&world, "int_abc", &json!({"max_executions": 3}));
    world.authorize(&three, KEY).await.unwrap();
    let asked = |cents: u64| json!({"intent_id": "int_abc", "amount_cents": cents});
    for cents in [1_501, 4_500, 9_007_199_254_740_991] {
        let refused = execute(&world, 0, asked(cents)).await;
        assert_eq!(name(&refused), "spend_cap_exceeded");
    }
    for sent in [
        json!({"intent_id": "int_abc", "amount_cents": -1}),
        json!({"intent_id": "int_abc", "amount_cents": "1500"}),
        json!({"intent_id": "int_abc", "amount_cents": 9_007_199_254_740_992_u64}),
    ] {
        assert_eq!(name(&execute(&world, 0, sent).await), "invalid_request");
    }
    assert_eq!(world.bank.calls(), 0);
    for (n, cents) in [(1, 0), (2, 1_500)] {
        let settled = body(&execute(&world, n, asked(cents)).await.unwrap());
        let (signed, taken) = (
            &settled["receipt"]["intent"],
            &settled["receipt"]["transaction"],
        );
        assert_eq!(signed["amount_cents"], 1_500);
        assert_eq!(signed["spend_cap_cents"], 4_500);
        assert_eq!(taken["amount_cents"], cents);
    }
    // A refunded amount may be spent again, but the execution stays used.
    let undo = json!({"intent_id": "int_abc", "reason": "r", "transaction_id": transaction(&world, 2).await});
    let undone = world
        .site
        .compensate(Some(KEY.as_bytes()), undo.to_string().as_bytes())
        .await;
    assert_eq!(response(undone).unwrap().status, 200);
    assert_eq!(
        name(&execute(&world, 3, asked(1_501)).await),
        "spend_cap_exceeded"
    );
    execute(&world, 3, json!({"intent_id": "int_abc"}))
        .await
        .unwrap();
    assert_eq!(
        name(&execute(&world, 4, asked(1)).await),
        "execution_limit_reached"
    );
}

async fn transaction(world: &World, n: usize) -> Value {
    let sent = json!({"intent_id": "int_abc", "amount_cents": 1_500});
    body(&execute(world, n, sent).await.unwrap())["transaction_id"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_stay_within_a_signed_amount() {
    let world = World::new().await;
    let three = intent(&world, "int_abc", &json!({"max_executions": 3}));
    world.authorize(&three, KEY).await.unwrap();
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..12 {
        let site = world.site.clone();
        let cents = if n % 2 == 0 { 1_500 } else { 3_000 };
        let sent = json!({"intent_id": "int_abc", "amount_cents": cents}).to_string();
        asked.spawn(async move { site.execute(Some(key(n).as_bytes()), sent.as_bytes()).await });
    }
    let answers = asked.join_all().await;
    let settled = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((settled, world.bank.charges()), (3, 3));
    assert_eq!(world.shown("int_abc").await["data"]["spent_cents"], 4_500);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_amount_needs_a_signed_total() {
    let world = World::new().await;
    for (id, total, asked, settled) in [
        ("int_total", json!({"max_spend_cents": 4_000}), 4_000, true),
        (
            "int_beyond",
            json!({"max_spend_cents": 4_000}),
            4_001,
            false,
        ),
        ("int_alias", json!({"spend_cap_cents": 4_000}), 4_000, true),
        ("int_zero", json!({"max_spend_cents": 0}), 1_501, false),
    ] {
        world
            .authorize(&intent(&world, id, &total), KEY)
            .await
            .unwrap();
        let answer = execute(&world, 1, json!({"intent_id": id, "amount_cents": asked})).await;
        assert_eq!(answer.is_ok(), settled, "{id}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_without_amount_and_total_needs_signed_requests() {
    let unbounded = json!({"amount_cents": null});
    let world = World::new().await;
    for id in ["int_abc", "int_zero"] {
        let members = if id == "int_abc" {
            &unbounded
        } else {
            &json!({"amount_cents": null, "max_spend_cents": 0})
        };
        let sent = intent(&world, id, members);
        assert_eq!(name(&world.create(&sent).await), "invalid_request");
        assert_eq!(name(&world.authorize(&sent, KEY).await), "invalid_request");
    }
    // An intent accepted while requests had to be signed cannot be executed unsigned later.
    let strict = world.other(|options| options.signed_requests = true).await;
    for id in ["int_created", "int_authorized"] {
        let sent = intent(&world, id, &unbounded).to_string();
        strict.create(sent.as_bytes()).await.unwrap();
        if id == "int_authorized" {
            let key = Some(KEY.as_bytes());
            strict.authorize(key, sent.as_bytes()).await.unwrap();
        }
    }
    let short = json!({"intent_id": "int_created", "nonce": "nonce-of-int_created"});
    let refused = world.authorize(&sign(short, &agent()), KEY).await;
    assert_eq!(name(&refused), "invalid_request");
    let sent = json!({"intent_id": "int_authorized", "amount_cents": 1});
    assert_eq!(name(&execute(&world, 1, sent).await), "invalid_request");
    assert_eq!(world.bank.calls(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rail_is_the_one_that_was_signed() {
    let world = World::new().await;
    for (id, rail) in [
        ("int_abc", "stripe"),
        ("int_def", "manual"),
        ("int_ghi", "bank"),
    ] {
        let sent = intent(&world, id, &json!({"rail": {"name": rail}}));
        world.authorize(&sent, KEY).await.unwrap();
        let answer = execute(&world, 1, json!({"intent_id": id})).await;
        if rail == "bank" {
            assert_eq!(answer.unwrap().status, 200);
        } else {
            assert_eq!(name(&answer), "rail_mismatch");
        }
    }
    world.authorized("int_any").await;
    for rail in [json!("stripe"), json!({"name": "stripe"})] {
        let refused = execute(&world, 1, json!({"intent_id": "int_any", "rail": rail})).await;
        assert_eq!(name(&refused), "rail_mismatch");
    }
    assert_eq!(world.bank.charges(), 1);
    let named = json!({"intent_id": "int_any", "rail": "bank"});
    execute(&world, 1, named).await.unwrap();
}
