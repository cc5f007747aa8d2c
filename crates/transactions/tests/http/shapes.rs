//! Statuses, headers and bodies; the rules themselves are tested with the site.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use consign_kernel::json::canonical_value;
use consign_transactions::document::AtpPublicKey;
use data_encoding::{BASE64, BASE64URL_NOPAD};
use http::Request;
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::world::{ADMIN, KEY, World};

const IDEMPOTENCY: (&str, &str) = ("Idempotency-Key", KEY);
const BEARER: (&str, &str) = ("Authorization", "Bearer admin-secret-of-the-tests");

#[tokio::test]
async fn a_transaction_goes_from_nothing_to_a_verified_receipt() {
    let world = World::new(0).await;
    let intent = world.signed("int_abc").to_string();
    let created = world.post("/api/atp/intents", &[], &intent).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["data"]["id"], "int_abc");
    let authorized = world
        .post("/api/atp/authorize", &[IDEMPOTENCY], &intent)
        .await;
    assert_eq!(authorized.status, 200);
    assert_eq!(authorized.headers["atp-state"], "authorized");
    let sent = r#"{"intent_id":"int_abc"}"#;
    let executed = world.post("/api/atp/execute", &[IDEMPOTENCY], sent).await;
    assert_eq!(executed.status, 200);
    assert_eq!(executed.headers["atp-state"], "settled");
    assert_eq!(executed.headers["content-type"], "application/json");
    assert!(!executed.headers.contains_key("idempotent-replayed"));
    let again = world.post("/api/atp/execute", &[IDEMPOTENCY], sent).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.text, executed.text);

    let told = executed.json();
    let receipt = &told["receipt"];
    let verified = world
        .post("/api/atp/receipts/verify", &[], &receipt.to_string())
        .await;
    assert_eq!(verified.json()["verification"]["ok"], true);
    let id = receipt["receipt_id"].as_str().unwrap();
    let shown = world.get(&format!("/api/atp/receipts/{id}")).await;
    assert_eq!(&shown.json()["receipt"], receipt);
    assert_eq!(&shown.json()["data"]["body"], receipt);
    let transaction = told["transaction_id"].as_str().unwrap();
    let shown = world
        .get(&format!("/api/atp/transactions/{transaction}"))
        .await;
    assert_eq!(shown.json()["data"]["state"], "settled");
    let shown = world.get("/api/atp/intents/int_abc").await;
    assert_eq!(shown.json()["state"], "settled");
    let undone = world
        .post(
            "/api/atp/compensate",
            &[IDEMPOTENCY],
            r#"{"intent_id":"int_abc","reason":"changed my mind"}"#,
        )
        .await;
    assert_eq!(undone.json()["state"], "compensated");
}

