//! The `OpenAPI` document of the face: complete, consistent with the router, and served to authenticated clients only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use consign_intent::openapi;
use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use http::Method;
use serde_json::{Value, json};

use crate::world::{ADMIN, Answer, Call, MAIN, METRICS, PASSWORD, World};

const METHODS: [&str; 8] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace",
];

fn document() -> Value {
    openapi::document()
}

/// Every operation with its path and method.
fn operations(document: &Value) -> Vec<(String, Method, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(METHODS.contains(&method.as_str()), "{path}: {method}");
            let method = method.to_ascii_uppercase().parse().unwrap();
            all.push((path.clone(), method, operation.clone()));
        }
    }
    assert!(all.len() > 30, "only {} operations", all.len());
    all
}

/// Calls `visit` for every object in `value`.
fn each_object(value: &Value, visit: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            visit(members);
            members.values().for_each(|value| each_object(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| each_object(value, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => document
            .pointer(reference.strip_prefix('#').unwrap())
            .unwrap(),
        None => value,
    }
}

fn error_codes(document: &Value, response: &Value) -> Vec<String> {
    let code = "/content/application~1json/schema/properties/error/properties/code/enum";
    let codes = resolved(document, response).pointer(code).unwrap();
    let codes = codes.as_array().unwrap().iter();
    codes
        .map(|code| code.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_document_is_openapi_3_1_and_every_reference_in_it_resolves() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    for member in ["title", "version"] {
        assert!(document["info"][member].is_string(), "{member}");
    }
    let ids: BTreeSet<String> = operations(&document)
        .into_iter()
        .map(|(_, _, operation)| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    let mut references = 0;
    let mut links = 0;
    each_object(&document, &mut |object| {
        if let Some(reference) = object.get("$ref") {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
            references += 1;
        }
        for link in object
            .get("links")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let (_, link) = link;
            assert!(
                ids.contains(link["operationId"].as_str().unwrap()),
                "{link}"
            );
            links += 1;
        }
    });
    assert!(references > 100 && links > 10);
    for kind in ["schemas", "responses", "headers", "securitySchemes"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            assert!(name.bytes().all(fits), "{kind} {name}");
        }
    }
}

#[test]
fn nothing_is_described_that_nothing_refers_to() {
    let document = document();
    let text = document.to_string();
    for kind in ["schemas", "responses", "headers"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let used = text.contains(&format!("\"#/components/{kind}/{name}\""));
            assert!(used || name == "ErrorCode", "{kind}/{name}");
        }
    }
}

#[test]
fn every_operation_has_a_name_of_its_own_and_declares_what_it_uses() {
    let document = document();
    let mut ids = BTreeSet::new();
    let schemes = document["components"]["securitySchemes"]
        .as_object()
        .unwrap();
    for (path, method, operation) in operations(&document) {
        let what = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id), "{what}: its operationId is taken");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{what}");

        let in_path: BTreeSet<&str> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        let mut declared = BTreeSet::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["schema"].is_object(), "{what}");
            if parameter["in"] == "path" {
                assert_eq!(parameter["required"], true, "{what}");
                declared.insert(parameter["name"].as_str().unwrap());
            }
        }
        assert_eq!(in_path, declared, "{what}");

        for way in operation["security"].as_array().unwrap() {
            for scheme in way.as_object().unwrap().keys() {
                assert!(schemes.contains_key(scheme), "{what}: {scheme}");
            }
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            let response = resolved(&document, response);
            assert!(response["description"].is_string(), "{what} {status}");
            for header in ["x-frame-options", "x-intent-version", "cache-control"] {
                assert!(response["headers"][header].is_object(), "{what} {status}");
            }
        }
    }
}

#[test]
fn the_codes_in_the_document_are_those_of_the_table_and_have_a_page() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let in_table: BTreeSet<String> = Code::of_face(Face::Intent)
        .map(|code| code.name().to_owned())
        .collect();
    for name in &in_table {
        assert!(pages.join(format!("{name}.md")).is_file(), "{name}");
    }

    let document = document();
    let listed = document["components"]["schemas"]["ErrorCode"]["enum"].as_array();
    let listed: BTreeSet<String> = listed
        .unwrap()
        .iter()
        .map(|code| code.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed, in_table);

    let mut answered = BTreeSet::new();
    for (_, _, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            if status.parse::<u16>().unwrap() >= 400 {
                answered.extend(error_codes(&document, response));
            }
        }
    }
    // No operation documents a wrong method, and a wrong action is reported inside a successful response.
    answered.insert(Code::MethodNotAllowed.name().to_owned());
    answered.insert(Code::InvalidAction.name().to_owned());
    assert_eq!(answered, in_table);
}

/// Adds the credentials that the document requires for the operation.
fn with_credentials(call: Call, operation: &Value) -> Call {
    let ways = operation["security"].as_array().unwrap();
    let Some(way) = ways.first() else {
        return call;
    };
    match way.as_object().unwrap().keys().next().unwrap().as_str() {
        "apiKey" => call.key(MAIN),
        "adminToken" => call.header("x-admin-token", ADMIN),
        "metricsToken" => call.header("authorization", &format!("Bearer {METRICS}")),
        other => panic!("unknown credentials: {other}"),
    }
}

