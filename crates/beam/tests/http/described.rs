//! The `OpenAPI` description of the routes: complete, and consistent with the router and its responses.

use std::collections::BTreeSet;
use std::path::Path;

use consign_beam::http::openapi;
use consign_kernel::error::Code;
use consign_kernel::profile::Face;
use serde_json::{Value, json};

use crate::admin::{VIEWER, log_in, with_roles};
use crate::schema_check::{mismatch, resolved};
use crate::world::{Answer, Identity, World};

pub(crate) const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const SECRET: &str = "a-shared-secret-of-directories";

/// Codes that no operation describes.
const UNDESCRIBED: [(Code, &str); 1] =
    [(Code::MethodNotAllowed, "a wrong method is not an operation")];

/// The paths of all routes, read from the sources; a wildcard is an ordinary parameter in the description.
fn routed_paths() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    let mut paths = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.is_dir() {
            continue;
        }
        let source = std::fs::read_to_string(file).unwrap();
        let routes = source.split(".route(").skip(1);
        let named =
            routes.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        paths.extend(named.map(|path| path.replace("{*", "{")));
    }
    assert!(paths.len() > 35, "{paths:?}");
    paths
}

/// Every operation with its path and method.
pub(crate) fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(|(method, told)| (path.clone(), method.to_uppercase(), told.clone()))
    });
    each.collect()
}

/// A path with values for its parameters.
pub(crate) fn filled(path: &str) -> String {
    path.replace("{beam_id}", "desk@acme.beam.directory")
        .replace("{name}", "7")
        .replace("{did}", "did:beam:acme:desk")
        .replace("{id}", "7")
        .replace("{nonce}", "n-1")
}

/// The words under `errorCode` in all error responses of an operation.
fn words(document: &Value, told: &Value) -> BTreeSet<String> {
    let responses = told["responses"].as_object().unwrap().values();
    let mut words = BTreeSet::new();
    for response in responses {
        let content = &resolved(document, response)["content"]["application/json"]["schema"];
        let schema = resolved(document, content);
        let word = &schema["properties"]["errorCode"]["enum"];
        if schema["additionalProperties"] != json!(false) {
            continue;
        }
        assert_eq!(
            schema["required"],
            json!(["error", "errorCode"]),
            "{schema}"
        );
        let listed = word.as_array().unwrap().iter();
        words.extend(listed.map(|word| word.as_str().unwrap().to_owned()));
    }
    words
}

/// Checks a response against the description of its operation.
#[track_caller]
fn assert_described(document: &Value, told: &Value, answer: &Answer, what: &str) {
    let status = answer.status.to_string();
    let response = resolved(document, &told["responses"][&status]);
    assert!(
        response.is_object(),
        "{what} answered {status}: {}",
        answer.text
    );
    let schema = &response["content"]["application/json"]["schema"];
    if schema.is_null() {
        assert_eq!(answer.text, "", "{what} answered {status}");
        return;
    }
    let found = mismatch(document, schema, &answer.json());
    assert_eq!(found, None, "{what} answered {status}: {}", answer.text);
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let document = openapi::document();
    let described = document["paths"].as_object().unwrap();
    let described: BTreeSet<String> = described.keys().cloned().collect();
    assert_eq!(described, routed_paths());
    let world = World::new().await;
    for path in &described {
        for method in METHODS {
            let told = &document["paths"][path][method.to_lowercase()];
            let answer = world.request(method, &filled(path), &[], None).await;
            let is_routed = answer.status != 405;
            assert_eq!(told.is_object(), is_routed, "{method} {path}");
        }
    }
}

#[test]
fn every_code_of_the_protocol_is_described_and_no_other() {
    let document = openapi::document();
    let mut described = BTreeSet::new();
    for (path, method, told) in operations(&document) {
        let words = words(&document, &told);
        assert!(words.len() > 2, "{method} {path}: {words:?}");
        described.extend(words);
    }
    let word = |code: Code| code.name().to_ascii_uppercase();
    let mut codes: BTreeSet<String> = Code::of_face(Face::Beam).map(word).collect();
    for (code, reason) in UNDESCRIBED {
        assert!(codes.remove(&word(code)), "{code:?}: {reason}");
    }
    assert_eq!(described, codes);
}

#[tokio::test]
async fn every_refusal_is_described() {
    let document = openapi::document();
    let world = World::with(|settings| {
        with_roles(settings);
        settings.federation_secret =
            Some(consign_web::secret_text::SecretText::new(SECRET.to_owned()));
    })
    .await;
    let secret = [("x-beam-federation-secret", SECRET)];
    for (path, method, told) in operations(&document) {
        let uri = filled(&path);
        let what = format!("{method} {path}");
        for body in ["", "{", "[1]", "{}"] {
            let has_body = method != "GET" && !body.is_empty();
            let body = has_body.then(|| body.to_owned());
            let local = world.request(&method, &uri, &secret, body.clone()).await;
            assert_described(&document, &told, &local, &what);
            let remote = world.request_elsewhere(&method, &uri, &[], body).await;
            assert_described(&document, &told, &remote, &what);
        }
    }
}

