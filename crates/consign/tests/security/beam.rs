//! What programs of other machines, recorded signatures and strangers can do through Beam.

use std::time::SystemTime;

use consign_beam::keys::BeamPrivateKey;
use consign_beam::signed_text::BeamSignedText;
use consign_beam::timestamp;
use consign_kernel::ids::Micros;
use consign_testkit::process::{Http, Reply, Server};
use serde_json::{Value, json};

use crate::place::{Place, get, start};

const ADMIN: &str = "ops@example.com";
const ALICE: &str = "alice@acme.beam.directory";
const ROTATE: &str = "/agents/alice@acme.beam.directory/keys/rotate";
const REGISTER: &str = "/agents/register";

fn key(seed: u8) -> BeamPrivateKey {
    BeamPrivateKey::from_seed(&[seed; 32])
}

fn registration(beam_id: &str, seed: u8) -> Value {
    json!({
        "beamId": beam_id,
        "displayName": "An agent",
        "capabilities": ["test"],
        "publicKey": key(seed).public_key().to_string(),
    })
}

/// A client of another machine: its requests came through a proxy.
fn elsewhere(server: &Server) -> Http {
    server.http().header("x-forwarded-for", "203.0.113.7")
}

fn post(http: &mut Http, path: &str, body: &Value) -> Reply {
    http.post(path, body).expect("the server answers")
}

fn refusal(reply: &Reply) -> (u16, String) {
    let code = reply.json()["errorCode"].as_str().map(str::to_owned);
    (reply.status, code.unwrap_or_default())
}

fn now_text() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.expect("it is after 1970").as_micros();
    timestamp::format(Micros(
        i64::try_from(since).expect("it is before the year 294000"),
    ))
}

/// Tries each closed route without a credential. All are refused, and nothing has changed.
fn assert_closed(server: &Server, mut http: Http) {
    let rule = json!({"targetBeamId": ALICE, "intentType": "agent.ping", "allowedFrom": "*"});
    let login = json!({"email": ADMIN});
    let message =
        json!({"sender": ALICE, "recipient": ALICE, "intent": "agent.ping", "payload": {}});
    let unauthorized = (401, "UNAUTHORIZED".to_owned());
    for (path, body) in [
        ("/acl", &rule),
        (REGISTER, &registration(ALICE, 1)),
        ("/v1/beam/send", &message),
    ] {
        let reply = post(&mut http, path, body);
        assert!(
            matches!(reply.status, 401 | 403),
            "{path}: {}",
            reply.text()
        );
    }
    assert_eq!(
        refusal(&post(&mut http, REGISTER, &registration(ALICE, 2))),
        (409, "KEY_ROTATION_REQUIRED".to_owned())
    );
    let next = key(2).public_key().to_string();
    let bare = json!({"new_public_key": next, "rotation_proof": key(1).sign(next.as_bytes())});
    assert_eq!(
        refusal(&post(&mut http, ROTATE, &bare)),
        (400, "INVALID_ROTATION_PROOF".to_owned())
    );
    assert_eq!(refusal(&get(&mut http, "/intents/recent")), unauthorized);
    let reply = post(&mut http, "/admin/auth/magic-link", &login);
    assert!(reply.json().get("token").is_none(), "{}", reply.text());
    let agent = get(&mut server.http(), &format!("/agents/{ALICE}")).json();
    let expected = key(1).public_key().to_string();
    assert_eq!(agent["public_key"], expected, "{agent}");
    let rules = get(&mut server.http(), &format!("/acl/{ALICE}")).json();
    assert_eq!(rules["total"], 0, "{rules}");
}

#[test]
fn s19_from_elsewhere_the_closed_routes_of_beam_need_a_credential() {
    let place = Place::new();
    let server = start(&place.options().env("BEAM_ADMIN_EMAILS", ADMIN));
    let reply = post(&mut server.http(), REGISTER, &registration(ALICE, 1));
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_closed(&server, elsewhere(&server));
    // The token of a login is for programs on this machine.
    let login = json!({"email": ADMIN});
    let offered = post(&mut server.http(), "/admin/auth/magic-link", &login);
    assert!(offered.json()["token"].is_string(), "{}", offered.text());
}

