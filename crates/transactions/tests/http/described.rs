//! The `OpenAPI` description of the routes: complete, and consistent with the router.

use std::collections::BTreeSet;

use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use consign_transactions::http::openapi;
use serde_json::{Value, json};

use crate::world::{ADMIN, KEY, World};

/// Every operation with its path and method.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(|(method, told)| (path.clone(), method.to_uppercase(), told.clone()))
    });
    each.collect()
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let source = include_str!("../../src/http/routes.rs");
    let routed: BTreeSet<&str> = source
        .split(".route(")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .filter(|path| !path.contains('*'))
        .collect();
    let document = openapi::document();
    let described: BTreeSet<&str> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert!(routed.len() > 15, "{routed:?}");
    assert_eq!(described, routed);
}

#[test]
fn every_listed_error_is_in_the_table_and_has_a_page() {
    let document = openapi::document();
    let listed = &document["components"]["schemas"]["AtpRefusal"]["properties"]["error"]["enum"];
    let listed: BTreeSet<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let in_table: BTreeSet<&str> = Code::of_face(Face::Transaction).map(Code::name).collect();
    assert_eq!(listed, in_table);
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
    for name in listed {
        assert!(
            std::path::Path::new(&format!("{pages}/{name}.md")).is_file(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn every_operation_answers_with_a_status_that_the_description_tells() {
    let world = World::new(0).await;
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("Idempotency-Key", KEY), ("Authorization", &bearer)];
    for (path, method, told) in operations(&openapi::document()) {
        let segments = path.split('/');
        let filled = segments.map(|part| {
            if part.starts_with('{') {
                "int_abc"
            } else {
                part
            }
        });
        let uri = filled.collect::<Vec<_>>().join("/");
        for body in [
            "{}",
            "",
            "[1]",
            r#"{"intent_id":"int_abc","reason":"x","nonce":"n"}"#,
        ] {
            let sent = if method == "GET" { "" } else { body };
            let answer = world.send(&method, &uri, &headers, sent).await;
            let status = answer.status.as_str();
            assert_ne!(status, "405", "{method} {path}");
            assert!(
                told["responses"][status].is_object(),
                "{method} {path} answered {status}"
            );
            assert!(!answer.text.contains("no such path"), "{method} {path}");
        }
        let is_guarded = told["security"] != json!([]);
        let stranger = world.send(&method, &uri, &[], "{}").await;
        assert_eq!(
            stranger.json()["error"] == "unauthorized",
            is_guarded,
            "{method} {path}"
        );
    }
}

fn members(object: &Value) -> BTreeSet<&str> {
    let members = object.as_object().unwrap().keys();
    members.map(String::as_str).collect()
}

#[tokio::test]
async fn lists_take_and_answer_what_the_description_tells() {
    let world = World::new(0).await;
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("Authorization", bearer.as_str())];
    let document = openapi::document();
    let is_list = |method: &str, told: &Value| method == "GET" && told["security"] != json!([]);
    let lists = operations(&document).into_iter();
    let lists: Vec<_> = lists.filter(|list| is_list(&list.1, &list.2)).collect();
    assert_eq!(lists.len(), 3);
    for (path, _, told) in lists {
        let parameters = told["parameters"].as_array().unwrap();
        for name in ["limit", "offset", "from", "after", "state"] {
            // A route that has the parameter refuses a value that is neither a number nor a state.
            let uri = format!("{path}?{name}=x");
            let answer = world.send("GET", &uri, &headers, "").await;
            let is_told = parameters.iter().any(|told| told["name"] == name);
            assert_eq!(answer.status == 400, is_told, "{uri}: {}", answer.text);
        }
        let answer = world.send("GET", &path, &headers, "").await.json();
        let content = &told["responses"]["200"]["content"]["application/json"];
        let schema = content["schema"]["$ref"].as_str().unwrap();
        let schema = document.pointer(schema.trim_start_matches('#')).unwrap();
        assert_eq!(members(&answer), members(&schema["properties"]), "{path}");
    }
}

#[tokio::test]
async fn the_server_shows_one_description_of_both_faces() {
    let world = World::new(0).await;
    let asked = [("X-API-KEY", "ck_main")];
    let told = world.send("GET", "/openapi.json", &asked, "").await.json();
    let ids: BTreeSet<String> = operations(&told)
        .into_iter()
        .map(|(_, _, told)| told["operationId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), operations(&told).len(), "no id is taken twice");
    assert!(
        ids.contains("publish") && ids.contains("atpExecute"),
        "{ids:?}"
    );
    let text = told.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(told.pointer(pointer).is_some(), "{pointer}");
    }
    for scheme in ["apiKey", "siteOperator"] {
        assert!(told["components"]["securitySchemes"][scheme].is_object());
    }
}

#[tokio::test]
async fn a_path_that_is_no_text_is_refused_in_the_protocols_own_shape() {
    let world = World::new(0).await;
    for path in [
        "/api/atp/intents/%ff",
        "/api/atp/intents/%ff/receipts",
        "/api/atp/transactions/%ff",
        "/api/atp/receipts/%ff",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["error"], "not_found", "{path}");
    }
}

#[tokio::test]
async fn an_operators_reason_is_text_or_left_out() {
    let world = World::new(0).await;
    let bearer = format!("Bearer {ADMIN}");
    let rotate = async |body: &str| {
        let headers = [("Authorization", bearer.as_str())];
        let path = "/api/atp/admin/keys/rotate";
        world.send("POST", path, &headers, body).await.status
    };
    for body in ["", "{}", r#"{"reason":null}"#, r#"{"reason":"planned"}"#] {
        assert_eq!(rotate(body).await, 200, "{body}");
    }
    for body in ["reason", "[]", r#"{"reason":7}"#] {
        assert_eq!(rotate(body).await, 400, "{body}");
    }
}
