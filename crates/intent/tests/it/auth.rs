//! Authentication of the client routes.

use http::Method;
use serde_json::json;

use crate::world::{ADMIN, Call, MAIN, METRICS, World};

/// Every client route, and two unknown paths.
fn doors() -> Vec<Call> {
    let id = "0".repeat(32);
    let posts = [
        "/intent".to_owned(),
        "/claim".to_owned(),
        format!("/extend_claim/{id}"),
        format!("/fulfill/{id}"),
        format!("/fail/{id}"),
        "/set/k".to_owned(),
        "/intents".to_owned(),
        "/settle".to_owned(),
        "/nothing/here".to_owned(),
    ];
    let gets = [
        format!("/result/{id}"),
        format!("/status/{id}"),
        "/get/k".to_owned(),
        "/intents".to_owned(),
        "/events".to_owned(),
        format!("/intents/{id}/timeline"),
        format!("/intents/{id}/receipt"),
        "/intent".to_owned(),
        "/nothing/here".to_owned(),
    ];
    let posts = posts.iter().map(|uri| Call::post(uri).json(&json!({})));
    posts.chain(gets.iter().map(|uri| Call::get(uri))).collect()
}

#[tokio::test]
async fn ip_048_without_a_key_no_client_route_answers() {
    let world = World::new();
    for call in doors() {
        let mut tries = vec![call.clone(), call.clone().key("")];
        // Credentials of other routes are refused here.
        tries.push(call.clone().admin());
        tries.push(
            call.clone()
                .header("authorization", &format!("Bearer {MAIN}")),
        );
        let query = Call {
            uri: format!("{}?x-api-key={MAIN}", call.uri),
            ..call.clone()
        };
        tries.push(query);
        for call in tries {
            let answer = world.send(call.clone()).await;
            answer.assert_refused(401, "unauthorized");
            assert_eq!(
                answer.json()["error"]["message"],
                "Missing API key.",
                "{call:?}"
            );
        }
    }
}

#[tokio::test]
async fn ip_049_with_an_unknown_key_no_client_route_answers() {
    let world = World::new();
    let revoked = world.tester("gone").await;
    assert_eq!(
        world
            .admin_post("/admin/revoke_key", &json!({"api_key": revoked}))
            .await
            .status,
        200
    );
    let unknown = [
        "nobody".to_owned(),
        revoked,
        MAIN.to_uppercase(),
        format!("{MAIN}x"),
        MAIN[..MAIN.len() - 1].to_owned(),
        ADMIN.to_owned(),
        METRICS.to_owned(),
        "main".to_owned(),
        "ké".to_owned(),
        "x".repeat(100_000),
    ];
    for key in &unknown {
        for call in doors() {
            let answer = world.send(call.clone().key(key)).await;
            answer.assert_refused(401, "unauthorized");
            assert_eq!(
                answer.json()["error"]["message"],
                "Invalid API key.",
                "{call:?}"
            );
        }
    }
}

#[tokio::test]
async fn ip_048_ip_049_the_key_is_asked_for_before_the_body_is_looked_at() {
    let world = World::new();
    let huge = Call::post("/intent").raw(vec![b'x'; 9_000]);
    world
        .send(huge.clone())
        .await
        .assert_refused(401, "unauthorized");
    world
        .send(huge.clone().key("nobody"))
        .await
        .assert_refused(401, "unauthorized");
    world
        .send(huge.key(MAIN))
        .await
        .assert_refused(413, "payload_too_large");
}

#[tokio::test]
async fn ip_048_a_known_key_opens_every_client_route() {
    let world = World::new();
    for call in doors().into_iter().filter(|call| call.uri != "/events") {
        let answer = world.send(call.clone().key(MAIN)).await;
        assert!(
            ![401, 403].contains(&answer.status.as_u16()),
            "{call:?}: {}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn ip_005_metrics_exist_and_ask_for_credentials() {
    let world = World::new();
    world.publish(json!({"goal": "g", "payload": 1})).await;
    let bare = Call::get("/metrics");
    for call in [
        bare.clone(),
        bare.clone().key(MAIN),
        bare.clone().header("authorization", "Bearer wrong"),
        bare.clone().header("authorization", "Bearer "),
        bare.clone().header("x-admin-token", METRICS),
    ] {
        world.send(call).await.assert_refused(401, "unauthorized");
    }
    let answer = world
        .send(bare.header("authorization", &format!("Bearer {METRICS}")))
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.text().contains("status=\"open\""),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn ip_083_a_wrong_method_is_told_which_ones_are_right() {
    let world = World::new();
    for (method, uri, allowed) in [
        (Method::GET, "/intent", "POST"),
        (Method::DELETE, "/claim", "POST"),
        (Method::POST, "/status/x", "GET,HEAD"),
        (Method::PUT, "/intents", "GET,HEAD,POST"),
    ] {
        let answer = world.send(Call::new(method, uri).key(MAIN)).await;
        answer.assert_refused(405, "method_not_allowed");
        assert_eq!(answer.headers["allow"], allowed, "{uri}");
    }
}
