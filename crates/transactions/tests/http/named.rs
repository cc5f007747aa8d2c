//! Requests whose path names the transaction.

use serde_json::{Value, json};

use crate::world::{KEY, World};

const IDEMPOTENCY: (&str, &str) = ("Idempotency-Key", KEY);

async fn settled(world: &World, id: &str) -> String {
    let intent = world.signed(id).to_string();
    world
        .post("/api/atp/authorize", &[IDEMPOTENCY], &intent)
        .await;
    let sent = json!({"intent_id": id}).to_string();
    let executed = world.post("/api/atp/execute", &[IDEMPOTENCY], &sent).await;
    let transaction = executed.json()["transaction_id"].clone();
    transaction.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_transaction_is_compensated_by_its_path_as_by_its_name() {
    let world = World::new(0).await;
    let id = settled(&world, "int_abc").await;
    let path = format!("/api/atp/transactions/{id}/compensate");
    let keyless = world.post(&path, &[], r#"{"reason":"no"}"#).await;
    assert_eq!(keyless.json()["error"], "idempotency_key_required");
    let undone = world
        .post(&path, &[IDEMPOTENCY], r#"{"reason":"no"}"#)
        .await;
    assert_eq!(undone.status, 200);
    assert_eq!(undone.json()["state"], "compensated");
    // It is the same request as on the protocol's own path, under the same key.
    let whole = json!({"intent_id": "int_abc", "transaction_id": id, "reason": "no"});
    for path in [path.as_str(), "/api/atp/compensate"] {
        let again = world.post(path, &[IDEMPOTENCY], &whole.to_string()).await;
        assert_eq!(again.headers["idempotent-replayed"], "true", "{path}");
        assert_eq!(again.text, undone.text, "{path}");
    }
    let unknown = "/api/atp/transactions/atp_tx_0/compensate";
    let unknown = world.post(unknown, &[IDEMPOTENCY], "{}").await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_body_that_names_something_else_is_refused() {
    let world = World::new(0).await;
    let id = settled(&world, "int_abc").await;
    let path = format!("/api/atp/transactions/{id}/compensate");
    let field = async |body: Value| {
        let refused = world.post(&path, &[IDEMPOTENCY], &body.to_string()).await;
        assert_eq!(refused.status, 400, "{body}");
        refused.json()["field"].clone()
    };
    let other = json!({"intent_id": "int_other", "reason": "no"});
    assert_eq!(field(other).await, "intent_id");
    let other = json!({"transaction_id": "atp_tx_0", "reason": "no"});
    assert_eq!(field(other).await, "transaction_id");
    // A signed body must name the transaction itself.
    let signed = json!({"intent_id": "int_abc", "reason": "no", "signature": "x"});
    assert_eq!(field(signed).await, "transaction_id");
}

#[tokio::test]
async fn an_intent_is_taken_back_by_its_path() {
    let world = World::new(0).await;
    let intent = world.signed("int_abc").to_string();
    world.post("/api/atp/intents", &[], &intent).await;
    let path = "/api/atp/intents/int_abc/revoke";
    for body in ["", r#"{"reason":"no"}"#, r#"{"intent_id":"int_abc"}"#] {
        let revoked = world.post(path, &[], body).await;
        assert_eq!(revoked.status, 200, "{body}");
        assert_eq!(revoked.json()["expired_reason"], "cancelled");
    }
    let other = r#"{"intent_id":"int_other"}"#;
    assert_eq!(world.post(path, &[], other).await.status, 400);
    let unknown = "/api/atp/intents/int_none/revoke";
    assert_eq!(world.post(unknown, &[], "").await.status, 404);
}