#[tokio::test]
async fn every_route_answers_with_a_status_and_a_code_that_the_document_tells() {
    let world = World::new();
    let document = document();
    for (path, method, operation) in operations(&document) {
        let what = format!("{method} {path}");
        let id = world.publish(json!({"goal": "g", "payload": 1})).await;
        let uri = path.replace("{id}", &id).replace("{key}", "k");
        let mut call = with_credentials(Call::new(method, &uri), &operation);
        let example = "/requestBody/content/application~1json/example";
        if let Some(example) = operation.pointer(example) {
            call = call.json(example);
        }
        let response = world.respond(call.clone()).await;
        let status = response.status().as_u16();
        assert!(status != 405, "{what}");
        let told = &operation["responses"][status.to_string()];
        assert!(told.is_object(), "{what} answered {status}");
        if status >= 400 {
            let answer = world.send(call).await;
            let code = answer.code();
            assert!(
                error_codes(&document, told).contains(&code),
                "{what} {code}"
            );
            let message = answer.json()["error"]["message"].clone();
            assert_ne!(message, "There is nothing at this path.", "{what}");
        }
    }
}

#[tokio::test]
async fn a_route_that_asks_for_credentials_refuses_a_stranger_as_told() {
    let world = World::new();
    let document = document();
    let mut open = Vec::new();
    for (path, method, operation) in operations(&document) {
        if operation["security"].as_array().unwrap().is_empty() {
            open.push(path);
            continue;
        }
        let what = format!("{method} {path}");
        let answer = world.send(Call::new(method, &path)).await;
        answer.assert_refused(401, "unauthorized");
        let told = resolved(&document, &operation["responses"]["401"]);
        let challenged = answer.headers.contains_key("www-authenticate");
        let challenge = told["headers"]["WWW-Authenticate"].is_object();
        assert_eq!(challenged, challenge, "{what}");
    }
    assert_eq!(
        open,
        ["/", "/.well-known/jwks.json", "/health", "/receipts/verify"]
    );
}

#[tokio::test]
async fn clients_and_operators_may_read_both_and_nobody_else() {
    let world = World::new();
    let tester = world.tester("anna").await;
    let basic = |user: &str, password: &str| {
        let pair = format!("{user}:{password}");
        let encoded = data_encoding::BASE64.encode(pair.as_bytes());
        format!("Basic {encoded}")
    };
    for uri in ["/openapi.json", "/docs"] {
        for call in [
            Call::get(uri).key(MAIN),
            Call::get(uri).key(&tester),
            Call::get(uri).admin(),
            Call::get(uri).header("authorization", &basic("admin", PASSWORD)),
        ] {
            assert_eq!(world.send(call).await.status, 200, "{uri}");
        }
        for call in [
            Call::get(uri),
            Call::get(uri).key("tk_unknown"),
            Call::get(uri).key("tk_unknown").admin(),
            Call::get(uri).header("x-admin-token", "wrong"),
            Call::get(uri).header("authorization", &basic("admin", "wrong")),
            Call::get(uri).header("authorization", &format!("Bearer {METRICS}")),
        ] {
            world.send(call).await.assert_refused(401, "unauthorized");
        }
        let asked = world.send(Call::get(uri)).await;
        assert_eq!(asked.headers["www-authenticate"], "Basic realm=\"Consign\"");
    }
    let served = world.send(Call::get("/openapi.json").key(MAIN)).await;
    assert_eq!(served.json(), document());
}

async fn page(world: &World) -> Answer {
    let answer = world.send(Call::get("/docs").key(MAIN)).await;
    assert_eq!(answer.status, 200);
    answer
}

#[tokio::test]
async fn the_page_may_load_and_run_nothing_and_points_nowhere_else() {
    let world = World::new();
    let answer = page(&world).await;
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("script-src"), "{policy}");
    let html = answer.text();
    for word in [
        "<script",
        "<link",
        "<img",
        "src=",
        "url(",
        "@import",
        "http-equiv",
        "onclick",
    ] {
        assert!(!html.contains(word), "{word}");
    }
    let mut anchors = BTreeMap::new();
    for target in html.split("href=\"").skip(1) {
        let target = target.split_once('"').unwrap().0;
        match target.strip_prefix('#') {
            Some(id) => drop(anchors.insert(id.to_owned(), html.contains(&format!("id=\"{id}\"")))),
            None => assert_eq!(target, "/openapi.json"),
        }
    }
    assert!(anchors.len() > 40);
    assert!(anchors.values().all(|found| *found), "{anchors:?}");
}

#[tokio::test]
async fn the_page_tells_of_every_operation_and_every_code() {
    let html = page(&World::new()).await.text();
    for (path, method, operation) in operations(&document()) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(
            html.contains(&format!("<article id=\"{id}\">")),
            "{method} {path}"
        );
        assert!(html.contains(&format!("<code>{path}</code>")), "{path}");
    }
    for code in Code::of_face(Face::Intent) {
        assert!(html.contains(&format!("<code>{}</code>", code.name())));
    }
}
