//! What clients of other machines without an operator's credential may fill: an allowance in bytes for each address, and a
//! number of agents.

use serde_json::{Value, json};

use crate::admin::{ADMIN, log_in, with_roles};
use crate::agents::registration;
use crate::world::{Answer, Identity, World};

const BYTES: u64 = 3_000;

async fn post_elsewhere(
    world: &World,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let body = Some(body.to_string());
    world.request_elsewhere("POST", path, headers, body).await
}

fn named(name: &str) -> Identity {
    Identity::new(&format!("{name}@acme.beam.directory"), 5)
}

/// A registration whose body has more than 2,000 bytes.
fn long_registration(name: &str) -> Value {
    let mut body = registration(&named(name));
    body["description"] = json!("x".repeat(2_000));
    body
}

async fn limited() -> World {
    World::with(|settings| {
        with_roles(settings);
        settings.write_bytes_per_minute = BYTES;
    })
    .await
}

#[tokio::test]
async fn an_address_of_another_machine_may_have_so_many_bytes_stored_in_a_minute() {
    let world = limited().await;
    let (alice, bob) = world.alice_and_bob().await;
    let register = "/agents/register";
    let first = post_elsewhere(&world, register, &[], &long_registration("one")).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let intent = alice.frame(
        &world,
        &bob.beam_id,
        "conversation.message",
        &json!({"message": "y".repeat(1_000)}),
        "n-1",
    );
    for (path, body) in [
        (register, long_registration("two")),
        ("/intents/send", intent.clone()),
    ] {
        let answer = post_elsewhere(&world, path, &[], &body).await;
        assert_eq!(answer.error(), (429, "RATE_LIMITED".to_owned()), "{path}");
        assert_eq!(answer.header("retry-after"), Some("60"));
    }
    assert_eq!(
        world.get("/agents/two@acme.beam.directory").await.status,
        404
    );
    // A small request still fits.
    let small = post_elsewhere(&world, register, &[], &registration(&named("small"))).await;
    assert_eq!(small.status, 201, "{}", small.text);

    // Neither this machine nor an operator has the limit.
    let session = log_in(&world, ADMIN).await;
    let headers = [("authorization", session.as_str())];
    for number in 0..3 {
        let body = long_registration(&format!("local-{number}"));
        assert_eq!(world.post(register, &body).await.status, 201);
        let body = long_registration(&format!("operator-{number}"));
        let answer = post_elsewhere(&world, register, &headers, &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    let answer = world.post("/intents/send", &intent).await;
    assert_eq!(
        answer.error(),
        (503, "OFFLINE".to_owned()),
        "the nonce was free"
    );
}

#[tokio::test]
async fn a_body_without_a_length_counts_with_what_it_has() {
    let world = World::with(|settings| settings.write_bytes_per_minute = 100_000).await;
    for number in 0..4 {
        let body = registration(&named(&format!("chunked-{number}"))).to_string();
        let body = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let headers = "x-forwarded-for: 203.0.113.7\r\ncontent-type: application/json\r\n\
                       transfer-encoding: chunked\r\n";
        let answer = world.raw("POST", "/agents/register", headers, &body).await;
        assert_eq!(answer.status, 201, "{number}: {}", answer.text);
    }
}

#[tokio::test]
async fn frames_of_a_socket_count_for_the_address_of_its_client() {
    let world = limited().await;
    let bob = Identity::bob();
    world.add_agent(&bob).await;
    let alice = Identity::alice();
    let key = world.add_agent(&alice).await;
    let frame = |nonce: &str| {
        let payload = json!({"message": "y".repeat(2_000)});
        let frame = alice.frame(
            &world,
            &bob.beam_id,
            "conversation.message",
            &payload,
            nonce,
        );
        json!({"type": "intent", "frame": frame})
    };
    let path = format!("/ws?beamId={}", alice.beam_id);
    let headers = [
        ("x-api-key", key.as_str()),
        ("x-forwarded-for", "203.0.113.7"),
    ];
    let mut socket = world.open(&path, &headers).await.unwrap();
    assert_eq!(socket.next_json().await.unwrap()["type"], "connected");
    socket.send(&frame("n-1")).await;
    let denied = socket.next_json().await.unwrap();
    assert_eq!(denied["errorCode"], "FORBIDDEN", "{denied}");
    let result = alice.result("n-3", &json!({"message": "y".repeat(2_000)}));
    for (message, nonce) in [(frame("n-2"), "n-2"), (result, "n-3")] {
        socket.send(&message).await;
        let limited = socket.next_json().await.unwrap();
        assert_eq!(limited["type"], "error", "{limited}");
        assert_eq!(limited["errorCode"], "RATE_LIMITED", "{limited}");
        assert_eq!(limited["status"], 429, "{limited}");
        assert_eq!(limited["nonce"], nonce, "{limited}");
    }
    // From this machine, the same agent has no such limit.
    let mut local = world.connect(&alice.beam_id).await;
    for nonce in ["n-4", "n-5"] {
        local.send(&frame(nonce)).await;
        let denied = local.next_json().await.unwrap();
        assert_eq!(denied["errorCode"], "FORBIDDEN", "{denied}");
    }
}

#[tokio::test]
async fn a_full_directory_takes_no_further_agent_from_other_machines() {
    let world = World::with(|settings| {
        with_roles(settings);
        settings.agents_max = 2;
        // What the directory opens to everyone are its routes, and not its memory.
        settings.open = true;
    })
    .await;
    let register = "/agents/register";
    let mut key = String::new();
    for name in ["one", "two"] {
        let answer = post_elsewhere(&world, register, &[], &registration(&named(name))).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        key = answer.json()["apiKey"].as_str().unwrap().to_owned();
    }
    let third = registration(&named("three"));
    let refused = post_elsewhere(&world, register, &[], &third).await;
    assert_eq!(refused.error(), (403, "FORBIDDEN".to_owned()));
    assert!(refused.text.contains("BEAM_AGENTS_MAX"), "{}", refused.text);
    // Known agents go on.
    let headers = [("x-api-key", key.as_str())];
    let again = post_elsewhere(&world, register, &headers, &registration(&named("two"))).await;
    assert_eq!(again.status, 201, "{}", again.text);
    let session = log_in(&world, ADMIN).await;
    let headers = [("authorization", session.as_str())];
    let by_operator = post_elsewhere(&world, register, &headers, &third).await;
    assert_eq!(by_operator.status, 201, "{}", by_operator.text);
    let local = world.post(register, &registration(&named("four"))).await;
    assert_eq!(local.status, 201, "{}", local.text);
}
