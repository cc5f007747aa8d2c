//! Heartbeats, profiles, visibility and configuration.

use consign_beam::signed_text::{BeamSignedText, SignedProfile};
use consign_engine::Clock as _;
use consign_kernel::ids::Micros;
use serde_json::{Value, json};

use super::agents::registered;
use super::world::{Answer, Identity, World};

const ALICE: &str = "/agents/alice@acme.beam.directory";

async fn signed(
    world: &World,
    method: &str,
    what: &str,
    signature: [&str; 3],
    body: Option<&Value>,
) -> Answer {
    let [timestamp, nonce, signature] = signature;
    let headers = [
        ("x-beam-timestamp", timestamp),
        ("x-beam-nonce", nonce),
        ("x-beam-signature", signature),
    ];
    let body = body.map(Value::to_string);
    world
        .from_elsewhere(method, &format!("{ALICE}/{what}"), &headers, body)
        .await
}

async fn heartbeat(world: &World, signer: &Identity, timestamp: &str, nonce: &str) -> Answer {
    let text = BeamSignedText::heartbeat("alice@acme.beam.directory", timestamp, nonce);
    let signature = text.sign(&signer.key());
    signed(
        world,
        "POST",
        "heartbeat",
        [timestamp, nonce, &signature],
        None,
    )
    .await
}

#[tokio::test]
async fn be_087_a_heartbeat_is_signed_fresh_and_counts_once() {
    let world = World::new().await;
    let alice = Identity::alice();
    registered(&world, &alice).await;
    world
        .change_agent(&alice.beam_id, |agent| agent.last_seen = 1_000)
        .await;
    let refused = (401, "UNAUTHORIZED".to_owned());
    let path = format!("{ALICE}/heartbeat");
    assert_eq!(
        world.post(&path, &json!({})).await.error(),
        refused,
        "also on this machine"
    );
    let now = world.now_text();
    let answer = heartbeat(&world, &Identity::bob(), &now, "hb-1").await;
    assert_eq!(answer.error(), refused);
    assert_eq!(
        world.get(ALICE).await.json()["last_seen"],
        "1970-01-01T00:00:01.000Z"
    );

    let answer = heartbeat(&world, &alice, &now, "hb-1").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["beam_id"], json!(alice.beam_id));
    assert!(body["last_seen"].as_str().unwrap() >= now.as_str());
    assert_eq!(
        heartbeat(&world, &alice, &now, "hb-1").await.error(),
        refused,
        "a replay"
    );
    let at = |seconds: i64| {
        let now = Micros(world.clock.now().0);
        consign_beam::timestamp::format(now.plus(seconds * 1_000_000))
    };
    assert_eq!(
        heartbeat(&world, &alice, &at(1), "hb-1").await.error(),
        refused,
        "its nonce"
    );
    assert_eq!(heartbeat(&world, &alice, &at(2), "hb-2").await.status, 200);
    for (number, seconds) in [-310, 310, -86_400].into_iter().enumerate() {
        let nonce = format!("old-{number}");
        let answer = heartbeat(&world, &alice, &at(seconds), &nonce).await;
        assert_eq!(answer.error(), refused, "{seconds}");
    }
    let [a, b] = [(); 2].map(|()| heartbeat(&world, &alice, &now, "hb-3"));
    let (a, b) = tokio::join!(a, b);
    let mut both = [a.status, b.status];
    both.sort_unstable();
    assert_eq!(both, [200, 401], "at the same time");
    let answer = world
        .post("/agents/nobody@acme.beam.directory/heartbeat", &json!({}))
        .await;
    assert_eq!(answer.error(), (404, "NOT_FOUND".to_owned()));
}

async fn update_profile(world: &World, signer: &Identity, nonce: &str, body: &Value) -> Answer {
    let text = |name: &str| body[name].as_str().filter(|text| !text.is_empty());
    let profile = SignedProfile {
        description: text("description"),
        logo_url: text("logo_url"),
        website: text("website"),
    };
    let now = world.now_text();
    let signature =
        BeamSignedText::profile_update("alice@acme.beam.directory", &profile, &now, nonce)
            .sign(&signer.key());
    signed(
        world,
        "PATCH",
        "profile",
        [&now, nonce, &signature],
        Some(body),
    )
    .await
}