#[test]
fn s19_behind_a_trusted_proxy_no_address_of_this_machine_is_privileged() {
    let place = Place::new();
    let server = start(
        &place
            .options()
            .env("BEAM_ADMIN_EMAILS", ADMIN)
            .env("BUS_TRUST_PROXY", "true"),
    );
    let reply = post(&mut server.http(), REGISTER, &registration(ALICE, 1));
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_closed(&server, server.http());
}

#[test]
fn s20_what_a_key_signed_for_something_else_changes_no_key() {
    let place = Place::new();
    let server = start(&place.options());
    let reply = post(&mut server.http(), REGISTER, &registration(ALICE, 1));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let next = key(2).public_key().to_string();
    let (now, old) = (now_text(), "2026-01-01T00:00:00.000Z");
    let rotation = |at: &str| BeamSignedText::keys_rotate(ALICE, &next, at);
    let others = [
        (
            BeamSignedText::keys_revoke(ALICE, &next, &now),
            now.as_str(),
        ),
        (BeamSignedText::config(ALICE, &now), &now),
        (
            BeamSignedText::keys_rotate("bob@acme.beam.directory", &next, &now),
            &now,
        ),
        (
            BeamSignedText::keys_rotate(ALICE, &key(3).public_key().to_string(), &now),
            &now,
        ),
        (rotation(old), old),
        (rotation(old), &now),
    ];
    let refused = (400, "INVALID_ROTATION_PROOF".to_owned());
    let mut http = elsewhere(&server);
    for (text, at) in &others {
        let signature = text.sign(&key(1));
        let body = json!({"new_public_key": next, "timestamp": at, "signature": signature});
        assert_eq!(
            refusal(&post(&mut http, ROTATE, &body)),
            refused,
            "{text:?}"
        );
        let body = json!({"new_public_key": next, "rotation_proof": signature});
        assert_eq!(
            refusal(&post(&mut http, ROTATE, &body)),
            refused,
            "{text:?}"
        );
    }
    let signature = rotation(&now).sign(&key(1));
    let body = json!({"new_public_key": next, "timestamp": now, "signature": signature});
    let rotated = post(&mut http, ROTATE, &body);
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    // It counts once, also when the key is current again some day.
    assert_ne!(post(&mut http, ROTATE, &body).status, 200);
}

#[test]
fn s21_strangers_can_fill_neither_the_disk_nor_the_memory_through_beam() {
    let place = Place::new();
    let server = start(
        &place
            .options()
            .env("BEAM_WRITE_BYTES_PER_MINUTE", "3000")
            .env("BEAM_AGENTS_MAX", "2"),
    );
    let mut http = elsewhere(&server);
    let mut long = registration("one@acme.beam.directory", 1);
    long["description"] = json!("x".repeat(2_000));
    assert_eq!(post(&mut http, REGISTER, &long).status, 201);
    long["beamId"] = json!("two@acme.beam.directory");
    let limited = (429, "RATE_LIMITED".to_owned());
    assert_eq!(refusal(&post(&mut http, REGISTER, &long)), limited);
    assert_eq!(refusal(&post(&mut http, "/intents/send", &long)), limited);
    let small = registration("three@acme.beam.directory", 3);
    assert_eq!(post(&mut http, REGISTER, &small).status, 201);
    let full = post(
        &mut http,
        REGISTER,
        &registration("four@acme.beam.directory", 4),
    );
    assert_eq!(refusal(&full), (403, "FORBIDDEN".to_owned()));
    assert!(full.text().contains("BEAM_AGENTS_MAX"), "{}", full.text());
    // Programs on this machine have neither limit.
    for name in ["four", "five"] {
        long["beamId"] = json!(format!("{name}@acme.beam.directory"));
        let reply = post(&mut server.http(), REGISTER, &long);
        assert_eq!(reply.status, 201, "{}", reply.text());
    }
}
