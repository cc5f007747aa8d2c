//! Wrong methods and unknown paths.

use std::collections::BTreeSet;

use consign_beam::http::openapi;
use consign_web::listener_policy::ListenerPolicy;

use crate::described::{METHODS, filled, operations};
use crate::world::World;

#[tokio::test]
async fn a_wrong_method_is_an_error_of_the_protocol_that_names_the_right_ones() {
    let world = World::new().await;
    let document = openapi::document();
    let mut refused = 0;
    for path in document["paths"].as_object().unwrap().keys() {
        let described = operations(&document).into_iter();
        let described = described.filter(|(of, _, _)| of == path);
        let mut right: BTreeSet<String> = described.map(|(_, method, _)| method).collect();
        if right.contains("GET") {
            right.insert("HEAD".to_owned());
        }
        for method in METHODS.iter().filter(|method| !right.contains(**method)) {
            let answer = world.request(method, &filled(path), &[], None).await;
            let what = format!("{method} {path}");
            let expected = (405, "METHOD_NOT_ALLOWED".to_owned());
            assert_eq!(answer.error(), expected, "{what}");
            let allowed = answer.header("allow").unwrap().split(',');
            let allowed: BTreeSet<String> = allowed.map(|one| one.trim().to_owned()).collect();
            assert_eq!(allowed, right, "{what}");
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused}");
}

#[tokio::test]
async fn pages_of_this_machine_can_read_that_a_method_of_the_bus_is_wrong() {
    let world = World::new().await;
    let origin = "http://localhost:3000";
    let headers = [("origin", origin)];
    let answer = world.request("PUT", "/v1/beam/send", &headers, None).await;
    assert_eq!(answer.error(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
}

#[tokio::test]
async fn an_unknown_path_of_the_protocol_is_not_found_without_a_credential() {
    let world = World::new().await;
    for path in [
        "/agents/alice@acme.beam.directory/unknown",
        "/delegations",
        "/federation/unknown",
        "/reports",
        "/v1/beam/unknown",
        "/v1/beam",
    ] {
        for method in ["GET", "POST"] {
            let answer = world.request_elsewhere(method, path, &[], None).await;
            let expected = (404, "NOT_FOUND".to_owned());
            assert_eq!(answer.error(), expected, "{method} {path}");
            assert_eq!(answer.json()["error"], "Not found");
        }
    }
    let other = world.get("/v1/beamer").await;
    assert_eq!(other.status, 401, "it belongs to another protocol");
}

#[tokio::test]
async fn the_policy_of_the_listener_applies_to_what_no_route_takes() {
    let policy = ListenerPolicy {
        maintenance: true,
        ..ListenerPolicy::default()
    };
    let world = World::with_policy(policy, |_| ()).await;
    for (method, path) in [("GET", "/agents/a/b/c"), ("PUT", "/acl")] {
        let answer = world.request(method, path, &[], None).await;
        assert_eq!(answer.error(), (503, "MAINTENANCE".to_owned()), "{path}");
    }
}
