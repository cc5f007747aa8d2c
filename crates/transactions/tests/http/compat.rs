//! The compatibility profile over HTTP: the permissions of each token, next to the routes of agents.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::world::{ADMIN, Answer, KEY, World};

const SECRET: &str = "the secret of the tests' tokens, long enough";
const ORDER: (&str, &str) = ("Idempotency-Key", "order-42");

fn bearer(secret: &str, user: &str) -> String {
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let header = part(json!({"alg": "HS256", "typ": "JWT"}));
    let claims = part(json!({"id": user, "iss": "wab", "aud": "wab:user"}));
    let signed = format!("{header}.{claims}");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    let signature = BASE64URL_NOPAD.encode(&mac.finalize().into_bytes());
    format!("Bearer {signed}.{signature}")
}

struct Client {
    world: World,
    token: String,
}

impl Client {
    async fn new() -> Self {
        Self {
            world: World::compatible(0, SECRET).await,
            token: bearer(SECRET, "user-1"),
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let headers = [("Authorization", self.token.as_str()), ORDER];
        let path = format!("/api/atp{path}");
        self.world.send(method, &path, &headers, body).await
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.ask("POST", path, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()["data"].clone()
    }

    async fn drafted(&self) -> String {
        let sent = json!({"purpose": "p", "scope": {"actions": ["read"]}});
        let draft = self.post("/intents", &sent).await;
        draft["id"].as_str().unwrap().to_owned()
    }

    async fn begun(&self) -> String {
        let intent = self.drafted().await;
        let path = format!("/intents/{intent}/authorize");
        self.ask("POST", &path, "").await;
        let sent = json!({"intent_id": intent});
        let begun = self.post("/transactions", &sent).await;
        begun["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn at_104_every_route_of_the_older_client_answers_in_its_envelope() {
    let client = Client::new().await;
    let intent = client.drafted().await;
    let path = format!("/intents/{intent}/authorize");
    let authorized = client.ask("POST", &path, "").await;
    assert_eq!(authorized.json()["data"]["status"], "authorized");
    let shown = client.ask("GET", &format!("/intents/{intent}"), "").await;
    assert_eq!(shown.json()["data"]["status"], "authorized");
    let sent = json!({"intent_id": intent, "amount_cents": 5});
    let begun = client.post("/transactions", &sent).await;
    let at = format!("/transactions/{}", begun["id"].as_str().unwrap());
    client
        .post(&format!("{at}/steps"), &json!({"action": "look"}))
        .await;
    for to in ["executing", "executed", "settled"] {
        let moved = client
            .post(&format!("{at}/transition"), &json!({"to": to}))
            .await;
        assert_eq!(moved["status"], to);
    }
    let retry = client.ask("POST", "/transactions", &sent.to_string()).await;
    assert_eq!(retry.headers["idempotent-replayed"], "true");
    assert_eq!(retry.json()["data"]["id"], begun["id"]);
    let receipt = client
        .ask("POST", &format!("{at}/receipt"), "")
        .await
        .json();
    let id = receipt["data"]["id"].as_str().unwrap();
    let public = client.world.get(&format!("/api/atp/receipts/{id}")).await;
    assert_eq!(public.json()["data"]["body"], receipt["data"]["body"]);
    let undone = client
        .post(&format!("{at}/compensate"), &json!({"reason": "no"}))
        .await;
    assert_eq!(undone["status"], "compensated");
    let shown = client.ask("GET", &at, "").await;
    assert_eq!(shown.json()["data"]["steps"][0]["action"], "look");
    let other = client.drafted().await;
    let revoked = client
        .post(&format!("/intents/{other}/revoke"), &json!({}))
        .await;
    assert_eq!(revoked["status"], "revoked");
    let listed = client.ask("GET", "/intents?limit=1", "").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!(listed["data"][0]["id"], other);
    let rest = client.ask("GET", "/intents?offset=1", "").await.json();
    assert_eq!(rest["data"][0]["id"], intent);
}

#[tokio::test]
async fn at_104_without_a_token_401_and_with_a_bad_one_403() {
    let client = Client::new().await;
    let intent = client.drafted().await;
    let begun = client.begun().await;
    for (method, path) in [
        ("POST", "/intents".to_owned()),
        ("GET", "/intents".to_owned()),
        ("GET", format!("/intents/{intent}")),
        ("POST", format!("/intents/{intent}/authorize")),
        ("POST", format!("/intents/{intent}/revoke")),
        ("POST", "/transactions".to_owned()),
        ("GET", format!("/transactions/{begun}")),
        ("POST", "/transactions/t/steps".to_owned()),
        ("POST", "/transactions/t/transition".to_owned()),
        ("POST", format!("/transactions/{begun}/compensate")),
        ("POST", "/transactions/t/receipt".to_owned()),
    ] {
        let path = format!("/api/atp{path}");
        let none = client.world.send(method, &path, &[], "{}").await;
        assert_eq!(none.status, 401, "{path}");
        assert_eq!(none.json()["error"], "unauthorized");
        let forged = bearer("another secret of the same sort, as long", "user-1");
        let forged = [("Authorization", forged.as_str())];
        let bad = client.world.send(method, &path, &forged, "{}").await;
        assert_eq!(bad.status, 403, "{path}");
        assert_eq!(bad.json()["error"], "forbidden");
    }
    let other = bearer(SECRET, "user-2");
    let other = [("Authorization", other.as_str())];
    let path = format!("/api/atp/intents/{intent}");
    let foreign = client.world.send("GET", &path, &other, "").await;
    assert_eq!(foreign.status, 403);
}

#[tokio::test]
async fn at_104_agents_and_operators_are_served_as_before() {
    let client = Client::new().await;
    let draft = client.drafted().await;
    let intent = client.world.signed("int_abc").to_string();
    let world = &client.world;
    let created = world.post("/api/atp/intents", &[], &intent).await;
    assert_eq!(created.status, 201);
    let key = [("Idempotency-Key", KEY)];
    world.post("/api/atp/authorize", &key, &intent).await;
    let sent = r#"{"intent_id":"int_abc"}"#;
    let executed = world.post("/api/atp/execute", &key, sent).await;
    assert_eq!(executed.json()["rail"]["name"], "null");
    let shown = world.get("/api/atp/intents/int_abc").await;
    assert_eq!(shown.json()["state"], "settled");
    let operator = format!("Bearer {ADMIN}");
    let operator = [("Authorization", operator.as_str())];
    let listed = world.send("GET", "/api/atp/intents", &operator, "").await;
    let listed = listed.json();
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().any(|one| one["intent_id"] == draft.as_str()));
    let transaction = executed.json()["transaction_id"].clone();
    let begun = client.begun().await;
    for (path, name, value) in [
        (format!("/intents/{draft}"), "intent_id", draft.as_str()),
        ("/intents/int_abc".to_owned(), "intent_id", "int_abc"),
        (
            format!("/transactions/{}", transaction.as_str().unwrap()),
            "intent_id",
            "int_abc",
        ),
        (
            format!("/transactions/{begun}"),
            "transaction_id",
            begun.as_str(),
        ),
    ] {
        let path = format!("/api/atp{path}");
        let shown = world.send("GET", &path, &operator, "").await;
        assert_eq!(shown.status, 200, "{path}: {}", shown.text);
        assert_eq!(shown.json()[name], value, "{path}");
    }
}

#[tokio::test]
async fn what_users_write_counts_for_their_address_too() {
    let client = Client {
        world: World::compatible(1, SECRET).await,
        token: bearer(SECRET, "user-1"),
    };
    let intent = client.drafted().await;
    for path in [
        "/intents".to_owned(),
        format!("/intents/{intent}/authorize"),
        format!("/intents/{intent}/revoke"),
        "/transactions".to_owned(),
        "/transactions/t/steps".to_owned(),
        "/transactions/t/transition".to_owned(),
        "/transactions/t/compensate".to_owned(),
    ] {
        let refused = client.ask("POST", &path, "{}").await;
        assert_eq!(refused.status, 429, "{path}");
    }
    let shown = client.ask("GET", &format!("/intents/{intent}"), "").await;
    assert_eq!(shown.status, 200, "reading has no such limit");
}

#[tokio::test]
async fn a_users_path_that_is_no_text_is_refused_in_the_protocols_own_shape() {
    let client = Client::new().await;
    for path in ["/intents/%ff/authorize", "/transactions/%ff/receipt"] {
        let refused = client.ask("POST", path, "").await;
        assert_eq!(refused.status, 404, "{path}");
        assert_eq!(refused.json()["error"], "not_found", "{path}");
    }
}
