//! Users and their roles, and keys with scopes of operators.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, Call, World};

/// What an operator may do besides reading.
const OF_OPERATORS: [&str; 6] = [
    "/admin/intents/{id}",
    "/admin/intents/{id}/cancel",
    "/admin/bulk",
    "/admin/bulk/{id}/cancel",
    "/admin/intents/{id}/retry",
    "/admin/cleanup",
];

pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl World {
    /// Adds a user and returns the header that signs in.
    pub(crate) async fn user(&self, name: &str, role: &str) -> String {
        let added = self
            .admin_post("/admin/users", &json!({"name": name, "role": role}))
            .await;
        assert_eq!(added.status, 201, "{}", added.text());
        let password = added.json()["password"].as_str().unwrap().to_owned();
        assert!(password.len() > 20, "{password}");
        basic(name, &password)
    }
}

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Every route of operators in the document.
fn admin_operations() -> Vec<(Method, String)> {
    let document = consign_intent::openapi::document();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, _) in item.as_object().unwrap() {
            if path.starts_with("/admin/") {
                let method = method.to_ascii_uppercase().parse().unwrap();
                found.push((method, path.clone()));
            }
        }
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// A body with which the route would succeed, or get as far as the thing that does not exist.
fn body_of(path: &str) -> Value {
    match path {
        "/admin/purge" => json!({"confirm": true}),
        "/admin/users" => json!({"name": "eve", "role": "admin"}),
        "/admin/users/{name}" => json!({"role": "admin"}),
        "/admin/revoke_key" => json!({"api_key": "k_0000000000000000"}),
        "/admin/grant" | "/admin/revoke_grant" => {
            json!({"key_id": "main", "namespace": "beam.bob"})
        }
        _ => json!({}),
    }
}

/// A stream has no end; with a position that is none it is refused once the caller was let in.
const STREAM: &str = "/admin/events";

fn call(method: &Method, path: &str, id: &str) -> Call {
    let mut uri = path.replace("{id}", id).replace("{name}", "victor");
    if path == STREAM {
        uri.push_str("?after=none");
    }
    let call = Call::new(method.clone(), &uri);
    if *method == Method::GET {
        call
    } else {
        call.json(&body_of(path))
    }
}

#[tokio::test]
async fn s23_a_viewer_reads_every_admin_route_and_changes_nothing_on_any() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let viewer = world.user("victor", "viewer").await;
    let settings = json!({"owner": "o", "scopes": ["admin-read"], "rate": 1000});
    let reader = world.key_of(&settings).await;
    let before = world.admin_get("/admin/keys").await.text();
    for (method, path) in admin_operations() {
        for (name, value, refusal) in [
            ("authorization", &viewer, "the role"),
            ("x-api-key", &reader, "the scope admin"),
        ] {
            let answer = world
                .send(call(&method, &path, &id).header(name, value))
                .await;
            let what = format!("{method} {path}: {}", answer.text());
            assert!(!answer.text().contains(&token), "{what}");
            if path == STREAM {
                assert_eq!(answer.status, 400, "{what}");
            } else if method == Method::GET {
                assert!([200, 404].contains(&answer.status.as_u16()), "{what}");
            } else {
                answer.assert_refused(403, "forbidden");
                assert!(message(&answer).contains(refusal), "{what}");
            }
        }
    }
    let shown = world.admin_get(&format!("/admin/intents/{id}")).await;
    assert_eq!(shown.json()["claim_token"], token.as_str(), "for an admin");
    assert_eq!(shown.json()["status"], "claimed");
    let users = world.admin_get("/admin/users").await.json();
    assert_eq!(users.as_array().unwrap().len(), 1);
    assert_eq!(users[0]["role"], "viewer");
    let after = world.admin_get("/admin/keys").await.text();
    let made = |text: &str| text.matches("\"id\"").count();
    assert_eq!(made(&after), made(&before));
}

