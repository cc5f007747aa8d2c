//! HTTPS only and maintenance, which the operator sets for the whole listener.

use consign_beam::http::openapi;
use consign_web::listener_policy::ListenerPolicy;
use serde_json::json;

use crate::admin::{VIEWER, log_in, with_roles};
use crate::described::{filled, operations};
use crate::world::World;

const HTTPS_ONLY: ListenerPolicy = ListenerPolicy {
    trust_proxy: false,
    enforce_https: true,
    maintenance: false,
};
const MAINTENANCE: ListenerPolicy = ListenerPolicy {
    trust_proxy: false,
    enforce_https: false,
    maintenance: true,
};

fn is_for_operators(path: &str) -> bool {
    path.starts_with("/admin/auth/") || path.starts_with("/observability/")
}

#[tokio::test]
async fn with_https_only_every_route_refuses_plain_http_from_elsewhere() {
    let world = World::with_policy(HTTPS_ONLY, with_roles).await;
    for (path, method, _) in operations(&openapi::document()) {
        let what = format!("{method} {path}");
        let uri = filled(&path);
        let answer = world.request_elsewhere(&method, &uri, &[], None).await;
        let refused = (403, "HTTPS_REQUIRED".to_owned());
        assert_eq!(answer.error(), refused, "{what}");
        assert_eq!(answer.json()["error"], "HTTPS is required");
        let local = world.request(&method, &uri, &[], None).await;
        assert!(!local.text.contains("HTTPS_REQUIRED"), "{what}");
    }
}

#[tokio::test]
async fn with_https_only_an_agent_elsewhere_connects_only_over_https() {
    let world = World::with_policy(HTTPS_ONLY, |_| ()).await;
    let (_, bob) = world.alice_and_bob().await;
    let key = world.add_agent(&bob).await;
    let uri = format!("/ws?beamId={}&apiKey={key}", bob.beam_id);
    let elsewhere = [("x-forwarded-for", "203.0.113.7")];
    let refused = world.open(&uri, &elsewhere).await;
    assert_eq!(refused.err(), Some(403));
    world.connect(&bob.beam_id).await;

    let proxied = ListenerPolicy {
        trust_proxy: true,
        ..HTTPS_ONLY
    };
    let world = World::with_policy(proxied, |_| ()).await;
    let key = world.add_agent(&bob).await;
    let uri = format!("/ws?beamId={}&apiKey={key}", bob.beam_id);
    for (scheme, is_open) in [("http", false), ("https", true)] {
        let opened = world.open(&uri, &[("x-forwarded-proto", scheme)]).await;
        assert_eq!(opened.is_ok(), is_open, "{scheme}");
        let headers = [("x-forwarded-proto", scheme)];
        let answer = world.request("GET", "/stats", &headers, None).await;
        assert_eq!(answer.status == 200, is_open, "{scheme}: {}", answer.text);
    }
}

#[tokio::test]
async fn in_maintenance_only_operators_are_served() {
    let world = World::with_policy(MAINTENANCE, with_roles).await;
    for (path, method, _) in operations(&openapi::document()) {
        let answer = world.request(&method, &filled(&path), &[], None).await;
        let what = format!("{method} {path}: {}", answer.text);
        if is_for_operators(&path) {
            assert!(!answer.text.contains("MAINTENANCE"), "{what}");
            continue;
        }
        assert_eq!(answer.error(), (503, "MAINTENANCE".to_owned()), "{what}");
        assert_eq!(answer.json()["error"], "the server is in maintenance mode");
    }
    let session = log_in(&world, VIEWER).await;
    let headers = [("authorization", session.as_str())];
    let path = "/observability/overview";
    let overview = world.request("GET", path, &headers, None).await;
    assert_eq!(overview.status, 200, "{}", overview.text);
    assert_eq!(world.get("/health").await.status, 200);
}

#[tokio::test]
async fn in_maintenance_nothing_is_relayed_and_no_socket_is_opened() {
    let world = World::with_policy(MAINTENANCE, |_| ()).await;
    let (alice, bob) = world.alice_and_bob().await;
    let uri = format!("/ws?beamId={}", bob.beam_id);
    assert_eq!(world.open(&uri, &[]).await.err(), Some(503));
    assert_eq!(world.open("/ws?feed=intents", &[]).await.err(), Some(503));
    let frame = alice.message(&world, &bob, "n-1");
    let answer = world.post("/intents/send", &frame).await;
    assert_eq!(answer.error(), (503, "MAINTENANCE".to_owned()));
    let message = json!({"from": alice.beam_id, "to": bob.beam_id, "intent": "agent.ping"});
    let answer = world.post("/v1/beam/send", &message).await;
    assert_eq!(answer.error(), (503, "MAINTENANCE".to_owned()));
    let stored = world.beam.bus_stats().await.unwrap();
    assert!(stored.by_state.is_empty(), "{stored:?}");
}
