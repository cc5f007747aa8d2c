//! The limits of what a peer may make this directory believe, keep or do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::federation_world::{Pair, Reply, SECRET_HEADER, Stub, described, federated};
use crate::world::{Identity, World};

fn carol() -> Identity {
    Identity::new("carol@other.beam.directory", 5)
}

/// How this directory finds an agent, asking its peers.
async fn resolved(world: &World, beam_id: &str) -> (u16, Value) {
    let body = json!({"beamId": beam_id});
    let found = world
        .as_directory("POST", "/federation/resolve", Some(&body))
        .await;
    (found.status, found.json())
}

#[tokio::test]
async fn be_136_a_description_that_is_padded_or_comes_with_an_error_is_skipped() {
    let world = World::with(federated).await;
    let mut padded = described(&carol());
    padded["notes"] = json!("x".repeat(100_000));
    let padded = Stub::with_agent(padded, |_| Reply::Raw(Vec::new())).await;
    let body = json!({"agent": described(&carol()), "scope": "local"}).to_string();
    let error = Stub::start(move |_| Reply::Status(404, String::new(), body.clone())).await;
    for peer in [&padded, &error] {
        world.add_peer(&peer.url, 0.5).await;
    }
    assert_eq!(resolved(&world, &carol().beam_id).await.0, 404);
    assert_eq!((padded.asked().len(), error.asked().len()), (1, 1));
}

#[tokio::test]
async fn be_132_the_peer_with_the_highest_trust_level_counts_even_if_another_one_is_faster() {
    let world = World::with(federated).await;
    let mallory = Identity::new(&carol().beam_id, 66);
    let fast = Stub::with_agent(described(&mallory), |_| Reply::Raw(Vec::new())).await;
    let slow = Stub::start(|_| {
        let found = json!({"agent": described(&carol()), "scope": "local"});
        Reply::Late(Duration::from_millis(300), found)
    })
    .await;
    world.add_peer(&fast.url, 0.5).await;
    world.add_peer(&slow.url, 0.9).await;
    let (status, found) = resolved(&world, &carol().beam_id).await;
    assert_eq!(status, 200, "{found}");
    assert_eq!(
        (&found["directoryUrl"], &found["agent"]["public_key"]),
        (&json!(slow.url), &json!(carol().public_key()))
    );
    assert_eq!(fast.asked().len(), 1, "both were asked");
}

