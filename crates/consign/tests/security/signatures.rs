//! Signed requests of the Intent Protocol: a signature is valid for one request, and only once.

use std::time::SystemTime;

use consign_testkit::process::{Http, Reply, Server};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use crate::place::{PATIENCE, Place, get, start};

/// The signature headers of a request. An attacker has them and may send another request with them.
#[derive(Clone)]
struct Signed {
    timestamp: String,
    nonce: String,
    signature: String,
}

fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("it is after 1970").as_secs()
}

/// HMAC-SHA256 over method, path, time, nonce and body, joined by newlines.
fn sign(key: &str, path: &str, nonce: &str, body: &str) -> Signed {
    let timestamp = unix_s().to_string();
    let message = ["POST", path, &timestamp, nonce, body].join("\n");
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("any length will do");
    mac.update(message.as_bytes());
    Signed {
        timestamp,
        nonce: nonce.to_owned(),
        signature: HEXLOWER.encode(&mac.finalize().into_bytes()),
    }
}

/// Sends exactly these bytes.
fn send(server: &Server, path: &str, signed: &Signed, body: &str) -> Reply {
    use std::io::Write as _;
    let key = server.secret("bus_secret").expect("it was made");
    let stream = server.http().connect().expect("the server listens");
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nX-API-KEY: {key}\r\nX-Timestamp: {}\r\nX-Nonce: {}\r\nX-Signature: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.authority(),
        signed.timestamp,
        signed.nonce,
        signed.signature,
        body.len()
    );
    (&stream)
        .write_all(request.as_bytes())
        .expect("it is taken");
    let reply = consign_testkit::process::read_reply(&mut std::io::BufReader::new(&stream));
    reply.expect("the server answers")
}

#[track_caller]
fn assert_refused(reply: &Reply, message: &str) {
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert_eq!(reply.code(), "invalid_signature");
    assert_eq!(reply.json()["error"]["message"], message);
}

fn has_value(http: &mut Http, path: &str) -> bool {
    get(http, path).status == 200
}

#[test]
fn s15_a_signature_for_one_path_is_refused_at_every_other() {
    let place = Place::new();
    let server = start(&place.options());
    let key = server.secret("bus_secret").expect("it was made");
    let mut http = server.main_client().expect("it was made");
    let body = json!({"value": "v"}).to_string();

    let mut number = 0;
    let mut set = |signed: &str, sent: &str| {
        number += 1;
        let signed = sign(&key, signed, &format!("nonce-{number}"), &body);
        send(&server, sent, &signed, &body)
    };
    // A signature for the key `a/b` must not write to the key `a%2Fb`, nor vice versa.
    for (signed, sent) in [
        ("/set/a%2Fb", "/set/a%252Fb"),
        ("/set/a%2Fb", "/set/a%%32Fb"),
        ("/set/a%252Fb", "/set/a%2Fb"),
        ("/set/a%252Fb", "/set/a%25252Fb"),
        ("/set/a?b=1", "/set/a%3Fb=1"),
    ] {
        assert_refused(&set(signed, sent), "Bad signature");
    }
    for path in [
        "/get/a%252Fb",
        "/get/a%2Fb",
        "/get/a%25252Fb",
        "/get/a%3Fb=1",
    ] {
        assert!(!has_value(&mut http, path), "{path} was written");
    }
    // The same paths, sent as signed.
    for path in ["/set/a%2Fb", "/set/a%252Fb"] {
        let reply = set(path, path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    assert!(has_value(&mut http, "/get/a%252Fb"));
    assert!(!has_value(&mut http, "/get/a%25252Fb"));
}

#[test]
fn s15_a_newline_in_the_path_moves_no_signature_to_another_request() {
    let place = Place::new();
    let server = start(&place.options());
    let key = server.secret("bus_secret").expect("it was made");
    let mut http = server.main_client().expect("it was made");
    let rest = json!({"value": "stolen"}).to_string();
    // The nonce is a current timestamp, and the body has two lines.
    let original = sign(
        &key,
        "/set/k",
        &unix_s().to_string(),
        &format!("line\n{rest}"),
    );
    // The end of the path becomes the timestamp, the timestamp the nonce, and so on: the signed bytes are the same.
    let moved = Signed {
        timestamp: original.nonce.clone(),
        nonce: "line".to_owned(),
        signature: original.signature.clone(),
    };
    for newline in ["%0A", "%0a"] {
        let path = format!("/set/k{newline}{}", original.timestamp);
        assert_refused(&send(&server, &path, &moved, &rest), "Bad signature");
        let read = path.replace("/set/", "/get/");
        assert!(!has_value(&mut http, &read), "{read} was written");
    }
    // A path with a newline is also refused if it was signed in this form.
    let signed = sign(&key, "/set/k%0A1", "of-its-own", &rest);
    assert_refused(
        &send(&server, "/set/k%0A1", &signed, &rest),
        "Bad signature",
    );
    // The signature of the original request is valid. Only its body is invalid.
    let reply = send(&server, "/set/k", &original, &format!("line\n{rest}"));
    assert_eq!(reply.status, 400, "{}", reply.text());
}

#[test]
fn s15_a_nonce_stays_burnt_after_a_purge_a_cleanup_and_a_restart() {
    let place = Place::new();
    let mut server = start(&place.options());
    let key = server.secret("bus_secret").expect("it was made");
    let body = json!({"goal": "once", "payload": 1}).to_string();
    let signed = sign(&key, "/intent", "a-nonce", &body);
    let replayed = |server: &Server| send(server, "/intent", &signed, &body);
    assert_eq!(replayed(&server).status, 201);
    assert_refused(&replayed(&server), "Replay detected");

    let mut admin = server.admin_client().expect("it was made");
    for (path, order) in [
        (
            "/admin/purge",
            json!({"confirm": true, "namespace": "default"}),
        ),
        ("/admin/purge", json!({"confirm": true})),
        ("/admin/cleanup", json!({})),
    ] {
        let done = admin.post(path, &order).expect("the server answers");
        assert_eq!(done.status, 200, "{path}: {}", done.text());
        assert_refused(&replayed(&server), "Replay detected");
    }
    drop(admin);
    assert!(server.terminate(PATIENCE).expect("it ends").success());
    let mut server = start(&place.options());
    assert_refused(&replayed(&server), "Replay detected");
    server.kill9().expect("it can be killed");
    let server = start(&place.options());
    assert_refused(&replayed(&server), "Replay detected");
    // A purge after the restart keeps all nonces, too.
    let mut admin = server.admin_client().expect("it was made");
    let done = admin.post("/admin/purge", &json!({"confirm": true}));
    assert_eq!(done.expect("the server answers").status, 200);
    assert_refused(&replayed(&server), "Replay detected");
    let another = sign(&key, "/intent", "another-nonce", &body);
    assert_eq!(send(&server, "/intent", &another, &body).status, 201);
}
