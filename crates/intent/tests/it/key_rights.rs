//! Scopes, namespaces, limits, ends and rotations of keys.

use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, Call, MAIN, World};

const SCOPES: [&str; 5] = ["publish", "claim", "read", "admin-read", "admin"];

/// Every client route with the scope that it needs.
const CLIENT_ROUTES: [(&str, &str, &str); 15] = [
    ("POST", "/intent", "publish"),
    ("GET", "/intents", "read"),
    ("POST", "/intents", "publish"),
    ("POST", "/claim", "claim"),
    ("POST", "/extend_claim/{id}", "claim"),
    ("POST", "/fulfill/{id}", "claim"),
    ("POST", "/fail/{id}", "claim"),
    ("POST", "/settle", "claim"),
    ("GET", "/result/{id}", "read"),
    ("GET", "/status/{id}", "read"),
    ("GET", "/intents/{id}/timeline", "read"),
    ("GET", "/intents/{id}/receipt", "read"),
    ("GET", "/events", "read"),
    ("POST", "/set/{key}", "publish"),
    ("GET", "/get/{key}", "read"),
];

/// Routes with an API key in the document for which any valid key is enough.
const OF_ANY_KEY: [&str; 2] = ["/openapi.json", "/docs"];

impl World {
    /// Creates a key with settings; the response has its text and its id.
    pub(crate) async fn key_with(&self, settings: &Value) -> Value {
        let call = Call::post("/admin/generate_key").admin().json(settings);
        let answer = self.send(call).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    pub(crate) async fn key_of(&self, settings: &Value) -> String {
        let made = self.key_with(settings).await;
        made["api_key"].as_str().unwrap().to_owned()
    }

    async fn publish_as(&self, key: &str, namespace: &str) -> Answer {
        let body = json!({"goal": "g", "payload": 1, "namespace": namespace});
        self.send(Call::post("/intent").key(key).json(&body)).await
    }
}

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// All operations of the document that take an API key, apart from those of operators.
fn client_operations() -> Vec<(String, String)> {
    let document = consign_intent::openapi::document();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let ways = operation["security"].as_array().unwrap();
            let by_key = ways.iter().any(|way| way.get("apiKey").is_some());
            if by_key && !path.starts_with("/admin/") && path != "/metrics" {
                found.push((method.to_ascii_uppercase(), path.clone()));
            }
        }
    }
    found
}

#[tokio::test]
async fn s22_each_client_route_needs_its_scope_and_names_the_missing_one() {
    let world = World::new();
    let mut keys = Vec::new();
    for scope in SCOPES {
        let settings = json!({"owner": "o", "scopes": [scope], "rate": 1000});
        keys.push((scope, world.key_of(&settings).await));
    }
    for (method, path) in client_operations() {
        if OF_ANY_KEY.contains(&path.as_str()) {
            continue;
        }
        let row = CLIENT_ROUTES
            .iter()
            .find(|(of, route, _)| *of == method && *route == path);
        let (_, _, needed) = row.unwrap_or_else(|| panic!("{method} {path} is not in the table"));
        let uri = path.replace("{id}", &"0".repeat(32)).replace("{key}", "k");
        for (scope, key) in &keys {
            let method: Method = method.parse().unwrap();
            let response = world
                .respond(Call::new(method.clone(), &uri).key(key))
                .await;
            let is_refused_by_scope = scope != needed;
            if is_refused_by_scope {
                let answer = world.send(Call::new(method, &uri).key(key)).await;
                answer.assert_refused(403, "forbidden");
                let text = message(&answer);
                assert!(text.contains(&format!("the scope {needed}")), "{text}");
            } else {
                assert_ne!(response.status(), 403, "{path} {scope}");
            }
        }
    }
}

#[tokio::test]
async fn s22_a_refused_request_counts_and_changes_nothing() {
    let world = World::new();
    let key = world
        .key_of(&json!({"owner": "o", "scopes": ["read"], "rate": 2}))
        .await;
    for _ in 0..2 {
        world
            .publish_as(&key, "default")
            .await
            .assert_refused(403, "forbidden");
    }
    let limited = world.publish_as(&key, "default").await;
    limited.assert_refused(429, "rate_limited");
    assert_eq!(limited.headers["retry-after"], "60");
    assert!(world.claim().await.is_none());
}