#[tokio::test]
async fn refusals_have_the_protocols_shape() {
    let world = World::new(0).await;
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(40_000));
    for (method, path, body, status, name) in [
        ("POST", "/api/atp/intents", "{", 400, "invalid_request"),
        (
            "POST",
            "/api/atp/intents",
            long.as_str(),
            413,
            "payload_too_large",
        ),
        (
            "POST",
            "/api/atp/execute",
            "{}",
            400,
            "idempotency_key_required",
        ),
        (
            "GET",
            "/api/atp/intents/int_none",
            "",
            404,
            "intent_not_found",
        ),
        (
            "GET",
            "/api/atp/transactions/atp_tx_0",
            "",
            404,
            "not_found",
        ),
        ("GET", "/api/atp/receipts/none", "", 404, "not_found"),
        ("GET", "/api/atp/nothing/here", "", 404, "not_found"),
        ("GET", "/api/atp/execute", "", 405, "method_not_allowed"),
        (
            "POST",
            "/api/atp/rails/gold/callback",
            "{}",
            404,
            "not_found",
        ),
        ("GET", "/api/atp/intents", "", 401, "unauthorized"),
        ("GET", "/api/atp/admin/audit", "", 401, "unauthorized"),
        ("POST", "/api/atp/admin/reconcile", "", 401, "unauthorized"),
        (
            "POST",
            "/api/atp/admin/transactions/tx_1/resolve",
            r#"{"outcome":"charged","reason":"seen"}"#,
            401,
            "unauthorized",
        ),
        (
            "POST",
            "/api/atp/admin/keys/rotate",
            "",
            401,
            "unauthorized",
        ),
        (
            "POST",
            "/api/atp/admin/keys/announce",
            "",
            401,
            "unauthorized",
        ),
        // The compatibility profile is off.
        ("POST", "/api/atp/transactions", "{}", 404, "not_found"),
        (
            "POST",
            "/api/atp/intents/int_none/authorize",
            "",
            404,
            "not_found",
        ),
    ] {
        let refused = world.send(method, path, &[], body).await;
        assert_eq!(refused.status, status, "{method} {path}");
        let told = refused.json();
        assert_eq!((&told["ok"], &told["error"]), (&json!(false), &json!(name)));
        assert!(told["message"].is_string());
    }
    let twice = [IDEMPOTENCY, ("Idempotency-Key", "another-key-of-the-agent")];
    let refused = world.post("/api/atp/execute", &twice, "{}").await;
    assert_eq!(refused.json()["error"], "idempotency_key_invalid");
    let wrong = ("Authorization", "Bearer wrong");
    let refused = world
        .send("GET", "/api/atp/admin/audit", &[wrong], "")
        .await;
    assert_eq!(refused.status, 401);
    assert!(!refused.text.contains(ADMIN));
}

#[tokio::test]
async fn at_097_public_routes_ask_for_patience() {
    let world = World::new(2).await;
    for _ in 0..2 {
        let answer = world.post("/api/atp/receipts/verify", &[], "{}").await;
        assert_eq!(answer.status, 200);
    }
    let refused = world.post("/api/atp/receipts/verify", &[], "{}").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"], "rate_limited");
    let seconds: u32 = refused.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&seconds));
    let other = world.get("/api/atp/keys").await;
    assert_eq!(other.status, 200, "what is not public has no such limit");
}

#[tokio::test]
async fn an_operator_sees_what_is_open_and_what_happened() {
    let world = World::new(0).await;
    let intent = world.signed("int_abc").to_string();
    world
        .post("/api/atp/authorize", &[IDEMPOTENCY], &intent)
        .await;
    world
        .post(
            "/api/atp/execute",
            &[IDEMPOTENCY],
            r#"{"intent_id":"int_abc"}"#,
        )
        .await;
    let shown = async |path: &str| world.send("GET", path, &[BEARER], "").await.json();
    let audit = shown("/api/atp/admin/audit").await;
    let told = audit["transitions"].as_array().unwrap();
    let moves: Vec<_> = told.iter().map(|one| one["to"].as_str().unwrap()).collect();
    assert_eq!(
        moves,
        ["created", "authorized", "executing", "executed", "settled"]
    );
    assert!(told.iter().all(|one| one["intent_id"] == "int_abc"));
    let next = audit["next"].as_u64().unwrap();
    let rest = shown(&format!("/api/atp/admin/audit?after={next}")).await;
    assert_eq!(rest["transitions"], json!([]));
    let listed = shown("/api/atp/admin/transactions?state=settled").await;
    assert_eq!(listed["transactions"][0]["intent_id"], "int_abc");
    let open = shown("/api/atp/admin/transactions?state=executing").await;
    assert_eq!(open["transactions"], json!([]));
    let listed = shown("/api/atp/intents?limit=5").await;
    assert_eq!(listed["data"][0]["intent_id"], "int_abc");
    let swept = world
        .send("POST", "/api/atp/admin/reconcile", &[BEARER], "")
        .await;
    assert_eq!(swept.json()["swept"]["looked_at"], 0);
    let announced = world
        .send("POST", "/api/atp/admin/keys/announce", &[BEARER], "")
        .await;
    let announced = announced.json()["next_public_key"].clone();
    let manifest = world.get("/.well-known/wab.json").await.json();
    assert_eq!(manifest["next_public_key"], announced);
    let rotated = world
        .send(
            "POST",
            "/api/atp/admin/keys/rotate",
            &[BEARER],
            r#"{"reason":"planned"}"#,
        )
        .await;
    let keys = world.get("/api/atp/keys").await.json();
    let current = keys["keys"].as_array().unwrap().iter();
    let current = current
        .clone()
        .find(|key| key["status"] == "current")
        .unwrap();
    assert_eq!(current["public_key"], rotated.json()["public_key"]);
    assert_eq!(current["public_key"], announced);
    // One key document for the whole site: it covers the receipts of both faces.
    let jwks = world.get("/.well-known/jwks.json").await.json();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 3);
    let manifest = world.get("/.well-known/wab.json").await.json();
    assert_eq!(manifest["public_key"], current["public_key"]);
    let revoked = world.get("/.well-known/wab-revocations.json").await;
    assert_eq!(revoked.status, 200);
    assert_eq!(world.get("/api/atp/health").await.json()["service"], "atp");
}

