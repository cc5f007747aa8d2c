//! Users and keys with scopes on the routes of operators, and their entries in the audit log.

use consign_engine::{AdminRole, AuditFilter, KeySettings, Operator};
use consign_kernel::record::KeyScope;
use serde_json::json;

use crate::world::{MAIN, World};

/// Name and password of a viewer, and of an operator, as Basic credentials.
const VIEWER: (&str, &str) = ("vic", "Basic dmljOmEgbG9uZyBwYXNzd29yZA==");
const OPERATOR: (&str, &str) = ("ola", "Basic b2xhOmEgbG9uZyBwYXNzd29yZA==");
const PASSWORD: &str = "a long password";

const OF_OPERATORS: [&str; 3] = [
    "/v1/meshes/{slug}/dead/{id}/requeue",
    "/v1/mesh/sweep",
    "/v1/mesh/orphan-check",
];

#[tokio::test]
async fn s23_a_viewer_changes_nothing_on_any_route_of_the_mesh() {
    let world = World::new();
    world.mesh(&json!({})).await;
    let (engine, operator) = (&world.engine, Operator::vouched());
    for ((name, _), role) in [(VIEWER, AdminRole::Viewer), (OPERATOR, AdminRole::Operator)] {
        let added = engine.add_user(operator, name, role, PASSWORD).await;
        assert!(added.unwrap().is_some());
    }
    let settings = |scope| KeySettings {
        scopes: Some(vec![scope]),
        rate: Some(1_000),
        ..KeySettings::default()
    };
    let reader = engine.create_key_with(operator, "r", &[], settings(KeyScope::AdminRead));
    let reader = reader.await.unwrap().secret;
    let publisher = engine.create_key_with(operator, "p", &[], settings(KeyScope::Publish));
    let publisher = publisher.await.unwrap().secret;

    let document = consign_mesh::http::openapi::document();
    let mut changes = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        if !(path == "/v1/meshes"
            || path.starts_with("/v1/meshes/")
            || path.starts_with("/v1/mesh/"))
        {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            let method = method.to_ascii_uppercase();
            let uri = path
                .replace("{slug}", "acme")
                .replace("{id}", &"0".repeat(32))
                .replace("{pubkey}", &"0".repeat(64));
            let ask = async |name: &str, value: &str| {
                let headers = [(name, value)];
                world.request(&method, &uri, &headers, Some("{}")).await
            };
            let what = format!("{method} {path}");
            let reads = method == "GET";
            changes += u32::from(!reads);
            for (name, value) in [("authorization", VIEWER.1), ("x-api-key", &reader)] {
                let answer = ask(name, value).await;
                assert_eq!(answer.status == 403, !reads, "{what}: {}", answer.text);
                assert_ne!(answer.status, 401, "{what}: {}", answer.text);
            }
            let answer = ask("authorization", OPERATOR.1).await;
            let may = reads || OF_OPERATORS.contains(&path.as_str());
            assert_eq!(answer.status != 403, may, "{what}: {}", answer.text);
            // Keys of clients are nothing here, whatever they may do elsewhere.
            for key in [MAIN, &publisher] {
                assert_eq!(ask("x-api-key", key).await.status, 401, "{what}");
            }
        }
    }
    assert!(changes > 10, "{changes}");
    let filter = AuditFilter {
        limit: 100,
        actor: Some(OPERATOR.0.to_owned()),
        ..AuditFilter::default()
    };
    let log = engine.audit(operator, &filter).await.unwrap();
    assert_eq!(log.entries.len(), changes as usize);
    let refused = log
        .entries
        .iter()
        .filter(|(_, entry)| entry.outcome == "forbidden");
    assert_eq!(refused.count(), changes as usize - OF_OPERATORS.len());
}

#[tokio::test]
async fn s24_a_change_of_a_mesh_is_in_the_audit_log_with_its_target() {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.invite(&json!({})).await;
    let filter = AuditFilter {
        limit: 9,
        ..AuditFilter::default()
    };
    let log = world.engine.audit(Operator::vouched(), &filter).await;
    let log = log.unwrap();
    let entries = log.entries.iter();
    let shown: Vec<String> = entries
        .map(|(_, entry)| format!("{} {} {}", entry.action, entry.target, entry.outcome))
        .collect();
    assert_eq!(shown, ["mesh-invite.create acme done", "mesh.create  done"]);
}
