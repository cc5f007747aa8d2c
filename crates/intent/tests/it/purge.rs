//! `POST /admin/purge`, and rows that no operator of this face can change.

use consign_kernel::profile::ProfileId;
use serde_json::json;

use crate::admin::{ROUTES, route};
use crate::signing::{Signer, assert_unsigned, publish};
use crate::steps::{foreign_row_is_untouched, plant_foreign_row};
use crate::world::{Call, MAIN, World};

#[tokio::test]
async fn ip_139_a_purge_asks_for_its_confirmation() {
    let world = World::new();
    let id = world.publish(json!({"goal": "g", "payload": 1})).await;
    for body in [
        json!({}),
        json!({"confirm": false}),
        json!({"confirm": "true"}),
        json!({"confirm": 1}),
        json!({"confirm": null, "namespace": "default"}),
    ] {
        let answer = world.admin_post("/admin/purge", &body).await;
        answer.assert_refused(400, "confirmation_required");
    }
    let bare = world.send(Call::post("/admin/purge").admin()).await;
    bare.assert_refused(400, "confirmation_required");
    let crooked = json!({"confirm": true, "namespace": "a b"});
    world
        .admin_post("/admin/purge", &crooked)
        .await
        .assert_refused(400, "invalid_namespace");
    assert_eq!(world.status(&id).await["status"], "open");
}