#[tokio::test]
async fn whoever_writes_without_end_is_asked_for_patience() {
    let world = World::limited(0, 2).await;
    let sent = world.signed("int_abc").to_string();
    for path in ["/api/atp/intents", "/api/atp/rails/null/callback"] {
        assert_ne!(world.post(path, &[], &sent).await.status, 429);
    }
    for path in [
        "/api/atp/intents",
        "/api/atp/authorize",
        "/api/atp/execute",
        "/api/atp/compensate",
        "/api/atp/cancel",
        "/api/atp/rails/null/callback",
    ] {
        let refused = world.post(path, &[IDEMPOTENCY], &sent).await;
        assert_eq!(refused.status, 429, "{path}");
        assert!(refused.headers.contains_key("retry-after"));
    }
    let shown = world.get("/api/atp/intents/int_abc").await;
    assert_eq!(shown.status, 200, "reading has no such limit");
}

#[tokio::test]
async fn an_address_that_asks_without_end_keeps_no_other_one_out() {
    let world = World::limited(1, 1).await;
    let status = async |address, path: &str| {
        let request = Request::post(path).body(Body::from("{}")).unwrap();
        world.answer_to(address, request).await.status
    };
    for path in ["/api/atp/receipts/verify", "/api/atp/cancel"] {
        for address in [[192, 0, 2, 1], [192, 0, 2, 2]] {
            assert_ne!(status(address, path).await, 429, "{path}");
            assert_eq!(status(address, path).await, 429, "{path}");
        }
    }
}

/// A body that never sends any data.
struct Endless;

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_told_so() {
    let world = World::new(0).await;
    // From here on the clock jumps to the next timer.
    tokio::time::pause();
    let request = Request::post("/api/atp/intents").body(Body::new(Endless));
    let request = request.unwrap();
    let refused = world.answer(request).await;
    assert_eq!(refused.status, 408);
    assert_eq!(refused.json()["error"], "request_timeout");
}

