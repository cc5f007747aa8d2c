//! Who may use the bus: its key, this machine, and web pages of listed origins.

use consign_web::credentials::SecretDigest;
use serde_json::json;

use crate::bus::{bus_world, message};

const KEY: &str = "a-key-of-the-bus";

#[tokio::test]
async fn be_020_with_a_key_every_route_demands_it() {
    let (world, _, _) = bus_world(|settings| {
        settings.bus.api_key = Some(SecretDigest::new(KEY.to_owned()));
    })
    .await;
    let right = format!("Bearer {KEY}");
    for (method, path) in [
        ("POST", "/v1/beam/send"),
        ("GET", "/v1/beam/poll?agent=a"),
        ("POST", "/v1/beam/ack"),
        ("GET", "/v1/beam/history"),
        ("GET", "/v1/beam/stats"),
        ("GET", "/v1/beam/dead-letter"),
        ("POST", "/v1/beam/dead-letter/x/requeue"),
        ("GET", "/v1/beam/events?agent=a"),
    ] {
        let answer = world.request(method, path, &[], None).await;
        assert_eq!(answer.error(), (401, "UNAUTHORIZED".to_owned()), "{path}");
        assert_eq!(answer.json()["error"], "Unauthorized");
    }
    let history = "/v1/beam/history";
    for wrong in ["Bearer other", "Bearer ", "bearer a-key-of-the-bus", KEY] {
        let headers = [("authorization", wrong)];
        let answer = world.request("GET", history, &headers, None).await;
        assert_eq!(answer.status, 401, "{wrong}");
    }
    let headers = [("authorization", right.as_str())];
    assert_eq!(
        world.request("GET", history, &headers, None).await.status,
        200
    );
    let answer = world
        .request_elsewhere("GET", history, &headers, None)
        .await;
    assert_eq!(answer.status, 200);
    let body = Some(message("n-1").to_string());
    let answer = world
        .request_elsewhere("POST", "/v1/beam/send", &headers, body)
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
}

#[tokio::test]
async fn be_020_without_a_key_the_bus_is_open_to_this_machine_only() {
    let (world, _, _) = bus_world(|_| ()).await;
    assert_eq!(world.get("/v1/beam/history").await.status, 200);
    let answer = world
        .request_elsewhere("GET", "/v1/beam/history", &[], None)
        .await;
    assert_eq!(answer.error(), (401, "UNAUTHORIZED".to_owned()));
    let body = Some(message("n-1").to_string());
    let answer = world
        .request_elsewhere("POST", "/v1/beam/send", &[], body)
        .await;
    assert_eq!(answer.status, 401);
    // A page of another site in a browser on this machine is not this machine.
    let foreign = [("origin", "http://localhost:3000")];
    let answer = world
        .request("GET", "/v1/beam/history", &foreign, None)
        .await;
    assert_eq!(answer.status, 401);
    let (open, _, _) = bus_world(|settings| settings.open = true).await;
    let answer = open
        .request_elsewhere("GET", "/v1/beam/history", &[], None)
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn be_021_statistics_are_public_only_with_the_switch() {
    for is_public in [false, true] {
        let (world, _, _) = bus_world(|settings| {
            settings.bus.api_key = Some(SecretDigest::new(KEY.to_owned()));
            settings.bus.stats_public = is_public;
        })
        .await;
        let expected = if is_public { 200 } else { 401 };
        let answer = world
            .request_elsewhere("GET", "/v1/beam/stats", &[], None)
            .await;
        assert_eq!(answer.status, expected);
        let answer = world
            .request_elsewhere("GET", "/v1/beam/history", &[], None)
            .await;
        assert_eq!(answer.status, 401);
    }
}

#[tokio::test]
async fn wrong_keys_of_an_address_are_counted() {
    let (world, _, _) = bus_world(|settings| {
        settings.bus.api_key = Some(SecretDigest::new(KEY.to_owned()));
    })
    .await;
    let mut last = 401;
    for number in 0..200 {
        let wrong = format!("Bearer wrong-{number}");
        let headers = [("authorization", wrong.as_str())];
        let answer = world
            .request("GET", "/v1/beam/history", &headers, None)
            .await;
        last = answer.status;
        if last != 401 {
            break;
        }
    }
    assert_eq!(last, 429);
}

#[tokio::test]
async fn pages_of_this_machine_and_of_listed_origins_may_read_responses() {
    let (world, _, _) = bus_world(|settings| {
        settings.bus.api_key = Some(SecretDigest::new(KEY.to_owned()));
        settings.bus.allowed_origins = vec!["https://dash.example".to_owned()];
    })
    .await;
    let asks = ("access-control-request-method", "POST");
    for (origin, is_allowed) in [
        ("https://dash.example", true),
        ("http://localhost:3000", true),
        ("https://127.0.0.1", true),
        ("https://evil.example", false),
        ("http://localhost.evil.example", false),
    ] {
        let echoed = is_allowed.then_some(origin);
        let headers = [("origin", origin), asks];
        let answer = world
            .request("OPTIONS", "/v1/beam/send", &headers, None)
            .await;
        assert_eq!(answer.status, 204);
        let allow = "access-control-allow-origin";
        assert_eq!(answer.header(allow), echoed, "{origin}");
        let methods = answer.header("access-control-allow-methods");
        assert_eq!(methods, is_allowed.then_some("GET, POST, OPTIONS"));
        let names = answer.header("access-control-allow-headers");
        assert_eq!(names, is_allowed.then_some("Content-Type, Authorization"));
        let headers = [("origin", origin)];
        let answer = world
            .request("GET", "/v1/beam/history", &headers, None)
            .await;
        assert_eq!((answer.status, answer.header(allow)), (401, echoed));
    }
    let answer = world.post("/v1/beam/send", &json!({})).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
}
