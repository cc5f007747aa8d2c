//! `POST /v1/messages`: the statuses of an accepted, repeated, conflicting and refused message.

use consign_web::listener_policy::ListenerPolicy;
use serde_json::{Value, json};

use crate::world::{World, key};

async fn world() -> (World, String) {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    world.member(2, "bob").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    (world, api_key)
}

fn dm(id: &str, text: &str) -> Value {
    json!({
        "destination_kind": "dm", "destination_ref": key(2), "body": text, "client_message_id": id,
    })
}

#[tokio::test]
async fn cm_058_cm_059_cm_060_a_message_is_accepted_repeated_and_in_conflict() {
    let (world, api_key) = world().await;
    let first = world.send(&api_key, &dm("m-1", "hi")).await.of(201);
    assert_eq!(first["duplicate"], json!(false));
    assert_eq!(first["client_message_id"], json!("m-1"));
    assert_eq!(first["messageId"], first["broker_message_id"]);
    let again = world.send(&api_key, &dm("m-1", "hi")).await.of(200);
    assert_eq!(again["duplicate"], json!(true));
    assert_eq!(again["history_available"], json!(true));
    assert_eq!(again["broker_message_id"], first["broker_message_id"]);
    assert!(again["first_seen_at"].is_string(), "{again}");
    let other = world.send(&api_key, &dm("m-1", "ho")).await.of(409);
    assert_eq!(other["error"], json!("idempotency_key_reused"));
    assert_eq!(other["conflict"], json!("request_fingerprint_mismatch"));
    let prefix = other["broker_fingerprint_prefix"].as_str().unwrap();
    assert_eq!(prefix.len(), 16);
    assert!(other.get("messageId").is_none(), "{other}");
}

#[tokio::test]
async fn cm_039_the_header_precedes_the_id_in_the_body() {
    let (world, api_key) = world().await;
    let header = [("idempotency-key", "from-header")];
    let body = dm("from-body", "hi");
    let sent = world.send_with(&api_key, &header, &body).await;
    assert_eq!(sent.of(201)["client_message_id"], "from-header");
    world.send(&api_key, &dm("from-body", "ho")).await.of(201);
    world.send(&api_key, &dm("from-header", "hi")).await.of(200);
    let invalid = [("idempotency-key", "has space")];
    let refused = world.send_with(&api_key, &invalid, &dm("m", "hi")).await;
    assert_eq!(refused.of(400)["error"], "invalid_client_message_id");
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let refused = world.send_with(&api_key, &twice, &dm("m", "hi")).await;
    assert_eq!(refused.error(), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn cm_067_cm_068_a_refusal_uses_up_no_id() {
    let (world, api_key) = world().await;
    let mut unknown = dm("m-1", "hi");
    unknown["destination_ref"] = json!(key(9));
    let refused = world.send(&api_key, &unknown).await;
    assert_eq!(refused.of(404)["error"], "not_found");
    let mut low = dm("m-1", "hi");
    low["priority"] = json!("urgent");
    let refused = world.send(&api_key, &low).await;
    assert_eq!(refused.of(400)["error"], "invalid_priority");
    let count = "SELECT CAST(COUNT(*) AS TEXT) FROM records WHERE kind = 41";
    assert_eq!(world.ledger.sql(count), ["0"]);
    world.send(&api_key, &dm("m-1", "hi")).await.of(201);
}

#[tokio::test]
async fn cm_164_another_member_with_the_id_learns_nothing() {
    let (world, api_key) = world().await;
    world.send(&api_key, &dm("m-1", "hi")).await.of(201);
    let other = world.api_key(2, json!({"capabilities": ["send"]})).await;
    let topic = json!({"topic": "general", "body": "x", "client_message_id": "m-1"});
    let refused = world.send(&other, &topic).await.of(409);
    assert_eq!(refused["conflict"], json!("request_fingerprint_mismatch"));
    for member in [
        "broker_fingerprint_prefix",
        "broker_message_id",
        "messageId",
    ] {
        assert!(refused.get(member).is_none(), "{refused}");
    }
}

#[tokio::test]
async fn a_malformed_body_is_refused() {
    let (world, api_key) = world().await;
    for body in [
        json!({}),
        json!({"topic": "general"}),
        json!({"topic": "general", "destination_kind": "dm", "body": "x"}),
        json!({"topic": "general", "body": "x", "ciphertext": "eA=="}),
        json!([1]),
    ] {
        let refused = world.send(&api_key, &body).await;
        assert_eq!(
            refused.error(),
            (400, "invalid_request".to_owned()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn cm_143_the_rollback_switch_accepts_repeated_ids_and_keeps_stored_ones() {
    let off = World::with(ListenerPolicy::default(), |settings| {
        settings.dedupe_is_enforced = false;
    });
    off.mesh(&json!({})).await;
    off.member(1, "alice").await;
    off.member(2, "bob").await;
    let api_key = off.api_key(1, json!({"capabilities": ["send"]})).await;
    let first = off.send(&api_key, &dm("m-1", "hi")).await.of(201);
    let second = off.send(&api_key, &dm("m-1", "hi")).await.of(201);
    assert_ne!(first["broker_message_id"], second["broker_message_id"]);
}

#[tokio::test]
async fn a_message_whose_push_is_too_long_is_413_and_uses_no_id() {
    let (world, api_key) = world().await;
    for to in [
        json!({"topic": "general"}),
        json!({"destination_kind": "dm", "destination_ref": key(2)}),
        json!({"destination_kind": "queue", "destination_ref": "@all"}),
    ] {
        let post = |padding: usize, id: &str| {
            let mut post = to.clone();
            post["ciphertext"] = json!("AAAA".repeat(12_000));
            post["nonce"] = json!("");
            post["meta"] = json!({"m": "y".repeat(padding)});
            if !id.is_empty() {
                post["client_message_id"] = json!(id);
            }
            post
        };
        let (mut accepted, mut refused) = (1_000, 17_300);
        let longest = post(refused, "c").to_string();
        assert!(longest.len() < consign_mesh::limits::FRAME_BYTES_MAX);
        while refused - accepted > 1 {
            let padding = usize::midpoint(accepted, refused);
            let answer = world.send(&api_key, &post(padding, "")).await;
            match answer.status {
                201 => accepted = padding,
                413 => refused = padding,
                _ => panic!("{}", answer.text),
            }
        }
        let id = format!("c-{}", to.to_string().len());
        let too_long = world.send(&api_key, &post(accepted + 200, &id)).await;
        assert_eq!(too_long.of(413)["error"], "payload_too_large");
        let shorter = post(accepted - 200, &id);
        world.send(&api_key, &shorter).await.of(201);
        world.send(&api_key, &shorter).await.of(200);
    }
}
