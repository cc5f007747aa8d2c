//! `POST /join`.

use consign_mesh::invite::InvitePayload;
use consign_mesh::keys::MeshPrivateKey;
use serde_json::{Value, json};

use crate::world::{World, key};

fn refused(answer: &crate::world::Answer) -> String {
    let body = answer.of(400);
    assert_eq!(body["ok"], json!(false), "{body}");
    body["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn cm_160_a_guest_joins_once_and_each_refusal_has_its_word() {
    let world = World::new();
    let mesh_id = world.mesh(&json!({})).await;
    let token = world.invite(&json!({"uses": 1, "valid_for_s": 60})).await;
    let joined = world.join(&token, 1, "alice").await.of(200);
    assert_eq!(joined["ok"], json!(true));
    assert!(joined.get("alreadyMember").is_none(), "{joined}");
    let again = world.join(&token, 1, "alice").await.of(200);
    assert_eq!(again["alreadyMember"], json!(true));
    assert_eq!(again["memberId"], joined["memberId"]);
    let full = world.join(&token, 2, "bob").await;
    assert_eq!(refused(&full), "invite_exhausted");

    let payload = InvitePayload::parse(&token).unwrap();
    let with = async |change: &dyn Fn(&mut InvitePayload)| {
        let mut changed = payload.clone();
        change(&mut changed);
        refused(&world.join(&changed.token(), 2, "bob").await)
    };
    let unknown = with(&|payload| payload.mesh_id = "none".to_owned()).await;
    assert_eq!(unknown, "mesh_not_found");
    let forged = with(&|payload| payload.expires_at += 1).await;
    assert_eq!(forged, "invite_bad_signature");
    let stranger = MeshPrivateKey::from_seed(&[9; 32]);
    let foreign = with(&|payload| *payload = payload.clone().signed(&stranger)).await;
    assert_eq!(foreign, "invite_owner_mismatch");

    // Upstream's clients send the payload beside the token.
    let beside = async |token: &str, payload: Value| {
        let body = json!({
            "invite_token": token, "invite_payload": payload, "peer_pubkey": key(2), "display_name": "bob",
        });
        let body = body.to_string();
        let answer = world.request("POST", "/join", &[], Some(&body)).await;
        refused(&answer)
    };
    let mut forged = json!(payload);
    forged["role"] = json!("admin");
    assert_eq!(beside(&token, forged).await, "invite_bad_signature");
    assert_eq!(beside("random", json!(payload)).await, "invite_not_found");
    let other = world.post("/v1/meshes", &json!({"slug": "other"})).await;
    other.of(201);
    let elsewhere = world.post("/v1/meshes/other/invites", &json!({})).await;
    let elsewhere = elsewhere.of(201)["token"].as_str().unwrap().to_owned();
    let of_other = beside(&elsewhere, json!(payload)).await;
    assert_eq!(of_other, "invite_mesh_mismatch");

    let revoked = world.invite(&json!({})).await;
    let invites = world.get("/v1/meshes/acme/invites").await.of(200);
    let newest = invites["invites"].as_array().unwrap();
    let newest = newest.iter().find(|invite| invite["uses"] == json!(0));
    let id = newest.unwrap()["id"].as_str().unwrap();
    let path = format!("/v1/meshes/acme/invites/{id}/revoke");
    assert_eq!(world.post(&path, &json!({})).await.of(200)["revoked"], true);
    assert_eq!(
        refused(&world.join(&revoked, 2, "bob").await),
        "invite_revoked"
    );

    let brief = world.invite(&json!({"valid_for_s": 1})).await;
    world.clock.advance_s(1);
    assert_eq!(
        refused(&world.join(&brief, 2, "bob").await),
        "invite_expired"
    );
    let members = world.broker.mesh(&mesh_id).await.unwrap();
    assert!(members.is_some());
    let members = world.get("/v1/meshes/acme/members").await.of(200);
    assert_eq!(members["members"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_malformed_request_to_join_is_refused_in_the_same_format() {
    let world = World::new();
    for body in ["", "{", "[]", r#"{"invite_token":"x"}"#] {
        let answer = world.request("POST", "/join", &[], Some(body)).await;
        assert!(refused(&answer).starts_with("malformed"), "{body}");
    }
    let long = format!(r#"{{"invite_token":"{}"}}"#, "x".repeat(70_000));
    let answer = world.request("POST", "/join", &[], Some(&long)).await;
    assert_eq!(answer.error(), (413, "payload_too_large".to_owned()));
}

#[tokio::test]
async fn invented_invites_are_counted_as_wrong_credentials_and_used_ones_are_not() {
    let world = World::new();
    world.mesh(&json!({})).await;
    let token = world.invite(&json!({"uses": 1})).await;
    let joined = world.join(&token, 1, "alice").await;
    assert!(!joined.is_counted);
    let exhausted = world.join(&token, 2, "bob").await;
    assert_eq!(refused(&exhausted), "invite_exhausted");
    assert!(!exhausted.is_counted);
    let payload = InvitePayload::parse(&token).unwrap();
    let mut forged = payload.clone();
    forged.expires_at += 1;
    let unknown = InvitePayload {
        mesh_id: "m".repeat(200),
        ..payload
    };
    for (invented, word) in [
        (forged, "invite_bad_signature"),
        (unknown, "mesh_not_found"),
    ] {
        let answer = world.join(&invented.token(), 2, "bob").await;
        assert_eq!(refused(&answer), word);
        assert!(answer.is_counted, "{word}");
    }
}