#[tokio::test]
async fn s23_an_operator_works_on_intents_and_an_admin_does_everything() {
    for (role, is_admin) in [("operator", false), ("admin", true)] {
        let world = World::new();
        let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
        let user = world.user("olga", role).await;
        for (method, path) in admin_operations() {
            let answer = world
                .send(call(&method, &path, &id).header("authorization", &user))
                .await;
            let what = format!("{role} {method} {path}: {}", answer.text());
            let may = is_admin || method == Method::GET || OF_OPERATORS.contains(&path.as_str());
            assert_eq!(answer.status != 403, may, "{what}");
            assert_ne!(answer.status, 401, "{what}");
            if path == "/admin/intents/{id}" && method == Method::GET {
                assert_eq!(answer.json()["claim_token"], token.as_str(), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn s23_a_key_with_the_scope_admin_uses_admin_routes_and_is_metered() {
    let world = World::new();
    let made = world
        .key_with(&json!({"owner": "o", "scopes": ["admin"], "rate": 3}))
        .await;
    let key = made["api_key"].as_str().unwrap();
    let make = Call::post("/admin/generate_key").key(key);
    assert_eq!(
        world.send(make.json(&json!({"owner": "p"}))).await.status,
        201
    );
    for _ in 0..2 {
        assert_eq!(
            world.send(Call::get("/admin/keys").key(key)).await.status,
            200
        );
    }
    let limited = world.send(Call::get("/admin/keys").key(key)).await;
    limited.assert_refused(429, "rate_limited");
    assert_eq!(limited.headers["retry-after"], "60");
    // It is no key for clients, and no browser of another site can send it.
    world.clock.advance_s(60);
    let publish = Call::post("/intent").key(key);
    let refused = world
        .send(publish.json(&json!({"goal": "g", "payload": 1})))
        .await;
    refused.assert_refused(403, "forbidden");
    // A wrong token beside it stays wrong.
    let both = Call::get("/admin/keys")
        .key(key)
        .header("x-admin-token", "wrong");
    world.send(both).await.assert_refused(401, "unauthorized");
}

#[tokio::test]
async fn s23_a_foreign_page_cannot_use_the_password_of_a_user() {
    let world = World::new();
    let user = world.user("ann", "admin").await;
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://evil.example"),
    ] {
        let call = Call::post("/admin/cleanup").header("authorization", &user);
        let refused = world.send(call.header(name, value)).await;
        refused.assert_refused(403, "forbidden");
        let call = Call::get("/admin/keys").header("authorization", &user);
        assert_eq!(world.send(call.header(name, value)).await.status, 200);
    }
}

#[tokio::test]
async fn users_are_added_changed_and_removed() {
    let world = World::new();
    let ann = world.user("ann", "viewer").await;
    let keys = |header: &str| Call::get("/admin/keys").header("authorization", header);
    assert_eq!(world.send(keys(&ann)).await.status, 200);
    let again = json!({"name": "ann", "role": "admin"});
    world
        .admin_post("/admin/users", &again)
        .await
        .assert_refused(409, "invalid_state");
    for wrong in [
        json!({"name": "admin", "role": "admin"}),
        json!({"name": "A", "role": "admin"}),
        json!({"name": "bob"}),
        json!({"name": "bob", "role": "root"}),
        json!({"name": "bob", "role": "admin", "password": "short"}),
        json!({"name": "bob", "role": "admin", "pasword": "long enough for all"}),
    ] {
        let refused = world.admin_post("/admin/users", &wrong).await;
        refused.assert_refused(400, "invalid_request");
    }
    // The change holds from the next request on.
    let cleanup = || Call::post("/admin/cleanup").header("authorization", &ann);
    world.send(cleanup()).await.assert_refused(403, "forbidden");
    let role = world
        .admin_post("/admin/users/ann", &json!({"role": "operator"}))
        .await;
    assert_eq!(role.json()["role"], "operator");
    assert!(role.json().get("password").is_none());
    assert_eq!(world.send(cleanup()).await.status, 200);
    let password = json!({"password": "chosen by herself"});
    let changed = world.admin_post("/admin/users/ann", &password).await;
    assert_eq!(changed.status, 200);
    world
        .send(cleanup())
        .await
        .assert_refused(401, "unauthorized");
    assert_eq!(
        world
            .send(keys(&basic("ann", "chosen by herself")))
            .await
            .status,
        200
    );
    let made = world
        .admin_post("/admin/users/ann", &json!({"new_password": true}))
        .await;
    let made = made.json()["password"].as_str().unwrap().to_owned();
    assert_eq!(world.send(keys(&basic("ann", &made))).await.status, 200);
    assert!(
        !world
            .admin_get("/admin/users")
            .await
            .text()
            .contains("password")
    );

    let remove = "/admin/users/ann/remove";
    assert_eq!(world.admin_post(remove, &json!({})).await.status, 200);
    let gone = world.admin_post(remove, &json!({})).await;
    gone.assert_refused(404, "not_found");
    let refused = world.send(keys(&basic("ann", &made))).await;
    refused.assert_refused(401, "unauthorized");
    assert!(refused.headers.contains_key("www-authenticate"));
}