#[tokio::test]
async fn an_operator_goes_through_intents_page_by_page() {
    let world = World::new(0).await;
    for id in ["int_a", "int_b", "int_c"] {
        let intent = world.signed(id).to_string();
        let sent = format!("{{\"intent_id\":\"{id}\"}}");
        world
            .post("/api/atp/authorize", &[IDEMPOTENCY], &intent)
            .await;
        let executed = world.post("/api/atp/execute", &[IDEMPOTENCY], &sent).await;
        assert_eq!(executed.status, 200);
    }
    let ids = |page: &Value, list: &str| -> Vec<String> {
        let listed = page[list].as_array().unwrap().iter();
        let id = |one: &Value| one["intent_id"].as_str().unwrap().to_owned();
        listed.map(id).collect()
    };
    let shown = async |path: &str| world.send("GET", path, &[BEARER], "").await;
    for (path, list) in [
        ("/api/atp/intents?limit=2", "data"),
        (
            "/api/atp/admin/transactions?state=settled&limit=2",
            "transactions",
        ),
    ] {
        let first = shown(path).await.json();
        assert_eq!(ids(&first, list), ["int_c", "int_b"]);
        let next = first["next"].as_u64().unwrap();
        let second = shown(&format!("{path}&from={next}")).await.json();
        assert_eq!(ids(&second, list), ["int_a"]);
        assert_eq!(second["next"], json!(null));
    }
    let listed = shown("/api/atp/intents?offset=1&limit=1").await.json();
    assert_eq!(ids(&listed, "data"), ["int_b"]);
    let transaction = &listed["data"][0]["transactions"][0];
    assert_eq!(transaction["state"], "settled");
    assert_eq!(transaction.get("receipt"), None, "a list is no archive");
    let refused = shown("/api/atp/intents?offset=10001").await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.json()["message"]
            .as_str()
            .unwrap()
            .contains("from=")
    );
}