#[tokio::test]
async fn responses_have_the_described_fields() {
    let document = openapi::document();
    let world = World::with(|settings| {
        with_roles(settings);
        settings.federation_secret =
            Some(consign_web::secret_text::SecretText::new(SECRET.to_owned()));
    })
    .await;
    let (alice, bob) = world.alice_and_bob().await;
    world.delegate(&alice.beam_id, &bob.beam_id, "x").await;
    let session = log_in(&world, VIEWER).await;
    let headers = [
        ("authorization", session.as_str()),
        ("x-beam-federation-secret", SECRET),
    ];
    let registration = json!({
        "beamId": "new@acme.beam.directory", "displayName": "New", "capabilities": ["x"],
        "publicKey": Identity::alice().public_key(), "visibility": "public",
    });
    let rule = json!({"targetBeamId": bob.beam_id, "intentType": "x", "allowedFrom": "*"});
    let message = json!({"from": alice.beam_id, "to": bob.beam_id, "intent": "x", "nonce": "n-9"});
    let mut count = 0;
    let send = async |method: &str, template: &str, uri: &str, body: Option<&Value>| {
        let body = body.map(Value::to_string);
        let answer = world.request(method, uri, &headers, body).await;
        let what = format!("{method} {uri}: {} {}", answer.status, answer.text);
        assert!(answer.status < 300, "{what}");
        let told = &document["paths"][template][method.to_lowercase()];
        assert_described(&document, told, &answer, &what);
    };
    for (template, body) in [
        ("/agents/register", &registration),
        ("/acl", &rule),
        ("/v1/beam/send", &message),
        ("/v1/beam/send", &message),
        ("/admin/auth/magic-link", &json!({"email": VIEWER})),
    ] {
        send("POST", template, template, Some(body)).await;
        count += 1;
    }
    // One intent fails, because its recipient is offline; the other one has a result.
    let failed = world
        .post("/intents/send", &alice.message(&world, &bob, "n-offline"))
        .await;
    assert_eq!(failed.error(), (503, "OFFLINE".to_owned()));
    let mut socket = world.connect(&bob.beam_id).await;
    let (path, frame) = ("/intents/send", alice.message(&world, &bob, "n-sent"));
    let payload = json!({"message": "hi"});
    tokio::join!(
        send("POST", path, path, Some(&frame)),
        socket.answer(&bob, &payload),
    );
    for (path, method, _) in operations(&document) {
        let needs_more = ["/ws", "/v1/beam/poll", "/v1/beam/events"].contains(&path.as_str());
        if method != "GET" || needs_more {
            continue;
        }
        let uri = path
            .replace("{beam_id}", &alice.beam_id)
            .replace("{name}", &bob.beam_id)
            .replace("{did}", "did:beam:acme:new")
            .replace("{nonce}", "n-sent");
        send("GET", &path, &uri, None).await;
        count += 1;
    }
    let uri = format!("/v1/beam/poll?agent={}", bob.beam_id);
    send("GET", "/v1/beam/poll", &uri, None).await;
    assert!(count > 20, "{count}");
}

#[tokio::test]
async fn the_server_shows_one_description_of_both_protocols() {
    let world = World::new().await;
    let key = [("X-API-KEY", "ck_main")];
    let merged = world
        .request("GET", "/openapi.json", &key, None)
        .await
        .json();
    let own = openapi::document();
    let ids: BTreeSet<String> = operations(&merged)
        .into_iter()
        .map(|(_, _, told)| told["operationId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), operations(&merged).len(), "an id is used twice");
    assert!(
        ids.contains("publish") && ids.contains("beamSendIntent"),
        "{ids:?}"
    );
    for (path, method, told) in operations(&own) {
        assert_eq!(merged["paths"][&path][method.to_lowercase()], told);
        let id = told["operationId"].as_str().unwrap();
        assert!(id.starts_with("beam"), "{id}");
    }
    for members in own["components"].as_object().unwrap().values() {
        for name in members.as_object().unwrap().keys() {
            assert!(name.to_lowercase().starts_with("beam"), "{name}");
        }
    }
    let text = own.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(own.pointer(pointer).is_some(), "{pointer}");
    }
    for (_, _, told) in operations(&own) {
        let schemes = told["security"].as_array().unwrap().iter();
        for scheme in schemes.flat_map(|schemes| schemes.as_object().unwrap().keys()) {
            assert!(
                own["components"]["securitySchemes"][scheme].is_object(),
                "{scheme}"
            );
        }
        let content = &told["requestBody"]["content"]["application/json"];
        let example = &content["example"];
        if !example.is_null() {
            let found = mismatch(&own, &content["schema"], example);
            assert_eq!(found, None, "{}", told["operationId"]);
        }
    }
}