#[tokio::test]
async fn ip_140_a_full_purge_clears_everything_but_the_keys() {
    let world = World::new();
    let tester = world.tester("anna").await;
    let dead = world.dead_letter("g", "x").await;
    let (claimed, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    world.main_post("/set/k", &json!({"value": "v"})).await;
    let publish = async |goal: &str| {
        let call = Call::post("/intent")
            .key(MAIN)
            .header("idempotency-key", "once");
        world
            .send(call.json(&json!({"goal": goal, "payload": 1})))
            .await
    };
    assert_eq!(publish("first").await.status, 201);
    for _ in 0..60 {
        world
            .send(Call::post("/claim?namespace=none").key(&tester))
            .await;
    }

    let purged = world
        .admin_post("/admin/purge", &json!({"confirm": true}))
        .await;
    purged.assert_ok(&json!({"ok": true}));
    for id in [&dead, &claimed] {
        world
            .main_get(&format!("/status/{id}"))
            .await
            .assert_refused(404, "not_found");
    }
    let late = world
        .main_post(
            &format!("/fulfill/{claimed}"),
            &json!({"claim_token": token}),
        )
        .await;
    late.assert_refused(404, "not_found");
    world.admin_get("/admin/dead").await.assert_ok(&json!([]));
    world
        .main_get("/get/k")
        .await
        .assert_refused(404, "not_found");
    assert_eq!(
        publish("second").await.status,
        201,
        "idempotency keys are forgotten"
    );
    let again = world.send(Call::get("/get/k").key(&tester)).await;
    again.assert_refused(404, "not_found");
}

/// A nonce stays used, whatever an operator deletes.
#[tokio::test]
async fn s15_nonces_survive_a_purge_and_a_cleanup() {
    let world = World::new();
    let signer = Signer::new(&world, MAIN, "used-up");
    let send = async || world.send(signer.sign(publish(), "/intent")).await;
    assert_eq!(send().await.status, 201);
    assert_unsigned(&send().await, "Replay detected");
    let purged = world
        .admin_post("/admin/purge", &json!({"confirm": true}))
        .await;
    purged.assert_ok(&json!({"ok": true}));
    assert_unsigned(&send().await, "Replay detected");
    let cleaned = world.admin_post("/admin/cleanup", &json!({})).await;
    assert_eq!(cleaned.json()["nonces_deleted"], 0);
    world.clock.advance_s(299);
    assert_unsigned(&send().await, "Replay detected");
}

/// A signature is valid for one path only.
#[tokio::test]
async fn s15_a_signature_fits_one_path_only() {
    let world = World::new();
    let call = |uri: &str| Call::post(uri).json(&json!({"value": "v"}));
    let send = async |nonce: &str, signed: &str, sent: &str| {
        let signer = Signer::new(&world, MAIN, nonce);
        world.send(signer.sign(call(sent), signed)).await
    };
    assert_eq!(send("1", "/set/a%2Fb", "/set/a%2Fb").await.status, 200);
    assert_eq!(send("2", "/set/a/b", "/set/a%2Fb").await.status, 200);
    for (nonce, signed, sent) in [
        ("3", "/set/a%2Fb", "/set/a%252Fb"),
        ("4", "/set/a%2Fb", "/set/a%%32Fb"),
        ("5", "/set/a?b=1", "/set/a%3Fb=1"),
        ("6", "/set/k\n1", "/set/k%0A1"),
        ("7", "/set/k%0A1", "/set/k%0A1"),
    ] {
        assert_unsigned(&send(nonce, signed, sent).await, "Bad signature");
    }
    assert_eq!(send("8", "/set/a%252Fb", "/set/a%252Fb").await.status, 200);
}

#[tokio::test]
async fn ip_141_a_purge_of_one_namespace_leaves_the_others_and_the_housekeeping_rows() {
    let world = World::new();
    let gone = world
        .publish(json!({"goal": "g", "payload": 1, "namespace": "gone"}))
        .await;
    let stays = world.dead_letter("g", "x").await;
    world.main_post("/set/k", &json!({"value": "v"})).await;
    let body = json!({"confirm": true, "namespace": "gone"});
    world
        .admin_post("/admin/purge", &body)
        .await
        .assert_ok(&json!({"ok": true}));
    world
        .main_get(&format!("/status/{gone}"))
        .await
        .assert_refused(404, "not_found");
    assert_eq!(
        world.admin_get("/admin/dead").await.json()[0]["intent_id"],
        stays.as_str()
    );
    assert_eq!(world.main_get("/get/k").await.json()["value"], "v");
}

#[tokio::test]
async fn the_operator_of_this_face_never_touches_rows_of_another() {
    for profile in [ProfileId::MeshOutbox, ProfileId::Automation] {
        let world = World::new();
        let id = plant_foreign_row(&world.engine, profile).await;
        for (method, path) in ROUTES {
            // The profiles of both let an operator cancel a queued row; `find.rs` has the steps that are allowed.
            if !path.contains("ID") || path.ends_with("/cancel") {
                continue;
            }
            let answer = world
                .send(route(method, path, &id.to_string()).admin())
                .await;
            if method == "GET" {
                answer.assert_refused(404, "not_found");
            } else {
                answer.assert_refused(409, "invalid_state");
            }
        }
        for path in [
            "/status/ID",
            "/result/ID",
            "/intents/ID/timeline",
            "/intents/ID/receipt",
        ] {
            let answer = world.main_get(&path.replace("ID", &id.to_string())).await;
            answer.assert_refused(404, "not_found");
        }
        assert_eq!(
            world.admin_post("/admin/cleanup", &json!({})).await.status,
            200
        );
        for body in [
            json!({"confirm": true}),
            json!({"confirm": true, "namespace": "default"}),
        ] {
            assert_eq!(world.admin_post("/admin/purge", &body).await.status, 200);
        }
        assert!(world.claim().await.is_none());
        assert!(
            foreign_row_is_untouched(&world.engine, id).await,
            "{profile:?}"
        );
        let metrics = world.admin_get("/metrics").await.text();
        let of_intents = metrics
            .lines()
            .filter(|line| line.starts_with("intent_bus"));
        let counted: Vec<&str> = of_intents
            .filter(|line| line.contains("namespace=\"default\""))
            .collect();
        assert!(counted.is_empty(), "{counted:?}");
        assert!(
            !world
                .admin_get("/admin/dashboard")
                .await
                .text()
                .contains("foreign")
        );
        assert_eq!(
            world.main_get("/intents").await.json()["intents"],
            json!([])
        );
    }
}