#[tokio::test]
async fn at_101_the_audit_tells_every_way_once_from_wherever_it_is_read() {
    let world = World::new(0).await;
    let post = async |path: &str, body: &str| {
        let answer = world.post(path, &[IDEMPOTENCY], body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
    };
    for id in ["created", "withdrawn"] {
        post("/api/atp/intents", &world.signed(id).to_string()).await;
    }
    for id in ["authorized", "settled", "undone"] {
        post("/api/atp/authorize", &world.signed(id).to_string()).await;
    }
    post("/api/atp/cancel", r#"{"intent_id":"withdrawn"}"#).await;
    // Each request is sent twice: a repetition is not a transition.
    for _ in 0..2 {
        for id in ["settled", "undone"] {
            post("/api/atp/execute", &format!(r#"{{"intent_id":"{id}"}}"#)).await;
        }
        let undo = r#"{"intent_id":"undone","reason":"changed my mind"}"#;
        post("/api/atp/compensate", undo).await;
    }
    let audit = async |after: u64| -> Vec<Value> {
        let path = format!("/api/atp/admin/audit?after={after}");
        let told = world.send("GET", &path, &[BEARER], "").await.json();
        told["transitions"].as_array().unwrap().clone()
    };
    let all = audit(0).await;
    for (id, way) in [
        ("created", "created"),
        ("withdrawn", "created expired"),
        ("authorized", "created authorized"),
        ("settled", "created authorized executing executed settled"),
        (
            "undone",
            "created authorized executing executed settled compensated",
        ),
    ] {
        let mut at = json!(null);
        let mut went = Vec::new();
        for one in all.iter().filter(|one| one["intent_id"] == id) {
            assert_eq!(one["from"], at, "{id}");
            at = one["to"].clone();
            went.push(one["to"].as_str().unwrap());
        }
        assert_eq!(went.join(" "), way);
        let shown = world.get(&format!("/api/atp/intents/{id}")).await.json();
        assert_eq!(shown["state"], at);
    }
    for (position, one) in all.iter().enumerate() {
        let after = one["seq"].as_u64().unwrap();
        assert_eq!(audit(after).await, all[position + 1..], "after {after}");
    }
}

#[tokio::test]
async fn at_083_every_document_of_keys_shows_the_same_key_and_it_signed_the_manifest() {
    let world = World::new(0).await;
    let turn = async |what: &str| {
        let path = format!("/api/atp/admin/keys/{what}");
        let turned = world.send("POST", &path, &[BEARER], "{}").await;
        assert_eq!(turned.status, 200, "{}", turned.text);
    };
    let mut seen = BTreeSet::new();
    for rotations in 0..3 {
        if rotations > 0 {
            turn("announce").await;
            turn("rotate").await;
        }
        let manifest = world.get("/.well-known/wab.json").await;
        let public = manifest.json()["public_key"].as_str().unwrap().to_owned();
        let key = AtpPublicKey::parse(&public).unwrap();
        assert!(is_signed_by(&manifest.text, &key), "{}", manifest.text);
        let altered = manifest.text.replace("shop.example", "shop.examplf");
        assert_ne!(altered, manifest.text);
        assert!(!is_signed_by(&altered, &key));

        let keys = world.get("/api/atp/keys").await.json();
        let keys = keys["keys"].as_array().unwrap();
        let current: Vec<_> = keys
            .iter()
            .filter(|key| key["status"] == "current")
            .collect();
        assert_eq!(current.len(), 1);
        assert_eq!(current[0]["public_key"], public.as_str());
        assert_eq!(current[0]["key_id"], key.id());

        let jwks = world.get("/.well-known/jwks.json").await.json();
        let jwks = jwks["keys"].as_array().unwrap();
        for listed in keys {
            let listed = AtpPublicKey::parse(listed["public_key"].as_str().unwrap()).unwrap();
            let shown: Vec<_> = jwks
                .iter()
                .filter(|key| key["kid"] == listed.id())
                .collect();
            assert_eq!(shown.len(), 1, "{}", listed.id());
            let x = shown[0]["x"].as_str().unwrap();
            let public = BASE64URL_NOPAD.decode(x.as_bytes()).unwrap();
            assert_eq!(
                listed.to_string(),
                format!("ed25519:{}", BASE64.encode(&public))
            );
            assert_eq!(
                (&shown[0]["kty"], &shown[0]["crv"]),
                (&json!("OKP"), &json!("Ed25519"))
            );
            assert_eq!(
                (&shown[0]["alg"], &shown[0]["use"]),
                (&json!("EdDSA"), &json!("sig"))
            );
        }
        seen.insert(public);
    }
    assert_eq!(seen.len(), 3, "each rotation brings another key");
}

/// As any client can verify it: the canonical form without the signature.
fn is_signed_by(manifest: &str, key: &AtpPublicKey) -> bool {
    let mut manifest: Value = serde_json::from_str(manifest).unwrap();
    let signature = manifest.as_object_mut().unwrap().remove("signature");
    let signature = signature.unwrap();
    let value = signature
        .as_str()
        .unwrap()
        .strip_prefix("ed25519:")
        .unwrap();
    let value: [u8; 64] = BASE64.decode(value.as_bytes()).unwrap().try_into().unwrap();
    key.verify(&canonical_value(&manifest).unwrap(), &value)
}

#[tokio::test]
async fn at_098_a_409_and_a_410_are_the_same_bytes_every_time() {
    let world = World::new(0).await;
    let done = world.signed("int_done").to_string();
    let gone = world.signed("int_gone").to_string();
    for (path, body) in [
        ("/api/atp/authorize", done.as_str()),
        ("/api/atp/execute", r#"{"intent_id":"int_done"}"#),
        ("/api/atp/intents", &gone),
        ("/api/atp/cancel", r#"{"intent_id":"int_gone"}"#),
    ] {
        let answer = world.post(path, &[IDEMPOTENCY], body).await;
        assert!(answer.status.is_success(), "{}", answer.text);
    }
    let other = [("Idempotency-Key", "another-key-of-the-agent")];
    for (path, body, status) in [
        ("/api/atp/authorize", done.as_str(), 409),
        ("/api/atp/execute", r#"{"intent_id":"int_done"}"#, 409),
        ("/api/atp/authorize", &gone, 410),
        ("/api/atp/execute", r#"{"intent_id":"int_gone"}"#, 410),
    ] {
        let first = world.post(path, &other, body).await;
        assert_eq!(first.status, status, "{}", first.text);
        for _ in 0..3 {
            let again = world.post(path, &other, body).await;
            assert_eq!((again.status, &again.text), (first.status, &first.text));
            assert_eq!(again.headers, first.headers);
        }
    }
}