#[tokio::test]
async fn a_profile_is_changed_by_a_signature_that_covers_it() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let body = json!({"description": "Orders — day and night", "website": "https://acme.example/"});
    let answer = update_profile(&world, &alice, "p-1", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["description"], body["description"]);
    assert_eq!(answer.json()["website"], body["website"]);
    let answer = update_profile(&world, &alice, "p-2", &json!({"website": null})).await;
    assert_eq!(answer.json()["website"], Value::Null);
    assert_eq!(
        answer.json()["description"],
        body["description"],
        "left out"
    );

    let refused = (401, "UNAUTHORIZED".to_owned());
    let answer = update_profile(&world, &Identity::bob(), "p-3", &body).await;
    assert_eq!(answer.error(), refused);
    let answer = update_profile(&world, &alice, "p-1", &body).await;
    assert_eq!(answer.error(), refused, "a used nonce");
    let headers = [("x-api-key", key.as_str())];
    let path = format!("{ALICE}/profile");
    let answer = world
        .request("PATCH", &path, &headers, Some(body.to_string()))
        .await;
    assert_eq!(answer.error(), refused, "without a signature");
    let body = json!({"logo_url": "logo"});
    let answer = update_profile(&world, &alice, "p-4", &body).await;
    assert_eq!(answer.error(), (400, "INVALID_LOGO_URL".to_owned()));
    let body = json!({"website": "javascript:alert(1)"});
    let answer = update_profile(&world, &alice, "p-5", &body).await;
    assert_eq!(answer.error(), (400, "INVALID_PARAM".to_owned()));
}

async fn patch(world: &World, what: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let path = format!("{ALICE}/{what}");
    world
        .from_elsewhere("PATCH", &path, headers, Some(body.to_string()))
        .await
}

#[tokio::test]
async fn visibility_is_changed_by_the_agent_and_not_by_a_replay() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let refused = (401, "UNAUTHORIZED".to_owned());
    let body = json!({"visibility": "public"});
    assert_eq!(
        patch(&world, "visibility", &[], &body).await.error(),
        refused
    );
    let headers = [("x-api-key", key.as_str())];
    let answer = patch(&world, "visibility", &headers, &body).await;
    assert_eq!(answer.json()["visibility"], "public");

    let signed = |visibility: &str, timestamp: &str| {
        let text = BeamSignedText::visibility(&alice.beam_id, visibility, timestamp);
        let signature = text.sign(&alice.key());
        json!({"visibility": visibility, "timestamp": timestamp, "signature": signature})
    };
    let hide = signed("unlisted", &world.now_text());
    let answer = patch(&world, "visibility", &[], &hide).await;
    assert_eq!(answer.json()["visibility"], "unlisted", "{}", answer.text);
    assert_eq!(
        patch(&world, "visibility", &headers, &body).await.status,
        200
    );
    assert_eq!(
        patch(&world, "visibility", &[], &hide).await.error(),
        refused,
        "a replay"
    );
    let mut other = hide.clone();
    other["visibility"] = json!("public");
    assert_eq!(
        patch(&world, "visibility", &[], &other).await.error(),
        refused
    );
    let stale = signed("unlisted", "2026-01-01T00:00:00.000Z");
    assert_eq!(
        patch(&world, "visibility", &[], &stale).await.error(),
        refused
    );
    let answer = patch(
        &world,
        "visibility",
        &headers,
        &json!({"visibility": "secret"}),
    )
    .await;
    assert_eq!(answer.error(), (400, "INVALID_PARAM".to_owned()));
    assert_eq!(world.get(ALICE).await.json()["visibility"], "public");
}

#[tokio::test]
async fn a_config_signature_counts_for_one_change() {
    let world = World::new().await;
    let alice = Identity::alice();
    let key = registered(&world, &alice).await;
    let refused = (401, "UNAUTHORIZED".to_owned());
    let timestamp = world.now_text();
    let signature = BeamSignedText::config(&alice.beam_id, &timestamp).sign(&alice.key());
    let with = |endpoint: &str| json!({"httpEndpoint": endpoint, "timestamp": timestamp, "signature": signature});
    let good = "https://agents.acme.example/beam";
    let answer = patch(&world, "config", &[], &with(good)).await;
    let expected = json!({"beamId": alice.beam_id, "httpEndpoint": good, "dhPublicKey": null});
    assert_eq!(answer.json(), expected);
    // The signature does not cover the endpoint, so another one must not be set with it.
    let answer = patch(&world, "config", &[], &with("https://evil.example/")).await;
    assert_eq!(answer.error(), refused);
    assert_eq!(world.get(ALICE).await.json()["http_endpoint"], good);

    let headers = [("x-api-key", key.as_str())];
    let set = async |body: Value| patch(&world, "config", &headers, &body).await;
    let answer = set(json!({"http_endpoint": "https://10.0.0.1/"})).await;
    assert_eq!(answer.error(), (400, "INVALID_HTTP_ENDPOINT".to_owned()));
    assert_eq!(
        set(json!({})).await.error(),
        (400, "INVALID_BODY".to_owned())
    );
    let body = set(json!({"httpEndpoint": "", "dhPublicKey": "dh"}))
        .await
        .json();
    assert_eq!(body["httpEndpoint"], Value::Null);
    assert_eq!(body["dhPublicKey"], "dh");
    let body = json!({"dhPublicKey": "evil"});
    assert_eq!(patch(&world, "config", &[], &body).await.error(), refused);
}