#[tokio::test]
async fn s22_a_key_publishes_claims_and_reads_in_its_namespaces_only() {
    let world = World::new();
    let free = world.key_of(&json!({"owner": "o", "rate": 1000})).await;
    let made = world
        .key_with(&json!({"owner": "o", "namespaces": ["mail", "web-*"], "rate": 1000}))
        .await;
    let bound = made["api_key"].as_str().unwrap();
    assert_eq!(made["namespaces"], json!(["mail", "web-*"]));
    for namespace in ["mail", "web-a"] {
        assert_eq!(world.publish_as(bound, namespace).await.status, 201);
    }
    for namespace in ["mail2", "web", "default"] {
        let refused = world.publish_as(bound, namespace).await;
        refused.assert_refused(403, "forbidden");
        assert!(message(&refused).contains(namespace));
        let claim = Call::post(&format!("/claim?namespace={namespace}")).key(bound);
        world.send(claim).await.assert_refused(403, "forbidden");
        let batch = json!({"intents": [{"goal": "g", "payload": 1, "namespace": namespace}]});
        let batch = Call::post("/intents").key(bound).json(&batch);
        world.send(batch).await.assert_refused(403, "forbidden");
        let list = Call::get(&format!("/intents?namespace={namespace}")).key(bound);
        world.send(list).await.assert_refused(403, "forbidden");
    }
    assert!(
        world
            .claim_with("/claim?namespace=mail", bound)
            .await
            .is_some()
    );
    // A reserved namespace needs a grant, whatever the patterns say.
    let all = world
        .key_of(&json!({"owner": "o", "namespaces": ["*"]}))
        .await;
    let claim = Call::post("/claim?namespace=beam.bob").key(&all);
    world.send(claim).await.assert_refused(403, "forbidden");

    // What it published before it was bound is out of its reach too.
    let id = world.publish_as(&free, "default").await.json()["id"].clone();
    let own = world.send(Call::get("/admin/keys").admin()).await.json();
    let own = own.as_array().unwrap().iter();
    let free_id = own
        .filter(|key| key["rate"] == 1000 && key["namespaces"] == json!([]))
        .map(|key| key["id"].as_str().unwrap().to_owned())
        .next()
        .unwrap();
    let uri = format!("/admin/keys/{free_id}");
    let changed = world
        .admin_post(&uri, &json!({"namespaces": ["mail"]}))
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    for kind in ["status", "result"] {
        let uri = format!("/{kind}/{}", id.as_str().unwrap());
        let refused = world.send(Call::get(&uri).key(&free)).await;
        refused.assert_refused(403, "forbidden");
    }
    let list = world.send(Call::get("/intents").key(&free)).await;
    assert_eq!(list.json()["intents"], json!([]));
}

#[tokio::test]
async fn a_key_has_the_rate_and_the_open_limit_that_it_was_given() {
    let world = World::new();
    let key = world
        .key_of(&json!({"owner": "o", "rate": 100, "open_max": 3}))
        .await;
    for _ in 0..3 {
        assert_eq!(world.publish_as(&key, "default").await.status, 201);
    }
    for n in 0..97 {
        let refused = world.publish_as(&key, "default").await;
        refused.assert_refused(429, "limit_exceeded");
        assert!(message(&refused).contains("limit of 3"), "{n}");
    }
    let limited = world.publish_as(&key, "default").await;
    limited.assert_refused(429, "rate_limited");
    assert_eq!(limited.headers["retry-after"], "60");
    world.clock.advance_us(10_500_000);
    // Now from the table of exhausted keys, before the body is read.
    let limited = world.publish_as(&key, "default").await;
    limited.assert_refused(429, "rate_limited");
    assert_eq!(limited.headers["retry-after"], "50");
}

#[tokio::test]
async fn a_key_made_as_the_protocol_says_has_the_wire_and_the_limits_of_the_protocol() {
    let world = World::new();
    let made = world.key_with(&json!({"owner": "o"})).await;
    let names: Vec<&String> = made.as_object().unwrap().keys().collect();
    assert_eq!(names, ["api_key", "id", "owner"]);
    let key = made["api_key"].as_str().unwrap();
    for _ in 0..60 {
        world.claim_with("/claim?namespace=none", key).await;
    }
    let limited = world.send(Call::post("/claim").key(key)).await;
    limited.assert_refused(429, "rate_limited");
    assert!(!limited.headers.contains_key("retry-after"));
    let id = made["id"].as_str().unwrap();
    let shown = world.admin_get(&format!("/admin/keys/{id}")).await.json();
    assert_eq!(shown["rate"], 60);
    assert_eq!(shown["open_max"], 2000);
    assert_eq!(shown["scopes"], json!(["publish", "claim", "read"]));
    assert_eq!(shown["namespaces"], json!([]));
    assert_eq!(shown["expires_at"], Value::Null);
    assert!(shown["last_used_at"].is_number(), "{shown}");
}

