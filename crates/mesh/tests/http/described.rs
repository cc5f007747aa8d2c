//! The `OpenAPI` description of the routes: complete, and consistent with the router and its responses.

use std::collections::BTreeSet;
use std::path::Path;

use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use consign_mesh::http::openapi;
use serde_json::{Value, json};

use crate::schema_check::{mismatch, resolved};
use crate::world::{ADMIN, Answer, MAIN, World, key};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Codes that no operation describes.
const UNDESCRIBED: [(Code, &str); 1] =
    [(Code::MethodNotAllowed, "a wrong method is not an operation")];

/// The paths of all routes, read from the sources. The WebSocket is described where `/ws` is, with the other protocol on it.
fn routed_paths() -> BTreeSet<String> {
    let http = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    let mut paths = BTreeSet::new();
    for folder in [http.clone(), http.join("operators")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            if file.is_dir() {
                continue;
            }
            let source = std::fs::read_to_string(file).unwrap();
            let routes = source.split(".route(").skip(1);
            let named =
                routes.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            paths.extend(named.map(str::to_owned));
        }
    }
    paths.remove("/ws");
    assert!(paths.len() > 15, "{paths:?}");
    paths
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(|(method, described)| (path.clone(), method.to_uppercase(), described.clone()))
    });
    each.collect()
}

fn filled(path: &str) -> String {
    path.replace("{slug}", "acme")
        .replace("{pubkey}", &key(1).to_string())
        .replace("{id}", "7")
        .replace("{sha256}", &"0".repeat(64))
}

#[track_caller]
fn assert_described(document: &Value, described: &Value, answer: &Answer, what: &str) {
    let status = answer.status.to_string();
    let response = resolved(document, &described["responses"][&status]);
    assert!(
        response.is_object(),
        "{what} answered {status}: {}",
        answer.text
    );
    let schema = &response["content"]["application/json"]["schema"];
    let found = mismatch(document, schema, &answer.json());
    assert_eq!(found, None, "{what} answered {status}: {}", answer.text);
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let document = openapi::document();
    let described = document["paths"].as_object().unwrap();
    let described: BTreeSet<String> = described.keys().cloned().collect();
    assert_eq!(described, routed_paths());
    let world = World::new();
    for path in &described {
        for method in METHODS {
            let operation = &document["paths"][path][method.to_lowercase()];
            let answer = world.request(method, &filled(path), &[], None).await;
            let is_routed = answer.status != 405;
            assert_eq!(operation.is_object(), is_routed, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_refusal_is_described() {
    let document = openapi::document();
    let world = World::new();
    for (path, method, described) in operations(&document) {
        let uri = filled(&path);
        let what = format!("{method} {path}");
        for headers in [vec![], vec![("x-admin-token", ADMIN)]] {
            for body in ["", "{", "[1]", "{}"] {
                let body = (method != "GET").then_some(body);
                let answer = world.request(&method, &uri, &headers, body).await;
                if answer.status >= 300 {
                    assert_described(&document, &described, &answer, &what);
                }
            }
        }
    }
}

#[tokio::test]
async fn responses_have_the_described_fields() {
    let document = openapi::document();
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    let post = json!({"topic": "general", "body": "x", "client_message_id": "m-1"});
    let send = &document["paths"]["/v1/messages"]["post"];
    for status in [201, 200] {
        let sent = world.send(&api_key, &post).await;
        assert_eq!(sent.status, status, "{}", sent.text);
        assert_described(&document, send, &sent, "POST /v1/messages");
    }
    let mut count = 0;
    for (path, method, described) in operations(&document) {
        if method == "GET" && !path.contains("{sha256}") {
            let answer = world.get(&filled(&path)).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            assert_described(&document, &described, &answer, &path);
            count += 1;
        }
    }
    assert!(count > 8, "{count}");
    let rename = format!("/v1/meshes/acme/members/{}/rename", key(1));
    for (template, uri, body) in [
        ("/v1/meshes", "/v1/meshes".to_owned(), json!({"slug": "b"})),
        (
            "/v1/meshes/{slug}/invites",
            "/v1/meshes/acme/invites".to_owned(),
            json!({"uses": 2}),
        ),
        (
            "/v1/meshes/{slug}/keys",
            "/v1/meshes/acme/keys".to_owned(),
            json!({"member": key(1), "capabilities": ["read"]}),
        ),
        (
            "/v1/meshes/{slug}/members/{pubkey}/rename",
            rename,
            json!({"name": "a"}),
        ),
        (
            "/v1/meshes/{slug}/subscribe",
            "/v1/meshes/acme/subscribe".to_owned(),
            json!({"topic": "general", "queue": "pages"}),
        ),
        (
            "/v1/meshes/{slug}/unsubscribe",
            "/v1/meshes/acme/unsubscribe".to_owned(),
            json!({"topic": "general", "queue": "pages"}),
        ),
        ("/v1/mesh/sweep", "/v1/mesh/sweep".to_owned(), json!({})),
        (
            "/v1/mesh/orphan-check",
            "/v1/mesh/orphan-check".to_owned(),
            json!({}),
        ),
    ] {
        let answer = world.post(&uri, &body).await;
        assert!(answer.status < 300, "{uri}: {}", answer.text);
        let described = &document["paths"][template]["post"];
        assert_described(&document, described, &answer, &uri);
    }
}

#[test]
fn every_code_of_the_protocol_is_described_and_no_other() {
    let document = openapi::document();
    let mut described = BTreeSet::new();
    for (_, _, operation) in operations(&document) {
        for response in operation["responses"].as_object().unwrap().values() {
            let response = resolved(&document, response);
            let schema = &response["content"]["application/json"]["schema"];
            let schema = resolved(&document, schema);
            let codes = &schema["properties"]["error"]["properties"]["code"]["enum"];
            let codes = codes.as_array().into_iter().flatten();
            described.extend(codes.map(|code| code.as_str().unwrap().to_owned()));
        }
    }
    let codes = Code::of_face(Face::Mesh).map(|code| code.name().to_owned());
    let mut codes: BTreeSet<String> = codes.collect();
    for (code, reason) in UNDESCRIBED {
        assert!(codes.remove(code.name()), "{code:?}: {reason}");
    }
    assert_eq!(described, codes);
}

#[tokio::test]
async fn the_server_shows_one_description_of_both_protocols() {
    let world = World::new();
    let headers = [("x-api-key", MAIN)];
    let merged = world.request("GET", "/openapi.json", &headers, None).await;
    let merged = merged.of(200);
    let own = openapi::document();
    for (path, method, operation) in operations(&own) {
        assert_eq!(merged["paths"][&path][method.to_lowercase()], operation);
        let id = operation["operationId"].as_str().unwrap();
        assert!(id.starts_with("mesh"), "{id}");
        let content = &operation["requestBody"]["content"]["application/json"];
        let example = &content["example"];
        if !example.is_null() {
            let found = mismatch(&own, &content["schema"], example);
            assert_eq!(found, None, "{id}");
        }
    }
    for members in own["components"].as_object().unwrap().values() {
        for name in members.as_object().unwrap().keys() {
            assert!(name.to_lowercase().starts_with("mesh"), "{name}");
        }
    }
}
