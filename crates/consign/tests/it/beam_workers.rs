//! Messages of the Beam bus and workers of the Intent Protocol in one server process, over HTTP and by the command line.

use std::os::unix::fs::PermissionsExt as _;

use consign_testkit::process::{Http, Options, Server};
use serde_json::{Value, json};

use super::{PATIENCE, Place, code, get, printed, start, text, word};

const NAMESPACE: &str = "beam.bob.acme";
const BOB: &str = "bob@acme.beam.directory";

/// Registers alice, for whom the bus of later starts signs.
fn prepared(place: &Place) -> Options {
    let mut server = place.start();
    let identity = place.path("alice.beam.json");
    let identity = identity
        .to_str()
        .expect("temporary folders have plain names");
    let alice = "alice@acme.beam.directory";
    printed(&place.consign(&["agent", "register", alice, "--key", identity, "--json"]));
    let identity = std::fs::read_to_string(identity).expect("the identity is stored");
    let bundle = place.path("identities.json");
    std::fs::write(&bundle, format!(r#"{{"alice":{identity}}}"#)).expect("a file can be written");
    std::fs::set_permissions(&bundle, std::fs::Permissions::from_mode(0o600))
        .expect("its mode can be set");
    server.terminate(PATIENCE).expect("it ends");
    let bundle = bundle.to_str().expect("temporary folders have plain names");
    place
        .options()
        .env("BEAM_BUS_IDENTITY_PATH", bundle)
        .env("BEAM_BUS_RETRY_INTERVAL_MS", "600000")
        .env("BEAM_BUS_RETRY_TIME_SCALE", "0.001")
}

fn worker(server: &Server, key: &str) -> Http {
    server.http().header("X-API-KEY", key)
}

fn post(http: &mut Http, path: &str, body: &Value) -> (u16, Value) {
    let reply = http.post(path, body).expect("the server answers");
    let body = if reply.status == 204 {
        Value::Null
    } else {
        reply.json()
    };
    (reply.status, body)
}

fn send(server: &Server, nonce: &str) -> Value {
    let message = json!({
        "from": "alice@acme.beam.directory", "to": BOB, "intent": "conversation.message",
        "payload": {"message": "hello"}, "nonce": nonce,
    });
    let (status, sent) = post(&mut server.http(), "/v1/beam/send", &message);
    assert_eq!(status, 201, "{sent}");
    sent
}

fn stored(server: &Server, id: &str) -> Value {
    let history = get(&mut server.http(), "/v1/beam/history").json();
    let messages = history["messages"].as_array().expect("a list of messages");
    let found = messages.iter().find(|message| message["id"] == id);
    found.unwrap_or_else(|| panic!("{id}: {history}")).clone()
}

#[test]
fn be_171_be_172_a_worker_fulfils_a_message_although_the_server_was_killed_meanwhile() {
    let place = Place::new();
    let options = prepared(&place);
    let mut server = start(&options);
    let made = ["key", "create", "--owner", "w", "--grant", BOB, "--json"];
    let made = printed(&place.consign(&made));
    assert_eq!(made["grants"], json!([NAMESPACE]));
    let key = word(&made["api_key"]);
    let sent = send(&server, "n-1");
    assert_eq!(sent["status"], "delivered");
    let claim = format!("/claim?namespace={NAMESPACE}");
    let (status, claimed) = post(&mut worker(&server, &key), &claim, &json!({}));
    assert_eq!((status, &claimed["id"]), (200, &sent["message_id"]));
    assert_eq!(claimed["payload"], json!({"message": "hello"}));

    // The lease belongs to the worker, so a new start of the server does not take it back.
    server.kill9().expect("it can be killed");
    let server = start(&options);
    let id = word(&claimed["id"]);
    assert_eq!(stored(&server, &id)["status"], "dispatched");
    let body = json!({"claim_token": claimed["claim_token"], "result": {"answer": 42}});
    let (status, done) = post(&mut worker(&server, &key), &format!("/fulfill/{id}"), &body);
    assert_eq!(status, 200, "{done}");
    let acked = stored(&server, &id);
    assert_eq!(
        (&acked["status"], &acked["response"]),
        (&json!("acked"), &json!({"answer": 42}))
    );
    assert!(acked["acked_at"].is_f64(), "{acked}");

    // Failures of the worker follow the schedule of the bus to the dead letter.
    let sent = send(&server, "n-2");
    for attempt in 1..=5 {
        let wait = format!("{claim}&wait=9");
        let (status, claimed) = post(&mut worker(&server, &key), &wait, &json!({}));
        assert_eq!((status, &claimed["id"]), (200, &sent["message_id"]));
        assert_eq!(claimed["claim_attempts"], attempt);
        let fail = format!("/fail/{}", word(&claimed["id"]));
        let body = json!({"claim_token": claimed["claim_token"], "error": "broken"});
        assert_eq!(post(&mut worker(&server, &key), &fail, &body).0, 200);
    }
    let dead = stored(&server, &word(&sent["message_id"]));
    assert_eq!(
        (&dead["status"], &dead["error"]),
        (&json!("dead_letter"), &json!("broken"))
    );
}

#[test]
fn be_170_be_176_the_command_line_makes_lists_and_revokes_grants() {
    let place = Place::new();
    let server = place.start();
    let key = printed(&place.consign(&["key", "create", "--owner", "w", "--json"]));
    let key = word(&key["api_key"]);
    let claim = format!("/claim?namespace={NAMESPACE}");
    let status = || post(&mut worker(&server, &key), &claim, &json!({})).0;
    assert_eq!(status(), 403);
    let listed = printed(&place.consign(&["key", "list", "--json"]));
    assert_eq!(listed[0]["grants"], json!([]));
    let id = word(&listed[0]["id"]);

    let granted = printed(&place.consign(&["key", "grant", &id, NAMESPACE, "--json"]));
    let report = |granted: bool| json!({"key_id": id, "namespace": NAMESPACE, "granted": granted});
    assert_eq!(granted, report(true));
    assert_eq!(status(), 204);
    let shown = place.consign(&["key", "list"]);
    assert!(text(&shown.stdout).contains(NAMESPACE), "{shown:?}");
    let grants = printed(&place.consign(&["key", "grants", "--json"]));
    assert_eq!(
        (&grants[0]["key_id"], &grants[0]["namespace"]),
        (&json!(id), &json!(NAMESPACE))
    );

    let revoked = printed(&place.consign(&["key", "revoke-grant", &id, BOB, "--json"]));
    assert_eq!(revoked, report(false));
    assert_eq!(status(), 403);
    for (args, expected) in [
        (["key", "revoke-grant", &*id, NAMESPACE], 3),
        (["key", "grant", "k_0000000000000000", NAMESPACE], 3),
        (["key", "grant", &*id, "default"], 2),
    ] {
        let refused = place.consign(&args);
        assert_eq!(code(&refused), expected, "{args:?} {refused:?}");
    }
}
