//! Who may claim messages: grants of API keys for the namespaces of agents.

use std::time::Duration;

use consign_engine::Operator;
use serde_json::{Value, json};

use crate::bus::{bus_world, message};
use crate::workers::BOB;
use crate::world::{ADMIN, Answer, MAIN, World};

impl World {
    async fn as_operator(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let headers = [("x-admin-token", ADMIN)];
        let body = body.map(|body| body.to_string());
        self.request(method, path, &headers, body).await
    }
}

/// Status and code of an error of the Intent Protocol.
#[track_caller]
fn refused(answer: &Answer) -> (u16, String) {
    let code = answer.json()["error"]["code"].clone();
    (answer.status, code.as_str().unwrap_or_default().to_owned())
}

fn forbidden() -> (u16, String) {
    (403, "forbidden".to_owned())
}

#[tokio::test]
async fn be_170_no_key_claims_messages_without_a_grant_for_their_recipient() {
    let (world, _, _) = bus_world(|_| ()).await;
    let of_carol = world.worker(&["beam.carol.acme"]).await;
    let of_bob = world.worker(&[BOB]).await;
    let none = world.worker(&[]).await;
    let sent = world.send(&message("n-1")).await.json();
    assert_eq!(sent["status"], "delivered");
    for key in [&*of_carol, &*none, MAIN] {
        let claimed = world.claim(key, &format!("namespace={BOB}")).await;
        assert_eq!(refused(&claimed), forbidden());
        let waited = world.claim(key, &format!("namespace={BOB}&wait=5")).await;
        assert_eq!(refused(&waited), forbidden());
        let settle = json!({
            "items": [{"id": sent["message_id"], "claim_token": "0".repeat(32), "action": "fail"}],
            "claim": {"namespace": BOB},
        });
        let settled = world.as_worker(key, "/settle", &settle).await;
        assert_eq!(refused(&settled), forbidden());
    }
    // Names that differ a little are other queues, and there is no grant for what names no agent.
    for namespace in [
        "beam.bob",
        "beam.bob.acme.x",
        "beam.BOB.acme",
        "beam.",
        "mesh.bob",
    ] {
        let claimed = world
            .claim(&of_bob, &format!("namespace={namespace}"))
            .await;
        assert_eq!(refused(&claimed), forbidden(), "{namespace}");
    }
    // A claim elsewhere finds no message, whatever grants its key has.
    for query in ["", "namespace=default", "namespace=bus"] {
        assert_eq!(world.claim(&of_bob, query).await.status, 204, "{query}");
    }
    let publisher = format!("namespace={BOB}&publisher=main");
    let claimed = world.claim(&of_bob, &publisher).await;
    assert_eq!(refused(&claimed), (403, "forbidden".to_owned()));
    // Publishing stays forbidden, also with a grant.
    let publish = json!({"goal": "g", "payload": {}, "namespace": BOB});
    let published = world.as_worker(&of_bob, "/intent", &publish).await;
    assert_eq!(refused(&published), forbidden());
    assert_eq!(world.claim_of_bob(&of_bob).await["id"], sent["message_id"]);
}

#[tokio::test]
async fn be_170_a_key_neither_settles_nor_reads_what_another_one_holds() {
    let (world, _, _) = bus_world(|_| ()).await;
    let holder = world.worker(&[BOB]).await;
    let other = world.worker(&[BOB]).await;
    world.send(&message("n-1")).await;
    let claimed = world.claim_of_bob(&holder).await;
    for key in [&*other, MAIN] {
        let fulfilled = world.fulfil(key, &claimed, &json!({"result": {}})).await;
        assert_eq!(refused(&fulfilled), (404, "not_found".to_owned()));
    }
    // The reads of the Intent Protocol show intents alone.
    let id = claimed["id"].as_str().unwrap();
    for key in [&*holder, &*other, MAIN] {
        let headers = [("x-api-key", key)];
        for path in [
            format!("/status/{id}"),
            format!("/result/{id}"),
            format!("/intents/{id}/timeline"),
            format!("/intents/{id}/receipt"),
        ] {
            let read = world.request("GET", &path, &headers, None).await;
            assert_eq!(read.status, 404, "{path}");
        }
        let list = world.request("GET", "/intents", &headers, None).await;
        assert_eq!(list.json()["intents"], json!([]));
    }
    // An operator may do with it what its own protocol allows.
    let cancel = format!("/admin/intents/{id}/cancel");
    assert_eq!(world.as_operator("POST", &cancel, None).await.status, 409);
    let fulfilled = world.fulfil(&holder, &claimed, &json!({})).await;
    assert_eq!(fulfilled.status, 200);
}

