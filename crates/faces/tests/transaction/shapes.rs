//! Statuses, headers and bodies; the rules themselves are proven with the site.

use serde_json::json;

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
    // One document of keys for the whole site: the receipts of both faces.
    let jwks = world.get("/.well-known/jwks.json").await.json();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 3);
    let manifest = world.get("/.well-known/wab.json").await.json();
    assert_eq!(manifest["public_key"], current["public_key"]);
    let revoked = world.get("/.well-known/wab-revocations.json").await;
    assert_eq!(revoked.status, 200);
    assert_eq!(world.get("/api/atp/health").await.json()["service"], "atp");
}
