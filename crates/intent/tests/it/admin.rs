//! The admin routes: authorisation, and management of keys.

use consign_engine::Operator;
use serde_json::json;

use crate::steps::text;
use crate::world::{Call, MAIN, World};

/// The admin routes, with an id in place of `ID`.
pub(crate) const ROUTES: [(&str, &str); 16] = [
    ("GET", "/admin/dashboard"),
    ("POST", "/admin/generate_key"),
    ("POST", "/admin/revoke_key"),
    ("GET", "/admin/keys"),
    ("POST", "/admin/purge"),
    ("POST", "/admin/cleanup"),
    ("GET", "/admin/intents/ID"),
    ("POST", "/admin/intents/ID/cancel"),
    ("GET", "/admin/dead"),
    ("GET", "/admin/dead/ID"),
    ("POST", "/admin/intents/ID/retry"),
    ("GET", "/admin/intents"),
    ("GET", "/admin/intents/count"),
    ("GET", "/admin/bulk"),
    ("POST", "/admin/bulk"),
    ("DELETE", "/admin/intents/ID"),
];

pub(crate) fn route(method: &str, path: &str, id: &str) -> Call {
    Call::new(method.parse().unwrap(), &path.replace("ID", id))
}

#[tokio::test]
async fn ip_133_ip_187_every_admin_route_is_there_and_opens_with_admin_credentials_only() {
    let world = World::new();
    let tester = world.tester("anna").await;
    let id = world.dead_letter("g", "x").await;
    for (method, path) in ROUTES {
        for call in [
            route(method, path, &id),
            route(method, path, &id).key(MAIN),
            route(method, path, &id).key(&tester),
            route(method, path, &id).header("x-admin-token", MAIN),
            route(method, path, &id).header("x-admin-token", ""),
            route(method, path, &id).header("authorization", "Basic YWRtaW46"),
        ] {
            let answer = world.send(call).await;
            answer.assert_refused(401, "unauthorized");
            assert_eq!(
                answer.headers["www-authenticate"],
                "Basic realm=\"Consign\""
            );
        }
        let opened = world.send(route(method, path, &id).admin()).await.status;
        assert!(
            ![401, 403, 404, 405].contains(&opened.as_u16()),
            "{method} {path}: {opened}"
        );
    }
}

#[tokio::test]
async fn ip_134_admin_routes_have_neither_allowance_nor_cap() {
    let world = World::new();
    let tester = world.tester("anna").await;
    for _ in 0..61 {
        world.send(Call::get("/get/none").key(&tester)).await;
    }
    world
        .send(Call::get("/get/none").key(&tester))
        .await
        .assert_refused(429, "rate_limited");
    // Exceeding the rate limit of a tester key in the same request does not affect the operator.
    for _ in 0..100 {
        let call = Call::get("/admin/dead").key(&tester).admin();
        assert_eq!(world.send(call).await.status, 200);
    }
}

#[tokio::test]
async fn ip_137_a_generated_key_works_at_once_and_is_shown_once() {
    let world = World::new();
    let answer = world
        .admin_post("/admin/generate_key", &json!({"owner": "anna"}))
        .await;
    assert_eq!(answer.status, 201);
    let body = answer.json();
    let key = text(&body["api_key"]);
    let hex = key.strip_prefix("tk_").unwrap();
    assert!(
        hex.len() == 40
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    );
    assert_eq!(body["owner"], "anna");
    let published = Call::post("/intent")
        .key(&key)
        .json(&json!({"goal": "g", "payload": 1}));
    assert_eq!(world.send(published).await.status, 201);

    let listed = world.admin_get("/admin/keys").await;
    let expected = json!([{"id": body["id"], "owner": "anna", "total_requests": 1,
        "created_at": listed.json()[0]["created_at"], "grants": [], "name": "",
        "scopes": ["publish", "claim", "read"], "namespaces": [], "rate": 60, "open_max": 2000,
        "expires_at": null, "last_used_at": listed.json()[0]["last_used_at"],
        "past_secret_until": null}]);
    listed.assert_ok(&expected);
    assert!(listed.json()[0]["created_at"].is_number());
    assert!(!listed.text().contains(hex));
}

#[tokio::test]
async fn ip_137_an_owner_is_optional_and_cut_to_100_characters() {
    let world = World::new();
    for (body, owner) in [
        (json!({}), "anonymous".to_owned()),
        (json!({"owner": null}), "anonymous".to_owned()),
        (json!({"owner": "é".repeat(150)}), "é".repeat(100)),
        (json!({"owner": 7}), "7".to_owned()),
    ] {
        let answer = world.admin_post("/admin/generate_key", &body).await;
        assert_eq!(
            (answer.status.as_u16(), text(&answer.json()["owner"])),
            (201, owner)
        );
    }
    let bare = world.send(Call::post("/admin/generate_key").admin()).await;
    assert_eq!(bare.json()["owner"], "anonymous");
}

#[tokio::test]
async fn ip_138_a_revoked_key_is_refused_at_once_and_its_traces_are_gone() {
    let world = World::new();
    let key = world.tester("anna").await;
    let publish = async |goal: &str| {
        let call = Call::post("/intent")
            .key(&key)
            .header("idempotency-key", "once");
        world
            .send(call.json(&json!({"goal": goal, "payload": 1})))
            .await
    };
    assert_eq!(publish("first").await.status, 201);
    publish("second")
        .await
        .assert_refused(422, "idempotency_conflict");
    for _ in 0..58 {
        assert_eq!(
            world
                .send(Call::post("/claim").key(&key))
                .await
                .status
                .as_u16()
                / 100,
            2
        );
    }
    publish("first").await.assert_refused(429, "rate_limited");

    let revoked = world
        .admin_post("/admin/revoke_key", &json!({"api_key": key}))
        .await;
    revoked.assert_ok(&json!({"ok": true}));
    publish("first").await.assert_refused(401, "unauthorized");

    // After it is adopted again, the key has a new rate limit and no idempotency keys. Its intents still exist.
    let now = world.engine.now();
    world
        .engine
        .adopt_key(Operator::vouched(), &key, "anna", now, 0)
        .await
        .unwrap();
    assert_eq!(publish("second").await.status, 201);
    let listed = world.send(Call::get("/intents").key(&key)).await.json();
    assert_eq!(listed["intents"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn ip_138_revoking_needs_a_key_and_takes_unknown_ones_calmly() {
    let world = World::new();
    for body in [
        json!({}),
        json!({"api_key": ""}),
        json!({"api_key": null}),
        json!({"api_key": 5}),
    ] {
        let answer = world.admin_post("/admin/revoke_key", &body).await;
        answer.assert_refused(400, "invalid_request");
    }
    for unknown in ["tk_unknown", MAIN] {
        let answer = world
            .admin_post("/admin/revoke_key", &json!({"api_key": unknown}))
            .await;
        answer.assert_refused(404, "not_found");
    }
    world
        .publish(json!({"goal": "the main key is not revoked", "payload": 1}))
        .await;
}

#[tokio::test]
async fn ip_138_revoking_the_main_key_does_not_make_it_forget_what_it_did() {
    let world = World::new();
    let publish = async |goal: &str| {
        let call = Call::post("/intent")
            .key(MAIN)
            .header("idempotency-key", "once");
        world
            .send(call.json(&json!({"goal": goal, "payload": 1})))
            .await
    };
    assert_eq!(publish("first").await.status, 201);
    world
        .admin_post("/admin/revoke_key", &json!({"api_key": MAIN}))
        .await;
    publish("second")
        .await
        .assert_refused(422, "idempotency_conflict");
}