#[tokio::test]
async fn be_132_a_description_ends_with_its_time_and_no_other_peer_may_describe_the_agent() {
    let world = World::with(federated).await;
    let mut short = described(&carol());
    short["ttl"] = json!(1);
    let peer = Stub::with_agent(short, |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&peer.url, 0.5).await;
    let scope = async || resolved(&world, &carol().beam_id).await.1["scope"].clone();
    assert_eq!(scope().await, "peer");
    assert_eq!(scope().await, "cache");
    let ended = async {
        while scope().await == "cache" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the description ends");
    assert_eq!(peer.asked().len(), 2);
    // Another peer waits until the description has ended, and is trusted more.
    let mallory = Identity::new(&carol().beam_id, 66);
    let thief = Stub::with_agent(described(&mallory), |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&thief.url, 1.0).await;
    let ended = async {
        while scope().await == "cache" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the second description ends");
    assert!(thief.asked().is_empty(), "it is not even asked");
    let body = json!({"directoryUrl": thief.url, "publicKey": "k", "trustLevel": 1});
    let synced = world
        .as_directory("POST", "/federation/peers", Some(&body))
        .await;
    assert_eq!(synced.status, 500, "its list is not one: {}", synced.text);
    let found = resolved(&world, &carol().beam_id).await.1;
    assert_eq!(found["agent"]["public_key"], carol().public_key());
    let forged = mallory.message(&world, &Identity::bob(), "nonce-1");
    let answer = world.relayed(&thief.url, "1", &forged).await;
    let unknown = format!("Sender {} is not registered", carol().beam_id);
    assert_eq!(answer.json()["error"], unknown);
    // Once its peer is removed, the agent is free.
    let remove = format!("/federation/peers?directoryUrl={}", peer.url);
    let removed = world.as_directory("DELETE", &remove, None).await;
    assert_eq!(removed.status, 204, "{}", removed.text);
    let found = resolved(&world, &carol().beam_id).await.1;
    assert_eq!(found["directoryUrl"], json!(thief.url));
}

#[tokio::test]
async fn be_132_a_peer_that_relays_for_an_agent_does_not_get_the_agent() {
    let world = World::with(federated).await;
    world.add_agent(&Identity::bob()).await;
    let mallory = Identity::new(&carol().beam_id, 66);
    let thief = Stub::with_agent(described(&mallory), |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&thief.url, 0.1).await;
    let real = Stub::with_agent(described(&carol()), |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&real.url, 0.9).await;
    for nonce in ["nonce-1", "nonce-2"] {
        let frame = mallory.message(&world, &Identity::bob(), nonce);
        let answer = world.relayed(&thief.url, "1", &frame).await;
        assert!(
            !answer.text.contains("is not registered"),
            "{}",
            answer.text
        );
    }
    assert!(!thief.asked().is_empty() && real.asked().is_empty());
    for scope in ["peer", "cache"] {
        let (status, found) = resolved(&world, &carol().beam_id).await;
        assert_eq!(status, 200, "{found}");
        assert_eq!(
            (&found["directoryUrl"], &found["scope"]),
            (&json!(real.url), &json!(scope))
        );
    }
    // Now the agent belongs to the peer that has it.
    let forged = mallory.message(&world, &Identity::bob(), "nonce-3");
    let answer = world.relayed(&thief.url, "1", &forged).await;
    let unknown = format!("Sender {} is not registered", carol().beam_id);
    assert_eq!(answer.json()["error"], unknown);
}

#[tokio::test]
async fn be_132_an_agent_found_while_a_better_peer_is_silent_is_not_kept() {
    let world = World::with(federated).await;
    let mut short = described(&Identity::new(&carol().beam_id, 66));
    short["ttl"] = json!(1);
    let thief = Stub::with_agent(short, |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&thief.url, 0.1).await;
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    let real = Stub::start(move |_| {
        if silent.load(Ordering::SeqCst) {
            return Reply::Status(503, String::new(), String::new());
        }
        Reply::Json(json!({"agent": described(&carol()), "scope": "local"}))
    })
    .await;
    world.add_peer(&real.url, 0.9).await;
    let of = async || resolved(&world, &carol().beam_id).await.1["directoryUrl"].clone();
    assert_eq!(of().await, json!(thief.url));
    is_silent.store(false, Ordering::SeqCst);
    let ended = async {
        while of().await != json!(real.url) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the description ends, and the better peer is asked");
}

#[tokio::test]
async fn be_132_an_agent_that_its_peer_deleted_is_found_at_another_one() {
    let world = World::with(federated).await;
    let is_deleted = Arc::new(AtomicBool::new(false));
    let deleted = Arc::clone(&is_deleted);
    let first = Stub::start(move |_| {
        if deleted.load(Ordering::SeqCst) {
            return Reply::Status(404, String::new(), "{}".to_owned());
        }
        let mut short = described(&carol());
        short["ttl"] = json!(1);
        Reply::Json(json!({"agent": short, "scope": "local"}))
    })
    .await;
    world.add_peer(&first.url, 0.9).await;
    assert_eq!(resolved(&world, &carol().beam_id).await.0, 200);
    let moved = Identity::new(&carol().beam_id, 7);
    let second = Stub::with_agent(described(&moved), |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&second.url, 0.5).await;
    is_deleted.store(true, Ordering::SeqCst);
    let ended = async {
        loop {
            let (status, found) = resolved(&world, &carol().beam_id).await;
            assert_eq!(status, 200, "no request fails: {found}");
            if found["directoryUrl"] == json!(second.url) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the description ends, and the other peer is asked");
    assert_eq!(found["agent"]["public_key"], json!(moved.public_key()));
    assert_eq!(first.asked().len(), 2);
}

#[tokio::test]
async fn be_132_a_peer_with_very_many_agents_keeps_further_ones_as_long_as_it_describes_them() {
    let world = World::with(federated).await;
    let mut short = described(&carol());
    short["ttl"] = json!(1);
    let peer = Stub::with_agent(short, |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&peer.url, 0.5).await;
    world.set_peer_agents(&peer.url, 10_000).await;
    let of = async || resolved(&world, &carol().beam_id).await.1["directoryUrl"].clone();
    assert_eq!(of().await, json!(peer.url));
    let other = Stub::with_agent(described(&carol()), |_| Reply::Raw(Vec::new())).await;
    world.add_peer(&other.url, 1.0).await;
    let ended = async {
        while of().await != json!(other.url) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the description ends, and the peer with the higher trust level is asked");
}

#[tokio::test]
async fn be_131_no_more_than_a_thousand_agents_of_a_list_are_kept() {
    let world = World::with(federated).await;
    let named = |number: usize| format!("agent-{number}@other.beam.directory");
    let agents: Vec<Value> = (0..1_002)
        .map(|number| described(&Identity::new(&named(number), 5)))
        .collect();
    let list = json!({"agents": agents});
    let peer = Stub::start(move |_| Reply::Json(list.clone())).await;
    let new = json!({"directoryUrl": peer.url, "publicKey": "key"});
    let registered = world
        .as_directory("POST", "/federation/peers", Some(&new))
        .await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    for (number, status) in [(0, 200), (999, 200), (1_000, 404)] {
        let path = format!("/federation/agents/{}", named(number));
        let known = world.request_elsewhere("GET", &path, &[], None).await;
        assert_eq!(known.status, status, "{number}");
    }
}

#[tokio::test]
async fn be_131_a_directory_is_not_its_own_peer_and_has_a_limited_number_of_others() {
    let world = World::with(federated).await;
    let register = async |url: &str| {
        let new = json!({"directoryUrl": url, "publicKey": "key"});
        world
            .as_directory("POST", "/federation/peers", Some(&new))
            .await
            .error()
    };
    let refused = (400, "INVALID_PEER".to_owned());
    assert_eq!(register(&world.url()).await, refused);
    for number in 1..=256 {
        world
            .add_peer(&format!("http://127.0.0.1:{number}"), 0.5)
            .await;
    }
    assert_eq!(register("http://127.0.0.1:999").await, refused);
    // A known one may change.
    let unreachable = (500, "FEDERATION_ERROR".to_owned());
    assert_eq!(register("http://127.0.0.1:1").await, unreachable);
}

#[tokio::test]
async fn be_134_each_directory_adds_a_hop() {
    let pair = Pair::new().await;
    let result = json!({"v": "1", "success": true, "nonce": "nonce-1", "timestamp": "2026-01-01T00:00:00.000Z"});
    let last = Stub::with_agent(described(&carol()), move |_| Reply::Json(result.clone())).await;
    pair.far.add_peer(&last.url, 0.5).await;
    let frame = pair.alice.message(&pair.near, &carol(), "nonce-1");
    let answer = pair.far.relayed(&pair.near.url(), "2", &frame).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let asked = last.asked();
    let head = asked.last().unwrap().head.to_ascii_lowercase();
    assert!(head.contains("x-beam-hop-count: 3\r\n"), "{head}");
    assert!(head.contains(&format!("x-beam-source-directory: {}", pair.far.url())));
}

#[tokio::test]
async fn be_133_an_intent_never_returns_to_the_directory_that_sent_it() {
    // The source is asked for the key of the sender, and has the recipient too, but is neither asked for it nor sent the
    // intent.
    let world = World::with(federated).await;
    let alice = Identity::alice();
    let own = (described(&alice), described(&carol()));
    let source = Stub::start(move |asked| {
        let agent = if asked.head.contains("alice") {
            &own.0
        } else {
            &own.1
        };
        Reply::Json(json!({"agent": agent, "scope": "local"}))
    })
    .await;
    world.add_peer(&source.url, 0.5).await;
    let frame = alice.message(&world, &carol(), "nonce-1");
    for known in [false, true] {
        if known {
            assert_eq!(resolved(&world, &carol().beam_id).await.0, 200);
        }
        let before = source.asked().len();
        let answer = world.relayed(&source.url, "1", &frame).await;
        assert_eq!(answer.json()["error"], "agent_offline", "{}", answer.text);
        let asked = source.asked();
        let new: Vec<&str> = asked[before..]
            .iter()
            .map(|asked| asked.head.as_str())
            .collect();
        assert!(
            new.iter()
                .all(|head| head.starts_with("GET /federation/agents/alice%40")),
            "{new:?}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_is_not_active_counts_as_unknown() {
    let pair = Pair::new().await;
    let source = pair.near.url();
    pair.far.set_peer_status(&source, "suspended").await;
    let frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    let answer = pair.far.relayed(&source, "1", &frame).await;
    assert_eq!(
        answer.json()["error"],
        "The source directory is not a registered peer"
    );
    assert_eq!(resolved(&pair.far, &pair.alice.beam_id).await.0, 404);
}

#[tokio::test]
async fn a_relay_with_two_sources_has_none() {
    let pair = Pair::new().await;
    let frame = pair.alice.message(&pair.near, &pair.bob, "nonce-1");
    let source = pair.near.url();
    let source = ("x-beam-source-directory", source.as_str());
    let headers = [SECRET_HEADER, source, source];
    let answer = pair
        .far
        .request(
            "POST",
            "/federation/relay",
            &headers,
            Some(frame.to_string()),
        )
        .await;
    assert_eq!(
        answer.json()["error"],
        "The source directory is not a registered peer"
    );
}

#[tokio::test]
async fn a_directory_cannot_use_up_the_allowance_of_another_one() {
    let limited = World::with(|settings| {
        federated(settings);
        settings.rate_per_minute = 1;
    })
    .await;
    let pair = Pair::new().await;
    let source = pair.near.url();
    limited.add_peer(&source, 0.5).await;
    let mut frame = pair.alice.message(&limited, &pair.bob, "nonce-1");
    frame["signature"] = json!("AAAA");
    // All directories have the secret, so a request from another address may name the same source.
    let relayed = async |from: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(limited.address).await.unwrap();
        let body = frame.to_string();
        let request = format!(
            "POST /federation/relay HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{}: {}\r\n\
             x-beam-source-directory: {source}\r\ncontent-length: {}\r\n\r\n{body}",
            limited.address,
            SECRET_HEADER.0,
            SECRET_HEADER.1,
            body.len(),
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.contains("Rate limit exceeded")
    };
    for number in 0..12 {
        assert_eq!(relayed([127, 0, 0, 2]).await, number >= 10, "{number}");
    }
    assert!(!relayed([127, 0, 0, 3]).await);
}
