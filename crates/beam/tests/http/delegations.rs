//! Delegations and DID documents over HTTP.

use consign_beam::signed_text::BeamSignedText;
use serde_json::{Value, json};

use super::agents::registered;
use super::world::{Answer, Identity, World};

const YEAR_2100: f64 = 4_102_444_800_000.0;

fn delegation(grantor: &Identity, grantee: &Identity, scope: &str, expires_at: f64) -> Value {
    let text = BeamSignedText::delegation(&grantor.beam_id, &grantee.beam_id, scope, expires_at);
    json!({
        "grantee_beam_id": grantee.beam_id,
        "scope": scope,
        "expires_at": expires_at,
        "signature": text.sign(&grantor.key()),
    })
}

async fn grant(world: &World, body: &Value) -> Answer {
    let path = "/agents/alice@acme.beam.directory/delegate";
    world
        .from_elsewhere("POST", path, &[], Some(body.to_string()))
        .await
}

async fn granted(world: &World) -> Value {
    world
        .get("/agents/alice@acme.beam.directory/delegations")
        .await
        .json()
}

async fn revoke(world: &World, signer: &Identity, id: i64) -> Answer {
    let text = BeamSignedText::delegation_revoke("alice@acme.beam.directory", id);
    let body = json!({"signature": text.sign(&signer.key())});
    let path = format!("/agents/alice@acme.beam.directory/delegations/{id}");
    world
        .from_elsewhere("DELETE", &path, &[], Some(body.to_string()))
        .await
}

#[tokio::test]
async fn a_delegation_is_granted_listed_and_revoked_for_good() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let body = delegation(&alice, &bob, "*", YEAR_2100);
    let answer = grant(&world, &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let first = answer.json();
    assert_eq!(first["grantorBeamId"], json!(alice.beam_id));
    assert_eq!(first["granteeBeamId"], json!(bob.beam_id));
    assert_eq!(first["scope"], "*");
    assert_eq!(first["expiresAt"], json!(4_102_444_800_000_i64));
    assert_eq!(first["revoked"], json!(false));
    assert_eq!(grant(&world, &body).await.json(), first, "the same again");
    assert_eq!(
        granted(&world).await,
        json!({"delegations": [first], "total": 1})
    );

    let id = first["id"].as_i64().unwrap();
    assert_eq!(
        revoke(&world, &bob, id).await.error(),
        (400, "INVALID_SIGNATURE".to_owned())
    );
    let answer = revoke(&world, &alice, id).await;
    assert_eq!(answer.json(), json!({"revoked": true, "id": id}));
    assert_eq!(
        revoke(&world, &alice, id).await.error(),
        (404, "NOT_FOUND".to_owned())
    );
    assert_eq!(granted(&world).await["total"], 0);
    let replay = grant(&world, &body).await;
    assert_eq!(
        replay.error(),
        (400, "INVALID_DELEGATION".to_owned()),
        "a replay"
    );
    let other = delegation(&alice, &bob, "*", YEAR_2100 + 1.0);
    assert_eq!(grant(&world, &other).await.status, 201);
}

#[tokio::test]
async fn delegation_errors() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let good = delegation(&alice, &bob, "agent.ping", YEAR_2100);
    for (name, value) in [
        ("grantee_beam_id", json!("nobody")),
        ("scope", json!("")),
        ("scope", json!("x".repeat(257))),
        ("expires_at", json!("soon")),
        ("expires_at", json!(1)),
        ("expires_at", json!(-1e300)),
        ("signature", Value::Null),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let answer = grant(&world, &body).await;
        assert_eq!(
            answer.error(),
            (400, "INVALID_DELEGATION".to_owned()),
            "{body}"
        );
    }
    let mut wider = good.clone();
    wider["scope"] = json!("*");
    assert_eq!(
        grant(&world, &wider).await.error(),
        (400, "INVALID_SIGNATURE".to_owned())
    );
    let forged = delegation(&Identity::new(&alice.beam_id, 9), &bob, "*", YEAR_2100);
    assert_eq!(
        grant(&world, &forged).await.error(),
        (400, "INVALID_SIGNATURE".to_owned())
    );
    let unknown = Identity::new("nobody@acme.beam.directory", 9);
    let body = delegation(&alice, &unknown, "*", YEAR_2100);
    assert_eq!(
        grant(&world, &body).await.error(),
        (404, "NOT_FOUND".to_owned())
    );
    for path in [
        "/agents/nobody@acme.beam.directory/delegate",
        "/agents/x/delegate",
    ] {
        let status = world.post(path, &good).await.status;
        assert!(status == 404 || status == 400, "{path}");
    }
    let path = "/agents/alice@acme.beam.directory/delegations/abc";
    let answer = world
        .request("DELETE", path, &[], Some("{}".to_owned()))
        .await;
    assert_eq!(answer.error(), (400, "INVALID_DELEGATION".to_owned()));
}

#[tokio::test]
async fn a_later_agent_with_the_same_id_inherits_no_delegation() {
    let world = World::new().await;
    let (alice, bob) = (Identity::alice(), Identity::bob());
    registered(&world, &alice).await;
    let key = registered(&world, &bob).await;
    let body = delegation(&alice, &bob, "*", YEAR_2100);
    assert_eq!(grant(&world, &body).await.status, 201);
    let headers = [("x-api-key", key.as_str())];
    let path = format!("/agents/{}", bob.beam_id);
    assert_eq!(
        world.request("DELETE", &path, &headers, None).await.status,
        204
    );
    assert_eq!(granted(&world).await["total"], 0);
    registered(&world, &Identity::new(&bob.beam_id, 9)).await;
    assert_eq!(granted(&world).await["total"], 0);
    let replay = grant(&world, &body).await;
    assert_eq!(replay.error(), (400, "INVALID_DELEGATION".to_owned()));
}

#[tokio::test]
async fn a_did_resolves_to_the_keys_of_an_agent() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let next = Identity::new(&alice.beam_id, 9);
    let body = json!({"publicKey": next.public_key()}).to_string();
    let path = format!("/agents/{}/keys/rotate", alice.beam_id);
    let headers = [("x-api-key", key.as_str())];
    assert_eq!(
        world
            .request("POST", &path, &headers, Some(body))
            .await
            .status,
        200
    );

    for path in ["/did/did:beam:acme:alice", "/did/did%3Abeam%3Aacme%3Aalice"] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let document = answer.json();
        assert_eq!(document["id"], "did:beam:acme:alice");
        assert_eq!(document["alsoKnownAs"], json!([alice.beam_id]));
        let methods = document["verificationMethod"].as_array().unwrap();
        let multibase = next.key().public_key().to_multibase();
        assert_eq!(methods.len(), 2);
        assert_eq!(methods[0]["publicKeyMultibase"], json!(multibase));
        assert_eq!(methods[0]["beamStatus"], "active");
        assert_eq!(methods[1]["beamStatus"], "revoked");
        let active = format!("did:beam:acme:alice#{multibase}");
        assert_eq!(document["authentication"], json!([active]));
    }
    let multibase = alice.key().public_key().to_multibase();
    let answer = world.get(&format!("/did/did:beam:{multibase}")).await;
    assert_eq!(answer.json()["id"], json!(format!("did:beam:{multibase}")));
    for did in [
        "did:beam:acme:nobody",
        "did:web:acme",
        "x",
        "%FF",
        "did:beam:acme/alice",
    ] {
        let answer = world.get(&format!("/did/{did}")).await;
        assert_eq!(answer.error(), (404, "NOT_FOUND".to_owned()), "{did}");
    }
}
