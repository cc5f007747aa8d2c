//! The compatibility profile: a client that signs nothing and reports its effects itself.

use std::time::Duration;

use consign_transactions::document::hash;
use consign_transactions::http::SiteResponse;
use consign_transactions::problem::Problem;
use consign_transactions::site::compat::{ForUser, UserTransactionAnswer};
use serde_json::{Value, json};

use crate::world::{KEY, World, body, name, response};

const ORDER: &str = "order-42";
const MOVES: [&str; 3] = ["executing", "executed", "settled"];

fn data<T: Clone + Into<SiteResponse>>(answer: &T) -> Value {
    let sent: SiteResponse = answer.clone().into();
    assert_eq!(sent.status, 200);
    let body = body(&sent);
    assert_eq!(body["ok"], true);
    body["data"].clone()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

async fn drafted(user: &ForUser) -> Value {
    let sent = json!({
        "purpose": "Buy a book ≤ €30",
        "scope": {"actions": ["search", "checkout"], "domains": ["shop.example"]},
        "spend_cap_cents": 3000,
        "ttl_seconds": 600,
        "metadata": {"basket": 7},
    });
    data(&user.create(sent.to_string().as_bytes()).await.unwrap())
}

async fn authorized(user: &ForUser) -> String {
    let id = text(&drafted(user).await["id"]);
    user.authorize(&id).await.unwrap();
    id
}

/// With further members.
async fn authorized_with(user: &ForUser, more: Value) -> String {
    let mut sent = json!({"purpose": "p", "scope": {"actions": ["pay"]}, "spend_cap_cents": 9000});
    let members = sent.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    let draft = data(&user.create(sent.to_string().as_bytes()).await.unwrap());
    let id = text(&draft["id"]);
    user.authorize(&id).await.unwrap();
    id
}

async fn brought_to(user: &ForUser, intent_id: &str, key: &str, moves: &[&str]) -> String {
    let id = text(&data(&begin(user, intent_id, key).await.unwrap())["id"]);
    for to in moves {
        moved(user, &id, to).await.unwrap();
    }
    id
}

async fn begin(
    user: &ForUser,
    intent_id: &str,
    key: &str,
) -> Result<UserTransactionAnswer, Problem> {
    let sent = json!({"intent_id": intent_id, "amount_cents": 1500, "summary": "one book"});
    let key = Some(key.as_bytes());
    user.begin(key, sent.to_string().as_bytes()).await
}

async fn begun(user: &ForUser) -> String {
    let intent_id = authorized(user).await;
    text(&data(&begin(user, &intent_id, ORDER).await.unwrap())["id"])
}

async fn moved(user: &ForUser, id: &str, to: &str) -> Result<UserTransactionAnswer, Problem> {
    let sent = json!({"to": to}).to_string();
    user.transition(id, sent.as_bytes()).await
}

async fn settled(user: &ForUser) -> String {
    let id = begun(user).await;
    for to in MOVES {
        assert_eq!(data(&moved(user, &id, to).await.unwrap())["status"], to);
    }
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_the_older_life_cycle_ends_with_a_receipt_and_retries_return_the_row() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let draft = drafted(&user).await;
    assert_eq!(draft["status"], "draft");
    assert_eq!(draft["nonce"].as_str().unwrap().len(), 32);
    assert_eq!(draft["metadata"], json!({"basket": 7}));
    let intent_id = text(&draft["id"]);
    let authorized = data(&user.authorize(&intent_id).await.unwrap());
    assert_eq!(authorized["status"], "authorized");
    let again = user.authorize(&intent_id).await;
    assert_eq!(name(&again), "invalid_state");

    let first = data(&begin(&user, &intent_id, ORDER).await.unwrap());
    assert_eq!(first["status"], "pending");
    let id = text(&first["id"]);
    // The same key is the same transaction, whatever the rest of the body.
    let other = json!({"intent_id": intent_id, "amount_cents": 1});
    let other = other.to_string();
    let retry = user.begin(Some(ORDER.as_bytes()), other.as_bytes()).await;
    let retry = retry.unwrap();
    assert!(retry.replayed);
    assert_eq!(data(&retry)["id"], id);
    let second = begin(&user, &intent_id, "order-43").await;
    assert_eq!(name(&second), "execution_limit_reached");

    let early = user.receipt(&id).await;
    assert_eq!(name(&early), "invalid_state");
    let step = json!({"action": "checkout.confirm", "evidence": {"order_id": "X1"}});
    let step = user.step(&id, step.to_string().as_bytes()).await.unwrap();
    assert_eq!(data(&step)["seq"], 1);
    for to in MOVES {
        // Repeated, because the first answer may have been lost.
        for _ in 0..2 {
            assert_eq!(data(&moved(&user, &id, to).await.unwrap())["status"], to);
        }
    }
    let receipt = data(&user.receipt(&id).await.unwrap());
    assert_eq!(data(&user.receipt(&id).await.unwrap()), receipt);
    assert_eq!(receipt["body"]["rail"]["name"], "manual");
    assert_eq!(receipt["body"]["steps"][0]["action"], "checkout.confirm");
    assert_eq!(receipt["body"]["transaction"]["status"], "settled");
    assert_eq!(receipt["body"]["intent"]["hash"], draft["intent_hash"]);
    let asked = json!({"id": receipt["id"]}).to_string();
    let verified = body(&world.site.verify(asked.as_bytes()).await.unwrap());
    assert_eq!(verified["verification"]["ok"], true);

    world.pass(700);
    let retry = begin(&user, &intent_id, ORDER).await.unwrap();
    assert_eq!(data(&retry)["id"], id);
    assert_eq!(data(&retry)["status"], "settled");
    let shown = data(&user.transaction_shown(&id).await.unwrap());
    assert_eq!(shown["steps"][0]["evidence"], json!({"order_id": "X1"}));
    let intent = data(&user.intent(&intent_id).await.unwrap());
    assert_eq!(intent["status"], "consumed");
    assert_eq!(intent["spent_cents"], 1500);
    assert_eq!(world.bank.calls(), 0, "the site's rail is not called");
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_a_settled_one_is_compensated_once_with_a_document_of_its_own() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = settled(&user).await;
    let before = data(&user.receipt(&id).await.unwrap());
    let reason = br#"{"reason":"user_cancelled"}"#;
    for _ in 0..2 {
        let undone = data(&user.compensate(&id, reason).await.unwrap());
        assert_eq!(undone["status"], "compensated");
    }
    let other = user.compensate(&id, br#"{"reason":"another"}"#).await;
    assert_eq!(name(&other), "already_compensated");
    let after = data(&user.receipt(&id).await.unwrap());
    assert_eq!(after["body"], before["body"]);
    let undone = &after["compensation_receipt"];
    assert_eq!(undone["original_receipt_id"], before["id"]);
    assert_eq!(undone["outcome"], "refunded");
    assert_eq!(undone["rail"]["name"], "manual");
    let listed = data(&user.intents(None, None).await.unwrap());
    assert_eq!(listed[0]["spent_cents"], 0);
    assert_eq!(world.bank.calls(), 0);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_one_that_failed_has_a_receipt_that_says_so() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = begun(&user).await;
    let failed = br#"{"to":"failed","error":"the shop is closed"}"#;
    let failed = data(&user.transition(&id, failed).await.unwrap());
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"], "the shop is closed");
    let receipt = data(&user.receipt(&id).await.unwrap());
    assert_eq!(receipt["body"]["outcome"], "not_charged");
    assert_eq!(receipt["body"]["compensated_cents"], 0);
    let closed = data(&moved(&user, &id, "compensated").await.unwrap());
    assert_eq!(closed["status"], "compensated");
    assert_eq!(data(&user.receipt(&id).await.unwrap()), receipt);
    let listed = data(&user.intents(None, None).await.unwrap());
    assert_eq!(listed[0]["spent_cents"], 0);
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_what_is_reported_out_of_order_is_refused() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = begun(&user).await;
    let legal = [
        ("pending", vec!["executing", "failed"]),
        ("executing", vec!["executed", "failed"]),
        ("executed", vec!["settled", "compensated", "failed"]),
        ("settled", vec!["compensated"]),
    ];
    let words = ["executing", "executed", "settled", "failed", "compensated"];
    for ((from, may), next) in legal.iter().zip(MOVES.map(Some).into_iter().chain([None])) {
        for to in words.iter().filter(|to| !may.contains(to) && *to != from) {
            let refused = moved(&user, &id, to).await;
            assert_eq!(name(&refused), "invalid_state", "{from} to {to}");
        }
        if let Some(next) = next {
            moved(&user, &id, next).await.unwrap();
        }
    }
    for word in ["pending", "", "done"] {
        assert_eq!(name(&moved(&user, &id, word).await), "invalid_request");
    }
    let late = user.step(&id, br#"{"action":"more"}"#).await;
    assert_eq!(name(&late), "invalid_state");
    let early = begun(&world.site.for_user("user-2")).await;
    let early = world.site.for_user("user-2").compensate(&early, b"").await;
    assert_eq!(name(&early), "invalid_state");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_a_draft_expires_and_can_be_revoked() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = authorized(&user).await;
    let revoked = data(&user.revoke(&id, br#"{"reason":"no"}"#).await.unwrap());
    assert_eq!(revoked["status"], "revoked");
    assert_eq!(name(&user.revoke(&id, b"").await), "invalid_state");
    assert_eq!(name(&begin(&user, &id, ORDER).await), "intent_expired");
    let late = text(&drafted(&user).await["id"]);
    world.pass(600);
    assert_eq!(name(&user.authorize(&late).await), "expired");
    let shown = data(&user.intent(&late).await.unwrap());
    assert_eq!(shown["status"], "expired");
    for (member, value) in [
        ("ttl_seconds", json!(29)),
        ("ttl_seconds", json!(604_801)),
        ("scope", json!({"actions": ["cart.add"]})),
        ("purpose", json!("")),
        ("max_executions", json!(0)),
    ] {
        let mut sent = json!({"purpose": "p", "scope": {"actions": ["read"]}});
        sent[member] = value;
        let refused = user.create(sent.to_string().as_bytes()).await;
        assert_eq!(name(&refused), "invalid_request", "{member}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_what_belongs_to_a_user_is_nobody_elses() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let other = world.site.for_user("user-2");
    let intent_id = authorized(&user).await;
    let id = text(&data(&begin(&user, &intent_id, KEY).await.unwrap())["id"]);
    for refused in [
        response(other.intent(&intent_id).await),
        response(other.authorize(&intent_id).await),
        response(other.revoke(&intent_id, b"").await),
        response(begin(&other, &intent_id, KEY).await),
        response(other.transaction_shown(&id).await),
        response(other.step(&id, br#"{"action":"pay"}"#).await),
        response(moved(&other, &id, "executing").await),
        response(other.compensate(&id, b"").await),
        response(other.receipt(&id).await),
    ] {
        assert_eq!(name(&refused), "forbidden");
    }
    assert_eq!(data(&other.intents(None, None).await.unwrap()), json!([]));
    // The routes of agents do not show it, and a user has no access to intents of agents.
    let fresh = authorized(&user).await;
    for refused in [
        world.execute(&fresh, KEY).await,
        world.compensate(&intent_id, KEY).await,
        world.cancel(&fresh).await,
        world
            .authorize(&json!({"intent_id": fresh, "nonce": "n"}), KEY)
            .await,
        response(world.site.intent(&fresh).await),
        response(world.site.receipts_of(&fresh).await),
        response(world.site.transaction_shown(&id).await),
    ] {
        assert_eq!(name(&refused), "unauthorized");
    }
    assert_eq!(
        name(&world.execute(&intent_id, KEY).await),
        "idempotency_mismatch"
    );
    world.authorized("int_signed").await;
    assert_eq!(name(&user.intent("int_signed").await), "forbidden");
    assert_eq!(name(&begin(&user, "int_signed", KEY).await), "forbidden");
    assert_eq!(world.bank.calls(), 0);
}

/// Not even with the key under which the user's request was stored.
#[tokio::test(flavor = "multi_thread")]
async fn at_104_the_answer_to_a_users_compensation_is_given_to_no_agent() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = settled(&user).await;
    let shown = data(&user.transaction_shown(&id).await.unwrap());
    user.compensate(&id, br#"{"reason":"no"}"#).await.unwrap();
    let key = format!("compat:{id}:{}", hash(b"no"));
    let sent = json!({"intent_id": shown["intent_id"], "transaction_id": id, "reason": "no"});
    let sent = sent.to_string();
    let guessed = world.site.compensate(Some(key.as_bytes()), sent.as_bytes());
    assert_eq!(name(&guessed.await), "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_104_reports_that_come_at_once_come_one_after_the_other() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let elsewhere = world.other(|_| {}).await.for_user("user-1");
    let intent_id = authorized(&user).await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..8 {
        let user = if n % 2 == 0 { &user } else { &elsewhere }.clone();
        let intent_id = intent_id.clone();
        asked.spawn(async move { begin(&user, &intent_id, ORDER).await.unwrap() });
    }
    let mut ids: Vec<_> = asked.join_all().await.iter().map(data).collect();
    ids.dedup_by_key(|one| one["id"].clone());
    assert_eq!(ids.len(), 1);
    let id = text(&ids[0]["id"]);
    let mut noted = tokio::task::JoinSet::new();
    for n in 0..6 {
        let user = if n % 2 == 0 { &user } else { &elsewhere }.clone();
        let (id, step) = (id.clone(), json!({"action": format!("step {n}")}));
        noted.spawn(async move { user.step(&id, step.to_string().as_bytes()).await });
    }
    let kept = noted.join_all().await;
    let kept = kept.iter().filter(|one| one.is_ok()).count();
    let shown = data(&user.transaction_shown(&id).await.unwrap());
    assert_eq!(shown["steps"].as_array().unwrap().len(), kept);
    world.is_sound().await;
}

/// A sweep finds rows of this profile like any other, and leaves them unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn at_104_nobody_but_the_caller_moves_it() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = begun(&user).await;
    moved(&user, &id, "executing").await.unwrap();
    world.pass(2 * 24 * 3600);
    let swept = world.site.reconcile().await.unwrap();
    assert!(swept.looked_at > 0);
    assert_eq!(swept.settled + swept.compensated, 0);
    let shown = data(&user.transaction_shown(&id).await.unwrap());
    assert_eq!(shown["status"], "executing");
    assert_eq!(world.bank.calls(), 0);
    for to in ["executed", "settled"] {
        moved(&user, &id, to).await.unwrap();
    }
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_a_number_that_is_not_exact_everywhere_is_refused_by_the_name_of_its_member() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let sent = |name: &str, value: &str| {
        let scope = r#"{"actions":["read"]}"#;
        let rest = if name == "scope" {
            String::new()
        } else {
            format!(r#","scope":{scope}"#)
        };
        format!(r#"{{"purpose":"p","{name}":{value}{rest}}}"#)
    };
    for (name, value) in [
        ("metadata", r#"{"a":1e16}"#),
        ("metadata", r#"{"a":[1e20]}"#),
        ("scope", r#"{"actions":["read"],"more":-1e17}"#),
        ("spend_cap_cents", "1e16"),
    ] {
        let refused = user.create(sent(name, value).as_bytes()).await;
        let refused = response(refused).unwrap_err();
        assert_eq!(refused.status(), 400, "{value}");
        let body = serde_json::to_value(&refused).unwrap();
        assert_eq!(body["field"], name, "{value}");
    }
    let exact = sent("metadata", r#"{"a":9007199254740991,"b":1e21,"c":0.5}"#);
    user.create(exact.as_bytes()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_each_transaction_of_an_intent_is_compensated_for_the_same_reason() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let intent_id = authorized_with(&user, json!({"max_executions": 2})).await;
    for key in ["order-1", "order-2"] {
        let id = brought_to(&user, &intent_id, key, &MOVES).await;
        for _ in 0..2 {
            let undone = user.compensate(&id, br#"{"reason":"no"}"#).await.unwrap();
            assert_eq!(data(&undone)["id"], id);
            assert_eq!(data(&undone)["status"], "compensated");
        }
    }
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_104_copies_of_a_report_that_come_at_once_are_all_answered_with_the_row() {
    let world = World::with(|options| options.execute_wait = Duration::from_secs(20)).await;
    let user = world.site.for_user("user-1");
    let id = begun(&user).await;
    let failing = world.site.for_user("user-2");
    let failed = begun(&failing).await;
    let reports = MOVES.map(|to| (&user, &id, to));
    for (user, id, to) in reports.into_iter().chain([(&failing, &failed, "failed")]) {
        let mut copies = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let (user, id) = (user.clone(), id.clone());
            copies.spawn(async move { moved(&user, &id, to).await });
        }
        let answers = copies.join_all().await;
        let shown = data(&user.transaction_shown(id).await.unwrap());
        for answer in answers {
            let answer = answer.unwrap_or_else(|refused| panic!("{to}: {refused}"));
            assert_eq!(data(&answer)["status"], to);
            assert_eq!(data(&answer)["started_at"], shown["started_at"]);
        }
    }
    world.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_what_failed_is_closed_as_often_as_it_is_asked_for() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = begun(&user).await;
    moved(&user, &id, "failed").await.unwrap();
    for reason in [r#"{"reason":"no"}"#, r#"{"reason":"no"}"#, ""] {
        let closed = user.compensate(&id, reason.as_bytes()).await.unwrap();
        assert_eq!(data(&closed)["status"], "compensated");
    }
    world.is_sound().await;
}

/// A caller that loses the row during a report does not know the outcome.
#[tokio::test(flavor = "multi_thread")]
async fn at_104_a_report_that_may_have_been_kept_is_not_said_to_be_nothing() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let id = begun(&user).await;
    let forgetful = world.other(|options| options.lease = Duration::ZERO).await;
    let lost = moved(&forgetful.for_user("user-1"), &id, "executing").await;
    assert_eq!(lost.unwrap_err(), Problem::StoreUnsure);
    let again = moved(&user, &id, "executing").await.unwrap();
    assert_eq!(data(&again)["status"], "executing");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_104_the_receipt_says_which_site_the_user_named() {
    let world = World::new().await;
    let user = world.site.for_user("user-1");
    let intent_id = authorized_with(&user, json!({"site_id": "site-7"})).await;
    let id = brought_to(&user, &intent_id, ORDER, &MOVES).await;
    let receipt = data(&user.receipt(&id).await.unwrap());
    assert_eq!(receipt["body"]["site_id"], "site-7");
    let none = settled(&world.site.for_user("user-2")).await;
    let none = data(&world.site.for_user("user-2").receipt(&none).await.unwrap());
    assert_eq!(none["body"]["site_id"], Value::Null);
}
