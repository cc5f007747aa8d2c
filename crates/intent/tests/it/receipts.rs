//! Receipts: the signed outcome of an intent, verifiable with the public keys alone.

use consign_kernel::receipt::{PublicKey, VerifyError, sha256_hex, verify};
use serde_json::json;

use crate::steps::text;
use crate::world::{Call, MAIN, World};

async fn keys(world: &World) -> Vec<PublicKey> {
    let answer = world.send(Call::get("/.well-known/jwks.json")).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    PublicKey::from_jwks(&answer.text()).unwrap()
}

async fn receipt(world: &World, id: &str) -> String {
    let answer = world.main_get(&format!("/intents/{id}/receipt")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.text()
}

#[tokio::test]
async fn a_fulfilled_intent_has_a_receipt_that_verifies_under_the_published_keys() {
    let world = World::new();
    let body = json!({"goal": "pay", "payload": {"b": 1, "a": 2}, "namespace": "default"});
    let (id, token) = world.leased(body).await;
    world.clock.advance_s(7);
    let done = json!({"claim_token": token, "result": {"ok": true}});
    world.main_post(&format!("/fulfill/{id}"), &done).await;

    let document = receipt(&world, &id).await;
    let verified = verify(&document, &keys(&world).await).unwrap();
    let statement = verified.statement;
    assert_eq!(statement.intent, id);
    assert_eq!(
        (statement.face.as_str(), statement.state.as_str()),
        ("intent", "fulfilled")
    );
    assert_eq!(
        (statement.goal.as_str(), statement.namespace.as_str()),
        ("pay", "default")
    );
    assert_eq!(
        (statement.attempts, statement.worker.as_deref()),
        (1, Some("main"))
    );
    assert_eq!(
        statement.payload_sha256,
        sha256_hex(payload_as_claimed(&world, &id).await.as_bytes())
    );
    assert_eq!(statement.result_sha256, Some(sha256_hex(br#"{"ok":true}"#)));
    assert_eq!(statement.settled_at - statement.created_at, 7_000_000);
    let timeline = world
        .main_get(&format!("/intents/{id}/timeline"))
        .await
        .json();
    let last = timeline["facts"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(json!(statement.fact), last["seq"]);
}

/// The compact payload as stored, cut out of the admin view.
async fn payload_as_claimed(world: &World, id: &str) -> String {
    let detail = world
        .admin_get(&format!("/admin/intents/{id}"))
        .await
        .text();
    let (_, rest) = detail.split_once("\"payload\":").unwrap();
    rest.split_once(",\"status\"").unwrap().0.to_owned()
}

#[tokio::test]
async fn a_dead_intent_has_a_receipt_too_that_says_why() {
    let world = World::new();
    let failed = world.dead_letter("g", "x").await;
    let cancelled = world.publish(json!({"goal": "g", "payload": 1})).await;
    world
        .admin_post(&format!("/admin/intents/{cancelled}/cancel"), &json!({}))
        .await;
    let (silent, _) = world
        .leased(json!({"goal": "g", "payload": 1, "max_attempts": 1}))
        .await;
    world.clock.advance_s(61);
    let keys = keys(&world).await;
    for (id, cause) in [
        (failed, "exhausted"),
        (cancelled, "cancelled"),
        (silent, "exhausted"),
    ] {
        let statement = verify(&receipt(&world, &id).await, &keys)
            .unwrap()
            .statement;
        assert_eq!(
            (statement.state.as_str(), statement.cause.as_deref()),
            ("dead", Some(cause))
        );
        assert_eq!(statement.result_sha256, None);
    }
}

#[tokio::test]
async fn an_intent_that_is_not_settled_has_no_receipt_yet() {
    let world = World::new();
    let open = world
        .publish(json!({"goal": "g", "payload": 1, "delay": 10}))
        .await;
    let (claimed, _) = world.leased(json!({"goal": "g", "payload": 1})).await;
    for id in [open, claimed] {
        let answer = world.main_get(&format!("/intents/{id}/receipt")).await;
        answer.assert_refused(404, "not_settled");
    }
    let unknown = world.main_get("/intents/nonsense/receipt").await;
    unknown.assert_refused(404, "not_found");
}

#[tokio::test]
async fn whoever_asks_again_gets_the_same_bytes() {
    let world = World::new();
    let id = world.fulfilled("g", json!(1)).await;
    let (first, second) = tokio::join!(receipt(&world, &id), receipt(&world, &id));
    assert_eq!(first, second);
    world.clock.advance_s(3 * 86_400);
    assert_eq!(receipt(&world, &id).await, first);
}

#[tokio::test]
async fn a_settlement_after_an_operators_retry_has_a_receipt_of_its_own() {
    let world = World::new();
    let id = world.dead_letter("g", "x").await;
    let first = receipt(&world, &id).await;
    world
        .admin_post(&format!("/admin/intents/{id}/retry"), &json!({}))
        .await;
    let between = world.main_get(&format!("/intents/{id}/receipt")).await;
    between.assert_refused(404, "not_settled");
    let job = world.claim().await.unwrap();
    let done = json!({"claim_token": job["claim_token"]});
    world.main_post(&format!("/fulfill/{id}"), &done).await;
    let second = receipt(&world, &id).await;

    let keys = keys(&world).await;
    let (first, second) = (
        verify(&first, &keys).unwrap(),
        verify(&second, &keys).unwrap(),
    );
    assert_eq!(
        (
            first.statement.state.as_str(),
            second.statement.state.as_str()
        ),
        ("dead", "fulfilled")
    );
    assert_ne!(first.statement.id, second.statement.id);
    assert!(first.statement.fact < second.statement.fact);
}

#[tokio::test]
async fn a_receipt_altered_by_one_word_does_not_verify() {
    let world = World::new();
    let id = world.dead_letter("g", "x").await;
    let forged = receipt(&world, &id)
        .await
        .replace("\"state\":\"dead\"", "\"state\":\"fulfilled\"");
    assert!(matches!(
        verify(&forged, &keys(&world).await),
        Err(VerifyError::Altered)
    ));
}

#[tokio::test]
async fn a_receipt_is_for_those_who_may_read_the_intent() {
    let world = World::new();
    let (worker, stranger) = (world.tester("worker").await, world.tester("stranger").await);
    let id = world
        .publish(json!({"goal": "g", "payload": 1, "visibility": "public"}))
        .await;
    let job = world.claim_with("/claim", &worker).await.unwrap();
    let done = json!({"claim_token": job["claim_token"]});
    world
        .send(
            Call::post(&format!("/fulfill/{id}"))
                .key(&worker)
                .json(&done),
        )
        .await;
    let uri = format!("/intents/{id}/receipt");
    let theirs = world.send(Call::get(&uri).key(&worker)).await;
    assert_eq!(theirs.text(), world.main_get(&uri).await.text());
    assert!(
        !theirs.text().contains(&worker) && !theirs.text().contains(MAIN),
        "key ids, not keys"
    );
    assert_eq!(text(&theirs.json()["worker"]).len(), 18);
    world
        .send(Call::get(&uri).key(&stranger))
        .await
        .assert_refused(403, "forbidden");
    world
        .send(Call::get(&uri))
        .await
        .assert_refused(401, "unauthorized");
}

async fn operate(world: &World, id: &str, verb: &str) {
    let uri = format!("/admin/intents/{id}/{verb}");
    let forced = json!({"force": true});
    assert_eq!(world.admin_post(&uri, &forced).await.status, 200);
}

/// The verification result for a client without a key.
async fn verified(world: &World, document: &str) -> serde_json::Value {
    let call = Call::post("/receipts/verify").raw(document.as_bytes().to_vec());
    let answer = world.send(call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn receipts_name_what_they_supersede_and_the_server_says_by_what_they_were() {
    let world = World::new();
    let keys = keys(&world).await;
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let done = json!({"claim_token": token, "result": 1});
    world.main_post(&format!("/fulfill/{id}"), &done).await;
    let first = receipt(&world, &id).await;
    let statement = |document: &str| verify(document, &keys).unwrap().statement;
    assert_eq!(statement(&first).supersedes, None);
    assert!(!first.contains("supersedes"));
    let told = verified(&world, &first).await;
    assert_eq!(
        (&told["valid"], &told["standing"]),
        (&json!(true), &json!("current"))
    );
    assert_eq!(told["superseded_by"], json!(null));

    // Each cancel is a new settlement. The receipt of the first cancel is never requested.
    operate(&world, &id, "cancel").await;
    operate(&world, &id, "cancel").await;
    let third = receipt(&world, &id).await;
    let second = statement(&third).supersedes.unwrap();
    assert_ne!(second, statement(&first).id);
    let told = verified(&world, &first).await;
    assert_eq!(
        (&told["standing"], &told["superseded_by"]),
        (&json!("superseded"), &json!(second))
    );

    // A retry reopens the intent, and its next settlement supersedes the last one.
    operate(&world, &id, "retry").await;
    assert_eq!(verified(&world, &third).await["standing"], "reopened");
    assert_eq!(verified(&world, &third).await["superseded_by"], json!(null));
    let job = world.claim().await.unwrap();
    for _ in 0..3 {
        let longer = json!({"claim_token": job["claim_token"], "seconds": 60});
        world
            .main_post(&format!("/extend_claim/{id}"), &longer)
            .await;
    }
    let done = json!({"claim_token": job["claim_token"]});
    world.main_post(&format!("/fulfill/{id}"), &done).await;
    let fourth = receipt(&world, &id).await;
    assert_eq!(statement(&fourth).supersedes, Some(statement(&third).id));
    assert_eq!(
        verified(&world, &third).await["superseded_by"],
        json!(statement(&fourth).id)
    );
    assert_eq!(
        verified(&world, &first).await["superseded_by"],
        json!(second)
    );
    assert_eq!(verified(&world, &fourth).await["standing"], "current");
    assert_eq!(receipt(&world, &id).await, fourth);

    // After the intent is deleted its standing is unknown.
    world
        .admin_post("/admin/purge", &json!({"confirm": true}))
        .await;
    let told = verified(&world, &first).await;
    assert_eq!(
        (&told["valid"], &told["standing"]),
        (&json!(true), &json!("unknown"))
    );
}

#[tokio::test]
async fn receipts_that_the_server_did_not_sign_are_called_so_and_nothing_else_is_told() {
    let world = World::new();
    let id = world.fulfilled("g", json!(1)).await;
    let genuine = receipt(&world, &id).await;
    let dropped = genuine.replace("\"issuer\":\"consign\"", "\"issuer\":\"other\"");
    let added = genuine.replacen('{', "{\"supersedes\":\"rcp_x\",", 1);
    let spaced = genuine.replace("\",\"", "\", \"");
    assert_eq!(verified(&world, &spaced).await["valid"], true);
    for forged in [dropped.as_str(), &added, "{}", "[]", "nonsense", "\u{0}"] {
        let told = verified(&world, forged).await;
        assert_eq!(told["valid"], false, "{forged}");
        assert!(told["error"].is_string(), "{told}");
        assert_eq!(told.as_object().unwrap().len(), 2, "{told}");
    }
    let nothing = Call::post("/receipts/verify").raw(Vec::new());
    world
        .send(nothing)
        .await
        .assert_refused(400, "invalid_request");
    let long = format!("{{\"type\":\"{}\"}}", "x".repeat(70_000));
    let call = Call::post("/receipts/verify").raw(long.into_bytes());
    world
        .send(call)
        .await
        .assert_refused(413, "payload_too_large");
}