#[tokio::test]
async fn be_170_a_revoked_grant_refuses_claims_at_once_and_lets_its_holder_finish() {
    let (world, _, _) = bus_world(|_| ()).await;
    let key = world.worker(&[BOB]).await;
    world.send(&message("n-1")).await;
    let claimed = world.claim_of_bob(&key).await;
    let id = world.engine.publisher_id(&key);
    let wait = format!("namespace={BOB}&wait=20");
    let revoke = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let operator = Operator::vouched();
        let revoked = world.engine.revoke_grant(operator, &id, BOB).await;
        assert!(revoked.unwrap());
        // The waiting claim wakes for it, and finds that it may not have it.
        world.send(&message("n-2")).await
    };
    let (waited, sent) = tokio::join!(world.claim(&key, &wait), revoke);
    assert_eq!(refused(&waited), forbidden());
    let again = world.claim(&key, &format!("namespace={BOB}")).await;
    assert_eq!(refused(&again), forbidden());
    // No key has a grant now, so the message is retried as without workers.
    assert_eq!(sent.json()["status"], "queued");
    let fulfilled = world
        .fulfil(&key, &claimed, &json!({"result": {"ok": 1}}))
        .await;
    assert_eq!(fulfilled.status, 200, "{}", fulfilled.text);
    let stored = world.stored(claimed["id"].as_str().unwrap()).await;
    assert_eq!(stored["status"], "acked");
}

#[tokio::test]
async fn be_176_operators_make_list_and_revoke_grants() {
    let (world, _, _) = bus_world(|_| ()).await;
    let made = json!({"owner": "w", "grants": [BOB, "beam.carol"]});
    let made = world
        .as_operator("POST", "/admin/generate_key", Some(made))
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let made = made.json();
    assert_eq!(made["grants"], json!([BOB, "beam.carol"]));
    let id = made["id"].as_str().unwrap();
    let change = async |path: &str, key_id: &str, namespace: &str| {
        let body = json!({"key_id": key_id, "namespace": namespace});
        world.as_operator("POST", path, Some(body)).await
    };
    for _ in 0..2 {
        let granted = change("/admin/grant", "main", BOB).await;
        assert_eq!(
            (granted.status, granted.json()),
            (200, json!({"ok": true, "key_id": "main", "namespace": BOB}))
        );
    }
    let listed = world.as_operator("GET", "/admin/grants", None).await.json();
    let listed: Vec<(&str, &str)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|grant| {
            assert!(grant["granted_at"].as_f64().unwrap() > 1.7e9);
            (
                grant["key_id"].as_str().unwrap(),
                grant["namespace"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(listed, [(id, BOB), ("main", BOB), (id, "beam.carol")]);
    let keys = world.as_operator("GET", "/admin/keys", None).await.json();
    assert_eq!(keys[0]["grants"], json!([BOB, "beam.carol"]), "{keys}");
    let main = world.claim(MAIN, &format!("namespace={BOB}")).await;
    assert_eq!(main.status, 204);

    let missing = (404, "not_found".to_owned());
    let unknown = change("/admin/grant", "k_0000000000000000", BOB).await;
    assert_eq!(refused(&unknown), missing);
    for namespace in ["default", "mesh.q", "beam.", "beam.Bob.acme", "a b"] {
        let granted = change("/admin/grant", id, namespace).await;
        let invalid = (400, "invalid_namespace".to_owned());
        assert_eq!(refused(&granted), invalid, "{namespace}");
    }
    let revoked = change("/admin/revoke_grant", "main", BOB).await;
    assert_eq!(revoked.status, 200);
    let again = change("/admin/revoke_grant", "main", BOB).await;
    assert_eq!(refused(&again), missing);
    let main = world.claim(MAIN, &format!("namespace={BOB}")).await;
    assert_eq!(refused(&main), forbidden());
    // The grants of a key end with it.
    let body = json!({"api_key": id});
    world
        .as_operator("POST", "/admin/revoke_key", Some(body))
        .await;
    let listed = world.as_operator("GET", "/admin/grants", None).await.json();
    assert_eq!(listed, json!([]));
    let without = world.request("GET", "/admin/grants", &[], None).await;
    assert_eq!(without.status, 401);
}

#[tokio::test]
async fn be_170_claims_of_messages_count_against_the_rate_of_their_key() {
    let (world, _, _) = bus_world(|_| ()).await;
    let key = world.worker(&[BOB]).await;
    let query = format!("namespace={BOB}&max=50");
    assert_eq!(world.claim(&key, &query).await.status, 204);
    assert_eq!(world.claim(&key, &query).await.status, 429);
    let stranger = world.worker(&[]).await;
    assert_eq!(world.claim(&stranger, &query).await.status, 403);
    assert_eq!(world.claim(&stranger, &query).await.status, 429);
}
