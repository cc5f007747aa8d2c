//! Registration, lookup and deletion of agents.

use consign_beam::directory::records::Agent;
use consign_beam::signed_text::BeamSignedText;
use serde_json::{Value, json};

use super::world::{Answer, Identity, World};

const REGISTER: &str = "/agents/register";

/// A registration of this identity.
pub(crate) fn registration(identity: &Identity) -> Value {
    json!({
        "beamId": identity.beam_id,
        "displayName": "Alice",
        "capabilities": ["conversation", "orders"],
        "publicKey": identity.public_key(),
    })
}

/// Registers from this machine and returns the API key.
pub(crate) async fn registered(world: &World, identity: &Identity) -> String {
    let answer = world.post(REGISTER, &registration(identity)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["apiKey"].as_str().unwrap().to_owned()
}

async fn register_request_elsewhere(
    world: &World,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let body = Some(body.to_string());
    world
        .request_elsewhere("POST", REGISTER, headers, body)
        .await
}

/// The rotation signature of an identity over a key, as fields of a body.
fn with_rotation_signature(mut body: Value, world: &World, signer: &Identity) -> Value {
    let timestamp = world.now_text();
    let key = body["publicKey"].as_str().unwrap().to_owned();
    let text = BeamSignedText::keys_rotate(&signer.beam_id, &key, &timestamp);
    body["signature"] = json!(text.sign(&signer.key()));
    body["timestamp"] = json!(timestamp);
    body
}

#[tokio::test]
async fn be_080_a_registration_returns_the_record_that_a_lookup_shows() {
    let world = World::new().await;
    let alice = Identity::alice();
    let answer = world.post(REGISTER, &registration(&alice)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let body = answer.json();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    assert_eq!(text("beam_id"), alice.beam_id);
    assert_eq!(text("org"), "acme");
    assert_eq!(text("display_name"), "Alice");
    assert_eq!(text("public_key"), alice.public_key());
    assert_eq!(text("verification_tier"), "basic");
    assert_eq!(text("verificationTier"), "basic");
    assert_eq!(text("visibility"), "unlisted");
    assert_eq!(text("did"), "did:beam:acme:alice");
    assert_eq!(text("plan"), "free");
    assert_eq!(body["capabilities"], json!(["conversation", "orders"]));
    assert_eq!(body["trust_score"], json!(0.5));
    for name in [
        "personal",
        "email_verified",
        "verified",
        "flagged",
        "verification_email_sent",
    ] {
        assert_eq!(body[name], json!(false), "{name}");
    }
    for name in [
        "email",
        "description",
        "logo_url",
        "website",
        "shield_config",
        "http_endpoint",
        "dh_public_key",
    ] {
        assert_eq!(body.get(name), Some(&Value::Null), "{name}");
    }
    for name in ["created_at", "last_seen"] {
        assert!(
            text(name).ends_with('Z') && text(name).len() == 24,
            "{name}"
        );
    }
    let state = &body["keyState"];
    assert_eq!(state["total"], 1);
    assert_eq!(state["active"]["publicKey"], json!(alice.public_key()));
    assert_eq!(state["active"]["status"], "active");
    assert_eq!(state["active"]["beamId"], json!(alice.beam_id));
    assert_eq!(state["active"]["revokedAt"], Value::Null);
    assert!(state["active"]["createdAt"].is_i64() && state["active"]["id"].is_u64());
    assert_eq!(state["keys"], json!([state["active"]]));
    assert_eq!(state["revoked"], json!([]));

    let found = world.get("/agents/alice%40acme.beam.directory").await;
    assert_eq!(found.status, 200, "{}", found.text);
    let found = found.json();
    for (name, value) in body.as_object().unwrap() {
        if !["apiKey", "verification_email_sent"].contains(&name.as_str()) {
            assert_eq!(&found[name], value, "{name}");
        }
    }
    let stats = json!({"received": 0, "responded": 0, "avg_response_time_ms": null});
    assert_eq!(found["intentStats"], stats);
    assert_eq!(found["connected"], json!(false));
    assert!(!found.to_string().contains("api_key"), "{found}");
    assert!(found.get("apiKey").is_none());

    let socket = world.connect(&alice.beam_id).await;
    let found = world.get("/agents/alice@acme.beam.directory").await.json();
    assert_eq!(found["connected"], json!(true));
    drop(socket);
    for (path, error) in [
        ("/agents/nobody@acme.beam.directory", (404, "NOT_FOUND")),
        (
            "/agents/Alice@acme.beam.directory",
            (400, "INVALID_BEAM_ID"),
        ),
        ("/agents/%FF", (400, "INVALID_BEAM_ID")),
    ] {
        let (status, code) = world.get(path).await.error();
        assert_eq!((status, code.as_str()), error, "{path}");
    }
}

#[tokio::test]
async fn be_080_intent_stats_count_the_intents_to_an_agent() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let mut socket = world.connect(&bob.beam_id).await;
    let frame = alice.message(&world, &bob, "n-1");
    let reply = json!({"message": "re"});
    let (answer, _) = tokio::join!(
        world.post("/intents/send", &frame),
        socket.answer(&bob, &reply)
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    let found = world.get(&format!("/agents/{}", bob.beam_id)).await.json();
    let measured = found["intentStats"]["avg_response_time_ms"].clone();
    assert!((0..60_000).contains(&measured.as_i64().unwrap()), "{found}");
    let stats = json!({"received": 1, "responded": 1, "avg_response_time_ms": measured});
    assert_eq!(found["intentStats"], stats);
    let stats = world.get("/agents/stats").await.json();
    let expected = json!({
        "total_agents": 2, "verified_agents": 0, "intents_processed": 1,
        "avg_response_time_ms": measured,
    });
    assert_eq!(stats, expected);
}

#[tokio::test]
async fn be_081_registration_errors_over_http() {
    let world = World::new().await;
    let good = registration(&Identity::alice());
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    for (body, code) in [
        (with("capabilities", json!("chat")), "INVALID_CAPABILITIES"),
        (
            with("capabilities", json!(["chat", 7])),
            "INVALID_CAPABILITIES",
        ),
        (
            with("capabilities", json!(["chat", " "])),
            "INVALID_CAPABILITIES",
        ),
        (with("displayName", json!("  ")), "INVALID_DISPLAY_NAME"),
        (with("displayName", json!(7)), "INVALID_DISPLAY_NAME"),
        (with("email", json!("nobody")), "INVALID_EMAIL"),
        (with("logoUrl", json!("logo")), "INVALID_LOGO_URL"),
        (
            with("verificationTier", json!("royal")),
            "INVALID_VERIFICATION_TIER",
        ),
        (with("publicKey", json!("")), "INVALID_PUBLIC_KEY"),
        (
            with("publicKey", json!("AAAA")),
            "INVALID_PUBLIC_KEY_FORMAT",
        ),
        (with("beamId", json!("alice")), "INVALID_BEAM_ID"),
        (with("org", json!("other")), "ORG_MISMATCH"),
        (
            with("httpEndpoint", json!("http://a.example")),
            "INVALID_HTTP_ENDPOINT",
        ),
        (
            with("httpEndpoint", json!("https://127.1/")),
            "INVALID_HTTP_ENDPOINT",
        ),
    ] {
        let answer = world.post(REGISTER, &body).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{body}");
    }
    let raw = |body: &str| Some(body.to_owned());
    let answer = world.request("POST", REGISTER, &[], raw("{")).await;
    assert_eq!(answer.error(), (400, "INVALID_JSON".to_owned()));
    let answer = world.request("POST", REGISTER, &[], raw("[]")).await;
    assert_eq!(answer.error(), (400, "INVALID_BODY".to_owned()));
    let path = "/agents/alice@acme.beam.directory";
    assert_eq!(world.get(path).await.status, 404, "nothing was stored");

    let aliases = json!({
        "display_name": " Alice ", "capabilities": [], "public_key": Identity::alice().public_key(),
        "email": "Alice@Acme.example", "logo_url": "https://acme.example/l.png", "visibility": "PUBLIC",
        "http_endpoint": "https://agents.acme.example/beam", "dh_public_key": "dh",
        "verification_tier": "enterprise", "emailVerified": true, "email_verified": true,
    });
    let body = world.post(REGISTER, &aliases).await.json();
    assert_eq!(body["beam_id"], "alice@acme.beam.directory", "{body}");
    assert_eq!(body["display_name"], "Alice");
    assert_eq!(body["email"], "alice@acme.example");
    assert_eq!(body["logo_url"], "https://acme.example/l.png");
    assert_eq!(body["visibility"], "public");
    assert_eq!(body["http_endpoint"], "https://agents.acme.example/beam");
    assert_eq!(body["dh_public_key"], "dh");
    // What only an operator may say does not count.
    assert_eq!(body["verification_tier"], "basic");
    assert_eq!(body["email_verified"], json!(false));
    assert_eq!(body["verified"], json!(false));
    assert_eq!(body["trust_score"], json!(0.5));
}

#[tokio::test]
async fn be_081_without_an_id_each_agent_gets_a_free_one() {
    let world = World::new().await;
    let body = |seed| {
        let key = Identity::new("x@beam.directory", seed).public_key();
        json!({"displayName": "Order -- Desk!", "capabilities": [], "publicKey": key})
    };
    for (seed, expected) in [
        (1, "order-desk@beam.directory"),
        (2, "order-desk-2@beam.directory"),
        // The same key does not mean the same agent.
        (1, "order-desk-3@beam.directory"),
    ] {
        let answer = world.post(REGISTER, &body(seed)).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(answer.json()["beam_id"], expected);
    }
    let (one, two) = (body(3), body(4));
    let (one, two) = tokio::join!(world.post(REGISTER, &one), world.post(REGISTER, &two));
    let ids = [one.json()["beam_id"].clone(), two.json()["beam_id"].clone()];
    assert_ne!(ids[0], ids[1], "at the same time");
}

#[tokio::test]
async fn many_agents_register_at_the_same_time() {
    let world = World::new().await;
    let identities =
        (0..200_u8).map(|seed| Identity::new(&format!("n{seed}@beam.directory"), seed));
    let identities: Vec<_> = identities.collect();
    let keys = identities
        .iter()
        .map(|identity| registered(&world, identity));
    let keys = futures_util::future::join_all(keys).await;
    assert_eq!(keys.len(), 200);
    let found = world.get("/agents/browse?limit=500").await.json();
    assert_eq!(found["total"], 200);
}

#[tokio::test]
async fn be_082_only_the_hash_of_the_api_key_is_stored() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    assert!(
        key.starts_with("bk_YWxpY2VAYWNtZS5iZWFtLmRpcmVjdG9yeQ."),
        "{key}"
    );
    let (_, secret) = key.split_once('.').unwrap();
    assert_eq!(secret.len(), 32, "24 bytes");
    let record = world
        .engine
        .record(Agent::key(&alice.beam_id))
        .await
        .unwrap()
        .unwrap();
    assert!(!record.value.contains(secret));
    let agent: Agent = serde_json::from_str(&record.value).unwrap();
    let hash = agent.api_key_hash.unwrap();
    assert_eq!(hash, consign_beam::api_key::digest(&key));
    assert_ne!(
        registered(&world, &alice).await,
        key,
        "each registration draws a secret"
    );
}

#[tokio::test]
async fn be_083_a_known_agent_is_registered_again_with_its_key_only() {
    let world = World::new().await;
    let alice = Identity::alice();
    let first = registered(&world, &alice).await;
    let second = registered(&world, &alice).await;
    assert_ne!(first, second);
    let path = format!("/agents/{}", alice.beam_id);
    let before = world.get(&path).await.json();
    assert_eq!(before["keyState"]["total"], 1);

    let other = registration(&Identity::new(&alice.beam_id, 9));
    let answer = world.post(REGISTER, &other).await;
    assert_eq!(
        answer.error(),
        (409, "KEY_ROTATION_REQUIRED".to_owned()),
        "from this machine"
    );
    let answer = register_request_elsewhere(&world, &[("x-api-key", "bk_wrong.key")], &other).await;
    assert_eq!(answer.error(), (409, "KEY_ROTATION_REQUIRED".to_owned()));
    // The key of a registrant does not sign for another one.
    let forged = with_rotation_signature(other.clone(), &world, &Identity::new(&alice.beam_id, 9));
    let answer = world.post(REGISTER, &forged).await;
    assert_eq!(answer.error(), (409, "KEY_ROTATION_REQUIRED".to_owned()));
    assert_eq!(
        world.get(&path).await.json()["keyState"],
        before["keyState"]
    );

    let headers = [("x-api-key", second.as_str())];
    let answer = register_request_elsewhere(&world, &headers, &other).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let state = &answer.json()["keyState"];
    assert_eq!(state["total"], 2);
    assert_eq!(state["active"]["publicKey"], other["publicKey"]);
    assert_eq!(state["revoked"][0]["publicKey"], json!(alice.public_key()));
    let answer = world.post(REGISTER, &registration(&alice)).await;
    assert_eq!(answer.error(), (409, "KEY_ALREADY_REVOKED".to_owned()));
}

#[tokio::test]
async fn be_083_from_elsewhere_the_same_key_is_no_proof() {
    let world = World::new().await;
    let alice = Identity::alice();
    let body = registration(&alice);
    let answer = register_request_elsewhere(&world, &[], &body).await;
    assert_eq!(answer.status, 201, "a new id is open: {}", answer.text);
    let key = answer.json()["apiKey"].as_str().unwrap().to_owned();

    for headers in [
        vec![],
        vec![("x-api-key", "bk_YQ.wrong")],
        vec![("authorization", "Bearer x")],
    ] {
        let answer = register_request_elsewhere(&world, &headers, &body).await;
        assert_eq!(answer.error(), (401, "UNAUTHORIZED".to_owned()));
    }
    let delete = |key: String| {
        let world = &world;
        async move {
            let headers = [("x-api-key", key.as_str())];
            world
                .request_elsewhere("DELETE", "/agents/none@acme.beam.directory", &headers, None)
                .await
        }
    };
    assert_eq!(delete(key.clone()).await.status, 404);
    let bearer = format!("Bearer {key}");
    let answer = register_request_elsewhere(&world, &[("authorization", &bearer)], &body).await;
    assert_eq!(
        answer.status, 201,
        "the old API key was valid: {}",
        answer.text
    );

    let signed = with_rotation_signature(body.clone(), &world, &alice);
    let answer = register_request_elsewhere(&world, &[], &signed).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let answer = register_request_elsewhere(&world, &[], &signed).await;
    assert_eq!(
        answer.error(),
        (401, "UNAUTHORIZED".to_owned()),
        "a signature counts once"
    );
    let mut stale = signed.clone();
    let text = BeamSignedText::keys_rotate(
        &alice.beam_id,
        &alice.public_key(),
        "2026-01-01T00:00:00.000Z",
    );
    stale["timestamp"] = json!("2026-01-01T00:00:00.000Z");
    stale["signature"] = json!(text.sign(&alice.key()));
    let answer = register_request_elsewhere(&world, &[], &stale).await;
    assert_eq!(answer.error(), (401, "UNAUTHORIZED".to_owned()));
}

#[tokio::test]
async fn what_a_registration_leaves_out_stays() {
    let world = World::new().await;
    let alice = Identity::alice();
    let mut full = registration(&alice);
    full["description"] = json!("first");
    full["visibility"] = json!("public");
    full["email"] = json!("alice@acme.example");
    world.post(REGISTER, &full).await;
    world
        .change_agent(&alice.beam_id, |agent| {
            agent.verification_tier = "business".to_owned();
            agent.email_verified = true;
            agent.created_at = 1_000;
        })
        .await;
    let body = world.post(REGISTER, &registration(&alice)).await.json();
    assert_eq!(body["description"], "first");
    assert_eq!(body["visibility"], "public");
    assert_eq!(body["verification_tier"], "business");
    assert_eq!(body["verified"], json!(true));
    assert_eq!(body["email_verified"], json!(true));
    assert_eq!(body["created_at"], "1970-01-01T00:00:01.000Z");
    full["email"] = json!("other@acme.example");
    let body = world.post(REGISTER, &full).await.json();
    assert_eq!(body["email_verified"], json!(false), "another address");
}

#[tokio::test]
async fn be_088_an_agent_deletes_itself_with_its_api_key() {
    let world = World::new().await;
    let (alice, bob) = (Identity::alice(), Identity::bob());
    let key = registered(&world, &alice).await;
    let other_key = registered(&world, &bob).await;
    world.allow(&alice.beam_id, "agent.ping", "*").await;
    let rules = world.get(&format!("/acl/{}", alice.beam_id)).await.json();
    let rule = rules["acl"][0]["id"].as_u64().unwrap();
    let path = format!("/agents/{}", alice.beam_id);
    for headers in [vec![], vec![("x-api-key", other_key.as_str())]] {
        let answer = world.request("DELETE", &path, &headers, None).await;
        assert_eq!(
            answer.error(),
            (401, "UNAUTHORIZED".to_owned()),
            "also on this machine"
        );
    }
    let mut socket = world.connect(&alice.beam_id).await;
    let headers = [("x-api-key", key.as_str())];
    let answer = world
        .request_elsewhere("DELETE", &path, &headers, None)
        .await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    assert_eq!(socket.closed().await.0, 1008);
    assert_eq!(world.get(&path).await.status, 404);
    let answer = world.request("DELETE", &path, &headers, None).await;
    assert_eq!(answer.error(), (404, "NOT_FOUND".to_owned()));
    let rules = world.get(&format!("/acl/{}", alice.beam_id)).await.json();
    assert_eq!(rules, json!({"acl": [], "total": 0}));
    let answer = world
        .request("DELETE", &format!("/acl/{rule}"), &[], None)
        .await;
    assert_eq!(answer.error(), (404, "NOT_FOUND".to_owned()));
    let found = world.get("/agents/search").await.json();
    assert_eq!(found["total"], 1);
    assert_eq!(world.get(&format!("{path}/keys")).await.status, 404);
    assert_eq!(
        registered(&world, &alice).await.len(),
        key.len(),
        "the id is free again"
    );
}

#[tokio::test]
async fn agents_of_the_demo_organisation_get_the_rules_of_the_catalog() {
    let world = World::new().await;
    let demo = Identity::new("agent-a@demo.beam.directory", 5);
    registered(&world, &demo).await;
    let path = format!("/acl/{}", demo.beam_id);
    let rules = world.get(&path).await.json();
    assert!(rules["total"].as_u64().unwrap() > 0, "{rules}");
    registered(&world, &demo).await;
    world.beam.seed_demo_rules().await.unwrap();
    assert_eq!(
        world.get(&path).await.json(),
        rules,
        "each rule is there once"
    );
    registered(&world, &Identity::alice()).await;
    let rules = world.get("/acl/alice@acme.beam.directory").await.json();
    assert_eq!(rules["total"], 0);
}

#[tokio::test]
async fn be_080_intents_without_a_result_count_as_received_only() {
    let world = World::new().await;
    let (alice, bob) = world.alice_and_bob().await;
    let frame = alice.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "OFFLINE".to_owned()));
    let found = world.get(&format!("/agents/{}", bob.beam_id)).await.json();
    let stats = json!({"received": 1, "responded": 0, "avg_response_time_ms": null});
    assert_eq!(found["intentStats"], stats);
}

#[tokio::test]
async fn an_agent_takes_a_bounded_amount_of_memory() {
    let world = World::new().await;
    let good = registration(&Identity::alice());
    let long: Vec<String> = vec!["ä".repeat(128); 51];
    for (name, value, code) in [
        ("capabilities", json!(long), "INVALID_CAPABILITIES"),
        ("description", json!("ä".repeat(2_049)), "INVALID_BODY"),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let answer = world.post("/agents/register", &body).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{name}");
    }
    let mut body = good.clone();
    body["capabilities"] = json!(long[..50]);
    body["description"] = json!("ä".repeat(2_048));
    assert_eq!(world.post("/agents/register", &body).await.status, 201);
}