#[tokio::test]
async fn s22_an_expired_key_is_refused_with_a_message_that_says_so() {
    let world = World::new();
    let made = world
        .key_with(&json!({"owner": "o", "expires_in": 3600}))
        .await;
    let key = made["api_key"].as_str().unwrap();
    world.clock.advance_s(3599);
    assert_eq!(world.publish_as(key, "default").await.status, 201);
    world.clock.advance_s(1);
    let refused = world.publish_as(key, "default").await;
    refused.assert_refused(401, "unauthorized");
    assert!(
        message(&refused).contains("expired"),
        "{}",
        message(&refused)
    );
    // A longer life brings it back, and zero removes the end.
    let uri = format!("/admin/keys/{}", made["id"].as_str().unwrap());
    let changed = world.admin_post(&uri, &json!({"expires_in": 0})).await;
    assert_eq!(changed.json()["expires_at"], Value::Null);
    assert_eq!(world.publish_as(key, "default").await.status, 201);
}

#[tokio::test]
async fn a_rotated_key_owns_what_it_owned_and_the_old_secret_ends() {
    let world = World::new();
    let made = world.key_with(&json!({"owner": "o", "rate": 600})).await;
    let (old, id) = (made["api_key"].as_str().unwrap(), &made["id"]);
    let intent = world.publish_as(old, "default").await.json()["id"].clone();
    let uri = format!("/admin/keys/{}/rotate", id.as_str().unwrap());
    let rotated = world.admin_post(&uri, &json!({"overlap": 60})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    let rotated = rotated.json();
    assert_eq!(&rotated["id"], id);
    let new = rotated["api_key"].as_str().unwrap();
    assert_ne!(new, old);
    let status = format!("/status/{}", intent.as_str().unwrap());
    for key in [old, new] {
        assert_eq!(world.send(Call::get(&status).key(key)).await.status, 200);
    }
    // The publisher of a claim may be named by any of its secrets.
    let claim = Call::post(&format!("/claim?publisher={new}")).key(MAIN);
    assert_eq!(world.send(claim).await.json()["id"], intent);
    world.clock.advance_s(60);
    let refused = world.send(Call::get(&status).key(old)).await;
    refused.assert_refused(401, "unauthorized");
    assert!(message(&refused).contains("expired"));
    assert_eq!(world.send(Call::get(&status).key(new)).await.status, 200);
    let shown = world.admin_get("/admin/keys").await.text();
    assert!(!shown.contains(new) && !shown.contains(old));
    let at_once = world.admin_post(&uri, &json!({"overlap": 0})).await.json();
    let refused = world.send(Call::get(&status).key(new)).await;
    refused.assert_refused(401, "unauthorized");
    let newest = at_once["api_key"].as_str().unwrap();
    let revoked = world
        .admin_post("/admin/revoke_key", &json!({"api_key": newest}))
        .await;
    assert_eq!(revoked.status, 200);
    let refused = world.send(Call::get(&status).key(newest)).await;
    refused.assert_refused(401, "unauthorized");
}

#[tokio::test]
async fn settings_are_checked_and_a_misspelt_one_is_refused() {
    let world = World::new();
    let made = world.key_with(&json!({"owner": "o"})).await;
    let uri = format!("/admin/keys/{}", made["id"].as_str().unwrap());
    for wrong in [
        json!({"scope": ["publish"]}),
        json!({"scopes": []}),
        json!({"scopes": ["write"]}),
        json!({"scopes": "publish"}),
        json!({"rate": 0}),
        json!({"rate": 1.5}),
        json!({"open_max": 0}),
        json!({"expires_in": -1}),
        json!({"name": "x".repeat(101)}),
        json!({"namespaces": "mail"}),
    ] {
        let refused = world.admin_post(&uri, &wrong).await;
        refused.assert_refused(400, "invalid_request");
    }
    for wrong in ["a b", "*a", "a**", ""] {
        let refused = world
            .admin_post(&uri, &json!({"namespaces": [wrong]}))
            .await;
        refused.assert_refused(400, "invalid_namespace");
    }
    for id in [
        "k_0000000000000000",
        "main",
        made["api_key"].as_str().unwrap(),
    ] {
        let uri = format!("/admin/keys/{id}");
        world
            .admin_post(&uri, &json!({"rate": 5}))
            .await
            .assert_refused(404, "not_found");
        world.admin_get(&uri).await.assert_refused(404, "not_found");
        let rotate = world.admin_post(&format!("{uri}/rotate"), &json!({})).await;
        rotate.assert_refused(404, "not_found");
    }
}
